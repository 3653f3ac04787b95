//! Tests of the live view in a terminal that `script` creates: the view takes control of the terminal, and
//! restores it however the view ends.

use crate::process;
use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::process::{becomes, folder, fullpipe, refusal};

/// Control sequences that switch a terminal to its alternate screen and back.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

/// Returns the path of a trace of a few seconds, in which the receive window is the limit.
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

/// Runs the live view on a terminal, and returns its exit code and output. `keys` is a shell script that
/// presses keys: `shown TEXT` waits until the view has displayed a text, and `$VIEW` is the process ID of the
/// view.
fn on_a_terminal(test: &str, keys: &str) -> Option<(i32, String)> {
    if !Command::new("script").arg("--version").output().is_ok_and(|told| told.status.success()) {
        eprintln!("skipped: there is no script(1)");
        return None;
    }
    let (program, trace) = (env!("CARGO_BIN_EXE_fullpipe"), trace(test));
    let [sent, number] = ["sent", "number"].map(|name| format!("{trace}.{name}"));
    let inside = format!("stty cols 100 rows 24; echo $$ >{number}; exec {program} diagnose {trace} --tui");
    let shell = format!(
        "shown() {{ for _ in $(seq 600); do grep -qaF \"$1\" {sent} 2>/dev/null && return; sleep 0.1; done; exit 1; }}; \
         (shown '?1049h'; VIEW=$(cat {number}); {keys}; shown '?1049l') \
         | TERM=xterm timeout 240 script -qefc '{inside}' {sent}"
    );
    let told = Command::new("sh").args(["-c", &shell]).output().expect("a shell");
    Some((told.status.code().expect("an exit code"), String::from_utf8_lossy(&told.stdout).into_owned()))
}

#[test]
fn q_ends_the_view_and_the_terminal_is_given_back() {
    let keys = "shown rwnd; shown 'send buffer'; printf f; shown FROZEN; printf q";
    let Some((code, sent)) = on_a_terminal("tui-q", keys) else { return };
    assert_eq!(code, 0, "{sent}");
    // The live view may move the cursor between words instead of printing a space.
    for part in [TAKEN, "rwnd", "send buffer", "quit", "FROZEN"] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    assert!(sent.rfind(GIVEN_BACK) > sent.rfind(TAKEN), "{sent}");
}

#[test]
fn a_signal_ends_the_view_and_the_terminal_is_given_back() {
    let Some((_, sent)) = on_a_terminal("tui-term", "kill -TERM $VIEW") else { return };
    assert!(sent.contains(TAKEN) && sent.rfind(GIVEN_BACK) > sent.rfind(TAKEN), "{sent}");
}

/// Closing the terminal's window or losing the connection to the host ends the view, even if no SIGHUP reports this.
/// The view does not read the closed terminal repeatedly.
#[test]
fn a_closed_terminal_ends_the_view() {
    let trace = trace("tui-closed");
    let mut terminal = File::from(
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal"),
    );
    grantpt(&terminal).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("a terminal").into_string().expect("a path");
    let side = || Stdio::from(File::options().read(true).write(true).open(&name).expect("a terminal"));
    let mut view = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["diagnose", &trace, "--tui"])
        .stdin(side())
        .stdout(side())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut sent = Vec::new();
    while !String::from_utf8_lossy(&sent).contains(TAKEN) {
        let mut part = [0; 4096];
        let read = terminal.read(&mut part).expect("the view draws");
        sent.extend_from_slice(&part[..read]);
    }
    drop(terminal);
    let view = std::cell::RefCell::new(&mut view);
    let ended = becomes(|| view.borrow_mut().try_wait().expect("a child").is_some());
    view.borrow_mut().kill().expect("a child");
    assert!(ended, "the view still runs a minute after its terminal was closed");
}

/// Without a terminal, one line per second of the trace is printed, without waiting. An input that is not a
/// trace cannot be replayed.
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
    assert!(error.contains("--tui replays traces"), "{error}");
}
