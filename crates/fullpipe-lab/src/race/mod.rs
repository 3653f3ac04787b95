//! Races: the same downloads are run with several senders, and the download times are compared in pairs.
//!
//! ```text
//!   experiment ─► cells ─┬─ pair 1 (seed 1): arm, arm, arm ─┐
//!                        ├─ pair 2 (seed 2): arm, arm, arm ─┼─► RaceReport: times, ratios with intervals
//!                        └─ ...                             ─┘
//! ```
//!
//! A cell is one point of an experiment: a path, the hosts and the size of a download. If a point has several
//! connections, one after another, only the last one is timed: for example, the tenth connection of a client. All arms
//! of a cell run with the same seeds. They therefore have identical random losses, so their times are paired samples.
//! The number of pairs is fixed before the first run.
//!
//! [`RacePlan::run_pair`] runs one pair in the simulator, and [`RacePlan::run_pair_in`] in another world. The
//! caller runs the pairs, for example with [`campaign::run`](crate::campaign::run), and may store them:
//! [`RacePlan::accepts`] returns whether a stored pair belongs to the plan.
//!
//! A second kind of race measures the harm that a sender causes to other flows: [`HarmPlan`].

mod floors;
mod harm;
mod harm_report;
mod harm_table;
mod lineup;
mod report;
mod table;

use std::collections::BTreeMap;
use std::convert::Infallible;

use fullpipe_units::{Bytes, Probability};
use serde::{Deserialize, Serialize};

use crate::arm::{Arm, LAUNCH_WINDOW};
use crate::cost::RunCost;
use crate::experiment::{Experiment, ExperimentError, Point, RatioBound};
use crate::outcome::Outcome;
use crate::scenario::{FlowSpec, Scenario};
use crate::sim;
use crate::trace::Digest;

use lineup::Lineup;

pub use harm::{Attempt, HarmCell, HarmPlan, HarmRun, HarmRuns, SlowRuns, StoredHarm};
pub use harm_report::{
    HARM_SCHEMA, HarmArmReport, HarmBoundReport, HarmCellReport, HarmInterval, HarmReport, SimulatedExcess,
    VictimMetric,
};
pub use harm_table::HarmTable;
pub use report::{
    ArmReport, BoundReport, CellReport, IntervalKind, RaceReport, RatioReport, SCHEMA, TimesReport,
};
pub use table::RaceTable;

/// Name of the simulator in pairs and reports.
pub const SIM: &str = "sim";
/// Name of the emulator in pairs and reports.
pub const EMU: &str = "emu";

/// Number of pairs of a cell without random loss. In such a cell, the seed changes only the random numbers of the
/// senders, so the times hardly differ.
pub const PAIRS_WITHOUT_LOSS: u64 = 10;
/// Download size up to which a cell with random loss has 50/3 times as many pairs as the experiment states: 1000
/// instead of 60. In only a few percent of such small downloads, the last segments are lost, and the timeout that
/// follows takes several times as long as the rest of the download. With 60 pairs, the interval therefore misses the
/// true ratio too often: for a sender compared with itself, it contains 1 in 80 to 88 % of the races instead of 95 %
/// (`tests/it/null_races.rs`).
const TINY: Bytes = Bytes::new(100_000);
/// Download size up to which a cell with random loss has 20/3 times as many pairs as the experiment states: 400 instead
/// of 60. In cells with random loss, loss-based senders are left out of larger downloads, because such a download would
/// take them minutes.
const SMALL: Bytes = Bytes::new(640_000);
/// Loss probability from which a larger download has five times as many pairs as the experiment states: 300 instead of
/// 60. The simulator makes them in seconds, but the emulator would take hours.
const HEAVY_LOSS: Probability = Probability::from_ppm(30_000);
/// Divisor of the stated number of pairs for loss-based senders in cells with random loss: 20 instead of 60. Such a
/// download takes many times as long as one by a rate-based sender, so the difference is clear after a few pairs.
const LOSS_BASED_SHARE: u64 = 3;
/// Minimum number of pairs of an arm, because one pair has no interval.
const LEAST_PAIRS: u64 = 2;

