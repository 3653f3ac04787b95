//! Tests of the path's queueing arithmetic, exact to the nanosecond. Labels such as A-1 are explained in
//! `docs/evidence/conformance.md`.

use fullpipe_path::{
    BurstLoss, Ecn, Element, Hop, HopConfig, IidLoss, LossUnit, PacketInfo, PacketKind, Path, Policer, Scope,
    Shaper, ShaperConfig, Verdict,
};
use fullpipe_units::{Bytes, Draws, Duration, Instant, Probability, Rate};

fn hop(rate: u64, delay: Duration, queue: u64) -> Element<u64> {
    Element::Hop(Hop::new(HopConfig { rate: Rate::from_bps(rate), delay, queue: Bytes::new(queue) }))
}

fn shaper(rate: u64, burst: u64, queue: u64, scope: Scope) -> Element<u64> {
    let (rate, burst, queue) = (Rate::from_bps(rate), Bytes::new(burst), Bytes::new(queue));
    Element::Shaper(Shaper::new(ShaperConfig { rate, burst, queue, scope }))
}

fn data(len: u32) -> PacketInfo {
    PacketInfo { len, flow: 0, kind: PacketKind::Data, continues: false, ecn: Ecn::NotEct }
}

fn drain(path: &mut Path<u64>) -> Vec<(Instant, u64)> {
    std::iter::from_fn(|| path.pop(Instant::FAR_FUTURE)).map(|exit| (exit.at, exit.payload)).collect()
}

/// Packet i of a burst leaves an empty 10 Mbit/s link after i x 1.2 ms and the propagation delay.
#[test]
fn serialisation_is_exact() {
    let mut path = Path::new(vec![hop(10_000_000, Duration::from_millis(20), 1_000_000)]);
    for i in 1..=10 {
        assert_eq!(path.push(Instant::ZERO, data(1500), i), Verdict::Accepted);
    }
    for (exit, i) in drain(&mut path) {
        assert_eq!(exit, Instant::ZERO + Duration::from_micros(1_200 * i + 20_000));
    }
}

/// If the service time is not a whole number of nanoseconds, the link rate is still exact, because the
/// remainder is carried over.
#[test]
fn a_busy_link_serves_exactly_at_its_rate() {
    let rate = 340_000_007;
    let mut path = Path::new(vec![hop(rate, Duration::ZERO, u64::MAX)]);
    let n = 100_000u64;
    for i in 0..n {
        path.push(Instant::ZERO, data(1500), i);
    }
    let last = drain(&mut path).last().unwrap().0;
    assert_eq!(last.as_nanos(), (u128::from(n) * 1500 * 8_000_000_000 / u128::from(rate)) as u64);
}

/// The queue size is counted in bytes and excludes the packet in service.
#[test]
fn droptail_counts_waiting_bytes_without_the_packet_in_service() {
    let mut path = Path::new(vec![hop(12_000_000, Duration::ZERO, 3000)]);
    let verdicts: Vec<_> = (0..4).map(|i| path.push(Instant::ZERO, data(1500), i)).collect();
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Accepted, Verdict::Accepted, Verdict::QueueFull]);
    // One millisecond later, the first packet has left and the second is in service, so there is room for one
    // more packet.
    let later = Instant::from_nanos(1_000_000);
    assert_eq!(path.backlog(later), Bytes::new(1500));
    assert_eq!(path.push(later, data(1500), 4), Verdict::Accepted);
    assert_eq!(path.push(later, data(1500), 5), Verdict::QueueFull);
    assert_eq!(path.counters().queue_drops, 2);
}

