use fullpipe_units::{Instant, Rate};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::cc::testing::{Bench, MSS, Run, at_ms, ms, sample};
use crate::cc::{Launch, LossCause as Cause, Pacing};

/// Returns a run of surge with its launch, on a path with a queue of `queue` BDP.
fn run(rate: &str, rtt: Duration, queue: f64) -> Run<Surge> {
    let rate: Rate = rate.parse().unwrap();
    let bdp = (rate * rtt).get() as f64;
    Run::of(|cx, hints| Surge::new(cx, &launched(hints, rtt)), rate, rtt, (queue * bdp) as u64)
}

fn launched(hints: &Hints, rtt: Duration) -> Hints {
    let launch = Launch::DEFAULT;
    let (initial_cwnd, launch) = (Some(launch.bytes(MSS)), Some(launch));
    Hints { rtt: Some(rtt), initial_cwnd, launch, ..hints.clone() }
}

fn pacing(control: Control) -> Rate {
    match control.pacing {
        Pacing::Rate(rate) => rate,
        other => panic!("{other:?}"),
    }
}

/// The launch sets the window and the rate of the first flight. Without a launch, surge starts like BBRv1.
#[test]
fn the_first_flight_is_the_launch() {
    let hints = Hints { rtt: Some(ms(100)), ..Hints::default() };
    let cx = crate::cc::testing::context();
    let surge = Surge::new(&cx, &launched(&hints, ms(100))).control();
    assert_eq!((surge.cwnd, pacing(surge)), (44 * MSS, Rate::from_bps(20_000_000)));
    assert_eq!(Surge::new(&cx, &hints).control(), Bbr1::new(&cx, &hints).control());
}

/// Each round trip delivers about three times as much as the previous one until the pipe is full.
#[test]
fn climb_triples_the_flight() {
    let mut run = run("10gbit", ms(100), 1.0);
    let mut delivered = vec![0];
    for round in 1..=5 {
        run.until(at_ms(100 * round + 99), |_| ());
        delivered.push(run.cx.delivered / MSS);
    }
    let flights: Vec<_> = delivered.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(flights[..4], [44, 132, 396, 1188]);
    // From here on, twice the rate of the ACKs bounds the pacing rate.
    assert!((2 * 1188..3 * 1188).contains(&flights[4]), "{flights:?}");
    assert_eq!(run.phase(), "Climb");
}

/// The ACKs of one flight show the rate of the bottleneck to within a tenth. Within ten round trips, the pipe is full
/// and the queue has drained. The excess data that Climb sends fits into a queue of one BDP. On the shortest path, the
/// last doubling of the rate begins just below the rate of the link, and at most a quarter of a BDP is lost.
#[test]
fn climb_ends_at_the_rate_of_the_bottleneck() {
    for (rate, rtt) in [("100mbit", 50), ("100mbit", 200), ("20mbit", 100), ("300mbit", 20), ("10mbit", 50)] {
        let mut run = run(rate, ms(rtt), 1.0);
        let mut fastest = Rate::ZERO;
        run.until(at_ms(10 * rtt), |run| {
            if !matches!(run.cc.state, State::Cruise) {
                fastest = run.cc.train.fastest();
            }
        });
        let of_link = |bps: f64| bps / run.rate.as_bps() as f64;
        let shown = of_link(fastest.as_bps() as f64);
        assert!((0.9..1.1).contains(&shown), "{rate} {rtt} ms: {shown:.3}");
        assert_eq!(run.phase(), "ProbeBW", "{rate} {rtt} ms");
        let lost = run.cx.lost as f64 / MSS as f64 / run.bdp_segments();
        assert!(lost < if rtt == 20 { 0.25 } else { 0.001 }, "{rate} {rtt} ms: {lost:.2} BDP lost");
        assert!((0.95..1.05).contains(&of_link(run.value("bw"))), "{rate} {rtt} ms");
    }
}

