//! Tests of loss detection and fast recovery, segment by segment.

use super::*;

/// Only the second of two segments arrives (RK-1, G-5). The first segment is retransmitted after a quarter of
/// the RTT, and again after the timeout.
#[test]
fn rk_1_reordering_window() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(2 * MSS);
    script.clear();
    script.ack(100, 0, &[(MSS, 2 * MSS)]);
    script.run(430);
    script.sent(&["125 ms data 0..1448", "425 ms data 0..1448"]);
}

/// If three segments above the hole were delivered and no reordering has been seen, the retransmission leaves
/// at once (RFC 8985; RK-2).
#[test]
fn rk_2_three_sacks() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(4 * MSS);
    script.clear();
    script.ack(100, 0, &[(MSS, 2 * MSS)]);
    script.ack(101, 0, &[(MSS, 3 * MSS)]);
    script.sent(&[]);
    script.ack(102, 0, &[(MSS, 4 * MSS)]);
    script.sent(&["102 ms data 0..1448"]);
}

/// On a path with an RTT of 100 ms where some segments arrive 20 ms late, the sender sends no needless
/// retransmission. Once RACK has seen the reordering of the first round, three later deliveries no longer
/// prove a loss (RFC 8985; RK-3).
#[test]
fn rk_3_reordering_once_seen() {
    let mut script = Script::client(config(Algorithm::Reno));
    let mut next = 0;
    for round in 0..10 {
        let at = 200 * round + 100;
        script.write(10 * MSS);
        script.clear();
        // The first segment of each flight arrives 20 ms late. In the first round, one segment overtakes it;
        // in later rounds, all other segments do.
        let overtaken_by = if round == 0 { 2 } else { 10 };
        for i in 2..=overtaken_by {
            script.ack(at, next, &[(next + MSS, next + i * MSS)]);
        }
        script.ack(at + 20, next + 10 * MSS, &[]);
        next += 10 * MSS;
        script.run(at + 100);
    }
    assert_eq!(script.conn.stats().retransmits, 0);
}

/// The delivery of later segments reveals a lost retransmission after one round trip, without a timeout (RFC
/// 8985; RK-5).
#[test]
fn rk_5_a_lost_retransmission() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(100 * MSS);
    script.clear();
    // The first of twenty segments is lost. SACKs arrive one millisecond apart.
    for i in 1..20 {
        script.ack(start + 99 + i, una, &[(una + MSS, una + (i + 1) * MSS)]);
    }
    let resent = |script: &Script| {
        let first = script.conn.sender.iss.plus(1).plus(una);
        script.segments.iter().filter(|(_, s)| s.seq == first).map(|(at, _)| *at - start).collect::<Vec<_>>()
    };
    assert_eq!(resent(&script), [102]);
    // New data was sent after the retransmission. The new data is SACKed, but the retransmission is lost.
    let limited = 2;
    script.ack(start + 205, una, &[(una + MSS, una + (20 + limited + 1) * MSS)]);
    assert_eq!(resent(&script), [102, 205]);
    assert_eq!(script.conn.stats().timeouts, 0);
}

/// Loses the first segment of a flight of twenty, and its retransmission. Returns the script after the SACK
/// that reveals the second loss, the start time in ms, and the stream offset of the lost segment.
fn lost_twice(tunables: Tunables) -> (Script, u64, u64) {
    let mut script = Script::client(Config { tunables, ..config(Algorithm::Reno) });
    script.write(10 * MSS);
    for i in 1..=10 {
        script.ack(RTT, i * MSS, &[]);
    }
    script.write(1000 * MSS);
    let (start, una) = (RTT, 10 * MSS);
    for i in 1..20 {
        script.ack(start + 99 + i, una, &[(una + MSS, una + (i + 1) * MSS)]);
    }
    assert_eq!((script.windows().1, script.conn.stats().recoveries), (10, 1));
    // The data sent after the retransmission arrives, but the retransmission does not.
    script.ack(start + 205, una, &[(una + MSS, una + 23 * MSS)]);
    assert_eq!(script.conn.stats().retransmits, 2);
    (script, start, una)
}

