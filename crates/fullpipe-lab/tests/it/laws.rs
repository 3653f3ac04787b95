//! Closed-form throughput models for simple paths, compared with the simulator.
//!
//! Labels such as A-8 are explained in `docs/evidence/conformance.md`. Tolerances that do not follow from the
//! model are explained in comments.

use crate::rig;
use crate::rig::*;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::stats::median;
use fullpipe_lab::workload::Writing;
use fullpipe_tcp::cc::Algorithm::{self, Bbr1, Bbr3, Bic, Cubic, Reno, Surge, Vegas};
use fullpipe_units::{Bytes, Draws, Duration, Instant, Rate};
use std::sync::LazyLock;

// The following tests check conservation of packets and header overhead.

/// Goodput is 1448/1500 of the link's IP rate; no other capacity is lost. The queue is deeper than the
/// BDP, so that it never runs empty, not even while a small transmission waits for the next ACK.
#[test]
fn a_8_goodput_ceiling() {
    for cc in [Reno, Cubic] {
        let run = run(&link(cc, "48mbit", ms(20), 120, 20));
        assert_near(run.goodput(0, 5.0), 48e6 * 1448.0 / 1500.0, 0.0005, cc.name());
    }
}

/// Every packet that the sender offers to the path is delivered, dropped or in flight. No packet
/// appears or vanishes.
#[test]
fn a_2_conservation() {
    for cc in Algorithm::ALL {
        let mut scenario = lossy(link(cc, "20mbit", ms(40), 30, 20), 5_000, 7);
        scenario.flows[0].bytes = Some(Bytes::from_mib(8));
        let run = run(&scenario);
        let (flow, path) = (&run.outcome.flows[0], run.outcome.path);
        assert!(flow.finished.is_some());
        assert_eq!(flow.bytes, Bytes::from_mib(8));
        let first = Bytes::from_mib(8).get().div_ceil(MSS);
        assert_eq!(path.delivered + path.queue_drops + path.random_drops, first + flow.retransmits, "{cc}");
    }
}

// The following tests check the limit by a fixed window.

/// Longest time for which TSO deferral leaves part of the window unused.
const DEFERRED: Duration = Duration::from_millis(1);

/// Throughput equals window / RTT if there is no other limit.
#[test]
fn a_11_window_over_rtt() {
    for (window, rtt) in [(65_535, 210), (1_040, 10), (6_291_456, 140), (4_194_304, 210)] {
        let mut scenario = link(Cubic, "max", ms(rtt), 1 << 30, 30);
        scenario.host.window_clamp = Some(Bytes::new(window));
        // Trace rows are one round trip apart, so the measured period contains only whole round trips.
        scenario.sample_every = ms(rtt);
        let law = 8e3 * window as f64 / rtt as f64;
        assert_near(run(&scenario).goodput(0, 5.0), law, 0.001, &format!("{window} B in {rtt} ms"));
    }
}

/// If a window W is larger than the BDP D, W - D is in the queue, including one packet in transmission
/// . The throughput is then the link rate, and the RTT is W / rate. With a window smaller than D, the
/// queue is empty. TSO deferral leaves part of the window unused for at most 1 ms.
#[test]
fn a_12_a_fixed_window_and_its_queue() {
    // A packet takes 250 us and the RTT is 50 ms: D = 200 packets, and one more is in transmission.
    for (window, queue) in [(300, 99), (500, 299), (150, 0)] {
        let mut scenario = link(Reno, "48mbit", ms(50), 1 << 30, 20);
        scenario.host.window_clamp = Some(Bytes::new(window * MSS));
        scenario.sample_every = ms(75);
        let run = run(&scenario);
        if queue > 0 {
            let last = run.rows.last().expect("rows");
            let srtt = last.sender.srtt.expect("measured");
            let law = Duration::from_micros(250 * window);
            assert!(srtt <= law && law <= srtt + DEFERRED, "{srtt}");
            assert_near(run.goodput(0, 5.0), 48e6 * 1448.0 / 1500.0, 0.0005, "the link's rate");
            for row in run.rows_of(0, 5.0) {
                // Each ACK covers two segments and allows two more to be sent; four more packets leave within
                // the time of a deferral.
                assert!((queue - 7..=queue + 1).contains(&(queue_of(row) / PACKET)), "{}", queue_of(row));
            }
        } else {
            let rate = |rtt: Duration| 8.0 * (window * MSS) as f64 / rtt.as_secs_f64();
            let (rtt, goodput) = (Duration::from_micros(50_250), run.goodput(0, 5.0));
            let law = 0.99 * rate(rtt + DEFERRED)..1.01 * rate(rtt);
            assert!(law.contains(&goodput), "window per RTT: {goodput}, {law:?}");
        }
    }
}