/// Plan of a race: cells, arms and seeds, all of which are fixed before the first run.
#[derive(Clone, Debug)]
pub struct RacePlan {
    name: String,
    cells: Vec<Cell>,
    lineup: Lineup,
    bounds: Vec<RatioBound>,
}

/// A cell of a race: one download on one path.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Point of the experiment. The arms replace the congestion control in its scenario.
    pub point: Point,
    /// Size of the download.
    pub size: Bytes,
    /// Whether the fate or the delay of packets depends on the seed.
    pub random: bool,
    /// Seeds of the pairs.
    pub seeds: Vec<u64>,
    /// Number of pairs, from the first one, in which loss-based arms run.
    loss_based: usize,
    /// Number of pairs that the experiment states.
    stated: u64,
    /// Hash of the scenario, which identifies stored pairs.
    identity: String,
}

/// Numbers of pairs of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PairCounts {
    all: u64,
    /// Number of pairs, from the first one, in which loss-based arms run.
    loss_based: u64,
}

/// Runs of all arms in one cell with one seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Label of the cell.
    pub cell: String,
    /// Random seed of the runs.
    pub seed: u64,
    /// Hash of the scenario, as a hexadecimal string.
    pub scenario: String,
    /// Where the runs took place: [`SIM`] or [`EMU`].
    #[serde(default = "simulator")]
    pub world: String,
    /// Run of each arm, by the name of the arm.
    pub runs: BTreeMap<String, ArmRun>,
}

/// Returns the default of the field `world`, for pairs that were stored before this field existed.
fn simulator() -> String {
    SIM.into()
}

/// Result of one download. Times are integers, so that a stored run is exactly equal to the original run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmRun {
    /// Time from the SYN to the last byte in nanoseconds; `None` if the download did not complete.
    pub from_syn_ns: Option<u64>,
    /// Time from the request to the last byte in nanoseconds; `None` if the download did not complete.
    pub from_request_ns: Option<u64>,
    /// Number of data segments that the sender sent, including retransmissions.
    pub sent_segments: u64,
    /// Number of times that the download was repeated because the machine did not keep up with the emulated path.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u32,
    /// Whether the machine failed to keep up even in the last attempt. If so, the download has no times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl From<&Outcome> for ArmRun {
    fn from(outcome: &Outcome) -> Self {
        // The earlier connections serve only to fill the path memory.
        let timed = outcome.flows.last();
        let response = timed.and_then(|flow| flow.response);
        let only = outcome.flows.len() == 1;
        let sent = timed.and_then(|flow| flow.segments_sent).filter(|_| !only);
        Self {
            from_syn_ns: response.map(|response| response.from_syn.as_nanos()),
            from_request_ns: response.map(|response| response.from_request.as_nanos()),
            sent_segments: sent.unwrap_or_else(|| outcome.path.sent()),
            repeated: 0,
            late: false,
        }
    }
}

impl RacePlan {
    /// Creates the plan of a race between `arms` on the points of `experiment`. The times of every other arm are
    /// compared with those of the arm `against`.
    ///
    /// A cell with random loss has one pair per seed of the experiment. A cell without random loss has at most
    /// [`PAIRS_WITHOUT_LOSS`] pairs. With random loss, some downloads have more pairs: 1000 instead of 60 up to 100 kB,
    /// 400 up to 640 kB, and 300 for larger downloads with a loss of 3 % or more. Loss-based arms run in the first 20 of
    /// 60 pairs.
    ///
    /// # Errors
    /// Returns the errors of [`Self::check_arms`], and an error if the experiment lacks the profile of an arm, if a
    /// point of the experiment is not a single download that the simulator can run, if the experiment has only one
    /// seed, or if arms `NAME+iw` are in a race with several profiles of surge that launch different windows. A race in
    /// another world uses the same plan, so its results can be compared with simulated ones.
    pub fn new(experiment: &Experiment, arms: &[Arm], against: Arm) -> Result<Self, ExperimentError> {
        let lineup = Lineup::new(experiment, arms, against)?;
        experiment.check_simulated()?;
        let cells = experiment.points().iter().map(|point| Cell::new(experiment, &lineup, point));
        let mut cells: Vec<Cell> = cells.collect::<Result<_, _>>()?;
        if experiment.seeds().len() < 2 {
            return Err(ExperimentError::new(
                "a race needs at least two pairs, but the experiment has only one seed",
                "set repeat = 60, or pass --pairs 60",
            ));
        }
        let bounds = experiment.ratios().iter();
        let bounds = bounds.filter(|bound| bound.against == against && arms.contains(&bound.arm));
        let bounds = bounds.cloned().collect();
        for cell in &mut cells {
            cell.plan(cell.simulated(), &lineup);
        }
        Ok(Self { name: experiment.name().into(), cells, lineup, bounds })
    }

