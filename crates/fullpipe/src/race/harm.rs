//! Runs a race that measures the harm that senders cause to other flows.

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;

use fullpipe_lab::campaign;
use fullpipe_lab::cost::RunCost;
use fullpipe_lab::race::{EMU, HarmCell, HarmPlan, HarmReport, HarmRuns, SIM, StoredHarm};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::victim::Victim;
use fullpipe_units::Duration;

use super::MissingSeeds;
use super::forecast::{Size, announce};
use super::store::{Relay, Store};
use crate::files::write_atomically;
use crate::{Datapath, Error, Observer, emu, json};

/// Experiment file with the 30 cells of a quick race for harm: six paths and five victims.
pub const HARM_QUICK: &str = include_str!("../../assets/race/harm.toml");
/// Experiment file with the 525 cells of a full race for harm.
pub const HARM_FULL: &str = include_str!("../../assets/race/harm-full.toml");

/// Number of seeds per cell, and duration of each run, in a race on the emulator. With two arms, the race then takes about
/// 35 minutes in real time.
pub const EMULATED_SEEDS: u64 = 5;
const EMULATED_DURATION: Duration = Duration::from_secs(30);

/// Cells of [`HARM_FULL`] that the emulator runs: drop-tail paths, with victims, rates, RTTs, queues and numbers of senders
/// that are combined as evenly as possible. Cells of different rates alternate, so that the concurrent ones use up the
/// limit on their total rate.
const EMULATED: [(Victim, &str); 24] = [
    (Victim::Cubic, "rate=10mbit rtt=100ms queue=4bdp count=4"),
    (Victim::Cubic, "rate=50mbit rtt=210ms queue=4bdp count=1"),
    (Victim::Cubic, "rate=100mbit rtt=210ms queue=1bdp count=4"),
    (Victim::Cubic, "rate=10mbit rtt=20ms queue=0.25bdp count=1"),
    (Victim::Cubic, "rate=50mbit rtt=50ms queue=0.25bdp count=4"),
    (Victim::Reno, "rate=10mbit rtt=50ms queue=4bdp count=1"),
    (Victim::Reno, "rate=100mbit rtt=20ms queue=1bdp count=4"),
    (Victim::Reno, "rate=50mbit rtt=100ms queue=0.25bdp count=1"),
    (Victim::Reno, "rate=10mbit rtt=20ms queue=0.25bdp count=4"),
    (Victim::Bbr1, "rate=100mbit rtt=210ms queue=0.25bdp count=1"),
    (Victim::Reno, "rate=50mbit rtt=210ms queue=4bdp count=4"),
    (Victim::Bbr1, "rate=10mbit rtt=50ms queue=1bdp count=4"),
    (Victim::Bbr1, "rate=10mbit rtt=20ms queue=4bdp count=1"),
    (Victim::Bbr1, "rate=50mbit rtt=50ms queue=0.25bdp count=4"),
    (Victim::Stream, "rate=100mbit rtt=50ms queue=4bdp count=1"),
    (Victim::Stream, "rate=10mbit rtt=100ms queue=1bdp count=4"),
    (Victim::Bbr1, "rate=50mbit rtt=100ms queue=1bdp count=1"),
    (Victim::Stream, "rate=10mbit rtt=210ms queue=0.25bdp count=4"),
    (Victim::Web, "rate=100mbit rtt=100ms queue=0.25bdp count=1"),
    (Victim::Stream, "rate=50mbit rtt=20ms queue=1bdp count=1"),
    (Victim::Web, "rate=10mbit rtt=50ms queue=1bdp count=1"),
    (Victim::Web, "rate=100mbit rtt=100ms queue=4bdp count=4"),
    (Victim::Web, "rate=50mbit rtt=20ms queue=4bdp count=4"),
    (Victim::Web, "rate=10mbit rtt=210ms queue=1bdp count=1"),
];

