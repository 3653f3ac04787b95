use super::*;
use crate::cc::testing::{Bench, MSS, Run, at_ms, ms, sample};
use crate::cc::{Algorithm, SentKind};

fn at(segments: u64) -> Bench<Vegas> {
    Bench::new(segments, Vegas::new)
}

/// Acknowledges one segment with an RTT sample of `rtt`.
fn ack(bench: &mut Bench<Vegas>, rtt: Duration) {
    bench.cx.snd_una += MSS;
    bench.cc.on_ack(&bench.cx, &AckSample { rtt: Some(rtt), ..sample(1) });
}

/// Acknowledges one round trip of ten segments, all with an RTT of `rtt`; the last ACK ends the round.
fn round(bench: &mut Bench<Vegas>, rtt: Duration) {
    bench.cx.snd_nxt = bench.cx.snd_una + 10 * MSS;
    bench.cc.watch.begin_round(bench.cx.snd_una + 9 * MSS);
    (0..10).for_each(|_| ack(bench, rtt));
}

/// Returns a bench in congestion avoidance with a window of `segments` segments and an empty-path RTT of 100
/// ms.
fn avoiding(segments: u64) -> Bench<Vegas> {
    let mut bench = at(segments);
    bench.cc.watch.base = Some(ms(100));
    bench.cc.window.set(segments);
    assert!(!bench.cc.window.in_slow_start());
    bench
}

/// If two to four segments are queued, the window stays unchanged; otherwise it changes by one segment (VEG-1
/// to VEG-3).
#[test]
fn veg_1_to_3_one_segment_a_round_trip() {
    for (rtt, after, diff) in [(110, 44, 4), (112, 43, 5), (102, 45, 0), (105, 44, 2), (104, 45, 1)] {
        let mut bench = avoiding(44);
        round(&mut bench, ms(rtt));
        assert_eq!((bench.cwnd(), bench.cc.diff), (after, diff), "RTT {rtt} ms");
    }
}

/// More than one queued segment ends slow start, and the window is set to the capacity of the path (VEG-4).
#[test]
fn veg_4_slow_start_ends_before_the_loss() {
    let mut bench = at(20);
    bench.cc.watch.base = Some(ms(100));
    bench.cc.watch.begin_round(bench.cx.snd_una + 9 * MSS);
    // Only the last ACK of a round adjusts the window; the ACKs before it grow the window as in slow start.
    bench.cx.snd_una += 9 * MSS;
    bench.cx.snd_nxt = bench.cx.snd_una + 20 * MSS;
    bench.cc.watch.samples = 9;
    ack(&mut bench, ms(110));
    assert_eq!((bench.cwnd(), bench.ssthresh(), bench.cc.diff), (19, 19, 2));

    let mut bench = at(20);
    bench.cc.watch.base = Some(ms(100));
    round(&mut bench, ms(104));
    assert_eq!(bench.cwnd(), 30, "one segment is no queue");
}

/// If a round has fewer than three RTT samples, the window grows as in Reno, because all samples may come
/// from delayed ACKs.
#[test]
fn few_samples_are_not_believed() {
    let mut bench = avoiding(10);
    bench.cc.watch.begin_round(bench.cx.snd_una + MSS);
    ack(&mut bench, ms(300));
    ack(&mut bench, ms(300));
    assert_eq!(bench.cwnd(), 10);
    assert_eq!(bench.cc.window.control().cwnd / MSS, 10, "two of ten segments of credit");
    assert_eq!(bench.cc.watch.samples, 0, "the next round begins");
}

/// Vegas uses the minimum RTT of a round, so delayed ACKs do not affect it (VEG-10).
#[test]
fn veg_10_delayed_acks_do_not_count() {
    let mut bench = avoiding(44);
    bench.cc.watch.begin_round(bench.cx.snd_una + 9 * MSS);
    for rtt in [140, 140, 140, 105, 140, 140, 140, 140, 140, 140] {
        ack(&mut bench, ms(rtt));
    }
    assert_eq!((bench.cwnd(), bench.cc.diff), (44, 2));
}

