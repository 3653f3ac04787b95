//! Prints the digest of a short run of each algorithm on a path with random loss, an AQM queue, jitter and a
//! detour. `scripts/digests` compares the output of two builds.

use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;

const TEXT: &str = "
name = 'digests'
duration = '8s'
[path]
rate = '30mbit'
rtt = '40ms'
loss = '0.3%'
queue = { size = '1bdp', aqm = 'codel' }
jitter = { up_to = '3ms', spread = 'normal', share = '20%', order = false }
detour = { by = '15ms', at = '3s', until = '5s' }
[path.backward]
loss = '2%'
[[flow]]
cc = ['reno', 'bic', 'cubic', 'vegas', 'bbr1', 'bbr3', 'surge']
count = 2
";

fn main() {
    let experiment = Experiment::from_toml(TEXT).expect("it is valid");
    for point in experiment.points() {
        for seed in 1..=3 {
            let mut scenario = point.scenario.clone();
            scenario.seed = seed;
            println!("{} {seed} {:016x}", point.label, sim::run(&scenario).digest);
        }
    }
}
