//! Tests of spurious recoveries, and of how the sender undoes them.

use super::*;
use crate::recovery::Phase;

/// Injects an ACK at time `at` in ms that echoes the timestamp sent at time `echo` in ms.
fn ack_echoing(script: &mut Script, at: u64, ack: u64, echo: u64) {
    script.run(at);
    let mut segment = script.segment(script.peer_sent, 0, ack);
    segment.timestamps = Some(Timestamps { value: clock(script.now), echo: clock(START + ms(echo)) });
    script.inject(&segment);
}

/// Creates a flight of twenty segments whose ACKs all come late.
fn late_flight() -> (Script, u64, u64) {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(1000 * MSS);
    script.clear();
    (script, start, una)
}

/// The path pauses until after the timeout, but nothing is lost (RFC 5682; FRTO-1). After one retransmission,
/// the window and `ssthresh` are restored. The SACK-based variant of F-RTO needs no timestamps.
#[test]
fn frto_1_a_delay_spike() {
    for eifel in [false, true] {
        let (mut script, start, una) = late_flight();
        let before = script.windows();
        // The tail loss probe leaves first, with new data; then the timeout expires.
        script.run(start + 600);
        assert_eq!(script.conn.stats().retransmits, 1);
        assert_eq!(script.windows(), (1, 10));
        for i in 1..=20 {
            let echo = if eifel { start } else { start + 600 };
            ack_echoing(&mut script, start + 600, una + i * MSS, echo);
        }
        assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
        assert!(script.windows().0 >= before.0 && script.windows().1 == before.1, "{:?}", script.windows());
        assert_eq!(script.conn.stats().retransmits, 1, "no go-back-N");
        assert_eq!(script.conn.sender.recovery.board.lost_pending(), 0);
    }
}

/// During a delay spike of 3 s, the timeout expires repeatedly, each time for the first segment (RFC 5682;
/// FRTO-1). All reductions are undone when the original segments arrive.
#[test]
fn frto_1_a_long_delay_spike() {
    let (mut script, start, una) = late_flight();
    let before = script.windows();
    script.run(start + 3000);
    let stats = script.conn.stats();
    assert_eq!((stats.timeouts, stats.retransmits), (3, 3));
    for i in 1..=20 {
        ack_echoing(&mut script, start + 3000, una + i * MSS, start + 3000);
    }
    assert!(script.windows().0 >= before.0 && script.windows().1 == before.1, "{:?}", script.windows());
    assert_eq!(script.conn.stats().retransmits, 3);
}

/// The whole flight is lost (RFC 5682; FRTO-2). The first ACK releases new data, and the SACK of that data
/// confirms the loss. Conventional slow start follows, and the sender undoes nothing.
#[test]
fn frto_2_real_loss() {
    let (mut script, start, una) = late_flight();
    // The tail loss probe with new data is also lost.
    script.run(start + 502);
    script.clear();
    script.ack(start + 602, una + MSS, &[]);
    script.sent(&[
        &format!("{} ms data {}..{}", start + 602, una + 21 * MSS, una + 22 * MSS),
        &format!("{} ms data {}..{}", start + 602, una + 22 * MSS, una + 23 * MSS),
    ]);
    let new = (una + 21 * MSS, una + 23 * MSS);
    script.ack(start + 702, una + MSS, &[new]);
    assert_eq!(script.conn.sender.recovery.phase, Phase::Loss);
    assert!(script.lines[0].ends_with(&format!("data {}..{}", una + MSS, una + 2 * MSS)));
    for (i, acked) in [4, 8, 16, 23].into_iter().enumerate() {
        script.ack(start + 802 + 100 * i as u64, una + acked * MSS, &[new][..usize::from(acked < 23)]);
    }
    assert_eq!(script.conn.sender.decision.control.ssthresh, 10 * MSS);
    assert!(script.conn.stats().retransmits >= 20);
    assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
}

