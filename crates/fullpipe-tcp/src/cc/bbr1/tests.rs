use super::*;
use crate::cc::testing::{Bench, MSS, Policer as TokenBucket, Run, at_ms, context, ms, sample};
use crate::cc::{Algorithm, Launch, SentKind, linux_send_quantum};

const BIG: u64 = 1 << 40;

fn bench() -> Bench<Bbr1> {
    Bench::new(10, Bbr1::new)
}

fn run(rate: &str, rtt: Duration) -> Run {
    Run::new(Algorithm::Bbr1, rate, rtt, BIG)
}

/// Acknowledges one segment with a rate sample of `bps`; the ACK begins a round.
fn rate_sample(bench: &mut Bench<Bbr1>, bps: u64, app_limited: bool) {
    let cx = &mut bench.cx;
    cx.now += ms(100);
    cx.delivered += 100 * MSS;
    cx.delivered_time = cx.now;
    let interval = Rate::from_bps(bps).time_for(fullpipe_units::Bytes::new(100 * MSS));
    let sample = AckSample {
        prior_delivered: cx.delivered - MSS,
        delivered: 100 * MSS,
        interval: Some(interval),
        app_limited,
        ..sample(1)
    };
    bench.cc.on_ack(&bench.cx, &sample);
}

fn close(got: f64, wanted: f64, tolerance: f64) -> bool {
    (got / wanted - 1.0).abs() <= tolerance
}

#[test]
fn pc_5_send_quantum() {
    let mbps = |n: u64| Rate::from_bps(n * 1_000_000);
    assert_eq!(linux_send_quantum(Rate::from_bps(9_900_000), Some(ms(100)), MSS, 2), 2 * MSS);
    assert_eq!(linux_send_quantum(mbps(990), Some(ms(100)), MSS, 2), 65_536 / MSS * MSS);
    assert_eq!(linux_send_quantum(mbps(1), Some(ms(100)), MSS, 1), MSS);
    // A path RTT of 512 us adds 64 KiB / 2 to the send quantum. At 100 Mbit/s, 1.024 ms carry 12.2 KB.
    let near = linux_send_quantum(mbps(100), Some(Duration::from_micros(600)), MSS, 2);
    assert_eq!(near, (12_207 + 32_768) / MSS * MSS);
    assert_eq!(linux_send_quantum(mbps(100), None, MSS, 2), 12_207 / MSS * MSS);
}

#[test]
fn pc_6_first_pacing_rate() {
    let mbps = |rtt| first_pacing_rate(10 * MSS, rtt).as_mbps_f64();
    assert!(close(mbps(None), 331.1, 1e-3));
    assert!(close(mbps(Some(ms(100))), 3.311, 1e-3));

    // The first measured RTT replaces the assumed one, even though the pacing rate falls.
    let mut cx = context();
    let mut bbr = Bbr1::new(&cx, &Hints::default());
    cx.srtt = Some(ms(100));
    bbr.on_ack(&cx, &sample(0));
    assert!(close(bbr.pacing_rate.as_mbps_f64(), 3.311, 1e-3));
}

#[test]
fn b1_1_gains_phases_and_their_length() {
    let mean: f64 = CYCLE.iter().map(|gain| gain.as_f64()).sum::<f64>() / 8.0;
    assert_eq!(mean, 1.0);
    assert!(close(HIGH_GAIN.as_f64(), 2.88672, 1e-5));
    assert_eq!(DRAIN_GAIN.as_f64(), 0.34375);

    let mut run = run("10mbit", ms(40));
    run.until(at_ms(1_500), |_| ());
    let mut changes: Vec<(f64, Instant)> = Vec::new();
    run.until(at_ms(8_000), |run| {
        let gain = run.value("pacing_gain");
        if changes.last().is_none_or(|(last, _)| *last != gain) {
            changes.push((gain, run.cx.now));
        }
    });
    let cycle: Vec<_> = changes.windows(2).skip(3).collect();
    assert!(cycle.len() > 30);
    for pair in cycle {
        let [(gain, from), (next, to)] = pair else { unreachable!() };
        let rounds = to.saturating_since(*from).as_millis_f64() / run.value("min_rtt");
        match (gain, next) {
            // The probing phase lasts long enough to reach 1.25 BDP in flight.
            (1.25, 0.75) => assert!((1.0..2.2).contains(&rounds), "up {rounds}"),
            (0.75, 1.0) => assert!((0.0..1.1).contains(&rounds), "down {rounds}"),
            (1.0, 1.25) => assert!((6.0..6.3).contains(&rounds), "cruise {rounds}"),
            _ => panic!("{gain} is followed by {next}"),
        }
    }
}

