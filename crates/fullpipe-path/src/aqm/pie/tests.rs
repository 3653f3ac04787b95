//! Tests of PIE against the formulas of RFC 8033, evaluated in floating point.

use super::*;
use crate::packet::PacketKind;
use fullpipe_units::Ecn;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn part(probability: f64) -> i64 {
    (probability * ONE as f64) as i64
}

fn fresh() -> Pie {
    Pie::new(PieConfig::RFC8033, 1, 0)
}

fn packet(ecn: Ecn) -> PacketInfo {
    PacketInfo { len: 1_500, flow: 0, kind: PacketKind::Data, continues: false, ecn }
}

/// RFC 8033 section 4.2: the update step is alpha (delay - target) + beta (delay - last delay), divided by
/// the factor from the auto-tuning table.
#[test]
fn steps_are_scaled_by_the_table() {
    let step = 0.125 * (0.025 - 0.015) + 1.25 * (0.025 - 0.022);
    for (probability, divisor) in [
        (0.0, 2_048.0),
        (0.000_000_5, 2_048.0),
        (0.000_005, 512.0),
        (0.000_05, 128.0),
        (0.000_5, 32.0),
        (0.005, 8.0),
        (0.05, 2.0),
        (0.5, 1.0),
    ] {
        let mut pie =
            Pie { drop_prob: part(probability), current_qdelay: ms(25), qdelay_old: ms(22), ..fresh() };
        pie.update();
        let got = pie.drop_prob as f64 / ONE as f64 - probability;
        assert!((got / (step / divisor) - 1.0).abs() < 1e-3, "at {probability}: {got}, {}", step / divisor);
        assert_eq!(pie.qdelay_old, ms(25));
    }
}

/// RFC 8033 section 5.5: from 10 % on, each update adds at most 0.02 to the drop probability; decreases are
/// not limited.
#[test]
fn growth_is_capped_when_it_is_large() {
    let mut pie = Pie { drop_prob: part(0.3), current_qdelay: ms(400), ..fresh() };
    pie.update();
    assert!((pie.drop_prob as f64 / ONE as f64 - 0.32).abs() < 1e-9);
    let mut pie = Pie { drop_prob: part(0.3), current_qdelay: ms(5), qdelay_old: ms(205), ..fresh() };
    pie.update();
    let expected = 0.3 - 0.125 * 0.01 - 1.25 * 0.2;
    assert!((pie.drop_prob as f64 / ONE as f64 - expected).abs() < 1e-9);
}

/// RFC 8033 section 4.2: while the queue is empty, the drop probability decays by 2 % per update, in addition
/// to the regular update step. The probability reaches zero and stays there, regardless of the number of
/// updates that are due.
#[test]
fn it_decays_to_rest() {
    let mut pie = Pie { drop_prob: part(0.5), ..fresh() };
    pie.update();
    let expected = (0.5 - 0.125 * 0.015) * 0.98;
    assert!((pie.drop_prob as f64 / ONE as f64 - expected).abs() < 1e-9);
    let mut stepped = pie.clone();
    for n in 1..=4_000 {
        stepped.run_until(Instant::ZERO + ms(15 * n));
    }
    assert!(stepped.is_at_rest());
    pie.run_until(Instant::ZERO + ms(60_000));
    assert_eq!((pie.drop_prob, pie.next_update), (0, Instant::ZERO + ms(60_015)));
    assert_eq!(stepped.next_update, pie.next_update);
}

/// RFC 8033 section 4.4: no packet is dropped in the first 150 ms after an idle period, regardless of the
/// queue length. The next idle period restores the burst allowance.
#[test]
fn a_burst_is_let_pass() {
    let mut pie = fresh();
    let mut first = None;
    for n in 0..400u64 {
        pie.run_until(Instant::ZERO + ms(n));
        pie.on_dequeue(ms(100), false);
        pie.drop_prob = pie.drop_prob.max(part(0.3));
        pie.accu_prob = AT_LAST;
        if pie.decide(packet(Ecn::NotEct), 1 << 20) == Decision::Drop {
            first.get_or_insert(n);
        }
    }
    assert_eq!(first, Some(150), "ten updates of 15 ms");
    pie.drop_prob = 0;
    pie.on_dequeue(ms(0), true);
    pie.run_until(Instant::ZERO + ms(500));
    assert_eq!(pie.burst_allowance, ms(150));
}

/// RFC 8033 section 4.1: no packet is dropped from a queue of two packets. Nor is a packet dropped while the
/// queue delay is below half of the target and the drop probability is below 20 %.
#[test]
fn a_nearly_empty_queue_is_left_alone() {
    let ready = |probability, before| Pie {
        drop_prob: part(probability),
        accu_prob: AT_LAST,
        qdelay_old: before,
        burst_allowance: Duration::ZERO,
        ..fresh()
    };
    let decide = |mut pie: Pie, queue| pie.decide(packet(Ecn::NotEct), queue);
    assert_eq!(decide(ready(0.9, ms(20)), 3_000), Decision::Pass);
    assert_eq!(decide(ready(0.9, ms(20)), 3_001), Decision::Drop);
    assert_eq!(decide(ready(0.19, ms(7)), 1 << 20), Decision::Pass);
    assert_eq!(decide(ready(0.21, ms(7)), 1 << 20), Decision::Drop);
}

/// RFC 8033 section 5.4: no packet is dropped before the accumulated probability reaches 0.85, and a packet
/// is dropped when it reaches 8.5 at the latest. The gap between drops is 0.85 / p packets, plus a
/// geometrically distributed number with parameter p.
#[test]
fn drops_are_spread_out() {
    let p = 0.02;
    let mut pie = Pie { drop_prob: part(p), qdelay_old: ms(20), burst_allowance: Duration::ZERO, ..fresh() };
    let (mut gaps, mut gap) = (Vec::new(), 0u32);
    while gaps.len() < 20_000 {
        gap += 1;
        if pie.decide(packet(Ecn::NotEct), 1 << 20) == Decision::Drop {
            gaps.push(gap);
            gap = 0;
        }
    }
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(*least >= 43 && *most <= 426, "{least} to {most}");
    let mean = gaps.iter().copied().map(f64::from).sum::<f64>() / gaps.len() as f64;
    // The accumulated probability reaches 0.85 at packet 43, the first packet that a random draw can drop.
    // The expected gap is 42 + 1/p.
    assert!((mean - 92.0).abs() < 2.0, "mean gap {mean}");
}

/// RFC 8033 section 5.1: packets are marked while the drop probability is below 10 %, and dropped from 10 %
/// on.
#[test]
fn marks_stop_at_ten_percent() {
    for (probability, decision) in [(0.099, Decision::Mark), (0.101, Decision::Drop)] {
        let config = PieConfig { ecn: true, ..PieConfig::RFC8033 };
        let mut pie = Pie {
            drop_prob: part(probability),
            accu_prob: AT_LAST,
            qdelay_old: ms(20),
            burst_allowance: Duration::ZERO,
            ..Pie::new(config, 1, 0)
        };
        assert_eq!(pie.decide(packet(Ecn::Ect0), 1 << 20), decision);
    }
}
