//! Common properties of all elements: results depend on arrivals only, packets are conserved, and order is
//! kept unless reordering is requested.

use fullpipe_path::{
    AccessLinks, AckDecimation, Aggregator, AggregatorConfig, CodelConfig, Counters, Detour, DetourConfig,
    Discipline, Duplication, Ecn, Element, FqCodelConfig, Hop, HopConfig, IidLoss, Jitter, JitterConfig,
    LossUnit, ManagedHop, ManagedHopConfig, Note, Opportunities, PacketInfo, PacketKind, Path, PieConfig,
    RedConfig, Scope, Service, Shaper, ShaperConfig, Spread, Verdict,
};
use fullpipe_units::{Bytes, Draws, Duration, Instant, Probability, Rate};

const SEED: u64 = 11;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn hop(rate: u64, queue: u64) -> Element<u64> {
    Element::Hop(Hop::new(HopConfig { rate: Rate::from_bps(rate), delay: ms(3), queue: Bytes::new(queue) }))
}

fn managed(service: Service, discipline: Discipline) -> Element<u64> {
    let config = ManagedHopConfig { service, delay: ms(3), queue: Bytes::new(60_000), discipline };
    Element::ManagedHop(Box::new(ManagedHop::new(config, SEED, 5)))
}

fn ten_mbit() -> Service {
    Service::Rate(Rate::from_bps(10_000_000))
}

/// Returns a trace of about 9 Mbit/s with bursts and a pause.
fn trace() -> Service {
    let times = (0..100).filter(|n| n % 10 < 8).map(|n| ms(2 * n)).collect();
    Service::Trace(Opportunities::new(times, ms(210), Bytes::new(3_000)).expect("ascending"))
}

fn jitter(in_order: bool) -> Element<u64> {
    let config = JitterConfig { most: ms(8), spread: Spread::Normal, share: Probability::ONE, in_order };
    Element::Jitter(Box::new(Jitter::new(config, SEED, 6)))
}

fn disciplines() -> Vec<Discipline> {
    let codel = CodelConfig { target: ms(2), interval: ms(20), ecn: true };
    vec![
        Discipline::DropTail,
        Discipline::Step(Bytes::new(10_000)),
        Discipline::Red(RedConfig {
            min: Bytes::new(5_000),
            max: Bytes::new(15_000),
            probability: Probability::from_ppm(100_000),
            gentle: true,
            ecn: true,
        }),
        Discipline::Pie(PieConfig { target: ms(2), burst: ms(30), ecn: true, ..PieConfig::RFC8033 }),
        Discipline::Codel(codel),
        Discipline::Codel(CodelConfig { ecn: false, ..codel }),
        Discipline::FqCodel(FqCodelConfig { codel, packets: 25, ..FqCodelConfig::RFC8290 }),
    ]
}

/// Returns a list of paths that contain every element, alone and in combination.
fn paths() -> Vec<(String, Vec<Element<u64>>)> {
    let mut paths = Vec::new();
    for service in [ten_mbit(), trace()] {
        for discipline in disciplines() {
            let name = format!(
                "{discipline:?} {}",
                if matches!(service, Service::Rate(_)) { "rate" } else { "trace" }
            );
            let alone = managed(service.clone(), discipline);
            let shaper = Shaper::new(ShaperConfig {
                rate: Rate::from_bps(10_500_000),
                burst: Bytes::new(6_000),
                queue: Bytes::new(20_000),
                scope: Scope::Aggregate,
            });
            let crowd = vec![
                Element::Duplication(Duplication::new(Probability::from_ppm(20_000), SEED, 1)),
                Element::Shaper(shaper),
                Element::Loss(IidLoss::new(Probability::from_ppm(20_000), LossUnit::Packet, SEED, 0)),
                alone.clone(),
                Element::Aggregator(Aggregator::new(AggregatorConfig { within: ms(4), packets: 6 })),
                jitter(true),
                hop(9_000_000, 9_000),
            ];
            paths.push((name.clone(), vec![alone]));
            paths.push((format!("{name}, among others"), crowd));
        }
    }
    let thinning = || Element::AckDecimation(AckDecimation::new(3));
    let aggregator = || Element::Aggregator(Aggregator::new(AggregatorConfig { within: ms(5), packets: 4 }));
    paths.push(("overtaking".into(), vec![hop(10_000_000, 30_000), jitter(false)]));
    paths.push(("thinning".into(), vec![thinning(), hop(10_000_000, 30_000)]));
    paths.push(("aggregation".into(), vec![aggregator()]));
    let detour = Element::Detour(Detour::new(DetourConfig { by: ms(40), from: ms(1_000), until: ms(3_000) }));
    paths.push(("detour".into(), vec![hop(10_000_000, 30_000), detour]));
    let access = Element::Access(AccessLinks::new(&[ms(7), Duration::ZERO, ms(31)]));
    paths.push(("hosts at different distances".into(), vec![hop(10_000_000, 30_000), access]));
    paths.push(("aggregation behind a hop".into(), vec![thinning(), hop(10_000_000, 30_000), aggregator()]));
    paths
}

