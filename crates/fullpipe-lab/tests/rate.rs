//! Delivery-rate samples on a path (draft-ietf-ccwg-bbr section 4.1): a sample is a rate at which the path has delivered, whatever the ACKs do.

mod rig;

use fullpipe_lab::scenario::Scenario;
use fullpipe_path::AggregatorConfig;
use fullpipe_tcp::cc::Algorithm::{Bbr1, Cubic};
use fullpipe_units::Probability;
use rig::{MSS, PACKET, at, link, ms, run};

/// Payload that a link of 10 Mbit/s carries.
const LINE: f64 = 10e6 * MSS as f64 / PACKET as f64;

/// Samples of a bulk transfer at 10 Mbit/s and 40 ms, looked at each millisecond behind the start, in units of the line.
fn samples(scenario: &Scenario) -> Vec<f64> {
    let scenario = Scenario { sample_every: ms(1), ..scenario.clone() };
    let rows = run(&scenario).rows;
    let samples: Vec<f64> = rows
        .iter()
        .filter(|row| row.flow == 0 && row.at >= at(3.0) && !row.sender.app_limited)
        .filter_map(|row| row.sender.delivery_rate)
        .map(|rate| rate.as_bps() as f64 / LINE)
        .collect();
    assert!(samples.len() > 5_000, "{} samples", samples.len());
    samples
}

fn most(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(0.0, f64::max)
}

fn bulk() -> Scenario {
    // A queue that CUBIC does not overflow within the run's first seconds only.
    link(Cubic, "10mbit", ms(40), 66, 12)
}

/// DR-3: no sample is above the line by more than a packet in its interval, of at least 40 ms: 3 %. The largest is the line within 1 %.
#[test]
fn dr_3_samples_of_a_fixed_link() {
    for scenario in [bulk(), link(Bbr1, "10mbit", ms(40), 66, 12)] {
        let most = most(&samples(&scenario));
        assert!((0.99..=1.01).contains(&most), "{most}");
    }
}

/// DR-4: all ACKs of 20 ms come at once: the interval in which they were sent for is the longer one, and no sample is above what was sent.
#[test]
fn dr_4_aggregated_acks() {
    let mut scenario = bulk();
    scenario.path.backward.aggregation = Some(AggregatorConfig { within: ms(20), packets: u32::MAX });
    let most = most(&samples(&scenario));
    assert!((0.99..=1.03).contains(&most), "{most}");
}

/// DR-5: half of the ACKs are lost, and the largest sample stays within 2 %.
#[test]
fn dr_5_lost_acks() {
    let mut scenario = bulk();
    let all = most(&samples(&scenario));
    scenario.path.backward.loss = Probability::from_ppm(500_000);
    let half = most(&samples(&scenario));
    assert!((half / all - 1.0).abs() <= 0.02, "{half} and {all}");
}
