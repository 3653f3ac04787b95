//! Tests with unmodified programs as clients, curl and iperf3, and with many concurrent connections.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::peers::{self, Server};
use super::scene::{Scene, can_run, inside, now, start, wait_for};
use super::{FILE, has_web};
use crate::process::has;

const PORT: u16 = 9_000;
const UPSTREAM_PORT: u16 = 9_001;

/// Returns the server's loopback address with the port `port`.
fn loopback(v6: bool, port: u16) -> String {
    format!("{}:{port}", if v6 { "[::1]" } else { "127.0.0.1" })
}

/// After a test, the iperf3 server opens its listening socket again. Until then, it refuses a client, or
/// resets the client's connection.
fn is_between_tests(error: &str) -> bool {
    error.contains("busy running a test")
        || error.starts_with("unable to connect to server")
        || error.starts_with("unable to receive control message")
}

/// iperf3 receives, sends, and does both at the same time, over one connection and over ten connections.
fn run_iperf3(name: &str, bytes: &str) {
    if !can_run() || !has("iperf3") {
        return;
    }
    for (v6, mode) in [(false, "transparent"), (true, "hidden")] {
        let mut scene = Scene::new(&format!("{name}-{mode}"), v6);
        let address = scene.address().to_string();
        for (address, port) in [(&address[..], PORT), (if v6 { "::1" } else { "127.0.0.1" }, UPSTREAM_PORT)] {
            let mut server = Command::new("iperf3");
            server
                .args(["-s", "-B", address, "-p", &port.to_string()])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let server = start(&scene.server, &mut server);
            scene.keep(server);
        }
        let listening = || {
            let said = inside(&scene.server, "ss", &["-ltnH"]).stdout;
            (String::from_utf8_lossy(&said).lines().count() == 2).then_some(())
        };
        wait_for("iperf3 listens", listening);
        let service = scene.accelerate(PORT, &loopback(v6, UPSTREAM_PORT), mode);
        let mut refused = 0;
        for options in [&["-R"][..], &["--bidir"], &["-P", "10"], &["-P", "10", "-R"]] {
            let port = PORT.to_string();
            let words = [&["-c", &address, "-p", &port, "-J", "-n", bytes], options].concat();
            let document = wait_for("iperf3 runs", || {
                let said = inside(&scene.client, "iperf3", &words);
                let document: Value = serde_json::from_slice(&said.stdout).expect("JSON");
                let between = document["error"].as_str().is_some_and(is_between_tests);
                refused += u64::from(between);
                (!between).then_some(document)
            });
            // iperf3 may exit with 0 even after an error.
            assert_eq!(document["error"], Value::Null, "{mode} {options:?}");
            let rate = &document["end"]["sum_received"]["bits_per_second"];
            println!("{mode} {options:?}: {:.2} Gbit/s", rate.as_f64().expect("a number") * 1e-9);
        }
        let accepted = || scene.status(&service.keeper)?["report"]["accepted"].as_u64();
        // Each run has one control connection. A refused run also has one, unless the server was not
        // listening.
        let connections: u64 = [1, 2, 10, 10].iter().map(|count| count + 1).sum();
        let all = connections..=connections + refused;
        wait_for("all connections are counted", || all.contains(&accepted()?).then_some(()));
    }
}

#[test]
fn iperf3_runs_in_all_directions() {
    run_iperf3("accelerate-iperf3", "10M");
}

#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime long_iperf3 -- --ignored --nocapture"]
fn long_iperf3_runs() {
    run_iperf3("accelerate-long-iperf3", "2G");
}

/// Opens `count` connections at the same time, and downloads `len` bytes over each of them.
fn at_once(name: &str, v6: bool, count: usize, len: u64) {
    let scene = Scene::new(name, v6);
    let listen = SocketAddr::new(scene.address(), PORT);
    let upstream = loopback(v6, UPSTREAM_PORT);
    let _servers = [Server::new(&scene.server, &listen.to_string()), Server::new(&scene.server, &upstream)];
    let service = scene.accelerate(PORT, &upstream, "hidden");
    let begun = now();
    // All connections are open before the first one requests its bytes.
    let open: Vec<_> = (0..count)
        .map(|_| peers::connect(&scene.client, listen, Duration::from_secs(5)).expect("a connection"))
        .collect();
    thread::scope(|scope| {
        for stream in open {
            scope.spawn(|| peers::download(stream, len, Duration::ZERO).expect("a download"));
        }
    });
    println!("{count} connections at once, {len} bytes each: {:.2} s", begun.elapsed().as_secs_f64());
    let accepted = || scene.status(&service.keeper)?["report"]["accepted"].as_u64();
    wait_for("all are ours", || (accepted() == Some(count as u64)).then_some(()));
}

#[test]
fn many_connections_at_once() {
    if can_run() {
        at_once("accelerate-many", true, 200, 20_000);
    }
}

#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime a_thousand -- --ignored --nocapture"]
fn a_thousand_connections_at_once() {
    if can_run() {
        at_once("accelerate-thousand-4", false, 1_000, 1_000_000);
        at_once("accelerate-thousand-6", true, 1_000, 1_000_000);
    }
}

/// curl downloads files from one byte to 1 GB from nginx, over both IP versions and in both modes that tell
/// nginx the client's address.
#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime files_of_all_sizes -- --ignored --nocapture"]
fn files_of_all_sizes() {
    if !can_run() || !has_web() {
        return;
    }
    for (v6, mode) in [(false, "proxy-v2"), (true, "transparent")] {
        let mut scene = Scene::new(&format!("accelerate-files-{mode}"), v6);
        scene.start_nginx();
        let upstream = if mode == "proxy-v2" { super::UPSTREAM.to_owned() } else { scene.loopback() };
        let _service = scene.accelerate(80, &upstream, mode);
        let file = fs::read(scene.folder.join("file")).expect("a file");
        for len in [1, 1_000, 65_536, 1_000_000, 30_000_000, 1_000_000_000] {
            let name = format!("file-{len}");
            let bytes: Vec<u8> = file.iter().copied().cycle().take(len).collect();
            fs::write(scene.folder.join(&name), &bytes).expect("room");
            let to = scene.folder.join("received");
            let to = to.to_str().expect("UTF-8");
            let begun = now();
            let said = inside(&scene.client, "curl", &["-sS", "-o", to, &scene.url(&name)]);
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            println!("{mode} {len} bytes: {:.2} s", begun.elapsed().as_secs_f64());
            assert!(fs::read(to).expect("a file") == bytes, "{mode}, {len} bytes");
            fs::remove_file(scene.folder.join(&name)).expect("a file");
        }
        assert_eq!(file.len() as u64, FILE);
    }
}