/// With profile `rfc`, a lost retransmission begins a new episode, which covers all losses within one round
/// trip (PRR-7). With profile `linux`, fast recovery continues unchanged.
#[test]
fn prr_7_a_lost_retransmission_reduces_again() {
    for (tunables, episodes, ssthresh) in [(Tunables::LINUX, 1, 10), (Tunables::RFC, 2, 5)] {
        let (mut script, start, una) = lost_twice(tunables);
        let state = |script: &Script| (script.conn.stats().recoveries, script.windows().1);
        assert_eq!(state(&script), (episodes, ssthresh));
        // Segment 23 was sent only once and is also missing. Its loss belongs to the same round trip.
        script.ack(start + 215, una, &[(una + 24 * MSS, una + 27 * MSS), (una + MSS, una + 23 * MSS)]);
        assert_eq!(script.conn.stats().retransmits, 3);
        assert_eq!(state(&script), (episodes, ssthresh));
        let end = script.conn.sender.snd_nxt();
        script.ack(start + 320, end, &[]);
        assert_eq!((script.conn.sender.recovery.phase, script.conn.stats().timeouts), (Phase::Open, 0));
    }
}

/// If the retransmission after a timeout is lost, fast recovery repairs it with a second reduction. Linux
/// does the same. For this reason, small windows stay small at a loss rate of a few per cent.
#[test]
fn a_retransmission_lost_after_a_timeout_begins_recovery() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    let at = |i: u64| una + i * MSS;
    script.write(20 * MSS);
    // All segments and the tail loss probe are lost. The first segment is retransmitted after the timeout.
    script.run(start + 502);
    script.ack(start + 602, at(1), &[]);
    script.ack(start + 702, at(2), &[]);
    assert_eq!((script.conn.sender.recovery.phase, script.windows().1), (Phase::Loss, 10));
    // The first of the segments that are now retransmitted is lost, but later segments arrive.
    let sent = script.conn.sender.recovery.board.inflight() / MSS;
    assert!(sent >= 2, "{sent}");
    script.write(100 * MSS);
    script.ack(start + 802, at(2), &[(at(3), at(4))]);
    script.run(start + 830);
    assert!(matches!(script.conn.sender.recovery.phase, Phase::Recovery { .. }));
    assert_eq!((script.conn.stats().recoveries, script.windows().1), (1, 2));
    assert_eq!(script.conn.stats().timeouts, 1);
}

/// With profile `linux`, only RACK marks records lost (SK-2, SK-4). The sender sends lost records first, in
/// ascending order, and then new data. It does not retransmit a hole that RACK has not marked lost, even if
/// there is nothing else to send.
#[test]
fn sk_4_what_is_sent_next() {
    let mut script = Script::warm(Algorithm::Cubic, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    let at = |i: u64| una + i * MSS;
    script.write(30 * MSS);
    script.clear();
    // Segments 0 and 2 are missing; the state of segment 19 is unknown.
    script.ack(start + 100, una, &[(at(3), at(19)), (at(1), at(2))]);
    let data = |i: u64| format!("{} ms data {}..{}", start + 100, at(i), at(i + 1));
    assert_eq!(script.lines[..3], [data(0), data(2), data(20)]);
    assert!(!script.lines.contains(&data(19)), "{:?}", script.lines);
}

/// The first two duplicate ACKs release one new segment each and leave the window unchanged (RFC 5681 section
/// 3.2; FR-1).
#[test]
fn fr_1_limited_transmit() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(100 * MSS);
    script.clear();
    script.ack(start + 100, una, &[(una + MSS, una + 2 * MSS)]);
    script.ack(start + 101, una, &[(una + MSS, una + 3 * MSS)]);
    assert_eq!(script.windows().0, 20);
    assert_eq!(script.data_segments(), 2);
}

