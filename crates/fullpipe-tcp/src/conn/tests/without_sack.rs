//! Tests of recovery without SACK (RFC 6582).

use super::pair::{Fate, Pair, Side};
use super::*;
use crate::recovery::Phase;

fn plain(cc: Algorithm) -> Config {
    Config { sack: false, ..config(cc) }
}

/// Creates a flight of twenty segments, with a thousand more segments to send.
fn flight(cc: Algorithm) -> (Script, u64, u64) {
    let mut script = Script::client(plain(cc));
    script.write(10 * MSS);
    for i in 1..=10 {
        script.ack(RTT, i * MSS, &[]);
    }
    script.clear();
    script.write(1000 * MSS);
    assert_eq!(script.data_segments(), 20);
    (script, RTT, 10 * MSS)
}

/// The first of twenty segments is lost (RFC 6582; FR-1, FR-2). Two duplicate ACKs release new data, and the
/// third triggers the retransmission. PRR then sets the window, and the sender sends as much as with SACK, as
/// in Linux. The ACK that ends recovery leaves the window at `ssthresh`. The duplicate ACKs arrive 1 ms
/// apart, so that TSO deferral delays nothing.
#[test]
fn fr_2_one_hole() {
    for (cc, ssthresh, expected) in [
        (Algorithm::Reno, 10, [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]),
        (Algorithm::Cubic, 14, [1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1]),
    ] {
        let (mut script, start, una) = flight(cc);
        let mut sends = Vec::new();
        for i in 1..20 {
            script.ack(start + 99 + i, una, &[]);
            let again =
                script.segments.iter().any(|(_, s)| s.seq == script.conn.sender.iss.plus(1).plus(una));
            assert_eq!(again, i == 3, "{cc}: duplicate {i}");
            sends.push(script.data_segments());
        }
        assert_eq!(sends, expected, "{cc}");
        assert_eq!(script.conn.sender.recovery.board.inflight(), ssthresh * MSS);
        script.ack(start + 200, una + 22 * MSS, &[]);
        assert_eq!(
            (script.conn.sender.recovery.phase, script.windows()),
            (Phase::Open, (ssthresh, ssthresh))
        );
        let stats = script.conn.stats();
        assert_eq!((stats.retransmits, stats.recoveries, stats.timeouts), (1, 1, 0));
    }
}

/// The sender repairs two holes in a window of twenty segments in one round trip each, with one reduction and
/// no timeout (RFC 6582; FR-3, FR-4).
#[test]
fn fr_3_and_4_two_holes() {
    let (mut script, start, una) = flight(Algorithm::Reno);
    let at = |i: u64| una + i * MSS;
    // Segments 0 and 10 are lost, which causes eighteen duplicate ACKs.
    for i in 0..18 {
        script.ack(start + 100 + i, una, &[]);
    }
    script.clear();
    // The retransmission arrives, and the peer acknowledges all segments below 10.
    script.ack(start + 202, at(10), &[]);
    assert!(script.lines[0].ends_with(&format!("data {}..{}", at(10), at(11))), "{:?}", script.lines);
    assert!(matches!(script.conn.sender.recovery.phase, Phase::Recovery { .. }), "FR-3: it goes on");
    // The ACK covers all data outstanding at the start of recovery, including two segments sent by limited
    // transmit.
    script.ack(start + 302, at(22), &[]);
    let stats = script.conn.stats();
    assert_eq!((stats.retransmits, stats.recoveries, stats.timeouts), (2, 1, 0));
    assert_eq!((script.conn.sender.recovery.phase, script.windows()), (Phase::Open, (10, 10)));
}

/// Spurious retransmissions after a timeout cause duplicate ACKs (RFC 6582; FR-5). The duplicate ACKs start
/// no recovery until the peer has acknowledged newer data.
#[test]
fn fr_5_echoes_of_a_timeout() {
    let (mut script, start, una) = flight(Algorithm::Reno);
    // Without SACK there is no tail loss probe, so the timeout comes first.
    script.run(start + 300);
    assert_eq!((script.conn.stats().probes, script.conn.stats().timeouts), (0, 1));
    script.ack(start + 310, una + MSS, &[]);
    script.ack(start + 311, una + MSS, &[]);
    let end = una + 20 * MSS;
    script.ack(start + 500, end, &[]);
    assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
    for i in 0..5 {
        script.ack(start + 501 + i, end, &[]);
    }
    assert_eq!(script.conn.stats().recoveries, 0);
    let next = script.conn.sender.snd_una + 2 * MSS;
    script.ack(start + 600, next, &[]);
    for i in 0..3 {
        script.ack(start + 601 + i, next, &[]);
    }
    assert_eq!(script.conn.stats().recoveries, 1);
}

/// A segment with data, a changed window, a FIN or an older ACK is not a duplicate ACK (RFC 5681 section 2;
/// FR-6). While nothing is outstanding, no ACK is a duplicate ACK.
#[test]
fn fr_6_what_is_no_duplicate() {
    type Change = fn(&mut Segment);
    let tries: [(&str, Change); 5] = [
        ("an ACK", |_| {}),
        ("data", |segment| segment.len = 100),
        ("another window", |segment| segment.window -= 1),
        ("a FIN", |segment| segment.flags = segment.flags.with(Flags::FIN)),
        ("an older ACK", |segment| segment.ack = segment.ack.plus(u64::from(u32::MAX) - 99)),
    ];
    for (what, change) in tries {
        let (mut script, start, una) = flight(Algorithm::Reno);
        script.run(start + 100);
        for i in 0..4 {
            let mut segment = script.segment(script.peer_sent, 0, una);
            change(&mut segment);
            segment.window -= i * u16::from(what == "another window");
            script.inject(&segment);
        }
        assert_eq!(script.conn.stats().recoveries, u64::from(what == "an ACK"), "{what}");
    }
    let mut script = Script::client(plain(Algorithm::Reno));
    script.write(MSS);
    script.ack(100, MSS, &[]);
    for _ in 0..4 {
        script.ack(101, MSS, &[]);
    }
    assert_eq!(script.conn.sender.recovery.board.inflight(), 0);
    assert_eq!(script.conn.snapshot().delivered, MSS);
}

