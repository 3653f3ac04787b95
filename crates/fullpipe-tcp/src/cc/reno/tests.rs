use fullpipe_units::{Duration, Rate};

use super::*;
use crate::cc::testing::{Bench, MSS, Run, at_ms, ms};
use crate::cc::{Algorithm, Launch, Pacing, Recovery, SendQuantum};

fn at(segments: u64) -> Bench<Reno> {
    Bench::new(segments, Reno::new)
}

/// Returns a bench in congestion avoidance with a window of `segments` segments.
fn avoiding(segments: u64) -> Bench<Reno> {
    let mut bench = at(segments * 2);
    bench.lose();
    assert_eq!((bench.cwnd(), bench.ssthresh()), (segments, segments));
    bench
}

#[test]
fn reno_1_one_segment_per_window() {
    let mut bench = avoiding(10);
    bench.acks(9);
    assert_eq!(bench.cwnd(), 10);
    bench.acks(1);
    assert_eq!(bench.cwnd(), 11);
    bench.acks(10);
    assert_eq!(bench.cwnd(), 11);
    bench.acks(1);
    assert_eq!(bench.cwnd(), 12);
}

#[test]
fn reno_2_halving_rounds_down_to_no_less_than_two() {
    for (before, after) in [(20, 10), (3, 2), (21, 10), (1, 2)] {
        let mut bench = at(before);
        bench.lose();
        assert_eq!((bench.cwnd(), bench.ssthresh()), (after, after), "loss at {before}");
    }
}

#[test]
fn reno_3_a_stretch_ack_grows_by_what_it_covers() {
    let mut bench = avoiding(10);
    bench.ack(40);
    assert_eq!(bench.cwnd(), 14);
}

#[test]
fn reno_3_stale_credit_is_applied_once() {
    let mut bench = avoiding(10);
    bench.acks(9);
    bench.lose();
    assert_eq!(bench.cwnd(), 5);
    bench.acks(4);
    assert_eq!(bench.cwnd(), 5, "a cut takes the credit away");
}

/// If a loss occurs whenever `W` reaches 40 segments, the window grows from 20 segments, by one segment per
/// round trip (RENO-4).
#[test]
fn reno_4_sawtooth() {
    let mut bench = avoiding(20);
    let mut sent = 0;
    let mut rounds = 0;
    while bench.cwnd() < 40 {
        let window = bench.cwnd();
        bench.acks(window);
        assert_eq!(bench.cwnd(), window + 1);
        sent += window;
        rounds += 1;
    }
    assert_eq!(rounds, 20);
    assert_eq!(sent, 590, "3/8 W^2 = 600 less the half step of a discrete climb");
    bench.lose();
    assert_eq!(bench.cwnd(), 20);
}

/// With one loss per 600 segments delivered, the window stays between 20 and 40 segments (RENO-5).
#[test]
fn reno_5_deterministic_loss() {
    let mut bench = avoiding(20);
    let mut highest = 0;
    let (mut area, mut rounds) = (0, 0);
    for _ in 0..50 {
        let mut left = 600;
        while left > 0 {
            let window = bench.cwnd().min(left);
            bench.acks(window);
            left -= window;
            highest = highest.max(bench.cwnd());
            area += window;
            rounds += 1;
        }
        bench.lose();
    }
    assert!((39..=41).contains(&highest), "Wmax {highest}");
    assert!((28..=31).contains(&(area / rounds)), "mean {}", area / rounds);
}

/// In slow start, Reno doubles the window every round trip if the path does not limit it (RFC 5681 section
/// 3.1; SS-1).
#[test]
fn ss_1_doubles_every_round_trip() {
    let mut run = Run::new(Algorithm::Reno, "100gbit", ms(100), u64::MAX);
    let windows: Vec<_> = (0..8)
        .map(|round| {
            run.until(at_ms(100 * round + 50), |_| ());
            run.control().cwnd / MSS
        })
        .collect();
    assert_eq!(windows, [10, 20, 40, 80, 160, 320, 640, 1280]);
}

