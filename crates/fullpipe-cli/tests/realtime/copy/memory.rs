//! Memory of a copy whose producer offers twice as much as the path carries, beside a service that queues without a
//! bound.

use std::collections::VecDeque;
use std::fs;
use std::io::{PipeWriter, Write, pipe};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Ends;
use crate::process::emulated::allowed;

/// Bytes that the producer writes every two milliseconds: 600 Mbit/s.
const PART: usize = 150_000;
const EVERY: Duration = Duration::from_millis(2);
/// Rate of the link.
const LINK: &str = "300mbit";

/// Queue without a bound, and whether its producer has ended.
type Queue = (Mutex<(VecDeque<Vec<u8>>, bool)>, Condvar);

/// Writes parts at the producer's rate for `time`. While a write blocks, the producer offers nothing.
#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn produce(time: Duration, mut write: impl FnMut(&[u8])) {
    let part: Vec<u8> = (0..PART).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
    let (begin, mut next) = (Instant::now(), Instant::now());
    while begin.elapsed() < time {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // A producer that was scheduled late makes up for it, but not for the time in which it was blocked.
        next += EVERY;
        let writing = Instant::now();
        write(&part);
        next += writing.elapsed().saturating_sub(EVERY);
    }
}

/// Runs a copy of a pipe over an emulated path while `feed` writes to the pipe. Returns the report of the copy, its
/// notes, its largest resident memory in KiB, and the largest memory of its sockets in bytes.
fn over_a_path(test: &str, feed: impl FnOnce(PipeWriter) + Send) -> (Value, String, u64, u64) {
    let ends = Ends::new(test);
    let relay = ends.relay_on_path();
    let script = format!(
        "exec 3<&0; sleep 0.5; {program} copy - relay://198.18.0.2/feed --key {key} --peer {relay} --json --memory 64MiB \
         <&3 >{report} 2>{notes} & copy=$!; exec 3<&-
         while kill -0 $copy 2>/dev/null; do
             echo resident $(sed -n 's/VmHWM:[[:space:]]*\\([0-9]*\\) kB/\\1/p' /proc/$copy/status)
             echo sockets $(ss -tmHn | grep -o 'skmem:([^)]*' | sed 's/skmem:(r\\([0-9]*\\),.*,t\\([0-9]*\\),.*,w\\([0-9]*\\),.*/\\1 \\3/' |
                 tr ' ' '\\n' | awk '{{ sum += $1 }} END {{ print sum + 0 }}')
             sleep 0.25
         done",
        program = crate::PROGRAM,
        key = ends.path("client.key"),
        relay = ends.relay,
        report = ends.path("report"),
        notes = ends.path("notes"),
    );
    let (reader, writer) = pipe().expect("a pipe");
    let child = Command::new(crate::PROGRAM)
        .args(["emu", "--rate", LINK, "--rtt", "100ms", "--datapath", "offload"])
        .args(["--serve", &relay, "--", "sh", "-c", &script])
        .stdin(reader)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let output = thread::scope(|scope| {
        scope.spawn(|| feed(writer));
        child.wait_with_output().expect("it ends")
    });
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let most = |name: &str| {
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        values.max().unwrap_or_else(|| panic!("{name} was not measured: {text}"))
    };
    let report = fs::read_to_string(ends.path("report")).expect("a report");
    let notes = fs::read_to_string(ends.path("notes")).expect("notes");
    let report = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {notes}"));
    (report, notes, most("resident"), most("sockets"))
}

/// A service that reads faster than its link carries the data, and queues without a bound, is
/// finally killed for its memory. A copy blocks its producer instead.
#[test]
#[ignore = "minutes: cargo test --release -p fullpipe-cli --features copy --test realtime -- --ignored --nocapture offers_twice"]
fn a_producer_that_offers_twice_the_link_waits_half_the_time() {
    if !allowed() {
        return;
    }
    let time = Duration::from_secs(120);
    let (report, notes, resident, sockets) = over_a_path("copy-memory", |mut writer| {
        produce(time, |part| writer.write_all(part).expect("the copy reads"));
    });
    let number = |name: &str| report["pipe"][name].as_f64().expect("a number");
    let (blocked, offered, carried) = (number("blocked_s"), number("offered_bps"), number("carried_bps"));
    println!(
        "offered {:.0} Mbit/s, carried {:.0} Mbit/s, blocked {blocked:.1} s, {} MiB resident, {} MiB in sockets",
        offered / 1e6,
        carried / 1e6,
        resident >> 10,
        sockets >> 20
    );
    assert!(notes.contains("the producer waits"), "{notes}");
    // On a busy machine, the producer offers less than it should.
    let (share, expected) = (blocked / time.as_secs_f64(), 1.0 - carried / offered);
    assert!(offered > 1.3 * carried, "{report}");
    assert!(
        (share - expected).abs() < 0.06,
        "the producer waited for {share:.2} of the time, not {expected:.2}"
    );
    assert!(carried > 0.9 * 286e6, "{report}");
    // The bytes of the pipe are in a file in memory, which is not resident in the process.
    let held = report["pipe"]["most_held_bytes"].as_u64().expect("a number");
    let all = (resident << 10) + sockets + held;
    assert!(all <= (64 + 48) << 20, "{} MiB with the memory of the sockets", all >> 20);

    // The service without a bound is modelled by a queue between the same producer and the same
    // path.
    let time = Duration::from_secs(20);
    let queue: Arc<Queue> = Arc::default();
    let (carrying, mut most, mut produced) = (Arc::clone(&queue), 0, 0);
    let (naive, ..) = over_a_path("copy-memory-naive", |mut writer| {
        let sender = thread::spawn(move || {
            let (state, changed) = &*carrying;
            loop {
                let mut locked = state.lock().expect("no panic");
                while locked.0.is_empty() && !locked.1 {
                    locked = changed.wait(locked).expect("no panic");
                }
                let Some(part) = locked.0.pop_front() else { return };
                drop(locked);
                writer.write_all(&part).expect("the copy reads");
            }
        });
        let (state, changed) = &*queue;
        produce(time, |part| {
            let mut locked = state.lock().expect("no panic");
            locked.0.push_back(part.to_vec());
            most = most.max(locked.0.len() * PART);
            produced += PART;
            changed.notify_one();
        });
        {
            let mut locked = state.lock().expect("no panic");
            // The test need not wait until the queue has drained.
            locked.0.clear();
            locked.1 = true;
            changed.notify_one();
        }
        sender.join().expect("no panic");
    });
    // Data that is not in the queue was carried by the copy, or is in the 64 MiB that the copy may
    // keep.
    let seconds = time.as_secs_f64();
    let (growth, offered) = (most as f64 / seconds / 1e6, produced as f64 / seconds / 1e6);
    println!("the service without a bound: {offered:.1} MB/s offered, its queue grows by {growth:.1} MB/s");
    let carried = naive["pipe"]["carried_bps"].as_f64().expect("a number") / 8e6;
    assert!(growth > 0.8 * (offered - carried - (64 << 20) as f64 / seconds / 1e6), "{growth} MB/s, {naive}");
    assert!(growth > 10.0, "{growth} MB/s");
}
