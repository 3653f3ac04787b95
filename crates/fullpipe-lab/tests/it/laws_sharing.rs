//! Closed-form models of several flows on one path: convergence, shares of the link, and the resulting loss
//! and queue.
//!
//! Labels such as A-26 are explained in `docs/evidence/conformance.md`. Tolerances that do not follow from
//! the model are explained in comments.

use std::collections::BTreeMap;

use crate::rig::*;
use fullpipe_path::{Discipline, RedConfig};
use fullpipe_tcp::cc::Algorithm::{Bbr1, Cubic, Reno};
use fullpipe_units::{Bytes, Probability};

/// With a BDP of D, n flows fill a link if the queue is at least D / sqrt(n) and their losses are not
/// synchronised. The losses of CUBIC flows are not synchronised: 16 flows need a queue of at most 0.43
/// D / 4. The losses of Reno flows with equal RTTs are synchronised, as always with drop-tail queues;
/// together, these flows reach the utilisation of one flow with three quarters of the queue.
#[test]
fn a_26_many_flows() {
    // The BDP D is 400 packets.
    let utilisation =
        |cc, queue| run(&flows(link(cc, "96mbit", ms(50), queue, 60), 16)).utilisation("96mbit", 20.0);
    let cubic = utilisation(Cubic, 100);
    assert!(cubic > 0.995, "CUBIC at D / 4: {cubic:.4}");
    let cubic = utilisation(Cubic, 43);
    assert!(cubic > 0.97, "CUBIC at 0.43 D / 4: {cubic:.4}");
    let reno = utilisation(Reno, 100);
    assert!((0.87..0.95).contains(&reno), "Reno at D / 4: {reno:.4}");
}

/// Returns the times at which `flow` reduced its window, each with the new ssthresh in segments.
fn cuts(run: &Run, flow: u32, from: f64) -> Vec<(f64, i64)> {
    let mut last = None;
    let mut cuts = Vec::new();
    for row in run.rows_of(flow, from) {
        let now = row.sender.ssthresh.map(|ssthresh| (ssthresh.get() / MSS) as i64);
        if now != last
            && let (Some(now), true) = (now, last.is_some())
        {
            cuts.push((row.at.saturating_since(at(0.0)).as_secs_f64(), now));
        }
        last = now;
    }
    cuts
}

/// While two Reno flows lose packets at the same time, each loss halves the difference between their windows:
/// 70/30, 60/40, 55/45 and so on.
#[test]
fn a_29_the_gap_halves() {
    for late in [30_777, 31_554, 32_331] {
        let mut scenario = flows(link(Reno, "48mbit", ms(50), 200, 80), 2);
        scenario.flows[1].start = ms(late);
        scenario.sample_every = ms(50);
        let run = run(&scenario);
        let (first, second) = (cuts(&run, 0, 33.0), cuts(&run, 1, 33.0));
        // Window reductions that the same loss event caused are at most two rows apart.
        let gaps: Vec<i64> = first
            .iter()
            .flat_map(|&(time, own)| {
                second
                    .iter()
                    .filter(move |(other, _)| (other - time).abs() < 0.11)
                    .map(move |&(_, other)| own - other)
            })
            .take(5)
            .collect();
        assert!(gaps.len() == 5 && gaps[0].abs() > 25, "{gaps:?}");
        for pair in gaps.windows(2) {
            // The halves are rounded, and a flow may be one segment ahead when it loses a packet.
            assert!((pair[1].abs() - pair[0].abs() / 2).abs() <= 2, "started at {late} ms: {gaps:?}");
        }
    }
}