#[test]
fn b1_1_any_phase_but_the_draining_one_comes_first() {
    let mut seen = [0; 8];
    for seed in 0..7_000 {
        let mut bench = bench();
        bench.cx.rng = fullpipe_units::Draws::new(seed, 0);
        bench.cc.mode = Mode::Drain;
        bench.cc.enter_probe_bw(&bench.cx);
        let Mode::ProbeBw(cycle) = bench.cc.mode else { unreachable!() };
        seen[cycle.phase] += 1;
    }
    assert_eq!(seen[1], 0);
    assert!(seen.iter().enumerate().all(|(phase, n)| phase == 1 || (850..1_150).contains(n)), "{seen:?}");
}

/// Each round delivers about twice as much as the previous one; the Linux kernel delivers 10, 20, 34, 62, 125
/// and 247 segments (B1-2).
#[test]
fn b1_2_startup_doubles() {
    let mut run = run("10gbit", ms(100));
    let mut delivered = vec![0];
    for round in 1..=8 {
        run.until(at_ms(100 * round + 99), |_| ());
        delivered.push(run.cx.delivered / MSS);
    }
    let rounds: Vec<_> = delivered.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(&rounds[..2], [10, 20]);
    for pair in rounds[1..].windows(2) {
        let ratio = pair[1] as f64 / pair[0] as f64;
        assert!((1.5..2.3).contains(&ratio), "{rounds:?}");
    }
}

/// Startup and Drain end in time, and Drain ends with little more than the BDP in flight (B1-3 and B1-5).
#[test]
fn b1_3_and_5_startup_and_drain_end() {
    let mut run = run("10mbit", ms(40));
    let (mut full_round, mut drained) = (None, None);
    let mut full_at = Instant::ZERO;
    run.until(at_ms(2_000), |run| match run.phase() {
        "Startup" => {}
        "Drain" => {
            if full_round.is_none() {
                (full_round, full_at) = (Some(run.rounds), run.cx.now);
            }
        }
        _ => {
            if drained.is_none() {
                drained = Some((run.cx.now.saturating_since(full_at), run.cx.inflight / MSS));
            }
        }
    });
    let rounds = full_round.unwrap();
    assert!((5..=7).contains(&rounds), "full after {rounds} rounds");
    let (time, inflight) = drained.unwrap();
    assert!(time <= ms(40 * 29 / 10), "drained after {time}");
    assert!(inflight as f64 <= run.bdp_segments().ceil() + 6.0 + 1.0, "{inflight} in flight");
}

/// The data in flight in Startup never exceeds 2.887 BDP plus the allowance for super-segments (B1-4).
#[test]
fn b1_4_startup_is_bounded() {
    let mut run = run("100mbit", ms(40));
    let mut peak = 0;
    run.until(at_ms(3_000), |run| peak = run.cx.inflight.max(peak));
    let bound = 2.887 * run.bdp_segments() + 3.0 * 25.0 + 2.0;
    assert!((peak / MSS) as f64 <= bound, "{} > {bound}", peak / MSS);
}

#[test]
fn b1_6_window_target() {
    let mut bench = bench();
    let bw = rate_of(83_333 * MSS, Duration::from_secs(100));
    bench.cc.min_rtt = Some(ms(40));
    bench.cc.pacing_rate = Gain::UNIT.pacing(bw);
    assert_eq!(bench.cc.bdp(bw, CWND_GAIN), 67);
    bench.cc.mode = Mode::ProbeBw(Cycle { phase: 3, since: Instant::ZERO });
    assert_eq!(bench.cc.target_inflight(bw, CWND_GAIN), 74);
    bench.cc.mode = Mode::ProbeBw(Cycle { phase: 0, since: Instant::ZERO });
    assert_eq!(bench.cc.target_inflight(bw, CWND_GAIN), 76);
    bench.cc.min_rtt = None;
    assert_eq!(bench.cc.bdp(bw, CWND_GAIN), 10);
}

