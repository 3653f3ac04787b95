//! Loss recovery on paths: what a controller gets when its peer reports less, or its marks are taken away.

mod rig;

use fullpipe_lab::scenario::Scenario;
use fullpipe_tcp::cc::Algorithm::{self, Bbr1, Cubic, Reno};
use rig::{PACKET, link, lossy, ms, run};

fn without_sack(mut scenario: Scenario) -> Scenario {
    scenario.host.sack = false;
    scenario
}

/// A bulk flow at 50 Mbit/s and 40 ms with a queue of two BDP, 1 % of its packets lost.
fn one_percent(cc: Algorithm, seed: u64) -> Scenario {
    lossy(link(cc, "50mbit", ms(40), 2 * 250_000 / PACKET, 60), 10_000, seed)
}

/// RFC 6582: where the peer does not report selectively a loss in a hundred is repaired by duplicate ACKs, and costs loss-based controllers
/// next to nothing more. BBR has several holes in each window, and one of them is repaired a round trip: it keeps a third.
#[test]
fn one_percent_without_sack() {
    for (cc, least, most) in [(Reno, 0.95, 1.02), (Cubic, 0.95, 1.02), (Bbr1, 0.25, 0.45)] {
        for seed in [1, 2] {
            let goodput = |scenario| run(&scenario).goodput(0, 5.0);
            let with = goodput(one_percent(cc, seed));
            let without = goodput(without_sack(one_percent(cc, seed)));
            let share = without / with;
            assert!((least..=most).contains(&share), "{cc}, seed {seed}: {without} of {with}");
        }
    }
}