/// At equal loss rates, Reno's rate is proportional to 1 / RTT, and CUBIC's to RTT^(-1/4).
#[test]
fn a_30_rtt_bias() {
    let rate = |cc, rtt, ppm, seconds| {
        let of = |seed| run(&lossy(link(cc, "max", ms(rtt), 1 << 30, seconds), ppm, seed)).goodput(0, 10.0);
        (1..=3).map(of).sum::<f64>() / 3.0
    };
    let reno = rate(Reno, 20, 1_000, 50) / rate(Reno, 80, 1_000, 200);
    assert_near(reno, 4.0, 0.05, "Reno, 20 and 80 ms");
    // The windows are far above the region in which CUBIC acts like Reno: 266 and 754 segments, where Reno
    // would have 120.
    let cubic = rate(Cubic, 160, 100, 300) / rate(Cubic, 640, 100, 1_200);
    assert_near(cubic, 1.414, 0.08, "CUBIC, 160 and 640 ms");
}

/// Behind a RED queue, all packets are dropped with the same probability, so two flows at different distances share the
/// link by the laws of equal loss rates: Reno's rate is proportional to 1 / RTT, and CUBIC's to RTT^(-1/4). For
/// the first CUBIC flow, Reno's window is already slightly larger than CUBIC's, so both laws together give exponents of
/// 0.30 to 0.36.
#[test]
fn a_30_shares_at_different_distances() {
    let exponent = |cc, rate: &str, bdp: u64, access: u64, seeds: u64| {
        let mut scenario = flows(link(cc, rate, ms(40), 2 * bdp, 120), 2);
        scenario.path.forward.discipline = Discipline::Red(RedConfig {
            min: Bytes::new(bdp * PACKET / 10),
            max: Bytes::new(bdp * PACKET),
            probability: Probability::from_ppm(50_000),
            gentle: true,
            ecn: false,
        });
        scenario.flows[1].access_rtt = ms(access);
        let (mut rates, mut rtts) = ([0.0; 2], [0.0; 2]);
        for seed in 1..=seeds {
            scenario.seed = seed;
            let run = run(&scenario);
            for flow in 0..2 {
                rates[flow] += run.goodput(flow as u32, 20.0);
                let rtt = run.outcome.flows[flow].rtt.expect("an RTT");
                assert!(rtt.min >= ms(40 + access * flow as u64), "{cc}: {}", rtt.min);
                rtts[flow] += rtt.mean.as_secs_f64();
            }
        }
        (rates[0] / rates[1]).ln() / (rtts[1] / rtts[0]).ln()
    };
    for access in [40, 120] {
        assert_near(exponent(Reno, "20mbit", 66, access, 4), 1.0, 0.15, &format!("Reno, {access} ms more"));
        let cubic = exponent(Cubic, "100mbit", 333, access, 1);
        assert!((0.1..0.7).contains(&cubic), "CUBIC, {access} ms more: {cubic:.2}");
    }
}

/// Rate of loss events with n Reno flows on one link: p = 1.5 / W^2, where W is the mean window. A
/// burst may lose several segments; the flow reduces its window once for all of them.
#[test]
fn a_31_the_loss_that_flows_need() {
    for (n, seconds, highest) in [(2, 160, 1.65), (5, 60, 1.65), (10, 60, 1.65)] {
        let of = |spacing| loss_times_window_squared(n, seconds, spacing);
        let factor = SPACINGS.into_iter().map(of).sum::<f64>() / SPACINGS.len() as f64;
        assert!((1.35..highest).contains(&factor), "{n} flows: {factor:.3}");
    }
}

/// Returns p W^2 of `n` Reno flows that start `spacing` milliseconds apart.
fn loss_times_window_squared(n: u64, seconds: u64, spacing: u64) -> f64 {
    let mut scenario = flows_apart(link(Reno, "100mbit", ms(50), 40, seconds), n, spacing);
    // Every recovery takes at least a round trip, so no recovery is missed.
    scenario.sample_every = ms(20);
    let run = run(&scenario);
    let events = |flow| {
        let recovering: Vec<bool> = run.rows_of(flow, 20.0).map(|row| row.sender.recovering).collect();
        recovering.windows(2).filter(|pair| !pair[0] && pair[1]).count()
    };
    let flows = 0..n as u32;
    let lost: usize = flows.clone().map(events).sum();
    let measured = (seconds - 20) as f64;
    let sent = flows.map(|flow| run.goodput(flow, 20.0)).sum::<f64>() / 8.0 / MSS as f64 * measured;
    let p = lost as f64 / sent;
    let windows = run.rows.iter().filter(|row| row.at >= at(20.0)).map(|row| row.sender.cwnd.get() as f64);
    let (sum, count) = windows.fold((0.0, 0.0), |(sum, count), window| (sum + window, count + 1.0));
    let window = sum / count / MSS as f64;
    p * window * window
}