// The following tests check the start of a flow.

/// Slow start sends N bytes in k = ceil(log2(N / 10 MSS + 1)) rounds. The completion time is k RTT,
/// plus one RTT for the handshake, plus the serialisation time of the last round.
#[test]
fn a_13_flow_completion() {
    for (bytes, rounds) in [(14_480, 1), (100_000, 3), (1_000_000, 7), (10_000_000, 10)] {
        for cc in [Reno, Cubic] {
            let mut scenario = link(cc, "10gbit", ms(100), 1 << 30, 5);
            scenario.flows[0].bytes = Some(Bytes::new(bytes));
            let finished = run(&scenario).outcome.flows[0].finished.expect("finishes");
            let law = 0.1 * (1 + rounds) as f64;
            let took = finished.saturating_since(Instant::ZERO).as_secs_f64();
            assert_near(took, law, 0.01, &format!("{bytes} bytes with {cc}"));
        }
    }
}

/// RFC 6928: the first flight is ten segments, or exactly the initial window that the route sets. Surge has a
/// launch of 44 segments.
#[test]
fn the_first_flight_is_the_initial_window() {
    for initcwnd in [None, Some(30), Some(3)] {
        for cc in Algorithm::ALL {
            let segments = initcwnd.unwrap_or(if cc == Algorithm::Surge { 44 } else { 10 });
            let mut scenario = link(cc, "100mbit", ms(100), 1_000, 1);
            scenario.host.initcwnd = initcwnd;
            scenario.sample_every = ms(5);
            // The handshake takes 100 ms. The first data is acknowledged after 200 ms plus at most 3.6 ms of
            // serialisation.
            let ran = run(&scenario);
            let flight = ran.rows.iter().filter(|row| row.at > at(0.1) && row.at <= at(0.2));
            let most = flight.map(|row| row.sender.flight_size.get()).max();
            assert_eq!(most, Some(u64::from(segments) * MSS), "{cc} {initcwnd:?}");
        }
    }
}

/// RFC 5681 section 4.1, as in Linux: the congestion window is halved for each RTO of idle time, so that a
/// burst after a long pause starts slowly again. If the window is not reduced, the whole burst is sent at
/// once and takes one round trip.
#[test]
fn a_burst_after_a_pause_starts_slowly_or_leaves_whole() {
    // The burst takes rounds of 10, 20 and 34 segments. The pause of two seconds is longer than six RTOs of
    // 300 ms.
    let burst = Bytes::new(64 * MSS);
    let rate = Rate::of(burst, ms(2_000));
    for (shrinks, rounds) in [(true, 3), (false, 1)] {
        for cc in [Reno, Cubic] {
            let mut scenario = link(cc, "10gbit", ms(100), 1 << 30, 5);
            scenario.host.slow_start_after_idle = shrinks;
            scenario.flows[0].workload.writing = Writing::Paced { rate, chunk: burst };
            scenario.flows[0].bytes = Some(burst.mul_div(2, 1));
            let finished = run(&scenario).outcome.flows[0].finished.expect("finishes");
            let law = 0.1 + 2.0 + 0.1 * f64::from(rounds);
            let took = finished.saturating_since(Instant::ZERO).as_secs_f64();
            assert_near(took, law, 0.01, &format!("{cc}, shrinks: {shrinks}"));
        }
    }
}

/// Slow start overflows a short queue. When the first loss is detected, the window is about
/// twice the window W at which the first drop occurred, and about W is lost. W is 2.5 B if the queue B is
/// short, and D + B if it is long. The models of the overshoot are of first order, so the peak has a
/// tolerance of 10 %.
#[test]
fn a_15_overshoot() {
    for queue in [50, 100, 200] {
        let mut scenario = link(Reno, "48mbit", ms(50), queue, 3);
        scenario.sample_every = ms(5);
        let run = run(&scenario);
        let peak = run.rows.iter().map(|row| row.sender.cwnd.get() / MSS).max().expect("rows") as f64;
        let dropping = if queue < 125 { 2.5 * queue as f64 } else { 200.0 + queue as f64 };
        assert_near(peak, 2.0 * dropping, 0.10, &format!("peak window, queue {queue}"));
        let drops = run.outcome.path.queue_drops as f64;
        assert!(drops >= 0.5 * dropping && drops <= 1.25 * dropping, "{drops} drops, queue {queue}");
    }
}

