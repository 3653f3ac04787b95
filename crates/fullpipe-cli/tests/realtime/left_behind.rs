//! Tests that an interrupted run leaves nothing behind once fullpipe has been started again. The runs are
//! ended by SIGINT, by SIGKILL and by a full disk. Tests that need namespaces are skipped with a message if
//! the process is not permitted to create them. With `FULLPIPE_REQUIRE_NETNS=1`, these tests fail instead of
//! being skipped.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::process::emulated::{PATH, allowed, start};
use crate::process::{becomes, experiment, fullpipe, refusal, signal, with_disk};

/// Experiment with short runs and losses, in which each seed gives a different result.
const RUNS: &str = "name = 'runs'\nduration = '300ms'\n[path]\nrate = '20mbit'\nrtt = '10ms'\nloss = '1%'\n\
                    [[flow]]\ncc = 'cubic'\n";

/// Returns the number of processes whose command line contains `marker`.
fn processes(marker: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(marker)).count()
}

/// A process cannot clean up after its own SIGKILL, so the kernel must end its descendants. A descendant of
/// the command ends together with the command, even if it is in a new session or its parent has ended.
/// Descendants of the server end in the same way.
#[test]
fn a_killed_command_takes_all_that_descends_from_it_along() {
    if !allowed() {
        return;
    }
    let namespaces = || fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let before = namespaces();
    let marker = format!("86413.{}", std::process::id());
    let script = format!("setsid sleep {marker} & (sleep {marker} &); echo ready; wait");
    for (name, ended) in [("KILL", Some(9)), ("TERM", None)] {
        let (mut child, ready) = start(&script);
        assert_eq!(ready, "ready");
        assert!(becomes(|| processes(&format!("sleep\0{marker}")) == 2), "{} sleep", processes(&marker));
        signal(&child, name);
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), ended, "{status}");
        // On SIGTERM, the shell ends. The processes that the shell leaves behind end before `fullpipe emu`
        // returns.
        let gone = || processes(&marker) == 0;
        assert!(if name == "KILL" { becomes(gone) } else { gone() }, "{} are left", processes(&marker));
    }
    let serving = format!("setsid sleep {marker} & exec sleep {marker}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args([&PATH[..], &["--serve", &serving, "--", "sleep", &marker]].concat())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    assert!(becomes(|| processes(&format!("sleep\0{marker}")) >= 2), "{} sleep", processes(&marker));
    signal(&child, "KILL");
    child.wait().expect("it ends");
    assert!(becomes(|| processes(&marker) == 0), "{} are left", processes(&marker));
    assert_eq!(namespaces(), before);
}

/// After Ctrl-C during runs on the kernel TCP stack, completed runs are printed and written to files.
#[test]
fn an_interrupted_campaign_on_the_kernel_keeps_what_is_finished() {
    if !allowed() {
        return;
    }
    let (folder, file) = experiment("interrupted-emu", RUNS);
    let out = folder.join("results");
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["run", &file, "--world", "emu", "--repeat", "1000", "--format", "jsonl", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut printed = String::new();
    stdout.read_line(&mut printed).expect("a finished run");
    signal(&child, "INT");
    stdout.read_to_string(&mut printed).expect("the rest");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("what it says");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{stderr}");
    let runs = printed.lines().count();
    assert!(stderr.ends_with(&format!("interrupted after {runs} of 1000 runs\n")), "{stderr}");
    let kept = fs::read_to_string(out.join("results.jsonl")).expect("results");
    assert_eq!(kept.lines().count(), runs);
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 4, "nothing but the four files");
}

/// A file is first written under a temporary name in the same folder. A killed process leaves the temporary
/// file behind. The next start removes this temporary file, but no other file.
#[test]
fn what_a_killed_writer_has_left_is_removed() {
    let (folder, file) = experiment("abandoned", RUNS);
    // No process can have this process ID, because the kernel's limit is 4 million.
    let left = folder.join(".result.json.4200000.tmp");
    let (own, other) = (folder.join(".result.json.notes.tmp"), folder.join(".results.csv.4200000.old"));
    let alive = folder.join(format!(".result.json.{}.tmp", std::process::id()));
    for file in [&left, &own, &other, &alive] {
        fs::write(file, "half").expect("written");
    }
    let (code, _, stderr) = fullpipe(&["run", &file, "--out", folder.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!left.exists() && own.exists() && other.exists() && alive.exists());
}

/// If the disk is full, writing results fails with an error line, a hint and exit code 1, and leaves no
/// partial file behind.
#[test]
fn a_full_disk_is_said_and_leaves_no_half_file() {
    let long = RUNS.replace("300ms", "20s");
    for (number, option) in
        [r#"--out "$D""#, r#"--pcapng "$D/run.pcapng""#, r#"--html "$D/run.html""#].iter().enumerate()
    {
        let (folder, file) = experiment(&format!("full-{number}"), &long);
        let script =
            format!(r#""$FULLPIPE" run '{file}' {option} >/dev/null; code=$?; ls -A "$D"; exit $code"#);
        // The disk has room for the small files of --out, but not for the trace file.
        let Some((code, left, stderr)) = with_disk(&folder, 20, &script) else { return };
        let left = left.lines().filter(|name| !name.starts_with("result")).collect::<String>();
        let (error, hint) = refusal(1, (code, left, stderr));
        assert!(error.starts_with("cannot write ") && error.contains("No space left"), "{error}");
        assert_eq!(hint, "free some disk space, or write to another disk");
    }
    let (folder, file) = experiment("full-stdout", RUNS);
    let script = format!(r#"exec "$FULLPIPE" run '{file}' >/dev/full"#);
    let Some(said) = with_disk(&folder, 20, &script) else { return };
    let (error, hint) = refusal(1, said);
    assert!(error.starts_with("cannot write standard output: No space left"), "{error}");
    assert_eq!(hint, "free some disk space, or write to another disk");
}