    /// Returns the plan with `pairs` pairs in each cell with random loss, regardless of the download size and the arm.
    #[must_use]
    pub fn with_pairs(mut self, pairs: u64) -> Self {
        for cell in &mut self.cells {
            cell.plan(PairCounts { all: pairs, loss_based: pairs }, &self.lineup);
        }
        self
    }

    /// Returns the plan with the numbers of pairs for a race in real time, in which 1000 pairs would take hours: those
    /// that the experiment states, for example 60, and 400 for downloads of up to 640 kB with a loss of 3 % or more.
    /// Loss-based arms run in a third of the stated number, as in the simulator.
    #[must_use]
    pub fn in_real_time(mut self) -> Self {
        for cell in &mut self.cells {
            cell.plan(cell.emulated(), &self.lineup);
        }
        self
    }

    /// Returns the plan without the cells that only the simulator runs: those that have several connections, and
    /// downloads of more than 640 kB with a loss of 3 % or more, which need 300 pairs.
    #[must_use]
    pub fn without_simulated_cells(mut self) -> Self {
        let is_emulated =
            |cell: &Cell| cell.point.scenario.flows.len() == 1 && !(cell.is_heavy() && cell.size > SMALL);
        self.cells.retain(is_emulated);
        self
    }

    /// Checks whether `arms` can be compared with the arm `against`.
    ///
    /// # Errors
    /// Returns an error if an arm is listed twice, or if `against` is not one of the arms or is the only one.
    pub fn check_arms(arms: &[Arm], against: Arm) -> Result<(), ExperimentError> {
        lineup::check(arms, against)
    }

    /// Returns the name of the race.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cells of the race, in the order of the experiment.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the arms of the race.
    pub fn arms(&self) -> &[Arm] {
        &self.lineup.arms
    }

    /// Returns the arm with which the other arms are compared.
    pub fn against(&self) -> Arm {
        self.lineup.against
    }

    /// Returns the bounds of the experiment that apply to the arms of this race.
    pub fn bounds(&self) -> &[RatioBound] {
        &self.bounds
    }

    /// Returns the number of pairs over all cells.
    pub fn pairs(&self) -> usize {
        self.cells.iter().map(|cell| cell.seeds.len()).sum()
    }

    /// Returns the estimated work of the pairs of `cell` with these `seeds` in the simulator.
    pub fn cost(&self, cell: &Cell, seeds: &[u64]) -> RunCost {
        let arms = |seed: &u64| self.arms().iter().filter(|arm| cell.includes(**arm, *seed)).count();
        let downloads = seeds.iter().map(arms).sum::<usize>();
        RunCost::sum([downloads as f64 * RunCost::of(&cell.point.scenario, false).packets()].into_iter())
    }

    /// Runs all arms of `cell` in turn with one seed in the simulator. `scenario` is the scenario of the cell
    /// with that seed.
    pub fn run_pair(&self, cell: &Cell, scenario: &Scenario) -> Pair {
        let simulated = |scenario: &Scenario| Ok::<_, Infallible>(ArmRun::from(&sim::run(scenario)));
        let Ok(pair) = self.run_pair_in(SIM, cell, scenario, simulated);
        pair
    }

    /// Runs all arms of `cell` in turn with one seed in `world`; `run` makes one download. `scenario` is the scenario
    /// of the cell with that seed.
    ///
    /// # Errors
    /// Returns the first error of `run`.
    pub fn run_pair_in<E>(
        &self,
        world: &str,
        cell: &Cell,
        scenario: &Scenario,
        mut run: impl FnMut(&Scenario) -> Result<ArmRun, E>,
    ) -> Result<Pair, E> {
        let arms = self.arms().iter().filter(|arm| cell.includes(**arm, scenario.seed));
        let runs = arms.map(|arm| {
            let settings = self.lineup.settings(*arm, scenario);
            Ok::<_, E>((arm.to_string(), run(&arm.applied(scenario, &settings))?))
        });
        Ok(Pair {
            cell: cell.point.label.clone(),
            seed: scenario.seed,
            scenario: cell.identity.clone(),
            world: world.into(),
            runs: runs.collect::<Result<_, E>>()?,
        })
    }

