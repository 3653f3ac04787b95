//! Measures the rate of one bulk connection per core of the worker. BENCHMARKS.md contains the results.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use super::peers::{self, Server};
use super::scene::{Scene, can_run, now};
use super::usage::{cpu, cpu_of_host};

const PORT: u16 = 9_000;
const UPSTREAM: &str = "127.0.0.1:9001";
const BYTES: u64 = 4 << 30;
/// Downloads `BYTES` bytes, and returns the duration in seconds.
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

/// Downloads 4 GiB from the kernel, with BBR and with CUBIC, and from the service; prints the rates.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-cli --test realtime bulk_rate -- --ignored --nocapture"]
fn bulk_rate() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-speed", false);
    let listen = SocketAddr::new(scene.address(), PORT);
    let addresses = [listen.to_string(), UPSTREAM.to_owned()];
    let [kernel, _server] = addresses.map(|address| Server::new(&scene.server, &address));
    let gigabits = BYTES as f64 * 8e-9;
    let gigabytes = BYTES as f64 * 1e-9;
    for cc in ["bbr", "cubic"] {
        if let Err(error) = kernel.use_congestion_control(cc) {
            println!("the kernel has no {cc}: {error}");
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