/// Returns the arrivals of three flows with mixed packet kinds and pauses, at a rate 20 % above 10 Mbit/s.
fn arrivals() -> impl Iterator<Item = (Instant, PacketInfo)> {
    let draws = Draws::new(SEED, 99);
    let mut now = Instant::ZERO;
    (0..8_000u64).map(move |i| {
        let draw = draws.at(i);
        let pause = if i % 1_000 == 999 { ms(300) } else { Duration::ZERO };
        now += Duration::from_nanos(draw % 1_280_000) + pause;
        let kind = match draw >> 40 & 7 {
            0 => PacketKind::Control,
            1 | 2 => PacketKind::Ack,
            _ => PacketKind::Data,
        };
        let len = if kind == PacketKind::Data { 1_500 } else { 60 };
        let ecn = if draw >> 45 & 3 == 0 { Ecn::NotEct } else { Ecn::Ect0 };
        (now, PacketInfo { len, flow: (draw >> 50) as u32 % 3, kind, continues: false, ecn })
    })
}

type Left = (Instant, PacketInfo, u64);

fn drain(path: &mut Path<u64>, now: Instant) -> Vec<Left> {
    std::iter::from_fn(|| path.pop(now)).map(|exit| (exit.at, exit.packet, exit.payload)).collect()
}

/// Results depend on arrivals only: a path that is queried frequently, at its events and between them, has
/// the same departures, marks and counters as a path that is queried only at the end.
#[test]
fn looking_changes_nothing() {
    for (name, elements) in paths() {
        let (mut rarely, mut often) = (Path::new(elements.clone()), Path::new(elements));
        let (mut seen, mut verdicts) = (Vec::new(), Vec::new());
        let mut before = Instant::ZERO;
        for (i, (now, packet)) in arrivals().enumerate() {
            for step in 0..4 {
                let look = before + now.saturating_since(before).mul_div(step, 4);
                match (i as u64 + step) % 4 {
                    0 => drop(often.backlog(look)),
                    1 => drop(often.busy(look, 0)),
                    2 => seen.extend(drain(&mut often, look)),
                    _ => {
                        let event = often.next_event();
                        if event <= now {
                            seen.extend(drain(&mut often, event));
                        }
                    }
                }
            }
            before = now;
            verdicts.push((rarely.push(now, packet, i as u64), often.push(now, packet, i as u64)));
        }
        assert!(verdicts.iter().all(|(rarely, often)| rarely == often), "{name}");
        let all = drain(&mut rarely, Instant::FAR_FUTURE);
        seen.extend(drain(&mut often, Instant::FAR_FUTURE));
        assert!(all.len() > 3_000, "{name}: {}", all.len());
        assert!(all == seen, "{name}");
        assert_eq!(rarely.counters(), often.counters(), "{name}");
        assert_eq!(rarely.busy(Instant::FAR_FUTURE, 0), often.busy(Instant::FAR_FUTURE, 0), "{name}");
    }
}

