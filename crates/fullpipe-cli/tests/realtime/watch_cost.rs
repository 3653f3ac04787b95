//! Measures the cost of `fullpipe diagnose --watch`, which is the CPU time of the watching process. There are
//! 1000 connections over the loopback device, of which none, one hundred or all are active.
//!
//! ```text
//! cargo test --release -p fullpipe-cli --test realtime watch_cost:: -- --ignored --nocapture
//! ```
//!
//! `FULLPIPE_BINARY` is the path of another build of fullpipe. The other build is measured in the same way,
//! alternating with this build.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Number of open connections to watch.
const CONNECTIONS: usize = 1_000;
/// Block that each active connection writes ten times per second, which amounts to 320 kbit/s.
const WRITE: [u8; 4_000] = [7; 4_000];
const EVERY: Duration = Duration::from_millis(100);
/// Duration of the phase before the measurement, in which each connection is sampled and classified as idle
/// or active, and duration of the measurement.
const SETTLES: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);
/// Number of clock ticks per second in `/proc/PID/stat` (`USER_HZ`).
const TICKS_A_SECOND: f64 = 100.0;

#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn pause(time: Duration) {
    thread::sleep(time);
}

/// Returns the CPU time of a process in seconds: the exact total, and the times in kernel mode and in user
/// mode from clock ticks.
fn spent(process: &Child) -> Option<[f64; 3]> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", process.id())).ok();
    let all = read("schedstat")?.split_whitespace().next()?.parse::<f64>().ok()? / 1e9;
    // The fields after the process name, which is in parentheses, start with the state (field 3 in proc(5)).
    // The CPU times in kernel mode and user mode are fields 15 and 14.
    let stat = read("stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / TICKS_A_SECOND);
    Some([all, ticks(12)?, ticks(11)?])
}

#[test]
#[ignore = "a figure, not a fact: it takes a minute"]
fn a_thousand_connections_at_ten_samples_a_second() {
    let binary = std::env::var("FULLPIPE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_fullpipe").into());
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut ends: Vec<(TcpStream, TcpStream)> = (0..CONNECTIONS)
        .map(|_| (TcpStream::connect(address).expect("a connection"), listener.accept().expect("one").0))
        .collect();
    let moving = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&moving);
    thread::spawn(move || {
        let mut read = WRITE;
        loop {
            for (near, far) in ends.iter_mut().take(asked.load(Ordering::Relaxed)) {
                near.write_all(&WRITE).and_then(|()| far.read_exact(&mut read)).expect("loopback carries");
            }
            pause(EVERY);
        }
    });
    for move_now in [0, CONNECTIONS / 10, CONNECTIONS] {
        moving.store(move_now, Ordering::Relaxed);
        let mut watch = Command::new(&binary)
            .args(["diagnose", "--watch", "--dst", &address.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        pause(SETTLES);
        let before = spent(&watch).expect("/proc tells");
        pause(MEASURED);
        let after = spent(&watch).expect("it still watches");
        watch.kill().and_then(|()| watch.wait()).expect("it ends");
        let share = |of: usize| 100.0 * (after[of] - before[of]) / MEASURED.as_secs_f64();
        println!(
            "{move_now:>4} of {CONNECTIONS} move: {:.2} % of a core ({:.1} % kernel, {:.1} % own)",
            share(0),
            share(1),
            share(2)
        );
        assert!(share(0) > 0.0, "it looked");
    }
}
