//! Commands behind a path, where the process may have one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::fullpipe;

pub(crate) const PATH: [&str; 5] = ["emu", "--rate", "10mbit", "--rtt", "20ms"];

/// Whether the process may; asked of the command itself, whose exit code for "may not" is 4.
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

/// Starts a shell behind a path and reads its first line.
pub(crate) fn start(script: &str) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args([&PATH[..], &["--", "sh", "-c", script]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line.trim().into())
}