/// ProbeRTT recurs every 10 s, lasts about 200 ms, and finds the RTT of the empty path (B1-7 and A-36).
#[test]
fn b1_7_probe_rtt() {
    let mut run = run("10mbit", ms(40));
    let mut entered: Vec<Instant> = Vec::new();
    let mut stays: Vec<Duration> = Vec::new();
    let mut inside = false;
    let mut lowest = u64::MAX;
    run.until(at_ms(45_000), |run| {
        let now_inside = run.phase() == "ProbeRTT";
        match (inside, now_inside) {
            (false, true) => entered.push(run.cx.now),
            (true, false) => stays.push(run.cx.now.saturating_since(*entered.last().unwrap())),
            _ => {}
        }
        inside = now_inside;
        if inside {
            assert_eq!(run.control().cwnd, 4 * MSS);
            lowest = lowest.min(run.cx.inflight / MSS);
        }
    });
    assert!(stays.len() >= 4, "{entered:?}");
    for pair in entered.windows(2) {
        let gap = pair[1].saturating_since(pair[0]).as_millis_f64();
        assert!((10_000.0..10_000.0 + 200.0 + 3.0 * 42.0).contains(&gap), "{gap} ms");
    }
    for stay in stays {
        assert!((ms(200)..=ms(200 + 3 * 42)).contains(&stay), "{stay}");
    }
    assert!(lowest <= 4);
    let path = run.rtt + run.rate.time_for(fullpipe_units::Bytes::new(MSS));
    assert_eq!(run.value("min_rtt"), path.as_millis_f64());
}

/// Samples taken in ProbeRTT, with four segments in flight, do not lower the bandwidth, and the window
/// returns to its earlier size at once.
#[test]
fn b1_7_probe_rtt_leaves_bandwidth_and_window_alone() {
    let mut run = run("10mbit", ms(100));
    run.until(at_ms(9_500), |_| ());
    let (bw, cwnd) = (run.value("bw"), run.control().cwnd);
    let mut done = false;
    run.until(at_ms(12_000), |run| {
        assert!(close(run.value("bw"), bw, 0.01));
        if run.phase() == "ProbeRTT" {
            done = true;
        } else if done {
            assert!(run.control().cwnd + 2 * MSS >= cwnd);
        }
    });
    assert!(done);
}

#[test]
fn b1_8_a_tenth_of_the_bandwidth_is_noticed_after_ten_rounds() {
    let mut run = run("10mbit", ms(40));
    run.until(at_ms(5_000), |_| ());
    run.rate = Rate::from_bps(1_000_000);
    let begin = run.rounds;
    let mut noticed = None;
    run.until(at_ms(25_000), |run| {
        if noticed.is_none() && run.value("bw") < 2e6 {
            noticed = Some(run.rounds - begin);
        }
    });
    assert!((9..=13).contains(&noticed.unwrap()), "{noticed:?}");
    assert!(close(run.value("bw"), 1e6, 0.03), "{}", run.value("bw"));
}

/// BBR finds a tenfold increase of the bandwidth (B1-9). With growth by a quarter per cycle, the search would
/// take 10.3 cycles. Without noise on the path, it takes less time, because the probing phase lasts until
/// 1.25 times the *current* BDP is in flight. While the bandwidth estimate grows, this target stays slightly
/// above the amount in flight. The estimate therefore grows by a quarter every one or two round trips.
#[test]
fn b1_9_ten_times_the_bandwidth_is_found() {
    let mut run = run("10mbit", ms(40));
    run.until(at_ms(3_000), |_| ());
    run.rate = Rate::from_bps(100_000_000);
    let mut found = None;
    run.until(at_ms(10_000), |run| {
        if found.is_none() && run.value("bw") >= 90e6 {
            found = Some(run.cx.now.saturating_since(at_ms(3_000)));
        }
    });
    let rounds = found.unwrap().as_millis_f64() / 41.0;
    assert!((10.3..110.0).contains(&rounds), "{rounds} round trips");
}

