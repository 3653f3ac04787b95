//! Closed-form models of one flow: on changing paths, with ECN marks instead of losses, and with
//! delivery-rate samples.
//!
//! Labels such as A-19 are explained in `docs/evidence/conformance.md`. Tolerances that do not follow from
//! the model are explained in comments.

use crate::rig::*;
use fullpipe_lab::scenario::Scenario;
use fullpipe_path::{AggregatorConfig, CodelConfig, DetourConfig, Discipline, Opportunities};
use fullpipe_tcp::cc::Algorithm::{self, Bbr1, Bbr3, Cubic, Reno, Vegas};
use fullpipe_units::{Bytes, Duration, Probability};

/// Returns the share of `rate` that the link carried between two times, counting headers.
fn used(run: &Run, rate: f64, from: f64, to: f64) -> f64 {
    let rows: Vec<_> = run.rows_of(0, from).take_while(|row| row.at <= at(to)).collect();
    let (first, last) = (rows[0], rows[rows.len() - 1]);
    let bits = 8.0 * (received(last) - received(first)) as f64 * PACKET as f64 / MSS as f64;
    bits / last.at.saturating_since(first.at).as_secs_f64() / rate
}

/// PFTK model with an RTT of 140 ms, T0 = 0.3 s and 1460 bytes. With SACK and RACK there are fewer
/// timeouts than the model assumes. The rate is therefore between those of the PFTK model and the Mathis
/// model, where independent loss raises the Mathis rate by 7 %.
#[test]
fn a_19_pftk() {
    for (ppm, pftk) in [(15_000, 0.778e6), (30_000, 0.514e6)] {
        let of = |seed| {
            let mut scenario = lossy(link(Reno, "max", ms(140), 1 << 30, 200), ppm, seed);
            scenario.path.mtu = 1_512;
            run(&scenario).goodput(0, 5.0)
        };
        let rate = (1..=8).map(of).sum::<f64>() / 8.0;
        let mathis = 1_460.0 * 8.0 * (1.5e6 / ppm as f64).sqrt() / 0.14;
        assert_near(rate, pftk, 0.20, &format!("{ppm} ppm"));
        assert!(rate >= pftk && rate <= 1.07 * mathis, "{ppm} ppm: {rate:.0} of {pftk:.0} to {mathis:.0}");
    }
}

/// Reno's sawtooth over a queue of one BDP: the mean RTT over the segments of a cycle is 1.56 times the
/// minimum RTT.
#[test]
fn a_27_the_mean_rtt_of_a_sawtooth() {
    for (rate, rtt, queue) in [("48mbit", 50, 200), ("10mbit", 40, 33)] {
        let measured = run(&link(Reno, rate, ms(rtt), queue, 400)).outcome.flows[0].rtt.expect("measured");
        let ratio = measured.mean.as_secs_f64() / measured.min.as_secs_f64();
        assert_near(ratio, 14.0 / 9.0, 0.02, rate);
    }
}

/// After halving its window, Reno needs one round trip per missing segment (RENO-7). The test uses a
/// twentieth of RENO-7's link rate: at 50 Mbit/s with an RTT of 210 ms, the path holds 875 packets (895 with
/// the queue), and recovering half of the window takes 94 s. (At 1 Gbit/s, it takes 1888 s.)
#[test]
fn reno_7_half_a_window_of_round_trips() {
    let mut scenario = link(Reno, "50mbit", ms(210), 20, 340);
    scenario.host.fair_queue = true;
    scenario.sample_every = ms(100);
    let run = run(&scenario);
    let (mut last, mut cuts) = (0, Vec::new());
    for row in run.rows_of(0, 20.0) {
        let window = row.sender.cwnd.get();
        // PRR reduces the window in several rows; `dedup_by` keeps the first row of each recovery.
        if row.sender.recovering && window < last {
            cuts.push(row.at.saturating_since(at(0.0)).as_secs_f64());
        }
        last = window;
    }
    cuts.dedup_by(|later, earlier| *later - *earlier < 10.0);
    assert!(cuts.len() >= 3, "{cuts:?}");
    for pair in cuts.windows(2).skip(1) {
        assert_near(pair[1] - pair[0], 447.0 * 0.2102, 0.03, "between two cuts");
    }
}

