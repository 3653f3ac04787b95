//! Tests for the numbered checks B3-1 to B3-21; the draft's test cases (B3-22) are in [`draft`].

use fullpipe_units::{Bytes, Draws, Duration, Instant, Rate};

use super::*;
use crate::cc::testing::{Bench, MSS, Run, at_ms, ms, sample};
use crate::cc::{Launch, LossCause, SentKind};

mod draft;

const BIG: u64 = 1 << 40;

fn mbps(n: u64) -> Rate {
    Rate::from_bps(n * 1_000_000)
}

fn bench() -> Bench<Bbr3> {
    Bench::new(10, Bbr3::new)
}

/// Returns a run whose handshake RTT includes the serialisation of a SYN in both directions.
fn run(rate: Rate, rtt: Duration, buffer: u64) -> Run<Bbr3> {
    let handshake = rtt + rate.time_for(Bytes::new(2 * 60));
    Run::of(|cx, hints| Bbr3::new(&Context { srtt: Some(handshake), ..cx.clone() }, hints), rate, rtt, buffer)
}

fn close(got: f64, wanted: f64, tolerance: f64) -> bool {
    (got / wanted - 1.0).abs() <= tolerance
}

fn pacing(cc: &Bbr3) -> Rate {
    let Pacing::Rate(rate) = cc.control().pacing else { panic!("paced") };
    rate
}

/// Returns the ACK of one segment with the rate sample `rate`. The ACK begins a round, 100 ms after the
/// previous ACK.
fn round(bench: &mut Bench<Bbr3>, rate: Rate) -> AckSample {
    let cx = &mut bench.cx;
    cx.now += ms(100);
    cx.delivered += 100 * MSS;
    cx.delivered_time = cx.now;
    let interval = rate.time_for(Bytes::new(100 * MSS));
    AckSample {
        prior_delivered: cx.delivered - MSS,
        delivered: 100 * MSS,
        interval: Some(interval),
        tx_in_flight: 100 * MSS,
        round_start: true,
        ..sample(1)
    }
}

fn ack_round(bench: &mut Bench<Bbr3>, rate: Rate) {
    let sample = round(bench, rate);
    bench.cc.on_ack(&bench.cx, &sample);
}

/// Returns the loss record of one segment that was sent with `tx_in_flight` segments in flight;
/// `lost_since_sent` segments have been lost since then.
fn lost(offset: u64, lost_since_sent: u64, tx_in_flight: u64) -> Lost {
    Lost {
        offset: offset * MSS,
        len: MSS,
        tx_in_flight: tx_in_flight * MSS,
        lost_since_sent: lost_since_sent * MSS,
        app_limited: false,
        starts_new_range: true,
        cause: LossCause::Rack,
    }
}

/// Returns a bench in `state` on a path of `rate` with an RTT of 100 ms, after the pipe was found full.
fn in_state(state: State, rate: Rate) -> Bench<Bbr3> {
    let mut bench = bench();
    ack_round(&mut bench, rate);
    bench.cc.full_pipe.set();
    bench.cc.state = state;
    bench.cc.probe.cycle_stamp = bench.cx.now;
    bench.cc.probe.wait = Duration::from_secs(3);
    bench
}

/// In each state, the pacing rate is the gain of the state times the bandwidth, less 1 % (B3-1).
#[test]
fn b3_1_pacing_gains() {
    for (state, wanted) in [
        (State::Startup, 27.449),
        (State::Drain, 4.95),
        (State::Down, 8.91),
        (State::Cruise, 9.90),
        (State::Refill, 9.90),
        (State::Up, 12.375),
        (State::ProbeRtt, 9.90),
    ] {
        let mut bench = in_state(state, mbps(10));
        bench.cc.set_pacing_rate(&bench.cx, state.pacing_gain());
        assert!(close(pacing(&bench.cc).as_mbps_f64(), wanted, 1e-4), "{state:?}: {}", pacing(&bench.cc));
    }
    assert!((STARTUP_PACING_GAIN.as_f64() - 4.0 * 2_f64.ln()).abs() < 1e-4);
}