/// Queries at the cached time of the next event find each packet exactly when it leaves, even if there are
/// other queries in between.
#[test]
fn the_next_event_is_never_late() {
    for (name, elements) in paths() {
        let mut path = Path::new(elements);
        let mut left = 0;
        let mut run = |path: &mut Path<u64>, until: Instant| {
            while path.next_event() <= until && !path.next_event().is_never() {
                let event = path.next_event();
                while let Some(exit) = path.pop(event) {
                    assert_eq!(exit.at, event, "{name}");
                    left += 1;
                }
                assert!(path.next_event() > event, "{name}: what was due is done");
            }
        };
        for (i, (now, packet)) in arrivals().enumerate() {
            run(&mut path, now);
            match i % 3 {
                0 => drop(path.backlog(now)),
                1 => drop(path.busy(now, 0)),
                _ => {}
            }
            path.push(now, packet, i as u64);
        }
        run(&mut path, Instant::from_nanos(Instant::FAR_FUTURE.as_nanos() - 1));
        assert_eq!(path.in_flight(), 0, "{name}");
        assert!(left > 3_000, "{name}: {left}");
    }
}

/// At every step, each packet offered or duplicated has been delivered, was dropped once, or is still on the
/// path. The notes contain exactly the drops that no returned verdict reported.
#[test]
fn packets_are_conserved() {
    let mut total = Counters::default();
    for (name, elements) in paths() {
        let mut path = Path::new(elements);
        path.keep_notes();
        // Expected number of copies of each packet.
        let mut copies = vec![0i32; arrivals().count()];
        let note = |path: &mut Path<u64>, copies: &mut Vec<i32>| {
            while let Some(note) = path.next_note() {
                match note {
                    Note::Dropped { payload, verdict, .. } => {
                        assert_ne!(verdict, Verdict::Accepted);
                        copies[payload as usize] -= 1;
                    }
                    Note::Duplicated { payload, .. } => copies[payload as usize] += 1,
                }
            }
        };
        let mut popped = 0;
        for (i, (now, packet)) in arrivals().enumerate() {
            copies[i] += i32::from(path.push(now, packet, i as u64) == Verdict::Accepted);
            note(&mut path, &mut copies);
            for (_, _, payload) in drain(&mut path, now) {
                note(&mut path, &mut copies);
                copies[payload as usize] -= 1;
                popped += 1;
            }
            let c = path.counters();
            let inside = path.in_flight() as u64;
            assert_eq!(c.offered + c.duplicated, popped + c.dropped() + inside, "{name}, packet {i}");
            assert_eq!(popped, c.delivered_data + c.delivered_control, "{name}");
        }
        for (_, _, payload) in drain(&mut path, Instant::FAR_FUTURE) {
            copies[payload as usize] -= 1;
        }
        note(&mut path, &mut copies);
        assert!(copies.iter().all(|&left| left == 0), "{name}");
        assert_eq!((path.in_flight(), path.backlog(Instant::FAR_FUTURE)), (0, Bytes::ZERO), "{name}");
        let c = path.counters();
        total.queue_drops += c.queue_drops;
        total.aqm_drops += c.aqm_drops;
        total.marked += c.marked;
        total.duplicated += c.duplicated;
        total.reordered += c.reordered;
        total.acks_thinned += c.acks_thinned;
    }
    let Counters { queue_drops, aqm_drops, marked, duplicated, reordered, acks_thinned, .. } = total;
    for (what, count) in [
        ("queue", queue_drops),
        ("aqm", aqm_drops),
        ("marked", marked),
        ("duplicated", duplicated),
        ("reordered", reordered),
        ("thinned", acks_thinned),
    ] {
        assert!(count > 100, "{what}: {count}");
    }
}

/// Packets of a flow leave in order of arrival, unless jitter may reorder them. The path's count of
/// reordered packets then equals a receiver's count (RFC 4737 section 3).
#[test]
fn order_is_kept_unless_asked_otherwise() {
    for (name, elements) in paths() {
        let mut path = Path::new(elements);
        for (i, (now, packet)) in arrivals().enumerate() {
            path.push(now, packet, i as u64);
        }
        let (mut newest, mut late) = ([0; 3], 0);
        for (_, packet, number) in drain(&mut path, Instant::FAR_FUTURE) {
            let newest = &mut newest[packet.flow as usize];
            late += u64::from(number < *newest);
            *newest = number.max(*newest);
        }
        assert_eq!(path.counters().reordered, late, "{name}");
        assert_eq!(late > 100, name == "overtaking", "{name}: {late}");
    }
}