/// After the capacity falls to a tenth, every controller has adapted within five seconds; after it rises
/// tenfold, within seven (INV-7). The queue is one BDP of the faster link.
#[test]
fn inv_7_capacity_changes() {
    for cc in Algorithm::ALL {
        let mut scenario = link(cc, "50mbit", ms(40), 170, 100);
        scenario.path.forward.trace = Some(link_of(&[(20, 50_000_000), (40, 5_000_000), (40, 50_000_000)]));
        scenario.sample_every = ms(20);
        let run = run(&scenario);
        for (rate, from, to) in [(50e6, 10.0, 20.0), (5e6, 25.0, 60.0), (50e6, 67.0, 100.0)] {
            let used = used(&run, rate, from, to);
            // Data behind a hole is counted when the hole is filled, so up to a queue of data may be counted
            // on the wrong side of the boundary between two periods.
            assert!((0.94..1.02).contains(&used), "{cc} from {from} s: {used:.4}");
        }
    }
}

/// Returns a link with a variable rate. Each of `parts` is a duration in seconds and a rate in bit/s.
fn link_of(parts: &[(u64, u64)]) -> Opportunities {
    let (mut times, mut start) = (Vec::new(), 0);
    for &(seconds, rate) in parts {
        let packets = seconds * rate / 8 / PACKET;
        times.extend((1..=packets).map(|i| start + i * seconds * 1_000_000_000 / packets));
        start += seconds * 1_000_000_000;
    }
    let times = times.into_iter().map(Duration::from_nanos).collect();
    Opportunities::new(times, Duration::from_nanos(start), Bytes::new(PACKET)).expect("a link")
}

/// The RTT of the path increases by 40 ms. BBRv1 adopts the new RTT after ten seconds and a ProbeRTT,
/// BBRv3 after ten seconds. Until then, the flow uses at least half of the link in every second.
#[test]
fn a_37_a_longer_way() {
    for cc in [Bbr1, Bbr3] {
        let mut scenario = link(cc, "50mbit", ms(40), 170, 50);
        scenario.path.forward.detour =
            Some(DetourConfig { by: ms(40), from: ms(20_000), until: Duration::MAX });
        scenario.sample_every = ms(10);
        let run = run(&scenario);
        let model = |row: &fullpipe_lab::trace::Row| {
            let values = truth(row).status.values;
            values.iter().find(|(name, _)| *name == "min_rtt").expect("it has one").1
        };
        let adopted = run.rows_of(0, 20.0).find(|row| model(row) > 80.0).expect("it is adopted");
        assert!(adopted.at < at(if cc == Bbr1 { 30.5 } else { 30.0 }), "{cc}: {:?}", adopted.at);
        for tenth in 200..300 {
            let from = f64::from(tenth) / 10.0;
            let used = used(&run, 50e6, from, from + 1.0);
            assert!(used >= 0.5, "{cc} at {from} s: {used:.3}");
        }
        assert!(used(&run, 50e6, 35.0, 50.0) > 0.93);
    }
}

/// With CoDel, ECN marks lead to the same windows as drops, and no segment is retransmitted.
#[test]
fn a_39_marks_are_as_good_as_drops() {
    for cc in [Reno, Cubic] {
        let window = |ecn| {
            let mut scenario = link(cc, "48mbit", ms(50), 1_000, 200);
            scenario.host.ecn = ecn;
            scenario.path.forward.discipline = Discipline::Codel(CodelConfig { ecn, ..CodelConfig::RFC8289 });
            let run = run(&scenario);
            assert_eq!(run.outcome.flows[0].retransmits == 0, ecn, "{cc}");
            run.mean(20.0, |row| row.sender.cwnd.get() as f64)
        };
        assert_near(window(true), window(false), 0.02, cc.name());
    }
}

