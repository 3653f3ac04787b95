//! Tests of `fullpipe run --out`, followed by `fullpipe diagnose` on the trace that it wrote.

use std::fs;
use std::path::Path;

use crate::process::{CommandOutput, example, folder, fullpipe, fullpipe_reading, refusal};
use serde_json::Value;

/// Experiment in which the send buffer limits a flow to half of the link rate. The second point of the
/// experiment has two flows and two seeds.
const EXPERIMENT: &str = r#"
name = "short"
duration = "4s"
[path]
rate = "20mbit"
rtt = "40ms"
[[flow]]
cc = "cubic"
[[sample]]
every = "50ms"
[[point]]
name = "one"
host = { sndbuf = { fixed = "64KiB" } }
[[point]]
name = "two"
host = { rcvbuf = { fixed = "48KiB" } }
flow = { count = 2 }
"#;

/// Runs [`EXPERIMENT`] and returns its trace as text.
fn trace(test: &str) -> String {
    let folder = folder(test);
    let (file, out) = (folder.join("short.toml"), folder.join("out"));
    fs::write(&file, EXPERIMENT).expect("an experiment");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (code, _, stderr) = fullpipe(&["run", &path(&file), "--repeat", "2", "--out", &path(&out)]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    fs::read_to_string(out.join("trace.csv")).expect("a trace")
}

fn diagnose(input: &str, arguments: &[&str]) -> CommandOutput {
    fullpipe_reading(input.as_bytes(), &[&["diagnose", "-"], arguments].concat())
}

fn document(input: &str, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = diagnose(input, &[&["--json"], arguments].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// Returns the trace with only those columns that `keep` selects by name.
fn columns(text: &str, keep: impl Fn(&str) -> bool) -> String {
    let names: Vec<&str> = text.lines().next().expect("names").split(',').collect();
    let line = |line: &str| {
        let fields = line.split(',').zip(&names).filter(|(_, name)| keep(name)).map(|(field, _)| field);
        fields.collect::<Vec<_>>().join(",") + "\n"
    };
    text.lines().map(line).collect()
}

#[test]
fn a_trace_is_told_by_content_and_climbed() {
    let text = trace("trace-text");
    let (code, stdout, stderr) = diagnose(&text, &["--link", "20mbit"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let most = ["[sndbuf, 8", "[sndbuf, 9"].iter().any(|share| stdout.contains(share));
    assert!(most, "most of the time: {stdout}");
    assert!(stdout.contains("whether a program set the send buffer of 64 KiB"), "{stdout}");
    assert!(stdout.contains("To reach "), "{stdout}");
    let unwrapped = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for option in ["--point", "--seed"] {
        assert!(unwrapped.contains(&format!("choose another with {option}")), "{stdout}");
    }
}

#[test]
fn the_document_has_the_limits_over_time() {
    let text = trace("trace-json");
    let said = document(&text, &["--link", "20mbit"]);
    assert_eq!(said["input"]["kind"], "trace");
    assert_eq!(said["findings"][0]["limit"], "sndbuf");
    assert_eq!(said["path"]["rtt_ms"].as_f64().map(f64::round), Some(40.0), "{}", said["path"]);
    let limits = said["limits"].as_array().expect("limits");
    let time = |limit: &Value, key| limit[key].as_f64().expect("seconds");
    assert!(limits.windows(2).all(|pair| time(&pair[0], "to_s") == time(&pair[1], "from_s")), "{limits:#?}");
    assert_eq!(time(limits.last().expect("one"), "to_s"), 4.0);
    assert_eq!(limits[0]["basis"], "inferred");
    let (first, last) =
        (&said["ladder"][0], said["ladder"].as_array().and_then(|l| l.last()).expect("a line"));
    assert_eq!((&first["limit"], &last["limit"]), (&"sndbuf".into(), &"link".into()));
}

#[test]
fn point_seed_and_flow_are_chosen() {
    let text = trace("trace-choice");
    let said = document(&text, &["--point", "two", "--seed", "2", "--flow", "1", "--link", "20mbit"]);
    assert_eq!(said["findings"][0]["limit"], "rwnd");
    let notes = said["notes"].to_string();
    assert!(!notes.contains("choose another with"), "{notes}");
    let (error, hint) = refusal(1, diagnose(&text, &["--point", "three"]));
    assert!(error.contains("no point 'three'") && hint.contains("'one', 'two'"), "{error}; {hint}");
    let (error, hint) = refusal(1, diagnose(&text, &["--seed", "7"]));
    assert!(error.contains("no seed 7") && hint.contains("1, 2"), "{error}; {hint}");
    let (error, _) = refusal(1, diagnose(&text, &["--flow", "2"]));
    assert!(error.contains("no flow 2"), "{error}");
    let log = example("cross-border/cubic.iperf3.txt");
    let (error, _) = refusal(1, fullpipe(&["diagnose", &log, "--rtt", "210ms", "--flow", "1"]));
    assert!(error.contains("apply only to traces"), "{error}");
}

/// A tool that samples kernel sockets can write these columns. These columns contain nothing about the path,
/// the sender's internal state or runs.
#[test]
fn the_columns_of_a_socket_are_enough() {
    let text = trace("trace-stripped");
    let first: String = text
        .lines()
        .filter(|l| !l.starts_with("two,") && !l.starts_with("one,2,"))
        .fold(String::new(), |all, line| all + line + "\n");
    let own =
        ["point", "seed", "cc", "queue_", "link_", "shaper_", "policed", "_drops", "lost_", "send_limit"];
    let own = own.iter().chain(&["limited_", "phase", "received_", "unread_", "rcvbuf_"]);
    let own: Vec<&&str> = own.collect();
    let stripped =
        columns(&first, |name| name == "app_limited" || !own.iter().any(|part| name.contains(**part)));
    let said = document(&stripped, &["--link", "20mbit"]);
    assert_eq!(said["findings"][0]["limit"], "sndbuf");
    assert!(!said["notes"].to_string().contains("sender's internal state"), "{}", said["notes"]);
}

/// An invalid trace results in one line that describes the error, and in one line with a hint.
#[test]
fn a_trace_that_cannot_be_used_is_refused() {
    let text = trace("trace-malformed");
    let names = text.lines().next().expect("names").to_owned() + "\n";
    let rows: Vec<&str> = text.lines().skip(1).collect();
    let with = |rows: &[&str]| names.clone() + &rows.join("\n");
    let back = with(&[&rows[..20], &rows[..20]].concat());
    let field = |column: &str, value: &str| {
        let index = names.trim().split(',').position(|name| name == column).expect("a column");
        let mut fields: Vec<&str> = rows[30].split(',').collect();
        fields[index] = value;
        with(&[&rows[..30], &[fields.join(",").as_str()], &rows[31..]].concat())
    };
    let idle: Vec<String> = rows[..40].iter().map(|row| row.replace("one,1,0", "one,1,3")).collect();
    let short = with(&rows[..4]);
    let missing = columns(&text, |name| name != "sndbuf_bytes");
    let cases: [(&str, String, &str); 13] = [
        ("names only", names.clone(), "no rows"),
        ("four rows", short, "too few for a measurement"),
        ("a column missing", missing, "column sndbuf_bytes is missing"),
        ("time goes back", back, "does not advance"),
        ("a word for a number", field("cwnd_bytes", "large"), "line 32: cwnd_bytes has an invalid value"),
        ("a negative number", field("rwnd_bytes", "-1"), "line 32: rwnd_bytes has an invalid value"),
        ("a negative time", field("t_s", "-3"), "line 32: t_s -3 is not a valid time"),
        ("no number", field("t_s", "NaN"), "line 32: t_s NaN is not a valid time"),
        ("an endless RTT", field("srtt_ms", "inf"), "line 32: srtt_ms"),
        ("segments of nothing", field("mss_bytes", "0"), "line 32: mss_bytes is zero"),
        ("a buffer beyond reason", field("sndbuf_bytes", "18446744073709551615"), "than any host supports"),
        ("a line too short", with(&[&rows[..9], &["one,1,0"], &rows[9..]].concat()), "line 11 has 3 fields"),
        (
            "nothing moves",
            with(&idle.iter().map(String::as_str).take(3).collect::<Vec<_>>()),
            "too few for a measurement",
        ),
    ];
    for (name, input, part) in cases {
        let (error, _) = refusal(1, diagnose(&input, &["--link", "20mbit"]));
        assert!(error.contains(part), "{name}: {error}");
    }
    // An interrupted run leaves an incomplete last line in the trace.
    let cut = with(&rows[..60]);
    let said = document(&cut[..cut.len() - 40], &["--link", "20mbit"]);
    assert_eq!(said["input"]["truncated"], true);
}
