//! Tests of `fullpipe iperf3 -s` over the loopback device, with iperf3's own client and with misbehaving
//! clients.
//!
//! Transfers over the loopback device have a rate where it does not matter, because without one they keep both
//! cores busy and delay the other tests on the real clock.
//!
//! If iperf3 is not installed, the tests that need it are skipped with a message. With
//! FULLPIPE_REQUIRE_IPERF3=1, a test that needs iperf3 fails instead of being skipped.

use crate::process;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::{becomes, has, signal};
use serde_json::Value;

/// A running fullpipe server, which ends when this value is dropped.
struct Server {
    child: Child,
    port: u16,
    said: Lines,
    noted: Lines,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let port = process::port();
        let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args([&["iperf3", "-s", "-p", &port.to_string()], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = Lines::of(child.stdout.take().expect("a pipe"));
        let noted = Lines::of(child.stderr.take().expect("a pipe"));
        let server = Self { child, port, said, noted };
        assert!(
            becomes(|| fs::read_to_string("/proc/net/tcp6").is_ok_and(|table| listens(&table, port))
                || fs::read_to_string("/proc/net/tcp").is_ok_and(|table| listens(&table, port))),
            "{}",
            server.noted()
        );
        server
    }

    /// Returns the server's standard output so far; it is complete once [`Server::ends_with`] has returned.
    fn said(&self) -> String {
        self.said.so_far()
    }

    fn noted(&self) -> String {
        self.noted.so_far()
    }

    /// Starts iperf3's own client.
    fn client(&self, arguments: &[&str]) -> Child {
        Command::new("iperf3")
            .args([&["-c", "127.0.0.1", "-p", &self.port.to_string()], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    }

    #[track_caller]
    fn serves(&self, arguments: &[&str]) -> String {
        done(arguments, self.client(arguments))
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a connection")
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }

    /// Returns the resident memory of the server in KiB.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Waits until the server has ended with this exit code and the last line of its output has arrived.
    fn ends_with(&mut self, code: i32) {
        assert!(becomes(|| fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .is_ok_and(|stat| stat.contains(") Z "))));
        let ended = self.child.wait().expect("it ends");
        self.said.end();
        self.noted.end();
        assert_eq!(ended.code(), Some(code), "{}", self.noted());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listens(table: &str, port: u16) -> bool {
    let at = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1).is_some_and(|local| local.ends_with(&at)) && words.nth(1) == Some("0A")
    })
}

/// Lines of output, which a thread reads from a pipe as they arrive.
struct Lines {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut text = into.lock().expect("whole");
                *text += &line;
                text.push('\n');
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        self.text.lock().expect("whole").clone()
    }

    /// Waits until the pipe is closed, because after the process has ended the pipe may still contain output.
    fn end(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it only reads");
        }
    }
}

fn text(of: &Output) -> String {
    String::from_utf8_lossy(&of.stdout).into_owned() + &String::from_utf8_lossy(&of.stderr)
}

#[track_caller]
fn done(arguments: &[&str], client: Child) -> String {
    let output = client.wait_with_output().expect("it ends");
    let told = text(&output);
    assert!(output.status.success(), "{arguments:?}: {told}");
    told
}

#[track_caller]
fn refused(client: Child) -> String {
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    text(&output)
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {document:#}"))
}

/// Common uses of iperf3, all of them at the same time on one port. iperf3's own server would run these tests
/// one after another.
#[test]
fn many_clients_measure_at_once() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start(&["--max-tests", "32", "--max-per-address", "32"]);
    let tests: [&[&str]; 14] = [
        &["-t", "1"],
        &["-t", "1", "-R"],
        &["-t", "1", "--bidir", "-b", "50M"],
        &["-t", "1", "-P", "10", "-b", "20M"],
        &["-t", "1", "-R", "-P", "3", "-b", "50M"],
        &["-t", "1", "-u", "-b", "2M"],
        &["-t", "1", "-u", "-b", "2M", "-R"],
        &["-t", "1", "-u", "-b", "2M", "--bidir", "-P", "2", "--udp-counters-64bit"],
        &["-n", "5M"],
        &["-n", "5M", "-R"],
        &["-k", "20", "-l", "16K"],
        &["-t", "1", "-O", "1", "-R", "-b", "50M"],
        &["-t", "1", "-w", "64K", "-M", "1000", "-N", "-C", "reno", "-S", "0x10", "-R"],
        &["-t", "1", "-b", "10M", "-i", "0.5", "--get-server-output"],
    ];
    let clients: Vec<Child> = tests.iter().map(|arguments| server.client(arguments)).collect();
    for (arguments, client) in tests.iter().zip(clients) {
        let told = done(arguments, client);
        assert!(told.contains("iperf Done."), "{arguments:?}: {told}");
        if arguments.contains(&"-u") {
            assert!(told.contains("(0%)  receiver") || told.contains("receiver"), "{told}");
        }
        if arguments.contains(&"--get-server-output") {
            assert!(told.contains("Server output:") && told.contains("Accepted connection from"), "{told}");
        }
    }
    // Whenever no test is running, the server prints that it is listening, so this line may also appear
    // between two tests.
    let accepted = || server.said().matches("Accepted connection from 127.0.0.1, port").count();
    assert!(becomes(|| accepted() >= tests.len()
        && server
            .said()
            .trim_end()
            .lines()
            .rev()
            .nth(1)
            .is_some_and(|line| line.starts_with("Server listening on"))));
    let said = server.said();
    assert_eq!(accepted(), tests.len(), "{said}");
    assert!(said.contains("\n#2 "), "lines of tests that run beside others say so: {said}");
    assert_eq!(server.noted(), "");
}

