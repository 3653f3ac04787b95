//! Tests of `fullpipe iperf3 -c` against iperf3's own server over the loopback device: common uses, the keys
//! of the JSON documents, and the behaviour if the server misbehaves.
//!
//! Transfers over the loopback device have a rate where it does not matter, because without one they keep both
//! cores busy and delay the other tests on the real clock.
//!
//! If iperf3 is not installed, these tests are skipped with a message. With FULLPIPE_REQUIRE_IPERF3=1, the
//! tests fail instead of being skipped.

use crate::process;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::process::emulated::{is_disturbed, undisturbed};
use crate::process::{CommandOutput, fullpipe, fullpipe_reading, has, refusal};
use serde_json::Value;

/// A running iperf3 server, which ends when this value is dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        let port = process::port().to_string();
        let mut child = Command::new("iperf3")
            .args(["-s", "-p", &port, "--forceflush"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = stdout.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("Server listening")), "it does not listen");
        // The rest of the output of the server must be read, so that the pipe does not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    fn measure(&self, arguments: &[&str]) -> CommandOutput {
        let server = ["iperf3", "-c", "127.0.0.1", "-p", &self.port];
        let busy = |said: &CommandOutput| said.0 == 1 && (said.1.contains(BUSY) || said.2.contains(BUSY));
        once_free(|| fullpipe(&[&server, arguments].concat()), busy)
    }

    #[track_caller]
    fn text(&self, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.measure(&[arguments, &["--no-diagnosis"]].concat());
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}\n{stdout}");
        assert!(stdout.contains("\niperf Done.\n"), "{stdout}");
        stdout
    }

    #[track_caller]
    fn document(&self, arguments: &[&str]) -> Value {
        let (code, stdout, stderr) = self.measure(&[arguments, &["-J", "--no-diagnosis"]].concat());
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}\n{stdout}");
        serde_json::from_str(&stdout).expect("JSON")
    }

    /// Returns the JSON document that iperf3's own client prints for a test without an error. Between two
    /// tests the server closes its socket, which can also reset or refuse the next client.
    fn theirs(&self, arguments: &[&str]) -> Value {
        let mut client = Command::new("iperf3");
        client.args([&["-c", "127.0.0.1", "-p", &self.port, "-J"], arguments].concat());
        let document = || -> Value {
            let output = Command::output(&mut client).expect("it runs");
            serde_json::from_slice(&output.stdout).expect("JSON")
        };
        once_free(document, |document| document["error"].is_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Error message of a server that is still busy with the previous test. The server closes that test only
/// after its client has ended.
const BUSY: &str = "the server is busy";

/// Repeats `attempt` as long as its result satisfies `busy`, and returns the last result.
fn once_free<T: Debug>(mut attempt: impl FnMut() -> T, busy: impl Fn(&T) -> bool) -> T {
    let mut came = attempt();
    let last = RefCell::new(&mut came);
    let attempt = RefCell::new(&mut attempt);
    assert!(
        process::becomes(|| {
            let mut last = last.borrow_mut();
            let free = !busy(&last);
            if !free {
                **last = attempt.borrow_mut()();
            }
            free
        }),
        "the server is still busy: {came:?}"
    );
    came
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {document:#}"))
}

/// Returns the start and the end of the interval in a row of the report, in seconds. Asserts that start and
/// end are in the same text columns as in iperf3's report.
fn interval(row: &str) -> [f64; 2] {
    assert_eq!((row.find('-'), row.find(" sec ")), (Some(12), Some(19)), "{row}");
    [&row[5..12], &row[13..19]].map(|time| time.trim().parse().unwrap_or_else(|_| panic!("{row}")))
}

/// The columns are those of iperf3, and the sums of both hosts agree as closely as the loopback device
/// allows.
#[test]
fn a_transfer_is_told_in_the_columns_of_iperf3() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    let text = server.text(&["-t", "2", "-i", "0.4", "-b", "20M"]);
    assert!(text.contains("[ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" sec ")).collect();
    let [reports @ .., sent, received] = &rows[..] else { panic!("{text}") };
    // The test prints five reports, or fewer on a busy machine. On a busy machine, a late report also covers
    // the delay, and reports that become due in the meantime are skipped.
    assert!((2..=5).contains(&reports.len()), "{text}");
    let times: Vec<[f64; 2]> = reports.iter().map(|row| interval(row)).collect();
    assert!(times[0][0] == 0.0 && times.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{text}");
    assert!(times.iter().zip(1..).all(|(time, nth)| time[1] >= 0.4 * f64::from(nth) - 0.01), "{text}");
    let [begin, end] = interval(sent);
    assert!(begin == 0.0 && end >= times[times.len() - 1][1].max(1.99), "{text}");
    assert!(
        sent.ends_with("             sender") && received.ends_with("                  receiver"),
        "{text}"
    );
    // The parser for iperf3's logs also accepts this log.
    let reading = ["diagnose", "-", "--rtt", "1ms", "--link", "100mbit", "--json"];
    let (code, told, stderr) = fullpipe_reading(text.as_bytes(), &reading);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(number(&told, "/input/intervals"), reports.len() as f64);
    assert_eq!(told["input"]["protocol"], "tcp");

    let amounts = server.document(&["-n", "20M", "-P", "3"]);
    assert_eq!(number(&amounts, "/end/sum_sent/bytes"), f64::from(20 << 20));
    let received = number(&amounts, "/end/sum_received/bytes");
    assert!(received <= f64::from(20 << 20), "{received}");
    let warm = server.text(&["-t", "1", "-O", "1", "-b", "50M"]);
    assert_eq!(warm.matches("(omitted)").count(), 1, "{warm}");
    // With small buffers, the data in flight at the end is a small part of all data, even on a busy machine.
    let told = server.document(&["-t", "1", "-R", "-f", "K", "-w", "256K"]);
    let (sent, received) = (number(&told, "/end/sum_sent/bytes"), number(&told, "/end/sum_received/bytes"));
    assert!(
        sent > 0.0 && received > 0.9 * sent && received <= 1.1 * sent,
        "{sent} sent, {received} received"
    );
}

/// Streams in both directions are matched by their numbers: 1, 3, 4, 5 and so on.
#[test]
fn many_streams_and_both_directions_arrive() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    let ten = server.document(&["-t", "1", "-P", "10", "-b", "20M"]);
    let streams = ten["end"]["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 10);
    assert!(streams.iter().all(|one| number(one, "/receiver/bytes") > 0.0), "{ten:#}");
    let both = server.document(&["-t", "1", "--bidir", "-P", "2"]);
    for path in ["/end/sum_received/bytes", "/end/sum_received_bidir_reverse/bytes"] {
        assert!(number(&both, path) > 0.0, "{both:#}");
    }
    assert_eq!(both["end"]["streams"].as_array().map(Vec::len), Some(4));
    let text = server.text(&["-t", "1", "--bidir", "-b", "50M"]);
    assert!(text.contains("[TX-C]") && text.contains("[RX-C]"), "{text}");
}

/// Each datagram is counted once as sent, and once as received or lost at the other end.
#[test]
fn datagrams_are_counted_at_both_ends() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    // At 125 datagrams per second, the receive buffer holds the datagrams of almost one second, so no
    // datagram is lost while the receiver waits for a CPU.
    let slow = ["-u", "-b", "1M", "-l", "1000"];
    let forward = server.document(&[&slow[..], &["-n", "125K"]].concat());
    let (sent, took) = (number(&forward, "/end/sum_sent/packets"), number(&forward, "/end/sum_sent/seconds"));
    assert_eq!(sent, 128.0, "{forward:#}");
    // The first datagram is sent immediately.
    assert!(took >= 127.0 / 125.0, "{sent} in {took} s");
    assert!(number(&forward, "/end/sum/lost_percent") <= 1.0, "{forward:#}");
    let reverse = server.document(&[&slow[..], &["-R", "-t", "2", "-P", "2"]].concat());
    let (received, took) =
        (number(&reverse, "/end/sum_received/packets"), number(&reverse, "/end/sum_received/seconds"));
    // There are two streams of 125 datagrams per second each. If the server waits for a CPU at the end, it
    // has not sent all datagrams.
    assert!((180.0..=260.0).contains(&(received / took)), "{received} came in {took} s");
    let wide = server.document(&["-u", "-n", "100K", "-l", "1000", "-b", "0", "--udp-counters-64bit"]);
    assert_eq!(number(&wide, "/end/sum_sent/packets"), 103.0, "the last one is whole");
    let text = server.text(&["-u", "-t", "1"]);
    assert!(text.contains("Jitter    Lost/Total Datagrams\n"), "{text}");
}

/// Returns all keys of a JSON document, without list indices.
fn keys(document: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    let path = format!("{path}/{key}");
                    walk(value, &path, into);
                    into.insert(path);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, path, into)),
            _ => {}
        }
    }
    let mut into = BTreeSet::new();
    walk(document, "", &mut into);
    into
}

