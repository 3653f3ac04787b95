//! Tests of window growth, idle decay and pacing over a whole connection.

use super::pair::{Fate, Pair, Side};
use super::*;

fn bulk(client: Config, server: Config, bytes: u64, until: u64) -> Pair {
    let mut pair = Pair::new(client, server);
    pair.client.open();
    pair.write(Side::Client, bytes);
    pair.run(until);
    pair
}

/// Slow start doubles the window each round trip, starting from ten segments (SS-1, G-4).
#[test]
fn ss_1_doubling() {
    for cc in [Algorithm::Reno, Algorithm::Cubic] {
        let pair = bulk(config(cc), config(cc), 10_000 * MSS, 1000);
        assert_eq!(pair.segments_per_round()[..7], [10, 20, 40, 80, 160, 320, 640], "{cc}");
    }
}

/// In BBR's Startup, Linux sends 10, 20, 34, 62, 125, 247 and 502 segments per round (SS-1). Pacing spreads
/// the segments of a round, so rounds do not begin at multiples of the RTT. The test therefore requires only
/// approximate doubling.
#[test]
fn ss_1_bbr() {
    let pair = bulk(config(Algorithm::Bbr1), config(Algorithm::Bbr1), 10_000 * MSS, 900);
    let rounds = pair.segments_per_round();
    let linux = [10.0, 20.0, 34.0, 62.0, 125.0, 247.0, 502.0];
    for (ours, theirs) in rounds.iter().zip(linux) {
        let ratio = *ours as f64 / theirs;
        assert!((0.7..=1.45).contains(&ratio), "{rounds:?}");
    }
}

/// A full window of ten segments doubles the window to twenty; five segments leave it at ten (SS-4).
#[test]
fn ss_4_an_unused_window_does_not_grow() {
    for (segments, window) in [(10, 20), (5, 10), (6, 12)] {
        let mut script = Script::client(config(Algorithm::Reno));
        script.write(segments * MSS);
        for i in 1..=segments {
            script.ack(100, i * MSS, &[]);
        }
        let grown = script.windows().0;
        assert!(grown <= window && grown >= window.min(10), "{segments} sent: {grown}");
        if segments != 6 {
            assert_eq!(grown, window);
        }
    }
}

/// After an idle period longer than the RTO, the window is halved once per RTO, down to ten segments (RFC
/// 5681 section 4.1; SS-5). This test never reduces `ssthresh`. The controller's tests check that `ssthresh`
/// remembers three quarters of the window.
#[test]
fn ss_5_idle_decay() {
    let mut script = Script::warm(Algorithm::Reno, 40);
    let (at, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(MSS);
    script.ack(at + 100, una + MSS, &[]);
    script.run(at + 2100);
    script.write(1000 * MSS);
    assert_eq!(script.data_segments(), 11, "ten, and the one before");
    assert_eq!(script.windows().0, 10);
}

/// Minshall's variant of the Nagle algorithm allows one short segment in flight at a time; a full-sized
/// segment in flight does not delay a short segment (NAG-1, NAG-3).
#[test]
fn nag_3_minshall() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(100);
    script.write(100);
    script.write(100);
    script.sent(&["0 ms data 0..100"]);
    script.ack(100, 100, &[]);
    script.sent(&["100 ms data 100..300"]);
    script.ack(200, 300, &[]);
    script.write(MSS);
    script.write(100);
    let (a, b) = (300 + MSS, 400 + MSS);
    script.sent(&[&format!("200 ms data 300..{a}"), &format!("200 ms data {a}..{b}")]);
}

/// The last segment of the stream is not delayed (NAG-5).
#[test]
fn nag_5_the_last_segment() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(100);
    script.conn.write(100);
    script.conn.close();
    script.flush();
    script.sent(&["0 ms data 0..100", "0 ms data 100..200 fin"]);
}

