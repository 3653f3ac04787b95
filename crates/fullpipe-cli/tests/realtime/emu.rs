//! Tests of `fullpipe emu` and `run --world emu` as users and scripts run them. Most of these tests need
//! namespaces and TUN devices. If the process is not permitted to create namespaces and TUN devices, the
//! tests that need them are skipped with a message. With `FULLPIPE_REQUIRE_NETNS=1`, the tests fail instead
//! of being skipped.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::process::emulated::{PATH, allowed, start};
use crate::process::{folder, fullpipe, refusal, signal};

#[test]
fn the_command_answers_for_itself() {
    if !allowed() {
        return;
    }
    let emu = |command: &[&str]| fullpipe(&[&PATH[..], &["--"], command].concat());
    let (code, stdout, stderr) = emu(&["sh", "-c", "echo $FULLPIPE_ADDR $FULLPIPE_PEER; exit 7"]);
    assert_eq!((code, stdout.as_str()), (7, "198.18.0.1 198.18.0.2\n"), "{stderr}");
    assert!(stderr.starts_with("path: "), "{stderr}");
    // If the command starts a new session, its exit code is still passed on.
    assert_eq!(emu(&["setsid", "sh", "-c", "exit 7"]).0, 7);
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
    // If the command has no handler for the signal, the signal ends it.
    let (mut child, _) = start("echo ready; exec sleep 60");
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
}

/// In /proc, the command sees only itself and the processes that it starts.
#[test]
fn the_command_is_alone() {
    if !allowed() {
        return;
    }
    let script =
        "sleep 60 & readlink /proc/self/exe | grep -c readlink; cat /proc/$$/comm; echo /proc/[0-9]* | wc -w";
    let (code, stdout, stderr) = fullpipe(&[&PATH[..], &["--", "sh", "-c", script]].concat());
    let lines: Vec<&str> = stdout.lines().collect();
    let [_, shell, processes] = lines[..] else { panic!("{stdout}{stderr}") };
    assert_eq!((code, shell), (0, "sh"), "{stderr}");
    // The visible processes are the first process of the namespace, the shell, sleep, and the processes of
    // the last pipeline.
    assert!((4..=6).contains(&processes.parse().unwrap_or(0)), "{stdout}");
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
    assert_eq!(
        (code, stderr.as_str()),
        (
            0,
            "note: fair_queue has no effect, because TCP paces by itself, \
                                             as it does with fq\n"
        )
    );
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
    assert!(error.starts_with("point 'cc=cubic' requires kernel 4.14, but this host runs "), "{error}");
    assert_eq!(hint, "remove the setting kernel, or use the simulator: --world sim");

    let download = text.replace("cc = 'cubic'", "cc = 'cubic'\nbytes = '60kB'\napp = { request = '200B' }");
    fs::write(file, download).expect("an experiment file");
    let (code, stdout, stderr) = run(&["--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let response = &document["runs"][0]["flows"][0]["response_ms"];
    let [from_syn, from_request] =
        ["from_syn", "from_request"].map(|time| response[time].as_f64().expect("complete"));
    // The handshake takes at least one RTT of 10 ms.
    assert!(code == 0 && from_syn > from_request + 9.9, "{stdout}{stderr}");
}

/// Returns the arguments of a race with two pairs over the experiment in `file`.
fn race<'a>(world: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["race", "--world", world, "--pairs", "2", "--paths", file][..], more].concat()
}

#[test]
fn kernel_senders_race() {
    if !allowed() {
        return;
    }
    let file = folder("emu-race").join("small.toml");
    let text = "name = 'small'\nduration = '20s'\n[path]\nrate = '50mbit'\nrtt = '40ms'\nloss = ['0%', '1%']\n\
                [[flow]]\ncc = 'reno'\nbytes = '60kB'\napp = { request = '200B' }\n";
    fs::write(&file, text).expect("an experiment file");
    let out = file.with_file_name("results");
    let (file, dir) = (file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let arms = ["--arms", "reno,reno+iw", "--json", "--out", dir];
    let (code, stdout, stderr) = fullpipe(&race("emu", file, &arms));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&report["world"], &report["interrupted"]), (&"emu".into(), &false.into()));
    for (cell, arm) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let cell = &report["cells"][cell];
        let arm = &cell["arms"][arm];
        let count = |key: &str| arm[key].as_u64().expect("a number");
        assert_eq!(count("runs") + count("late"), 2, "{arm:#}");
        // A late download was repeated twice before it was given up.
        assert!(count("repeated") >= 2 * count("late"), "{arm:#}");
        if let Some(least) = arm["from_syn"]["min_s"].as_f64() {
            assert!(Some(least) >= cell["link_floor_s"].as_f64(), "{cell:#}");
            assert!(arm["sent_per_needed"].as_f64() >= Some(1.0), "{arm:#}");
        }
    }
    // Stored pairs state their world. A repetition of the same race therefore runs nothing, and a simulated
    // race runs all pairs.
    let lines = || fs::read_to_string(out.join("race.jsonl")).expect("pairs").lines().count();
    assert_eq!(lines(), 4);
    assert_eq!(fullpipe(&race("emu", file, &arms)).1, stdout);
    assert_eq!(lines(), 4);
    assert_eq!(fullpipe(&race("sim", file, &arms)).0, 0);
    assert_eq!(lines(), 8);

    // No kernel has surge, and none supports profiles. fullpipe's TCP sends for these arms, on the same paths.
    let (code, stdout, stderr) =
        fullpipe(&race("emu", file, &["--arms", "reno,surge,tcpa", "--seed", "40", "--json"]));
    assert_eq!(code, 0, "{stderr}");
    let notes: Vec<&str> = stderr.lines().collect();
    assert_eq!(
        notes,
        [
            "note: fullpipe's TCP sends for surge; this kernel does not have the congestion control",
            "note: fullpipe's TCP sends for tcpa; the kernel's TCP does not support profiles",
        ]
    );
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    for arm in 1..3 {
        let arm = &report["cells"][0]["arms"][arm];
        let complete = arm["runs"].as_u64().expect("a number") - arm["incomplete"].as_u64().unwrap_or(0);
        assert_eq!(complete + arm["late"].as_u64().expect("a number"), 2, "{arm:#}");
    }
}

