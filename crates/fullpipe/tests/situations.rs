//! From the rows of eleven situations, stripped to what sockets tell, the classifier concludes what the
//! simulator knows.

use fullpipe::classify::{self, Classified, HostFacts, agreement, classify, exact, share};
use fullpipe::Limit;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::Row;

#[test]
fn table() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/situations");
    let mut files: Vec<_> = std::fs::read_dir(dir).expect("dir").map(|e| e.expect("entry").path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let experiment = Experiment::from_toml(&text).expect("valid");
        for point in experiment.points() {
            for seed in experiment.seeds() {
                let scenario = Scenario { seed, ..point.scenario.clone() };
                let mut rows: Vec<Row> = Vec::new();
                sim::run_traced(&scenario, &mut rows);
                let truth = exact(&rows).expect("truth");
                let observed: Vec<Row> = rows.iter().map(Row::observed).collect();
                for line in [Some(scenario.path.forward.rate), None] {
                    let host = HostFacts { line, ..HostFacts::default() };
                    let found = classify(&observed, &host).intervals;
                    let a = agreement(&truth, &found).unwrap_or(0.0); if a < 0.965 && std::env::var("SHOW").is_ok_and(|s| s == experiment.name()) { for w in &truth { println!("T {:.2} {:.2} {}", w.from.as_secs_f64(), w.to.as_secs_f64(), w.limit); } for w in &found { println!("   F {:.2} {:.2} {}", w.from.as_secs_f64(), w.to.as_secs_f64(), w.limit); } }
 if a < 0.975 { println!("{:10} {:45} {seed} line={:5} {:.3} truth {} found {}", experiment.name(), point.label, line.is_some(), agreement(&truth, &found).unwrap_or(0.0), shares(&truth), shares(&found)); }
                }
            }
        }
    }
}

fn shares(intervals: &[Classified]) -> String {
    use Limit::*;
    [App, ReceiverApp, Rwnd, Sndbuf, Cwnd, SlowStart, Pacing, Policer, Link].into_iter().filter_map(|l| {
        let s = share(intervals, l);
        (s > 0.005).then(|| format!("{l} {s:.2}"))
    }).collect::<Vec<_>>().join(" ")
}
