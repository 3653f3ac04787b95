//! Races that measure harm: the performance that a flow loses when it shares a path with a given sender.
//!
//! ```text
//!                     ┌─ victim alone ───────────────┐
//!   cell, seed ───────┼─ victim beside bbr1 ─────────┼──► harm of each arm, and their difference
//!                     └─ victim beside surge ────────┘
//! ```
//!
//! The harm is the share of its performance that the victim loses (R. Ware and others, "Beyond Jain's
//! Fairness Index: Setting the Bar For The Deployment of Congestion Control Algorithms", HotNets 2019). If x
//! is the performance alone and y is the performance beside the sender, the harm is (x - y) / x if higher
//! values are better, and (y - x) / y if lower values are better. Unlike a fairness index, the harm shows
//! which flow lost.
//!
//! A cell is one point of an experiment and one victim. The flows of the experiment are the senders under
//! test; the arms replace their congestion control. Each seed draws different start times for all flows,
//! because flows that start in a fixed order would always meet in the same phase. All arms of a cell run with
//! the same seeds.
//!
//! [`HarmPlan::run`] makes the runs of one seed in the simulator, and [`HarmPlan::run_in`] in another world.

use std::collections::BTreeMap;
use std::convert::Infallible;

use fullpipe_units::{Bytes, Duration, draw};
use serde::{Deserialize, Serialize};

use super::floors::segments;
use super::lineup::Lineup;
use super::{identity, is_zero, raced, simulator};
use crate::arm::Arm;
use crate::cost::RunCost;
use crate::experiment::{Experiment, ExperimentError, HarmBound, Point};
use crate::outcome::Outcome;
use crate::scenario::{FlowSpec, Scenario};
use crate::sim;
use crate::victim::{STARTS_SHARE, Victim, scaled, spread};

/// Number of the random stream for the start times of the senders.
const SENDER_STARTS: u64 = 0x7365_6e64;

/// Size of the requests of [`HarmPlan::with_requests`], as in other races.
const REQUEST: Bytes = Bytes::new(200);

/// Plan of a race that measures harm: cells, arms and seeds, all of which are fixed before the first run.
#[derive(Clone, Debug)]
pub struct HarmPlan {
    name: String,
    cells: Vec<HarmCell>,
    seeds: Vec<u64>,
    lineup: Lineup,
    bounds: Vec<HarmBound>,
}

/// A cell: one path with senders under test, and one victim.
#[derive(Clone, Debug)]
pub struct HarmCell {
    /// Point of the experiment. The arms replace the congestion control in its scenario.
    pub point: Point,
    /// Number of the point in the experiment.
    pub(super) number: usize,
    /// Flow whose harm is measured.
    pub victim: Victim,
    /// Hash of the scenario, which identifies stored runs.
    identity: String,
}

/// Runs of a cell with one seed: the victim alone, and beside each arm.
#[derive(Clone, Debug, PartialEq)]
pub struct HarmRuns {
    /// Metric of the victim without the senders under test; `None` if it could not be computed.
    pub alone: Option<f64>,
    /// Runs of the victim beside each arm, in the order of the plan.
    pub arms: Vec<HarmRun>,
    /// Runs in real time with which the machine did not keep up.
    pub slow: SlowRuns,
}

/// Number of runs in real time with which the machine did not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRuns {
    /// Number of runs that were repeated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u32,
    /// Number of runs without a result, because the machine failed to keep up even in the last attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u32,
}

/// Result of one run in any world.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Outcome of the run; `None` if the machine failed to keep up with every attempt.
    pub outcome: Option<Outcome>,
    /// Number of times that the run was repeated because the machine did not keep up.
    pub repeated: u32,
    /// Whether the outcome contains the retransmissions of all flows. It does not contain those of a relay.
    pub knows_retransmits: bool,
}

impl From<Outcome> for Attempt {
    fn from(outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), repeated: 0, knows_retransmits: true }
    }
}