/// The first pacing rate is 2.77 windows of ten segments per RTT. Before an RTT is measured, BBR assumes 1 ms
/// (PC-6).
#[test]
fn pc_6_first_pacing_rate() {
    let mut cx = crate::cc::testing::context();
    let mut bbr = Bbr3::new(&cx, &Hints::default());
    assert!(close(pacing(&bbr).as_mbps_f64(), 2.7726 * 115.84, 1e-4));
    cx.srtt = Some(ms(100));
    bbr.on_ack(&cx, &sample(0));
    assert!(close(pacing(&bbr).as_mbps_f64(), 2.7726 * 1.1584, 1e-4));
}

/// At the end of Startup, at most one BDP is in the queue, compared with 1.89 BDP in BBRv1 (draft section
/// 5.3.1; B3-2).
#[test]
fn b3_2_startup_is_bounded() {
    let mut run = run(mbps(10), ms(40), BIG);
    let bdp = run.bdp_segments();
    let mut peak = 0;
    run.until(at_ms(2_000), |run| peak = peak.max(run.cx.inflight / MSS));
    // ACK aggregation in the last round adds one or two send quanta of 2.4 segments to the peak.
    assert!((1.8 * bdp..2.0 * bdp + 8.0).contains(&(peak as f64)), "{peak} of {bdp}");
}

/// The pipe counts as full after three rounds with growth below a quarter. Growth by a quarter restarts the
/// count (draft section 5.3.1.2; B3-3).
#[test]
fn b3_3_plateau() {
    let mut bench = bench();
    bench.cx.inflight = 1_000 * MSS;
    let mut reached = Vec::new();
    for rate in [100, 124, 124, 126, 156, 156, 156] {
        ack_round(&mut bench, Rate::from_bps(rate * 100_000));
        reached.push(bench.cc.full_pipe.reached);
    }
    assert_eq!(reached, [false, false, false, false, false, false, true]);
    assert_eq!(bench.cc.state, State::Drain);
}

/// Runs one round of fast recovery in Startup with `ranges` lost ranges; `lost_of` contains the numbers of
/// segments lost and sent.
fn lossy_round(bench: &mut Bench<Bbr3>, ranges: u64, lost_of: (u64, u64)) -> State {
    let rate = bench.cc.max_bw.get();
    // The volume in flight exceeds the target of Drain; otherwise Drain would end at once.
    bench.cx.inflight = 1_000 * MSS;
    for range in 0..ranges {
        bench.cc.on_lost(&bench.cx, &lost(2 * range, lost_of.0, lost_of.1));
    }
    let mut sample = round(bench, rate);
    (sample.lost_since_sent, sample.tx_in_flight) = (lost_of.0 * MSS, lost_of.1 * MSS);
    bench.cc.on_ack(&bench.cx, &sample);
    bench.cc.state
}

/// Loss ends Startup if it exceeds 2 % in six ranges, after a whole round of recovery (draft section 5.3.1.3;
/// B3-4).
#[test]
fn b3_4_startup_loss() {
    for (ranges, lost_of, recovering, left) in [
        (5, (30, 1_000), true, false),
        (6, (19, 1_000), true, false),
        (6, (20, 1_000), true, false),
        (6, (21, 1_000), false, false),
        (6, (21, 1_000), true, true),
    ] {
        let mut bench = bench();
        ack_round(&mut bench, mbps(10));
        bench.signal(Signal::EnterRecovery);
        bench.cx.in_recovery = recovering;
        let state = lossy_round(&mut bench, ranges, lost_of);
        assert_eq!(state == State::Drain, left, "{ranges} ranges, {lost_of:?}");
        assert_eq!((bench.cc.full_pipe.now, bench.cc.full_pipe.reached), (left, left));
        // The round delivered a hundred segments, more than the BDP of this path.
        let longterm = bench.cc.bounds.inflight_longterm;
        assert_eq!(longterm, left.then(|| bench.cc.bdp().max(100 * MSS)));
    }
    // Adjacent segments that are lost one by one form one range.
    let mut bench = bench();
    for segment in 0..20 {
        bench.cc.on_lost(&bench.cx, &lost(segment, segment + 1, 100));
    }
    bench.cx.in_recovery = true;
    let latest = Latest { round_start: true, ..Latest::default() };
    let rs = Sample::of(&AckSample { lost_since_sent: 20 * MSS, tx_in_flight: 100 * MSS, ..sample(1) });
    assert!(!bench.cc.startup_loss.check(&bench.cx, &latest, &rs));
}