/// A loss among data sent during recovery is a new congestion event. The ACK that ends the first recovery
/// begins the second one, as in Linux. It begins although the lost segment has already been retransmitted and
/// no record is newly marked lost.
#[test]
fn a_loss_within_recovery_begins_the_next() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    let at = |i: u64| una + i * MSS;
    script.write(100 * MSS);
    // Segment 0 is lost. Limited transmit sends segments 20 and 21, and later segments leave during recovery.
    for i in 1..20 {
        script.ack(start + 99 + i, una, &[(at(1), at(i + 1))]);
    }
    let state = |script: &Script| {
        (script.conn.stats().recoveries, script.conn.sender.decision.control.ssthresh / MSS)
    };
    assert_eq!(state(&script), (1, 10));
    // Segment 22 is also lost. Three segments above segment 22 reveal its loss, and the sender retransmits
    // it.
    script.ack(start + 205, una, &[(at(23), at(26)), (at(1), at(22))]);
    script.ack(start + 230, at(22), &[(at(23), at(26))]);
    assert_eq!(state(&script), (2, 5));
    assert_eq!(script.conn.stats().timeouts, 0);
    // All losses are repaired, so the second recovery ends, and no third recovery begins.
    let end = script.conn.sender.snd_nxt();
    script.ack(start + 330, end, &[]);
    assert_eq!(state(&script), (2, 5));
    assert_eq!(script.conn.sender.recovery.phase, crate::recovery::Phase::Open);
}

/// Two losses in a window of twenty segments are repaired in one episode, with one reduction and no timeout
/// (RFC 6582; FR-4, INV-3).
#[test]
fn fr_4_two_losses_in_a_window() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(20 * MSS);
    script.clear();
    let at = |i: u64| una + i * MSS;
    // Segments 0 and 10 are lost.
    for i in 1..10 {
        script.ack(start + 99 + i, una, &[(at(1), at(i + 1))]);
    }
    for i in 11..20 {
        script.ack(start + 99 + i, una, &[(at(11), at(i + 1)), (at(1), at(10))]);
    }
    let first = format!("{} ms data {}..{}", start + 102, at(0), at(1));
    let second: Vec<&String> =
        script.lines.iter().filter(|l| l.ends_with(&format!("{}..{}", at(10), at(11)))).collect();
    assert!(script.lines.contains(&first));
    assert_eq!(second.len(), 1);
    assert_eq!(script.conn.sender.decision.control.ssthresh, 10 * MSS);
    script.ack(start + 202, at(10), &[(at(11), at(20))]);
    assert!(matches!(script.conn.sender.recovery.phase, Phase::Recovery { .. }));
    script.ack(start + 220, at(20), &[]);
    assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
    assert_eq!(script.windows(), (10, 10));
    let stats = script.conn.stats();
    assert_eq!((stats.retransmits, stats.timeouts, stats.recoveries), (2, 0, 1));
}

use crate::recovery::Phase;