#[test]
fn b1_10_samples_of_a_slow_application() {
    let mut bench = bench();
    rate_sample(&mut bench, 10_000_000, false);
    let bw = bench.cc.bandwidth();
    for _ in 0..30 {
        rate_sample(&mut bench, 1_000_000, true);
    }
    assert_eq!(bench.cc.bandwidth(), bw, "a low one is no news");
    rate_sample(&mut bench, 20_000_000, true);
    assert!(bench.cc.bandwidth() > bw, "a high one is");
    for _ in 0..11 {
        rate_sample(&mut bench, 1_000_000, false);
    }
    assert!(close(bench.cc.bandwidth().as_mbps_f64(), 1.0, 1e-3));
}

#[test]
fn b1_12_a_policer_is_found_and_obeyed() {
    let mut run = run("100mbit", ms(40));
    run.policer = Some(TokenBucket {
        rate: Rate::from_bps(5_000_000),
        burst: 50_000,
        tokens: 50_000,
        filled: Instant::ZERO,
    });
    // This time covers the burst of Startup and its losses, and then two sampling intervals.
    run.until(at_ms(1_000), |_| ());
    let (lost, delivered) = (run.cx.lost, run.cx.delivered);
    // The flow paces at the mean rate for 48 rounds.
    run.until(at_ms(2_500), |run| assert_eq!(run.value("pacing_gain"), 1.0));
    let (lost, delivered) = (run.cx.lost - lost, run.cx.delivered - delivered);
    assert!(lost * 100 < delivered * 3, "{lost} lost of {delivered}");
    assert!(close(delivered as f64 * 8.0 / 1.5, 5e6, 0.05));
}

#[test]
fn b1_12_two_equal_lossy_intervals_make_a_policer() {
    let mut cx = context();
    let mut policer = Policer::new(&cx);
    // Each round of 40 ms delivers 5 Mbit/s, and loses about a third of that amount.
    let mut round = |policer: &mut Policer| {
        cx.now += ms(40);
        cx.delivered_time = cx.now;
        cx.delivered += 25_000;
        cx.lost += 8_000;
        policer.update(&cx, true, true, false, true)
    };
    (0..4).for_each(|_| assert!(!round(&mut policer)));
    assert_eq!(policer.rate_in_use(), None);
    (0..4).for_each(|_| assert!(!round(&mut policer)));
    let rate = policer.rate_in_use().expect("found in two intervals").as_mbps_f64();
    assert!((4.0..6.0).contains(&rate), "{rate}");
    let given_up = (1..=60).find(|_| round(&mut policer));
    assert_eq!(given_up, Some(48));
}

/// Startup takes one round for the first sample, one round until pacing follows this sample, `log2(D / 10)`
/// rounds until the full bandwidth, and three rounds to detect a full pipe. On this path, the deep
/// queue lengthens the last rounds.
#[test]
fn a_16_startup_of_long_paths() {
    for (rate, rounds, secs) in [("1gbit", 11 + 3, 2.9), ("105mbit", 8 + 3, 2.3)] {
        let mut run = run(rate, ms(210));
        let (mut full_round, mut fast_at) = (None, None);
        run.until(at_ms(5_000), |run| {
            if full_round.is_none() && run.phase() != "Startup" {
                full_round = Some(run.rounds);
            }
            if fast_at.is_none() && run.value("bw") >= 0.95 * run.rate.as_bps() as f64 {
                fast_at = Some(run.cx.now.as_secs_f64());
            }
        });
        assert!((rounds..=rounds + 2).contains(&full_round.unwrap()), "{rate}: {full_round:?}");
        assert!(close(fast_at.unwrap(), secs, 0.1), "{rate}: {fast_at:?} instead of {secs} s");
    }
}

/// In steady state, one flow fills the link and keeps the queue small.
#[test]
fn a_32_steady_state() {
    let mut run = run("100mbit", ms(40));
    run.until(at_ms(5_000), |_| ());
    let (start, mut queue, mut acks, mut peak) = (run.cx.delivered, 0, 0, 0);
    run.until(at_ms(35_000), |run| {
        queue += run.queue_bytes();
        peak = peak.max(run.cx.inflight);
        acks += 1;
    });
    let rate = Rate::of(fullpipe_units::Bytes::new(run.cx.delivered - start), ms(30_000));
    let bdp = run.bdp_segments() * MSS as f64;
    assert!(rate.as_mbps_f64() >= 97.0, "{rate}");
    assert!(((queue / acks) as f64) < 0.1 * bdp, "mean queue {} of {bdp}", queue / acks);
    assert!(peak as f64 <= 2.0 * bdp, "peak {peak} of {bdp}");
}

