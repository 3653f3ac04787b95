//! Tests of `run --world uml` as users run it. The tests that need guests are skipped with a message if the package
//! user-mode-linux is missing, or if processes must not trace others. With `FULLPIPE_REQUIRE_LINUX=1`, the tests fail
//! instead of being skipped if the package is missing.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::pcapng::{retransmits, summary};
use crate::process::{becomes, folder, fullpipe, has, refusal, signal};

/// Runs an experiment on guests and returns its document; returns `None` if this machine cannot run guests.
fn document(file: &Path, arguments: &[&str]) -> Option<Value> {
    if !has("linux") {
        return None;
    }
    let file = file.to_str().expect("UTF-8");
    let (code, stdout, stderr) = fullpipe(&[&["run", file, "--json"], arguments].concat());
    if code == 4 {
        eprintln!("skipped: {stderr}");
        return None;
    }
    assert_eq!(code, 0, "{stderr}");
    Some(serde_json::from_str(&stdout).expect("a document"))
}

/// Writes an experiment to an empty folder. One second of virtual time takes about as much CPU time as booting the
/// guest.
fn experiment(test: &str, points: &str) -> std::path::PathBuf {
    let file = folder(test).join("experiment.toml");
    let text = format!("name = 'guests'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = '40ms'\n{points}");
    fs::write(&file, text).expect("written");
    file
}

fn digests(document: &Value) -> Vec<&str> {
    let runs = document["runs"].as_array().expect("runs");
    runs.iter().map(|run| run["digest"].as_str().expect("a digest")).collect()
}

/// Two runs of a guest send the same packets at the same times; the simulator sends nearly the same packets, with the
/// same losses and a goodput that differs by at most 3 %. In the kernel, BBR is a module, and CUBIC is built in.
#[test]
fn a_guest_repeats_itself_and_agrees_with_the_simulator() {
    let points = "loss = '0.3%'\n[[flow]]\ncc = 'cubic'\n[[flow]]\ncc = 'bbr1'";
    let file = experiment("a-guest-repeats-itself", points);
    let Some(first) = document(&file, &["--world", "uml"]) else { return };
    // The second run is also captured, which must not change its result.
    let capture = file.with_extension("pcapng");
    let capture = capture.to_str().expect("UTF-8");
    let second = document(&file, &["--world", "uml", "--pcapng", capture]).expect("a second time");
    assert_eq!(digests(&first), digests(&second));
    let packets = summary(capture);
    let lost = packets.comments["dropped by the path: random loss"];
    assert_eq!(first["runs"][0]["path"]["random_drops"].as_u64(), Some(lost));
    assert_eq!(packets.resent, retransmits(&first["runs"][0]), "{packets:?}");
    assert!(packets.inbound > 100, "{packets:?}");
    assert!(first["kernel"].as_str().expect("a kernel").starts_with("Linux "), "{first}");
    let simulated = document(&file, &["--world", "sim"]).expect("in the simulator");
    let (guest, sim) = (&first["runs"][0], &simulated["runs"][0]);
    let bytes = |run: &Value| -> f64 {
        let flows = run["flows"].as_array().expect("flows");
        flows.iter().map(|flow| flow["bytes"].as_f64().expect("bytes")).sum()
    };
    assert!((bytes(guest) / bytes(sim) - 1.0).abs() < 0.03, "{guest}\n{sim}");
    assert_eq!(guest["path"]["random_drops"], sim["path"]["random_drops"]);
    assert!(guest["path"]["random_drops"].as_u64() > Some(0) && bytes(guest) > 5e5, "{guest}");
}

/// The path determines the time of a response: one round trip each for the handshake and for the request with the
/// response.
#[test]
fn a_guest_answers_a_request() {
    let points = "[[flow]]\ncc = 'cubic'\nbytes = '1kB'\napp = { request = '200B' }";
    let Some(document) = document(&experiment("a-guest-answers", points), &["--world", "uml"]) else {
        return;
    };
    let from_syn = document["runs"][0]["flows"][0]["response_ms"]["from_syn"].as_f64().expect("a response");
    assert!((80.0..83.0).contains(&from_syn), "two round trips of 40 ms, and not {from_syn} ms");
}