/// Without SACK, each round trip reveals at most one loss, so one loss ends Startup (B3-4).
#[test]
fn b3_4_startup_loss_without_sack() {
    let mut bench = bench();
    bench.cx.has_sack = false;
    ack_round(&mut bench, mbps(10));
    bench.signal(Signal::EnterRecovery);
    bench.cx.in_recovery = true;
    assert_eq!(lossy_round(&mut bench, 1, (1, 1_000)), State::Drain);
}

/// The loss ratio is too high only strictly above 2 % (B3-6).
#[test]
fn b3_6_loss_threshold() {
    assert!(!is_too_high(2, 100, true));
    assert!(is_too_high(3, 100, true));
    assert!(is_too_high(1, 49, true) && !is_too_high(1, 50, true));
    assert!(is_too_high(1, 1_000, false) && !is_too_high(0, 1_000, false));
}

/// Computation of the volume in flight at which the loss ratio reached 2 %; all numbers are 100 times those
/// of the check (B3-7).
#[test]
fn b3_7_inflight_at_loss() {
    let burst = |lost_since_sent| Lost { len: 1_000, tx_in_flight: 10_000, lost_since_sent, ..lost(0, 0, 0) };
    assert_eq!(inflight_at_loss(&burst(1_000)), 9_183);
    assert_eq!(inflight_at_loss(&burst(1_200)), 9_000, "a negative prefix is none");

    let mut bench = in_state(State::Up, mbps(10));
    bench.cc.probe.is_sample = true;
    bench.cc.bw = mbps(10);
    // The BDP is 125 000 bytes, and 0.7 times the BDP is 87 500 bytes.
    bench.cc.cwnd = 200_000;
    bench.cc.on_inflight_too_high(&bench.cx, 91_840, false);
    assert_eq!(bench.cc.bounds.inflight_longterm, Some(91_840));
    bench.cc.on_inflight_too_high(&bench.cx, 50_000, false);
    assert_eq!(bench.cc.bounds.inflight_longterm, Some(87_500), "no lower than CUBIC would go");
    bench.cc.on_inflight_too_high(&bench.cx, 500_000, true);
    assert_eq!(bench.cc.bounds.inflight_longterm, Some(87_500), "a slow application says nothing");
}

/// The headroom for other flows is 15 %, at least one segment, but the flow always keeps four segments
/// (B3-8).
#[test]
fn b3_8_headroom() {
    let with_headroom = |segments: u64| {
        let bounds = Bounds { inflight_longterm: Some(segments * MSS), ..Bounds::default() };
        bounds.with_headroom(MSS).unwrap() as f64 / MSS as f64
    };
    assert_eq!([100, 10, 6, 5, 4].map(with_headroom), [85.0, 8.5, 5.0, 4.0, 4.0]);
    assert_eq!(Bounds::default().with_headroom(MSS), None);
}

/// The bounds fall to the amount that the latest round delivered, but to no less than 0.7 times their value
/// (draft section 5.5.10.3; B3-9).
#[test]
fn b3_9_short_term_bounds() {
    let lower = |bounds: &mut Bounds, latest: u64| {
        let latest = Latest { bw: mbps(latest), inflight: latest * 1_000, ..Latest::default() };
        bounds.lower(&latest, mbps(10), 10_000);
        (bounds.bw_shortterm.unwrap().as_mbps_f64(), bounds.inflight_shortterm.unwrap())
    };
    assert_eq!(lower(&mut Bounds::default(), 8), (8.0, 8_000));
    assert_eq!(lower(&mut Bounds::default(), 5), (7.0, 7_000));
    let mut bounds = Bounds::default();
    let values = [0, 0, 0].map(|latest| lower(&mut bounds, latest));
    assert_eq!(values, [(7.0, 7_000), (4.9, 4_900), (3.43, 3_430)]);
}

/// While cruising, a round with 1 % loss lowers the bounds by 1 %. After 62 such rounds, they are at 0.54 of
/// their first value (B3-10).
#[test]
fn b3_10_a_lossy_cruise() {
    let mut bounds = Bounds::default();
    let mut bw = 1_000_000.0;
    for _ in 0..62 {
        bw *= 0.99;
        let latest = Latest { bw: Rate::from_bps(bw as u64), ..Latest::default() };
        bounds.lower(&latest, mbps(1), 0);
    }
    assert!(close(bounds.bw_shortterm.unwrap().as_bps() as f64, 536_000.0, 0.001));

    // An ACK that ends a round with loss lowers the bounds, but only in states that do not probe for
    // bandwidth.
    for (state, lowered) in
        [(State::Down, true), (State::Cruise, true), (State::Refill, false), (State::Up, false)]
    {
        let mut bench = in_state(state, mbps(10));
        bench.cc.on_lost(&bench.cx, &lost(0, 1, 1_000));
        ack_round(&mut bench, mbps(8));
        assert_eq!(bench.cc.bounds.bw_shortterm.is_some(), lowered, "{state:?}");
        assert!(!bench.cc.latest.is_loss_in_round);
    }
}

