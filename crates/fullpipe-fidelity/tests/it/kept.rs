//! Tests of `fullpipe-fidelity` without special privileges: rejected input, and the reuse of stored kernel
//! runs. The stored runs of these tests come from the simulator, so simulator and kernel agree exactly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::process::{folder, fullpipe, refusal};
use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::results::{Run, TimedOutcome};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::sim;
use fullpipe::lab::validity::{LatenessQuantiles, Stalls, Validity};
use fullpipe::ladder::{Repeats, climb_known};
use fullpipe::units::{Bytes, Duration};
use fullpipe::{HostFacts, Input, PathFacts, diagnose};
use fullpipe_fidelity::rung_runs::{Step, applied, settings, steps};

/// An experiment with a run limited by a window, followed by a run limited by the link. The kernel that runs
/// the tests is never 4.15, so a run that is not stored is rejected.
const CELLS: &str = "name = 'cells'\nduration = '2s'\n[path]\nrate = '20mbit'\nrtt = '40ms'\n\
                     [host]\nkernel = '4.15'\nsndbuf = '64KiB'\nrcvbuf = '64KiB'\n[[flow]]\ncc = 'cubic'\n\
                     [[point]]\nname = 'small'\nflow = { cc = 'cubic' }\n";

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").into()
}

/// Returns a line of `kernel.jsonl` for the simulator's run of `scenario`. The lateness `late` determines
/// whether the run is valid.
fn line(label: &str, scenario: &Scenario, identified: bool, late: Duration) -> String {
    let lateness = LatenessQuantiles { p99: late, ..LatenessQuantiles::default() };
    let validity = Validity {
        rtt: scenario.path.rtt(),
        lateness,
        tun_drops: 0,
        retransmits: Some(0),
        drops: 0,
        duplicates: 0,
        cpu: 0.1,
        stalls: Stalls::default(),
    };
    let timed = TimedOutcome { outcome: sim::run(scenario), wall_s: 0.0, validity: Some(validity) };
    let mut run = serde_json::to_value(Run::of(label.into(), scenario.seed, &timed)).expect("JSON");
    if identified {
        run["scenario"] = scenario.identity().into();
    }
    format!("{run}\n")
}

/// Returns the path of an experiment file, and the scenarios of its ladder.
fn cells(dir: &Path) -> (String, Vec<Scenario>) {
    let experiment = Experiment::from_toml(CELLS).expect("valid");
    let first = Scenario { seed: 2, ..experiment.points()[0].scenario.clone() };
    let ladder = climb_known(&first, Repeats { measurements: 1, runs: 1 }, |_| ()).expect("a ladder");
    let runs = ladder.rungs.into_iter().filter_map(|rung| Some(Scenario { seed: 1, ..rung.scenario? }));
    (write(dir, "cells.toml", CELLS), runs.collect())
}

