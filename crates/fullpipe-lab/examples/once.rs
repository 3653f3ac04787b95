//! Runs each point of an experiment once, on one thread and without reading a clock, and prints the number of
//! data segments delivered. The program is kept small so that its instructions can be counted and its run
//! time can be measured from outside.
//!
//! ```text
//!   cargo build --profile dist -p fullpipe-lab --example once
//!   valgrind --tool=callgrind target/dist/examples/once experiments/bench-lossless.toml
//! ```

use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;

fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).expect("a file");
        let experiment = Experiment::from_toml(&text).expect("an experiment without files of its own");
        for point in experiment.points() {
            let outcome = sim::run(&point.scenario);
            println!(
                "{file} {}: {} data segments, digest {:016x}",
                point.label, outcome.path.delivered, outcome.digest
            );
        }
    }
}
