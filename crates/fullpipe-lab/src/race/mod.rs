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

mod harm;
mod harm_report;
mod harm_table;
mod report;
mod table;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;

use fullpipe_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::cost::RunCost;
use crate::experiment::{Experiment, ExperimentError, Point, RatioBound, missing_profile};
use crate::outcome::Outcome;
use crate::profile::{Profile, Profiles};
use crate::scenario::{FlowSpec, Scenario};
use crate::sim;
use crate::trace::Digest;

pub use harm::{HarmCell, HarmPlan, HarmRun, HarmRuns, StoredHarm};
pub use harm_report::{
    HARM_SCHEMA, HarmArmReport, HarmBoundReport, HarmCellReport, HarmInterval, HarmReport, VictimMetric,
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

/// Plan of a race: cells, arms and seeds, all of which are fixed before the first run.
#[derive(Clone, Debug)]
pub struct RacePlan {
    name: String,
    cells: Vec<Cell>,
    arms: Vec<Arm>,
    profiles: Profiles,
    against: Arm,
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
    /// Hash of the scenario, which identifies stored pairs.
    identity: String,
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
    /// [`PAIRS_WITHOUT_LOSS`] pairs. A small download with random loss has more pairs: 1000 instead of 60 up to 100 kB,
    /// and 400 up to 640 kB.
    ///
    /// # Errors
    /// Returns the errors of [`Self::check_arms`], and an error if the experiment lacks the profile of an arm, if a
    /// point of the experiment is not a single download that the simulator can run, or if the experiment has only one
    /// seed. A race in another world uses the same plan, so its results can be compared with simulated ones.
    pub fn new(experiment: &Experiment, arms: &[Arm], against: Arm) -> Result<Self, ExperimentError> {
        Self::check_arms(arms, against)?;
        let profiles = profiles_of(experiment, arms)?;
        experiment.check_simulated()?;
        let cells = experiment.points().iter().map(|point| Cell::new(experiment, &profiles, point));
        let cells: Vec<Cell> = cells.collect::<Result<_, _>>()?;
        if experiment.seeds().len() < 2 {
            return Err(ExperimentError::new(
                "a race needs at least two pairs, but the experiment has only one seed",
                "set repeat = 60, or pass --pairs 60",
            ));
        }
        let bounds = experiment.ratios().iter();
        let bounds = bounds.filter(|bound| bound.against == against && arms.contains(&bound.arm));
        Ok(Self {
            name: experiment.name().into(),
            bounds: bounds.cloned().collect(),
            cells,
            arms: arms.into(),
            profiles,
            against,
        })
    }

    /// Returns the plan with `pairs` pairs in each cell with random loss, regardless of the download size.
    #[must_use]
    pub fn with_pairs(mut self, pairs: u64) -> Self {
        for cell in &mut self.cells {
            cell.seeds = seeds(cell.seeds.first().copied().unwrap_or_default(), pairs, cell.random);
        }
        self
    }

    /// Returns the plan without cells that have several connections, because only the simulator can run them.
    #[must_use]
    pub fn with_single_connections(mut self) -> Self {
        self.cells.retain(|cell| cell.point.scenario.flows.len() == 1);
        self
    }

    /// Checks whether `arms` can be compared with the arm `against`.
    ///
    /// # Errors
    /// Returns an error if an arm is listed twice, or if `against` is not one of the arms or is the only one.
    pub fn check_arms(arms: &[Arm], against: Arm) -> Result<(), ExperimentError> {
        if let Some((_, twice)) = arms.iter().enumerate().find(|(i, arm)| arms[..*i].contains(arm)) {
            return Err(ExperimentError::new(
                format!("the arm {twice} is listed twice"),
                "list each arm once; bbr is another name of bbr1",
            ));
        }
        if !arms.contains(&against) {
            let known: Vec<_> = arms.iter().map(Arm::to_string).collect();
            return Err(ExperimentError::new(
                format!("the arm {against} is not in the race"),
                format!("compare with one of the arms: {}", known.join(", ")),
            ));
        }
        if arms.len() < 2 {
            return Err(ExperimentError::new("a race needs at least two arms", "add an arm, such as bbr1"));
        }
        Ok(())
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
        &self.arms
    }

    /// Returns the arm with which the other arms are compared.
    pub fn against(&self) -> Arm {
        self.against
    }

    /// Returns the bounds of the experiment that apply to the arms of this race.
    pub fn bounds(&self) -> &[RatioBound] {
        &self.bounds
    }

    /// Returns the number of pairs over all cells.
    pub fn pairs(&self) -> usize {
        self.cells.iter().map(|cell| cell.seeds.len()).sum()
    }

    /// Returns the estimated work of one pair of `cell` in the simulator.
    pub fn pair_cost(&self, cell: &Cell) -> RunCost {
        let arms = self.arms.iter().filter(|arm| cell.includes(**arm));
        let of_download = RunCost::of(&cell.point.scenario, false).packets();
        RunCost::sum(arms.map(|_| of_download))
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
        let arms = self.arms.iter().filter(|arm| cell.includes(**arm));
        let runs = arms.map(|arm| {
            let profile = arm.profile.and_then(|name| self.profiles.get(&name)).copied();
            Ok::<_, E>((arm.to_string(), run(&arm.applied(scenario, profile))?))
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
    /// scenario, and a run of each arm.
    pub fn accepts(&self, world: &str, cell: &Cell, pair: &Pair) -> bool {
        pair.cell == cell.point.label
            && pair.scenario == cell.identity
            && pair.world == world
            && cell.seeds.contains(&pair.seed)
            && self.arms.iter().all(|arm| !cell.includes(*arm) || pair.runs.contains_key(&arm.to_string()))
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

/// Returns the hash that identifies stored runs of a point. Stored runs are valid only if the scenario and the
/// settings of the profiles have not changed.
fn identity(point: &Point, profiles: &Profiles) -> String {
    let mut hash = Digest::default();
    point.scenario.identity().bytes().for_each(|byte| hash.add(byte.into()));
    for profile in profiles {
        format!("{profile:?}").bytes().for_each(|byte| hash.add(byte.into()));
    }
    format!("{:016x}", hash.value())
}

/// Returns the profiles of `experiment`, and the built-in profiles that `arms` name.
fn profiles_of(experiment: &Experiment, arms: &[Arm]) -> Result<Profiles, ExperimentError> {
    let mut profiles = experiment.profiles().clone();
    for name in arms.iter().filter_map(|arm| arm.profile) {
        if let Entry::Vacant(entry) = profiles.entry(name) {
            entry.insert(Profile::built_in(name).ok_or_else(|| missing_profile(name))?);
        }
    }
    Ok(profiles)
}

/// Returns the seeds of `pairs` pairs; a cell without randomness has fewer pairs.
fn seeds(first: u64, pairs: u64, random: bool) -> Vec<u64> {
    let pairs = if random { pairs } else { pairs.min(PAIRS_WITHOUT_LOSS) };
    (0..pairs).map(|pair| first.wrapping_add(pair)).collect()
}

impl Cell {
    fn new(experiment: &Experiment, profiles: &Profiles, point: &Point) -> Result<Self, ExperimentError> {
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
        let wanted = experiment.seeds();
        let stated = wanted.len() as u64;
        let pairs = match random {
            true if size <= TINY => (stated * 50).div_ceil(3),
            true if size <= SMALL => (stated * 20).div_ceil(3),
            _ => stated,
        };
        let first = wanted.first().copied().unwrap_or_default();
        let point = raced(experiment, point);
        Ok(Self {
            identity: identity(&point, profiles),
            point,
            size,
            random,
            seeds: seeds(first, pairs, random),
        })
    }

    /// Returns whether `arm` runs in this cell. With random loss, loss-based arms run only in cells with small
    /// downloads.
    fn includes(&self, arm: Arm) -> bool {
        !self.random || arm.cc.is_rate_based() || self.size <= SMALL
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
            ("loss=3% bytes=2MB", (5, 6)),
        ];
        assert_eq!(cells, expected);
        assert_eq!(plan.pairs(), 224);
        let many = CELLS.replace("repeat = 6", "repeat = 60");
        let many = planned(&many, "bbr1,bbr3", "bbr1").expect("a plan");
        assert_eq!(many.cells().iter().map(|cell| cell.seeds.len()).collect::<Vec<_>>(), [10, 10, 1_000, 60]);
        let few = many.with_pairs(20);
        assert_eq!(few.cells().iter().map(|cell| cell.seeds.len()).collect::<Vec<_>>(), [10, 10, 20, 20]);
        assert_eq!(few.cells()[2].seeds[..2], [5, 6]);
        // CUBIC makes all downloads without loss, but only the small downloads with loss.
        let races = |cell: &Cell| cell.includes(plan.arms()[0]);
        assert_eq!(
            plan.cells().iter().map(races).collect::<Vec<_>>(),
            [true, true, true, false, true, false]
        );
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