fn said(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = fullpipe(arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

fn out(dir: &Path, lines: &str) -> (PathBuf, String) {
    let out = dir.join("out");
    fs::create_dir_all(&out).expect("a folder");
    write(&out, "kernel.jsonl", lines);
    let name = out.to_str().expect("UTF-8").to_owned();
    (out, name)
}

#[test]
fn rungs_are_held_against_kept_runs() {
    let dir = folder("ladder-kept");
    let (file, runs) = cells(&dir);
    assert_eq!(runs.len(), 2);
    let whole: String = runs.iter().map(|run| line("another name", run, true, Duration::ZERO)).collect();
    let (out, name) = out(&dir, &format!("{whole}{{\"point\":\"cut o"));
    let page = write(
        &dir,
        "page.md",
        "# Mine\n\n<!-- begin of the table -->\nold\n<!-- end of the table -->\n\nMy words.\n",
    );
    let text = said(&["--ladder", &file, "--out", &name, "--page", &page]);
    assert!(text.contains("2 valid runs of 2; `fullpipe-fidelity --ladder "), "{text}");
    assert!(text.contains("| small | rwnd: a 32 KiB receive window | as it stands | "), "{text}");
    assert!(text.contains("|  | link: the link | buffers for "), "{text}");
    assert!(text.contains(" | 1.00 | - | - | ") && text.contains(" | 1.11 | within 10 % |"), "{text}");
    assert!(text.contains("2 of 2 (100 %) are within 10 %") && text.contains("Targets met: yes."), "{text}");
    let page = fs::read_to_string(page).expect("a page");
    assert_eq!(
        page,
        format!("# Mine\n\n<!-- begin of the table -->\n{text}<!-- end of the table -->\n\nMy words.\n")
    );
    let kept = fs::read_to_string(out.join("kernel.jsonl")).expect("kept");
    assert_eq!(kept, whole, "the line that was cut off is out, and nothing was run");
}

/// Returns a log of 12 s in which a window of 32 KiB is always full.
fn log() -> String {
    let totals = |start: u64, end: u64| {
        let seconds = end - start;
        format!(
            "\"start\":{start},\"end\":{end},\"seconds\":{seconds},\"bytes\":{},\"bits_per_second\":6553600,\"retransmits\":0",
            819_200 * seconds
        )
    };
    let interval = |nth: u64| {
        let totals = totals(nth, nth + 1);
        let socket = "\"socket\":5,\"snd_cwnd\":100000,\"snd_wnd\":32768,\"rtt\":40000,\"sender\":true";
        format!("{{\"streams\":[{{{totals},{socket}}}],\"sum\":{{{totals},\"sender\":true}}}}")
    };
    let (intervals, whole) = ((0..12).map(interval).collect::<Vec<_>>().join(","), totals(0, 12));
    format!(
        "{{\"start\":{{\"version\":\"iperf 3.18\",\"tcp_mss_default\":1448,\"test_start\":{{\"protocol\":\"TCP\",\"num_streams\":1}}}},\
         \"intervals\":[{intervals}],\"end\":{{\"sum_sent\":{{{whole}}},\"sum_received\":{{{whole}}},\
         \"sender_tcp_congestion\":\"cubic\"}}}}"
    )
}

/// Returns the kernel runs that the ladder of the log needs.
fn steps_of_log() -> Vec<Step> {
    let experiment = Experiment::from_toml(CELLS).expect("valid");
    let cell = &experiment.points()[0];
    let path = PathFacts { link: "20mbit".parse().ok(), rtt: "40ms".parse().ok(), ..PathFacts::default() };
    let hosts = HostFacts { local: Some(settings(&cell.scenario.host)), ..HostFacts::default() };
    let input = Input::from_bytes("log", log().as_bytes(), &Default::default()).expect("a log");
    let diagnosis = diagnose(&input.measurement, &path, &hosts, &()).expect("a diagnosis");
    let buffers =
        [&diagnosis.hosts.sender, &diagnosis.hosts.receiver].map(|host| Bytes::new(host.buffer_bytes));
    let run = |simulated: &Scenario| applied(&cell.scenario, simulated, (buffers[0], buffers[1]));
    let steps = steps(cell, &diagnosis, |rung, simulated| match rung.remedies.title() {
        None => Ok(cell.scenario.clone()),
        Some(_) => run(simulated).ok_or("a remedy that cannot be applied"),
    });
    steps.expect("runs")
}

/// A ladder that is climbed from a stored log is compared with stored runs of its rungs.
#[test]
fn a_kept_log_is_climbed() {
    let dir = folder("ladder-log");
    let file = write(&dir, "cells.toml", CELLS);
    let steps = steps_of_log();
    assert!(steps.len() >= 2, "{steps:#?}");
    let of_kernel = |step: &Step| {
        let scenario = Scenario { seed: 1_001, ..step.point.scenario.clone() };
        line("another name", &scenario, true, Duration::ZERO)
    };
    let (out, name) = out(&dir, &steps.iter().map(of_kernel).collect::<String>());
    let cell = Experiment::from_toml(CELLS).expect("valid").points()[0].scenario.clone();
    let identity = Scenario { seed: 1_000, ..cell }.identity();
    let record = serde_json::json!({"scenario": identity, "log": log()});
    fs::write(out.join("logs.jsonl"), format!("{record}\n")).expect("written");

    let text = said(&["--ladder", "--logs", &file, "--out", &name, "--cell", "1"]);
    let valid = format!("{0} valid runs of {0}; `fullpipe-fidelity --ladder --logs ", steps.len());
    assert!(text.contains(&valid), "{text}");
    assert!(text.contains("| small | rwnd: ") && text.contains("|  | link: "), "{text}");
    let rungs = text.lines().filter(|line| line.starts_with("| small | ") || line.starts_with("|  | "));
    assert_eq!(rungs.count(), steps.len(), "{text}");
}

/// A run is identified by its scenario, so a stored run with the same label but a different duration is not
/// reused. A stored run that was late is not reused either.
#[test]
fn what_is_not_the_same_run_is_not_taken() {
    let dir = folder("ladder-stale");
    let (file, runs) = cells(&dir);
    let taken = |second: &str| {
        let (_, name) = out(&dir, &(line("small", &runs[0], true, Duration::ZERO) + second));
        fullpipe(&["--ladder", &file, "--out", &name])
    };
    let label = "small, then buffers";
    let wants = |said| refusal(1, said).0.contains("requires kernel 4.15");
    let shorter = Scenario { duration: Duration::from_secs(1), ..runs[1].clone() };
    assert!(wants(taken(&line(label, &shorter, true, Duration::ZERO))));
    assert!(wants(taken(&line(label, &runs[1], true, Duration::from_millis(50)))));
    assert!(wants(taken("")));
    assert_eq!(taken(&line(label, &runs[1], true, Duration::ZERO)).0, 0);
}

/// Old lines contain no scenario, and are identified by point and seed.
#[test]
fn cells_are_compared_with_kept_runs() {
    let dir = folder("fidelity-kept");
    let (file, runs) = cells(&dir);
    for identified in [false, true] {
        let (_, name) = out(&dir, &line("small", &runs[0], identified, Duration::ZERO));
        let page = dir.join(format!("{identified}.md"));
        let page = page.to_str().expect("UTF-8");
        let text = said(&[&file, "--out", &name, "--page", page]);
        assert!(text.contains("1 valid runs of 1; `fullpipe-fidelity "), "{text}");
        assert!(text.ends_with("\n1 of 1 cells agree.\n"), "{text}");
        let page = fs::read_to_string(page).expect("a page");
        assert!(page.starts_with("# Fidelity\n\n<!-- begin of the table -->\n"), "{page}");
    }
}

/// If the reader of the output closes the pipe after the first lines of the table, this is not an error.
#[test]
fn a_reader_may_leave() {
    let dir = folder("fidelity-unread");
    let (file, runs) = cells(&dir);
    let (_, name) = out(&dir, &line("small", &runs[0], true, Duration::ZERO));
    let mut child = Command::new(crate::PROGRAM)
        .args([&file, "--out", &name])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

/// A stored run without a classification is repeated, and a stored run with a classification is reused. Every
/// seed must be classified.
#[test]
fn situations_are_told_by_kept_runs() {
    let dir = folder("situations-kept");
    let text = CELLS
        .replace("'small'", "'rwnd: a small one'\nlimit = 'rwnd'")
        .replace("duration = '2s'", "duration = '2s'\nrepeat = 2");
    let file = write(&dir, "situations.toml", &text);
    let experiment = Experiment::from_toml(&text).expect("valid");
    let point = &experiment.points()[0];
    let of = |seed: u64, named: &str| {
        let scenario = Scenario { seed, ..point.scenario.clone() };
        let line = line(&point.label, &scenario, true, Duration::ZERO);
        line.replacen('{', &format!("{{{named}"), 1)
    };
    let named = |limit: &str| format!("\"named\":{{\"limit\":\"{limit}\",\"share\":0.75}},");
    let told = |lines: &str, more: &[&str]| {
        let (_, name) = out(&dir, lines);
        fullpipe(&[&["--situations", &file, "--out", &name], more].concat())
    };
    let (error, _) = refusal(1, told(&(of(1, &named("rwnd")) + &of(2, "")), &[]));
    assert!(error.contains("requires kernel 4.15"), "{error}");

    let one_wrong = of(1, &named("rwnd")) + &of(2, &named("app"));
    let (code, stdout, stderr) = told(&one_wrong, &["--check"]);
    assert_eq!((code, stderr.as_str()), (5, ""), "{stdout}");
    assert!(stdout.contains("2 valid runs of 2; `fullpipe-fidelity --situations "), "{stdout}");
    assert!(stdout.contains("| rwnd: a small one | 2 | 1 | app 1 | 75 % (75 %) |"), "{stdout}");
    let (code, stdout, _) = told(&one_wrong, &["--check", "--repeat", "1"]);
    assert!(code == 0 && stdout.contains("in 1 of 1 runs (100.0 %). Target 95 %: met."), "{stdout}");
}

#[test]
fn what_cannot_be_used_is_said() {
    let dir = folder("fidelity-refused");
    let refused = |arguments: &[&str]| refusal(1, fullpipe(&[&["--ladder"], arguments].concat()));
    let (file, runs) = cells(&dir);
    let (error, _) = refused(&["no-such.toml", "--out", "nowhere"]);
    assert!(error.starts_with("cannot read no-such.toml"), "{error}");

    let (_, name) = out(&dir, "no run\n");
    let (error, hint) = refused(&[&file, "--out", &name]);
    assert!(
        error.contains("kernel.jsonl has no valid runs") && hint == "choose another --out",
        "{error}: {hint}"
    );

    let fixed = write(&dir, "fixed.toml", &CELLS.replace("sndbuf = '64KiB'", "sndbuf = { fixed = '64KiB' }"));
    let (error, hint) = refused(&[&fixed, "--out", &name]);
    assert!(error.contains("'small'") && error.contains("the application sets"), "{error}");
    assert!(hint.contains("fixed"), "{hint}");

    let situations = ["--situations", &file, "--out", &name];
    let (error, hint) = refusal(1, fullpipe(&situations));
    assert_eq!(error, "point 'small' does not state the limit that it is designed to have");
    assert!(
        hint.ends_with(
            "limits: app, receiver_app, rwnd, sndbuf, cwnd, slow_start, pacing, cap, policer, cpu, link"
        ),
        "{hint}"
    );

    let (error, hint) = refusal(2, fullpipe(&["--ladder", "--logs", &file, "--out", &name, "--cell", "99"]));
    assert_eq!((error.as_str(), hint.as_str()), ("cell 99 does not exist", "give a number from 1 to 9"));
    refusal(2, fullpipe(&["--ladder", "--logs", &file, "--out", &name, "--cell", "1", "--page", "page.md"]));
    refusal(2, fullpipe(&["--ladder", "--logs", &file, "--out", &name, "--again"]));

    let whole: String = runs.iter().map(|run| line("small", run, true, Duration::ZERO)).collect();
    let (_, name) = out(&dir, &whole);
    let page = write(&dir, "page.md", "# No place\n");
    let (code, _, stderr) = fullpipe(&["--ladder", &file, "--out", &name, "--page", &page]);
    assert!(code == 1 && stderr.contains("has no marker for the table"), "{stderr}");
    refusal(2, fullpipe(&["--ladder", &file]));
}