/// Keys that iperf3 versions after 3.12 have added to the JSON document.
const NEWER: [&str; 7] =
    ["timemillisecs", "fq_rate", "fqrate", "bidir", "interval", "reorder", "sum_bidir_reverse"];

/// The JSON document contains all keys of iperf3's document. All other keys of the document are `fullpipe`
/// and keys of later iperf3 versions.
#[test]
fn documents_have_the_keys_of_iperf3() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    for arguments in [
        &["-t", "1", "-P", "2", "-b", "50M"][..],
        &["-t", "1", "-R", "-b", "50M"],
        &["-t", "1", "--bidir", "-b", "50M"],
        &["-t", "1", "-M", "1000", "-b", "100M"],
        &["-u", "-t", "1"],
        &["-u", "-R", "-t", "1"],
    ] {
        let theirs = keys(&server.theirs(arguments));
        let (code, stdout, stderr) = server.measure(&[arguments, &["-J"]].concat());
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let ours = keys(&serde_json::from_str(&stdout).expect("JSON"));
        let missing: Vec<&String> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{arguments:?} lacks {missing:?}");
        let known = |key: &&String| {
            key.contains("/fullpipe") || NEWER.iter().any(|name| key.ends_with(&format!("/{name}")))
        };
        let more: Vec<&String> = ours.difference(&theirs).filter(|key| !known(key)).collect();
        assert!(more.is_empty(), "{arguments:?} has {more:?} beside");
    }
}