/// Name of the file with one line per cell and seed.
pub(super) const RUNS: &str = "harm.jsonl";
/// Name of the file with the results.
const RESULT: &str = "harm.json";

/// Runs the victim of each cell of `plan` alone and beside each arm in the simulator, unless `observer` stops
/// the race early. Before the first run, the observer receives the size of the race and the estimated time for the
/// seeds that are not stored. Its progress counts the seeds over all cells.
///
/// If there is a folder `out`, the runs of each cell and seed are appended to `harm.jsonl` in this folder as
/// soon as they are complete. Runs of the same plan that the file already contains are not made again, unless another
/// version of the program made them. The results are written to `harm.json`.
///
/// ```
/// use fullpipe::lab::experiment::Experiment;
/// use fullpipe::race::{Arm, HarmPlan, Victim, harm};
///
/// let experiment = Experiment::from_toml(
///     "name = 'small'\nduration = '8s'\nrepeat = 2\n[path]\nrate = '5mbit'\nrtt = '20ms'\n\
///      [[flow]]\ncc = 'bbr1'\n",
/// )
/// .map_err(fullpipe::Error::from)?;
/// let [bbr1, reno] = ["bbr1", "reno"].map(|arm| arm.parse::<Arm>().expect("an arm"));
/// let plan = HarmPlan::new(&experiment, &[bbr1, reno], bbr1, &[Victim::Cubic]).map_err(fullpipe::Error::from)?;
/// let report = harm(&plan, None, &())?;
/// let harm = report.cells[0].arm("reno").and_then(|arm| arm.harm).expect("harm");
/// assert!((0.1..0.9).contains(&harm.mean), "{harm:?}");
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if a run panics because of a defect, if a stored run is not readable, or if a file cannot
/// be written.
pub fn harm(plan: &HarmPlan, out: Option<&Path>, observer: &impl Observer) -> Result<HarmReport, Error> {
    let store = open(out)?;
    let report = simulated(plan, store.as_ref(), observer)?;
    finish(store, out, report)
}

/// Returns the 24 cells of [`HARM_FULL`] that `fullpipe race --harm --world emu` runs by default, with the duration of the
/// runs and with senders that the relay of `fullpipe accelerate` can serve. `plan` is a plan of [`HARM_FULL`]; cells whose
/// victim it does not contain are left out.
///
/// # Errors
/// Returns an error if `plan` is not a plan of [`HARM_FULL`].
pub fn emulated_cells(plan: HarmPlan) -> Result<HarmPlan, Error> {
    Ok(plan.with_cells(&EMULATED)?.with_duration(EMULATED_DURATION).with_requests())
}

/// Checks whether the emulator can run `plan`, and acquires the necessary privileges. The kernel sends for the victims and
/// for every arm that it has. For other arms, the relay of `fullpipe accelerate` sends, and a note to `observer` names
/// these arms. The function must be called before the process starts a thread.
///
/// ```no_run
/// use fullpipe::lab::experiment::Experiment;
/// use fullpipe::race::{self, Arm, HarmPlan, Victim};
///
/// let experiment = Experiment::from_toml(race::HARM_FULL).map_err(fullpipe::Error::from)?;
/// let [bbr1, surge] = ["bbr1", "surge"].map(|arm| arm.parse::<Arm>().expect("an arm"));
/// let experiment = experiment.with_repeat(race::EMULATED_SEEDS);
/// let plan = HarmPlan::new(&experiment, &[bbr1, surge], bbr1, &Victim::ALL).map_err(fullpipe::Error::from)?;
/// let plan = race::emulated_cells(plan)?;
/// let report = race::prepare_harm(&plan, &())?.run(None, &())?;
/// assert!(report.cells[0].arms[1].simulated.is_some());
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if this system is not Linux, if the process lacks the privileges, if a congestion control is part of
/// Linux but not of this kernel, or if the emulator cannot run a cell.
pub fn prepare_harm<'a>(plan: &'a HarmPlan, observer: &impl Observer) -> Result<EmulatedHarm<'a>, Error> {
    let points = plan.cells().iter().map(|cell| (&cell.point, Datapath::Plain));
    emu::prepare(points, observer)?;
    let own = emu::check_harm(plan, observer)?;
    Ok(EmulatedHarm { plan, own })
}

