//! Tests of RED against the formulas of Floyd and Jacobson, evaluated in floating point.

use super::*;
use crate::packet::PacketKind;
use fullpipe_units::Ecn;

fn config() -> RedConfig {
    RedConfig {
        min: Bytes::new(50_000),
        max: Bytes::new(150_000),
        probability: Probability::from_ppm(100_000),
        gentle: true,
        ecn: false,
    }
}

fn packet(ecn: Ecn) -> PacketInfo {
    PacketInfo { len: 1_500, flow: 0, kind: PacketKind::Data, continues: false, ecn }
}

fn at_average(config: RedConfig, bytes: u64) -> Red {
    Red { average: bytes << FRACTION, ..Red::new(config, 1, 0) }
}

/// Floyd and Jacobson section 4: each arrival updates the average queue size by avg += w (q - avg), with w =
/// 1/512.
#[test]
fn the_average_is_exponential() {
    let mut red = Red::new(config(), 1, 0);
    let mut average = 0.0f64;
    for i in 0..20_000u64 {
        let queue = (i * 7_919) % 300_000;
        red.on_arrival(Instant::ZERO, queue, None);
        average += (queue as f64 - average) / 512.0;
        assert!((red.average as f64 / f64::from(1 << FRACTION) - average).abs() < 0.01, "arrival {i}");
    }
}

/// Floyd and Jacobson section 4: RED handles an idle period as if a number of small packets had arrived at an
/// empty queue.
#[test]
fn the_average_decays_while_idle() {
    let slot = Duration::from_micros(100);
    for missed in [0u64, 1, 2, 100, 1_000, 5_000] {
        let mut red = at_average(config(), 100_000);
        let now = Instant::ZERO + Duration::from_micros(100 * missed + 50);
        red.on_arrival(now, 0, Some((Instant::ZERO, slot)));
        let expected = 100_000.0 * (511.0f64 / 512.0).powf(missed as f64);
        let average = red.average as f64 / f64::from(1 << FRACTION);
        assert!((average - expected).abs() < 0.01, "{missed}: {average}, expected {expected}");
    }
    // An idle period of one day.
    assert_eq!(decayed(1 << 40, 864_000_000), 0);
}

/// The drop probability is 0 below min and p at max. Above max, the drop probability rises linearly to 1 at
/// twice max or jumps to 1.
#[test]
fn the_slope_has_two_parts() {
    let probability = |config, average| at_average(config, average).probability() as f64 / ONE as f64;
    let steep = RedConfig { gentle: false, ..config() };
    for (average, gentle, hard) in [
        (49_999, 0.0, 0.0),
        (50_000, 0.0, 0.0),
        (100_000, 0.05, 0.05),
        (149_999, 0.1, 0.1),
        (150_000, 0.1, 1.0),
        (225_000, 0.55, 1.0),
        (300_000, 1.0, 1.0),
    ] {
        assert!((probability(config(), average) - gentle).abs() < 1e-5, "{average}");
        assert!((probability(steep, average) - hard).abs() < 1e-5, "{average}");
    }
}

/// Floyd and Jacobson section 7, second method: gaps between drops are uniformly distributed from 1 to 1/p
/// packets.
#[test]
fn gaps_are_uniform() {
    let mut red = at_average(config(), 100_000);
    let mut gaps = [0u32; 20];
    let mut gap = 0;
    let drops = 100_000;
    let mut seen = 0;
    while seen < drops {
        gap += 1;
        if red.decide(packet(Ecn::NotEct)) == Decision::Drop {
            gaps[gap - 1] += 1;
            (gap, seen) = (0, seen + 1);
        }
    }
    let expected = f64::from(drops) / 20.0;
    let chi2: f64 = gaps.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    // 36.19 is the 99 % quantile of the chi-square distribution with 19 degrees of freedom.
    assert!(chi2 < 36.19, "chi-square {chi2}, gaps {gaps:?}");
}

/// RFC 3168 section 7: RED marks packets while its decision is random, and drops them once the drop
/// probability is 1.
#[test]
fn marks_stop_where_every_packet_is_meant() {
    let ecn = RedConfig { ecn: true, ..config() };
    let decisions = |average, field| {
        let mut red = at_average(ecn, average);
        let all: Vec<_> = (0..1_000).map(|_| red.decide(packet(field))).collect();
        let count = |wanted| all.iter().filter(|decision| **decision == wanted).count();
        (count(Decision::Mark), count(Decision::Drop))
    };
    let (marks, drops) = decisions(100_000, Ecn::Ect0);
    assert!(marks > 50 && drops == 0, "{marks} marks, {drops} drops");
    assert_eq!(decisions(100_000, Ecn::NotEct).0, 0);
    assert_eq!(decisions(300_000, Ecn::Ect0), (0, 1_000));
}