/// BBR's Startup reaches the link rate after log2(D/10) rounds; the trace shows this one round later.
/// BBR detects that the pipe is full after three rounds without growth. Each of these rounds takes up to 2.9
/// RTT, because the queue is deep here.
#[test]
fn a_16_bbr_startup() {
    for (rate, seconds) in [("1gbit", 2.9), ("105mbit", 2.3)] {
        let mut scenario = link(Bbr1, rate, ms(210), 1 << 20, 8);
        scenario.sample_every = ms(10);
        let run = run(&scenario);
        let line = rate.parse::<Rate>().expect("a rate").as_bps() as f64 * 1448.0 / 1500.0;
        let full = run
            .rows
            .windows(22)
            .find(|w| 8.0 * (received(&w[21]) - received(&w[0])) as f64 / 0.21 > 0.95 * line)
            .map(|w| w[21].at.saturating_since(Instant::ZERO).as_secs_f64());
        assert_near(full.expect("reaches it"), seconds, 0.06, rate);
        let left = run.rows.iter().find(|row| truth(row).status.phase == "Drain").expect("leaves Startup");
        let left = left.at.saturating_since(Instant::ZERO).as_secs_f64();
        assert!(left > seconds - 0.3 && left < seconds + 3.0 * 2.9 * 0.21, "{rate}: left at {left:.2} s");
    }
}

// The following tests compare throughput under loss with models.

/// Returns the mean window in segments, computed from the goodput and averaged over several seeds.
fn mean_window(cc: Algorithm, mtu: u64, rtt: Duration, ppm: u64, seconds: u64, seeds: u64) -> f64 {
    let windows = (1..=seeds).map(|seed| {
        let mut scenario = lossy(link(cc, "max", rtt, 1 << 30, seconds), ppm, seed);
        scenario.path.mtu = mtu;
        run(&scenario).goodput(0, 20.0) / 8.0 / (mtu - 52) as f64 * rtt.as_secs_f64()
    });
    windows.sum::<f64>() / seeds as f64
}

/// Mean window of Reno at 1000 ppm and 50 ms, which two models describe.
static RENO_AT_1000_PPM: LazyLock<f64> = LazyLock::new(|| mean_window(Reno, 1500, ms(50), 1_000, 250, 6));

/// Mathis model: W = sqrt(3 / 2p) (A-17, RENO-6). b_ack is 1, because growth counts segments instead of ACKs,
/// and the receiver acknowledges every segment while its window opens, which is always the case with buffers
/// of this size. Independent loss adds 7 % in comparison with periodic loss (the mean over geometric gaps is
/// 1.31 / sqrt p).
#[test]
fn a_17_mathis() {
    for (mtu, rtt, ppm, seconds, seeds) in
        [(1512, 100, 100, 600, 4), (1500, 50, 1_000, 250, 6), (1500, 50, 10_000, 100, 6)]
    {
        let law = (1.5e6 / ppm as f64).sqrt();
        let window = match ppm {
            1_000 => *RENO_AT_1000_PPM,
            _ => mean_window(Reno, mtu, ms(rtt), ppm, seconds, seeds),
        };
        assert_near(window, law, 0.10, &format!("Reno at {ppm} ppm"));
    }
}

/// Returns the mean window of an AIMD or CUBIC flow under independent loss, according to a fluid model.
///
/// The fluid model integrates the differential equation of the window over epochs that end after a
/// geometrically distributed number of segments. The loss is detected one round trip later.
fn fluid_mean_window(
    p: f64,
    rtt: f64,
    keep: f64,
    grow: impl Fn(f64, f64, f64) -> f64,
    plateau: impl Fn(f64, f64) -> f64,
) -> f64 {
    let draws = Draws::new(1, 1);
    let (mut window, mut w_max, mut time, mut sum) = (1.0 / p.sqrt(), 1.0 / p.sqrt(), 0.0, 0.0);
    for epoch in 0..100_000 {
        let uniform = (draws.at(epoch) as f64 + 1.0) / (u64::MAX as f64 + 2.0);
        let mut left = -uniform.ln() / p;
        let (start, mut elapsed) = (window, 0.0);
        let mut last = false;
        loop {
            sum += window;
            time += 1.0;
            elapsed += rtt;
            if last {
                break;
            }
            last = left < window;
            left -= window;
            window = grow(start, w_max, elapsed);
        }
        w_max = plateau(window, w_max);
        window = (window * keep).max(2.0);
    }
    sum / time
}

