//! Loss recovery on paths: the effects of a peer without SACK, and of ECN marks.

use crate::rig;
use crate::rig::{PACKET, link, lossy, ms, run};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_tcp::cc::Algorithm::{self, Bbr1, Cubic, Reno};

fn without_sack(mut scenario: Scenario) -> Scenario {
    scenario.host.sack = false;
    scenario
}

/// Returns a scenario with one bulk flow at 50 Mbit/s with an RTT of 40 ms, a queue of two BDP and 1 % packet
/// loss.
fn one_percent(cc: Algorithm, seed: u64) -> Scenario {
    lossy(link(cc, "50mbit", ms(40), 2 * 250_000 / PACKET, 60), 10_000, seed)
}

/// RFC 6582: without SACK, losses at a rate of 1 % are repaired by means of duplicate ACKs, at almost no cost
/// for loss-based controllers. BBR has several holes in each window and repairs one hole per round trip, so
/// it keeps a third of its goodput.
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

/// On a path that marks packets and almost never drops them, BBRv3 treats marks as congestion (ECN-5). BBRv3
/// probes less far into the queue than without ECN, and keeps the link full.
#[test]
fn ecn_5_bbr3_heeds_marks() {
    let outcome = |ecn: bool| {
        let file = format!(
            "name = \"marks\"\nduration = \"30s\"\n[path]\nrate = \"100mbit\"\nrtt = \"40ms\"\n\
             queue = {{ size = \"4bdp\", aqm = \"step\", threshold = \"0.05bdp\" }}\n\
             [host]\nsndbuf = \"64MiB\"\nrcvbuf = \"64MiB\"\necn = {ecn}\n[[flow]]\ncc = \"bbr3\"\ncount = 2\n"
        );
        let experiment = Experiment::from_toml(&file).expect("an experiment");
        run(&Scenario { seed: 1, ..experiment.points()[0].scenario.clone() })
    };
    let (marked, unmarked) = (outcome(true), outcome(false));
    let path = marked.outcome.path;
    assert!(path.marked > 0 && path.queue_drops + path.aqm_drops == 0, "{path:?}");
    assert!(marked.utilisation("100mbit", 10.0) > 0.95);
    let queue = |run: &rig::Run| run.mean(10.0, |row| rig::queue_of(row) as f64);
    assert!(10.0 * queue(&marked) < queue(&unmarked), "{} and {}", queue(&marked), queue(&unmarked));
}