    /// Returns whether a stored pair belongs to `cell` of this race in `world`: it has one of the seeds, the same
    /// scenario, and a run of each arm that runs with this seed.
    pub fn accepts(&self, world: &str, cell: &Cell, pair: &Pair) -> bool {
        pair.cell == cell.point.label
            && pair.scenario == cell.identity
            && pair.world == world
            && cell.seeds.contains(&pair.seed)
            && self
                .arms()
                .iter()
                .all(|arm| !cell.includes(*arm, pair.seed) || pair.runs.contains_key(&arm.to_string()))
    }
}

/// Returns the point that a race uses as a cell.
fn raced(experiment: &Experiment, point: &Point) -> Point {
    let mut point = point.clone();
    // A race does not need trace rows.
    point.scenario.sample_every = point.scenario.duration;
    // If an experiment has only one point, its label names the congestion control, which the arms replace.
    if experiment.points().len() == 1 && point.label.starts_with("cc=") {
        point.label = experiment.name().into();
    }
    point
}

/// Returns the hash that identifies stored runs of a point. Stored runs are valid only if the scenario, the settings of
/// the profiles, and the initial window of the arms `NAME+iw` have not changed.
fn identity(point: &Point, lineup: &Lineup) -> String {
    let mut hash = Digest::default();
    let mut add = |text: &str| text.bytes().for_each(|byte| hash.add(byte.into()));
    add(&point.scenario.identity());
    for profile in &lineup.profiles {
        add(&format!("{profile:?}"));
    }
    let window = lineup.launch_window(&point.scenario);
    if window != LAUNCH_WINDOW {
        add(&format!("launch {window}"));
    }
    format!("{:016x}", hash.value())
}

impl Cell {
    fn new(experiment: &Experiment, lineup: &Lineup, point: &Point) -> Result<Self, ExperimentError> {
        let refused = |problem: &str| {
            Err(ExperimentError::new(
                format!("point '{}' {problem}", point.label),
                "a race needs one [[flow]] with bytes = \"640kB\" and app = { request = \"200B\" }; with \
                 count = 10 and every = \"11s\", it measures the last of ten connections",
            ))
        };
        let flows = point.scenario.flows.as_slice();
        let Some(flow) = flows.last() else { return refused("has no flow") };
        let alike = |other: &FlowSpec| FlowSpec { start: flow.start, ..other.clone() } == *flow;
        if !flows.iter().all(alike) || flows.windows(2).any(|pair| pair[0].start >= pair[1].start) {
            return refused("has flows that are not equal downloads, one after the other");
        }
        let Some(size) = flow.bytes else { return refused("has a flow without a size") };
        if flow.workload.request.is_none() {
            return refused("has a flow without a request");
        }
        let path = &point.scenario.path;
        let random = path.forward.is_random(1) || path.backward.is_random(1);
        let seeds = experiment.seeds();
        let point = raced(experiment, point);
        Ok(Self {
            identity: identity(&point, lineup),
            point,
            size,
            random,
            loss_based: seeds.len(),
            stated: seeds.len() as u64,
            seeds,
        })
    }

    /// Returns whether the loss of the path is at least [`HEAVY_LOSS`]. Times then vary so much that an interval of the
    /// same width needs more pairs.
    fn is_heavy(&self) -> bool {
        self.point.scenario.path.forward.loss >= HEAVY_LOSS
    }

    /// Returns the numbers of pairs in the simulator.
    fn simulated(&self) -> PairCounts {
        let all = match self.size {
            _ if !self.random => self.stated,
            size if size <= TINY => (self.stated * 50).div_ceil(3),
            size if size <= SMALL => (self.stated * 20).div_ceil(3),
            _ if self.is_heavy() => self.stated * 5,
            _ => self.stated,
        };
        PairCounts { all, loss_based: self.stated / LOSS_BASED_SHARE }
    }