/// Without SACK, a segment counted by a duplicate ACK is not counted again by the ACK that covers it (DR-10).
#[test]
fn what_is_announced_is_counted_once() {
    let (mut script, start, una) = flight(Algorithm::Reno);
    let before = script.conn.snapshot().delivered;
    for _ in 0..19 {
        script.ack(start + 100, una, &[]);
    }
    assert_eq!(script.conn.snapshot().delivered - before, 19 * MSS);
    script.ack(start + 200, una + 20 * MSS, &[]);
    assert_eq!(script.conn.snapshot().delivered - before, 20 * MSS);
}

/// The basic form of F-RTO (RFC 5682 section 2): the first ACK releases new data instead of retransmissions.
/// If the second ACK advances `snd_una`, nothing was lost. A duplicate ACK shows a loss.
#[test]
fn frto_1_without_sack() {
    for late in [true, false] {
        let (mut script, start, una) = flight(Algorithm::Reno);
        let before = script.windows();
        script.run(start + 300);
        script.clear();
        // The ACK echoes a timestamp that does not show whether the timeout was spurious.
        script.ack(start + 400, una + MSS, &[]);
        let new = script.conn.sender.iss.plus(1).plus(una + 20 * MSS);
        assert!(
            !script.segments.is_empty() && script.segments.iter().all(|(_, s)| s.seq.distance_from(new) >= 0)
        );
        script.clear();
        script.ack(start + 401, una + if late { 2 } else { 1 } * MSS, &[]);
        if late {
            assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
            assert!(
                script.windows().0 >= before.0 && script.windows().1 == before.1,
                "{:?}",
                script.windows()
            );
            assert_eq!(script.conn.stats().retransmits, 1);
        } else {
            assert_eq!(script.conn.sender.recovery.phase, Phase::Loss);
            assert!(script.lines[0].ends_with(&format!("data {}..{}", una + MSS, una + 2 * MSS)));
        }
    }
}

/// After a retransmission has filled the hole, the peer acknowledges the data above the hole. Such an ACK
/// does not prove that the timeout was spurious (RFC 5682 requires a second ACK).
#[test]
fn a_filled_hole_acquits_nobody() {
    let (mut script, start, una) = flight(Algorithm::Reno);
    script.run(start + 300);
    script.ack(start + 400, una + 10 * MSS, &[]);
    assert_eq!(script.conn.sender.recovery.phase, Phase::Loss);
    assert_eq!(script.conn.sender.decision.control.ssthresh, 10 * MSS);
}

/// With every congestion controller, the sender repairs one loss per 400 segments without a timeout. The
/// receiver does not delay any duplicate ACK.
#[test]
fn single_losses_need_no_timeout() {
    for cc in Algorithm::ALL {
        for sack in [(false, true), (true, false)] {
            let with = |sack| Config { sack, ..config(cc) };
            let mut pair = Pair::on(with(sack.0), with(sack.1), |side, _, ordinal| {
                if side == Side::Client && ordinal % 400 == 350 { Fate::Lost } else { Fate::Arrives }
            });
            pair.client.open();
            pair.write(Side::Client, 4000 * MSS);
            pair.client.close();
            pair.run(60_000);
            assert_eq!(pair.server.received(), 4000 * MSS, "{cc}");
            let stats = pair.client.stats();
            assert_eq!((stats.timeouts, stats.retransmits), (0, 10), "{cc}");
            assert!((1..=10).contains(&stats.recoveries), "{cc}");
        }
    }
}

/// At 1 % random loss, a timeout occurs only for losses that RFC 6582 cannot repair: a lost retransmission, a
/// loss just after a recovery, and a loss in a window too small for three duplicate ACKs. For 401 losses,
/// Reno has 22 timeouts and CUBIC has 24.
#[test]
fn one_percent_at_random() {
    for cc in [Algorithm::Reno, Algorithm::Cubic] {
        let (mut losses, mut timeouts) = (0, 0);
        for seed in 0..4 {
            let lost = move |ordinal| fullpipe_units::draw(seed, 3, ordinal).is_multiple_of(100);
            let mut pair = Pair::on(plain(cc), plain(cc), move |side, _, ordinal| {
                if side == Side::Client && lost(ordinal) { Fate::Lost } else { Fate::Arrives }
            });
            pair.client.open();
            pair.write(Side::Client, 10_000 * MSS);
            pair.client.close();
            pair.run(3_000_000);
            assert_eq!(pair.server.received(), 10_000 * MSS, "{cc} {seed}");
            let stats = pair.client.stats();
            losses += (0..stats.segments_sent).filter(|&ordinal| lost(ordinal)).count() as u64;
            timeouts += stats.timeouts;
        }
        assert!(losses > 350 && 10 * timeouts < losses, "{cc}: {timeouts} timeouts, {losses} losses");
    }
}