fn cubic_window(rtt: f64) -> impl Fn(f64, f64, f64) -> f64 {
    move |start, w_max, elapsed| {
        let k = ((w_max - start).max(0.0) / 0.4).cbrt();
        let cubic = 0.4 * (elapsed - k).powi(3) + w_max.max(start);
        cubic.max(start + 8.0 / 15.0 * elapsed / rtt)
    }
}

/// Reno's sawtooth, integrated with geometrically distributed gaps between losses (A-18, RENO-5). (A unit
/// test of the controller covers periodic loss.)
#[test]
fn a_18_reno_sawtooth_under_independent_loss() {
    let law = fluid_mean_window(0.001, 0.05, 0.5, |start, _, t| start + t / 0.05, |w, _| w);
    // The expected value is 1.31 / sqrt p, minus the effects of one round trip of loss detection and of
    // rounding to whole segments.
    assert_near(law, 1.31 / 0.001f64.sqrt(), 0.05, "the integral itself");
    assert_near(*RENO_AT_1000_PPM, law, 0.05, "Reno");
}

/// The CUBIC model 1.054 (RTT/p)^0.75 is for periodic loss, which a unit test of the controller covers
/// . With geometrically distributed gaps and fast convergence, CUBIC's own equation gives a window that
/// is about 15 % larger. The simulator's window is within 5 % of this value, which is the tolerance for the
/// kernel profile.
#[test]
fn a_20_cubic_under_independent_loss() {
    let plateau = |window: f64, w_max: f64| if window < w_max { 0.85 * window } else { window };
    let law = fluid_mean_window(1e-4, 0.1, 0.7, cubic_window(0.1), plateau);
    let periodic = 1.054 * (0.1f64 / 1e-4).powf(0.75);
    let window = mean_window(Cubic, 1500, ms(100), 100, 600, 4);
    assert!(window > 0.95 * periodic && window < 1.25 * periodic, "{window:.1} of {periodic:.1}");
    assert_near(window, law, 0.05, "CUBIC at 100 ppm and 100 ms");
}

/// On a short path, CUBIC's mean window is that of AIMD(0.53, 0.7): 1.2 / sqrt p (A-21, CUB-7).
#[test]
fn a_21_cubic_in_the_reno_region() {
    let window = mean_window(Cubic, 1500, ms(10), 100, 80, 3);
    assert_near(window, 120.0, 0.05, "CUBIC at 100 ppm and 10 ms");
}

// The following tests compare buffer size and utilisation with models.

/// Returns the utilisation after 20 s of warm-up, on a path with a BDP of 200 packets.
fn utilisation(cc: Algorithm, queue: u64, paced: bool) -> f64 {
    let mut scenario = link(cc, "48mbit", ms(50), queue, 140);
    scenario.host.fair_queue = paced;
    run(&scenario).utilisation("48mbit", 20.0)
}

/// Utilisation of one Reno flow with a queue of x BDP: U = 0.75 (1+x)^2 / (1+x+x^2), and 1 from x = 1
/// on.
#[test]
fn a_23_reno_buffer_and_utilisation() {
    for (queue, law) in [(20, 0.818), (50, 0.893), (100, 0.964), (150, 0.993), (200, 1.0)] {
        assert_near(utilisation(Reno, queue, false), law, 0.015, &format!("queue {queue}"));
    }
    // Without pacing, a queue with x near 0 has no room for the two segments that each ACK releases. A queue
    // of five packets is x = 0.025.
    assert_near(utilisation(Reno, 5, true), 0.769, 0.015, "queue 5");
}

/// Utilisation of one CUBIC flow. Linear growth from 0.7 W gives a lower bound (0.921,
/// 0.981); CUBIC's own curve gives 0.925 at x = 0. CUBIC fills the link from x = 1/0.7 - 1 = 0.43 on, Reno
/// only from x = 1 on.
#[test]
fn a_24_to_26_cubic_buffer_and_utilisation() {
    for (queue, linear) in [(20, 0.921), (50, 0.981)] {
        let used = utilisation(Cubic, queue, false);
        assert!(used > linear - 0.015 && used <= 1.001, "queue {queue}: {used:.4}");
    }
    assert_near(utilisation(Cubic, 86, false), 1.0, 0.005, "x = 0.43");
    assert_near(utilisation(Cubic, 5, true), 0.925, 0.015, "x = 0.025");
    assert!(utilisation(Reno, 86, false) < 0.96, "Reno needs a whole BDP");
}