/// Returns the largest pacing rate before Cruise, in Mbit/s, with a remembered bottleneck of `mbps`. The path has the
/// rate `rate` and a queue of a quarter of a BDP.
fn remembering(rate: &str, mbps: u64) -> f64 {
    let known = Rate::from_bps(1_000_000 * mbps);
    let (rtt, rate): (_, Rate) = (ms(100), rate.parse().unwrap());
    let hinted = |cx: &Context, hints: &Hints| {
        let launch = Some(Launch { rate: known.min(Launch::DEFAULT.rate), ..Launch::DEFAULT });
        Surge::new(cx, &Hints { launch, bottleneck: Some(known), ..launched(hints, rtt) })
    };
    let mut run = Run::of(hinted, rate, rtt, (rate * rtt).get() / 4);
    let mut most = Rate::ZERO;
    run.until(at_ms(2_000), |run| {
        if !matches!(run.cc.state, State::Cruise) {
            most = most.max(pacing(run.cc.control()));
        }
    });
    assert_eq!(run.phase(), "ProbeBW");
    assert!((0.9..1.1).contains(&(run.value("bw") / rate.as_bps() as f64)), "{}", run.value("bw"));
    most.as_bps() as f64 / 1e6
}

/// A remembered bottleneck limits the rate of the start to 5/4 of its rate. If the path has become faster, the ACKs
/// lift the bound.
#[test]
fn a_remembered_bottleneck_is_not_exceeded() {
    let most = remembering("10mbit", 10);
    assert!((10.0..=12.5).contains(&most), "{most} Mbit/s");
    let most = remembering("100mbit", 10);
    assert!(most > 80.0, "{most} Mbit/s");
}

/// Returns two shares on a lossy path: the share of the ACKs during which the controller conserves packets, and the
/// bandwidth estimate as a share of the link rate.
fn on_a_lossy_path<C: CongestionControl>(mut run: Run<C>, conserves: impl Fn(&C) -> bool) -> (f64, f64) {
    run.loss_ppm = 20_000;
    let (mut conserved, mut acks) = (0.0, 0.0);
    run.until(at_ms(8_000), |run| {
        conserved += f64::from(u8::from(conserves(&run.cc)));
        acks += 1.0;
    });
    (conserved / acks, run.value("bw") / run.rate.as_bps() as f64)
}

/// With random loss, the window triples as it does without loss. BBRv1 conserves packets during half of the time,
/// whereas surge does so only for losses that coincide with the queue of a probe.
#[test]
fn random_loss_is_no_reason_to_slow_down() {
    let mut start = run("1gbit", ms(100), 1.0);
    start.loss_ppm = 20_000;
    start.until(at_ms(399), |_| ());
    // The flights have 44, 132 and 396 segments, less 2 %.
    assert!(start.cx.delivered / MSS > 550, "{}", start.cx.delivered / MSS);

    let plain = Run::of(Bbr1::new, "100mbit".parse().unwrap(), ms(50), 625_000);
    let (of_bbr1, _) = on_a_lossy_path(plain, Bbr1::is_conserving);
    let (share, bw) = on_a_lossy_path(run("100mbit", ms(50), 1.0), |surge| surge.path.is_conserving());
    assert!(of_bbr1 > 0.3 && share < of_bbr1 / 3.0, "{share:.2}, BBRv1 {of_bbr1:.2}");
    assert!(bw > 0.95, "{bw}");
}

/// A loss behind a full queue is congestive. The sender then conserves packets, and neither its window nor its rate
/// grows with the ACK that reports the loss.
#[test]
fn congestive_loss_is_conserved() {
    let mut run = run("50mbit", ms(40), 0.5);
    run.until(at_ms(2_000), |_| ());
    // Other flows take half of the link, so the queue fills up.
    run.set_rate("25mbit".parse().unwrap());
    let (mut lost, mut conserved) = (run.cx.lost, 0);
    run.until(at_ms(3_000), |run| {
        if run.cx.lost > lost && run.cx.in_recovery {
            lost = run.cx.lost;
            conserved += u64::from(run.cc.path.is_conserving());
        }
    });
    assert!(conserved > 0, "{lost} bytes lost");
}