/// In UP at the long-term bound, the bound grows by 1, 2, 4 and 8 segments in successive rounds, spread
/// evenly over each round (draft section 5.3.3.9; B3-11).
#[test]
fn b3_11_growth_of_the_bound() {
    let mut probe = Probe::default();
    probe.start_refill();
    probe.start_up(64 * MSS, MSS);
    let mut growths = Vec::new();
    for _ in 0..5 {
        let mut growth = 0;
        for segment in 1..=64 {
            growth += probe.growth(MSS, segment == 64, 64 * MSS, MSS);
        }
        growths.push(growth);
    }
    assert_eq!(growths, [1, 2, 4, 8, 16]);

    // The bound does not grow if the window is not full.
    let mut bench = in_state(State::Up, mbps(10));
    bench.cc.bounds.inflight_longterm = Some(200 * MSS);
    bench.cc.probe.start_up(MSS, MSS);
    ack_round(&mut bench, mbps(10));
    assert_eq!(bench.cc.bounds.inflight_longterm, Some(200 * MSS));
    // A sample with more data in flight and without excessive loss raises the bound.
    let sample = AckSample { tx_in_flight: 250 * MSS, ..round(&mut bench, mbps(10)) };
    bench.cc.on_ack(&bench.cx, &sample);
    assert_eq!(bench.cc.bounds.inflight_longterm, Some(250 * MSS));
}

/// The next probe begins after as many rounds as the BDP has segments, but after at most 63 (draft section
/// 5.3.3.8; B3-12). It begins at the latest two to three seconds after the start of DOWN.
#[test]
fn b3_12_time_between_probes() {
    for (bdp, rtt, least, most) in
        [(20, ms(30), 560, 640), (5_000, ms(100), 2_000, 3_000), (100, ms(1), 60, 66)]
    {
        let rate = Rate::of(Bytes::new(bdp * MSS), rtt);
        let mut run = run(rate, rtt, BIG);
        let (mut rounds, mut waits) = (Vec::new(), Vec::new());
        let mut before = State::Startup;
        run.until(at_ms(30_000), |run| {
            if before != run.cc.state && run.cc.state == State::Refill {
                waits.push(run.cx.now.saturating_since(run.cc.probe.cycle_stamp).as_millis());
                rounds.push(run.cc.probe.rounds_since_up);
            }
            before = run.cc.state;
        });
        assert!(waits.len() >= 5, "{waits:?}");
        // A queue of a BDP or more lengthens the first rounds of DOWN, and the last round counts as a whole
        // round.
        let slack = rtt.as_millis() * 5;
        assert!(waits.iter().all(|wait| (least..=most + slack).contains(wait)), "BDP {bdp}: {waits:?}");
        assert!(bdp == 5_000 || rounds.iter().all(|count| *count == bdp.min(63)), "{rounds:?}");
    }
}

/// Both waits have a random part: zero or one round, and a uniformly distributed time of up to a second
/// (draft section 5.3.3.8; B3-12).
#[test]
fn b3_12_chance() {
    let (mut rounds, mut spread) = ([0_u32; 2], Duration::ZERO);
    for seed in 0..2_000 {
        let mut bench = bench();
        bench.cx.rng = Draws::new(seed, 0);
        bench.cc.start_down(&bench.cx);
        rounds[bench.cc.probe.rounds_since_up as usize] += 1;
        let wait = bench.cc.probe.wait;
        assert!((PROBE_WAIT..PROBE_WAIT + PROBE_WAIT_SPREAD).contains(&wait));
        spread += wait - PROBE_WAIT;
    }
    assert!(rounds.iter().all(|n| (900..=1_100).contains(n)), "{rounds:?}");
    assert!(close((spread / 2_000).as_millis_f64(), 500.0, 0.05), "{}", spread / 2_000);
}

