//! Speed of one bulk connection, per core of the worker. BENCHMARKS.md has the figures.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::peers::{self, Server};
use super::scene::{Scene, can_run};

const PORT: u16 = 9_000;
const UPSTREAM: &str = "127.0.0.1:9001";
const BYTES: u64 = 4 << 30;
/// Clock ticks per second in `/proc/PID/stat` (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Returns the CPU time that a process has used, in seconds.
fn cpu(process: u64) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let (_, fields) = text.rsplit_once(") ").expect("a name");
    let fields: Vec<f64> = fields.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
    // User and system time are the fields 14 and 15 of the line.
    (fields[11] + fields[12]) / TICKS
}

/// Returns the CPU time that the whole host has used, in seconds.
fn cpu_of_host() -> f64 {
    let text = fs::read_to_string("/proc/stat").expect("a host");
    let fields: Vec<f64> = text.lines().next().map_or_else(Vec::new, |line| {
        line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or_default()).collect()
    });
    // User, nice, system, interrupts and software interrupts; not idle and not waiting.
    [0, 1, 2, 5, 6].iter().map(|field| fields[*field]).sum::<f64>() / TICKS
}

#[expect(clippy::disallowed_methods, reason = "the test measures a rate")]
fn now() -> Instant {
    Instant::now()
}

/// Downloads `BYTES`, and returns the duration in seconds.
fn download(scene: &Scene, to: SocketAddr) -> f64 {
    let mut stream = peers::connect(&scene.client, to, Duration::from_secs(1)).expect("a connection");
    stream.write_all(b"d").expect("room");
    let begun = now();
    let mut room = vec![0; 1 << 18];
    let mut left = BYTES;
    while left > 0 {
        left = left.saturating_sub(stream.read(&mut room).expect("data") as u64);
    }
    begun.elapsed().as_secs_f64()
}

/// Downloads 4 GiB from the kernel, with BBR and with CUBIC, and from the service, and prints the rates.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-cli --test realtime bulk_rate -- --ignored --nocapture"]
fn bulk_rate() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-speed", false);
    let listen = SocketAddr::new(scene.address(), PORT);
    let _servers = [Server::new(&scene.server, &listen.to_string()), Server::new(&scene.server, UPSTREAM)];
    let gigabits = BYTES as f64 * 8e-9;
    let gigabytes = BYTES as f64 * 1e-9;
    for cc in ["bbr", "cubic"] {
        let set = || Ok(fs::write("/proc/sys/net/ipv4/tcp_congestion_control", cc));
        if scene.server.run(set).expect("a namespace").is_err() {
            println!("the kernel does not permit {cc} in a namespace (tcp_allowed_congestion_control)");
            continue;
        }
        let host = cpu_of_host();
        let seconds = download(&scene, listen);
        let host = cpu_of_host() - host;
        println!("kernel {cc}: {:.1} Gbit/s, host {:.2} CPU s per GB", gigabits / seconds, host / gigabytes);
    }
    let service = scene.accelerate(PORT, UPSTREAM, "hidden");
    let (worker, host) = (cpu(service.worker), cpu_of_host());
    let seconds = download(&scene, listen);
    let (worker, host) = (cpu(service.worker) - worker, cpu_of_host() - host);
    println!(
        "fullpipe: {:.1} Gbit/s, worker {:.1} Gbit/s per core ({:.0} % of a core), host {:.2} CPU s per GB",
        gigabits / seconds,
        gigabits / worker,
        100.0 * worker / seconds,
        host / gigabytes
    );
    assert!(worker > 0.0 && seconds > 0.0);
}
