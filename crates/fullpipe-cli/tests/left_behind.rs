//! What interrupted runs leave behind after the next start: nothing. Runs are ended by SIGINT, by SIGKILL and by a full disk.
//! What needs namespaces is skipped with a message where the process may not make them; `FULLPIPE_REQUIRE_NETNS=1` makes
//! a skip a failure.
#![cfg(target_os = "linux")]

mod process;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use process::emulated::{PATH, allowed, start};
use process::{Said, becomes, folder, fullpipe, refusal, signal};

/// Short runs with losses, so that each seed is a run of its own.
const RUNS: &str = "name = 'runs'\nduration = '300ms'\n[path]\nrate = '20mbit'\nrtt = '10ms'\nloss = '1%'\n\
                    [[flow]]\ncc = 'cubic'\n";

fn experiment(test: &str, text: &str) -> (PathBuf, String) {
    let folder = folder(test);
    let file = folder.join("runs.toml");
    fs::write(&file, text).expect("an experiment file");
    (folder, file.to_str().expect("UTF-8").into())
}

/// Processes whose command line has `marker` in it.
fn processes(marker: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(marker)).count()
}

/// Nothing can be tidied up after SIGKILL: there must be nothing to tidy up. A session of its own saves no process, nor
/// does having lost its parent; the server's end is the same.
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
        // With SIGTERM the shell ends, and what it has left with it, before the command answers.
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

/// Ctrl-C among kernel runs: what has finished is printed and written.
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
    assert!(stderr.ends_with(&format!("interrupted: {runs} of 1000 runs were made\n")), "{stderr}");
    let kept = fs::read_to_string(out.join("results.jsonl")).expect("results");
    assert_eq!(kept.lines().count(), runs);
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 4, "nothing but the four files");
}