/// At every step, each packet has left the path, was dropped, or is still on the path.
#[test]
fn packets_are_conserved() {
    let loss = IidLoss::new(Probability::from_ppm(50_000), LossUnit::Packet, 3, 0);
    let mut path = Path::new(vec![
        Element::Loss(loss),
        Element::Policer(Policer::new(Rate::from_bps(9_900_000), Bytes::new(30_000), Scope::Aggregate)),
        hop(10_000_000, Duration::from_millis(3), 15_000),
        hop(8_000_000, Duration::from_millis(5), 9_000),
    ]);
    let arrivals = Draws::new(1, 1);
    let mut now = Instant::ZERO;
    let mut popped = 0;
    for i in 0..20_000 {
        now += Duration::from_nanos(arrivals.at(i) % 2_400_000);
        path.push(now, data(1500), i);
        popped += std::iter::from_fn(|| path.pop(now)).count() as u64;
        let c = path.counters();
        assert_eq!(c.offered, popped + c.random_drops + c.policed + c.queue_drops + path.in_flight() as u64);
    }
    let c = path.counters();
    assert!(c.random_drops > 0 && c.policed > 0 && c.queue_drops > 0 && c.delivered_data == popped);
}

/// Results depend on arrivals only, not on the times of queries. An emulator's arrival log can therefore be
/// replayed through the same path.
#[test]
fn looking_often_changes_nothing() {
    let build = || {
        Path::new(vec![
            hop(10_000_000, Duration::from_millis(3), 20_000),
            Element::Loss(IidLoss::new(Probability::from_ppm(100_000), LossUnit::Packet, 3, 0)),
            shaper(9_500_000, 6_000, 9_000, Scope::Aggregate),
            hop(9_000_000, Duration::from_millis(5), 5_000),
        ])
    };
    let (mut rarely, mut often) = (build(), build());
    let arrivals = Draws::new(1, 1);
    let mut now = Instant::ZERO;
    let mut seen = Vec::new();
    for i in 0..5_000 {
        let next = now + Duration::from_nanos(arrivals.at(i) % 2_400_000);
        for step in 0..8 {
            let look = now + next.saturating_since(now).mul_div(step, 8);
            often.backlog(look);
            seen.extend(often.pop(look).map(|exit| (exit.at, exit.payload)));
        }
        now = next;
        rarely.push(now, data(1500), i);
        often.push(now, data(1500), i);
    }
    seen.extend(drain(&mut often));
    assert_eq!(drain(&mut rarely), seen);
}

/// Queries at the event times that the path reports find every packet at its exact exit time.
#[test]
fn the_next_event_is_when_something_leaves() {
    let build = || {
        Path::new(vec![
            shaper(9_500_000, 6_000, 9_000, Scope::PerFlow),
            hop(9_000_000, Duration::from_millis(5), 5_000),
        ])
    };
    for mut path in [build(), Path::new(vec![hop(10_000_000, Duration::from_millis(3), 20_000)])] {
        let arrivals = Draws::new(1, 2);
        let (mut now, mut entered, mut left) = (Instant::ZERO, 0, 0);
        for i in 0..5_000 {
            let arrival = now + Duration::from_nanos(arrivals.at(i) % 2_400_000);
            while path.next_event() <= arrival {
                now = path.next_event();
                while let Some(entered_at) = path.pop_with(now, |_, at| *at) {
                    assert!(entered_at <= now.as_nanos(), "taken before it entered");
                    left += 1;
                }
                assert!(path.next_event() > now, "what was due is done");
            }
            now = arrival;
            let packet = PacketInfo { flow: (i % 3) as u32, ..data(1500) };
            entered += u64::from(path.push(now, packet, now.as_nanos()) == Verdict::Accepted);
        }
        let inner_drops = path.counters().queue_drops - (5_000 - entered);
        assert_eq!(entered, left + inner_drops + path.in_flight() as u64);
        assert!(left > 3_000, "{left}");
    }
}

/// The fraction of a nanosecond is carried over between packets of different lengths.
#[test]
fn lengths_may_change_on_a_busy_link() {
    let (rate, n) = (340_000_007, 10_000u64);
    let mut path = Path::new(vec![hop(rate, Duration::ZERO, u64::MAX)]);
    let lengths = Draws::new(1, 3);
    let mut bytes = 0;
    for i in 0..n {
        let len = if i % 4 == 0 { 1500 } else { 40 + (lengths.at(i) % 1460) as u32 };
        bytes += u128::from(len);
        path.push(Instant::ZERO, data(len), i);
    }
    let last = drain(&mut path).last().unwrap().0;
    assert_eq!(last.as_nanos(), (bytes * 8_000_000_000 / u128::from(rate)) as u64);
}