/// Runs of a cell with one seed, as they are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredHarm {
    /// Label of the cell.
    pub cell: String,
    /// Name of the victim.
    pub victim: String,
    /// Random seed of the runs.
    pub seed: u64,
    /// Hash of the scenario, as a hexadecimal string.
    pub scenario: String,
    /// Where the runs took place: [`SIM`](super::SIM) or [`EMU`](super::EMU).
    #[serde(default = "simulator")]
    pub world: String,
    /// Metric of the victim alone; `None` if it could not be computed.
    #[serde(with = "exact")]
    pub alone: Option<f64>,
    /// Run of the victim beside each arm, by the name of the arm.
    pub runs: BTreeMap<String, HarmRun>,
    #[serde(flatten)]
    slow: SlowRuns,
}

/// Stores a number as a string, because `serde_json` does not restore every floating-point number exactly.
mod exact {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

/// Run of the victim beside one arm. All numbers are zero if the machine failed to keep up with every attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HarmRun {
    /// Metric of the victim beside the arm; `None` if it could not be computed.
    #[serde(with = "exact")]
    pub beside: Option<f64>,
    /// Number of data segments that the senders under test sent, including retransmissions; `None` if the
    /// machine failed to keep up with every attempt. For a relay, the number of its packets on the path, with those of its
    /// handshakes.
    pub sent: Option<u64>,
    /// Number of data segments needed for the data that arrived from the senders under test.
    pub needed: u64,
    /// Number of data packets that all flows sent into the path.
    pub offered: u64,
    /// Number of data packets that a queue, an AQM or a policer dropped.
    pub dropped: u64,
}

impl HarmPlan {
    /// Creates the plan of a race between `arms` that measures the harm to each of the `victims`, on the
    /// points of `experiment`. The harm of every other arm is compared with the harm of the arm `against`.
    /// Each arm runs in each cell once per seed of the experiment.
    ///
    /// # Errors
    /// Returns an error if the arms cannot be compared ([`RacePlan::check_arms`](super::RacePlan::check_arms)), if the
    /// experiment lacks the profile of an arm, if its flows cannot run in the simulator, or if it has only one seed.
    pub fn new(
        experiment: &Experiment,
        arms: &[Arm],
        against: Arm,
        victims: &[Victim],
    ) -> Result<Self, ExperimentError> {
        let lineup = Lineup::new(experiment, arms, against)?;
        experiment.check_simulated()?;
        if experiment.seeds().len() < 2 {
            return Err(ExperimentError::new(
                "a race needs at least two pairs, but the experiment has only one seed",
                "set repeat = 10, or pass --pairs 10",
            ));
        }
        let points = || experiment.points().iter().enumerate();
        let cells = points().flat_map(|(number, point)| {
            let new = |victim: &Victim| HarmCell::new(experiment, &lineup, number, point, *victim);
            victims.iter().map(new).collect::<Vec<_>>()
        });
        let cells = cells.collect();
        let bounds = experiment.harms().iter();
        let bounds = bounds.filter(|bound| bound.against == against && arms.contains(&bound.arm));
        Ok(Self {
            name: experiment.name().into(),
            cells,
            seeds: experiment.seeds(),
            bounds: bounds.cloned().collect(),
            lineup,
        })
    }

    /// Returns the name of the race.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cells of the race, in the order of the experiment.
    pub fn cells(&self) -> &[HarmCell] {
        &self.cells
    }

    /// Returns the seeds with which each cell runs.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
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
    pub fn bounds(&self) -> &[HarmBound] {
        &self.bounds
    }

