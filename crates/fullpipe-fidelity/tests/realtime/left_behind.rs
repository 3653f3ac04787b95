//! Tests of interrupted comparisons: the next invocation continues from the stored runs.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::alone;
use crate::process::{becomes, experiment, fullpipe, is_forecast, signal, with_disk};

/// An experiment of short runs with losses, so that the runs of different seeds differ.
const RUNS: &str = "name = 'runs'\nduration = '300ms'\n[path]\nrate = '20mbit'\nrtt = '10ms'\nloss = '1%'\n\
                    [[flow]]\ncc = 'cubic'\n";

/// However a comparison is interrupted, the next invocation continues after the finished runs.
#[test]
fn an_interrupted_comparison_goes_on() {
    let Some(_alone) = alone() else { return };
    let (folder, file) = experiment("interrupted-fidelity", RUNS);
    let out = folder.join("kept");
    let kept = || fs::read_to_string(out.join("kernel.jsonl")).unwrap_or_default();
    let arguments =
        |repeat: &'static str| [file.as_str(), "--repeat", repeat, "--out", out.to_str().expect("UTF-8")];
    let mut before = String::new();
    // SIGINT is not tested, because a background process of a script may inherit an ignored SIGINT.
    for (name, number) in [("TERM", 15), ("KILL", 9)] {
        // The comparison has more runs than can finish before the signal arrives.
        let mut child = Command::new(crate::PROGRAM)
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
    // Disturbed runs are not stored, so the file may contain runs of later seeds, but never two runs with the
    // same seed.
    let seed =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a whole line")["seed"].as_u64();
    let mut seeds: Vec<_> = kept().lines().map(seed).collect();
    seeds.sort_unstable();
    let all = seeds.len();
    seeds.dedup();
    assert_eq!(seeds.len(), all, "{}", kept());
}

/// When the disk is full, earlier runs stay stored, and a run for which there is no space is not stored. Once
/// the disk has space again, the same command continues.
#[test]
fn a_comparison_goes_on_when_there_is_room_again() {
    let Some(_alone) = alone() else { return };
    let (folder, file) = experiment("full-fidelity", RUNS);
    // A line of the file takes about 2 KiB, and the disk allocates 4 KiB at a time.
    let script = format!(
        r#"compare() {{ "$FULLPIPE" '{file}' --repeat 6 --out "$D" >"$1" 2>>"$1.err"; }}
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
        // If the machine is busy with other work, there are too few valid runs to fill the disk.
        assert!(errors.contains("not valid: "), "{told}{errors}");
        eprintln!("skipped: {errors}");
        return;
    }
    let told: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(told, ["\\n", "1", "0"], "{errors}");
    let is_error = |line: &&str| !line.starts_with("not valid: ") && !is_forecast(line);
    let said: Vec<&str> = errors.lines().filter(is_error).collect();
    let [error, hint] = said[..] else { panic!("{errors}") };
    assert!(error.starts_with("error: cannot write ") && error.contains("No space left"), "{error}");
    assert_eq!(hint, "hint: free some disk space, or write to another disk");
    let (before, after) = (read("before"), read("after"));
    assert!(!before.is_empty() && after.starts_with(&before), "what was kept stays");
    assert!(after.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{after}");
    assert!(read("second").contains(" valid runs of 6; "), "{}", read("second"));
}