// The following test checks how flows share a link.

/// Flows with equal settings reach equal shares of a full link within a minute (A-28, INV-8).
#[test]
fn a_28_equal_flows_share_equally() {
    for cc in [Reno, Bic, Cubic] {
        for n in [2, 10] {
            let of = |spacing| {
                let run = run(&flows_apart(link(cc, "48mbit", ms(50), 200, 120), n, spacing));
                assert!(run.utilisation("48mbit", 20.0) >= 0.99);
                jain(&(0..n as u32).map(|flow| run.goodput(flow, 60.0)).collect::<Vec<f64>>())
            };
            let jains: Vec<f64> = SPACINGS.into_iter().map(of).collect();
            assert!(median(jains.clone()) >= Some(0.95), "{n} {cc}: Jain {jains:.4?}");
        }
    }
}

// The following tests check BBRv1 in steady state.

fn bbr(rate: &str, rtt: u64, queue: u64, seconds: u64) -> rig::Run {
    let mut scenario = link(Bbr1, rate, ms(rtt), queue, seconds);
    scenario.sample_every = ms(10);
    run(&scenario)
}

/// One BBRv1 flow uses 0.97 of the link. The mean queue is below 0.1 BDP, and the longest queue is
/// 0.25 BDP plus send quanta (bound in this test: 0.36 BDP + 8 packets).
///
/// At an RTT of 100 ms, the utilisation is 0.965: ProbeRTT lasts 200 ms plus one round trip with four
/// segments in flight, and refilling the pipe takes one more round trip; in total, this costs 0.35 s of every
/// 10.3 s. On a path with a BDP of 33 packets, the mean queue is 0.22 BDP, because the cruising target
/// includes three send quanta, which are seven packets for any BDP.
#[test]
fn a_32_one_bbr_flow() {
    for (rate, rtt, bdp, used, mean_queue) in [
        ("10mbit", 40, 33.0, 0.97, 0.24),
        ("100mbit", 40, 333.0, 0.97, 0.1),
        ("100mbit", 100, 833.0, 0.964, 0.1),
        ("1gbit", 20, 1667.0, 0.97, 0.1),
    ] {
        let run = bbr(rate, rtt, bdp as u64, 50);
        let got = run.utilisation(rate, 20.0);
        assert!(got >= used, "{rate}, {rtt} ms: {got:.4}");
        let queue = run.mean(20.0, |row| queue_of(row) as f64) / PACKET as f64 / bdp;
        assert!(queue < mean_queue, "{rate}, {rtt} ms: mean queue {queue:.3} D");
        let most = run.rows_of(0, 20.0).map(|row| queue_of(row) / PACKET).max().expect("rows") as f64;
        assert!(most <= 0.36 * bdp + 8.0, "{rate}, {rtt} ms: longest queue {most}");
    }
}

/// ProbeRTT empties the queue, so BBR's minimum RTT is exactly the propagation delay plus the serialisation
/// time of the two segments that an ACK covers.
#[test]
fn a_36_min_rtt_after_probe_rtt() {
    let run = bbr("10mbit", 40, 33, 25);
    let model = |row: &fullpipe_lab::trace::Row| truth(row).status.values[1].1;
    // The propagation delay is 40 ms, and a packet takes 1.2 ms: the ACK waits for the second packet of a
    // pair.
    for row in run.rows_of(0, 10.5).filter(|row| truth(row).status.phase != "ProbeRTT") {
        assert!((41.2..=42.4).contains(&model(row)), "{} ms at {}", model(row), row.at.as_nanos());
    }
    assert_eq!(run.outcome.flows[0].rtt.expect("measured").min, Duration::from_micros(41_200));
}

/// ProbeRTT starts 10 s after the previous ProbeRTT, and it lasts 200 ms plus one round trip (B1-7).
#[test]
fn b1_7_probe_rtt() {
    for (rate, rtt) in [("10mbit", 40), ("100mbit", 100)] {
        let run = bbr(rate, rtt, 800, 45);
        let (mut entered, mut left) = (Vec::new(), vec![0]);
        let mut inside = false;
        for row in run.rows_of(0, 0.1) {
            let now = truth(row).status.phase == "ProbeRTT";
            if now != inside {
                if now { &mut entered } else { &mut left }.push(row.at.as_nanos() / 1_000_000);
                inside = now;
            }
        }
        assert_eq!(entered.len(), 4, "{entered:?}");
        for (from, to) in left.iter().zip(&entered) {
            assert!((10_000 - rtt..=10_000 + 2 * rtt + 20).contains(&(to - from)), "{from} to {to}");
        }
        for (from, to) in entered.iter().zip(&left[1..]) {
            // ProbeRTT lasts until four segments are in flight, plus 200 ms, plus the 10 ms between trace
            // rows.
            assert!((200..=200 + 2 * rtt + 10).contains(&(to - from)), "{from} to {to}");
        }
    }
}