/// Flows at other distances have separate hosts, whose connections take the additional delay. Both worlds add the same
/// delay.
#[test]
fn a_guest_has_hosts_at_several_distances() {
    let flow = "[[flow]]\ncc = 'cubic'\nbytes = '1kB'\napp = { request = '200B' }\n";
    let sending = "[[flow]]\ncc = 'reno'\nmax_pacing = '1mbit'\naccess_rtt = '160ms'\n";
    let points = format!("{flow}access_rtt = '80ms'\n{flow}{sending}{flow}access_rtt = '160ms'");
    let file = experiment("hosts-at-distances", &points);
    for (world, slack) in [("sim", 0.5), ("uml", 3.0)] {
        let Some(document) = document(&file, &["--world", world]) else { return };
        let flows = &document["runs"][0]["flows"];
        for (flow, rtt) in [(0, 120.0), (1, 40.0), (3, 200.0)] {
            let from_syn = flows[flow]["response_ms"]["from_syn"].as_f64().expect("a response");
            // Two round trips, and the transmission of a kilobyte beside the paced data of the third flow.
            assert!(
                (2.0 * rtt..2.0 * rtt + slack + 5.0).contains(&from_syn),
                "{world}: {flow}: {from_syn} ms"
            );
        }
        let rtt = flows[2]["rtt_ms"]["min"].as_f64().expect("an RTT");
        assert!((200.0..203.0).contains(&rtt), "{world}: {rtt} ms");
    }
}

/// A guest has congestion controls that fullpipe's TCP lacks. DCTCP requests ECN, and so does its
/// receiver, although `ecn` is off; CE marks replace losses. Westwood without ECN shares the queue.
#[test]
fn a_control_of_linux_alone_runs_on_a_guest() {
    let points = "queue = { size = '4bdp', aqm = 'step', threshold = '0.5bdp' }\n\
                  [[flow]]\ncc = 'dctcp'\n[[flow]]\ncc = 'westwood'";
    let file = experiment("linux-alone", points);
    let (error, hint) = refusal(1, fullpipe(&["run", file.to_str().expect("UTF-8")]));
    assert!(error.ends_with("requires the congestion control 'dctcp', which only Linux has"), "{error}");
    assert!(hint.starts_with("run it on a kernel (--world uml)"), "{hint}");
    let Some(document) = document(&file, &["--world", "uml"]) else { return };
    let run = &document["runs"][0];
    assert_eq!([&run["flows"][0]["cc"], &run["flows"][1]["cc"]], ["dctcp", "westwood"]);
    assert!(run["path"]["marked"].as_u64() > Some(10), "{run}");
    assert_eq!(run["flows"][0]["retransmits"], 0, "{run}");
    assert!(run["flows"][1]["bytes"].as_u64() > Some(100_000), "{run}");
}

#[test]
fn what_cannot_run_a_guest_is_refused_in_one_line() {
    let file = experiment("refused-guests", "[[flow]]\ncc = 'cubic'");
    let file = file.to_str().expect("UTF-8");
    let refused =
        |arguments: &[&str]| refusal(1, fullpipe(&[&["run", file, "--world", "uml"], arguments].concat()));

    let (error, hint) = refused(&["--kernel", "/no/such/kernel"]);
    assert!(error.starts_with("cannot read the kernel /no/such/kernel: "), "{error}");
    assert!(hint.contains("user-mode-linux") && hint.contains("--world sim"), "{hint}");

    let (error, _) = refused(&["--kernel", file]);
    assert!(error.ends_with("is not a program for x86_64"), "{error}");

    // A program header table without an interpreter means that the kernel is statically linked.
    let linked = folder("static-kernel").join("linux");
    let mut head = vec![0_u8; 120];
    head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    (head[18], head[32], head[54], head[56], head[64]) = (62, 64, 56, 1, 1);
    fs::write(&linked, head).expect("written");
    let (error, _) = refused(&["--kernel", linked.to_str().expect("UTF-8")]);
    assert!(error.contains("is statically linked"), "{error}");

    let output =
        Command::new(crate::PROGRAM).args(["run", file, "--world", "uml"]).env("PATH", "/nowhere").output();
    let output = output.expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: there is no User-Mode Linux kernel in PATH"), "{stderr}");

    let flows: String = (0..17).map(|n| format!("[[flow]]\ncc = 'cubic'\naccess_rtt = '{n}ms'\n")).collect();
    let far = experiment("too-many-distances", &flows);
    if has("linux") {
        let (error, hint) = refusal(1, fullpipe(&["run", far.to_str().expect("UTF-8"), "--world", "uml"]));
        assert!(
            error.ends_with("has hosts at 17 distances, but a guest has at most 16 pairs of hosts"),
            "{error}"
        );
        assert_eq!(hint, "use fewer values of access_rtt, or use the simulator: --world sim");
    }

    let usage = |arguments: &[&str]| refusal(2, fullpipe(&[&["run", file], arguments].concat())).0;
    assert_eq!(usage(&["--kernel", "x"]), "--kernel applies to --world uml only");
    assert_eq!(usage(&["--time-limit", "1min"]), "--time-limit applies to --world uml only");
}

