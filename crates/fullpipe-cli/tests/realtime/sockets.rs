//! Tests of `fullpipe diagnose --pid`, `--dst` and `--watch` as users and scripts run them. The tests use the
//! loopback device and, if permitted, an emulated path.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::process::emulated::{allowed, is_disturbed, undisturbed};
use crate::process::{folder, fullpipe, has, refusal, signal};

/// A sender and a receiver connected over the loopback device, which stop when this value is dropped.
struct Transfer {
    peer: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Transfer {
    /// Starts a transfer over the loopback device; `reads` says whether the receiver reads the data.
    fn begin(reads: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let peer = listener.local_addr().expect("an address");
        let over = Arc::new(AtomicBool::new(false));
        let mut near = TcpStream::connect(peer).expect("a connection");
        let (mut far, _) = listener.accept().expect("a connection");
        // With this timeout, neither thread blocks for longer than the test.
        let patience = Some(std::time::Duration::from_millis(100));
        near.set_write_timeout(patience).and_then(|()| far.set_read_timeout(patience)).expect("timeouts");
        let (ended, ended_too) = (Arc::clone(&over), Arc::clone(&over));
        thread::spawn(move || {
            let block = [7; 65_536];
            while !ended.load(Ordering::Relaxed) {
                let _ = near.write(&block);
            }
        });
        thread::spawn(move || {
            let mut block = [0; 65_536];
            while !ended_too.load(Ordering::Relaxed) {
                if reads {
                    let _ = far.read(&mut block);
                } else {
                    pause();
                }
            }
        });
        Self { peer, over }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn pause() {
    thread::sleep(std::time::Duration::from_millis(20));
}

#[test]
fn the_sockets_of_a_process_are_listed_and_the_largest_explained() {
    let transfer = Transfer::begin(true);
    let own = std::process::id().to_string();
    let dst = transfer.peer.to_string();
    let arguments = ["diagnose", "--pid", &own, "--dst", &dst, "--for", "1500ms"];
    let (code, stdout, stderr) = fullpipe(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("\nConnections, the largest first"), "{stdout}");
    assert!(stdout.contains(&dst) && stdout.contains("\nFindings"), "{stdout}");
    let (_, stdout, _) = fullpipe(&[&arguments[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(document["input"]["kind"], "sockets");
    let sockets = document["sockets"].as_array().expect("sockets");
    assert_eq!(sockets.len(), 1, "the kernel filters: {sockets:#?}");
    assert_eq!(sockets[0]["remote"], dst);
    assert!(sockets[0]["achieved_bps"].as_u64() > Some(1_000_000), "{sockets:#?}");
    // The other end of the connection, which is selected by its port, only receives; the limit is visible
    // only at the sender.
    let local = sockets[0]["local"].as_str().expect("an address").to_owned();
    let (code, stdout, stderr) = fullpipe(&["diagnose", "--dst", &local, "--for", "1s"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("\nFindings"), "{stdout}");
}

/// The receiver does not read, so data is queued and the receive window is closed; each line shows this.
#[test]
fn a_watch_tells_each_interval() {
    let transfer = Transfer::begin(false);
    let port = format!(":{}", transfer.peer.port());
    let arguments = ["diagnose", "--watch", "--dst", &port, "-i", "500ms", "--for", "1800ms"];
    let (code, stdout, stderr) = fullpipe(&[&arguments[..], &["--jsonl"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!((2..=4).contains(&lines.len()), "{stdout}");
    for line in &lines {
        assert_eq!(line["schema"], "fullpipe.watch/1");
        assert!(line["notsent_bytes"].as_u64() > Some(0), "{line}");
    }
    let limit = lines[lines.len() - 1]["limit"].as_str().expect("a limit");
    assert!(["rwnd", "receiver_app"].contains(&limit), "{limit}");
    // With an offered load, the line contains the time after which the memory is full.
    let demand = [&arguments[..], &["--offered", "8mbit", "--memory", "1MB"]].concat();
    let (_, stdout, stderr) = fullpipe(&demand);
    assert!(stdout.starts_with(" seconds    #  connection"), "{stdout}{stderr}");
    assert!(stdout.contains("offered 8 Mbit/s: the queue grows by"), "{stdout}");
    assert!(stdout.contains("after 1s"), "{stdout}");
}

#[test]
fn an_interrupt_ends_a_watch() {
    let transfer = Transfer::begin(true);
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["diagnose", "--watch", "-i", "500ms", "--dst", &transfer.peer.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.nth(1).is_some_and(|line| line.is_ok()), "a line an interval");
    signal(&child, "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_is_not_there_is_said() {
    let (error, hint) = refusal(1, fullpipe(&["diagnose", "--pid", "4294967295"]));
    assert_eq!(error, "there is no process 4294967295");
    assert!(hint.contains("ps -e"), "{hint}");
    let (error, _) = refusal(1, fullpipe(&["diagnose", "--dst", "127.0.0.1:9", "--for", "100ms"]));
    assert_eq!(error, "connections to 127.0.0.1:9: no TCP connection is open");
    let (error, _) = refusal(2, fullpipe(&["diagnose", "--dst", "127.0.0.1:http"]));
    assert!(error.contains("not a port"), "{error}");
    let (error, _) = refusal(1, fullpipe(&["diagnose", "--dst", "no.such.host.invalid"]));
    assert!(error.starts_with("--dst no.such.host.invalid: "), "{error}");
    refusal(2, fullpipe(&["diagnose"]));
    refusal(2, fullpipe(&["diagnose", "log.txt", "--pid", "1"]));
    refusal(2, fullpipe(&["diagnose", "--pid", "1", "--jsonl"]));
    refusal(2, fullpipe(&["diagnose", "--watch", "-i", "10ms"]));
    // The connection on this listener carries no data.
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let peer = near.peer_addr().expect("an address").to_string();
    let (error, hint) = refusal(1, fullpipe(&["diagnose", "--dst", &peer, "--for", "300ms"]));
    assert_eq!(
        error,
        format!("connections to {peer}: no data was transferred in 300ms on the only connection")
    );
    assert!(hint.contains("--for"), "{hint}");
}

/// Diagnoses an unmodified application behind an emulated path whose limit is known.
#[test]
fn the_limit_of_a_running_application_is_named() {
    if !allowed() {
        return;
    }
    let diagnose = env!("CARGO_BIN_EXE_fullpipe");
    let named = |path: &[&str], client: &str, link: &str| {
        let script = format!(
            "sleep 0.3; iperf3 -c 198.18.0.2 -t 8 {client} >/dev/null & sleep 1; \
             {diagnose} diagnose --pid $! --for 5s --link {link} --json; wait"
        );
        let serve = ["--serve", "iperf3 -s -1 >/dev/null", "--", "sh", "-c", &script];
        let (code, stdout, stderr) = fullpipe(&[&["emu"], path, &serve].concat());
        assert_eq!(code, 0, "{stderr}");
        let document: serde_json::Value =
            serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"));
        let limit = document["findings"][0]["limit"].as_str().expect("a limit").to_owned();
        (limit, is_disturbed(&stderr))
    };
    let fast = ["--rate", "100mbit", "--rtt", "40ms"];
    let lossy = [&fast[..], &["--loss", "1%"]].concat();
    let cases: [(&[&str], &str, &str, &str); 4] = [
        (&["--rate", "20mbit", "--rtt", "40ms"], "-C cubic", "20mbit", "link"),
        (&fast, "-C cubic --fq-rate 10M", "100mbit", "pacing"),
        (&lossy, "-C cubic", "100mbit", "cwnd"),
        // With `-w`, both socket buffers have the given size, but only a part of the receive buffer becomes
        // window.
        (&fast, "-C cubic -w 100K", "100mbit", "rwnd"),
    ];
    // The emulated paths use separate namespaces and carry little traffic, so they can run at the same time.
    thread::scope(|scope| {
        for (path, client, link, limit) in cases {
            let named = &named;
            scope.spawn(move || {
                let named = undisturbed(|| named(path, client, link), |named| named == limit);
                assert_eq!(named, limit, "{client} over {path:?}");
            });
        }
    });
}

/// First finding of a diagnosis, and the number of connections to which it applies.
#[derive(Debug, PartialEq)]
struct Verdict {
    limit: String,
    confidence: String,
    connections: u64,
}

impl Verdict {
    fn of(diagnosis: &str) -> Self {
        let document: serde_json::Value =
            serde_json::from_str(diagnosis).unwrap_or_else(|error| panic!("{error}: {diagnosis}"));
        let first = |key: &str| document["findings"][0][key].as_str().expect("a finding").to_owned();
        let connections = document["input"]["streams"].as_u64().expect("a number of streams");
        Self { limit: first("limit"), confidence: first("confidence"), connections }
    }
}

/// Three parallel connections of one iperf3 test are recorded in four ways at the same time: by `--pid`, as
/// dumps of `ss`, as a capture, and as iperf3's text log. The verdict is the same for all four. Three
/// connections that fill the link share it. Connections that their windows limit are judged alone; a text
/// log does not show these windows.
#[test]
fn three_live_connections_get_one_verdict_in_every_record() {
    if !has("tcpdump") || !has("iperf3") || !allowed() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let verdicts = |name: &str, rate: &str, client: &str| {
        let folder = folder(&format!("three-live-{name}"));
        let file = |name: &str| folder.join(name).display().to_string();
        let (sockets, dumps, capture, log) =
            (file("pid.json"), file("ss.txt"), file("dump.pcap"), file("log.txt"));
        let script = format!(
            "tcpdump -i fullpipe0 -s 128 --immediate-mode -U -Z root -w '{capture}' tcp port 5201 2>/dev/null & watch=$!; \
             sleep 0.5; iperf3 -c 198.18.0.2 -P 3 -t 9 {client} >'{log}' & test=$!; sleep 1; \
             while sleep 0.1 && kill -0 $test 2>/dev/null; do ss -tmi dst 198.18.0.2; done >'{dumps}' & \
             {program} diagnose --pid $test --for 6s --link {rate} --no-ladder --json >'{sockets}'; told=$?; \
             wait $test; kill -INT $watch; wait $watch; exit $told"
        );
        let path = ["emu", "--rate", rate, "--rtt", "40ms"];
        let serve = ["--serve", "iperf3 -s -1 >/dev/null", "--", "sh", "-c", &script];
        let (code, _, stderr) = fullpipe(&[&path[..], &serve].concat());
        assert_eq!(code, 0, "{stderr}");
        let live = std::fs::read_to_string(&sockets).expect("a diagnosis");
        let recorded = [("ss", &dumps), ("capture", &capture), ("text", &log)].map(|(kind, file)| {
            let (code, stdout, stderr) =
                fullpipe(&["diagnose", file, "--link", rate, "--rtt", "40ms", "--no-ladder", "--json"]);
            assert_eq!(code, 0, "{kind}: {stderr}");
            (kind, Verdict::of(&stdout))
        });
        let all: Vec<(&str, Verdict)> =
            [("sockets", Verdict::of(&live))].into_iter().chain(recorded).collect();
        (all, is_disturbed(&stderr))
    };
    let expected = |limit: &str, confidence: &str, connections| Verdict {
        limit: limit.into(),
        confidence: confidence.into(),
        connections,
    };
    let cases: [(&str, &str, &str, Verdict, &[&str]); 2] = [
        ("full", "30mbit", "-C cubic", expected("link", "certain", 3), &["sockets", "ss", "capture", "text"]),
        ("window", "300mbit", "-C cubic -w 100K", expected("rwnd", "low", 1), &["sockets", "ss", "capture"]),
    ];
    thread::scope(|scope| {
        for (name, rate, client, expected, kinds) in &cases {
            let verdicts = &verdicts;
            scope.spawn(move || {
                let holds = |all: &Vec<(&str, Verdict)>| {
                    all.iter()
                        .filter(|(kind, _)| kinds.contains(kind))
                        .all(|(_, verdict)| verdict == expected)
                };
                let all = undisturbed(|| verdicts(name, rate, client), holds);
                assert!(holds(&all), "{name}: {all:#?}");
            });
        }
    });
}