/// BBRv3 treats marks as congestion: with a marking threshold, its queue is less than half as long as without
/// a threshold, at the same utilisation (ECN-5). BBRv1 ignores marks.
#[test]
fn ecn_5_bbr3_on_a_path_with_marks() {
    let of = |cc, ecn| {
        let mut scenario = link(cc, "100mbit", ms(40), 1_000, 60);
        scenario.host.ecn = ecn;
        scenario.path.forward.discipline = Discipline::Step(Bytes::new(40 * PACKET));
        let run = run(&scenario);
        (run.mean(20.0, |row| queue_of(row) as f64) / PACKET as f64, run.utilisation("100mbit", 20.0))
    };
    let ((without, full), (with, as_full)) = (of(Bbr3, false), of(Bbr3, true));
    assert!(with < 0.5 * without, "{with:.1} of {without:.1} packets");
    assert!(as_full > full - 0.005, "{as_full:.4} of {full:.4}");
    let ((without, _), (with, _)) = (of(Bbr1, false), of(Bbr1, true));
    assert_near(with, without, 0.1, "version 1");
}

/// Returns the highest delivery-rate sample that is not application-limited, divided by the link rate of 10
/// Mbit/s. A sample is taken every 3 ms.
fn most_measured(cc: Algorithm, path: impl Fn(&mut Scenario)) -> f64 {
    let mut scenario = link(cc, "10mbit", ms(40), 33, 30);
    scenario.sample_every = ms(3);
    path(&mut scenario);
    let run = run(&scenario);
    let rates =
        run.rows_of(0, 3.0).filter(|row| !row.sender.app_limited).filter_map(|row| row.sender.delivery_rate);
    rates.map(|rate| rate.as_bps() as f64 * PACKET as f64 / MSS as f64 / 10e6).fold(0.0, f64::max)
}

/// The highest delivery-rate sample equals the link rate within 1 % (DR-3).
#[test]
fn dr_3_the_maximum_is_the_link() {
    for cc in [Bbr1, Bbr3, Cubic] {
        assert_near(most_measured(cc, |_| {}), 1.0, 0.01, cc.name());
    }
}

/// ACKs are aggregated over 20 ms (DR-4). Data that is acknowledged in one burst was not sent in one burst,
/// and no sample exceeds the send rate. BBRv1's samples stay at the link rate, and BBRv3's stay below 1.25
/// times the link rate, which is the rate at which it probes.
#[test]
fn dr_4_aggregated_acks() {
    let gathered = |cc| {
        most_measured(cc, |scenario| {
            scenario.path.backward.aggregation = Some(AggregatorConfig { within: ms(20), packets: u32::MAX });
        })
    };
    assert_near(gathered(Bbr1), 1.0, 0.01, "version 1");
    assert!((0.99..1.25).contains(&gathered(Bbr3)));
}

/// If half of the ACKs are lost, the maximum delivery-rate sample does not change (DR-5).
#[test]
fn dr_5_lost_acks() {
    for cc in [Bbr1, Bbr3, Cubic] {
        let half = |scenario: &mut Scenario| scenario.path.backward.loss = Probability::from_ppm(500_000);
        assert_near(most_measured(cc, half), 1.0, 0.02, cc.name());
    }
}

/// When the path becomes longer, Vegas mistakes the added delay for a queue and reduces its window to the
/// minimum (VEG-9).
#[test]
fn veg_9_a_longer_way() {
    let mut scenario = link(Vegas, "10mbit", ms(40), 100, 90);
    scenario.path.forward.detour = Some(DetourConfig { by: ms(40), from: ms(20_000), until: Duration::MAX });
    let run = run(&scenario);
    assert!(used(&run, 10e6, 10.0, 20.0) > 0.99);
    assert!(run.rows_of(0, 80.0).all(|row| row.sender.cwnd.get() <= 5 * MSS));
}