/// A race for harm measures kernel victims beside senders of the kernel and behind the relay, on the same path. The
/// simulated excess is beside the emulated one, and a repetition of the race runs nothing.
#[test]
fn harm_is_measured_beside_both_stacks() {
    if !allowed() {
        return;
    }
    let file = folder("emu-harm").join("small.toml");
    let text = "name = 'small'\nduration = '1.5s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n\
                [[flow]]\ncc = 'reno'\ncount = 2\n";
    fs::write(&file, text).expect("an experiment file");
    let out = file.with_file_name("results");
    let (file, dir) = (file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let arms = ["--harm", "--victims", "stream", "--arms", "reno,surge", "--json", "--out", dir];
    let (code, stdout, stderr) = fullpipe(&race("emu", file, &arms));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("note: fullpipe's TCP sends for surge; "), "{stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let cell = &report["cells"][0];
    assert_eq!((&report["world"], &cell["senders"]), (&"emu".into(), &2.into()));
    if cell["late"] == 0 {
        // Alone, the data of the stream takes half an RTT. The other flows fill the queue of one BDP.
        let delay = |value: &serde_json::Value| value.as_f64().expect("a delay");
        let alone = delay(&cell["alone"]);
        assert!((0.010..0.020).contains(&alone), "{cell:#}");
        for arm in 0..2 {
            let arm = &cell["arms"][arm];
            assert!(delay(&arm["beside"]) > alone + 0.005, "{cell:#}");
            assert!(arm["dropped"].as_f64() > Some(0.0), "{cell:#}");
            let sent = arm["sent_per_needed"].as_f64().expect("segments");
            assert!((0.95..2.0).contains(&sent), "{cell:#}");
        }
        assert!(cell["arms"][1]["simulated"]["agrees"].is_boolean(), "{cell:#}");
    }
    let lines = || fs::read_to_string(out.join("harm.jsonl")).expect("runs").lines().count();
    assert_eq!(lines(), 4, "two seeds in each world");
    assert_eq!(fullpipe(&race("emu", file, &arms)).1, stdout);
    assert_eq!(lines(), 4);
}

/// An unprivileged user gets the privileges through a user namespace. The kernel allows only single-threaded
/// processes to create a user namespace, so the command must create the namespace before it starts the
/// progress bar and the signal handler. If a user other than root runs the tests, every test in this file
/// covers an unprivileged user.
#[test]
fn a_user_without_rights_runs_an_experiment_on_the_kernel() {
    /// User ID of an unprivileged user (`nobody`).
    const USER: u32 = 65_534;
    // The experiment is in a folder that the unprivileged user can read.
    let folder = std::env::temp_dir().join(format!("fullpipe-test-rights-{}", std::process::id()));
    let (program, file) = (folder.join("fullpipe"), folder.join("run.toml"));
    fs::create_dir_all(&folder).expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("its mode");
    fs::copy(crate::PROGRAM, &program).expect("a copy");
    let text =
        "name = 'run'\nduration = '300ms'\n[path]\nrate = '10mbit'\nrtt = '10ms'\n[[flow]]\ncc = 'cubic'\n";
    fs::write(&file, text).expect("an experiment");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("its mode");
    let by_user = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).uid(USER).gid(USER).current_dir(&folder).output()
    };
    let allowed = by_user(&[&PATH[..], &["--", "true"]].concat());
    let ran = by_user(&["run", "run.toml", "--world", "emu"]);
    fs::remove_dir_all(&folder).expect("removed");
    match allowed {
        Ok(Output { status, .. }) if status.code() == Some(0) => {}
        Ok(Output { stderr, .. }) => return eprintln!("skipped: {}", String::from_utf8_lossy(&stderr)),
        Err(error) => return eprintln!("skipped: {error}"),
    }
    let Output { status, stdout, stderr } = ran.expect("it starts");
    assert_eq!(status.code(), Some(0), "{}", String::from_utf8_lossy(&stderr));
    assert!(String::from_utf8_lossy(&stdout).contains("world emu, seed 1"));
}