/// 1 % of loss costs BBRv1 little more than 1 % of its rate: at least 90 of 100 Mbit/s remain (B1-11). Reno
/// gets the 1.4 Mbit/s of the Mathis model.
#[test]
fn b1_11_random_loss() {
    for seed in 1..=3 {
        let scenario = |cc| lossy(link(cc, "100mbit", ms(100), 833, 40), 10_000, seed);
        let bbr = run(&scenario(Bbr1)).goodput(0, 5.0);
        assert!(bbr >= 90e6, "{:.1} Mbit/s", bbr / 1e6);
        assert!(run(&scenario(Reno)).goodput(0, 5.0) < 2e6);
    }
}

// The following tests check BBRv3.

/// One BBRv3 flow uses 0.96 of the link. Halving the window for 200 ms and one round trip every five
/// seconds costs 2 to 3 % of the rate. Pacing stays 1 % below the rate, and probes fill the queue for three
/// rounds.
#[test]
fn a_33_one_bbr3_flow() {
    for (rate, rtt, bdp, used) in [
        ("10mbit", 40, 33, 0.965),
        ("100mbit", 40, 333, 0.965),
        ("100mbit", 100, 833, 0.96),
        ("1gbit", 20, 1_667, 0.965),
    ] {
        let mut scenario = link(Bbr3, rate, ms(rtt), bdp, 50);
        scenario.sample_every = ms(10);
        let run = run(&scenario);
        let got = run.utilisation(rate, 20.0);
        assert!(got >= used, "{rate}, {rtt} ms: {got:.4}");
        let queue = run.mean(20.0, |row| queue_of(row) as f64) / PACKET as f64 / bdp as f64;
        assert!(queue < 0.13, "{rate}, {rtt} ms: mean queue {queue:.3} D");
        // When Startup ends, at most one BDP is in the queue, which has room for it, so no loss follows.
        assert!(run.outcome.path.queue_drops * 100 < run.outcome.path.delivered, "{rate}, {rtt} ms");
    }
}

/// With a loss rate of p, BBRv3's rate falls by p in each round trip of cruising, and a probe every 2 to 3 s
/// restores the full rate (B3-10). The mean over n = 20 to 30 round trips of 100 ms is (1 - (1-p)^n) / np of
/// the full rate.
#[test]
fn b3_10_random_loss_below_the_threshold() {
    for (ppm, p) in [(1_000, 0.001), (10_000, 0.01)] {
        let line = 100e6 * 1448.0 / 1500.0;
        let rates = (1..=3)
            .map(|seed| run(&lossy(link(Bbr3, "100mbit", ms(100), 833, 60), ppm, seed)).goodput(0, 20.0));
        let mean = rates.sum::<f64>() / 3.0;
        let kept = |n: i32| (1.0 - (1.0f64 - p).powi(n)) / (f64::from(n) * p);
        // The expected rate is the utilisation of 0.96 from A-33, reduced by the share that is lost.
        let law = |n| 0.96 * line * (1.0 - p) * kept(n);
        assert!((0.95 * law(30)..1.05 * law(20)).contains(&mean), "{ppm} ppm: {:.1} Mbit/s", mean / 1e6);
    }
}

/// BBRv3 interprets loss above 2 % as too much data in flight and reduces its rate; BBRv1 does not (B3-6).
#[test]
fn b3_6_random_loss_above_the_threshold() {
    let of = |cc, seed| run(&lossy(link(cc, "100mbit", ms(100), 833, 60), 30_000, seed)).goodput(0, 20.0);
    let goodput = |cc, seeds| median((1..=seeds).map(|seed| of(cc, seed)).collect()).expect("runs");
    let (three, one) = (goodput(Bbr3, 15), goodput(Bbr1, 3));
    assert!(three < 10e6 && one > 85e6, "{three:.0} and {one:.0} bit/s");
}

