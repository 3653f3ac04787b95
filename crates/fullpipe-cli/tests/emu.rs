//! `fullpipe emu` and `run --world emu` as a person or a script meets them. Most need namespaces and TUN devices, and are
//! skipped with a message where the process may not make them; `FULLPIPE_REQUIRE_NETNS=1` makes a skip a failure.
#![cfg(target_os = "linux")]

mod process;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use process::{folder, fullpipe, refusal};

const PATH: [&str; 5] = ["emu", "--rate", "10mbit", "--rtt", "20ms"];

/// Whether the process may; asked of the command itself, whose exit code for "may not" is 4.
fn allowed() -> bool {
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

fn start(script: &str) -> (Child, String) {
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

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(sent.expect("a shell").success());
}

#[test]
fn the_command_answers_for_itself() {
    if !allowed() {
        return;
    }
    let emu = |command: &[&str]| fullpipe(&[&PATH[..], &["--"], command].concat());
    let (code, stdout, stderr) = emu(&["sh", "-c", "echo $FULLPIPE_ADDR $FULLPIPE_PEER; exit 7"]);
    assert_eq!((code, stdout.as_str()), (7, "198.18.0.1 198.18.0.2\n"), "{stderr}");
    assert!(stderr.starts_with("path: "), "{stderr}");
    let (error, _) = refusal(127, emu(&["no-such-command"]));
    assert!(error.starts_with("cannot run 'no-such-command': "), "{error}");
    refusal(2, fullpipe(&PATH));
}

#[test]
fn an_interrupt_reaches_the_command_and_its_answer_counts() {
    if !allowed() {
        return;
    }
    let (mut child, ready) = start("trap 'exit 9' INT; echo ready; while :; do sleep 0.02; done");
    assert_eq!(ready, "ready");
    signal(&child, "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}

/// Nothing can be tidied up after SIGKILL: there must be nothing to tidy up.
#[test]
fn a_killed_run_leaves_nothing_behind() {
    if !allowed() {
        return;
    }
    let namespaces = || fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let before = namespaces();
    let (mut child, pid) = start("echo $$; exec sleep 60");
    let process = Path::new("/proc").join(&pid);
    assert!(process.exists(), "{pid}");
    signal(&child, "KILL");
    child.wait().expect("it ends");
    let gone = || {
        // A zombie until whoever inherits it looks.
        fs::read_to_string(process.join("stat")).map_or(true, |stat| stat.contains(") Z "))
    };
    for _ in 0..200 {
        if gone() {
            break;
        }
        wait();
    }
    assert!(gone(), "{pid} outlived the command");
    assert_eq!(namespaces(), before);
}

#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn wait() {
    thread::sleep(Duration::from_millis(10));
}

#[test]
fn an_experiment_runs_with_kernel_flows() {
    if !allowed() {
        return;
    }
    let file = folder("emu").join("small.toml");
    let text = "name = 'small'\nduration = '500ms'\n[path]\nrate = '20mbit'\nrtt = '10ms'\n[host]\nfair_queue = true\n\
                [[flow]]\ncc = 'cubic'\n[[expect]]\nmetric = 'utilisation'\nmin = 0.01\nmax = 1\n";
    fs::write(&file, text).expect("an experiment file");
    let out = file.with_file_name("results");
    let (file, out_text) = (file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let run = |more: &[&str]| fullpipe(&[&["run", file, "--world", "emu"], more].concat());
    let (code, stdout, stderr) = run(&["--format", "json", "--out", out_text]);
    assert_eq!((code, stderr.as_str()), (0, "note: fair_queue: TCP paces by itself, as it would under fq\n"));
    let document: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(document["world"], "emu");
    let validity = &document["runs"][0]["validity"];
    assert!(validity["valid"].is_boolean() && validity["lateness_ms"]["p99"].is_f64(), "{stdout}");
    let trace = fs::read_to_string(out.join("trace.csv")).expect("a trace");
    assert_eq!(trace.lines().count(), 1 + 5, "a row each 100 ms");

    let (_, stdout, _) = run(&[]);
    assert!(stdout.contains("world emu, seed 1") && stdout.contains(" of 1 runs valid\n"), "{stdout}");

    let other = fs::read_to_string(file).expect("the file").replace("fair_queue = true", "kernel = '4.14'");
    fs::write(file, other).expect("an experiment file");
    let (error, hint) = refusal(1, run(&[]));
    assert!(error.starts_with("point 'cc=cubic' wants kernel 4.14, and this is "), "{error}");
    assert_eq!(hint, "leave kernel out, or run it in the simulator: --world sim");
}
