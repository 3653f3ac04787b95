//! Tests of ECN, by section of RFC 3168.

use super::*;

fn asking() -> Config {
    Config { ecn: true, ..config(Algorithm::Reno) }
}

/// Returns a client that has negotiated ECN with its peer.
fn agreed() -> Script {
    let mut script = Script::new(Connection::client(asking()));
    script.conn.open();
    script.flush();
    assert_eq!(ecn_bits(&script.segments[0].1), (true, true), "the SYN asks");
    script.now = START;
    let answer = script.syn_ack(Some(SHIFT), Some(1460), true, true);
    script.inject(&Segment { flags: answer.flags.with(Flags::ECE), ..answer });
    script.events();
    script.clear();
    script
}

fn ecn_bits(segment: &Segment) -> (bool, bool) {
    (segment.flags.has(Flags::ECE), segment.flags.has(Flags::CWR))
}

/// Injects an ACK with ECE at time `at` in ms.
fn echo(script: &mut Script, at: u64, ack: u64) {
    script.run(at);
    let segment = script.segment(0, 0, ack);
    script.inject(&Segment { flags: segment.flags.with(Flags::ECE), ..segment });
}

/// RFC 3168 section 6.1.1: the SYN carries ECE and CWR, and the SYN-ACK carries only ECE. Either both ends
/// use ECN or neither does. The passive side accepts ECN without configuration (ECN-4).
#[test]
fn ecn_4_both_ends_or_none() {
    for asks in [false, true] {
        for answer in [Flags::default(), Flags::ECE, Flags::ECE.with(Flags::CWR)] {
            let mut script = Script::new(Connection::client(Config { ecn: asks, ..config(Algorithm::Reno) }));
            script.conn.open();
            script.flush();
            assert_eq!(ecn_bits(&script.segments[0].1), (asks, asks));
            script.now = START;
            let syn_ack = script.syn_ack(Some(10), Some(1460), true, true);
            script.inject(&Segment { flags: syn_ack.flags.with(answer), ..syn_ack });
            script.clear();
            script.write(MSS);
            let expected = if asks && answer == Flags::ECE { Ecn::Ect0 } else { Ecn::NotEct };
            assert_eq!(script.segments[0].1.ecn, expected, "{asks} {answer:?}");
        }
    }
    for (asks, agrees) in
        [(Flags::ECE.with(Flags::CWR), true), (Flags::ECE, false), (Flags::default(), false)]
    {
        let mut script = Script::new(Connection::server(config(Algorithm::Reno)));
        let syn = script.syn_ack(Some(7), Some(1460), true, true);
        script.inject(&Segment { flags: Flags::SYN.with(asks), ..syn });
        assert_eq!(ecn_bits(&script.segments[0].1), (agrees, false), "{asks:?}");
        assert_eq!(script.segments[0].1.ecn, Ecn::NotEct, "section 6.1.1: no SYN is ECN-capable");
    }
}

/// RFC 3168 section 6.1.1.1: an unanswered SYN is retransmitted without the ECN request, in case the request
/// caused the loss.
#[test]
fn a_repeated_syn_does_not_ask() {
    let mut script = Script::new(Connection::client(asking()));
    script.conn.open();
    script.flush();
    script.run_to(START + ms(2_000));
    assert!(script.segments.len() > 1);
    assert!(script.segments[1..].iter().all(|(_, syn)| ecn_bits(syn) == (false, false)));
}