/// BBRv3 flows converge because they leave headroom and probe at different times (INV-8). With a BDP of 200
/// packets, convergence takes minutes rather than seconds.
#[test]
fn two_bbr3_flows_converge() {
    for seed in 1..=2 {
        let mut scenario = flows(link(Bbr3, "48mbit", ms(50), 200, 200), 2);
        scenario.seed = seed;
        let run = run(&scenario);
        let shares = [run.goodput(0, 20.0), run.goodput(1, 20.0)];
        assert!(jain(&shares) >= 0.95, "seed {seed}: Jain {:.4}", jain(&shares));
        assert!(run.utilisation("48mbit", 20.0) > 0.97);
    }
}

/// Returns the share of the link that `cc` gets in competition with CUBIC. The link rate is 10 Mbit/s, the
/// RTT is 40 ms, and the queue holds `queue` BDP.
fn share_beside_cubic(cc: Algorithm, queue: u64) -> f64 {
    let mut scenario = flows(link(cc, "10mbit", ms(40), 33 * queue, 120), 2);
    scenario.flows[1].cc = Cubic.into();
    let run = run(&scenario);
    let (own, other) = (run.goodput(0, 20.0), run.goodput(1, 20.0));
    own / (own + other)
}

/// In competition with CUBIC, BBRv3 gets at most the share that Ware's formula gives BBRv1. With a
/// queue of one BDP, BBRv3 gets about half of the link, and BBRv1 gets four fifths.
#[test]
fn a_35_bbr3_beside_cubic() {
    for (queue, of_version_1) in [(2, 0.78), (4, 0.63), (8, 0.55), (16, 0.49)] {
        let share = share_beside_cubic(Bbr3, queue);
        assert!(share <= of_version_1, "{queue} D: {share:.3}");
    }
    let (one, three) = (share_beside_cubic(Bbr1, 1), share_beside_cubic(Bbr3, 1));
    assert!((0.4..0.6).contains(&three) && one > 0.75, "1 D: {three:.3}, version 1 {one:.3}");
}

/// In competition with CUBIC, surge gets the share that BBRv1 gets in its place.
#[test]
fn surge_beside_cubic() {
    for queue in [1, 2, 4] {
        let (surge, bbr) = (share_beside_cubic(Surge, queue), share_beside_cubic(Bbr1, queue));
        assert!(surge <= bbr + 0.03, "{queue} D: {surge:.3}, BBRv1 {bbr:.3}");
    }
}

// The following tests check BIC and Vegas.

/// BIC reduces its window to four fifths, so with a queue of a quarter BDP, the window stays above the BDP
/// (A-26 for BIC).
#[test]
fn a_26_bic_buffer_and_utilisation() {
    assert_near(utilisation(Bic, 50, false), 1.0, 0.005, "x = 0.25");
}

/// One Vegas flow on an empty path fills the link, keeps two to four segments in the queue and loses nothing
/// (VEG-5). The path holds 33.3 segments and one in transmission, and `diff` is rounded down, so windows are
/// 36.4 to 39.3 segments.
#[test]
fn veg_5_one_flow() {
    let mut scenario = link(Vegas, "10mbit", ms(40), 100, 40);
    scenario.sample_every = ms(10);
    let run = run(&scenario);
    assert!(run.utilisation("10mbit", 20.0) > 0.999);
    assert_eq!(run.outcome.path.queue_drops, 0);
    for row in run.rows_of(0, 20.0) {
        assert!((36..=39).contains(&(row.sender.cwnd.get() / MSS)), "{}", row.sender.cwnd.get() / MSS);
        assert!((2..=5).contains(&(queue_of(row) / PACKET)), "{}", queue_of(row) / PACKET);
    }
}

/// Vegas flows that all started on an empty path keep two to four segments each in the queue (VEG-6, A-38).
#[test]
fn veg_6_several_flows() {
    for n in [2, 4] {
        // Sending an initial window of ten segments takes 2.5 ms on this link; with these start times, the
        // initial windows do not overlap.
        let mut scenario = flows(link(Vegas, "48mbit", ms(50), 2_000, 120), n);
        for (i, flow) in scenario.flows.iter_mut().enumerate() {
            flow.start = ms(8 * i as u64);
        }
        scenario.sample_every = ms(50);
        let run = run(&scenario);
        assert!(run.utilisation("48mbit", 60.0) > 0.999);
        let queue = run.mean(60.0, |row| queue_of(row) as f64) / PACKET as f64;
        // `diff` is rounded down, so each flow may have up to five segments in the queue. One segment of one
        // of the flows is in transmission.
        assert!(queue >= 2.0 * n as f64 - 1.0 && queue < 5.0 * n as f64, "{n}: {queue:.1} packets");
    }
}