    /// Returns the plan with only these cells, each given by the victim and the label of the point, in this order. A
    /// cell whose victim is not in the race is left out.
    ///
    /// # Errors
    /// Returns an error if the plan does not have a point with one of the labels.
    pub fn with_cells(mut self, cells: &[(Victim, &str)]) -> Result<Self, ExperimentError> {
        let mut kept = Vec::new();
        for (victim, label) in cells {
            if self.cells.iter().all(|cell| cell.point.label != *label) {
                return Err(ExperimentError::new(
                    format!("the race has no point '{label}'"),
                    "compare the names of the cells with the labels of the points",
                ));
            }
            let is_named = |cell: &&HarmCell| cell.victim == *victim && cell.point.label == *label;
            kept.extend(self.cells.iter().find(is_named).cloned());
        }
        self.cells = kept;
        Ok(self)
    }

    /// Returns the plan with this duration of each run.
    #[must_use]
    pub fn with_duration(self, duration: Duration) -> Self {
        self.changed(|scenario| {
            scenario.duration = duration;
            scenario.sample_every = duration;
        })
    }

    /// Returns the plan with senders under test that wait for a request, as a server does. In the emulator, the relay of
    /// a sender that the kernel does not have needs clients that connect to it. The request delays the data by one round
    /// trip.
    #[must_use]
    pub fn with_requests(self) -> Self {
        self.changed(|scenario| {
            for flow in &mut scenario.flows {
                flow.workload.request.get_or_insert(REQUEST);
            }
        })
    }

    /// Returns the plan with a change to the scenario of each cell.
    fn changed(mut self, change: impl Fn(&mut Scenario)) -> Self {
        for cell in &mut self.cells {
            change(&mut cell.point.scenario);
            cell.identity = identity(&cell.point, &self.lineup);
        }
        self
    }

    /// Runs the victim of `cell` alone and beside each arm with one seed in the simulator. `scenario` is the
    /// scenario of the cell with that seed.
    pub fn run(&self, cell: &HarmCell, scenario: &Scenario) -> HarmRuns {
        let simulated = |scenario: &Scenario| Ok::<_, Infallible>(Attempt::from(sim::run(scenario)));
        let Ok(runs) = self.run_in(cell, scenario, simulated);
        runs
    }

    /// Runs the victim of `cell` alone and then beside each arm with one seed; `run` makes one run. `scenario` is the
    /// scenario of the cell with that seed.
    ///
    /// # Errors
    /// Returns the first error of `run`.
    pub fn run_in<E>(
        &self,
        cell: &HarmCell,
        scenario: &Scenario,
        mut run: impl FnMut(&Scenario) -> Result<Attempt, E>,
    ) -> Result<HarmRuns, E> {
        let victims = cell.victim.flows(scenario.duration, scenario.seed);
        let mut slow = SlowRuns::default();
        let mut run = |flows| {
            let attempt = run(&Scenario { flows, ..scenario.clone() })?;
            slow.repeated += attempt.repeated;
            slow.late += u32::from(attempt.outcome.is_none());
            Ok(attempt)
        };
        let alone = run(victims.clone())?.outcome;
        let beside = |arm: &Arm| {
            let settings = self.lineup.settings(*arm, scenario);
            let senders = started(scenario).map(|flow| arm.applied_to_one(&flow, &settings));
            // The victims come first, so that their random losses are the same with and without the senders.
            let attempt = run(victims.iter().cloned().chain(senders).collect())?;
            Ok(HarmRun::of(cell.victim, &victims, scenario, &attempt))
        };
        let arms = self.arms().iter().map(beside).collect::<Result<_, E>>()?;
        let measured = |alone: &Outcome| cell.victim.measured(&victims, &alone.flows, scenario.duration);
        Ok(HarmRuns { alone: alone.as_ref().and_then(measured), arms, slow })
    }

    /// Returns the estimated work of `cell` with one seed: the victim alone and beside each arm.
    pub fn seed_cost(&self, cell: &HarmCell) -> RunCost {
        let scenario = &cell.point.scenario;
        let victims = cell.victim.flows(scenario.duration, scenario.seed);
        let beside = victims.iter().chain(&scenario.flows).cloned().collect();
        let of = |flows| RunCost::of(&Scenario { flows, ..scenario.clone() }, false).packets();
        RunCost::sum([of(victims), self.arms().len() as f64 * of(beside)].into_iter())
    }