/// If the receiver always reads, autotuning does not limit slow start before the buffer reaches its maximum
/// (DRS-4).
#[test]
fn drs_4_right_sizing_keeps_ahead() {
    let auto = Config { rcvbuf: Buffer::Auto { max: Bytes::from_mib(32) }, ..config(Algorithm::Reno) };
    let pair = bulk(config(Algorithm::Reno), auto, 12_000 * MSS, 1100);
    assert_eq!(pair.client.limit_times(pair.now)[crate::SendLimit::Rwnd as usize], Duration::ZERO);
    let rounds = pair.segments_per_round();
    assert!(rounds[7] >= 1270, "{rounds:?}");
}

/// An application that reads 20 KB/s limits the connection to 20 KB/s on any path (DRS-6).
#[test]
fn drs_6_a_slow_reader_sets_the_rate() {
    let auto = Config { rcvbuf: Buffer::Auto { max: Bytes::from_kib(256) }, ..config(Algorithm::Cubic) };
    let mut pair = Pair::new(config(Algorithm::Cubic), auto);
    pair.server_reads = false;
    pair.client.open();
    pair.write(Side::Client, 100_000 * MSS);
    let mut after_ten = 0;
    for tick in 1..=600 {
        pair.run(100 * tick);
        let now = pair.now;
        pair.server.read(now, 2000);
        if tick == 100 {
            after_ten = pair.client.acknowledged();
        }
    }
    let rate = (pair.client.acknowledged() - after_ten) / 50;
    assert!((19_000..=21_000).contains(&rate), "{rate} B/s");
}

/// After ten idle seconds, at most one send quantum leaves at once, so there is no burst (PC-3).
#[test]
fn pc_3_idle_time_is_no_credit() {
    let mut script = Script::client(Config { fair_queue: true, ..config(Algorithm::Reno) });
    script.write(30 * MSS);
    for i in 1..=10 {
        script.ack(100, i * MSS, &[]);
    }
    script.run(200);
    for i in 11..=30 {
        script.ack(200, i * MSS, &[]);
    }
    script.run(10_000);
    script.clear();
    script.write(100 * MSS);
    let quantum = script.conn.sender.release().quantum.div_ceil(MSS);
    assert!(script.data_segments() <= 2 * quantum, "more than a quantum and its first successor");
}

/// Retransmissions are paced like new data (PC-4).
#[test]
fn pc_4_retransmissions_are_paced() {
    let mut pair = Pair::on(
        Config { fair_queue: true, ..config(Algorithm::Reno) },
        config(Algorithm::Reno),
        |side, _, ordinal| {
            if side == Side::Client && (200..260).contains(&ordinal) { Fate::Lost } else { Fate::Arrives }
        },
    );
    pair.client.open();
    pair.write(Side::Client, 1500 * MSS);
    pair.run(10_000);
    assert_eq!(pair.server.received(), 1500 * MSS);
    let mut highest = 0;
    let mut per_ms = std::collections::BTreeMap::new();
    for (at, offset) in pair.data(Side::Client) {
        if offset < highest {
            *per_ms.entry(at).or_insert(0) += 1;
        }
        highest = highest.max(offset);
    }
    let most = per_ms.values().max().expect("something was resent");
    assert!(*most <= 8, "{most} retransmissions within a millisecond");
}

/// PSH is set in the last queued segment (RFC 9293 section 3.9.1.2; MUST-61). Linux also sets PSH after half
/// of the largest window.
#[test]
fn push_ends_what_is_queued() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(20 * MSS);
    let pushed = |script: &Script| {
        let flags = script.segments.iter().filter(|(_, segment)| segment.len > 0);
        flags.map(|(_, segment)| segment.flags.has(Flags::PSH)).collect::<Vec<_>>()
    };
    assert_eq!(pushed(&script), [false; 10], "more is queued, and less than half of the window is sent");
    script.clear();
    script.ack(100, 10 * MSS, &[]);
    assert_eq!(pushed(&script), [[false; 9].as_slice(), &[true]].concat(), "the last of it");
    script.clear();
    script.write(400 * MSS);
    script.ack(200, 20 * MSS, &[]);
    let count = pushed(&script).iter().filter(|push| **push).count();
    assert!(count <= 2, "one for half of a window: {:?}", pushed(&script));
}
