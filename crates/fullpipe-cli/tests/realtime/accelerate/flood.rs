//! Tests of SYN floods with forged source addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use std::{env, io};

use fullpipe::units::draw;

use super::forged::{Forger, syn};
use super::host::Host;
use super::peers;
use super::scene::{Scene, ip, now, sleep};
use super::usage::{cpu, kernel_memory, load, resident};

/// Maximum growth of the memory of both processes during a flood.
const FLAT: u64 = 16 << 20;

/// Sends SYNs with unused source addresses of 198.18.0.0/15 until `stop` is set. Returns their number.
fn flood(to: SocketAddr, per_second: f64, stop: &AtomicBool) -> io::Result<u64> {
    let forger = Forger::new(false)?;
    let begun = now();
    let mut sent = 0;
    while !stop.load(Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * per_second) as u64;
        while sent < due {
            let chance = draw(1, 0, sent);
            let host = Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() | (chance as u32 >> 15));
            let from = SocketAddr::from((host, 1_024 + (chance >> 48) as u16 % 60_000));
            forger.send(syn(from, to, chance as u32).as_bytes(), to)?;
            sent += 1;
        }
        sleep(Duration::from_micros(500));
    }
    Ok(sent)
}

/// Makes requests as a client, one after the other, for a time of `lasting`; returns the median and the
/// maximum of their times in seconds, and their number.
fn requests(scene: &Scene, to: SocketAddr, lasting: Duration) -> (f64, f64, u64) {
    let begun = now();
    let mut times = Vec::new();
    while begun.elapsed() < lasting {
        let request = now();
        let stream = peers::connect(&scene.client, to, Duration::from_secs(5)).expect("a connection");
        peers::download(stream, 20_000, Duration::ZERO).expect("an answer");
        times.push(request.elapsed().as_secs_f64());
        sleep(Duration::from_millis(5));
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], *times.last().expect("a request"), times.len() as u64)
}

/// During a flood of twice `syn_rate`, the memory of the service does not grow, no connection of the flood
/// reaches the server, and a client is served as fast as without the flood.
fn survive(name: &str, syn_rate: u64, lasting: Duration) {
    let Some(host) = Host::new(name, false) else { return };
    let (scene, listen) = (&host.scene, host.listen);
    // The client is the gateway to the forged addresses, so the kernel sends no neighbour requests for them.
    ip(&scene.server, &format!("route add default via {}", scene.client_address()));
    let service = host.accelerate_with(&format!("syn_rate = {syn_rate}"), "");
    let processes = [service.keeper.0.id().into(), service.worker];
    let memory = || processes.map(resident).iter().sum::<u64>();
    let (usual, _, mut clients) = requests(scene, listen, lasting / 4);
    let (before, kernel_before) = (memory(), kernel_memory());
    let (most, most_kernel) = (AtomicU64::new(before), AtomicU64::new(kernel_before));
    let stop = AtomicBool::new(false);
    let (flooded, longest, sent, seconds, busy) = thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            scene.client.run(|| Ok(flood(listen, 2.0 * syn_rate as f64, &stop).expect("it floods")))
        });
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                most.fetch_max(memory(), Relaxed);
                most_kernel.fetch_max(kernel_memory(), Relaxed);
                sleep(Duration::from_millis(50));
            }
        });
        let (begun, busy) = (now(), cpu(service.worker));
        let (flooded, longest, served) = requests(scene, listen, lasting);
        clients += served;
        stop.store(true, Relaxed);
        let sent = flooding.join().expect("no panic").expect("a namespace");
        let seconds = begun.elapsed().as_secs_f64();
        (flooded, longest, sent, seconds, (cpu(service.worker) - busy) / seconds)
    });
    let grown = most.into_inner() - before;
    let kernel = most_kernel.into_inner() - kernel_before;
    sleep(Duration::from_millis(1_100));
    let status = scene.status(&service.keeper).expect("a service");
    let report = &status["report"];
    let [to_us, to_kernel] = [&host.server, &host.fallback].map(|server| server.seen.accepted.load(Relaxed));
    println!(
        "{:.0} SYNs/s for {seconds:.1} s (syn_rate {syn_rate}); a request takes {:.2} ms, before {:.2} ms, at \
         most {:.0} ms; memory of both processes {:.1} MiB larger, of the kernel (with other programs) \
         {:.1} MiB; worker {:.0} % of a core, {} packets not read; {clients} clients: {to_us} connections at the \
         server, {to_kernel} at the kernel's listener; load {}",
        sent as f64 / seconds,
        1e3 * flooded,
        1e3 * usual,
        1e3 * longest,
        grown as f64 / 1_048_576.0,
        kernel as f64 / 1_048_576.0,
        100.0 * busy,
        status["drops"]["unread"],
        load()
    );
    assert!(
        sent as f64 >= 1.5 * syn_rate as f64 * seconds,
        "{sent} SYNs in {seconds} s: the flood is too slow"
    );
    assert!(report["syns"].as_u64().expect("a number") >= syn_rate, "{status}");
    assert!(grown <= FLAT, "{grown} bytes");
    // Each client opens one connection, to the service or to the kernel's listener, and there is one health
    // check per second.
    let checks = (seconds * 1.25 + lasting.as_secs_f64()) as u64 + 5;
    assert!((clients..=clients + checks).contains(&(to_us + to_kernel)), "{clients}: {to_us} + {to_kernel}");
    assert!(report["accepted"].as_u64().expect("a number") <= clients, "{status}");
    // Times below a few milliseconds depend only on the scheduler.
    assert!(flooded <= 2.0 * usual + 0.005, "{flooded} s, and {usual} s without the flood");
}

#[test]
fn a_flood_of_syns_costs_little() {
    survive("accelerate-flood", 2_000, Duration::from_secs(1));
}

/// This flood uses the default `syn_rate`; `FULLPIPE_SYN_RATE` sets another one.
#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime largest_flood -- --ignored --nocapture"]
fn the_largest_flood_costs_little() {
    let syn_rate = env::var("FULLPIPE_SYN_RATE").map_or(50_000, |text| text.parse().expect("a number"));
    survive("accelerate-largest-flood", syn_rate, Duration::from_secs(10));
}
