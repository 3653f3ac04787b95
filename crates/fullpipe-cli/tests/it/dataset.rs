//! Tests of data sets: `run --dataset`, `run --row` and `dataset`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::process::{folder, fullpipe, refusal};

const SWEEP: &str = "name = 'sweep'\nduration = '2s'\nrepeat = 8\n[path]\nrate = '20mbit'\n\
                     rtt = ['5ms', '20ms', '80ms']\nloss = ['0%', '0.1%', '2%']\n[[flow]]\ncc = ['reno', 'cubic', 'bbr1']\n";

/// Returns the names and the contents of the files of a data set.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in ["", "inputs", "runs", "trace"] {
        for entry in fs::read_dir(dir.join(folder)).into_iter().flatten().flatten() {
            if entry.path().is_file() {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                found.insert(name, fs::read(entry.path()).expect("a file"));
            }
        }
    }
    found
}

/// Runs `fullpipe`, which must succeed, and returns its standard output.
fn done(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = fullpipe(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

/// A data set whose process was killed twenty times, after different times, equals a data set that was made
/// without interruption.
#[expect(clippy::disallowed_methods, reason = "the process is killed in real time")]
#[test]
fn a_killed_sweep_continues() {
    let dir = folder("killed");
    let experiment = dir.join("sweep.toml");
    fs::write(&experiment, SWEEP).expect("written");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (file, whole, killed) = (experiment.to_string_lossy().into_owned(), path("whole"), path("killed"));
    let arguments =
        |out: &str| ["run", &file, "--dataset", out, "--part-packets", "20000"].map(str::to_owned);
    done(&arguments(&whole).each_ref().map(String::as_str));
    for round in 0..20_u64 {
        let mut child = Command::new(crate::PROGRAM)
            .args(arguments(&killed))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        thread::sleep(Duration::from_millis(10 + 7 * round % 40));
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
    }
    done(&arguments(&killed).each_ref().map(String::as_str));
    let (whole, killed) = (files(Path::new(&whole)), files(Path::new(&killed)));
    assert!(whole.len() > 30, "{} files", whole.len());
    assert_eq!(whole.keys().collect::<Vec<_>>(), killed.keys().collect::<Vec<_>>());
    assert!(whole == killed);
}

/// Two processes that make the same parts at the same time leave one result, and no temporary file.
#[test]
fn two_processes_leave_one_result() {
    let dir = folder("dataset-twice");
    let experiment = dir.join("sweep.toml");
    fs::write(&experiment, SWEEP).expect("written");
    let [experiment, one, two] =
        [experiment, dir.join("one"), dir.join("two")].map(|path| path.to_string_lossy().into_owned());
    let make = |out: &str| {
        let mut command = Command::new(crate::PROGRAM);
        command.args(["run", &experiment, "--dataset", out, "--part-packets", "30000", "--shard", "0/1"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    assert!(make(&one).status().expect("it starts").success());
    let both: Vec<_> = (0..2).map(|_| make(&two).spawn().expect("it starts")).collect();
    for child in both {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(files(Path::new(&one)) == files(Path::new(&two)));
}

#[test]
fn a_data_set_is_checked_and_a_row_is_repeated() {
    let dir = folder("dataset");
    let experiment = dir.join("sweep.toml");
    fs::write(&experiment, SWEEP).expect("written");
    let points = dir.join("points.csv");
    fs::write(&points, "rtt_ms,loss\n12.5,0%\n80,1%\n").expect("written");
    let [experiment, points, out] =
        [experiment, points, dir.join("out")].map(|path| path.to_string_lossy().into_owned());
    let make = ["run", &experiment, "--dataset", &out, "--points", &points, "--part-packets", "30000"];
    let first = [&make[..], &["--shard", "0/2"]].concat();
    assert_eq!(done(&first), format!("{out}: 11 parts made\n"));
    let (code, stdout, stderr) = fullpipe(&["dataset", "check", &out]);
    assert!(code == 1 && stdout.starts_with("missing: runs/part-00001.parquet\n"), "{stdout}{stderr}");
    assert_eq!(done(&make), format!("{out}: 11 parts made, 11 existed\n"));
    assert_eq!(done(&["dataset", "check", &out]), "22 parts with 48 rows: complete\n");

    let shown = done(&["dataset", "show", &out, "--row", "20"]);
    let expected = format!(
        "experiment sweep\npoint      rtt=12.5ms loss=0% cc=bbr1\nseed       5\nrun        20, flow 0\n\
         file       runs/part-00008.parquet, row 0\ncommand    fullpipe run {out} --row 20\n"
    );
    assert_eq!(shown, expected);
    let report: Value = serde_json::from_str(&done(&["run", &out, "--row", "20", "--json"])).expect("JSON");
    let run = &report["runs"][0];
    assert_eq!((&run["seed"], &run["flows"][0]["cc"]), (&Value::from(5), &Value::from("bbr1")));
}

/// A second process follows the files: it ends when another one has made the last part.
#[expect(clippy::disallowed_methods, reason = "two processes at the same time")]
#[test]
fn a_watch_ends_with_the_data_set() {
    let dir = folder("dataset-watched");
    let experiment = dir.join("sweep.toml");
    fs::write(&experiment, SWEEP).expect("written");
    let [experiment, out] = [experiment, dir.join("out")].map(|path| path.to_string_lossy().into_owned());
    let make = ["run", &experiment, "--dataset", &out, "--part-packets", "30000"];
    done(&[&make[..], &["--shard", "0/2"]].concat());
    let once = done(&["dataset", "watch", &out, "--once"]);
    assert!(
        once.contains(" parts, ") && once.contains(" of 216 runs, ") && once.ends_with(" left\n"),
        "{once}"
    );
    let watching = Command::new(crate::PROGRAM)
        .args(["dataset", "watch", &out])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    thread::sleep(Duration::from_millis(200));
    done(&make);
    let watched = watching.wait_with_output().expect("it ends");
    assert!(watched.status.success());
    let text = String::from_utf8_lossy(&watched.stdout);
    assert!(text.lines().count() >= 2, "{text}");
    assert!(text.ends_with(" of 216 runs: complete\n") && text.contains("216 of 216 runs"), "{text}");
    assert_eq!(
        done(&["dataset", "watch", &out, "--once"]),
        text.lines().last().map_or(String::new(), |l| format!("{l}\n"))
    );
}

#[test]
fn unusable_options_are_refused_in_one_line() {
    let dir = folder("dataset-refused");
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    };
    let experiment = file("sweep.toml", SWEEP);
    let (out, nowhere) = (file("out", ""), dir.join("nowhere").to_string_lossy().into_owned());
    let (unknown, nan) = (file("a.csv", "rtx\n1\n"), file("b.csv", "rtt_ms\nNaN\n"));
    let damaged = file("c.parquet", "PAR1 and nothing else");
    for (options, code, expected) in [
        (&["--shard", "2/2"][..], 2, "'2/2' is not a shard"),
        (&["--points", &unknown], 1, "unknown column 'rtx'"),
        (&["--points", &nan], 1, "'NaN' in column 'rtt' is not a number"),
        (&["--points", &damaged], 1, "not readable as Parquet"),
        (&["--points", &nowhere], 1, "cannot read"),
        (&["--trace", "1us"], 1, "sample interval 1us is out of range"),
        (&["--world", "emu"], 2, "--dataset applies to --world sim only"),
        (&["--check"], 2, "cannot be used with"),
        (&[], 1, "cannot read"),
    ] {
        let arguments = [&["run", &experiment, "--dataset", &out], options].concat();
        let (message, _) = refusal(code, fullpipe(&arguments));
        assert!(message.contains(expected), "{options:?}: {message}");
    }
    for arguments in [
        ["dataset", "check", &nowhere].as_slice(),
        &["dataset", "watch", &nowhere],
        &["dataset", "show", &nowhere, "--row", "0"],
        &["run", &nowhere, "--row", "0"],
    ] {
        let (message, _) = refusal(1, fullpipe(arguments));
        assert!(message.contains("manifest.json"), "{message}");
    }
}
