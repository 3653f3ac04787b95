//! Tests of `fullpipe diagnose` as users and scripts run it.

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::cross_border;
use crate::process::{CommandOutput, example, folder, fullpipe, fullpipe_reading, refusal};
use serde_json::{Value, json};

/// Returns the log of a transfer at a few Mbit/s that is limited by loss: the window falls at each loss and
/// then recovers.
fn log() -> String {
    let mut text = "[ ID] Interval           Transfer     Bandwidth       Retr  Cwnd\n".to_owned();
    for second in 0..12 {
        let cwnd = [24, 48, 64, 45, 50, 56, 62, 44, 49, 55, 61, 43][second];
        let retransmits = if [3, 7, 11].contains(&second) { 2 } else { 0 };
        // At an RTT of 100 ms, ten windows of data are sent per second.
        let (kbytes, kbits) = (cwnd * 10, cwnd * 10 * 1024 * 8 / 1000);
        let _ = writeln!(
            text,
            "[  4]  {second:3}.00-{}.00   sec  {kbytes} KBytes  {kbits} Kbits/sec    {retransmits}   {cwnd}.0 KBytes",
            second + 1
        );
    }
    text
}

fn diagnose(input: &str, arguments: &[&str]) -> CommandOutput {
    fullpipe_reading(input.as_bytes(), &[&["diagnose", "-"], arguments].concat())
}

