use super::*;
use crate::cc::testing::{Bench, MSS, Run, at_ms, ms, sample};
use crate::cc::{Algorithm, SentKind};

fn at(segments: u64) -> Bench<Cubic> {
    Bench::new(segments, Cubic::new)
}

fn curve(w_max: u64, cwnd: u64) -> Curve {
    let mut curve = Curve { w_max, ..Curve::default() };
    curve.count(at_ms(1_000), cwnd, 1);
    curve
}

/// Sends the first segment after an idle period of `idle`.
fn resume(bench: &mut Bench<Cubic>, idle: Duration) {
    let departure = bench.cx.now;
    let sent = Sent { offset: 0, len: MSS, kind: SentKind::New, first_after_idle: true, idle, departure };
    bench.cc.on_send(&bench.cx, &sent);
}

/// Acknowledges one segment with an RTT sample of `rtt`.
fn ack_with_rtt(bench: &mut Bench<Cubic>, rtt: Duration) {
    bench.cc.on_ack(&bench.cx, &AckSample { rtt: Some(rtt), ..sample(1) });
}

/// The cubic curve in whole segments, rounded towards the plateau (RFC 9438 section 4.2; CUB-1, with the
/// fixed-point arithmetic of CUB-3).
#[test]
fn cub_1_the_curve() {
    let curve = curve(100, 70);
    let at = |secs: u64| curve.w_cubic(secs << TICK_SHIFT);
    // Exact values: 70, 86.681, 95.640, 99.279, 99.996, 100.192, 102.267, 121.653
    assert_eq!([at(0), at(1), at(2), at(3), at(4)], [70, 87, 96, 100, 100]);
    assert_eq!([at(5), at(6), at(8)], [100, 102, 121]);
}

#[test]
fn cub_2_and_3_time_to_the_plateau() {
    assert_eq!(curve(100, 70).k, 4317);
    let secs = |height| time_to_plateau(height) as f64 / 1024.0;
    for (w_max, k) in [(100.0, 4.217_163), (1_000.0, 9.0856), (10.0, 1.9574)] {
        let got = secs((w_max * 0.3) as u64);
        assert!((got / k - 1.0).abs() < 0.002, "K for {w_max}: {got}");
    }
}

#[test]
fn cube_roots_are_the_nearest_integers() {
    let mut numbers: Vec<u64> = (0..2_000).collect();
    numbers.extend((0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1 << bit) - 1]));
    numbers.push(u64::MAX);
    for n in numbers {
        // The test compares eight times the cube of (root +- 1/2), so that all numbers are integers.
        let twice = 2 * u128::from(cube_root(n));
        let n8 = 8 * u128::from(n);
        assert!(n8 < (twice + 1).pow(3), "cbrt({n}) > {}", twice / 2);
        assert!(n == 0 || (twice - 1).pow(3) < n8, "cbrt({n}) < {}", twice / 2);
    }
}

#[test]
fn cub_4_fast_convergence() {
    let mut curve = Curve::default();
    assert_eq!((curve.cut(100, BETA), curve.w_max), (70, 100));
    assert_eq!((curve.cut(80, BETA), curve.w_max), (56, 68));
}

/// If the loss occurs at or above the last plateau, there is no fast convergence (RFC 9438 section 4.7;
/// CUB-5).
#[test]
fn cub_5_no_fast_convergence_above_the_plateau() {
    let mut curve = Curve { w_max: 80, ..Curve::default() };
    assert_eq!((curve.cut(80, BETA), curve.w_max), (56, 80));
}

#[test]
fn cub_6_at_most_half_a_window_per_round_trip() {
    let mut curve = Curve { w_max: 10, ..Curve::default() };
    assert_eq!(curve.count(at_ms(0), 10, 1), 100 * 10 / 10 * 10, "plateau");
    // After 5 s, W(t) is 10 + 50 segments.
    assert_eq!(curve.count(at_ms(5_000), 10, 1), MIN_COUNT);
    let mut bench = at(10);
    bench.lose();
    let before = bench.cwnd();
    bench.ack(1);
    bench.pass(Duration::from_secs(30));
    bench.acks(before);
    assert!(bench.cwnd() <= before + before / 2 + 1, "{} after {before}", bench.cwnd());
}

#[test]
fn cub_8_the_reno_estimate_grows_by_8_15_per_window() {
    let mut curve = Curve { w_max: 1_000, ..Curve::default() };
    let mut now = at_ms(0);
    // 75 windows of 20 segments are ACKed.
    for _ in 0..75 {
        now += ms(40);
        for _ in 0..20 {
            curve.count(now, 20, 1);
        }
        now += ms(40);
        curve.count(now, 20, 0);
    }
    // alpha is 0.5333, and delta is rounded down from 37.5 to 37 segments.
    assert_eq!(curve.w_est - 20, 1_500 / 37);
}

#[test]
fn cub_9_no_growth_while_the_curve_is_below_the_window() {
    let mut curve = Curve { w_max: 100, ..Curve::default() };
    curve.count(at_ms(0), 70, 1);
    assert_eq!(curve.count(at_ms(100), 99, 1), 9_900);
}