/// ProbeRTT begins every 5 s, halves the volume in flight for 200 ms, and costs 2 % of the throughput (draft
/// section 5.3.4; B3-13).
#[test]
fn b3_13_probe_rtt() {
    let mut run = run(mbps(100), ms(20), BIG);
    let (mut entered, mut stays, mut inside) = (Vec::new(), Vec::new(), false);
    run.until(at_ms(32_000), |run| {
        let now_inside = run.cc.state == State::ProbeRtt;
        match (inside, now_inside) {
            (false, true) => entered.push(run.cx.now),
            (true, false) => stays.push(run.cx.now.saturating_since(*entered.last().unwrap())),
            _ => {}
        }
        inside = now_inside;
        if inside {
            let half = run.cc.bdp_multiple(run.cc.bw, PROBE_RTT_CWND_GAIN);
            assert!(run.control().cwnd <= half, "{} of {half}", run.control().cwnd);
        }
    });
    assert!(stays.len() >= 5, "{entered:?}");
    for pair in entered.windows(2) {
        let gap = pair[1].saturating_since(pair[0]).as_millis();
        assert!((5_200..=5_320).contains(&gap), "{gap} ms");
    }
    for stay in stays {
        assert!((ms(200)..=ms(280)).contains(&stay), "{stay}");
    }
}

/// After six idle seconds the flow resumes at 99 % of the bandwidth, without ProbeRTT (B3-14).
#[test]
fn b3_14_restart_from_idle() {
    let mut run = run(mbps(10), ms(100), BIG);
    run.until(at_ms(4_000), |_| ());
    run.silent = true;
    run.until(at_ms(10_000), |_| ());
    assert_eq!((run.cx.inflight, run.cx.app_limited), (0, true));
    let sent = Sent {
        offset: run.cx.snd_nxt,
        len: MSS,
        kind: SentKind::New,
        first_after_idle: true,
        idle: Duration::ZERO,
        departure: run.cx.now,
    };
    run.cc.on_send(&run.cx, &sent);
    assert!(run.cc.idle_restart);
    assert!(close(pacing(&run.cc).as_bps() as f64, 0.99 * run.cc.bw.as_bps() as f64, 1e-6));
    run.silent = false;
    run.until(at_ms(10_900), |run| assert_ne!(run.cc.state, State::ProbeRtt));
}

/// The bandwidth maximum covers two cycles; a cycle without a sample leaves it unchanged (B3-15).
#[test]
fn b3_15_two_cycles_of_bandwidth() {
    let mut max_bw = MaxBw::default();
    let rs = |rate, is_app_limited| Sample {
        delivery_rate: rate,
        is_app_limited,
        ..Sample::of(&AckSample { interval: Some(ms(1)), ..sample(1) })
    };
    max_bw.update(&rs(mbps(100), false));
    max_bw.advance();
    max_bw.update(&rs(mbps(10), false));
    assert_eq!(max_bw.get(), mbps(100));
    max_bw.advance();
    assert_eq!(max_bw.get(), mbps(10));
    max_bw.advance();
    assert_eq!(max_bw.get(), mbps(10), "nothing was measured meanwhile");
    max_bw.update(&rs(mbps(5), true));
    assert_eq!(max_bw.get(), mbps(10), "a slow application");
    max_bw.update(&rs(mbps(20), true));
    assert_eq!(max_bw.get(), mbps(20), "no sample is higher than the path is fast");
}

/// After a probe with too much loss, the next probe stops at the bound. If that probe causes no excessive
/// loss, a full probe follows a round later (B3-16).
#[test]
fn b3_16_precautionary_probe() {
    let mut bench = in_state(State::Up, mbps(10));
    bench.cc.bounds.inflight_longterm = Some(80 * MSS);
    bench.cc.probe.prev_too_high = true;
    bench.cc.full_pipe.reset(mbps(1));
    let below = AckSample { prior_inflight: 78 * MSS, tx_in_flight: MSS, ..round(&mut bench, mbps(10)) };
    bench.cc.on_ack(&bench.cx, &below);
    assert_eq!(bench.cc.state, State::Up);
    let at_the_bound = AckSample { prior_inflight: 80 * MSS, ..below };
    bench.cc.on_ack(&bench.cx, &at_the_bound);
    assert_eq!(bench.cc.state, State::Down);
    assert_eq!((bench.cc.probe.prev_precautionary, bench.cc.probe.prev_too_high), (true, false));
    ack_round(&mut bench, mbps(10));
    assert_eq!(bench.cc.state, State::Refill);
    assert!(!bench.cc.probe.prev_precautionary);

    // If a loss occurs between these two probes, the flow cruises.
    let mut bench = in_state(State::Down, mbps(10));
    bench.cc.start_down(&bench.cx);
    (bench.cc.probe.prev_precautionary, bench.cc.probe.prev_too_high) = (true, true);
    ack_round(&mut bench, mbps(10));
    assert_eq!(bench.cc.state, State::Cruise);
}