/// Returns a run that has reached ProbeBW on a path of 10 Mbit/s with an RTT of 100 ms.
fn settled() -> Run {
    let mut run = run("10mbit", ms(100));
    run.until(at_ms(5_000), |_| ());
    assert_eq!(run.phase(), "ProbeBW");
    run
}

#[test]
fn recovery_conserves_packets_for_a_round_and_then_restores() {
    let mut bench = bench();
    bench.ack(90);
    let before = bench.cwnd();
    bench.cx.inflight = 50 * MSS;
    bench.cx.in_recovery = true;
    bench.signal(Signal::EnterRecovery);
    let lossy = AckSample { newly_lost: 5 * MSS, ..sample(2) };
    bench.cc.on_ack(&bench.cx, &lossy);
    assert_eq!(bench.cwnd(), 52, "in flight and acknowledged");
    // The first round ends when a segment sent after the start of recovery is delivered.
    bench.cx.delivered += MSS;
    let next_round = AckSample { prior_delivered: bench.cx.delivered, interval: Some(ms(100)), ..sample(1) };
    bench.cc.on_ack(&bench.cx, &next_round);
    assert!(!bench.cc.conserving);
    bench.cx.in_recovery = false;
    bench.signal(Signal::ExitRecovery);
    bench.ack(1);
    assert!(bench.cwnd() >= before);
}

#[test]
fn a_timeout_shrinks_to_one_segment_beyond_what_is_in_flight() {
    let mut run = settled();
    let before = run.control().cwnd;
    run.cx.inflight = 3 * MSS;
    run.cx.in_loss = true;
    run.cc.on_signal(&run.cx, Signal::Timeout { first: true });
    assert_eq!(run.control().cwnd, 4 * MSS);
    run.cx.inflight = 0;
    run.cc.on_signal(&run.cx, Signal::Timeout { first: false });
    assert_eq!(run.control().cwnd, MSS);
    run.cx.in_loss = false;
    run.cc.on_signal(&run.cx, Signal::SpuriousTimeout);
    run.cc.on_ack(&run.cx, &sample(1));
    assert!(run.control().cwnd >= before, "UN-2");
}

#[test]
fn a_timeout_and_an_undo_judge_growth_anew() {
    for signal in [Signal::Timeout { first: true }, Signal::SpuriousRecovery] {
        let mut bench = bench();
        for _ in 0..3 {
            rate_sample(&mut bench, 10_000_000, false);
        }
        bench.signal(signal);
        for _ in 0..3 {
            assert!(!bench.cc.full_pipe.is_reached());
            rate_sample(&mut bench, 10_000_000, false);
        }
        rate_sample(&mut bench, 10_000_000, false);
        assert!(bench.cc.full_pipe.is_reached());
    }
}

#[test]
fn after_idling_it_goes_on_at_the_bandwidth() {
    let mut run = settled();
    run.cc.on_signal(&run.cx, Signal::Idle { idle: ms(1_000), rto: ms(300) });
    let cwnd = run.control().cwnd;
    run.cx.app_limited = true;
    run.cx.now += ms(1_000);
    let sent = Sent {
        offset: run.cx.snd_nxt,
        len: MSS,
        kind: SentKind::New,
        first_after_idle: true,
        idle: Duration::ZERO,
        departure: run.cx.now,
    };
    run.cc.on_send(&run.cx, &sent);
    assert_eq!(run.control().cwnd, cwnd, "SS-5 is not for BBR");
    let Pacing::Rate(rate) = run.control().pacing else { panic!("paced") };
    assert!(close(rate.as_bps() as f64, 0.99 * run.value("bw"), 1e-6));
}

/// An idle period longer than the `min_rtt` window does not trigger ProbeRTT.
#[test]
fn idling_spares_probe_rtt() {
    let mut run = settled();
    run.silent = true;
    run.until(at_ms(20_000), |_| ());
    assert_eq!(run.cx.inflight, 0);
    run.silent = false;
    run.until(at_ms(20_500), |run| assert_ne!(run.phase(), "ProbeRTT"));
}

