//! Tests of `fullpipe exporter` over the loopback device.

use crate::process;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::process::{becomes, fullpipe, has, refusal};

/// A running exporter, and the address on which it listens.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    /// Starts an exporter on a port that the kernel chooses, so that no other process uses the port.
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(["exporter"])
            .args(if arguments.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] })
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let line = lines.next().expect("a line");
        // The rest of the output of the exporter must be read, so that the pipe does not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.strip_prefix("note: http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        let address = address.replace("0.0.0.0:", "127.0.0.1:");
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{line}");
        Self { child, address }
    }

    /// Sends an HTTP request, and returns the head and the body of the response.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let text = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                            X-Prometheus-Scrape-Timeout-Seconds: 4\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).expect("room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an end of the head");
        (head.to_owned(), body.to_owned())
    }

    fn value(&self, series: &str) -> f64 {
        let (_, page) = self.ask("GET /metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series}: {page}")).parse().expect("a number")
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exporter counts the bytes that the sockets of a group transfer, and the counts remain after the
/// sockets are closed.
#[test]
fn metrics_count_what_sockets_carry() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let peer = listener.local_addr().expect("an address");
    let exporter = Exporter::start(&["--dst", &peer.to_string(), "--dst", "192.0.2.1"]);
    let labels = format!("{{dst=\"{peer}\"}}");
    assert!(exporter.value(&format!("fullpipe_connections{labels}")) == 0.0);
    let mut near = TcpStream::connect(peer).expect("a connection");
    let (mut far, _) = listener.accept().expect("a connection");
    assert!(becomes(|| exporter.value(&format!("fullpipe_connections{labels}")) == 1.0));
    let mut block = vec![0; 1 << 20];
    for _ in 0..3 {
        near.write_all(&block[..200_000]).expect("room");
        far.read_exact(&mut block[..200_000]).expect("data");
    }
    assert!(becomes(|| exporter.value(&format!("fullpipe_sent_bytes_total{labels}")) >= 600_000.0));
    assert!(exporter.value(&format!("fullpipe_sockets_up{labels}")) == 1.0);
    assert!(exporter.value("fullpipe_sent_bytes_total{dst=\"192.0.2.1\"}") == 0.0);
    let sent = exporter.value(&format!("fullpipe_sent_bytes_total{labels}"));
    drop((near, far));
    assert!(becomes(|| exporter.value(&format!("fullpipe_connections{labels}")) == 0.0));
    assert!(exporter.value(&format!("fullpipe_sent_bytes_total{labels}")) >= sent, "a counter never falls");
    let (head, page) = exporter.ask("GET /metrics");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("application/openmetrics-text"),
        "{head}"
    );
    assert!(page.ends_with("# EOF\n") && page.contains("fullpipe_limit_seconds_total{"), "{page}");
}

#[test]
fn a_probe_runs_a_test() {
    if !has("iperf3") {
        return;
    }
    let exporter = Exporter::start(&[]);
    let port = process::port().to_string();
    let mut server =
        Command::new("iperf3").args(["-s", "-p", &port]).stdout(Stdio::null()).spawn().expect("iperf3");
    let target = format!("GET /probe?target=127.0.0.1:{port}");
    // The iperf3 server needs some time to start, and on a busy machine a test may exceed its scrape timeout.
    let last = RefCell::new(String::new());
    let up = becomes(|| {
        last.replace(exporter.ask(&target).1);
        last.borrow().contains("iperf3_up 1")
    });
    let _ = server.kill();
    let _ = server.wait();
    let page = last.into_inner();
    assert!(up && page.ends_with("# EOF\n"), "{page}");
    // After the iperf3 server has ended, the probe is still answered within the scrape timeout.
    let (head, page) = exporter.ask(&target);
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(page.contains("iperf3_up 0") && page.ends_with("# EOF\n"), "{page}");
    let (head, body) = exporter.ask("GET /probe");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(body.contains("/probe?target=HOST"), "{body}");
}

/// Probes can be limited to some servers or refused altogether. If the exporter listens on an address that
/// other hosts can reach, no probe is permitted by default.
#[test]
fn probes_are_limited_to_the_permitted_servers() {
    let said = |exporter: &Exporter, target: &str| exporter.ask(&format!("GET /probe?target={target}")).0;
    let limited = Exporter::start(&["--probe-target", "127.0.0.1:1"]);
    assert!(said(&limited, "127.0.0.1:1").starts_with("HTTP/1.1 200 "), "a failed probe is an answer");
    let off = Exporter::start(&["--no-probe"]);
    let exposed = Exporter::start(&["--listen", "0.0.0.0:0"]);
    for (exporter, target) in
        [(&limited, "127.0.0.1:2"), (&limited, "127.0.0.1"), (&off, "127.0.0.1:1"), (&exposed, "127.0.0.1:1")]
    {
        let (head, body) = exporter.ask(&format!("GET /probe?target={target}"));
        assert!(head.starts_with("HTTP/1.1 403 Forbidden"), "{target}: {head}");
        assert!(body.contains("--probe-target"), "{body}");
        assert!(exporter.ask("GET /metrics").0.starts_with("HTTP/1.1 200 "));
    }
    let (error, hint) = refusal(2, fullpipe(&["exporter", "--probe-target", "a:x"]));
    assert_eq!(
        (error.as_str(), hint.as_str()),
        ("--probe-target a:x: the text after the colon is not a port", "pass HOST or HOST:PORT")
    );
}

/// A thousand silent connections use only the permitted number of threads and delay no request: a scrape
/// among them is answered immediately.
#[test]
fn silent_connections_are_bounded() {
    let exporter = Exporter::start(&[]);
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", exporter.child.id())).expect("its threads");
        tasks.count()
    };
    // An evicted connection is closed without a response.
    let is_closed = |stream: &TcpStream| {
        let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(60)));
        let mut stream = stream;
        match stream.read(&mut [0; 64]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    let mut silent = Vec::new();
    for nth in 0..1_000 {
        let mut stream = TcpStream::connect(&exporter.address).expect("a connection");
        if nth % 2 == 0 {
            // Writing to a connection that has already been evicted may fail.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
        }
        silent.push(stream);
        if nth % 250 == 249 {
            assert!(exporter.ask("GET /metrics").1.ends_with("# EOF\n"));
            // The thread of an evicted connection ends shortly after the eviction.
            assert!(becomes(|| threads() <= 64 + 8), "{} threads", threads());
            let pushed_out = silent.drain(..silent.len() - 100);
            assert!(pushed_out.into_iter().all(|stream| is_closed(&stream)), "of the first {nth}");
        }
    }
    drop(silent);
    assert!(becomes(|| threads() <= 8), "{} threads", threads());
}

#[test]
fn other_requests_are_answered_as_they_should() {
    let exporter = Exporter::start(&[]);
    assert!(exporter.ask("GET /x").0.starts_with("HTTP/1.1 404 "));
    assert!(exporter.ask("POST /metrics").0.starts_with("HTTP/1.1 405 "));
    assert!(exporter.ask("GET /").1.contains("/metrics"));
    // The second exporter cannot listen, because the port is already in use.
    let (error, hint) = refusal(1, fullpipe(&["exporter", "--listen", &exporter.address]));
    assert!(error.starts_with(&format!("cannot listen on {}", exporter.address)), "{error}");
    assert!(hint.contains("--listen"), "{hint}");
    refusal(2, fullpipe(&["exporter", "--listen", "nowhere"]));
}