    /// Returns the numbers of pairs in a race in real time.
    fn emulated(&self) -> PairCounts {
        let counts = self.simulated();
        let all =
            if self.is_heavy() && self.size <= SMALL { (self.stated * 20).div_ceil(3) } else { self.stated };
        PairCounts { all, ..counts }
    }

    /// Sets the numbers of pairs. Without randomness, the cell has at most [`PAIRS_WITHOUT_LOSS`] pairs, and all arms
    /// run in all of them.
    fn plan(&mut self, counts: PairCounts, lineup: &Lineup) {
        let first = self.seeds.first().copied().unwrap_or_default();
        let PairCounts { all, loss_based } = match self.random {
            true => counts,
            false => {
                let all = counts.all.min(PAIRS_WITHOUT_LOSS);
                PairCounts { all, loss_based: all }
            }
        };
        let loss_based = loss_based.max(LEAST_PAIRS).min(all);
        let has_rate_based = lineup.arms.iter().any(|arm| arm.cc.is_rate_based());
        let all = if has_rate_based { all } else { loss_based };
        self.seeds = (0..all).map(|pair| first.wrapping_add(pair)).collect();
        self.loss_based = loss_based as usize;
    }

    /// Returns whether `arm` runs in the pair with this seed. With random loss, loss-based arms run only in cells with
    /// small downloads, and only in the first pairs.
    fn includes(&self, arm: Arm, seed: u64) -> bool {
        arm.cc.is_rate_based()
            || !self.random
            || (self.size <= SMALL && self.seeds.iter().take(self.loss_based).any(|&first| first == seed))
    }