/// Returns the number of processes whose working directory is below `parent`.
fn processes_in(parent: &Path) -> usize {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let folders = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    folders.filter(|folder| folder.starts_with(parent)).count()
}

/// Starts a long run of a guest in a folder below the returned one. Returns `None` if this machine cannot run guests.
fn long_run(test: &str, arguments: &[&str]) -> Option<(Child, PathBuf)> {
    if !has("linux") {
        return None;
    }
    let file = experiment(test, "[[flow]]\ncc = 'cubic'");
    let text = fs::read_to_string(&file).expect("the experiment").replace("'1s'", "'10000s'");
    fs::write(&file, text).expect("written");
    let parent = fs::canonicalize(folder(&format!("{test}-guests"))).expect("a folder");
    let child = Command::new(crate::PROGRAM)
        .args(["run", file.to_str().expect("UTF-8"), "--world", "uml"])
        .args(arguments)
        .env("TMPDIR", &parent)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let child = RefCell::new(child);
    let ended = || child.borrow_mut().try_wait().expect("a child");
    assert!(becomes(|| processes_in(&parent) >= 2 || ended().is_some()), "a kernel and its init");
    if ended().is_some_and(|status| status.code() == Some(4)) {
        eprintln!("skipped: this machine cannot run guests");
        return None;
    }
    Some((child.into_inner(), parent))
}