/// The mean queue length is the arrival rate times the mean waiting time (Little's law; A-3). For Poisson
/// arrivals of equal packets at load 0.8, the mean waiting time is 2.40 ms (M/D/1; A-4).
#[test]
fn waiting_follows_queueing_theory() {
    // Mean waiting time in M/D/1: rho s / 2 (1 - rho). In M/M/1, with exponentially distributed lengths, the
    // mean waiting time is twice as long.
    let mean_ms = mean_wait_ms(|_| 1_500);
    assert!((mean_ms - 2.4).abs() < 0.05, "mean wait {mean_ms} ms, expected 2.40");
    let lengths = Draws::new(12, 4);
    let mean_ms = mean_wait_ms(|i| (1_500.0 * exponential(lengths.at(i))).round().max(1.0) as u32);
    assert!((mean_ms - 4.8).abs() < 0.1, "mean wait {mean_ms} ms, expected 4.80");
}

/// Returns an exponentially distributed number with mean one.
fn exponential(draw: u64) -> f64 {
    let uniform = (draw >> 11) as f64 / (1u64 << 53) as f64;
    -(1.0 - uniform).ln()
}

/// Returns the mean waiting time, in milliseconds, of a million packets of length `len` that arrive as a
/// Poisson process at load 0.8 on a 10 Mbit/s link.
fn mean_wait_ms(len: impl Fn(u64) -> u32) -> f64 {
    let mut path = Path::new(vec![hop(10_000_000, Duration::ZERO, u64::MAX)]);
    let draws = Draws::new(11, 4);
    let (mut now, mut total_wait) = (Instant::ZERO, 0.0);
    let n = 1_000_000;
    for i in 0..n {
        now += Duration::from_secs_f64(exponential(draws.at(i)) * 0.0012 / 0.8);
        let len = len(i);
        // The waiting time is the time in the hop minus the packet's own service time.
        let service = Duration::from_nanos(u64::from(len) * 800);
        path.push(now, data(len), (now + service).as_nanos());
        while let Some(exit) = path.pop(now) {
            total_wait += exit.at.saturating_since(Instant::from_nanos(exit.payload)).as_secs_f64();
        }
    }
    for (exit, unhindered) in drain(&mut path) {
        total_wait += exit.saturating_since(Instant::from_nanos(unhindered)).as_secs_f64();
    }
    total_wait / n as f64 * 1e3
}

/// Gaps between losses are geometrically distributed with mean 1/p (A-6; chi-square over ten classes of equal
/// probability; 21.67 is the 99 % quantile at nine degrees of freedom).
#[test]
fn loss_gaps_are_geometric() {
    let p = 0.02;
    let mut loss = IidLoss::new(Probability::from_f64(p), LossUnit::Packet, 5, 0);
    let mut classes = [0u32; 10];
    let (mut gap, mut gaps, mut sum) = (0u32, 0u32, 0.0);
    while gaps < 100_000 {
        gap += 1;
        if loss.loses(data(1500)) {
            // Distribution function of the gap, made continuous by a random draw within each step.
            let below = 1.0 - (1.0f64 - p).powi(gap as i32 - 1);
            let within = (Draws::new(9, 9).at(gaps.into()) >> 11) as f64 / (1u64 << 53) as f64;
            let u = below + within * p * (1.0 - p).powi(gap as i32 - 1);
            classes[(u * 10.0) as usize] += 1;
            sum += f64::from(gap);
            gaps += 1;
            gap = 0;
        }
    }
    let chi2: f64 = classes.iter().map(|&n| (f64::from(n) - 10_000.0).powi(2) / 10_000.0).sum();
    assert!(chi2 < 21.67, "chi-square {chi2}, classes {classes:?}");
    assert!((sum / 100_000.0 - 50.0).abs() < 0.6, "mean gap {}", sum / 100_000.0);
}