/// The hop that computes departures at entry and the hop that dequeues packets give identical results.
#[test]
fn both_kinds_of_hop_agree() {
    let limit = 30_000;
    let config = ManagedHopConfig {
        service: Service::Rate(Rate::from_bps(9_999_991)),
        delay: ms(3),
        queue: Bytes::new(limit),
        discipline: Discipline::DropTail,
    };
    let mut managed = Path::new(vec![Element::ManagedHop(Box::new(ManagedHop::new(config, SEED, 0)))]);
    let mut plain = Path::new(vec![hop(9_999_991, limit)]);
    for (i, (now, packet)) in arrivals().enumerate() {
        let i = i as u64;
        assert_eq!(managed.push(now, packet, i), plain.push(now, packet, i), "packet {i}");
        assert_eq!(managed.backlog(now), plain.backlog(now), "packet {i}");
        assert_eq!(managed.busy(now, 0), plain.busy(now, 0), "packet {i}");
    }
    assert!(plain.counters().queue_drops > 500);
    assert_eq!(drain(&mut managed, Instant::FAR_FUTURE), drain(&mut plain, Instant::FAR_FUTURE));
    assert_eq!(managed.counters(), plain.counters());
}

/// A saturated link that follows a trace carries the trace's mean rate, to within one packet, and is always
/// busy.
#[test]
fn a_trace_carries_its_mean_rate() {
    let service = trace();
    let Service::Trace(opportunities) = &service else { unreachable!() };
    let mean = opportunities.mean_rate();
    let config =
        ManagedHopConfig { service, delay: ms(0), queue: Bytes::MAX, discipline: Discipline::DropTail };
    let mut path = Path::new(vec![Element::ManagedHop(Box::new(ManagedHop::new(config, SEED, 0)))]);
    let (_, data) = arrivals().find(|(_, packet)| packet.kind == PacketKind::Data).expect("data");
    for i in 0..20_000 {
        path.push(Instant::ZERO, data, i);
    }
    // The next period begins with an opportunity, so the measured span ends just before it.
    let span = ms(21_000) - Duration::from_nanos(1);
    let end = Instant::ZERO + span;
    let bytes = drain(&mut path, end).len() as u64 * 1_500;
    let carried = (mean * span).get();
    assert!(bytes.abs_diff(carried) <= 3_000, "{bytes} bytes, {carried} by the rate");
    assert_eq!(path.busy(end, 0).link, span);
}

/// Step marking applies only to ECN-capable packets and only above the threshold. Marks appear when packets
/// leave the path, and nothing else changes.
#[test]
fn a_step_marks_what_waits_behind_enough() {
    let mut path = Path::new(vec![managed(ten_mbit(), Discipline::Step(Bytes::new(3_000)))]);
    let data = |ecn| PacketInfo { len: 1_500, flow: 0, kind: PacketKind::Data, continues: false, ecn };
    for i in 0..8 {
        path.push(Instant::ZERO, data(if i == 6 { Ecn::NotEct } else { Ecn::Ect1 }), i);
    }
    let fields: Vec<_> = drain(&mut path, Instant::FAR_FUTURE).iter().map(|left| left.1.ecn).collect();
    use Ecn::{Ce, Ect1, NotEct};
    // The first packet is in service. Two packets with a total of 3000 bytes wait ahead of the fourth packet;
    // this is not above the threshold of 3000 bytes.
    assert_eq!(fields, [Ect1, Ect1, Ect1, Ect1, Ce, Ce, NotEct, Ce]);
    assert_eq!(path.counters().marked, 3);
}