/// The sender undoes the reduction if D-SACKs report every retransmission of the episode (RFC 3708; UN-1). A
/// D-SACK for only one of two retransmissions is not sufficient (RFC 3708; UN-3).
#[test]
fn un_1_and_3_all_duplicates() {
    for reported in [1, 2] {
        let (mut script, start, una) = late_flight();
        let before = script.windows();
        let at = |i: u64| una + i * MSS;
        // Segments 0 and 1 are late; all other segments arrive. Segments 0 and 1 are retransmitted.
        for i in 2..20 {
            script.ack(start + 100, una, &[(at(2), at(i + 1))]);
        }
        assert!(matches!(script.conn.sender.recovery.phase, Phase::Recovery { .. }));
        assert_eq!(script.conn.stats().retransmits, 2);
        script.ack(start + 150, at(20), &[]);
        for i in 0..reported {
            script.ack(start + 200 + i, at(20), &[(at(i), at(i + 1))]);
        }
        let restored = script.windows().0 >= before.0 && script.windows().1 == before.1;
        assert_eq!(restored, reported == 2, "{:?} after {reported} reports", script.windows());
    }
}

/// The sender recognises a D-SACK below the cumulative ACK, and also above it if the D-SACK lies within the
/// next block (RFC 2883; UN-5). The segment that was retransmitted needlessly also crossed the path, so it is
/// counted as delivered. A duplicate that the network created is not counted.
#[test]
fn un_5_spurious_retransmissions_are_delivered() {
    for above in [false, true] {
        let (mut script, start, una) = late_flight();
        let at = |i: u64| una + i * MSS;
        let delivered = |script: &Script| script.conn.snapshot().delivered / MSS;
        // The network has duplicated a segment that the sender sent once.
        script.ack(start + 100, una, &[(at(4), at(5)), (at(4), at(5))]);
        let before = delivered(&script);
        script.ack(start + 100, una, &[(at(4), at(5)), (at(4), at(5))]);
        assert_eq!(delivered(&script), before);
        for i in 5..20 {
            script.ack(start + 100, una, &[(at(4), at(i + 1))]);
        }
        assert_eq!(script.conn.stats().retransmits, 4, "0 to 3");
        let before = delivered(&script);
        if above {
            // Segment 0 is still missing. Segments 1 to 3 have arrived, and segment 1 has arrived twice.
            script.ack(start + 110, una, &[(at(1), at(2)), (at(1), at(20))]);
            assert_eq!(delivered(&script) - before, 3 + 1);
        } else {
            script.ack(start + 110, at(20), &[]);
            assert_eq!(delivered(&script) - before, 4);
            script.ack(start + 200, at(20), &[(at(0), at(1))]);
            assert_eq!(delivered(&script) - before, 4 + 1);
        }
    }
}

/// When the hole is filled, the ACK echoes a timestamp older than the retransmission (Eifel, RFC 3522; UN-1).
/// An ACK that echoes the timestamp of the retransmission proves nothing.
#[test]
fn un_1_an_old_echo() {
    for (echo, spurious) in [(0, true), (110, false)] {
        let (mut script, start, una) = late_flight();
        let before = script.windows();
        for i in 1..20 {
            script.ack(start + 100, una, &[(una + MSS, una + (i + 1) * MSS)]);
        }
        assert_eq!(script.conn.stats().retransmits, 1);
        ack_echoing(&mut script, start + 110, una + 20 * MSS, start + echo);
        let restored = script.windows().0 >= before.0 && script.windows().1 == before.1;
        assert_eq!(restored, spurious, "{:?}", script.windows());
        if spurious {
            assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
        }
    }
}

/// After an undo, no record is marked lost, and `pipe` equals the outstanding data that has not been
/// delivered (UN-4).
#[test]
fn un_4_marks_are_consistent_after_an_undo() {
    let (mut script, start, una) = late_flight();
    script.run(start + 502);
    assert!(script.conn.sender.recovery.board.lost_pending() > 0);
    script.ack(start + 600, una + MSS, &[(una + 5 * MSS, una + 7 * MSS)]);
    assert_eq!(script.conn.sender.recovery.phase, Phase::Open);
    let board = &script.conn.sender.recovery.board;
    assert_eq!(board.lost_pending(), 0);
    let outstanding = script.conn.sender.snd_nxt() - script.conn.sender.snd_una;
    assert_eq!(board.inflight(), outstanding - 2 * MSS);
}
