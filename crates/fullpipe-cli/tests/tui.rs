//! The live view in a terminal of `script`: that it takes the terminal over, and gives it back however it ends.
#![cfg(target_os = "linux")]

mod process;

use std::fs;
use std::process::Command;

use process::{folder, fullpipe, refusal};

/// The alternate screen: on, and off again.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

/// A trace of some seconds, held by the receiver's window.
fn trace(test: &str) -> String {
    let folder = folder(test);
    let file = folder.join("it.toml");
    let text = "name = 'it'\nduration = '8s'\n[path]\nrate = '100mbit'\nrtt = '60ms'\nqueue = '1bdp'\n[host]\n\
                rcvbuf = { fixed = '512KiB' }\n[[flow]]\ncc = 'cubic'\n[[sample]]\nevery = '100ms'\n";
    fs::write(&file, text).expect("an experiment file");
    let out = folder.join("out");
    let [file, out_text] = [&file, &out].map(|path| path.display().to_string());
    let (code, _, stderr) = fullpipe(&["run", &file, "--out", &out_text]);
    assert_eq!(code, 0, "{stderr}");
    out.join("trace.csv").display().to_string()
}

/// What a terminal is sent by the live view, and how that ends; `keys` is a shell's way to press some, `before` stands before
/// the command.
fn on_a_terminal(trace: &str, keys: &str, before: &str) -> Option<(i32, String)> {
    if !Command::new("script").arg("--version").output().is_ok_and(|told| told.status.success()) {
        eprintln!("skipped: there is no script(1)");
        return None;
    }
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let inside = format!("stty cols 100 rows 24; {before} {program} diagnose {trace} --tui");
    let shell = format!("({keys}) | TERM=xterm timeout 20 script -qec '{inside}' /dev/null");
    let told = Command::new("sh").args(["-c", &shell]).output().expect("a shell");
    Some((told.status.code().expect("an exit code"), String::from_utf8_lossy(&told.stdout).into_owned()))
}

#[test]
fn q_ends_the_view_and_the_terminal_is_given_back() {
    let trace = trace("tui-q");
    let Some((code, sent)) = on_a_terminal(&trace, "sleep 2; printf f; sleep 0.5; printf q; sleep 1", "")
    else {
        return;
    };
    assert_eq!(code, 0, "{sent}");
    // Between words the cursor may move instead of a space being sent.
    for part in [TAKEN, "rwnd", "send buffer", "quit", "FROZEN"] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    assert!(sent.rfind(GIVEN_BACK) > sent.rfind(TAKEN), "{sent}");
}

#[test]
fn a_signal_ends_the_view_and_the_terminal_is_given_back() {
    let trace = trace("tui-term");
    let Some((_, sent)) = on_a_terminal(&trace, "sleep 5", "timeout --foreground -s TERM 2") else { return };
    assert!(sent.contains(TAKEN) && sent.rfind(GIVEN_BACK) > sent.rfind(TAKEN), "{sent}");
}

/// Without a terminal there is a line a second, without waiting; and what is no trace cannot be played.
#[test]
fn without_a_terminal_there_are_lines() {
    let trace = trace("tui-lines");
    let (code, stdout, stderr) = fullpipe(&["diagnose", &trace, "--tui"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert!((7..=9).contains(&lines.len()), "{stdout}");
    assert!(
        lines[5].contains("Mbit/s") && lines[5].contains("rwnd: the receiver's window is full"),
        "{stdout}"
    );
    assert!(!stdout.contains('\u{1b}'), "{stdout}");
    let log = process::example("cross-border/cubic.iperf3.txt");
    let (error, _) = refusal(1, fullpipe(&["diagnose", &log, "--tui", "--rtt", "210ms"]));
    assert!(error.contains("--tui plays a trace back"), "{error}");
}