/// RFC 3168 section 6.1.3: after a CE mark, every ACK carries ECE until CWR arrives (ECN-1). The first such
/// ACK leaves at once.
#[test]
fn ecn_1_the_receiver_echoes_until_it_is_heard() {
    let mut script = agreed();
    let arrives = |script: &mut Script, at: u64, ecn, flags: Flags| {
        script.run(at);
        let segment = script.segment(script.peer_sent, MSS as u32, 0);
        script.peer_sent += MSS;
        script.inject(&Segment { ecn, flags: segment.flags.with(flags), ..segment });
        let echoes: Vec<_> = script.segments.iter().map(|(_, ack)| ecn_bits(ack).0).collect();
        script.clear();
        echoes
    };
    let none = Flags::default();
    assert!(!arrives(&mut script, 10, Ecn::Ect0, none).contains(&true));
    assert_eq!(arrives(&mut script, 20, Ecn::Ce, none), [true]);
    for n in 3..10 {
        let echoes = arrives(&mut script, 10 * n, Ecn::Ect0, none);
        assert!(echoes.iter().all(|echo| *echo), "{echoes:?}");
    }
    assert_eq!(arrives(&mut script, 100, Ecn::Ect0, Flags::CWR), [false]);
    // A CE mark on the segment with CWR starts a new ECN echo.
    assert_eq!(arrives(&mut script, 110, Ecn::Ce, none), [true]);
    assert!(arrives(&mut script, 120, Ecn::Ce, Flags::CWR).iter().all(|echo| *echo));
}

/// CE marks are not echoed if ECN was not negotiated.
#[test]
fn marks_mean_nothing_without_agreement() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.run(10);
    let segment = script.segment(0, MSS as u32, 0);
    script.inject(&Segment { ecn: Ecn::Ce, ..segment });
    assert!(script.segments.iter().all(|(_, ack)| !ecn_bits(ack).0));
    script.write(10 * MSS);
    echo(&mut script, 110, MSS);
    assert_eq!(script.conn.stats().ecn_reductions, 0);
}

/// RFC 3168 section 6.1.2: all ECN echoes for one window of data together cause a single reduction (ECN-1,
/// ECN-2). Nothing is retransmitted, and the first new data carries CWR. An echo for the next window of data
/// reduces the window again.
#[test]
fn ecn_2_one_reduction_for_a_window() {
    let mut script = agreed();
    script.write(200 * MSS);
    assert_eq!(script.data_segments(), 10);
    let mut sends = Vec::new();
    for n in 1..=9 {
        let before = script.segments.len();
        // With ACKs 1 ms apart, TSO deferral delays nothing.
        echo(&mut script, 99 + n, n * MSS);
        sends.push(script.segments.len() - before);
    }
    // Every other ACK releases a segment, as in recovery (ECN-1). `ssthresh` is also the window at the end of
    // recovery; the window does not grow in between.
    assert_eq!(sends, [1, 0, 1, 0, 1, 0, 1, 0, 0]);
    assert_eq!(
        (script.conn.stats().ecn_reductions, script.conn.sender.decision.control.ssthresh),
        (1, 5 * MSS)
    );
    assert_eq!(script.conn.sender.decision.control.cwnd, 5 * MSS);
    let new: Vec<_> = script.segments.iter().map(|(_, s)| s).filter(|s| s.len > 0).collect();
    let cwr: Vec<_> = new.iter().map(|segment| ecn_bits(segment).1).collect();
    assert!(cwr[0] && !cwr[1..].contains(&true), "{cwr:?}");
    assert!(new.iter().all(|segment| segment.ecn == Ecn::Ect0));
    // The tenth segment was outstanding at the time of the reduction; later segments were not. Linux requires
    // a later segment to be acknowledged.
    echo(&mut script, 110, 10 * MSS);
    assert_eq!((script.conn.stats().ecn_reductions, script.windows()), (1, (5, 5)));
    echo(&mut script, 200, 11 * MSS);
    assert_eq!(script.conn.stats().ecn_reductions, 2);
    assert_eq!((script.conn.stats().retransmits, script.conn.stats().recoveries), (0, 0));
}

/// If all segments are marked, a window of two segments per round trip remains, as in Linux (ECN-3). RFC 3168
/// reduces the rate further, to one segment per timeout.
#[test]
fn ecn_3_two_segments_are_the_least() {
    let mut script = agreed();
    script.write(200 * MSS);
    let mut una = 0;
    for round in 1..12 {
        while una < script.conn.sender.snd_nxt() && script.segments.len() < 300 {
            una += MSS;
            echo(&mut script, 100 * round, una);
            if una.is_multiple_of(4 * MSS) {
                break;
            }
        }
    }
    assert!(script.conn.stats().ecn_reductions >= 3);
    assert_eq!(script.conn.sender.decision.control.cwnd, 2 * MSS);
    assert_eq!(script.conn.sender.decision.control.ssthresh, 2 * MSS);
}