/// Drain ends when the queue has drained, and in the fourth round at the latest (draft section 5.3.2; B3-5).
#[test]
fn b3_5_drain_ends() {
    let mut bench = in_state(State::Drain, mbps(10));
    bench.cc.drain_start_round = bench.cc.rounds.count;
    bench.cx.inflight = 1_000 * MSS;
    for round in 1..=4 {
        assert_eq!(bench.cc.state, State::Drain, "round {round}");
        ack_round(&mut bench, mbps(10));
    }
    assert_eq!(bench.cc.state, State::Down);
    let mut bench = in_state(State::Drain, mbps(10));
    bench.cx.inflight = bench.cc.bdp();
    ack_round(&mut bench, mbps(10));
    assert_eq!(bench.cc.state, State::Cruise, "nothing is left for DOWN to drain");
}

/// If the segments marked lost during a probe were only late, the probe resumes through REFILL, and no bound
/// is lower than before (draft section 5.5.11; B3-19).
#[test]
fn b3_19_spurious_loss_while_probing() {
    for signal in [Signal::SpuriousRecovery, Signal::SpuriousTimeout] {
        let mut bench = in_state(State::Up, mbps(10));
        bench.cc.bounds.inflight_longterm = Some(300 * MSS);
        bench.cc.probe.is_sample = true;
        let cwnd = bench.cc.cwnd;
        bench.cc.on_lost(&bench.cx, &lost(0, 10, 100));
        assert_eq!(bench.cc.state, State::Down);
        assert!(bench.cc.bounds.inflight_longterm < Some(300 * MSS));
        if signal == Signal::SpuriousTimeout {
            bench.signal(Signal::Timeout { first: true });
            assert_eq!(bench.cc.cwnd, bench.cx.inflight + MSS);
        }
        bench.signal(signal);
        assert_eq!(bench.cc.state, State::Refill);
        assert_eq!(bench.cc.bounds.inflight_longterm, Some(300 * MSS));
        assert!(bench.cc.cwnd >= cwnd && bench.cc.episode.is_none());
    }
}

/// At least four segments may be in flight, however small the BDP (B3-20).
#[test]
fn b3_20_less_than_a_packet() {
    let mut run = run(Rate::from_bps(64_000), Duration::from_micros(100), BIG);
    run.until(at_ms(20_000), |run| {
        assert!(run.control().cwnd >= MIN_PIPE_SEGMENTS * MSS);
    });
    assert!(close(run.cc.bw.as_bps() as f64, 64_000.0, 0.02), "{}", run.cc.bw);
    let delivered = run.cx.delivered;
    run.until(at_ms(40_000), |_| ());
    let rate = Rate::of(Bytes::new(run.cx.delivered - delivered), ms(20_000));
    assert!(rate.as_bps() > 62_000, "{rate}");
}

/// `extra_acked` is the amount that a burst of ACKs acknowledges beyond the bandwidth, at most one window
/// (draft section 5.5.9; B3-21).
#[test]
fn b3_21_extra_acked() {
    let bw = Rate::from_bytes_per_sec(1_000_000);
    let extra = |cwnd| {
        let mut aggregation = Aggregation::new(Instant::ZERO);
        aggregation.update(at_ms(0), 1, bw, 0, cwnd, true);
        aggregation.update(at_ms(10), 29_999, bw, 0, cwnd, true);
        aggregation.extra()
    };
    // Within 10 ms, 30 000 bytes are ACKed, of which the bandwidth estimate accounts for 10 000. Whether the
    // 10 000 bytes are subtracted depends on the start of the interval, because only 1 byte was acknowledged
    // before the burst.
    assert!((19_999..=30_000).contains(&extra(1 << 20)));
    assert_eq!(extra(15_000), 15_000);

    // The filter covers ten rounds once the pipe is full, and one round before that.
    for (full, rounds) in [(true, 10), (false, 1)] {
        let mut aggregation = Aggregation::new(Instant::ZERO);
        aggregation.update(at_ms(0), 20_000, bw, 0, 1 << 20, full);
        let kept = (1..).find(|round| {
            aggregation.update(at_ms(1_000 * round), 1, bw, *round, 1 << 20, full);
            aggregation.extra() < 20_000
        });
        assert_eq!(kept, Some(rounds + 1));
    }
}