/// A congestive loss ends Climb, and the rate falls to 5/4 of the rate that the ACKs have shown. After a timeout, the
/// rate falls to that of BBRv1's Startup.
#[test]
fn congestion_ends_climb() {
    for timeout in [false, true] {
        let mut run = run("1gbit", ms(100), 1.0);
        run.until(at_ms(350), |_| ());
        assert_eq!(run.phase(), "Climb");
        let before = run.control();
        if timeout {
            run.cc.on_signal(&run.cx, Signal::Timeout { first: true });
        } else {
            run.cx.in_recovery = true;
            run.cc.on_signal(&run.cx, Signal::EcnEcho);
            run.cc.on_ack(&run.cx, &AckSample { rtt: Some(ms(100)), ..sample(1) });
        }
        let after = run.control();
        assert_eq!(run.phase(), if timeout { "Startup" } else { "Retreat" });
        assert!(after.cwnd <= before.cwnd && pacing(after) < pacing(before), "{before:?} {after:?}");
        let shown = run.cc.path.path_rate().max(run.cc.train.fastest());
        let most = if timeout { run.cc.path.startup_rate() } else { shown.mul_div(5, 4) };
        assert!(pacing(after) <= most, "{after:?} {most}");
    }
}

/// Returns the measurement of a train of 21 segments that leave every `sent` microseconds and are acknowledged every
/// `acked` microseconds. The ACK of the last one is read `late` milliseconds late, and in the same batch as the ACKs of
/// `more` segments that have arrived in the meantime. A measurement that shows dispersion takes precedence.
fn train(sent: u64, acked: u64, late: u64, more: u64) -> Option<TrainRate> {
    let mut train = Train::default();
    let mut cx = crate::cc::testing::context();
    let at = |micros: u64| Instant::ZERO + Duration::from_micros(micros);
    let read_at = 50_000 + 20 * acked + late * 1_000;
    let mut shown: Option<TrainRate> = None;
    // The ACK of the next flight ends the batch.
    for i in 0..=21 + more {
        cx.now = at(match i {
            0..20 => 50_000 + i * acked,
            _ if i <= 20 + more => read_at + (i - 20) * 3,
            _ => read_at + 50_000,
        });
        cx.delivered += MSS;
        let judged =
            train.on_ack(&cx, &AckSample { newest_sent_at: at(i * sent), ..sample(1) }, Some(ms(50)));
        if i > 20 && !shown.is_some_and(|shown| shown.is_dispersed()) {
            shown = judged.or(shown);
        }
    }
    shown
}

/// ACKs are dispersed if they are more than a quarter further apart than the transmissions. A delayed ACK does not
/// count, and of the ACKs that a sender reads late, only the last one counts.
#[test]
fn dispersion_of_a_train() {
    let shown = |sent, acked| train(sent, acked, 0, 0).map(|train| (train.is_dispersed(), train.rate));
    let rate = rate_of(MSS, Duration::from_micros(500));
    assert_eq!(shown(500, 500), Some((false, rate)));
    assert_eq!(shown(400, 500), Some((false, rate)));
    assert_eq!(shown(399, 500), Some((true, rate)));
    // Twenty segments within 4 ms are too few.
    assert_eq!(shown(100, 200), None);
    assert!(train(500, 500, 5, 0).is_some_and(|train| train.is_dispersed()));
    assert!(train(500, 500, 3, 6).is_some_and(|train| !train.is_dispersed()));
    assert_eq!(train(500, 500, 40, 0), None);
}

/// Round trip of 20 ms in Cruise. Two of its ACKs have a queueing delay of 5 ms.
#[derive(Clone, Copy)]
struct RoundTrip {
    /// Delivery rate in Mbit/s.
    mbps: u64,
    /// Queueing delay of a third ACK in milliseconds.
    least: u64,
    app_limited: bool,
    paces_below: bool,
}

/// A round trip with a standing queue that delivers 8 Mbit/s.
const QUEUED: RoundTrip = RoundTrip { mbps: 8, least: 5, app_limited: false, paces_below: false };

fn model(estimate: Rate) -> Model {
    Model { estimate, min_rtt: Some(ms(20)), allowance: ms(1), paces_below: false }
}