/// If the command is killed, the kernel of its guest and all other processes that it has started end, too.
#[test]
fn a_killed_command_leaves_no_guest() {
    let Some((mut child, parent)) = long_run("a-killed-command", &[]) else { return };
    signal(&child, "KILL");
    child.wait().expect("it ends");
    assert!(becomes(|| processes_in(&parent) == 0), "{} processes are left", processes_in(&parent));
    // The next run, which is killed at once, removes the folder of the first.
    let file = experiment("after-a-killed-command", "[[flow]]\ncc = 'cubic'");
    let next = Command::new(crate::PROGRAM)
        .args(["run", file.to_str().expect("UTF-8"), "--world", "uml", "--time-limit", "1ms"])
        .env("TMPDIR", &parent)
        .output();
    assert_eq!(next.expect("it ends").status.code(), Some(1), "its guest takes longer");
    let left: Vec<_> = fs::read_dir(&parent).expect("a folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A guest that reaches its time limit is killed and reported, and leaves nothing behind.
#[test]
fn a_guest_ends_at_its_time_limit() {
    let Some((child, parent)) = long_run("a-time-limit", &["--time-limit", "900ms"]) else { return };
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let error =
        "error: run 'cc=cubic' with seed 1: the guest did not end within 900ms of real time, and was killed";
    assert!(stderr.contains(error) && stderr.contains("--time-limit"), "{stderr}");
    assert!(becomes(|| processes_in(&parent) == 0), "{} processes are left", processes_in(&parent));
    assert_eq!(fs::read_dir(&parent).expect("a folder").count(), 0, "the folder of the run is left");
}

/// A guest has as many flows as a simulated run. Two thousand sockets exceed the usual limit of open files.
#[test]
#[ignore = "takes seconds"]
fn a_guest_has_many_flows() {
    let points = "[[flow]]\ncc = 'cubic'\ncount = 1000\nevery = '1ms'\nbytes = '1kB'";
    let file = experiment("many-flows", points);
    let Some(document) = document(&file, &["--world", "uml"]) else { return };
    let flows = document["runs"][0]["flows"].as_array().expect("flows");
    let complete = flows.iter().filter(|flow| flow["bytes"] == 1_000).count();
    assert!(flows.len() == 1_000 && complete > 900, "{complete} flows are complete");
}

/// Twenty cells are run twice each: alone, and while all cores are busy. The test takes two minutes of CPU time.
#[test]
#[ignore = "takes minutes"]
fn twenty_cells_repeat_bit_for_bit() {
    let points = "loss = ['0%', '0.1%', '1%', '3%']\nqueue = '1bdp'\n\
                  [[flow]]\ncc = ['reno', 'bic', 'cubic', 'vegas', 'bbr1']";
    let file = experiment("twenty-cells", points);
    let Some(first) = document(&file, &["--world", "uml"]) else { return };
    let mut load: Vec<_> = (0..4)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell"))
        .collect();
    let second = document(&file, &["--world", "uml"]).expect("a second time");
    for shell in &mut load {
        shell.kill().and_then(|()| shell.wait()).expect("it ends");
    }
    assert_eq!(digests(&first).len(), 20);
    assert_eq!(digests(&first), digests(&second));
}

/// The simulator compared with itself has no different packet; compared with a guest, the command reports the first
/// packet that differs.
#[test]
fn a_pair_names_the_first_packet_that_differs() {
    let file = experiment("a-pair", "loss = '0.2%'\n[[flow]]\ncc = ['cubic', 'bbr1']");
    let file = file.to_str().expect("UTF-8");
    let (code, stdout, stderr) = fullpipe(&["pair", file, "--world", "sim", "--world", "sim"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("The runs do not differ: "), "{stdout}");

    let (error, hint) = refusal(2, fullpipe(&["pair", file, "--world", "emu", "--world", "uml"]));
    assert!(error.contains("emu") && hint.contains("--world sim"), "{error} {hint}");
    let (error, hint) = refusal(2, fullpipe(&["pair", file, "--point", "cc=reno"]));
    assert_eq!(error, "the experiment has no point 'cc=reno'");
    assert_eq!(hint, "known: cc=cubic; cc=bbr1");

    if !has("linux") {
        return;
    }
    let (code, stdout, stderr) = fullpipe(&["pair", file, "--point", "cc=bbr1", "--tolerance", "1ns"]);
    if code == 4 {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert_eq!(code, 0, "{stderr}");
    // The timers of the guest's kernel have steps of 256 ns, so the runs differ at the first paced packet at the
    // latest.
    let line = stdout.lines().find(|line| line.starts_with("The runs differ from ")).expect("a difference");
    let number = line.split_whitespace().find_map(|word| word.parse::<u32>().ok()).expect("a number");
    assert!(stdout.contains(&format!("\n* {number} ")), "the packet is marked: {stdout}");
}

/// For each simulated rung of a ladder, the document contains the rate on a kernel, which agrees with the simulator's
/// rate.
#[test]
fn each_rung_is_also_run_by_a_kernel() {
    let command = ["whatif", "--link", "4mbit", "--rtt", "100ms", "--buffers", "64KiB"];
    let prove = |more: &[&str]| fullpipe(&[&command[..], more].concat());
    let (error, _) = refusal(1, prove(&["--prove=/no/such/kernel"]));
    assert!(error.starts_with("cannot read the kernel /no/such/kernel: "), "{error}");
    if !has("linux") {
        return;
    }
    let (code, stdout, stderr) = prove(&["--prove", "--json"]);
    if code == 4 {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert_eq!(code, 0, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("a document");
    let rungs = document["ladder"].as_array().expect("rungs");
    let simulated: Vec<&Value> = rungs.iter().filter(|rung| rung["source"] == "simulated").collect();
    assert!(simulated.len() >= 2, "{document}");
    for rung in simulated {
        let proof = &rung["proof"];
        let rate = |key: &str| proof[key].as_f64().expect("a rate");
        assert!((rate("bps") / rate("simulated_bps") - 1.0).abs() < 0.03, "{rung}");
        assert!(proof["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("Linux ")), "{rung}");
    }
}