/// ACK decimation passes one of every three pure ACKs of each flow, and all packets that are not pure ACKs.
#[test]
fn thinning_keeps_every_nth_ack() {
    let mut path =
        Path::new(vec![Element::AckDecimation(AckDecimation::new(3)), hop(1_000_000_000, 1 << 30)]);
    for i in 0..30 {
        let kind = if i % 10 == 0 { PacketKind::Control } else { PacketKind::Ack };
        let packet = PacketInfo { len: 52, flow: i as u32 % 2, kind, continues: false, ecn: Ecn::NotEct };
        path.push(Instant::ZERO, packet, i);
    }
    let left = drain(&mut path, Instant::FAR_FUTURE);
    let acks = |flow| left.iter().filter(|l| l.1.flow == flow && l.1.kind == PacketKind::Ack).count();
    // Of the 15 packets of each flow, 12 of flow 0 and all of flow 1 are ACKs.
    assert_eq!((acks(0), acks(1), left.len()), (4, 5, 12));
    assert_eq!(path.counters().acks_thinned, 18);
}

/// A batch is released when its first packet has waited for the maximum time, or when it is full; the next
/// packet starts a new batch.
#[test]
fn batches_go_together() {
    let config = AggregatorConfig { within: ms(5), packets: 4 };
    let mut path = Path::new(vec![Element::Aggregator(Aggregator::new(config))]);
    let ack = PacketInfo { len: 52, flow: 0, kind: PacketKind::Ack, continues: false, ecn: Ecn::NotEct };
    for (i, at) in [0, 1, 4, 5, 6, 7, 8, 9].into_iter().enumerate() {
        path.push(Instant::ZERO + ms(at), ack, i as u64);
    }
    let exits: Vec<_> =
        drain(&mut path, Instant::FAR_FUTURE).iter().map(|left| left.0.as_nanos() / 1_000_000).collect();
    assert_eq!(exits, [5, 5, 5, 8, 8, 8, 8, 14]);
}

/// Jitter adds at most the configured delay, and only to the configured share of packets. The random draws of
/// a flow do not depend on other flows.
#[test]
fn jitter_is_spread_as_asked() {
    let config = |spread, percent| JitterConfig {
        most: ms(10),
        spread,
        share: Probability::from_ratio(percent, 100),
        in_order: false,
    };
    let extras = |config, others: bool| {
        let mut path = Path::new(vec![Element::Jitter(Box::new(Jitter::new(config, SEED, 3)))]);
        let mut extras = Vec::new();
        for i in 0..20_000u64 {
            let now = Instant::ZERO + ms(20 * i);
            let data = PacketInfo {
                len: 1_500,
                flow: 0,
                kind: PacketKind::Data,
                continues: false,
                ecn: Ecn::NotEct,
            };
            if others {
                path.push(now, PacketInfo { flow: 1, ..data }, u64::MAX);
            }
            path.push(now, data, i);
            let left = drain(&mut path, now + ms(20));
            extras.extend(
                left.iter()
                    .filter(|left| left.2 == i)
                    .map(|left| left.0.saturating_since(now).as_nanos() as f64 / 1e6),
            );
        }
        extras
    };
    let mean = |extras: &[f64]| extras.iter().sum::<f64>() / extras.len() as f64;
    let most = |extras: &[f64]| extras.iter().copied().fold(0.0, f64::max);
    let uniform = extras(config(Spread::Uniform, 100), false);
    assert!((mean(&uniform) - 5.0).abs() < 0.1 && most(&uniform) < 10.0 && most(&uniform) > 9.99);
    let normal = extras(config(Spread::Normal, 100), false);
    assert!((mean(&normal) - 5.0).abs() < 0.05 && most(&normal) <= 10.0);
    let fixed = extras(config(Spread::Fixed, 25), false);
    let delayed = fixed.iter().filter(|extra| **extra == 10.0).count();
    assert_eq!(delayed, fixed.iter().filter(|extra| **extra > 0.0).count());
    // A quarter of the packets are delayed, to within five standard deviations.
    assert!(delayed.abs_diff(5_000) < 310, "{delayed}");
    assert_eq!(normal, extras(config(Spread::Normal, 100), true));
}
