//! Tests that run segment scripts: one connection in virtual time, against a peer scripted line by line.
//!
//! Each `.script` file in `tests/scripts` is one test. A failure report contains the file and the line, the
//! expected and the actual segment, and the preceding segments.

mod language;
mod world;

use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn scripts() -> Vec<PathBuf> {
    let entries = |path: &Path| {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        found.sort();
        found
    };
    let folders = entries(&folder()).into_iter().filter(|path| path.is_dir());
    let files = folders.flat_map(|path| entries(&path));
    files.filter(|path| path.extension().is_some_and(|extension| extension == "script")).collect()
}

/// Returns the line and the reason of a script failure, or `None` if the script passes.
fn failure(text: &str) -> Option<String> {
    let script = match language::parse(text) {
        Ok(script) => script,
        Err((line, why)) => return Some(format!("{line}: {why}")),
    };
    let (line, why, transcript) = world::run(&script).err()?;
    let recent = transcript.len().saturating_sub(12);
    Some(format!("{line}: {why}\n      {}", transcript[recent..].join("\n      ")))
}

#[test]
fn every_script_passes() {
    let all = scripts();
    let mut failures = Vec::new();
    for path in &all {
        let name = path.strip_prefix(folder()).expect("inside").display().to_string();
        let text = fs::read_to_string(path).expect("a script is text");
        failures.extend(failure(&text).map(|why| format!("{name}:{why}")));
    }
    assert!(failures.is_empty(), "{} of {} fail\n{}", failures.len(), all.len(), failures.join("\n"));
    assert!(all.len() >= 60, "only {} scripts", all.len());
}

/// Each of these scripts contains one error, and the runner must reject all of them. Otherwise, a passing
/// script would prove nothing.
#[test]
fn the_runner_notices() {
    let good = "checks RK-2\nestablished 0.1\n+0 write 1448\n> P. 1:1449 ack 1\n+0.1 < . 1:1 ack 1449\nexpect cwnd 10\n";
    assert_eq!(failure(good), None);
    for (from, to, line, why) in [
        ("> P. 1:1449", "> P. 1:1450", 4, "range"),
        ("> P. 1:1449", "> F. 1:1449", 4, "flags"),
        ("> P. 1:1449 ack 1", "> P. 1:1449 ack 2", 4, "ack"),
        ("> P. 1:1449 ack 1", "> P. 1:1449 win 1", 4, "win"),
        ("> P. 1:1449 ack 1", "> P. 1:1449 <sack 1:2>", 4, "sack"),
        ("> P. 1:1449 ack 1", "> P. 1:1449 <TS val 1>", 4, "TS val"),
        ("> P. 1:1449 ack 1", "+0.001 > P. 1:1449", 4, "expected at 0.001"),
        ("> P. 1:1449 ack 1\n", "", 4, "not expected"),
        ("write 1448", "write 2896", 4, "PSH"),
        ("write 1448", "nothing", 4, "nothing was sent"),
        ("write 1448", "write 1448 takes 7", 3, "bytes taken"),
        ("cwnd 10", "cwnd 12", 6, "came 10"),
        ("cwnd 10", "cwnd >=12", 6, "came 10"),
        ("cwnd 10", "colour red", 6, "nothing is known"),
        ("+0.1 < .", "+0.1~5ms < .", 5, "early"),
        ("checks RK-2\n", "\n", 1, "what it checks"),
        ("< . 1:1", "< ? 1:1", 5, "no flag"),
        ("< . 1:1 ack 1449", "< . 1:1 ack 1449 <color 1>", 5, "option"),
        ("expect cwnd 10", "event finished", 6, "events"),
    ] {
        assert!(good.contains(from), "{from}");
        let found = failure(&good.replace(from, to)).unwrap_or_else(|| panic!("{to} passes"));
        assert!(found.starts_with(&format!("{line}: ")) && found.contains(why), "{to}: {found}");
    }
}

/// The tolerance only allows for late kernel timers, so it applies in one direction only.
#[test]
fn a_tolerance_has_one_side() {
    let at = |time: &str| {
        failure(&format!("checks G-3\nestablished 0.1\nwrite 1448\n> . 1:1449\n{time} > . 1:1449 ack 1\n"))
    };
    assert_eq!(at("0.300"), None);
    assert_eq!(at("0.312~12ms"), None);
    assert!(at("0.313~12ms").is_some_and(|why| why.contains("0.301 to 0.313")));
    assert!(at("0.299~12ms").is_some());
}