#[test]
fn a_log_is_read_from_standard_input() {
    let (code, stdout, stderr) = diagnose(&log(), &["--link", "20mbit", "--rtt", "100ms"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let headline = stdout.lines().next().expect("a headline");
    assert!(headline.contains("of the link: loss holds cwnd down"), "{headline}");
    assert!(stdout.contains("\nLadder: "), "{stdout}");
    assert!(!stdout.contains('\u{1b}'), "colour is for terminals");
}

/// With an RTT of 20 ms in place of 210 ms, no loss rate that the log allows gives the rate of the log, and the report
/// says that the model does not meet the log. (`a_log_that_the_model_cannot_meet_is_said` in `fullpipe-analysis` checks the
/// other forms of a diagnosis.) The link is slower than in reality, so that the rungs near its rate take less time to
/// simulate.
#[test]
fn a_log_that_the_model_cannot_meet_is_marked() {
    const MARK: &str = "the model does not reproduce the measured rate";
    // Lines break within sentences.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wrong = ["diagnose", &example("cross-border/cubic.iperf3.txt"), "--link", "140mbit", "--rtt", "20ms"];
    let (code, stdout, stderr) = fullpipe(&wrong);
    assert_eq!(code, 0, "{stderr}");
    let text = words(&stdout);
    assert!(text.contains(MARK) && text.contains("the log has 69.3 Mbit/s: not met"), "{text}");

    let right = words(&cross_border::report());
    assert!(!right.contains(MARK) && right.contains(": met"), "{right}");
}

/// Asserts that a JSON object has these keys; the values of the keys may be null.
#[track_caller]
fn has_keys(object: &Value, keys: &[&str]) {
    for key in keys {
        assert!(object.get(key).is_some(), "no {key} in {object:#}");
    }
}

#[test]
fn the_document_has_the_promised_keys() {
    let file = folder("diagnose-json").join("log.txt");
    fs::write(&file, log()).expect("a log");
    let file = file.to_str().expect("UTF-8");
    let (code, stdout, stderr) =
        fullpipe(&["diagnose", file, "--link", "20mbit", "--rtt", "100ms", "--format", "json"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(document["schema"], "fullpipe.diagnose/2");
    has_keys(&document, &["input", "path", "findings", "ladder"]);

    let findings = document["findings"].as_array().expect("findings");
    assert_eq!(findings[0]["limit"], "cwnd");
    for finding in findings {
        has_keys(finding, &["limit", "share", "confidence", "evidence", "could_not_tell", "next_test"]);
        assert!(["certain", "high", "low"].map(Value::from).contains(&finding["confidence"]), "{finding:#}");
    }

    let ladder = document["ladder"].as_array().expect("a ladder");
    let [first, .., last] = ladder.as_slice() else { panic!("{ladder:#?}") };
    assert_eq!((&first["source"], &last["limit"]), (&"measured".into(), &"link".into()));
    let mut commands = 0;
    for rung in ladder {
        has_keys(rung, &["limit", "bps", "steady_bps", "low_bps", "high_bps", "source", "remedy"]);
        for command in rung["commands"].as_array().expect("commands") {
            has_keys(command, &["run", "host", "scope", "undo", "requires"]);
            commands += 1;
        }
    }
    assert!(commands > 0, "{ladder:#?}");
}

/// The commands for each host contain the values of that host; the sysctl dump of the host that wrote the log
/// does not affect the other host.
#[test]
fn commands_have_the_values_of_their_host() {
    let folder = folder("diagnose-peer");
    let dump = |name: &str, wmem: u32, rmem: u32| {
        let file = folder.join(name);
        let text =
            format!("net.ipv4.tcp_wmem = 4096 {wmem} 262144\nnet.ipv4.tcp_rmem = 4096 {rmem} 262144\n");
        fs::write(&file, text).expect("a dump");
        file.to_str().expect("UTF-8").to_owned()
    };
    let (own, peer) = (dump("own", 16_001, 87_001), dump("peer", 16_002, 87_002));
    let path = ["--link", "20mbit", "--rtt", "100ms", "--json", "--sysctl", &own, "--peer-sysctl", &peer];
    let (code, stdout, stderr) = diagnose(&log(), &path);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let hosts = &document["hosts"];
    assert_eq!(
        (&hosts["sender"]["settings"], &hosts["sender"]["made_the_log"]),
        (&"sysctl".into(), &true.into())
    );
    assert_eq!(hosts["receiver"]["settings"], "peer_sysctl");
    let rungs = document["ladder"].as_array().expect("a ladder");
    let commands: Vec<&Value> =
        rungs.iter().flat_map(|rung| rung["commands"].as_array().expect("commands")).collect();
    let of = |host: &str, key: &str| {
        let found = commands.iter().find(|c| c["host"] == host && c["run"].to_string().contains(key));
        let found = found.unwrap_or_else(|| panic!("no {key} on the {host} in {commands:#?}"));
        (found["run"].to_string(), found["undo"].to_string())
    };
    let (run, undo) = of("sender", "tcp_wmem");
    assert!(run.contains("4096 16001 ") && undo.contains("4096 16001 262144"), "{run} {undo}");
    let (run, undo) = of("receiver", "tcp_rmem");
    assert!(run.contains("4096 87002 ") && undo.contains("4096 87002 262144"), "{run} {undo}");
}

/// The diagnosis compares the offered load of the application with the rate of each rung. The free memory of
/// the sender is known if this host is the sender.
#[test]
fn an_offered_rate_meets_the_ladder() {
    let path = ["--link", "20mbit", "--rtt", "100ms", "--json", "--offered", "15mbit"];
    let offered = |more: &[&str]| {
        let (code, stdout, stderr) = diagnose(&log(), &[&path[..], more].concat());
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        let rungs = document["ladder"].as_array().map(Vec::len);
        assert_eq!(document["offered"]["rungs"].as_array().map(Vec::len), rungs);
        document["offered"].clone()
    };
    let given = offered(&["--memory", "8MiB"]);
    assert_eq!((&given["memory_bytes"], &given["memory_source"]), (&8_388_608.into(), &"given".into()));
    let (present, first) = (&given["rungs"][0], given["first_that_carries"].as_u64());
    assert_eq!((&present["carries"], first), (&"less".into(), Some(1)));
    let short = 15_000_000 - present["carried_bps"].as_u64().expect("a rate");
    assert_eq!(present["growth_bytes_per_s"], short / 8);
    let full = present["memory_full_after_s"].as_f64().expect("a time");
    assert!((full * short as f64 / 8.0 / 8_388_608.0 - 1.0).abs() < 1e-9, "{full} s");
    assert!(given["remedies"][0]["what"].to_string().contains("bound the application's queue"));
    assert_eq!(offered(&[])["memory_source"], "example");

    let error = |more: &[&str]| refusal(1, diagnose(&log(), &[&path[..5], more].concat())).0;
    assert_eq!(error(&["--offered", "0mbit"]), "--offered is zero");
    assert_eq!(error(&["--offered", "1mbit", "--memory", "0B"]), "--memory is zero");
    refusal(2, diagnose(&log(), &["--memory", "1GiB"]));
}

/// The available memory of the sender is known only if this host is the sender.
#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_this_host_is_known_if_it_sends() {
    let path = ["--link", "20mbit", "--rtt", "100ms", "--json", "--offered", "15mbit"];
    let source = |more: &[&str]| {
        let (code, stdout, stderr) = diagnose(&log(), &[&path[..], more].concat());
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<Value>(&stdout).expect("JSON")["offered"]["memory_source"].clone()
    };
    assert_eq!(source(&["--sysctl", "local"]), "available");
    assert_eq!(source(&["--peer-sysctl", "local"]), "example");
}

/// Every kind of invalid input results in one line that describes the error, one line with a hint, and
/// nothing on standard output.
#[test]
fn what_cannot_be_used_gets_one_line_and_a_hint() {
    let log = log();
    let head = |lines: usize| log.lines().take(lines).collect::<Vec<_>>().join("\n");
    let (header, cut) = (head(1), head(4));
    let failed = "iperf3: error - unable to connect to server: Connection refused\n";
    let json = "{\"start\": {";
    let garbage: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let rtt = ["--rtt", "100ms"];
    let wrong_sysctl = example("cross-border/cubic.iperf3.txt");
    let cases: [(&str, &[u8], &[&str], &str); 12] = [
        ("empty", b"", &rtt, "empty"),
        ("blank", b" \n\n", &rtt, "empty"),
        ("header only", header.as_bytes(), &rtt, "no interval"),
        ("cut off", cut.as_bytes(), &rtt, "ends after 3 intervals"),
        ("a failed run", failed.as_bytes(), &rtt, "unable to connect"),
        ("JSON cut off", json.as_bytes(), &rtt, ""),
        ("garbage", &garbage, &rtt, ""),
        ("an RTT of half a minute", log.as_bytes(), &["--rtt", "30s"], "30s"),
        ("an RTT of nothing", log.as_bytes(), &["--rtt", "0ms"], "zero"),
        ("an RTT in the wrong unit", log.as_bytes(), &["--rtt", "100us"], "100us"),
        (
            "a line slower than the log",
            log.as_bytes(),
            &["--rtt", "100ms", "--link", "1mbit"],
            "link rate of 1 Mbit/s",
        ),
        (
            "a log for a dump",
            log.as_bytes(),
            &["--rtt", "100ms", "--sysctl", &wrong_sysctl],
            "cubic.iperf3.txt",
        ),
    ];
    for (name, input, arguments, part) in cases {
        let said = fullpipe_reading(input, &[&["diagnose", "-"], arguments].concat());
        let (error, _) = refusal(1, said);
        assert!(error.contains(part), "{name}: {error}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = folder("diagnose-unreadable");
    let (error, _) = refusal(1, fullpipe(&["diagnose", "absent.txt"]));
    assert!(error.starts_with("cannot read absent.txt: "), "{error}");
    refusal(1, fullpipe(&["diagnose", folder.to_str().expect("UTF-8")]));
    let (error, _) = refusal(1, diagnose(&log(), &["--rtt", "100ms", "--sysctl", "absent.sysctl"]));
    assert!(error.starts_with("cannot read absent.sysctl: "), "{error}");
}

/// Invalid usage has a different exit code than invalid input, and also results in two lines.
#[test]
fn wrong_usage_gets_one_line_and_a_hint() {
    let cases: [(&[&str], &str, &str); 7] = [
        (&["--link", "100mbps"], "--link <RATE>: rate '100mbps' has an ambiguous unit", "mbit/s"),
        (&["--rtt", "210"], "--rtt <TIME>: time '210' has no unit", "210ms"),
        (&["--rtt", "fast"], "--rtt <TIME>: time 'fast' does not start with a number", "diagnose --help"),
        (&["--kernel", "new"], "--kernel <VERSION>: kernel version 'new'", "diagnose --help"),
        (
            &["--format", "yaml"],
            "invalid value 'yaml' for '--format <FORMAT>'",
            "possible values: text, json",
        ),
        (&["--lnik", "1gbit"], "unexpected argument '--lnik' found", "'--link'"),
        (&["--link"], "a value is required for '--link <RATE>'", "diagnose --help"),
    ];
    for (arguments, error_part, hint_part) in cases {
        let (error, hint) = refusal(2, diagnose("", arguments));
        assert!(error.contains(error_part), "{error}");
        assert!(hint.contains(hint_part), "{error}: {hint}");
    }
    let (error, hint) = refusal(2, fullpipe(&["diagnose"]));
    assert_eq!(error, "the following required arguments were not provided: <FILE>");
    assert_eq!(hint, "see fullpipe diagnose --help");
    let (_, hint) = refusal(2, fullpipe(&["dataset", "show"]));
    assert_eq!(hint, "see fullpipe dataset show --help");
    let (error, hint) = refusal(2, fullpipe(&["walk"]));
    assert_eq!((error.as_str(), hint.as_str()), ("unrecognized subcommand 'walk'", "see fullpipe --help"));
}

/// The HTML report is written atomically, in addition to the printed text, and it contains the command that
/// created it.
#[test]
fn a_report_is_written_on_demand() {
    let folder = folder("diagnose-html");
    let file = folder.join("a report.html");
    let path = file.to_str().expect("UTF-8");
    let (code, stdout, stderr) = diagnose(&log(), &["--link", "20mbit", "--rtt", "100ms", "--html", path]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("\nLadder: "), "{stdout}");
    let page = fs::read_to_string(&file).expect("a report");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    // In the report, the command is quoted for a shell and escaped for HTML.
    let command = format!("fullpipe diagnose - --link 20mbit --rtt 100ms --html &#39;{path}&#39;");
    assert!(page.contains(&command), "no {command}");
    let left: Vec<_> =
        fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["a report.html"], "a temporary file was left behind");

    let below = file.join("below.html");
    let (error, _) =
        refusal(1, diagnose(&log(), &["--rtt", "100ms", "--html", below.to_str().expect("UTF-8")]));
    assert!(error.contains("below.html"), "{error}");
}

/// The findings need no simulation, so they must be printed before the ladder is simulated.
#[test]
fn findings_are_printed_before_the_ladder_is_simulated() {
    let file = folder("diagnose-early").join("log.txt");
    fs::write(&file, log()).expect("a log");
    let mut child = Command::new(crate::PROGRAM)
        .args(["diagnose", file.to_str().expect("UTF-8"), "--link", "200mbit", "--rtt", "100ms"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines =
        BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("UTF-8"));
    let evidence = lines.by_ref().find(|line| line.starts_with("     - "));
    // The simulation is still running, so the evidence must have been flushed before it.
    assert_eq!(child.try_wait().expect("a child"), None, "it has not ended");
    assert!(evidence.is_some() && lines.any(|line| line.starts_with("Ladder: ")));
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn the_brief_form_has_headline_ladder_and_next_test() {
    let path = ["--link", "20mbit", "--rtt", "100ms"];
    let (code, brief, stderr) = diagnose(&log(), &[&path[..], &["--brief"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{brief}");
    assert!(brief.contains("of the link: loss holds cwnd down. Lift that, and"), "{brief}");
    assert!(brief.contains("\nLadder: ") && brief.contains("\nNext test: "), "{brief}");
    assert!(!brief.contains("Findings") && !brief.contains("undo:") && brief.lines().count() < 20, "{brief}");
    let (code, _, stderr) = diagnose(&log(), &["--brief", "--json"]);
    assert_eq!((code, stderr.lines().count()), (2, 2), "{stderr}");
}

#[test]
fn without_the_ladder_only_the_findings_are_printed() {
    let path = ["--link", "20mbit", "--rtt", "100ms", "--no-ladder"];
    let (code, text, stderr) = diagnose(&log(), &path);
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert!(text.contains("\nFindings") && !text.contains("Ladder: "), "{text}");
    let (code, document, stderr) = diagnose(&log(), &[&path[..], &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{document}");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!((&document["ladder"], &document["findings"][0]["limit"]), (&json!([]), &json!("cwnd")));
    for other in [&["--brief"][..], &["--prove"], &["--offered", "10mbit"], &["--html", "never.html"]] {
        let (code, _, stderr) = diagnose(&log(), &[&path[..], other].concat());
        assert_eq!((code, stderr.lines().count()), (2, 2), "{stderr}");
    }
}

/// A JSON tree took up to 92 times the memory of its text: 5 GB for one day of reports. The test sets a
/// memory limit for the process; a later error then shows that the whole document was read.
#[test]
#[cfg(target_os = "linux")]
fn a_document_costs_a_few_times_its_size() {
    const MIB: usize = 1 << 20;
    let document = |size: usize, interval: &dyn Fn(usize) -> String| {
        let mut text = "{\"start\": {\"test_start\": {\"protocol\": \"TCP\"}}, \"intervals\": [".to_owned();
        for second in 0.. {
            text += &interval(second);
            if text.len() > size {
                return text + "]}";
            }
            text.push(',');
        }
        unreachable!("the loop ends with the size")
    };
    let of_iperf3 = |at: usize| {
        let span = format!(
            "\"start\":\t{at}.000123,\n\t\t\t\t\"end\":\t{}.000098,\n\t\t\t\t\"seconds\":\t0.99997502565383911",
            at + 1
        );
        let moved = "\"bytes\":\t125829120,\n\t\t\t\t\"bits_per_second\":\t1006658101.0203,\n\t\t\t\t\"retransmits\":\t1";
        let state = "\"snd_cwnd\":\t3014656,\n\t\t\t\t\"snd_wnd\":\t6291456,\n\t\t\t\t\"rtt\":\t24012,\n\t\t\t\t\"rttvar\":\t113,\n\t\t\t\t\"pmtu\":\t1500";
        let flags = "\"omitted\":\tfalse,\n\t\t\t\t\"sender\":\ttrue";
        format!(
            "{{\n\t\t\t\"streams\":\t[{{\n\t\t\t\t\"socket\":\t5,\n\t\t\t\t{span},\n\t\t\t\t{moved},\n\t\t\t\t{state},\n\t\t\t\t{flags}\n\t\t\t}}],\n\
             \t\t\t\"sum\":\t{{\n\t\t\t\t{span},\n\t\t\t\t{moved},\n\t\t\t\t{flags}\n\t\t\t}}\n\t\t}}"
        )
    };
    let shortest =
        |at: usize| format!("{{\"streams\":[{{\"start\":{at},\"end\":{},\"bytes\":99999}}]}}", at + 1);
    let folder = folder("diagnose-memory");
    let read = |name: &str, text: &str, times: usize| {
        let file = folder.join(name);
        fs::write(&file, text).expect("a document");
        let limit = times * text.len() / 1024;
        let script = format!("ulimit -d {limit}; exec \"$0\" diagnose \"$1\" --link 1kbit --rtt 24ms");
        let output =
            Command::new("sh").args(["-c", &script, crate::PROGRAM]).arg(&file).output().expect("a shell");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    for (name, text, times) in [
        ("iperf3.json", document(8 * MIB, &of_iperf3), 4),
        ("shortest.json", document(8 * MIB, &shortest), 16),
    ] {
        let refused = read(name, &text, times);
        assert!(refused.contains("exceeds the link rate"), "{name}: {refused}");
    }
    // Items that are not kept take no memory, whatever they contain.
    for item in ["{}", "[]", "0", "{\"streams\":[]}"] {
        let refused = read("empty.json", &document(4 * MIB, &|_| item.to_owned()), 16);
        assert!(refused.contains("no interval"), "{item}: {refused}");
    }
}
