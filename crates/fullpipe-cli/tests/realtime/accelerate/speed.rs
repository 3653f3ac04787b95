//! Measures the rate of one bulk connection per core of the worker. BENCHMARKS.md contains the results.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use super::host::Host;
use super::peers;
use super::scene::{Scene, now};
use super::usage::{cpu, cpu_of_host};

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
    let Some(host) = Host::new("accelerate-speed", false) else { return };
    let (scene, listen) = (&host.scene, host.listen);
    let gigabits = BYTES as f64 * 8e-9;
    let gigabytes = BYTES as f64 * 1e-9;
    for cc in ["bbr", "cubic"] {
        if let Err(error) = host.fallback.use_congestion_control(cc) {
            println!("the kernel has no {cc}: {error}");
            continue;
        }
        let busy = cpu_of_host();
        let seconds = download(scene, listen);
        let busy = cpu_of_host() - busy;
        println!("kernel {cc}: {:.1} Gbit/s, host {:.2} CPU s per GB", gigabits / seconds, busy / gigabytes);
    }
    let service = host.accelerate();
    let (worker, busy) = (cpu(service.worker), cpu_of_host());
    let seconds = download(scene, listen);
    let (worker, busy) = (cpu(service.worker) - worker, cpu_of_host() - busy);
    println!(
        "fullpipe: {:.1} Gbit/s, worker {:.1} Gbit/s per core ({:.0} % of a core), host {:.2} CPU s per GB",
        gigabits / seconds,
        gigabits / worker,
        100.0 * worker / seconds,
        busy / gigabytes
    );
    assert!(worker > 0.0 && seconds > 0.0);
}