#[test]
fn events_come_one_a_line() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    let asked = ["-t", "2", "-i", "0.5", "-b", "20M", "--link", "100mbit", "--json-stream"];
    let (code, stdout, stderr) = server.measure(&asked);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let events: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("an event a line")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let [first, reports @ .., last] = &names[..] else { panic!("{stdout}") };
    assert_eq!((*first, *last), ("start", "end"), "{stdout}");
    // There are four reports, or fewer on a busy machine, where late reports are skipped.
    assert!((2..=4).contains(&reports.len()) && reports.iter().all(|name| *name == "interval"), "{stdout}");
    let told = &events[2]["data"]["streams"][0]["fullpipe"];
    for key in ["srtt_us", "rwnd_bytes", "delivery_bps", "notsent_bytes", "limit"] {
        assert!(!told[key].is_null(), "no {key} in {told:#}");
    }
    let end = &events[events.len() - 1]["data"]["fullpipe"];
    assert_eq!(end["diagnosis"]["schema"], "fullpipe.diagnose/2", "{end:#}");
    assert!(number(end, "/latency/samples") >= 10.0, "at least ten a second: {end:#}");
}

/// After the TCP test, a UDP test runs at the rate that TCP reached, and one table compares both. (In this
/// test the rate is given, because no sender of datagrams reaches the rate of TCP over loopback.)
#[test]
fn tcp_and_udp_stand_side_by_side() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    let text = server.text(&["-t", "1", "--tcp-and-udp", "-b", "10M"]);
    assert_eq!(text.matches("iperf Done.").count(), 2, "{text}");
    let table = text.split("iperf Done.\n").nth(2).expect("a table");
    assert!(table.contains("segments retransmitted") && table.contains("\nUDP "), "{table}");
    let (code, stdout, _) =
        server.measure(&["-t", "3", "--tcp-and-udp", "-b", "10M", "-J", "--no-diagnosis"]);
    let both: Value = serde_json::from_str(&stdout).expect("JSON");
    let told = &both["end"]["fullpipe"];
    assert_eq!((code, &told["udp"]["start"]["test_start"]["protocol"]), (0, &"UDP".into()));
    let offered = number(told, "/tcp_and_udp/udp_offered_bps");
    assert!((9e6..=11e6).contains(&offered), "{offered}");
}