#[test]
fn lumps_of_acks_widen_the_window() {
    let mut cx = context();
    let mut aggregation = Aggregation::new(cx.now);
    let bw = Rate::from_bps(10_000_000);
    // 20 segments every 23 ms correspond to a rate of about 10 Mbit/s.
    for _ in 0..20 {
        cx.now += ms(23);
        cx.delivered_time = cx.now;
        let lump = AckSample { interval: Some(ms(40)), ..sample(20) };
        aggregation.update(&cx, &lump, bw, false, 100);
    }
    assert!((19..=25).contains(&aggregation.extra(bw, MSS)), "{}", aggregation.extra(bw, MSS));
    assert_eq!(aggregation.extra(Rate::from_bps(1_000_000), MSS), 8, "no more than 100 ms of bandwidth");
}

#[test]
fn slow_paths_get_one_segment_at_a_time() {
    let mut bench = bench();
    bench.cc.pacing_rate = Rate::from_bps(1_199_999);
    assert_eq!(bench.cc.control().send_quantum, SendQuantum::FromRate { min_segments: 1 });
    bench.cc.pacing_rate = Rate::from_bps(1_200_000);
    assert_eq!(bench.cc.control().send_quantum, SendQuantum::FromRate { min_segments: 2 });
}

/// Products of rate, time and gain are exact from 8 kbit/s to 1 Tbit/s and from 10 us to 10 s (INV-11).
#[test]
fn products_are_exact_over_the_whole_range() {
    for bps in [8_000, 100_000, 1_000_000_000, 1_000_000_000_000] {
        for micros in [10, 1_000, 210_000, 10_000_000] {
            let (rate, span) = (Rate::from_bps(bps), Duration::from_micros(micros));
            let bytes = (u128::from(bps) * u128::from(micros) / 8_000_000) as u64;
            assert_eq!(amount(rate, span), bytes);
            if bytes >= 100_000 {
                assert!(close(rate_of(bytes, span).as_bps() as f64, bps as f64, 1e-3));
            }
            let pacing = HIGH_GAIN.pacing(rate).as_bps() as f64;
            assert!(close(pacing, bps as f64 * 739.0 / 256.0 * 0.99, 1e-3));
            let mut bench = bench();
            bench.cc.min_rtt = Some(span);
            assert!(bench.cc.target_inflight(rate, HIGH_GAIN) < 1 << 40);
        }
    }
}

#[test]
fn slow_links_are_measured_exactly() {
    let mut run = run("100kbit", ms(100));
    run.until(at_ms(60_000), |_| ());
    assert!(close(run.value("bw"), 100_000.0, 0.001), "{}", run.value("bw"));
}

/// The rate of a launch replaces the first pacing rate, and a measured RTT does not change it. In Startup,
/// the bandwidth can raise the rate but not lower it.
#[test]
fn a_launch_sets_the_first_pacing_rate() {
    let rate = Launch::DEFAULT.rate;
    let mut bench = Bench::hinted(44, Hints { launch: Some(Launch::DEFAULT), ..Hints::default() }, Bbr1::new);
    assert_eq!((bench.cwnd(), bench.cc.pacing_rate), (44, rate));
    rate_sample(&mut bench, 1_000_000, false);
    assert_eq!(bench.cc.pacing_rate, rate);
    rate_sample(&mut bench, 30_000_000, false);
    assert_eq!(bench.cc.pacing_rate, HIGH_GAIN.pacing(bench.cc.bandwidth()));
    assert!(bench.cc.pacing_rate > Rate::from_bps(80_000_000));
}

/// After the first timeout, the window may exceed the data in flight by several segments, but not the
/// previous window. After a repeated timeout, it exceeds the data in flight by one segment.
#[test]
fn a_loss_window_is_for_the_first_timeout() {
    for (inflight, after) in [(0, 4), (8, 10), (10, 11)] {
        let hints = Hints { loss_window: Some(4), ..Hints::default() };
        let mut bench = Bench::hinted(10, hints, Bbr1::new);
        bench.cx.inflight = inflight * MSS;
        bench.signal(Signal::Timeout { first: true });
        assert_eq!(bench.cwnd(), after, "{inflight} in flight");
        bench.signal(Signal::Timeout { first: false });
        assert_eq!(bench.cwnd(), inflight + 1);
    }
}