/// Both ends report the same values, and streams are matched by their numbers. In an upload, the
/// last blocks may still be in the sender's socket when TEST_END arrives on the control connection;
/// these blocks do not count as received. The amount of data exceeds all socket buffers, so some
/// data is received in any case.
#[test]
fn both_ends_agree_on_what_was_sent() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start(&["-J"]);
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&server.serves(&[arguments, &["-J"]].concat())).expect("JSON")
    };
    // Returns the JSON documents that the server has printed; the last one may not have arrived yet.
    let documents = || -> Option<Vec<Value>> {
        serde_json::Deserializer::from_str(&server.said()).into_iter().collect::<Result<_, _>>().ok()
    };
    let has_documents = |count| becomes(|| documents().is_some_and(|all| all.len() == count));
    let sent = json(&["-n", "60M", "-P", "3"]);
    assert!(has_documents(1), "{}", server.said());
    let bytes = number(&sent, "/end/sum_received/bytes");
    assert!(0.0 < bytes && bytes <= number(&sent, "/end/sum_sent/bytes"), "{sent:#}");
    let streams = sent["end"]["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 3);
    for stream in streams {
        assert!(number(stream, "/receiver/bytes") <= number(stream, "/sender/bytes"), "{stream:#}");
    }
    assert_eq!(streams.iter().map(|stream| number(stream, "/receiver/bytes")).sum::<f64>(), bytes);
    let back = json(&["-n", "3M", "-R"]);
    assert_eq!(number(&back, "/end/sum_received/bytes"), f64::from(3 << 20), "{back:#}");
    assert!(number(&back, "/end/streams/0/sender/retransmits") >= 0.0);
    assert!(has_documents(2), "{}", server.said());
    // All of these datagrams fit into the receive buffer, so no datagram is lost, however late the client
    // reads.
    let datagrams = json(&["-u", "-b", "4M", "-l", "1000", "-n", "50K", "-R"]);
    assert!(number(&datagrams, "/end/sum/packets") >= 50.0, "{datagrams:#}");
    assert_eq!(number(&datagrams, "/end/sum/lost_packets"), 0.0, "{datagrams:#}");
    // The server has printed one JSON document per test.
    assert!(has_documents(3), "{}", server.said());
    let documents = documents().expect("JSON");
    assert_eq!(number(&documents[0], "/end/sum_received/bytes"), bytes);
    assert_eq!(number(&documents[0], "/end/sum_sent/bytes"), number(&sent, "/end/sum_sent/bytes"));
}

#[test]
fn events_say_of_which_test_they_are() {
    if !has("iperf3") {
        return;
    }
    let mut server = Server::start(&["--json-stream", "-1", "-i", "0.5"]);
    // The rate is low, because at a high rate a client that waits for a CPU would close its receive window.
    server.serves(&["-t", "2", "-R", "-b", "20M"]);
    server.ends_with(0);
    let said = server.said();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("start", "end"), "{said}");
    assert!(names.iter().filter(|name| **name == "interval").count() >= 2, "{said}");
    assert!(events.iter().all(|event| event["fullpipe"]["test"] == 1), "{said}");
    // The server was the sender, so it reports the state of its socket.
    assert!(events[1]["data"]["streams"][0]["fullpipe"]["rwnd_bytes"].as_u64() > Some(0), "{said}");
}