#[test]
fn ss_2_delayed_acks_double_too() {
    let mut bench = at(10);
    (0..5).for_each(|_| bench.ack(2));
    assert_eq!(bench.cwnd(), 20);
}

#[test]
fn ss_3_slow_start_stops_exactly_at_ssthresh_and_the_rest_feeds_avoidance() {
    let mut bench = at(40);
    bench.signal(Signal::Timeout { first: true });
    assert_eq!((bench.cwnd(), bench.ssthresh()), (1, 20));
    bench.cx.in_loss = true;
    bench.ack(17);
    assert_eq!(bench.cwnd(), 18);
    bench.ack(12);
    assert_eq!(bench.cwnd(), 20, "2 reach ssthresh, 10 are credit");
    bench.acks(9);
    assert_eq!(bench.cwnd(), 20);
    bench.acks(1);
    assert_eq!(bench.cwnd(), 21);
}

#[test]
fn ss_4_no_growth_unless_the_window_was_used() {
    for (outstanding, grown) in [(5, 10), (10, 20)] {
        let mut bench = at(10);
        bench.cx.cwnd_limited = false;
        bench.cx.max_inflight = outstanding * MSS;
        bench.acks(10);
        assert_eq!(bench.cwnd(), grown, "{outstanding} outstanding");
    }
    let mut bench = avoiding(10);
    bench.cx.cwnd_limited = false;
    bench.cx.max_inflight = 10 * MSS;
    bench.acks(100);
    assert_eq!(bench.cwnd(), 10, "the exception is for slow start only");
}

#[test]
fn ss_5_idling_decays_to_the_initial_window() {
    let mut bench = at(10);
    bench.acks(26);
    assert_eq!(bench.cwnd(), 36);
    bench.signal(Signal::Idle { idle: ms(2_000), rto: ms(300) });
    assert_eq!(bench.cwnd(), 10);

    let idle_at = |idle| {
        let mut bench = at(10);
        bench.acks(90);
        bench.lose();
        bench.signal(Signal::Idle { idle, rto: ms(300) });
        (bench.cwnd(), bench.ssthresh())
    };
    assert_eq!(idle_at(ms(300)), (50, 50), "not longer than one RTO");
    assert_eq!(idle_at(ms(301)), (25, 50));
    assert_eq!(idle_at(ms(600)), (25, 50));
    assert_eq!(idle_at(ms(601)), (12, 50));
    assert_eq!(idle_at(Duration::MAX), (10, 50));
}

#[test]
fn un_2_an_undo_restores_window_and_threshold() {
    let mut bench = avoiding(20);
    bench.acks(20);
    bench.signal(Signal::EnterRecovery);
    assert_eq!(bench.cwnd(), 10);
    bench.signal(Signal::SpuriousRecovery);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (21, 20));
    bench.signal(Signal::SpuriousRecovery);
    assert_eq!(bench.cwnd(), 21, "once");

    bench.signal(Signal::Timeout { first: true });
    bench.signal(Signal::Timeout { first: false });
    assert_eq!((bench.cwnd(), bench.ssthresh()), (1, 10));
    bench.signal(Signal::SpuriousTimeout);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (21, 20));
}

/// The window is reduced at most once per window of data (INV-3).
#[test]
fn a_timeout_during_recovery_does_not_cut_again() {
    let mut bench = at(40);
    bench.signal(Signal::EnterRecovery);
    bench.signal(Signal::Timeout { first: true });
    assert_eq!((bench.cwnd(), bench.ssthresh()), (1, 20));
}

#[test]
fn marks_and_repaired_tails_cut_once_and_for_good() {
    for signal in [Signal::EcnEcho, Signal::TlpRepaired] {
        let mut bench = at(40);
        bench.signal(signal);
        assert_eq!((bench.cwnd(), bench.ssthresh()), (20, 20));
        bench.signal(Signal::SpuriousRecovery);
        assert_eq!(bench.cwnd(), 20);
        bench.cx.in_recovery = true;
        bench.signal(signal);
        assert_eq!(bench.cwnd(), 20, "recovery already paid");
    }
}