/// A race for harm that [`prepare_harm`] has checked and prepared for the emulator.
#[derive(Clone, Debug)]
pub struct EmulatedHarm<'a> {
    plan: &'a HarmPlan,
    own: emu::OwnArms,
}

impl EmulatedHarm<'_> {
    /// Runs the race in the simulator and then on emulated paths, unless `observer` stops the race early. The report is
    /// that of the emulator, with the simulated excess of each cell beside it. The folder `out` has the same meaning as
    /// for [`harm`]; each run is stored with its world.
    ///
    /// Several cells are concurrent, on separate paths. If the machine did not keep up with a run, the run is repeated
    /// once.
    ///
    /// # Errors
    /// Returns an error if a run fails, if a stored run is not readable, or if a file cannot be written.
    pub fn run(self, out: Option<&Path>, observer: &impl Observer) -> Result<HarmReport, Error> {
        let Self { plan, own } = self;
        let store = open(out)?;
        let simulated = simulated(plan, store.as_ref(), observer)?;
        let emulated = complete(plan, EMU, store.as_ref(), observer, |missing, relay| {
            if !missing.is_empty() {
                let seconds = emu::expected_harm_time(plan, missing).as_secs_f64();
                observer.status(&format!("on emulated paths: takes about {seconds:.0} s in real time"));
            }
            emu::harm_runs(plan, &own, missing, relay)
        })?;
        finish(store, out, emulated.with_simulated(&simulated))
    }
}

type HarmStore = Store<StoredHarm>;

fn open(out: Option<&Path>) -> Result<Option<HarmStore>, Error> {
    out.map(|dir| Store::open(dir, RUNS)).transpose()
}

/// Writes the results to the folder `out`, if there is one.
fn finish(store: Option<HarmStore>, out: Option<&Path>, report: HarmReport) -> Result<HarmReport, Error> {
    if let Some(store) = store {
        store.finish()?;
    }
    if let Some(dir) = out {
        write_atomically(dir, RESULT, json::document(&report)?)?;
    }
    Ok(report)
}

/// Makes the runs of `plan` in the simulator that are not stored, after an announcement of their number.
fn simulated(
    plan: &HarmPlan,
    store: Option<&HarmStore>,
    observer: &impl Observer,
) -> Result<HarmReport, Error> {
    complete(plan, SIM, store, observer, |missing, relay| {
        let to_make = missing.iter().map(|missing| missing.seeds.len()).sum::<usize>();
        let (cells, runs) = (plan.cells().len(), plan.runs());
        let cost = |MissingSeeds { cell, seeds }: &MissingSeeds| {
            plan.seed_cost(&plan.cells()[*cell]).packets() * seeds.len() as f64
        };
        let size = Size { cells, runs, unit: "seed", stored: runs - to_make };
        announce(observer, size, RunCost::sum(missing.iter().map(cost)));
        let mut made = Vec::new();
        for MissingSeeds { cell: number, seeds } in missing {
            let cell = &plan.cells()[*number];
            let runner =
                |scenario: &Scenario| plan.stored(SIM, cell, scenario.seed, &plan.run(cell, scenario));
            let runs = campaign::run(slice::from_ref(&cell.point), seeds, runner, relay)?;
            made.extend(runs.into_iter().map(|run| (*number, run.value)));
        }
        Ok(made)
    })
}

