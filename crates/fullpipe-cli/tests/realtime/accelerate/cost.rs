//! Measures the CPU time of the worker for many connections, and the packets that this host loses.
//! BENCHMARKS.md contains the results.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::bad_path::FarHost;
use super::host::Host;
use super::peers;
use super::scene::{inside, now, sleep};
use super::usage::{cpu, cpu_of_host, load};

const SEGMENT: f64 = 1_448.0;

/// Downloads over `connections` connections for a time of `lasting`, after the warm-up `warm_up`. Returns the
/// rate in bit/s, and the values that `measure` returned at the start and at the end.
fn downloads<T>(
    host: &Host,
    connections: usize,
    [warm_up, lasting]: [Duration; 2],
    measure: impl Fn() -> T,
) -> (f64, [T; 2]) {
    let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..connections {
            let mut stream = peers::connect(&host.scene.client, host.listen, Duration::from_secs(10))
                .expect("a connection");
            stream.write_all(b"d").expect("room");
            let (received, stop) = (&received, &stop);
            scope.spawn(move || {
                let mut room = vec![0; 1 << 16];
                while !stop.load(Relaxed) {
                    received.fetch_add(stream.read(&mut room).expect("data") as u64, Relaxed);
                }
            });
        }
        sleep(warm_up);
        let (before, begun, first) = (received.load(Relaxed), now(), measure());
        sleep(lasting);
        let (after, seconds, last) = (received.load(Relaxed), begun.elapsed().as_secs_f64(), measure());
        stop.store(true, Relaxed);
        ((after - before) as f64 * 8.0 / seconds, [first, last])
    })
}

/// 50 connections with CUBIC use a device whose shaper limits it to 1 Gbit/s, and lose less than 0.1 % of their packets
/// in its queue, whether the speed is configured or read from the shaper.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-cli --test realtime fifty_cubic -- --ignored --nocapture"]
fn fifty_cubic_connections_lose_little() {
    let Some(host) = Host::new("accelerate-tbf", false) else { return };
    let tbf = "qdisc add dev eth0 root tbf rate 1gbit burst 128kb limit 1mb";
    assert!(inside(&host.scene.server, "tc", &tbf.split(' ').collect::<Vec<_>>()).status.success());
    for speed in ["speed = \"1gbit\"", ""] {
        let service = host.accelerate_with(speed, "cc = \"cubic\"");
        let drops = || {
            sleep(Duration::from_millis(1_100));
            host.scene.status(&service.keeper).expect("a service")["drops"]["queues"]
                .as_u64()
                .expect("a number")
        };
        let lasting = [Duration::from_secs(2), Duration::from_secs(8)];
        let (rate, [first, last]) = downloads(&host, 50, lasting, drops);
        // The status is up to a second old, so it is read at both ends of a period of 9.1 s.
        let packets = rate * 9.1 / 8.0 / SEGMENT;
        let share = (last - first) as f64 / packets;
        println!(
            "50 CUBIC connections into 1 Gbit/s, {}: {:.0} Mbit/s, {} packets dropped, {:.3} %; load {}",
            if speed.is_empty() { "the speed of the tbf" } else { speed },
            rate * 1e-6,
            last - first,
            100.0 * share,
            load()
        );
        assert!(share < 0.001 && rate > 0.5e9, "{share}, {rate} bit/s");
    }
}

/// 200 connections share 1 Gbit/s over a path with an RTT of 50 ms, each paced by its own BBR.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-cli --test realtime two_hundred_paced -- --ignored --nocapture"]
fn two_hundred_paced_connections() {
    let path = "rate = \"1gbit\"\nrtt = \"50ms\"\nqueue = \"1bdp\"";
    let Some(far) = FarHost::new("accelerate-paced", path) else { return };
    let service = far.host.accelerate();
    let measure = || (cpu(service.worker), cpu_of_host());
    let lasting = [Duration::from_secs(6), Duration::from_secs(10)];
    let (rate, [first, last]) = downloads(&far.host, 200, lasting, measure);
    let [worker, host] = [last.0 - first.0, last.1 - first.1].map(|seconds| seconds / 10.0);
    let per_gigabit = worker / (rate * 1e-9);
    println!(
        "200 connections at 50 ms: {:.0} Mbit/s, worker {worker:.2} of a core, {per_gigabit:.2} per Gbit/s; the \
         host with path, server and clients {host:.2}; load {}",
        rate * 1e-6,
        load()
    );
    assert!(per_gigabit <= 0.7, "{per_gigabit} of a core per Gbit/s");
}

/// Opens short connections on `threads` threads, one after the other on each thread: connect, request,
/// response, end.
fn short(host: &Host, threads: usize) {
    let service = host.accelerate();
    let Host { scene, listen, .. } = host;
    let (count, begun, busy) = (AtomicU64::new(0), now(), cpu(service.worker));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while begun.elapsed() < Duration::from_secs(6) {
                    let stream = peers::connect(&scene.client, *listen, Duration::from_secs(5));
                    peers::download(stream.expect("a connection"), 1_000, Duration::ZERO).expect("an answer");
                    count.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let (count, seconds) = (count.into_inner() as f64, begun.elapsed().as_secs_f64());
    let worker = cpu(service.worker) - busy;
    sleep(Duration::from_millis(1_100));
    let status = scene.status(&service.keeper).expect("a service");
    let packets = |name: &str| status["report"][name].as_f64().expect("a number") / count;
    println!(
        "{:.0} connections a second, {:.0} per core of the worker ({:.0} % of a core); {:.1} packets in and \
         {:.1} out for each; load {}",
        count / seconds,
        count / worker,
        100.0 * worker / seconds,
        packets("packets_in"),
        packets("packets_out"),
        load()
    );
    assert!(worker > 0.0 && count > 0.0);
}

/// The clients are in a namespace of the same kernel, so most of their TCP processing happens within the
/// worker's writes.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-cli --test realtime short_connections -- --ignored --nocapture"]
fn short_connections() {
    if let Some(host) = Host::new("accelerate-short", false) {
        short(&host, 4);
    }
}

/// As on a real host, a path separates the worker from the clients, so a write only adds a packet to the
/// queue of a device.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-cli --test realtime short_connections -- --ignored --nocapture"]
fn short_connections_over_a_path() {
    let path = "rate = \"1gbit\"\nrtt = \"2ms\"\nqueue = \"10bdp\"";
    if let Some(far) = FarHost::new("accelerate-short-path", path) {
        short(&far.host, 32);
    }
}
