//! Tests of `fullpipe run` as users and scripts run it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{CommandOutput, folder, fullpipe, refusal};

/// Experiment on a link of 10 Mbit/s: a transfer of 2 s moves some data, but never more than the link can
/// carry.
const EXPERIMENT: &str = "\
name = 'small'
duration = '2s'
[path]
rate = '10mbit'
rtt = '10ms'
[[flow]]
cc = ['reno', 'cubic']
";
const MET: &str =
    "[[expect]]\nwhere = { cc = 'reno' }\nmetric = 'goodput_bps'\nmin = '1mbit'\nkernel = '9.5'\n";
const MISSED: &str = "[[expect]]\nmetric = 'goodput_bps'\nmin = '11mbit'\n";

fn experiment(test: &str, text: &str) -> PathBuf {
    let file = folder(test).join("small.toml");
    fs::write(&file, text).expect("an experiment file");
    file
}

fn run(file: &Path, more: &[&str]) -> CommandOutput {
    fullpipe(&[&["run", file.to_str().expect("UTF-8")], more].concat())
}

#[test]
fn a_table_has_one_line_a_point() {
    let file = experiment("table", &format!("{EXPERIMENT}{MET}"));
    let (code, stdout, stderr) = run(&file, &["--check", "--repeat", "3"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("cc=")).count(), 2, "{stdout}");
    let verdict = lines.iter().find(|line| line.starts_with("pass  cc=reno")).expect("a verdict");
    assert!(verdict.ends_with(">= 1.00   9.5"), "{verdict:?}");
    assert!(stdout.contains("mean (min..max) of seeds 1 to 3"), "{stdout}");
    assert!(stdout.ends_with("1 of 1 expectations met\n"), "{stdout}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{stdout}");
}

/// A file that is too large for an experiment is not read into memory.
#[test]
fn a_file_that_is_too_large_is_refused() {
    let file = experiment("too-large", &"#".repeat((1 << 20) + 1));
    let (error, hint) = refusal(1, run(&file, &[]));
    assert!(error.ends_with("small.toml: the file is larger than 1 MiB"), "{error}");
    assert!(hint.starts_with("pass an experiment file"), "{hint}");
}

#[test]
fn a_missed_expectation_counts_only_when_asked() {
    let file = experiment("missed", &format!("{EXPERIMENT}{MET}{MISSED}"));
    let (code, stdout, _) = run(&file, &[]);
    assert_eq!(code, 0);
    assert!(stdout.contains("FAIL  cc=cubic") && stdout.contains("1 of 3 expectations met"), "{stdout}");
    assert_eq!(run(&file, &["--check"]).0, 5);
}

#[test]
fn json_goes_to_standard_output_and_to_the_folder() {
    let file = experiment("json", &format!("{EXPERIMENT}{MET}"));
    let out = file.with_file_name("deep").join("results");
    let more = ["--format", "json", "--seed", "40", "--repeat", "2", "--out", out.to_str().expect("UTF-8")];
    let (code, stdout, stderr) = run(&file, &more);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let document: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(document["schema"], "fullpipe.run/1");
    assert_eq!((&document["experiment"], &document["world"]), (&"small".into(), &"sim".into()));
    let runs = document["runs"].as_array().expect("runs");
    let order: Vec<_> = runs.iter().map(|run| (run["point"].as_str(), run["seed"].as_u64())).collect();
    let expected = [("cc=reno", 40), ("cc=reno", 41), ("cc=cubic", 40), ("cc=cubic", 41)];
    assert_eq!(order, expected.map(|(point, seed)| (Some(point), Some(seed))));
    assert!(runs.iter().all(|run| run["wall_s"].is_f64() && run["digest"].is_string()), "{stdout}");
    assert_eq!(document["expect"][0]["pass"], true);

    assert_eq!(fs::read_to_string(out.join("result.json")).expect("a result"), stdout);
    let lines = fs::read_to_string(out.join("results.jsonl")).expect("lines");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(&lines, runs, "a line a run, in the order of the document");
    let table = fs::read_to_string(out.join("results.csv")).expect("a table");
    assert_eq!(table.lines().count(), 1 + 4, "a row a flow and run under the header: {table}");
    assert!(table.starts_with("point,seed,flow,cc,received_bytes,goodput_bps,"), "{table}");

    let mut names: Vec<_> =
        fs::read_dir(&out).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        ["result.json", "results.csv", "results.jsonl", "trace.csv"],
        "no temporary file is left"
    );
}