/// Makes those runs of `plan` in `world` that are not stored, and returns the results of all runs. `make` makes the
/// missing runs, and returns those of each seed with the number of its cell.
fn complete<O: Observer>(
    plan: &HarmPlan,
    world: &str,
    store: Option<&HarmStore>,
    observer: &O,
    make: impl FnOnce(&[MissingSeeds], &Relay<'_, O, StoredHarm>) -> Result<Vec<(usize, StoredHarm)>, Error>,
) -> Result<HarmReport, Error> {
    let stored = |cell: &HarmCell| -> BTreeMap<u64, HarmRuns> {
        let kept = store.into_iter().flat_map(Store::kept);
        kept.filter_map(|stored| Some((stored.seed, plan.restored(world, cell, stored)?))).collect()
    };
    let mut made: Vec<BTreeMap<u64, HarmRuns>> = plan.cells().iter().map(stored).collect();
    let missing = made.iter().enumerate().map(|(cell, made)| {
        let seeds = plan.seeds().iter().copied().filter(|seed| !made.contains_key(seed));
        MissingSeeds { cell, seeds: seeds.collect() }
    });
    let missing: Vec<MissingSeeds> = missing.filter(|missing| !missing.seeds.is_empty()).collect();
    if let Some(store) = store {
        store.note_foreign(observer, |stored| {
            missing.iter().any(|MissingSeeds { cell, seeds }| {
                seeds.contains(&stored.seed) && plan.restored(world, &plan.cells()[*cell], stored).is_some()
            })
        });
    }
    let done = made.iter().map(BTreeMap::len).sum();
    let relay = Relay::new(observer, store, done, plan.runs());
    for (number, stored) in make(&missing, &relay)? {
        if let Some(runs) = plan.restored(world, &plan.cells()[number], &stored) {
            made[number].insert(stored.seed, runs);
        }
    }
    let cells: Vec<Vec<HarmRuns>> = made.into_iter().map(|made| made.into_values().collect()).collect();
    Ok(HarmReport::new(plan, world, &cells))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fullpipe_lab::experiment::Experiment;

    use super::*;
    use crate::race::Arm;

    /// The emulated cells are cells of the full grid with drop-tail queues: each victim with every queue and both numbers
    /// of senders.
    #[test]
    fn emulated_cells_cover_the_grid() {
        let experiment = Experiment::from_toml(HARM_FULL).expect("valid").with_repeat(EMULATED_SEEDS);
        let arms: Vec<Arm> = ["bbr1", "surge"].map(|arm| arm.parse().expect("an arm")).into();
        let plan = HarmPlan::new(&experiment, &arms, arms[0], &Victim::ALL).expect("a plan");
        let plan = emulated_cells(plan).expect("cells of the grid");
        let cells: BTreeSet<_> =
            plan.cells().iter().map(|cell| (cell.victim.name(), cell.point.label.as_str())).collect();
        assert_eq!((cells.len(), plan.runs()), (24, 120));
        for victim in Victim::ALL {
            for part in
                ["queue=0.25bdp", "queue=1bdp", "queue=4bdp", "count=1", "count=4", "=10mbit", "=50mbit"]
            {
                let is_named = |(name, label): &(&str, &str)| *name == victim.name() && label.contains(part);
                assert!(cells.iter().any(is_named), "{victim} {part}");
            }
        }
    }

    #[test]
    fn both_races_for_harm_are_valid() {
        for (text, cells) in [(HARM_QUICK, 30), (HARM_FULL, 525)] {
            let experiment = Experiment::from_toml(text).expect("valid");
            experiment.check_size().expect("within the limits");
            experiment.clone().with_repeat(1_000).check_runs().expect("within the limits");
            let arms: Vec<Arm> = ["bbr1", "surge"].map(|arm| arm.parse().expect("an arm")).into();
            let plan = HarmPlan::new(&experiment, &arms, arms[0], &Victim::ALL).expect("a plan");
            assert_eq!((plan.cells().len(), plan.bounds().len()), (cells, 1), "{}", plan.name());
        }
    }
}