/// If client and server are on the same host, there is no path. The limit is then reported, together with the
/// reason why there is no ladder. For UDP, the output contains this reason without a limit.
#[test]
fn on_one_host_there_is_no_ladder() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start();
    let (code, stdout, stderr) = server.measure(&["-t", "1"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(
        stdout.contains("  - fullpipe simulates no ladder, because both ends are on one host")
            && stdout.contains("low"),
        "{stdout}"
    );
    let (code, udp, _) = server.measure(&["-t", "1", "-u", "-b", "1M"]);
    assert!(code == 0 && udp.contains("\nNo diagnosis: both ends are on this host"), "{udp}");
    assert!(stdout.contains("\nLatency: idle "), "{stdout}");
    assert!(stdout.contains("|       RTT "), "the columns behind the bar: {stdout}");
}

/// In `diagnose HOST`, a name that is not a file counts as the name of a host. Both this host and the control
/// server must answer.
#[test]
fn a_host_that_is_not_there_is_no_measurement() {
    let said = fullpipe(&["diagnose", "127.0.0.1:1"]);
    assert_eq!((said.0, said.1.as_str()), (3, ""));
    let refused = "\nerror: cannot connect to 127.0.0.1 port 1: connection refused\nhint: ";
    assert!(said.2.contains(refused), "{}", said.2);
    let said = fullpipe(&["diagnose", "127.0.0.1:1", "--control", "127.0.0.1:2"]);
    assert!(said.0 == 3 && said.2.contains("port 2: connection refused"), "the control first: {}", said.2);
    let (error, _) = refusal(1, fullpipe(&["diagnose", "absent.log"]));
    assert!(error.starts_with("cannot read absent.log"), "{error}");
    let (error, _) = refusal(2, fullpipe(&["diagnose", "127.0.0.1:1", "--control", "940mbps"]));
    assert!(error.contains("mbps"), "{error}");
}

#[test]
fn what_cannot_be_is_said_in_two_lines() {
    let (error, hint) = refusal(1, fullpipe(&["iperf3", "-c", "127.0.0.1", "-p", "1"]));
    assert_eq!(error, "cannot connect to 127.0.0.1 port 1: connection refused");
    assert!(hint.contains("iperf3 -s"), "{hint}");
    let (error, hint) = refusal(1, fullpipe(&["iperf3", "-c", "127.0.0.1", "-Z"]));
    assert_eq!(error, "iperf3's -Z (--zerocopy) is not supported");
    assert!(!hint.is_empty());
    for wrong in [&["-t", "x"][..], &["-P", "129"], &["-b", "fast"], &["-n", "1K", "-t", "3"], &["-l", "2M"]]
    {
        refusal(1, fullpipe(&[&["iperf3", "-c", "127.0.0.1", "-p", "1"], wrong].concat()));
    }
    let (code, stdout, stderr) = fullpipe(&["iperf3", "-c", "127.0.0.1", "-p", "1", "-J"]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    assert!(document["error"].as_str().is_some_and(|error| error.contains("refused")), "{document:#}");
}

/// If the server is busy, or is killed during a test, the client reports an error.
#[test]
fn a_server_that_does_not_do_its_part_is_an_error() {
    if !has("iperf3") {
        return;
    }
    let mut server = Server::start();
    let mut first = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["iperf3", "-c", "127.0.0.1", "-p", &server.port, "-t", "60", "--no-diagnosis", "-b", "10M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = BufReader::new(first.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(stdout.any(|line| line.contains(" connected to ")), "it does not connect");
    let (error, hint) = refusal(1, fullpipe(&["iperf3", "-c", "127.0.0.1", "-p", &server.port, "-t", "1"]));
    assert_eq!(error, "the server is busy running a test. try again later");
    assert!(hint.contains("one test at a time"), "{hint}");
    assert!(stdout.any(|line| line.contains(" sec ")), "a report comes");
    server.child.kill().expect("it runs");
    let rest: Vec<String> = stdout.collect();
    let output = first.wait_with_output().expect("it ends");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: the server closed the control connection unexpectedly\n"), "{stderr}");
    assert!(!rest.iter().any(|line| line.contains("iperf Done")), "{rest:?}");
}

/// Returns the first limit that the diagnosis in a JSON document reports.
fn named<'a>(document: &'a Value, key: &str) -> Option<&'a str> {
    document["end"]["fullpipe"][key]["findings"][0]["limit"].as_str()
}

/// From either end, with several streams and in both directions, a receive buffer of 256 KiB is reported as
/// the limit. fullpipe's server sends the samples of its sockets, so both ends are visible.
#[test]
fn either_end_names_the_same_limit() {
    if !has("iperf3") || !process::emulated::allowed() {
        return;
    }
    let folder = process::folder("either-end");
    let own = env!("CARGO_BIN_EXE_fullpipe");
    let buffers = |rmem: u32| {
        format!(
            "echo '4096 131072 {rmem}' > /proc/sys/net/ipv4/tcp_rmem && echo '4096 16384 16777216' > /proc/sys/net/ipv4/tcp_wmem"
        )
    };
    let measure = |server: &str, flags: &str| {
        let file = folder.join("document.json");
        let path = ["emu", "--rate", "50mbit", "--rtt", "40ms", "--serve"];
        let serve = format!("{}; exec {server} > {}/server.txt", buffers(131_072), folder.display());
        // The client retries, because the server needs some time to start.
        let client = format!(
            "{}; for try in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; {own} iperf3 -c $FULLPIPE_PEER -J -t 2 --link 50mbit {flags} \
             > {} && exit; done; exit 7",
            buffers(131_072),
            file.display()
        );
        let (code, _, stderr) = fullpipe(&[&path[..], &[&serve, "--", "sh", "-c", &client]].concat());
        assert_eq!(code, 0, "{server}, {flags}: {stderr}");
        let text = std::fs::read_to_string(&file).expect("a document");
        (serde_json::from_str::<Value>(&text).expect("JSON"), is_disturbed(&stderr))
    };
    for (server, both_ends) in [("iperf3 -s".to_owned(), false), (format!("{own} iperf3 -s"), true)] {
        let is_rwnd = |document: &Value| named(document, "diagnosis") == Some("rwnd");
        let forward = undisturbed(|| measure(&server, "-P 2"), is_rwnd);
        assert!(is_rwnd(&forward), "{server}: {:#}", forward["end"]["fullpipe"]);
        let evidence = &forward["end"]["fullpipe"]["diagnosis"]["findings"][0]["evidence"][0];
        assert!(
            evidence.as_str().is_some_and(|told| told.starts_with("this limit applied to 2 of 2 streams")),
            "{evidence}"
        );
        let is_certain = |document: &Value| {
            let finding = &document["end"]["fullpipe"]["diagnosis"]["findings"][0];
            is_rwnd(document) && finding["confidence"] == "certain"
        };
        let reverse = undisturbed(|| measure(&server, "-R"), is_certain);
        assert!(is_certain(&reverse), "{server}, its own reader is seen: {:#}", reverse["end"]["fullpipe"]);
        let notes = reverse["end"]["fullpipe"]["diagnosis"]["notes"].to_string();
        assert_eq!(notes.contains("fullpipe sampled both hosts"), both_ends, "{notes}");
        assert_eq!(notes.contains("fullpipe sampled only the receiving host"), !both_ends, "{notes}");
        let are_rwnd = |both: &Value| is_rwnd(both) && named(both, "diagnosis_reverse") == Some("rwnd");
        let both = undisturbed(|| measure(&server, "--bidir"), are_rwnd);
        assert!(are_rwnd(&both), "{server}: {:#}", both["end"]["fullpipe"]);
    }
}