/// Returns the rate in Mbit/s that replaces an estimate of 10 Mbit/s at the end of each round trip, or 0. They follow two
/// round trips at the start of Cruise, which do not count.
fn corrections(round_trips: &[RoundTrip]) -> Vec<u64> {
    let (mut share, mut cx) = (Share::default(), crate::cc::testing::context());
    cx.delivered = MSS;
    let mut corrected = Vec::new();
    for (round, trip) in [QUEUED; 2].iter().chain(round_trips).enumerate() {
        let prior_delivered = if round == 0 { 0 } else { cx.delivered };
        let ack = |round_start| AckSample {
            prior_delivered,
            round_start,
            app_limited: trip.app_limited,
            ..sample(1)
        };
        for (sample, queueing) in [(ack(false), 5), (ack(false), trip.least), (ack(true), 5)] {
            if sample.round_start {
                cx.now = at_ms(20 * round as u64);
                cx.delivered += (Rate::from_bps(1_000_000 * trip.mbps) * ms(20)).get();
            }
            let model = Model { paces_below: trip.paces_below, ..model(Rate::from_bps(10_000_000)) };
            let rate = share.on_ack(&cx, &sample, model, ms(queueing));
            assert!(sample.round_start || rate.is_none());
            if sample.round_start && round >= 2 {
                corrected.push(rate.map_or(0, |rate| rate.as_bps() / 1_000_000));
            }
        }
    }
    corrected
}

/// While the queue is never empty, the highest rate of the last four round trips replaces the estimate. The first round
/// trips of Cruise count at once; later, a round trip with an empty queue prevents the correction for four round trips.
#[test]
fn a_standing_queue_corrects_the_estimate() {
    let rates = |mbps: &[u64]| mbps.iter().map(|&mbps| RoundTrip { mbps, ..QUEUED }).collect::<Vec<_>>();
    assert_eq!(corrections(&[QUEUED; 20]), [8; 20]);
    assert_eq!(corrections(&rates(&[7, 9, 8, 7, 7, 7, 6])), [7, 9, 9, 9, 9, 8, 7]);
    assert_eq!(corrections(&rates(&[10, 9, 9, 9, 9])), [0, 0, 0, 0, 9]);

    // At an RTT of 20 ms, a delay of 2.5 ms is no queue.
    let without = |trip: RoundTrip| corrections(&[QUEUED, trip, QUEUED, QUEUED, QUEUED, QUEUED]);
    assert_eq!(without(RoundTrip { least: 3, ..QUEUED }), [8; 6]);
    assert_eq!(without(RoundTrip { least: 2, ..QUEUED }), [8, 0, 0, 0, 0, 8]);
    assert_eq!(without(RoundTrip { app_limited: true, ..QUEUED }), [8, 0, 0, 0, 0, 8]);
    // The segments of a round trip in which surge paces below the estimate are delivered in the next one.
    assert_eq!(without(RoundTrip { mbps: 6, paces_below: true, ..QUEUED }), [8, 0, 0, 8, 8, 8]);

    // The ACKs of a hostile peer may end a round trip at once.
    let (mut share, cx) = (Share::default(), crate::cc::testing::context());
    let ack = AckSample { round_start: true, ..sample(1) };
    for _ in 0..3 {
        assert_eq!(share.on_ack(&cx, &ack, model(Rate::MAX), ms(5)), None);
    }
}

/// Round trip with an RTT of at least 80 ms, in which `lost` of `segments` segments are lost, the last of them behind a
/// queue of `queueing` milliseconds.
#[derive(Clone, Copy)]
struct Losses {
    segments: u64,
    lost: u64,
    queueing: u64,
}

fn queue(delay: u64, is_held: bool) -> QueueSigns {
    QueueSigns { delay: ms(delay), is_held, is_marked: false }
}