    /// Returns the label of a cell for tables: the values of the fields without their names.
    pub(crate) fn short_label(label: &str) -> String {
        let values = label.split(' ').map(|field| field.split_once('=').map_or(field, |(_, value)| value));
        values.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELLS: &str = "name = 'small'\nduration = '60s'\nrepeat = 6\nseed = 5\n\
                         [path]\nrate = '20mbit'\nrtt = '40ms'\nloss = ['0%', '1%']\n\
                         [[flow]]\ncc = 'bbr1'\nbytes = ['60kB', '2MB']\napp = { request = '200B' }\n";

    fn planned(text: &str, arms: &str, against: &str) -> Result<RacePlan, ExperimentError> {
        let arms: Vec<Arm> = arms.split(',').map(|arm| arm.parse().expect("an arm")).collect();
        let experiment = Experiment::from_toml(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        RacePlan::new(&experiment, &arms, against.parse().expect("an arm"))
    }

    #[test]
    fn cells_arms_and_pairs_are_fixed_beforehand() {
        let plan =
            planned(&CELLS.replace("'1%'", "'1%', '3%'"), "cubic,bbr1,bbr1+iw", "bbr1").expect("a plan");
        let seeds = |cell: &Cell| (cell.seeds[0], cell.seeds.len());
        let cells: Vec<_> =
            plan.cells().iter().map(|cell| (cell.point.label.as_str(), seeds(cell))).collect();
        let expected = [
            ("loss=0% bytes=60kB", (5, 6)),
            ("loss=0% bytes=2MB", (5, 6)),
            ("loss=1% bytes=60kB", (5, 100)),
            ("loss=1% bytes=2MB", (5, 6)),
            ("loss=3% bytes=60kB", (5, 100)),
            ("loss=3% bytes=2MB", (5, 30)),
        ];
        assert_eq!(cells, expected);
        assert_eq!(plan.pairs(), 248);
        let many = CELLS.replace("repeat = 6", "repeat = 60");
        let many = planned(&many, "bbr1,bbr3", "bbr1").expect("a plan");
        assert_eq!(many.cells().iter().map(|cell| cell.seeds.len()).collect::<Vec<_>>(), [10, 10, 1_000, 60]);
        let few = many.with_pairs(20);
        assert_eq!(few.cells().iter().map(|cell| cell.seeds.len()).collect::<Vec<_>>(), [10, 10, 20, 20]);
        assert_eq!(few.cells()[2].seeds[..2], [5, 6]);
    }

    /// CUBIC makes all downloads without loss, but only the small downloads with loss, and those in a third of the
    /// stated number of pairs. An explicit number of pairs applies to all arms.
    #[test]
    fn loss_based_arms_run_in_fewer_pairs() {
        let text = CELLS.replace("'1%'", "'1%', '3%'").replace("repeat = 6", "repeat = 60");
        let plan = planned(&text, "cubic,bbr1,bbr1+iw", "bbr1").expect("a plan");
        let races = |plan: &RacePlan, arm: usize| -> Vec<usize> {
            let arm = plan.arms()[arm];
            let of = |cell: &Cell| cell.seeds.iter().filter(|seed| cell.includes(arm, **seed)).count();
            plan.cells().iter().map(of).collect()
        };
        assert_eq!(races(&plan, 0), [10, 10, 20, 0, 20, 0]);
        assert_eq!(races(&plan, 1), [10, 10, 1_000, 60, 1_000, 300]);
        let emulated = plan.clone().in_real_time();
        assert_eq!(races(&emulated, 0), [10, 10, 20, 0, 20, 0]);
        assert_eq!(races(&emulated, 1), [10, 10, 60, 60, 400, 60]);
        let labels =
            |plan: &RacePlan| plan.cells().iter().map(|cell| cell.point.label.clone()).collect::<Vec<_>>();
        let kept = labels(&emulated.clone().without_simulated_cells());
        assert_eq!(kept, labels(&emulated)[..5]);
        assert_eq!(races(&plan.with_pairs(30), 0), [10, 10, 30, 0, 30, 0]);
        let only = planned(&text, "cubic,reno", "cubic").expect("a plan");
        assert_eq!(races(&only, 0), [10, 10, 20, 0, 20, 0]);
        assert_eq!(only.cells()[2].seeds.len(), 20);

        // A pair without a run of CUBIC belongs to the race if CUBIC does not run with its seed.
        let plan = planned(CELLS, "cubic,bbr1", "bbr1").expect("a plan");
        let cell = &plan.cells()[2];
        for (seed, arms) in [(5, 2), (6, 2), (7, 1)] {
            let mut pair = plan.run_pair(cell, &Scenario { seed, ..cell.point.scenario.clone() });
            assert_eq!((pair.runs.len(), plan.accepts(SIM, cell, &pair)), (arms, true), "seed {seed}");
            pair.runs.remove("cubic");
            assert_eq!(plan.accepts(SIM, cell, &pair), arms == 1, "seed {seed}");
        }
    }

    /// The initial window of `NAME+iw` is the launch window of surge in the same race.
    #[test]
    fn arms_with_the_launch_window_follow_surge() {
        let host = CELLS.replace("[[flow]]", "[host]\ninitcwnd = 20\n[[flow]]");
        let profiles = "[profile.web]\nlaunch.window = 32\n[profile.wide]\nlaunch.window = 60\n\
                        [profile.same]\nlaunch = { window = 32, rate = '10mbit' }\n";
        let of_flow = format!("{}{profiles}", CELLS.replace("cc = 'bbr1'", "cc = 'bbr1'\nprofile = 'web'"));
        let with = |text: &str| format!("{text}{profiles}");
        for (text, arms, window) in [
            (with(CELLS), "bbr1,bbr1+iw", 44),
            (with(CELLS), "bbr1,bbr1+iw,surge", 44),
            (with(CELLS), "bbr1,bbr1+iw,surge+web", 32),
            (with(CELLS), "bbr1,bbr1+iw,surge+web,surge+same", 32),
            (with(CELLS), "bbr1,bbr1+iw,surge+web,surge", 44),
            (with(&host), "bbr1,bbr1+iw,surge+wide", 60),
            (with(&host), "bbr1,bbr1+iw,surge", 20),
            (with(&host), "bbr1,bbr1+iw", 44),
            (of_flow.clone(), "bbr1,bbr1+iw,surge", 32),
            (of_flow, "bbr1,bbr1+iw,surge+wide", 60),
        ] {
            let plan = planned(&text, arms, "bbr1").expect(arms);
            let cell = &plan.cells()[0];
            let mut windows = Vec::new();
            let run = |scenario: &Scenario| {
                let config = sim::connection(scenario, &scenario.flows[0], 0, 0);
                windows.push(config.launch.map_or(config.initcwnd, |launch| Some(launch.window)));
                Ok::<_, Infallible>(ArmRun::default())
            };
            let Ok(_) = plan.run_pair_in(SIM, cell, &cell.point.scenario, run);
            assert_eq!(windows[1], Some(window), "{arms}");
        }
        let error =
            planned(&with(CELLS), "bbr1,bbr1+iw,surge+web,surge+wide", "bbr1").expect_err("ambiguous");
        assert_eq!(
            error.message,
            "the initial window of bbr1+iw is ambiguous: surge+web launches 32 segments, and surge+wide launches 60"
        );
        planned(&with(CELLS), "bbr1,surge+web,surge+wide", "bbr1").expect("no arm with the window of surge");

        // A stored pair with another window does not belong to the race.
        let [narrow, wide] = ["surge+web", "surge+wide"]
            .map(|arm| planned(&with(CELLS), &format!("bbr1,bbr1+iw,{arm}"), "bbr1").expect("a plan"));
        let cell = &narrow.cells()[0];
        let mut pair = narrow.run_pair(cell, &Scenario { seed: 5, ..cell.point.scenario.clone() });
        assert!(narrow.accepts(SIM, cell, &pair));
        let run = pair.runs["surge+web"];
        pair.runs.insert("surge+wide".into(), run);
        assert!(!wide.accepts(SIM, &wide.cells()[0], &pair));
    }

    #[test]
    fn a_pair_has_identical_losses_and_a_run_of_each_arm() {
        let plan = planned(CELLS, "bbr1,bbr1+iw", "bbr1").expect("a plan");
        let cell = &plan.cells()[2];
        let scenario = Scenario { seed: 6, ..cell.point.scenario.clone() };
        let pair = plan.run_pair(cell, &scenario);
        assert_eq!(pair.seed, 6);
        assert_eq!(pair.runs.keys().collect::<Vec<_>>(), ["bbr1", "bbr1+iw"]);
        assert_eq!(plan.run_pair(cell, &scenario), pair);
        let time = |arm: &str| pair.runs[arm].from_syn_ns.expect("complete");
        assert!(time("bbr1+iw") < time("bbr1"), "{pair:?}");
        assert!(plan.accepts(SIM, cell, &pair));

        // A pair does not belong to this cell if its cell, seed, scenario or world differs, or if it lacks an
        // arm.
        assert!(!plan.accepts(SIM, &plan.cells()[3], &pair));
        assert!(!plan.accepts(SIM, cell, &Pair { seed: 500, ..pair.clone() }));
        assert!(!plan.accepts(EMU, cell, &pair));
        let deep = CELLS.replace("rtt = '40ms'", "rtt = '40ms'\nqueue = '2bdp'");
        let deep = planned(&deep, "bbr1,bbr1+iw", "bbr1").expect("a plan");
        assert!(!deep.accepts(SIM, &deep.cells()[2], &pair));
        let more = planned(CELLS, "bbr1,bbr1+iw,bbr3", "bbr1").expect("a plan");
        assert!(!more.accepts(SIM, &more.cells()[2], &pair));
        let fewer = planned(CELLS, "bbr1+iw,bbr1", "bbr1+iw").expect("a plan");
        assert!(fewer.accepts(SIM, &fewer.cells()[2], &pair), "the order does not matter");
    }

    #[test]
    fn a_pair_of_another_world_has_the_runs_of_that_world() {
        let plan = planned(CELLS, "bbr1,bbr1+iw", "bbr1").expect("a plan");
        let cell = &plan.cells()[0];
        let scenario = Scenario { seed: 7, ..cell.point.scenario.clone() };
        // The run function receives the scenario of each arm in turn.
        let mut launches = Vec::new();
        let run = |scenario: &Scenario| {
            launches.push((scenario.seed, scenario.host.initcwnd));
            Ok::<_, String>(ArmRun { repeated: launches.len() as u32, ..ArmRun::default() })
        };
        let pair = plan.run_pair_in(EMU, cell, &scenario, run).expect("no error");
        assert_eq!(launches, [(7, None), (7, Some(44))]);
        assert!(plan.accepts(EMU, cell, &pair) && !plan.accepts(SIM, cell, &pair), "{pair:?}");
        assert_eq!((pair.runs["bbr1"].repeated, pair.runs["bbr1+iw"].repeated), (1, 2));
        let failed = |_: &Scenario| Err::<ArmRun, _>("no route");
        assert_eq!(plan.run_pair_in(EMU, cell, &scenario, failed), Err("no route"));

        // Runs without repetitions are stored without the field `repeated`, and a stored pair without a world
        // is treated as simulated.
        let stored = serde_json::to_value(plan.run_pair(cell, &scenario)).expect("JSON");
        let keys = |value: &serde_json::Value| value.as_object().expect("an object").len();
        assert_eq!(keys(&stored["runs"]["bbr1"]), 3, "{stored}");
        let mut older = stored.clone();
        older.as_object_mut().expect("an object").remove("world");
        let older: Pair = serde_json::from_value(older).expect("readable");
        assert_eq!(serde_json::to_value(&older).expect("JSON"), stored);
    }

    /// The sender of an arm uses the settings of its profile: without loss, a launch of 44 segments is faster than one
    /// of ten segments. A stored pair does not belong to a race whose profile has other settings.
    #[test]
    fn an_arm_may_have_a_profile() {
        let text = |window| format!("{CELLS}[profile.web]\nlaunch.window = {window}\n");
        let plan = planned(&text(44), "bbr1,cubic+web,bbr1+web", "bbr1").expect("a plan");
        let cell = &plan.cells()[0];
        let pair = plan.run_pair(cell, &Scenario { seed: 5, ..cell.point.scenario.clone() });
        let time = |arm: &str| pair.runs[arm].from_syn_ns.expect("complete");
        for arm in ["cubic+web", "bbr1+web"] {
            assert!(time(arm) < time("bbr1"), "{arm}: {pair:?}");
        }
        assert!(plan.accepts(SIM, cell, &pair));
        let other = planned(&text(43), "bbr1,cubic+web,bbr1+web", "bbr1").expect("a plan");
        assert!(!other.accepts(SIM, &other.cells()[0], &pair));

        let error = planned(&text(44), "bbr1,bbr1+wob", "bbr1").expect_err("no such profile");
        assert_eq!(error.message, "there is no profile 'wob'");
    }

    #[test]
    fn what_is_not_a_race_is_refused() {
        let refused = |text: &str, arms: &str, against: &str| {
            let error = planned(text, arms, against).expect_err("refused");
            assert!(!error.hint.is_empty(), "{error}");
            error.message
        };
        let of = |from: &str, to: &str| refused(&CELLS.replace(from, to), "bbr1,bbr3", "bbr1");
        assert_eq!(refused(CELLS, "bbr1,bbr", "bbr1"), "the arm bbr1 is listed twice");
        assert_eq!(refused(CELLS, "bbr1,bbr3", "cubic"), "the arm cubic is not in the race");
        assert_eq!(refused(CELLS, "bbr1", "bbr1"), "a race needs at least two arms");
        assert_eq!(
            of("app = { request = '200B' }", ""),
            "point 'loss=0% bytes=60kB' has a flow without a request"
        );
        assert_eq!(of("bytes = ['60kB', '2MB']", ""), "point 'loss=0%' has a flow without a size");
        assert_eq!(
            of("[[flow]]\n", "[[flow]]\ncount = 2\n"),
            "point 'loss=0% bytes=60kB' has flows that are not equal downloads, one after the other"
        );
        assert!(of("[[flow]]\n", "[[flow]]\nstack = 'kernel'\n").contains("kernel TCP stack"));
        assert!(of("repeat = 6\n", "").starts_with("a race needs at least two pairs"));
    }

    #[test]
    fn labels_of_tables_are_short() {
        assert_eq!(Cell::short_label("rate=20mbit loss=1%:burst=5 bytes=2MB"), "20mbit 1%:burst=5 2MB");
        assert_eq!(Cell::short_label("a name"), "a name");
        let one = CELLS.replace("['0%', '1%']", "'0%'").replace("['60kB', '2MB']", "'2MB'");
        assert_eq!(planned(&one, "bbr1,bbr3", "bbr1").expect("a plan").cells()[0].point.label, "small");
    }
}