/// A loss halves the window as in Reno. Vegas ignores RTT samples during recovery, and starts a new round
/// afterwards.
#[test]
fn a_loss_halves_and_suspends() {
    let mut bench = avoiding(44);
    bench.signal(Signal::EnterRecovery);
    assert_eq!((bench.cwnd(), bench.cc.watch.on), (22, false));
    bench.cx.snd_nxt = bench.cx.snd_una + 22 * MSS;
    bench.signal(Signal::ExitRecovery);
    assert!(bench.cc.watch.on);
    assert_eq!(bench.cc.watch.round_end, bench.cx.snd_nxt);

    bench.cx.inflight = MSS;
    bench.signal(Signal::Timeout { first: true });
    assert_eq!((bench.cwnd(), bench.ssthresh(), bench.cc.watch.on), (1, 11, false));
    assert_eq!(bench.cc.watch.base, Some(ms(100)));
    // With nothing in flight, Vegas measures the path again.
    bench.cx.inflight = 0;
    bench.signal(Signal::Timeout { first: false });
    assert_eq!((bench.cc.watch.base, bench.cc.watch.on), (None, true));
}

/// After an idle period, Vegas measures the path again. The window changes only after a whole flight has been
/// acknowledged.
#[test]
fn idling_forgets_the_path() {
    let mut bench = avoiding(44);
    let sent = Sent {
        offset: 500 * MSS,
        len: MSS,
        kind: SentKind::New,
        first_after_idle: true,
        idle: Duration::ZERO,
        departure: bench.cx.now,
    };
    bench.cc.on_send(&bench.cx, &sent);
    assert_eq!((bench.cc.watch.base, bench.cc.watch.round_end), (None, 500 * MSS));
}

/// A window that is not fully used does not grow (INV-2).
#[test]
fn inv_2_an_unused_window_stays() {
    let mut bench = avoiding(44);
    bench.cx.cwnd_limited = false;
    round(&mut bench, ms(100));
    assert_eq!(bench.cwnd(), 44);
    round(&mut bench, ms(150));
    assert_eq!(bench.cwnd(), 43, "but it shrinks");
}

/// The window never falls below two segments (INV-1).
#[test]
fn the_window_has_a_floor() {
    let mut bench = avoiding(3);
    for _ in 0..5 {
        round(&mut bench, ms(1_000));
    }
    assert_eq!(bench.cwnd(), 2);
}

/// A route change to a longer path looks like a queue (VEG-9). The window shrinks by one segment per round
/// trip and does not recover.
#[test]
fn veg_9_a_longer_path_passes_for_a_queue() {
    let mut run = Run::new(Algorithm::Vegas, "10mbit", ms(40), u64::MAX);
    run.until(at_ms(20_000), |_| ());
    let before = run.control().cwnd / MSS;
    assert!((35..=40).contains(&before), "{before}");
    run.rtt = ms(60);
    let mut windows = Vec::new();
    for second in 21..=30 {
        run.until(at_ms(1_000 * second), |_| ());
        windows.push(run.control().cwnd / MSS);
    }
    assert!(windows.windows(2).all(|pair| pair[1] <= pair[0]), "{windows:?}");
    // With 1.2 ms per packet, diff is cwnd x 20 / 41.2. For ten segments this is 4.85, which rounds down to
    // beta.
    assert_eq!(windows.last(), Some(&10), "{windows:?}");
}

/// Nothing overflows with RTTs of ten seconds and windows of ten million segments, and no division by zero
/// occurs (INV-11).
#[test]
fn extreme_windows_and_times() {
    for (base, rtt) in
        [(Duration::ZERO, Duration::from_secs(10)), (Duration::from_secs(10), Duration::from_secs(100))]
    {
        let mut bench = avoiding(10_000_000);
        bench.cc.watch.base = None;
        bench.cc.watch.add(base);
        round(&mut bench, rtt);
        assert_eq!(bench.cwnd(), 9_999_999);
    }
}