/// Returns the bound after a flight of 100 segments and the round trips `quiet`, without a queue, and `last`, with a minimum
/// RTT of `min_rtt` in the last one. All data of earlier round trips is acknowledged.
fn bound_after(quiet: &[Losses], last: Losses, min_rtt: u64, held: bool) -> Option<u64> {
    let mut bound = Bound::default();
    let mut cx = Context { max_inflight: 100 * MSS, ..crate::cc::testing::context() };
    let path = |rtt| {
        Bbr1::new(&Context { min_rtt: Some(ms(rtt)), ..crate::cc::testing::context() }, &Hints::default())
    };
    let mut after = None;
    for (round, trip) in quiet.iter().chain([&last]).enumerate() {
        let path = path(if round < quiet.len() { 80 } else { min_rtt });
        cx.snd_una = cx.snd_nxt;
        let delivered = AckSample { round_start: true, ..sample(trip.segments - trip.lost) };
        bound.on_ack(&cx, &delivered, &path, queue(0, held), true);
        let lost = AckSample { newly_lost: trip.lost * MSS, ..sample(0) };
        after = bound.on_ack(&cx, &lost, &path, queue(trip.queueing, held), true);
        cx.snd_nxt += trip.segments * MSS;
    }
    after
}

/// A congestive loss leaves 0.7 of the flight, or 0.35 if other flows hold a queue. A loss is congestive behind at least
/// half of the longest queue, if random loss does not explain it.
#[test]
fn congestive_losses_bound_the_window() {
    let trip = |segments, lost, queueing| Losses { segments, lost, queueing };
    let after = |quiet: &[Losses], last| bound_after(quiet, last, 80, false);
    assert_eq!(after(&[], trip(100, 1, 11)), Some(70));
    assert_eq!(bound_after(&[], trip(100, 1, 11), 80, true), Some(35));
    assert_eq!(after(&[], trip(100, 0, 11)), None);
    // At an RTT of 80 ms, a delay of 10 ms is no queue.
    assert_eq!(after(&[], trip(100, 1, 10)), None);
    assert_eq!(after(&[trip(100, 0, 24)], trip(100, 1, 12)), Some(70));
    assert_eq!(after(&[trip(100, 0, 24)], trip(100, 1, 11)), None);

    // 16 lost segments of 1000 show a random loss of at least 1.2 %: 1.2 of 100 segments, at most 1 + 1.2 + 3.3.
    let lossy = [trip(500, 8, 0); 2];
    assert_eq!(after(&lossy, trip(100, 5, 20)), None);
    assert_eq!(after(&lossy, trip(100, 6, 20)), Some(70));
    // One lost segment shows nothing.
    assert_eq!(after(&[trip(100, 1, 0)], trip(100, 1, 20)), Some(70));
    // If the minimum RTT falls, the round trips were not without a queue.
    assert_eq!(bound_after(&lossy, trip(100, 5, 20), 75, false), None);
    assert_eq!(bound_after(&lossy, trip(100, 5, 20), 74, false), Some(70));
}

/// A mark reduces the bound like a loss. The bound is reduced once per window of data, grows only while it limits the data
/// in flight, and exists only in Cruise.
#[test]
fn the_bound_follows_a_window_of_cubic() {
    let mut bound = Bound::default();
    let mut cx = Context { max_inflight: 100 * MSS, snd_nxt: 100 * MSS, ..crate::cc::testing::context() };
    let path = Bbr1::new(&Context { min_rtt: Some(ms(80)), ..cx.clone() }, &Hints::default());
    let lost = AckSample { newly_lost: MSS, ..sample(0) };
    assert_eq!(bound.on_ack(&cx, &lost, &path, queue(20, false), false), None, "before Cruise");
    let marked = QueueSigns { is_marked: true, ..queue(0, false) };
    assert_eq!(bound.on_ack(&cx, &sample(1), &path, marked, true), Some(70));
    assert_eq!(bound.on_ack(&cx, &lost, &path, queue(20, false), true), Some(70), "same window of data");
    cx.snd_una = cx.snd_nxt;
    let mut grown = |flight: u64, bound: &mut Bound| {
        cx.max_inflight = flight * MSS;
        (0..100).for_each(|_| {
            cx.now += ms(10);
            bound.on_ack(&cx, &sample(2), &path, queue(0, false), true);
        });
        bound.on_ack(&cx, &sample(0), &path, queue(0, false), true).expect("bound")
    };
    assert_eq!(grown(67, &mut bound), 70);
    let more = grown(68, &mut bound);
    assert!((71..90).contains(&more), "{more}");
    assert_eq!(bound.on_ack(&cx, &lost, &path, queue(20, false), true), Some(more * 717 / 1024));
}