/// two BBRv1 flows overestimate their shares and are limited by their windows. They have 2 D in flight,
/// D of it in the queue, and an RTT of twice the minimum, at most 2.5 times. With four and eight flows, the
/// filters overlap more: up to 2.3 D in flight. They sometimes fill the queue of 2 D, as they do in Linux
/// 6.18 on this path: with four flows, Linux has a median RTT of 2.25 times the minimum, a maximum of 2.76
/// times, and drops; with eight flows, the median is 2.5 times and the 99th percentile 3.0 times the minimum.
#[test]
fn a_34_bbr_flows_against_each_other() {
    for (n, in_flight, longest) in [(2, 2.1, 2.5), (4, 2.25, 3.03), (8, 2.4, 3.03)] {
        let mut scenario = flows(link(Bbr1, "100mbit", ms(40), 666, 60), n);
        scenario.sample_every = ms(10);
        let run = run(&scenario);
        let mut sums = BTreeMap::new();
        let mut srtts: Vec<f64> = Vec::new();
        for row in run.rows.iter().filter(|row| row.at >= at(20.0)) {
            *sums.entry(row.at).or_insert(0.0) += row.sender.inflight.get() as f64 / MSS as f64 / 333.0;
            srtts.push(row.sender.srtt.expect("measured").as_secs_f64() / 0.04);
        }
        srtts.sort_by(f64::total_cmp);
        let (usual, srtt) = (srtts[srtts.len() / 2], srtts[srtts.len() - 1]);
        let mean = sums.values().sum::<f64>() / sums.len() as f64;
        let queue = run.mean(20.0, |row| queue_of(row) as f64) / PACKET as f64 / 333.0;
        assert!((1.9..in_flight).contains(&mean), "{n}: {mean:.2} D in flight");
        assert!((queue - (mean - 1.0)).abs() < 0.1, "{n}: {queue:.2} D in the queue, {mean:.2} in flight");
        assert!(usual < in_flight + 0.1 && srtt < longest, "{n}: {usual:.2} RTT, {srtt:.2} at most");
    }
}

/// The second of two BBRv1 flows starts ten seconds after the first (B1-13). From thirty seconds after the
/// start of the second flow, each flow gets between 40 and 60 % of the link, and their ProbeRTT phases
/// coincide.
#[test]
fn b1_13_the_second_flow() {
    for seed in 1..=3 {
        let mut scenario = flows(link(Bbr1, "100mbit", ms(40), 333, 100), 2);
        scenario.flows[0].start = ms(0);
        scenario.flows[1].start = ms(10_000);
        scenario.seed = seed;
        scenario.sample_every = ms(10);
        let run = run(&scenario);
        let share = run.goodput(0, 40.0) / (run.goodput(0, 40.0) + run.goodput(1, 40.0));
        assert!((0.4..0.6).contains(&share), "seed {seed}: {share:.3}");
        let entered = |flow| {
            let mut inside = true;
            let mut times = Vec::new();
            for row in run.rows_of(flow, 40.0) {
                let now = truth(row).status.phase == "ProbeRTT";
                if now && !inside {
                    times.push(row.at);
                }
                inside = now;
            }
            times
        };
        let (first, second) = (entered(0), entered(1));
        assert!(first.len() >= 4, "{first:?}");
        for time in first {
            let nearest =
                second.iter().map(|other| time.max(*other).saturating_since(time.min(*other))).min();
            assert!(nearest.is_some_and(|apart| apart <= ms(200)), "seed {seed}: {time:?} of {second:?}");
        }
    }
}