/// A Vegas flow that starts while the other flows have packets in the queue mistakes this queue for
/// propagation delay and gets more than its share (VEG-7). The last of four flows, started 137 ms apart, gets
/// more than half of the link.
#[test]
fn veg_7_the_last_takes_most() {
    let run = run(&flows(link(Vegas, "48mbit", ms(50), 2_000, 120), 4));
    let shares: Vec<f64> = (0..4).map(|flow| run.goodput(flow, 60.0)).collect();
    assert!(shares[3] > 0.5 * shares.iter().sum::<f64>(), "{shares:?}");
}

/// Reno fills the queue, and Vegas attributes the queue to its own packets (VEG-8). In competition with Reno
/// and with a queue of 2 BDP, Vegas gets less than 30 % of the link.
#[test]
fn veg_8_beside_reno() {
    let mut scenario = flows(link(Vegas, "48mbit", ms(50), 400, 120), 2);
    scenario.flows[1].cc = Reno.into();
    let run = run(&scenario);
    let (vegas, reno) = (run.goodput(0, 20.0), run.goodput(1, 20.0));
    assert!(vegas < 0.3 * (vegas + reno), "{vegas:.0} beside {reno:.0}");
}

// The following tests check invariants of every controller.

fn hard_path(cc: Algorithm, seed: u64) -> Scenario {
    lossy(flows(link(cc, "30mbit", ms(40), 60, 15), 3), 2_000, seed)
}

/// The congestion window never falls below its minimum (one segment after a timeout), and all values are
/// plausible (INV-1, INV-11).
#[test]
fn inv_1_window_floors() {
    for cc in Algorithm::ALL {
        let run = run(&hard_path(cc, 3));
        for row in &run.rows {
            assert!(row.sender.cwnd.get() >= MSS, "{cc} at {}", row.at.as_nanos());
            assert!(row.sender.cwnd.get() < 1 << 26);
            if !cc.is_rate_based() {
                assert!(row.sender.ssthresh.is_none_or(|ssthresh| ssthresh.get() >= 2 * MSS));
            }
        }
    }
}

/// In no trace row is more data in flight than the peer's window allows (INV-5).
#[test]
fn inv_5_within_the_peers_window() {
    for cc in Algorithm::ALL {
        let mut scenario = hard_path(cc, 5);
        scenario.host.window_clamp = Some(Bytes::new(40 * MSS));
        scenario.sample_every = ms(3);
        for row in run(&scenario).rows {
            assert!(row.sender.inflight.get() <= row.sender.rwnd.get().max(65_536), "{cc}");
        }
    }
}

/// Over a path that loses every packet, the sender sends one segment per timeout, at growing intervals
/// (INV-6).
#[test]
fn inv_6_total_loss() {
    for cc in Algorithm::ALL {
        let mut scenario = link(cc, "10mbit", ms(40), 100, 60);
        scenario.path.forward.loss = fullpipe_units::Probability::from_ppm(1_000_000);
        // SYNs are lost too; they are sent at 0, 1, 2, 3, 4, 5, 7, 11, 19 and 35 s.
        let run = run(&scenario);
        assert_eq!(run.outcome.path.random_drops, 10, "{cc}");
    }
}

/// RFC 9406, HS-5: HyStart++ detects the queue one round trip after slow start begins to fill it. With a
/// queue of 2 BDP, this detection is early enough to avoid more than half of the losses. With a queue of 1
/// BDP, the round that fills the pipe may also overflow the queue, depending on the window at which doubling
/// from ten segments reaches the BDP: the losses are reduced by 20 to 68 %.
#[test]
fn hs_5_losses_of_slow_start() {
    use fullpipe_tcp::cc::SlowStart::{HyStartPlusPlus, Standard};
    let losses = |cc, rtt, queue, kind| {
        let mut scenario = link(cc, "100mbit", ms(rtt), queue * rtt * 100_000 / 8 / PACKET, 3);
        scenario.flows[0].slow_start = Some(kind);
        run(&scenario).outcome.path.queue_drops
    };
    for cc in [Reno, Cubic] {
        for rtt in [24, 30, 36, 40, 48] {
            for queue in [1, 2] {
                let (without, with) =
                    (losses(cc, rtt, queue, Standard), losses(cc, rtt, queue, HyStartPlusPlus));
                assert!(
                    without > 300 && queue * with < without,
                    "{cc}, {rtt} ms, {queue} BDP: {with} of {without}"
                );
            }
        }
    }
}