/// Common random numbers: another flow on the path does not change this flow's losses.
#[test]
fn losses_of_a_flow_do_not_depend_on_others() {
    let fates = |with_other: bool| {
        let mut loss = IidLoss::new(Probability::from_ppm(30_000), LossUnit::Packet, 8, 2);
        let mut fates = Vec::new();
        for i in 0..10_000 {
            if with_other && i % 3 == 0 {
                loss.loses(PacketInfo { flow: 1, ..data(1500) });
                loss.loses(PacketInfo { kind: PacketKind::Control, ..data(52) });
            }
            fates.push(loss.loses(data(1500)));
        }
        fates
    };
    assert_eq!(fates(false), fates(true));
}

/// The mean burst length and the mean loss match the configuration, within five standard deviations of a
/// Markov chain with the configured correlation.
#[test]
fn bursts_have_the_asked_for_length_and_rate() {
    for (rate, burst) in [(0.01, 5.0), (0.03, 1.5), (0.2, 20.0)] {
        let mut loss = BurstLoss::new(Probability::from_f64(rate), burst, 3, 1);
        let n = 4_000_000;
        let (mut lost, mut bursts, mut before) = (0u32, 0u32, false);
        for _ in 0..n {
            let now = loss.loses(data(1500));
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        let (measured, length) = (f64::from(lost) / f64::from(n), f64::from(lost) / f64::from(bursts));
        assert!((measured / rate - 1.0).abs() < 0.06, "rate {measured}, asked for {rate}");
        assert!((length / burst - 1.0).abs() < 0.03, "bursts of {length}, asked for {burst}");
    }
}

/// A policer drops the packets that a shaper of the same rate delays. With one bucket per flow, flows do not
/// affect each other.
#[test]
fn policers_drop_and_shapers_delay() {
    let policer =
        |scope| Element::Policer(Policer::new(Rate::from_bps(12_000_000), Bytes::new(3_000), scope));
    let of_flow = |flow| PacketInfo { flow, ..data(1500) };
    for (scope, passed) in [(Scope::Aggregate, 2), (Scope::PerFlow, 4)] {
        let mut path = Path::new(vec![policer(scope), hop(1_000_000_000, Duration::ZERO, 1 << 20)]);
        for i in 0..8 {
            path.push(Instant::ZERO, of_flow(i % 2), i.into());
        }
        assert_eq!((drain(&mut path).len(), path.counters().policed), (passed, 8 - passed as u64));
    }
    let mut path = Path::new(vec![shaper(12_000_000, 3_000, 4_500, Scope::PerFlow)]);
    let verdicts: Vec<_> = (0..7).map(|i| path.push(Instant::ZERO, of_flow(0), i)).collect();
    assert_eq!(
        verdicts.iter().filter(|v| **v == Verdict::Accepted).count(),
        5,
        "two at once and three that wait"
    );
    path.push(Instant::ZERO, of_flow(1), 100);
    let exits: Vec<_> =
        drain(&mut path).into_iter().map(|(exit, i)| (exit.as_nanos() / 1_000_000, i)).collect();
    assert_eq!(exits, [(0, 0), (0, 1), (0, 100), (1, 2), (2, 3), (3, 4)]);
}

/// A super-packet is lost as a whole or not at all, with the loss probability of a single packet.
#[test]
fn super_packets_are_lost_whole() {
    let mut loss = IidLoss::new(Probability::from_ppm(50_000), LossUnit::SuperPacket, 4, 0);
    let mut lost = 0;
    for _ in 0..20_000 {
        let fates: Vec<bool> =
            (0..7).map(|i| loss.loses(PacketInfo { continues: i > 0, ..data(1500) })).collect();
        assert!(fates.iter().all(|fate| *fate == fates[0]));
        lost += u32::from(fates[0]);
    }
    // The expected number of losses is 1000; the range is five standard deviations on each side.
    assert!((846..=1154).contains(&lost), "{lost}");
}