    /// Returns the number of seeds over all cells.
    pub fn runs(&self) -> usize {
        self.cells.len() * self.seeds.len()
    }

    /// Returns the runs of `cell` with the seed `seed` in `world`, in the form in which they are stored.
    pub fn stored(&self, world: &str, cell: &HarmCell, seed: u64, runs: &HarmRuns) -> StoredHarm {
        StoredHarm {
            cell: cell.point.label.clone(),
            victim: cell.victim.name().into(),
            seed,
            scenario: cell.identity.clone(),
            world: world.into(),
            alone: runs.alone,
            runs: self.arms().iter().map(Arm::to_string).zip(runs.arms.iter().copied()).collect(),
            slow: runs.slow,
        }
    }

    /// Returns stored runs if they belong to `cell` of this race in `world`: they have one of the seeds, the same
    /// scenario, and a run of each arm.
    pub fn restored(&self, world: &str, cell: &HarmCell, stored: &StoredHarm) -> Option<HarmRuns> {
        let same = stored.cell == cell.point.label
            && stored.world == world
            && stored.victim == cell.victim.name()
            && stored.scenario == cell.identity
            && self.seeds.contains(&stored.seed);
        let arms = self.arms().iter().map(|arm| stored.runs.get(&arm.to_string()).copied());
        let arms = arms.collect::<Option<_>>()?;
        Some(HarmRuns { alone: stored.alone, arms, slow: stored.slow }).filter(|_| same)
    }
}

/// Returns the senders under test with their start times: flows of unlimited size start in the first eighth
/// of the run, and flows of limited size start one after another over the whole run.
fn started(scenario: &Scenario) -> impl Iterator<Item = FlowSpec> {
    let Scenario { flows, duration, seed, .. } = scenario;
    let short = spread(flows.len(), *duration, *seed, SENDER_STARTS);
    flows.iter().zip(short).zip(0..).map(|((flow, short), number)| {
        let long = scaled(*duration / STARTS_SHARE, draw(*seed, SENDER_STARTS, number));
        FlowSpec { start: if flow.bytes.is_some() { short } else { long }, ..flow.clone() }
    })
}

impl HarmRun {
    fn of(victim: Victim, victims: &[FlowSpec], scenario: &Scenario, attempt: &Attempt) -> Self {
        let Some(outcome) = &attempt.outcome else { return Self::default() };
        let (harmed, senders) = outcome.flows.split_at(victims.len().min(outcome.flows.len()));
        let needed = senders.iter().map(|flow| segments(scenario, flow.bytes)).sum();
        let again: u64 = senders.iter().map(|flow| flow.retransmits).sum();
        let path = &outcome.path;
        // The path counts the packets of a relay and of the victims, which are kernel sockets.
        let of_victims = harmed.iter().map(|flow| segments(scenario, flow.bytes) + flow.retransmits).sum();
        let of_relay = || path.sent().saturating_sub(of_victims);
        Self {
            beside: victim.measured(victims, harmed, scenario.duration),
            sent: Some(if attempt.knows_retransmits { needed + again } else { of_relay() }),
            needed,
            offered: path.sent(),
            dropped: path.queue_drops + path.aqm_drops + path.policed,
        }
    }
}