/// A flow that is alone overflows a short queue in its probes. Its bound then stays at the BDP or above, and the link stays
/// busy.
#[test]
fn a_flow_alone_keeps_the_link_busy() {
    let mut run = run("20mbit", ms(50), 0.25);
    let mut bounded = false;
    let bdp = run.bdp_segments() as u64;
    run.until(at_ms(20_000), |run| {
        let cwnd = run.control().cwnd / MSS;
        bounded |= cwnd < run.cc.path.window();
        assert!(cwnd >= bdp - 2 || run.phase() == "ProbeRTT" || run.cx.now < at_ms(1_000), "{cwnd} of {bdp}");
    });
    assert!(bounded && run.cx.lost > 0);
    let used = run.cx.delivered as f64 / (run.rate * Duration::from_secs(20)).get() as f64;
    assert!(used > 0.95, "{used}");
}

/// Loss is congestive if there is a mark, a queue or much loss, or if there is no SACK. A single loss without a queue
/// is random.
#[test]
fn causes_of_loss() {
    let judged = |rtt: u64, segments: u64, inflight: u64, mark: bool| {
        let mut judge = LossJudge::default();
        let mut cx = crate::cc::testing::context();
        cx.inflight = inflight * MSS;
        for _ in 0..segments {
            judge.on_lost(&lost());
        }
        judge.on_ack(&cx, &AckSample { rtt: Some(ms(rtt)), ..sample(1) }, Some(ms(80)), mark)
    };
    let (congestion, random) = (Some(LossVerdict::Congestion), Some(LossVerdict::Random));
    assert_eq!(judged(80, 0, 50, false), None);
    assert_eq!(judged(80, 0, 50, true), congestion);
    assert_eq!((judged(90, 1, 50, false), judged(91, 1, 50, false)), (random, congestion));
    assert_eq!((judged(80, 5, 10, false), judged(80, 6, 10, false)), (random, congestion));
    assert_eq!((judged(80, 6, 42, false), judged(80, 6, 41, false)), (random, congestion));

    let mut judge = LossJudge::default();
    judge.on_lost(&lost());
    let without_sack = Context { has_sack: false, ..crate::cc::testing::context() };
    assert_eq!(judge.on_ack(&without_sack, &sample(1), Some(ms(80)), false), congestion);
}

fn lost() -> Lost {
    Lost {
        offset: 0,
        len: MSS,
        tx_in_flight: 10 * MSS,
        lost_since_sent: MSS,
        app_limited: false,
        starts_new_range: true,
        cause: Cause::Rack,
    }
}

/// Event that the property test injects into a controller.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// ACK of this many segments, with an RTT in milliseconds.
    Ack {
        segments: u64,
        rtt: u64,
        round: bool,
        app_limited: bool,
    },
    /// Loss of this many segments, with which recovery begins.
    Loss {
        segments: u64,
    },
    Recovered,
    Timeout,
    Mark,
    /// Pause in milliseconds, after which nothing is in flight.
    Idle {
        time: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (1..45_u64, 40..200_u64, any::<bool>(), any::<bool>())
            .prop_map(|(segments, rtt, round, app_limited)| Event::Ack { segments, rtt, round, app_limited }),
        3 => (1..20_u64).prop_map(|segments| Event::Loss { segments }),
        2 => Just(Event::Recovered),
        1 => Just(Event::Timeout),
        1 => Just(Event::Mark),
        1 => (1..20_000_u64).prop_map(|time| Event::Idle { time }),
    ]
}