#[test]
fn a_full_server_says_that_it_is_busy() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start(&["--max-tests", "1"]);
    let mut first = server.client(&["-t", "60", "-b", "1M"]);
    assert!(becomes(|| server.said().contains("connected to")));
    let told = refused(server.client(&["-t", "1"]));
    assert!(told.contains("the server is busy running a test"), "{told}");
    let noted = || server.noted().contains("note: 127.0.0.1: busy: a test is running");
    assert!(becomes(noted), "{}", server.noted());
    // The rejected client does not disturb the running test.
    let reports = || server.said().matches(" sec ").count();
    let before = reports();
    assert!(becomes(|| reports() > before), "{}", server.said());
    assert!(first.try_wait().expect("a child").is_none(), "it has ended: {}", server.noted());
    signal(&first, "INT");
    first.wait().expect("it ends");
    assert!(becomes(|| server.said().matches("Server listening").count() == 2));
    server.serves(&["-n", "1M"]);
}

#[test]
fn tests_beyond_the_limits_are_refused_or_ended() {
    if !has("iperf3") {
        return;
    }
    let server = Server::start(&["--server-max-duration", "2", "--server-bitrate-limit", "20M/1"]);
    refused(server.client(&["-t", "3"]));
    assert!(becomes(|| server.noted().contains("refused: 3s requested, but at most 2s allowed")));
    let told = refused(server.client(&["-t", "1", "-b", "15M", "-P", "2"]));
    assert!(told.contains("total required bandwidth is larger than server limit"), "{told}");
    // The client sends at full speed, which exceeds the limit. The server detects the excess after one
    // second.
    refused(server.client(&["-t", "2"]));
    assert!(becomes(|| server.noted().contains("at most 20 Mbit/s allowed")), "{}", server.noted());
    // If the server is the sender, it limits its own rate.
    server.serves(&["-t", "2", "-R"]);
}

/// If the client is killed or the server is interrupted, the other side detects it, and the port becomes free
/// again.
#[test]
fn whoever_vanishes_is_no_harm() {
    if !has("iperf3") {
        return;
    }
    let mut server = Server::start(&[]);
    for arguments in [&["-t", "30", "-b", "1M"][..], &["-t", "30", "-R"], &["-t", "30", "-u", "-R"]] {
        let before = server.said().matches(" sec ").count();
        let mut client = server.client(arguments);
        assert!(becomes(|| server.said().matches(" sec ").count() > before), "{}", server.said());
        let listening = || server.said().matches("Server listening").count();
        let listened = listening();
        client.kill().expect("it runs");
        client.wait().expect("it ends");
        assert!(becomes(|| listening() > listened), "{}", server.said());
    }
    assert!(
        becomes(|| server.noted().matches("closed the connection unexpectedly").count() == 3),
        "{}",
        server.noted()
    );
    assert_eq!(server.noted().lines().count(), 3, "a line each: {}", server.noted());
    server.serves(&["-n", "1M"]);
    let client = server.client(&["-t", "60", "-b", "1M"]);
    assert!(becomes(|| server.said().matches("Accepted").count() == 5), "{}", server.said());
    signal(&server.child, "INT");
    let told = refused(client);
    assert!(told.contains("server has terminated"), "{told}");
    server.ends_with(0);
}

/// A server that is stopped by any signal notifies its clients, including those that send on several streams.
#[test]
fn a_stopped_server_tells_its_clients() {
    if !has("iperf3") {
        return;
    }
    for (name, arguments) in [
        ("TERM", &["-t", "60", "-b", "1M"][..]),
        ("TERM", &["-t", "60", "-P", "4"]),
        ("HUP", &["-t", "60", "-R"]),
        ("INT", &["-t", "60", "-P", "4"]),
        ("TERM", &["-t", "60", "-u", "-b", "1M"]),
    ] {
        let mut server = Server::start(&[]);
        let client = server.client(arguments);
        assert!(becomes(|| server.said().contains(" sec ")), "{}", server.said());
        signal(&server.child, name);
        let told = refused(client);
        assert!(told.contains("server has terminated"), "SIG{name} {arguments:?}: {told}");
        server.ends_with(0);
    }
}

/// Cookie of an iperf3 test, whose first use starts the test.
const COOKIE: &[u8; 37] = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0";

/// Connects as a client, sends `words`, and returns all data that the server sends until it closes the
/// connection.
fn answer(server: &Server, words: &[&[u8]]) -> Vec<u8> {
    let mut stream = server.connect();
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    for word in words {
        stream.write_all(word).expect("room");
    }
    let mut heard = Vec::new();
    // The server may also end the connection with a reset.
    let _ = stream.read_to_end(&mut heard);
    heard
}

