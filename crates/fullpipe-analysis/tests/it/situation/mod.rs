//! The runs of the eleven situations, `experiments/situations`, and words for what was made of one.

use fullpipe_analysis::Limit;
use fullpipe_analysis::classify::{Classified, share};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;

/// Every run of a situation, with its name.
pub(crate) fn scenarios(situation: &str) -> Vec<(String, Scenario)> {
    let file = format!("{}/../../experiments/situations/{situation}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).expect("the situation's file");
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let points = experiment.points().iter();
    points
        .flat_map(|point| experiment.seeds().into_iter().map(move |seed| (point, seed)))
        .map(|(point, seed)| {
            let label = format!("{situation}: {}, seed {seed}", point.label);
            (label, Scenario { seed, ..point.scenario.clone() })
        })
        .collect()
}

/// How much of the time each limit has.
pub(crate) fn shares(intervals: &[Classified]) -> String {
    let mut limits: Vec<Limit> = intervals.iter().map(|interval| interval.limit).collect();
    limits.sort_unstable();
    limits.dedup();
    let words: Vec<_> =
        limits.iter().map(|limit| format!("{limit} {:.3}", share(intervals, *limit))).collect();
    words.join(", ")
}