#[test]
fn json_lines_are_one_object_a_run() {
    let file = experiment("jsonl", &format!("{EXPERIMENT}{MET}"));
    let (code, stdout, stderr) = run(&file, &["--format", "jsonl", "--repeat", "2", "--check"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines = stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    // Runs are printed in the order in which they complete, which varies between machines.
    let mut runs: Vec<_> = lines
        .map(|run| (run["point"].to_string(), run["seed"].to_string(), run["flows"].is_array()))
        .collect();
    runs.sort();
    let expected = [("cc=cubic", "1"), ("cc=cubic", "2"), ("cc=reno", "1"), ("cc=reno", "2")];
    assert_eq!(runs, expected.map(|(point, seed)| (format!("{point:?}"), seed.to_owned(), true)));
}

/// After Ctrl-C during an experiment, completed runs are printed and written to files, and the exit code
/// shows that runs are missing.
#[cfg(unix)]
#[test]
fn an_interrupted_campaign_keeps_what_is_finished() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    // The experiment has 10 000 runs, far more than can complete before Ctrl-C.
    let file = experiment("interrupted", &format!("{EXPERIMENT}{MISSED}").replace("'2s'", "'20s'"));
    let out = file.with_file_name("results");
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args([
            "run",
            file.to_str().expect("UTF-8"),
            "--repeat",
            "5000",
            "--format",
            "jsonl",
            "--check",
            "--out",
        ])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut printed = String::new();
    for _ in 0..3 {
        stdout.read_line(&mut printed).expect("a finished run");
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(interrupt.success());
    stdout.read_to_string(&mut printed).expect("the rest");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("what it says");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{stderr}");
    let mut said = stderr.lines();
    assert!(
        said.next()
            .is_some_and(|line| line.starts_with("10000 runs, 200000 s of virtual time; takes about "))
    );
    assert!(said.next().is_some_and(|line| line.starts_with("interrupted: finishing the current runs;")));

    let document = fs::read_to_string(out.join("result.json")).expect("a result");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let runs = document["runs"].as_array().expect("runs").len();
    assert_eq!(document["interrupted"], true);
    assert_eq!(document["expect"], serde_json::json!([]), "no point has all of its seeds");
    assert!((3..10_000).contains(&runs), "{runs}");
    assert_eq!(printed.lines().count(), runs, "every finished run was printed");
    assert!(stderr.ends_with(&format!("interrupted after {runs} of 10000 runs\n")), "{stderr}");
    let lines = |name: &str| fs::read_to_string(out.join(name)).expect(name).lines().count();
    assert_eq!((lines("results.jsonl"), lines("results.csv")), (runs, runs + 1));
    assert_eq!(lines("trace.csv"), 1 + runs * 200, "20 s, a row each 100 ms");
}

/// A second Ctrl-C abandons the run in progress; the finished runs are printed and written to files.
#[cfg(unix)]
#[test]
fn a_second_interruption_keeps_what_is_finished() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        eprintln!("skipped: one core makes one run after the other");
        return;
    }
    // The first run simulates an hour at 10 Gbit/s, which takes minutes of wall-clock time. Another thread
    // executes the short run that follows. Once the short run is reported, the long run must be in progress.
    let text = EXPERIMENT.replace("['reno', 'cubic']", "'reno'");
    let text = text.replace("'2s'", "['3600s', '100ms']").replace("10mbit", "10gbit");
    let file = experiment("interrupted-twice", &text);
    let out = file.with_file_name("results");
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["run", file.to_str().expect("UTF-8"), "--format", "jsonl", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let id = child.id().to_string();
    let hear = |from: &mut dyn BufRead| from.read_line(&mut String::new()).expect("a line");
    let (mut stdout, mut stderr) = (BufReader::new(stdout), BufReader::new(stderr));
    assert_ne!(hear(&mut stderr), 0, "the forecast");
    for heard in [&mut stdout as &mut dyn BufRead, &mut stderr] {
        assert_ne!(hear(heard), 0);
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill runs").success());
    }
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("the rest");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.starts_with("interrupted again: keeping the finished runs;"), "{said}");
    assert!(said.ends_with("interrupted after 1 of 2 runs\n"), "{said}");
    let document = fs::read_to_string(out.join("result.json")).expect("a result");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(
        (&document["interrupted"], &document["runs"][0]["point"]),
        (&true.into(), &"duration=100ms".into())
    );
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(fs::read_to_string(out.join("trace.csv")).expect("a trace").lines().count(), 2);
}