/// Returns the number of segments sent per SACK. The first segment of a flight of twenty is lost, and the
/// amount of data is unlimited. The SACKs arrive 1 ms apart, so that TSO deferral delays nothing.
fn sends_per_sack(cc: Algorithm) -> (Vec<u64>, Script, u64) {
    let mut script = Script::warm(cc, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(1000 * MSS);
    script.clear();
    let mut sends = Vec::new();
    for i in 1..20 {
        script.ack(start + 99 + i, una, &[(una + MSS, una + (i + 1) * MSS)]);
        sends.push(script.data_segments());
    }
    (sends, script, una)
}

/// Reno halves its window (PRR-1, G-6). After limited transmit, every other SACK releases a segment until the
/// flight size reaches `ssthresh`. Each transmission matches Linux.
#[test]
fn prr_1_reno() {
    let (sends, mut script, una) = sends_per_sack(Algorithm::Reno);
    assert_eq!(sends, [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]);
    // When recovery ends, the window equals `ssthresh` (PRR-5).
    let until = script.conn.sender.snd_nxt();
    let at = script.elapsed().as_millis() + 100;
    script.ack(at, una + 20 * MSS, &[]);
    script.ack(at, until, &[]);
    assert_eq!(script.windows(), (10, 10));
}

/// CUBIC multiplies a window of twenty segments by 0.7 (PRR-2, G-6).
#[test]
fn prr_2_cubic() {
    let (sends, script, _) = sends_per_sack(Algorithm::Cubic);
    assert_eq!(sends[..2], [1, 1]);
    assert_eq!(sends[2..], [1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1]);
    assert_eq!(script.conn.sender.decision.control.ssthresh, 14 * MSS);
}

/// If fifteen of twenty segments are lost, no ACK releases more than it delivered plus one segment (RFC 9937;
/// PRR-4).
#[test]
fn prr_4_heavy_loss() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(1000 * MSS);
    script.clear();
    for i in 15..20 {
        script.ack(start + 100, una, &[(una + 15 * MSS, una + (i + 1) * MSS)]);
        let sends = script.data_segments();
        assert!(sends <= 2, "{sends} for one delivery");
    }
}

/// An ACK that delivers nothing releases nothing (RFC 9937; PRR-6).
#[test]
fn prr_6_nothing_delivered_nothing_sent() {
    let (_, mut script, una) = sends_per_sack(Algorithm::Reno);
    let at = script.elapsed().as_millis();
    for _ in 0..10 {
        script.ack(at, una, &[(una + MSS, una + 20 * MSS)]);
    }
    assert_eq!(script.data_segments(), 0);
}

/// The last segment is lost, and the tail loss probe repairs the loss (RFC 8985 section 7; TLP-2). No SACK
/// reveals the loss, so the sender reduces its window only when the peer acknowledges later data without a
/// D-SACK.
#[test]
fn tlp_2_a_repaired_tail_costs_one_reduction() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(20 * MSS);
    script.clear();
    script.ack(start + 100, una + 19 * MSS, &[]);
    // With one segment in flight, the probe leaves after 2 SRTT + 200 ms, but no later than the
    // retransmission timeout.
    script.run(start + 420);
    script.sent(&[&format!("{} ms data {}..{}", start + 400, una + 19 * MSS, una + 20 * MSS)]);
    script.ack(start + 500, una + 20 * MSS, &[]);
    let window = script.windows().0;
    script.write(MSS);
    script.ack(start + 600, una + 21 * MSS, &[]);
    script.write(MSS);
    script.ack(start + 700, una + 22 * MSS, &[]);
    assert_eq!(script.windows().0, window / 2);
    assert_eq!(script.conn.stats().timeouts, 0);
}

/// Nothing is lost, but the ACKs are late (RFC 8985 section 7; TLP-3). The ACK of the original segments does
/// not decide the outcome; only the D-SACK for the probe shows that nothing was lost.
#[test]
fn tlp_3_a_needless_probe_costs_nothing() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(20 * MSS);
    script.run(start + 210);
    assert_eq!(script.conn.stats().probes, 1);
    let window = script.windows().0;
    script.ack(start + 220, una + 20 * MSS, &[]);
    script.ack(start + 310, una + 20 * MSS, &[(una + 19 * MSS, una + 20 * MSS)]);
    script.write(MSS);
    script.ack(start + 410, una + 21 * MSS, &[]);
    assert!(script.windows().0 >= window, "{} of {window}", script.windows().0);
    assert_eq!(script.conn.sender.decision.control.ssthresh / MSS, u64::MAX / MSS);
}

/// SACK blocks outside the outstanding data are ignored (SK-6).
#[test]
fn sk_6_absurd_blocks() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(5 * MSS);
    script.clear();
    script.ack(100, 0, &[(6 * MSS, 8 * MSS), (3 * MSS, 2 * MSS)]);
    assert_eq!(script.conn.sender.recovery.board.sacked_segments(), 0);
    assert_eq!(script.conn.snapshot().delivered, 0);
}