/// Largest window and rate that the events so far permit.
struct Bounds {
    window: u64,
    rate: Rate,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(19), failure_persistence: None, ..ProptestConfig::default() })]

    /// After any sequence of ACKs, losses, marks and pauses, the window is at least one segment, and at most the
    /// launch, three times the data that was in flight, or BBRv1's multiple of the BDP. The rate is never zero, and at
    /// most the launch rate, twice the largest window per RTT, or Startup's multiple of the bandwidth. While surge
    /// starts, a congestive loss raises neither the window nor the rate.
    #[test]
    fn window_and_rate_stay_within_their_bounds(events in prop::collection::vec(event(), 1..200)) {
        let hints = launched(&Hints::default(), ms(100));
        let mut bench = Bench::hinted(44, Hints { launch: hints.launch, ..Hints::default() }, Surge::new);
        let mut bounds = Bounds { window: 44, rate: pacing(bench.cc.control()) };
        let mut most_bw = Rate::ZERO;
        let mut marked = false;
        for event in events {
            let before = bench.cc.control();
            let starts = !matches!(bench.cc.state, State::Cruise);
            let cx = &mut bench.cx;
            let mut congested = false;
            match event {
                Event::Ack { segments, rtt, round, app_limited } => {
                    congested = std::mem::take(&mut marked);
                    cx.inflight = cx.inflight.max(segments * MSS).min(before.cwnd.max(segments * MSS));
                    let prior = cx.inflight;
                    cx.max_inflight = cx.max_inflight.max(prior);
                    cx.inflight -= segments * MSS;
                    cx.now += ms(rtt / 8);
                    cx.delivered += segments * MSS;
                    cx.delivered_time = cx.now;
                    cx.srtt = Some(ms(rtt));
                    let interval = ms(rtt);
                    most_bw = most_bw.max(rate_of(segments * MSS, interval));
                    let ack = AckSample {
                        rtt: Some(ms(rtt)),
                        interval: Some(interval),
                        prior_inflight: prior,
                        prior_delivered: if round { cx.delivered - segments * MSS } else { 0 },
                        newest_sent_at: Instant::from_nanos(cx.now.as_nanos().saturating_sub(ms(rtt).as_nanos())),
                        app_limited,
                        round_start: round,
                        ..sample(segments)
                    };
                    bench.cc.on_ack(&bench.cx, &ack);
                    // The next flight fills the window.
                    bench.cx.inflight = bench.cc.control().cwnd;
                    bench.cx.max_inflight = bench.cx.max_inflight.max(bench.cx.inflight);
                    bounds.window = bounds.window.max(3 * prior / MSS + 3 * segments);
                }
                Event::Loss { segments } => {
                    let segments = segments.min(cx.inflight / MSS);
                    cx.inflight -= segments * MSS;
                    cx.lost += segments * MSS;
                    (0..segments).for_each(|_| bench.cc.on_lost(&bench.cx, &lost()));
                    if !bench.cx.in_recovery && !bench.cx.in_loss {
                        bench.cx.in_recovery = true;
                        bench.signal(Signal::EnterRecovery);
                    }
                }
                Event::Recovered => {
                    (cx.in_recovery, cx.in_loss) = (false, false);
                    bench.signal(Signal::ExitRecovery);
                }
                Event::Timeout => {
                    (cx.in_recovery, cx.in_loss, cx.inflight) = (false, true, 0);
                    bench.signal(Signal::Timeout { first: true });
                    congested = true;
                }
                Event::Mark => {
                    bench.signal(Signal::EcnEcho);
                    marked = true;
                }
                Event::Idle { time } => {
                    cx.now += ms(time);
                    cx.inflight = 0;
                }
            }
            let control = bench.cc.control();
            let window = control.cwnd / MSS;
            bounds.rate = bounds.rate.max(most_bw.mul_div(3, 1));
            bounds.rate = bounds.rate.max(rate_of(3 * control.cwnd, ms(40)));
            // BBRv1's window consists of 2.89 BDP, 100 ms of bandwidth for aggregated ACKs, and three quanta.
            let model = (most_bw * ms(3 * 200 + 100)).get() / MSS + 3 * 127 + 4;
            prop_assert!((1..=bounds.window.max(model)).contains(&window), "{window} {} {model}", bounds.window);
            prop_assert!(!pacing(control).is_zero() && pacing(control) <= bounds.rate);
            if congested && starts {
                prop_assert!(control.cwnd <= before.cwnd && pacing(control) <= pacing(before));
            }
        }
    }
}
