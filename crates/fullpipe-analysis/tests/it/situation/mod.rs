//! Runs of the eleven situations in `experiments/situations`, and summaries of their limits.
//!
//! Each run is simulated once, by the first test that needs it; the other tests wait for the result and share
//! it.

use std::sync::{LazyLock, OnceLock};

use crate::tapped::{BothEnds, File};
use fullpipe_analysis::classify::{LimitPeriod, share};
use fullpipe_analysis::{Limit, Measurement};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::Row;
use fullpipe_units::Rate;

const SITUATIONS: [&str; 11] = [
    "app",
    "link",
    "loss-bbr",
    "loss-cubic",
    "pacing",
    "policer",
    "receiver-app",
    "rwnd",
    "shaper",
    "slow-start",
    "sndbuf",
];
/// Seed of the runs with captured packets: one run for each path.
const CAPTURED_SEED: u64 = 1;

static RUNS: LazyLock<Vec<(&str, Vec<Run>)>> =
    LazyLock::new(|| SITUATIONS.into_iter().map(|situation| (situation, runs(situation))).collect());

/// One run of a situation.
pub(crate) struct Run {
    pub(crate) label: String,
    scenario: Scenario,
    simulated: OnceLock<SimulatedState>,
}

/// Results of a run.
struct SimulatedState {
    /// Trace with all values that the simulator knows.
    rows: Vec<Row>,
    /// Captures at the sender and at the receiver.
    captures: Option<[Measurement; 2]>,
}

impl Run {
    /// Returns the link rate.
    pub(crate) fn line(&self) -> Rate {
        self.scenario.path.forward.rate
    }

    /// Returns the trace with all values that the simulator knows.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.simulated().rows
    }

    /// Returns the captures at the sender and at the receiver.
    pub(crate) fn captures(&self) -> &[Measurement; 2] {
        self.simulated().captures.as_ref().expect("a run whose packets are captured")
    }

    fn simulated(&self) -> &SimulatedState {
        self.simulated.get_or_init(|| {
            let mut rows = Vec::new();
            if self.scenario.seed != CAPTURED_SEED {
                sim::run_traced(&self.scenario, &mut rows);
                return SimulatedState { rows, captures: None };
            }
            let mut ends = BothEnds::default();
            sim::run_tapped(&self.scenario, &mut rows, &mut ends);
            SimulatedState {
                rows,
                captures: Some([ends.sender, ends.receiver].map(|file: File| file.read())),
            }
        })
    }
}

fn runs(situation: &str) -> Vec<Run> {
    let file = format!("{}/../../experiments/situations/{situation}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).expect("the situation's file");
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let points = experiment.points().iter();
    points
        .flat_map(|point| experiment.seeds().into_iter().map(move |seed| (point, seed)))
        .map(|(point, seed)| {
            let label = format!("{situation}: {}, seed {seed}", point.label);
            let scenario = Scenario { seed, ..point.scenario.clone() };
            Run { label, scenario, simulated: OnceLock::new() }
        })
        .collect()
}

/// Returns all runs of a situation whose label satisfies `picks`.
pub(crate) fn all(situation: &str, picks: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static Run> {
    let (_, runs) = RUNS.iter().find(|(known, _)| *known == situation).expect("a situation");
    runs.iter().filter(move |run| picks(&run.label))
}

/// Returns the runs with captured packets whose label satisfies `picks`.
pub(crate) fn captured(situation: &str, picks: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static Run> {
    all(situation, picks).filter(|run| run.scenario.seed == CAPTURED_SEED)
}

/// Returns the share of time for each limit.
pub(crate) fn shares(intervals: &[LimitPeriod]) -> String {
    let mut limits: Vec<Limit> = intervals.iter().map(|interval| interval.limit).collect();
    limits.sort_unstable();
    limits.dedup();
    let words: Vec<_> =
        limits.iter().map(|limit| format!("{limit} {:.3}", share(intervals, *limit))).collect();
    words.join(", ")
}