/// Whatever ends a comparison, the next call goes on behind the runs that were finished.
#[test]
fn an_interrupted_comparison_goes_on() {
    if !allowed() {
        return;
    }
    let (folder, file) = experiment("interrupted-fidelity", RUNS);
    let out = folder.join("kept");
    let kept = || fs::read_to_string(out.join("kernel.jsonl")).unwrap_or_default();
    let arguments =
        |repeat: &'static str| ["fidelity", &file, "--repeat", repeat, "--out", out.to_str().expect("UTF-8")];
    let mut before = String::new();
    // Not INT: whoever is started in the background of a script may inherit that it is ignored.
    for (name, number) in [("TERM", 15), ("KILL", 9)] {
        // So many that it does not end by itself, though a disturbed run is not kept.
        let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(arguments("100"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        assert!(becomes(|| kept().len() > before.len()), "a run is kept");
        signal(&child, name);
        assert_eq!(child.wait().expect("it ends").signal(), Some(number));
        assert!(kept().starts_with(&before), "what was kept stays");
        before = kept();
    }
    let (code, stdout, stderr) = fullpipe(&arguments("5"));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(" valid runs of 5; "), "{stdout}");
    assert!(kept().starts_with(&before) && kept().ends_with('\n'), "what was kept stays");
    let whole = kept().lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
    assert!(whole && kept().lines().count() <= 5, "{}", kept());
}

/// A file is written beside its place under another name. Who is killed leaves that; the next start removes it, and
/// nothing else.
#[test]
fn what_a_killed_writer_has_left_is_removed() {
    let (folder, file) = experiment("abandoned", RUNS);
    // No process has such a number: the kernel's limit is 4 million.
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

/// Runs `script` with a disk of so many KiB at `$D`; `None` where no disk can be made.
fn with_disk(folder: &Path, kib: u32, script: &str) -> Option<Said> {
    let disk = folder.join("disk");
    fs::create_dir_all(&disk).expect("a folder");
    let mounted = format!("mount -t tmpfs -o size={kib}k none \"$D\" || exit 99; {script}");
    let command = ["--mount", "sh", "-c", &mounted];
    let run = Command::new("unshare")
        .args(command)
        .env("D", &disk)
        .env("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe"))
        .output();
    let Ok(Output { status, stdout, stderr }) = run else { return None };
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let said = (status.code().expect("an exit code"), text(stdout), text(stderr));
    let made = said.0 != 99 && !said.2.starts_with("unshare: ");
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(made || !required, "FULLPIPE_REQUIRE_NETNS=1, and {}", said.2);
    if !made {
        eprintln!("skipped: {}", said.2);
    }
    made.then_some(said)
}

/// The files of a run on a full disk: a line and a hint, exit code 1, and none of them is there half.
#[test]
fn a_full_disk_is_said_and_leaves_no_half_file() {
    let long = RUNS.replace("300ms", "20s");
    for (number, option) in
        [r#"--out "$D""#, r#"--pcapng "$D/run.pcapng""#, r#"--html "$D/run.html""#].iter().enumerate()
    {
        let (folder, file) = experiment(&format!("full-{number}"), &long);
        let script =
            format!(r#""$FULLPIPE" run '{file}' {option} >/dev/null; code=$?; ls -A "$D"; exit $code"#);
        // Room for the small files of --out, and not for the trace.
        let Some((code, left, stderr)) = with_disk(&folder, 20, &script) else { return };
        let left = left.lines().filter(|name| !name.starts_with("result")).collect::<String>();
        let (error, hint) = refusal(1, (code, left, stderr));
        assert!(error.starts_with("cannot write ") && error.contains("No space left"), "{error}");
        assert_eq!(hint, "make room there, or give another place");
    }
    let (folder, file) = experiment("full-stdout", RUNS);
    let script = format!(r#"exec "$FULLPIPE" run '{file}' >/dev/full"#);
    let Some(said) = with_disk(&folder, 20, &script) else { return };
    let (error, hint) = refusal(1, said);
    assert!(error.starts_with("cannot write standard output: No space left"), "{error}");
    assert_eq!(hint, "make room there, or give another place");
}

/// Kept runs on a full disk: those before stay, the one for which there is no room is not there, and with room again the
/// same command goes on.
#[test]
fn a_comparison_goes_on_when_there_is_room_again() {
    if !allowed() {
        return;
    }
    let (folder, file) = experiment("full-fidelity", RUNS);
    // A line takes some 2 KiB and a disk gives 4 KiB at a time.
    let script = format!(
        r#"compare() {{ "$FULLPIPE" fidelity '{file}' --repeat 6 --out "$D" >"$1" 2>>"$1.err"; }}
           compare '{0}/first'; first=$?; tail -c 1 "$D/kernel.jsonl" | od -An -c; cp "$D/kernel.jsonl" '{0}/before'
           mount -o remount,size=1m "$D"; compare '{0}/second'; second=$?; cp "$D/kernel.jsonl" '{0}/after'
           echo $first $second"#,
        folder.display()
    );
    let Some((_, told, stderr)) = with_disk(&folder, 8, &script) else { return };
    let read = |name: &str| {
        fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}; {stderr}"))
    };
    let errors = read("first.err");
    if !errors.contains("cannot write") {
        // Too few valid runs to fill it: this machine has something else to do.
        assert!(errors.contains("not valid: "), "{told}{errors}");
        eprintln!("skipped: {errors}");
        return;
    }
    let told: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(told, ["\\n", "1", "0"], "{errors}");
    let said: Vec<&str> = errors.lines().filter(|line| !line.starts_with("not valid: ")).collect();
    let [error, hint] = said[..] else { panic!("{errors}") };
    assert!(error.starts_with("error: cannot write ") && error.contains("No space left"), "{error}");
    assert_eq!(hint, "hint: make room there, or give another place");
    let (before, after) = (read("before"), read("after"));
    assert!(!before.is_empty() && after.starts_with(&before), "what was kept stays");
    assert!(after.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{after}");
    assert!(read("second").contains(" valid runs of 6; "), "{}", read("second"));
}