fn frame(length: u32, text: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes(), text].concat()
}

/// Invalid data at any step of the protocol results in one line of output and a closed connection, and leaves
/// no state in the server.
#[test]
fn nonsense_is_refused_in_a_line() {
    let server = Server::start(&[]);
    let whole = |text: &[u8]| frame(text.len() as u32, text);
    assert_eq!(answer(&server, &[b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n"]), b"");
    let refusals: [(Vec<u8>, i32); 7] = [
        (frame(u32::MAX, b"{}"), 110),
        (frame(8_193, b"{"), 110),
        (whole(b"{\"tcp\":"), 110),
        (whole(&b"[".repeat(8_000)), 110),
        (whole(b"{\"tcp\":true,\"parallel\":1000000000}"), 6),
        (whole(b"{\"udp\":true,\"len\":1}"), 20),
        (whole(b"{\"tcp\":true,\"time\":18446744073709551615}"), 5),
    ];
    for (params, code) in refusals {
        let heard = answer(&server, &[COOKIE, &params]);
        let expected = [&[9, 0xfe], &i32::to_be_bytes(code)[..], &[0; 4]].concat();
        assert_eq!(heard, expected, "{}", String::from_utf8_lossy(&params));
    }
    // An invalid state byte arrives while the server waits for data connections.
    let heard = answer(&server, &[COOKIE, &whole(b"{\"tcp\":true}"), &[99]]);
    assert_eq!(heard[..3], [9, 10, 0xfe]);
    assert!(becomes(|| server.noted().lines().count() == 9), "{}", server.noted());
    assert!(server.noted().lines().all(|line| line.len() < 200), "{}", server.noted());
    if has("iperf3") {
        server.serves(&["-n", "1M"]);
    }
}

/// Number of silent connections that are open at the same time. This number is larger than the number of
/// connections that the server keeps (256), but smaller than the usual limit on open files (1024), because
/// concurrent tests also need descriptors.
const SILENT_AT_ONCE: usize = 600;

/// Among ten thousand silent connections, a client can still run a test, and the server's memory does not
/// grow.
#[test]
fn silent_connections_cost_little_and_stop_nobody() {
    let server = Server::start(&[]);
    // The first test allocates memory that stays allocated, so it precedes the measurement.
    if has("iperf3") {
        server.serves(&["-n", "1M"]);
    }
    let (resident, descriptors) = (server.resident(), server.descriptors());
    let mut silent = Vec::new();
    let mut measured = 0;
    for number in 0..10_000 {
        // The oldest silent connections are closed, so that the number of open descriptors stays limited.
        if silent.len() == SILENT_AT_ONCE {
            silent.drain(..SILENT_AT_ONCE / 2);
        }
        silent.push(server.connect());
        if number % 3_000 == 2_999 && has("iperf3") {
            server.serves(&["-n", "1M"]);
            measured += 1;
        }
    }
    assert!(silent.len() > 256, "only {} at once", silent.len());
    assert!(measured == 3 || !has("iperf3"));
    assert!(becomes(|| server.descriptors() <= descriptors + 260), "{} descriptors", server.descriptors());
    let more = server.resident().saturating_sub(resident);
    assert!(more < 8 << 10, "{more} KiB more than before");
    assert_eq!(server.noted(), "", "nothing to say of those who say nothing");
}

/// The number of tests that start but never continue is also limited. A test that never continues ends after
/// a timeout; here, the tests end when their clients disconnect.
#[test]
fn tests_that_never_go_on_are_bounded() {
    let server = Server::start(&["--max-tests", "4", "--max-per-address", "4"]);
    let mut cookie = *COOKIE;
    let mut begun = Vec::new();
    for number in 0..6 {
        cookie[0] = b'a' + number;
        let mut stream = server.connect();
        stream.write_all(&cookie).expect("room");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        assert_eq!(byte, [if number < 4 { 9 } else { 0xff }]);
        begun.push(stream);
    }
    drop(begun);
    assert!(
        becomes(|| server.noted().matches("closed the connection unexpectedly").count() == 4),
        "{}",
        server.noted()
    );
    if has("iperf3") {
        server.serves(&["-n", "1M"]);
    }
}

/// If the port is in use, the server prints one error line, and has the same exit code as iperf3.
#[test]
fn a_port_that_is_taken_is_told() {
    let server = Server::start(&[]);
    let port = server.port.to_string();
    let (error, _hint) = process::refusal(1, process::fullpipe(&["iperf3", "-s", "-p", &port]));
    assert!(error.contains("in use"), "{error}");
}
