//! A run is a function of its scenario and does not depend on threads or on other runs (INV-9, A-10).

use std::num::NonZeroUsize;

use crate::rig::*;
use fullpipe_lab::campaign;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use fullpipe_lab::workload::{Reading, Writing};
use fullpipe_tcp::cc::Algorithm::{self, Bbr1, Cubic, Reno};
use fullpipe_units::Rate;

/// Returns a scenario that uses everything that draws random numbers or sets timers: loss, queue overflow,
/// three flows, receive merging (GRO), and applications with timers.
fn busy(cc: Algorithm, seed: u64) -> Scenario {
    let mut scenario = lossy(flows(link(cc, "30mbit", ms(40), 60, 6), 3), 2_000, seed);
    scenario.host.rx_merge = ms(1);
    let slow = Rate::from_bps(3_000_000);
    scenario.flows[1].workload.writing = Writing::smooth(slow);
    scenario.flows[2].workload.reading = Reading::CurlLimit { rate: slow };
    scenario.path.backward.loss = fullpipe_units::Probability::from_ppm(10_000);
    scenario
}

fn digest(scenario: &Scenario) -> u64 {
    sim::run(scenario).digest
}

#[test]
fn the_same_scenario_gives_the_same_digest() {
    for cc in [Reno, Cubic, Bbr1] {
        assert_eq!(digest(&busy(cc, 1)), digest(&busy(cc, 1)), "{cc}");
    }
}

#[test]
fn another_seed_gives_another_digest() {
    for cc in [Reno, Cubic, Bbr1] {
        assert_ne!(digest(&busy(cc, 1)), digest(&busy(cc, 2)), "{cc}");
    }
}

/// The digest covers the events of a run and not only its parameters: a queue that is longer by one packet
/// changes the digest.
#[test]
fn the_digest_sees_a_small_difference() {
    let mut other = busy(Reno, 1);
    other.path.forward.queue += fullpipe_units::Bytes::new(PACKET);
    assert_ne!(digest(&busy(Reno, 1)), digest(&other));
}

/// Recording trace rows does not change the outcome.
#[test]
fn a_trace_does_not_disturb() {
    let scenario = busy(Bbr1, 4);
    let kept = run(&scenario).outcome;
    assert_eq!(kept, sim::run_traced(&scenario, &mut NoTrace));
}

#[test]
fn threads_do_not_matter() {
    let text = "name = 'x'\nduration = '3s'\n[path]\nrate = ['5mbit', '20mbit']\nrtt = '30ms'\nloss = '0.5%'\n\
                [[flow]]\ncc = ['reno', 'bic', 'cubic', 'vegas', 'bbr1', 'bbr3', 'surge']";
    let points = Experiment::from_toml(text).expect("valid").points().to_vec();
    let on = |threads| {
        let threads = NonZeroUsize::new(threads).expect("not zero");
        campaign::run_on(threads, &points, &[1, 2, 3], digest, |_| {}).expect("no panic")
    };
    let alone = on(1);
    assert_eq!(alone, on(2));
    assert_eq!(alone, on(5));
}
