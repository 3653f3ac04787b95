//! Runs commands behind an emulated path, if the process is permitted to create an emulated path.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use fullpipe::units::Duration;

use super::fullpipe;

pub(crate) const PATH: [&str; 5] = ["emu", "--rate", "10mbit", "--rtt", "20ms"];

/// Returns whether the process has the privileges for an emulated path; without them, `fullpipe emu` exits
/// with code 4.
pub(crate) fn allowed() -> bool {
    let (code, _, stderr) = fullpipe(&[&PATH[..], &["--", "true"]].concat());
    if code == 0 {
        return true;
    }
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("\nhint: "), "{stderr}");
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(!required, "FULLPIPE_REQUIRE_NETNS=1, and {stderr}");
    eprintln!("skipped: {stderr}");
    false
}

/// Lateness from which a machine counts as disturbed, if more than 1 % of its wake-ups exceed it.
pub(crate) const DISTURBED: Duration = Duration::from_millis(1);
/// Maximum number of attempts for a measurement that was disturbed.
const ATTEMPTS: u32 = 5;

/// Returns whether the machine was too busy for a run behind an emulated path, according to the
/// output of `fullpipe emu`.
pub(crate) fn is_disturbed(stderr: &str) -> bool {
    let woken = stderr.split_once("wake-up delay p99 ").and_then(|(_, rest)| rest.split(',').next());
    let woken: Duration = woken.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{stderr}"));
    woken > DISTURBED || stderr.contains("not valid: ")
}

/// Repeats a disturbed measurement until its result satisfies `holds`, and returns the result; `measure` also
/// returns whether the measurement was disturbed. A measurement that was not disturbed is never repeated.
pub(crate) fn undisturbed<T>(measure: impl Fn() -> (T, bool), holds: impl Fn(&T) -> bool) -> T {
    for _ in 1..ATTEMPTS {
        let (value, disturbed) = measure();
        if holds(&value) || !disturbed {
            return value;
        }
    }
    measure().0
}

/// Starts a shell behind an emulated path, and returns it together with the first line of its output.
pub(crate) fn start(script: &str) -> (Child, String) {
    let mut child = Command::new(crate::PROGRAM)
        .args([&PATH[..], &["--", "sh", "-c", script]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line.trim().into())
}