/// An ECN mark is a congestion signal (draft section 3.7; ECN-5). The mark lowers the short-term bounds at
/// the end of its round, and ends a probe.
#[test]
fn ecn_5_a_mark_is_congestion() {
    let mut bench = in_state(State::Cruise, mbps(10));
    bench.signal(Signal::EcnEcho);
    ack_round(&mut bench, mbps(10));
    assert!(bench.cc.bounds.bw_shortterm.is_some());
    let mut bench = in_state(State::Up, mbps(10));
    bench.cc.probe.is_sample = true;
    bench.signal(Signal::EcnEcho);
    assert_eq!(bench.cc.state, State::Down);
    assert!(bench.cc.bounds.inflight_longterm.is_some());
}

/// A timeout reduces the window to the data in flight plus one segment. The end of recovery restores the
/// window.
#[test]
fn a_timeout_and_its_repair() {
    let mut bench = in_state(State::Cruise, mbps(10));
    bench.cc.cwnd = 100 * MSS;
    bench.cx.inflight = 3 * MSS;
    bench.signal(Signal::Timeout { first: true });
    assert_eq!(bench.cwnd(), 4);
    bench.cx.inflight = 0;
    bench.signal(Signal::Timeout { first: false });
    assert_eq!(bench.cwnd(), 1);
    bench.signal(Signal::ExitRecovery);
    assert_eq!(bench.cwnd(), 100);
}

/// The send quantum is the amount sent in 1 ms, at least two segments and at most 64 KiB (draft section
/// 5.6.3; PC-5).
#[test]
fn pc_5_send_quantum() {
    let quantum = |rate: Rate| {
        let mut bench = bench();
        bench.cc.pacing_rate = rate;
        bench.cc.set_send_quantum();
        bench.cc.control().send_quantum
    };
    assert_eq!(quantum(Rate::from_bps(9_900_000)), SendQuantum::Bytes(2_896));
    assert_eq!(quantum(mbps(100)), SendQuantum::Bytes(12_500));
    assert_eq!(quantum(mbps(990)), SendQuantum::Bytes(65_536));
}

/// Nothing overflows at rates from 8 kbit/s to 1 Tbit/s and times from 10 us to 10 s (INV-11).
#[test]
fn extreme_paths() {
    for rate in [8_000, 1_000_000_000_000] {
        for rtt in [Duration::from_micros(10), Duration::from_secs(10)] {
            let mut bench = Bench::new(10, Bbr3::new);
            bench.cc.min_rtt = MinRtt::new(Instant::ZERO, Some(rtt));
            for state in [
                State::Startup,
                State::Drain,
                State::Down,
                State::Cruise,
                State::Refill,
                State::Up,
                State::ProbeRtt,
            ] {
                bench.cc.state = state;
                ack_round(&mut bench, Rate::from_bps(rate));
                bench.cc.on_lost(&bench.cx, &lost(0, 10_000_000, 10_000_000));
            }
            assert!(bench.cwnd() >= 4 && bench.cc.cwnd < u64::MAX / 2);
        }
    }
}

/// As in BBRv1, the rate of a launch replaces the first pacing rate, and after the first timeout the window
/// may exceed the data in flight by several segments.
#[test]
fn launch_and_loss_window() {
    let rate = mbps(20);
    let hints = Hints { launch: Some(Launch::DEFAULT), loss_window: Some(4), ..Hints::default() };
    let mut bench = Bench::hinted(44, hints, Bbr3::new);
    assert_eq!((bench.cwnd(), pacing(&bench.cc)), (44, rate));
    bench.ack(0);
    assert_eq!(pacing(&bench.cc), rate);
    for (inflight, after) in [(0, 4), (40, 44), (43, 44)] {
        bench.cc.cwnd = 44 * MSS;
        bench.cx.inflight = inflight * MSS;
        bench.signal(Signal::Timeout { first: true });
        assert_eq!(bench.cwnd(), after, "{inflight} in flight");
        bench.signal(Signal::Timeout { first: false });
        assert_eq!(bench.cwnd(), inflight + 1);
    }
}