/// If a loss occurs in the round trip of an ECE reduction, PRR continues without a second reduction.
#[test]
fn a_loss_behind_a_mark_is_paid_for() {
    let mut script = agreed();
    script.write(200 * MSS);
    echo(&mut script, 100, MSS);
    assert_eq!(script.conn.stats().ecn_reductions, 1);
    for n in 2..=4 {
        script.ack(101, MSS, &[(2 * MSS, (n + 1) * MSS)]);
    }
    assert_eq!((script.conn.stats().recoveries, script.conn.stats().retransmits), (1, 0));
    // The retransmission waits until PRR allows it.
    script.ack(101, MSS, &[(2 * MSS, 6 * MSS)]);
    assert_eq!((script.conn.stats().recoveries, script.conn.stats().retransmits), (1, 1));
    assert_eq!(script.conn.sender.decision.control.ssthresh, 5 * MSS);
    script.ack(200, 10 * MSS, &[]);
    assert_eq!(script.conn.sender.recovery.phase, crate::recovery::Phase::Open);
    // Recovery is over, so the window has grown by one segment.
    assert_eq!((script.windows(), script.conn.stats().ecn_reductions), ((6, 5), 1));
}

/// RFC 3168 section 6.1.2: a loss and a CE mark in one window of data are one congestion event, and CWR also
/// responds to the mark. RFC 3168 section 6.1.5: a retransmission is not ECN-capable.
#[test]
fn a_loss_and_a_mark_are_one_reduction() {
    let mut script = agreed();
    script.write(200 * MSS);
    script.clear();
    script.ack(100, 0, &[(MSS, 2 * MSS)]);
    script.ack(101, 0, &[(MSS, 3 * MSS)]);
    script.ack(102, 0, &[(MSS, 4 * MSS)]);
    assert_eq!(script.conn.stats().recoveries, 1);
    let window = script.conn.sender.decision.control.cwnd;
    echo(&mut script, 103, 0);
    assert_eq!((script.conn.stats().ecn_reductions, script.conn.sender.decision.control.cwnd), (0, window));
    let again: Vec<_> =
        script.segments.iter().map(|(_, s)| s).filter(|s| s.seq == script.conn.sender.iss.plus(1)).collect();
    assert_eq!(again.iter().map(|s| s.ecn).collect::<Vec<_>>(), [Ecn::NotEct]);
    assert!(!ecn_bits(again[0]).1, "it is new data that says CWR");
    script.ack(200, 10 * MSS, &[]);
    let new = script.segments.iter().map(|(_, s)| s).filter(|s| s.len > 0 && s.ecn == Ecn::Ect0);
    assert_eq!(new.filter(|s| ecn_bits(s).1).count(), 1);
}

/// If the path clears the marks, the receiver never echoes them (ECN-6). When the queue overflows, the sender
/// detects the drop like any other loss and continues.
#[test]
fn ecn_6_marks_that_never_come_back() {
    let mut script = agreed();
    script.write(200 * MSS);
    // Ten segments were marked, but arrived with the mark cleared. The first segment of the next flight is
    // dropped.
    script.ack(100, 10 * MSS, &[]);
    for n in 11..14 {
        script.ack(200, 10 * MSS, &[(11 * MSS, (n + 1) * MSS)]);
    }
    assert_eq!((script.conn.stats().recoveries, script.conn.stats().ecn_reductions), (1, 0));
    script.ack(300, 30 * MSS, &[]);
    script.clear();
    script.ack(400, 34 * MSS, &[]);
    assert!(script.data_segments() > 0);
    assert_eq!(script.conn.stats().timeouts, 0);
}