#[test]
fn cub_10_a_timeout_ends_in_a_plateau_at_ssthresh() {
    let mut bench = at(100);
    bench.signal(Signal::Timeout { first: true });
    assert_eq!((bench.cwnd(), bench.ssthresh()), (1, 70));
    bench.cx.in_loss = true;
    bench.ack(69);
    assert_eq!((bench.cwnd(), bench.cc.status().phase), (70, "congestion_avoidance"));
    bench.ack(1);
    assert_eq!((bench.cc.curve.k, bench.cc.curve.origin), (0, 70));
    assert_eq!(bench.cwnd(), 70, "no jump");
}

#[test]
fn cub_11_idle_time_does_not_count() {
    let mut bench = at(100);
    bench.lose();
    bench.ack(1);
    let grown = |bench: &mut Bench<Cubic>| {
        bench.pass(ms(50));
        bench.acks(70);
        bench.cwnd()
    };
    let before = grown(&mut bench);
    let epoch = bench.cc.curve.epoch.unwrap();
    let age = bench.cx.now.saturating_since(epoch);
    bench.pass(Duration::from_secs(30));
    resume(&mut bench, Duration::from_secs(30));
    let epoch = bench.cc.curve.epoch.unwrap();
    assert_eq!(bench.cx.now.saturating_since(epoch), age);
    assert!(grown(&mut bench) <= before + 3);
}

/// An ECN mark reduces the window like a loss (CUB-12). Linux keeps at least two segments in both cases.
#[test]
fn cub_12_a_mark_cuts_like_a_loss() {
    let mut bench = at(100);
    bench.signal(Signal::EcnEcho);
    assert_eq!((bench.cwnd(), bench.ssthresh()), (70, 70));
    let mut bench = at(2);
    bench.signal(Signal::EcnEcho);
    assert_eq!(bench.cwnd(), 2);
}

#[test]
fn growth_before_the_first_loss_is_five_percent_a_round_trip() {
    let mut curve = Curve::default();
    curve.count(at_ms(0), 200, 1);
    assert_eq!(curve.count, MAX_COUNT_WITHOUT_LOSS);
}

/// If HyStart ends slow start without a loss, the plateau is the current window (HS-6).
#[test]
fn hs_6_after_hystart_the_plateau_is_here() {
    let mut bench = at(100);
    bench.cx.snd_nxt = 100 * MSS;
    ack_with_rtt(&mut bench, ms(100));
    bench.cx.snd_una = MSS;
    for _ in 0..9 {
        bench.pass(ms(3));
        ack_with_rtt(&mut bench, ms(120));
    }
    let cwnd = bench.ssthresh();
    assert_eq!(bench.cc.status().phase, "congestion_avoidance");
    assert_eq!((bench.cc.curve.k, bench.cc.curve.origin), (0, cwnd));
}

/// On a path with a buffer of two BDP, HyStart ends slow start before the first loss.
#[test]
fn hystart_leaves_before_the_loss() {
    let mut run = Run::new(Algorithm::Cubic, "100mbit", ms(40), 1_000_000);
    run.until(at_ms(1_000), |_| ());
    assert_eq!(run.cx.lost, 0);
    assert_ne!(run.control().ssthresh, u64::MAX);
}

/// Returns the mean congestion window if one segment is lost for every `segments` segments delivered.
fn mean_window(rtt: Duration, segments: u64) -> f64 {
    let mut bench = at(200);
    bench.lose();
    let (mut area, mut rounds) = (0, 0);
    for cycle in 0..60 {
        let mut left = segments;
        while left > 0 {
            let window = bench.cwnd().min(left);
            bench.pass(rtt);
            bench.acks(window);
            left -= window;
            if cycle >= 20 {
                area += window;
                rounds += 1;
            }
        }
        bench.lose();
    }
    area as f64 / f64::from(rounds)
}

/// On a short path, the mean window is that of AIMD(0.53, 0.7), not the 5.9 segments of the cubic function
/// (RFC 9438 section 4.3; CUB-7).
#[test]
fn cub_7_reno_region() {
    let mean = mean_window(ms(10), 1_000);
    assert!((mean / 38.7 - 1.0).abs() < 0.08, "mean window {mean}");
}

/// On a long path, the mean window is that of the cubic function.
#[test]
fn a_20_deterministic_loss() {
    let mean = mean_window(ms(100), 10_000);
    assert!((mean / 187.4 - 1.0).abs() < 0.05, "mean window {mean}");
}

/// Nothing overflows at the limits of the window and time ranges (INV-11).
#[test]
fn extreme_windows_and_times() {
    let mut bench = at(10_000_000);
    bench.lose();
    for secs in [0, 1, 100, 10_000, 100_000_000] {
        bench.pass(Duration::from_secs(secs));
        bench.ack(1);
        bench.ack(10_000_000);
        assert!((7_000_000..u64::MAX / MSS).contains(&bench.cwnd()));
    }
}