/// `run` states the cost of an experiment before it starts. In every format, the line with the cost is on
/// standard error, so that standard output contains only JSON.
#[test]
fn the_cost_is_stated_before_the_runs() {
    let file = experiment("cost", EXPERIMENT);
    for format in ["text", "json", "jsonl"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(["run", file.to_str().expect("UTF-8"), "--repeat", "3", "--format", format])
            .output()
            .expect("it runs");
        assert!(output.status.success());
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        let estimate = stderr.strip_prefix("6 runs, 12 s of virtual time; takes about ").expect(&stderr);
        let seconds =
            estimate.split(' ').next().and_then(|number| number.parse::<f64>().ok()).expect(&stderr);
        assert!(seconds > 0.0 && seconds < 60.0, "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(!stdout.contains("virtual time"), "{stdout}");
    }
}

/// The traces of all runs are in one table, which data frame libraries can read directly.
#[test]
fn a_trace_has_a_row_for_each_sample_of_each_flow() {
    let two_flows = format!("{EXPERIMENT}count = 2\n[[sample]]\nevery = '100ms'\n");
    let file = experiment("trace", &two_flows);
    let out = file.with_file_name("results");
    let out_argument = out.to_str().expect("UTF-8");
    let (code, stdout, stderr) = run(&file, &["--repeat", "2", "--format", "json", "--out", out_argument]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let trace = fs::read_to_string(out.join("trace.csv")).expect("a trace");
    let rows: Vec<Vec<&str>> = trace.lines().map(|line| line.split(',').collect()).collect();
    let (header, rows) = rows.split_first().expect("a header");
    for name in ["point", "seed", "cwnd_bytes", "srtt_ms", "queue_bytes", "limited_rwnd_s", "phase"] {
        assert!(header.contains(&name), "{name} in {header:?}");
    }
    assert_eq!(rows.len(), 2 * 2 * 2 * 20, "points, seeds, flows, samples");
    assert!(rows.iter().all(|row| row.len() == header.len()));
    let column = |name: &str| header.iter().position(|h| *h == name).expect(name);
    let (time, received) = (column("t_s"), column("received_bytes"));

    // The last trace row of each flow agrees with the sums in the JSON document.
    let document: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let runs = document["runs"].as_array().expect("runs").iter();
    let expected = runs
        .flat_map(|run| run["flows"].as_array().expect("flows").iter().map(|flow| flow["bytes"].to_string()));
    let last: Vec<_> =
        rows.iter().filter(|row| row[time].parse() == Ok(2.0)).map(|row| row[received]).collect();
    assert_eq!(last, expected.collect::<Vec<_>>());

    let (_, untraced, _) = run(&file, &["--repeat", "2", "--format", "json"]);
    let digests = |text: &str| {
        text.lines().filter(|line| line.contains("\"digest\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(digests(&untraced), digests(&stdout), "a trace changes nothing");
}

#[test]
fn what_cannot_be_run_gets_one_line_and_a_hint() {
    let said = |test: &str, text: &str, more: &[&str]| {
        let file = experiment(test, text);
        let (code, stdout, stderr) = run(&file, more);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        stderr.replace(file.to_str().expect("UTF-8"), "FILE")
    };
    assert_eq!(
        said("mbps", &EXPERIMENT.replace("10mbit", "10mbps"), &[]),
        "error: FILE: line 4, column 8: rate '10mbps' has an ambiguous unit\n\
         hint: write mbit/s for bits or mB/s for bytes\n"
    );
    assert_eq!(
        said("nothing", EXPERIMENT, &["--check"]),
        "error: FILE: --check requires an [[expect]], but the experiment has none\nhint: add an [[expect]] \
         or remove --check\n"
    );
    // The experiment has 319 rates x 300 RTTs x 10 000 seeds: each number is within its limit, but the
    // product is not.
    let sweep = EXPERIMENT
        .replace("'10mbit'", "{ from = '1mbit', to = '319mbit', steps = 319 }")
        .replace("'10ms'", "{ from = '1ms', to = '300ms', steps = 300 }")
        .replace("['reno', 'cubic']", "'reno'");
    assert_eq!(
        said("sweep", &sweep, &["--repeat", "10000"]),
        "error: FILE: the experiment has 957000000 runs with 957000000 flows in total (95700 points x 10000 seeds)\n\
         hint: allowed: up to 200000 flows over all runs; shorten a list, lower repeat or split the experiment\n"
    );
    let crowd = format!("{EXPERIMENT}count = 10000\n")
        .replace("'10ms'", "['1ms', '2ms', '3ms', '4ms', '5ms', '6ms', '7ms', '8ms', '9ms', '10ms', '11ms']");
    assert_eq!(
        said("crowd", &crowd, &[]),
        "error: FILE: the points have more than 200000 flows in total\n\
         hint: lower count, shorten a list or split the experiment\n"
    );
    let rows = format!("{EXPERIMENT}[[sample]]\nevery = '10us'\n").replace("'2s'", "'100s'");
    let out = folder("rows").join("results");
    assert_eq!(
        said("rows-file", &rows, &["--out", out.to_str().expect("UTF-8")]),
        "error: the trace of all runs would have 20000000 rows\n\
         hint: allowed: up to 10000000; sample less often ([[sample]] every), or make fewer runs\n"
    );
    assert!(!out.exists(), "refused before any work");
    let file = experiment("out", EXPERIMENT);
    let (code, stdout, stderr) = run(&file, &["--out", file.to_str().expect("UTF-8")]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("error: cannot write ") && stderr.contains("\nhint: "), "{stderr}");

    let (code, _, stderr) = fullpipe(&["run", "absent.toml"]);
    assert_eq!(code, 1);
    assert!(
        stderr.starts_with("error: cannot read absent.toml: ") && stderr.contains("\nhint: "),
        "{stderr}"
    );
}

#[test]
fn wrong_usage_is_told_from_wrong_input() {
    assert_eq!(fullpipe(&["run"]).0, 2);
    // An unknown world is rejected.
    let (code, _, stderr) = fullpipe(&["run", "x.toml", "--world", "live"]);
    assert_eq!(code, 2);
    assert_eq!(
        stderr,
        "error: invalid value 'live' for '--world <WORLD>'\nhint: possible values: sim, emu, uml\n"
    );
    assert_eq!(fullpipe(&["run", "x.toml", "--repeat", "0"]).0, 2);
    assert_eq!(fullpipe(&["run", "x.toml", "--datapath", "offload"]).0, 2);
    assert_eq!(fullpipe(&["walk"]).0, 2);
}

#[test]
fn help_lists_the_exit_codes() {
    for arguments in [&["--help"][..], &["run", "--help"]] {
        let (code, stdout, _) = fullpipe(arguments);
        assert_eq!(code, 0);
        assert!(stdout.contains("  5  done, but "), "{stdout}");
    }
}