#[test]
fn the_window_stands_still_in_recovery_and_on_duplicate_acks() {
    let mut bench = avoiding(10);
    bench.cx.in_recovery = true;
    bench.acks(100);
    assert_eq!(bench.cwnd(), 10);
    bench.cx.in_recovery = false;
    let mut duplicate = crate::cc::testing::sample(1);
    (duplicate.una_advanced, duplicate.may_grow) = (false, false);
    (0..100).for_each(|_| bench.cc.on_ack(&bench.cx, &duplicate));
    assert_eq!(bench.cwnd(), 10);
    duplicate.may_grow = true;
    (0..100).for_each(|_| bench.cc.on_ack(&bench.cx, &duplicate));
    assert!(bench.cwnd() > 10, "the path reorders");
}

#[test]
fn windows_are_segments_when_the_segment_size_changes() {
    let mut bench = avoiding(10);
    bench.cx.mss = 500;
    bench.signal(Signal::MssChanged);
    assert_eq!(bench.cc.control().cwnd, 5_000);
}

#[test]
fn control_asks_for_what_linux_does() {
    let control = at(10).cc.control();
    assert_eq!(control.ssthresh, u64::MAX);
    assert_eq!(control.pacing, Pacing::SrttRatio { slow_start: 200, avoidance: 120 });
    assert_eq!(control.send_quantum, SendQuantum::FromRate { min_segments: 2 });
    assert_eq!(control.recovery, Recovery::Prr);
}

/// After the first timeout, the window may be several segments, but no more than the threshold. After a
/// repeated timeout, it is one segment.
#[test]
fn a_loss_window_is_for_the_first_timeout() {
    for (segments, after) in [(20, 4), (3, 2)] {
        let hints = Hints { loss_window: Some(4), ..Hints::default() };
        let mut bench = Bench::hinted(segments, hints, Reno::new);
        bench.signal(Signal::Timeout { first: true });
        assert_eq!(bench.cwnd(), after);
        bench.signal(Signal::Timeout { first: false });
        assert_eq!(bench.cwnd(), 1);
    }
}

/// Until the first flight has left, the sender paces it at the rate of the launch, or at the rate of slow
/// start if ACKs show that this rate is higher. A loss ends the pacing.
#[test]
fn a_launch_paces_the_first_flight() {
    const UNPACED: Pacing = Pacing::SrttRatio { slow_start: 200, avoidance: 120 };
    let rate = Launch::DEFAULT.rate;
    let hints = Hints { launch: Some(Launch::DEFAULT), ..Hints::default() };
    let launched = || Bench::hinted(44, hints.clone(), Reno::new);
    let mut bench = launched();
    assert_eq!((bench.cwnd(), bench.cc.control().pacing), (44, Pacing::Rate(rate)));
    bench.cx.sent = 43 * MSS;
    bench.ack(1);
    assert_eq!((bench.cwnd(), bench.cc.control().pacing), (45, Pacing::Rate(rate)));
    bench.cx.srtt = Some(ms(10));
    bench.ack(1);
    assert_eq!(bench.cc.control().pacing, Pacing::Rate(Rate::from_bps(2 * 45 * MSS * 8 * 100)));
    bench.cx.sent = 44 * MSS;
    bench.ack(1);
    assert_eq!((bench.cwnd(), bench.cc.control().pacing), (47, UNPACED));

    for signal in [Signal::EnterRecovery, Signal::Timeout { first: true }, Signal::TlpRepaired] {
        let mut bench = launched();
        bench.signal(signal);
        assert_eq!(bench.cc.control().pacing, UNPACED, "{signal:?}");
    }
    // After an idle period, nothing paces the flight, so the window decays to ten segments.
    let mut bench = launched();
    bench.signal(Signal::Idle { idle: ms(10_000), rto: ms(300) });
    assert_eq!(bench.cwnd(), 10);
}