impl HarmCell {
    fn new(experiment: &Experiment, lineup: &Lineup, number: usize, point: &Point, victim: Victim) -> Self {
        let point = raced(experiment, point);
        Self { identity: identity(&point, lineup), point, number, victim }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::cc::Algorithm;

    use super::*;
    use crate::race::{EMU, SIM};

    const CELLS: &str = "name = 'small'\nduration = '8s'\nrepeat = 3\nseed = 5\n\
                         [path]\nrate = '8mbit'\nrtt = '20ms'\n[[flow]]\ncc = 'bbr1'\n";

    fn planned(text: &str, arms: &str) -> Result<HarmPlan, ExperimentError> {
        let arms: Vec<Arm> = arms.split(',').map(|arm| arm.parse().expect("an arm")).collect();
        let experiment = Experiment::from_toml(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        HarmPlan::new(&experiment, &arms, arms[0], &Victim::ALL)
    }

    fn scenario(cell: &HarmCell, seed: u64) -> Scenario {
        Scenario { seed, ..cell.point.scenario.clone() }
    }

    /// Beside a bulk flow, each victim does worse than alone: a transfer is slower, the data of a stream
    /// arrives later, and downloads take longer. The same seed gives the same runs.
    #[test]
    fn a_bulk_flow_harms_every_victim() {
        let plan = planned(CELLS, "bbr1,cubic").expect("a plan");
        assert_eq!((plan.cells().len(), plan.seeds()), (5, &[5, 6, 7][..]));
        for cell in plan.cells() {
            let runs = plan.run(cell, &scenario(cell, 5));
            let alone = runs.alone.expect("a metric");
            for run in &runs.arms {
                let beside = run.beside.expect("a metric");
                let worse = if cell.victim.more_is_better() { beside < 0.95 * alone } else { beside > alone };
                assert!(worse, "{}: {alone} {beside}", cell.victim);
                assert!(
                    run.needed > 100 && run.sent >= Some(run.needed) && run.offered > run.dropped,
                    "{run:?}"
                );
            }
            if cell.victim == Victim::Web {
                assert_eq!(plan.run(cell, &scenario(cell, 5)), runs);
                assert_ne!(plan.run(cell, &scenario(cell, 6)).alone, runs.alone, "other start times");
            }
        }
    }

    /// The packets on the path minus those of the victims are the segments of the senders under test, except for packets
    /// without data and the two BDPs of 14 packets whose ACKs have not arrived at the end.
    #[test]
    fn segments_of_a_relay_are_counted_on_the_path() {
        let plan = planned(CELLS, "bbr1,cubic").expect("a plan");
        for cell in plan.cells() {
            let scenario = scenario(cell, 5);
            let relayed = |scenario: &Scenario| {
                let known = Attempt::from(sim::run(scenario));
                Ok::<_, Infallible>(Attempt { knows_retransmits: false, ..known })
            };
            let Ok(counted) = plan.run_in(cell, &scenario, relayed);
            for (counted, known) in counted.arms.iter().zip(plan.run(cell, &scenario).arms) {
                let (counted, known) = (counted.sent.expect("a run"), known.sent.expect("a run"));
                assert!(
                    counted.abs_diff(known) <= known / 100 + 2 * 14,
                    "{}: {counted} {known}",
                    cell.victim
                );
            }
        }
    }

    /// The data of a stream alone arrives after half the RTT, and downloads take at least three round trips.
    #[test]
    fn metrics_alone_are_those_of_the_path() {
        let plan = planned(CELLS, "bbr1,cubic").expect("a plan");
        let alone = |victim: Victim| {
            let cell = plan.cells().iter().find(|cell| cell.victim == victim).expect("a cell");
            plan.run(cell, &scenario(cell, 5)).alone.expect("a metric")
        };
        assert!((6.5e6..8e6).contains(&alone(Victim::Cubic)), "{}", alone(Victim::Cubic));
        assert!((0.010..0.013).contains(&alone(Victim::Stream)), "{}", alone(Victim::Stream));
        assert!((0.06..1.0).contains(&alone(Victim::Web)), "{}", alone(Victim::Web));
    }

    /// The initial window of an arm applies only to the senders under test, and not to the victim.
    #[test]
    fn arms_do_not_change_the_victim() {
        let many = CELLS
            .replace("cc = 'bbr1'", "cc = 'bbr1'\ncount = 4\nbytes = '60kB'\napp = { request = '200B' }");
        let plan = planned(&many, "cubic,cubic+iw").expect("a plan");
        let cell = &plan.cells()[0];
        let scenario = scenario(cell, 5);
        let starts: Vec<_> = started(&scenario).map(|flow| flow.start).collect();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
        assert!(starts[3] > Duration::from_secs(6) && starts[3] < Duration::from_secs(8), "{starts:?}");
        let runs = plan.run(cell, &scenario);
        assert_eq!(runs.arms[0].needed, 4 * 42);
        assert_ne!(runs.arms[0].beside, runs.arms[1].beside, "the window has an effect");
        let arm = plan.arms()[1];
        let settings = plan.lineup.settings(arm, &scenario);
        let flow = arm.applied_to_one(&FlowSpec::plain(Algorithm::Reno), &settings);
        assert_eq!((flow.cc, flow.initcwnd), (Algorithm::Cubic.into(), Some(44)));
    }

    /// A plan for the emulator has some of the cells, whose senders wait for a request. Runs of one world do not belong to
    /// the other.
    #[test]
    fn a_plan_for_another_world_has_other_scenarios() {
        let text = CELLS.replace("rtt = '20ms'", "rtt = ['20ms', '50ms']");
        let whole = planned(&text, "bbr1,surge").expect("a plan");
        let cells = [(Victim::Web, "rtt=50ms"), (Victim::Cubic, "rtt=20ms")];
        let plan = whole.clone().with_cells(&cells).expect("both exist");
        let plan = plan.with_duration(Duration::from_secs(3)).with_requests();
        let found: Vec<_> =
            plan.cells().iter().map(|cell| (cell.victim, cell.point.label.as_str())).collect();
        assert_eq!(found, cells);
        let cell = &plan.cells()[1];
        assert!(cell.point.scenario.flows.iter().all(|flow| flow.workload.request == Some(REQUEST)));
        let mut scenarios = Vec::new();
        let run = |scenario: &Scenario| {
            scenarios.push(scenario.clone());
            Ok::<_, String>(Attempt { outcome: None, repeated: 1, knows_retransmits: true })
        };
        let runs = plan.run_in(cell, &scenario(cell, 5), run).expect("runs");
        assert_eq!(runs.slow, SlowRuns { repeated: 3, late: 3 });
        assert_eq!((runs.alone, runs.arms[1]), (None, HarmRun::default()));
        let flows =
            |scenario: &Scenario| scenario.flows.iter().map(|flow| flow.cc.name()).collect::<Vec<_>>();
        let flows: Vec<_> = scenarios.iter().map(flows).collect();
        assert_eq!(flows, [vec!["cubic"], vec!["cubic", "bbr1"], vec!["cubic", "surge"]]);
        let stored = plan.stored(EMU, cell, 5, &runs);
        assert_eq!(plan.restored(EMU, cell, &stored), Some(runs));
        assert_eq!(plan.restored(SIM, cell, &stored), None);
        assert_eq!(whole.restored(EMU, &whole.cells()[0], &stored), None, "another duration");
        let error = whole.with_cells(&[(Victim::Web, "rtt=9ms")]).expect_err("no such point");
        assert_eq!(error.message, "the race has no point 'rtt=9ms'");
    }

    #[test]
    fn what_is_not_a_race_is_refused() {
        let error = planned(&CELLS.replace("repeat = 3\n", ""), "bbr1,cubic").expect_err("refused");
        assert!(error.message.starts_with("a race needs at least two pairs"), "{error}");
        let error = planned(CELLS, "bbr1,bbr1+web").expect_err("refused");
        assert_eq!(error.message, "there is no profile 'web'");
        let kernel = CELLS.replace("cc = 'bbr1'", "cc = 'bbr1'\nstack = 'kernel'");
        assert!(planned(&kernel, "bbr1,cubic").expect_err("refused").message.contains("kernel TCP stack"));
    }
}
