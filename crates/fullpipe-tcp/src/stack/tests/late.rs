//! A sender whose driver wakes up late, because its thread waits for a CPU.
//!
//! The driver of the sender follows the order of the real-time loop: it reads the packets that have arrived, handles
//! timers, and sends. The receiver is never late.
//!
//! ```text
//!   server ─► bottleneck with a queue ─► client
//!     ▲ wakes up late                      │
//!     └─────────── waiting packets ◄───────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use fullpipe_units::{Bytes, Duration, Instant, Rate, draw};

use super::{config, packet, stack};
use crate::buffers::Buffer;
use crate::cc::Algorithm;
use crate::wire::Checksums;
use crate::{Bursts, Config, Tunables};

const RATE: Rate = Rate::from_bps(100_000_000);
const SIZE: usize = 8_000_000;
/// Number of packets that the real-time loop reads before it sends.
const READ_AT_ONCE: usize = 64;
/// Time that the loop takes to read and to handle a packet.
const READ_TIME: Duration = Duration::from_micros(3);

/// A download by surge over a path of 100 Mbit/s with a queue of one BDP.
#[derive(Clone, Copy, Debug)]
struct Download {
    rtt: Duration,
    /// Maximum delay of each wake-up of the sender.
    late: Duration,
    bursts: Bursts,
    /// Begin and end of a time during which the sender does not run.
    stall: Option<(Instant, Instant)>,
}

impl Download {
    /// Returns the time from the SYN to the last byte.
    fn run(self) -> Duration {
        let server = SocketAddr::from(([198, 18, 0, 1], 443));
        let client = SocketAddr::from(([198, 18, 0, 2], 40_000));
        let mut sender = stack(server.ip(), 1);
        let mut receiver = stack(client.ip(), 2);
        let tunables = Tunables { bursts: self.bursts, ..Tunables::LINUX };
        let sndbuf = Buffer::Auto { max: Bytes::from_mib(16) };
        let surge = Config { cc: Algorithm::Surge, tunables, sndbuf, ..config() };
        sender.listen(server, surge, 1).expect("a free address");
        let rcvbuf = Buffer::Auto { max: Bytes::from_mib(6) };
        let id = receiver.connect(Instant::ZERO, client, server, Config { rcvbuf, ..config() });
        let id = id.expect("a free port");

        let one_way = self.rtt / 2;
        let queue = (RATE * self.rtt).get();
        let mut now = Instant::ZERO;
        let mut number = 0;
        let mut to_server: BTreeMap<(Instant, u64), Vec<u8>> = BTreeMap::new();
        let mut to_client: BTreeMap<(Instant, u64), Vec<u8>> = BTreeMap::new();
        let mut waiting: VecDeque<Vec<u8>> = VecDeque::new();
        let mut link_free = Instant::ZERO;
        let (mut accepted, mut written, mut read) = (None, 0, 0);
        let data = vec![7; 1 << 16];
        let mut room = vec![0; 1 << 16];
        // The thread of the sender sleeps until an event occurs, and then for the time `late`.
        let (mut asleep_since, mut ready_at) = (Instant::ZERO, Instant::FAR_FUTURE);
        let mut late = Duration::ZERO;
        while read < SIZE {
            while let Some(packet) = packet(&mut receiver, now) {
                number += 1;
                to_server.insert((now + one_way, number), packet);
            }
            let first = |flying: &BTreeMap<(Instant, u64), _>| {
                flying.keys().next().map_or(Instant::FAR_FUTURE, |(arrival, _)| *arrival)
            };
            let due = if waiting.is_empty() { first(&to_server).min(sender.poll_timeout()) } else { now };
            ready_at = ready_at.min(due.max(asleep_since));
            let wake = if ready_at.is_never() { ready_at } else { ready_at + late };
            let stall = self.stall.filter(|(begin, end)| (*begin..*end).contains(&wake));
            let wake = stall.map_or(wake, |(_, end)| end);
            now = now.max(first(&to_client).min(receiver.poll_timeout()).min(wake));
            assert!(now < Instant::ZERO + Duration::from_secs(60), "stalled");

            while let Some(entry) = to_client.first_entry()
                && entry.key().0 <= now
            {
                receiver.handle_packet(now, &entry.remove(), Checksums::Skip);
            }
            receiver.handle_timeout(now);
            loop {
                let got = receiver.read(now, id, &mut room);
                read += got;
                if got == 0 {
                    break;
                }
            }
            while let Some(entry) = to_server.first_entry()
                && entry.key().0 <= now
            {
                waiting.push_back(entry.remove());
            }
            if now < wake {
                continue;
            }

            // A round of the sender's loop.
            (asleep_since, ready_at) = (now, Instant::FAR_FUTURE);
            late = Duration::from_nanos(draw(3, 1, number) % self.late.as_nanos().max(1));
            for packet in waiting.drain(..waiting.len().min(READ_AT_ONCE)) {
                sender.handle_packet(now, &packet, Checksums::Skip);
                now += READ_TIME;
            }
            sender.handle_timeout(now);
            accepted = accepted.or_else(|| sender.accept(server));
            if let Some(id) = accepted {
                while written < SIZE {
                    let taken = sender.write(id, &data[..(SIZE - written).min(data.len())]);
                    written += taken;
                    if taken == 0 {
                        break;
                    }
                }
            }
            while sender.poll_event().is_some() {}
            while let Some(packet) = packet(&mut sender, now) {
                number += 1;
                if (RATE * link_free.saturating_since(now)).get() > queue {
                    continue;
                }
                link_free = link_free.max(now) + RATE.time_for(Bytes::new(packet.len() as u64));
                to_client.insert((link_free + one_way, number), packet);
            }
        }
        now.saturating_since(Instant::ZERO)
    }
}

/// If each wake-up is up to 5 ms late and the sender makes up for half a transmission only, it sends at a fraction of its
/// rate, measures this fraction as the bandwidth, and becomes slower still. If it makes up for its delay, the
/// measurement is that of the path. A sender that is never late does not depend on the rule.
#[test]
fn a_sender_that_wakes_up_late_keeps_its_rate() {
    for (rtt, most) in [(200, 4.0), (50, 2.0)] {
        let seconds = |late, bursts| {
            let (rtt, late) = (Duration::from_millis(rtt), Duration::from_millis(late));
            Download { rtt, late, bursts, stall: None }.run().as_secs_f64()
        };
        assert_eq!(seconds(0, Bursts::REAL_TIME), seconds(0, Bursts::Linux), "{rtt} ms");
        for late in [5, 15] {
            let (real_time, linux) = (seconds(late, Bursts::REAL_TIME), seconds(late, Bursts::Linux));
            assert!(real_time < most && linux > 2.0 * most, "{rtt} ms: {real_time}, Linux {linux}");
        }
    }
}

/// Several ACKs wait for a sender that did not run for a few milliseconds. The first one has a delay like that of a queue,
/// and the time since the ACK before it looks like dispersion. If surge believed it, it would end Climb at a fraction of the
/// rate, and a download would take up to twice as long.
#[test]
fn a_stall_of_the_sender_does_not_look_like_a_queue() {
    let ms = Duration::from_millis;
    let run =
        |stall| Download { rtt: ms(200), late: ms(0), bursts: Bursts::REAL_TIME, stall }.run().as_secs_f64();
    let usual = run(None);
    for begin in (600..1_200).step_by(5) {
        let begin = Instant::ZERO + ms(begin);
        for length in [5, 7] {
            let stalled = run(Some((begin, begin + ms(length))));
            assert!(stalled < 1.08 * usual, "{begin}, {length} ms: {stalled} instead of {usual} s");
        }
    }
}
