//! Compares senders by their download times, in pairs of runs with identical losses.
//!
//! ```text
//!   QUICK, FULL or a file ─► Experiment ─► RacePlan ─┬─► race: simulator ─────────┬─► RaceReport
//!                                                    └─► EmulatedRace: kernel TCP ┤
//!                                                                                 └─► race.jsonl: pairs
//! ```

mod forecast;
mod harm;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;

use fullpipe_lab::campaign;
use fullpipe_lab::cost::RunCost;
use fullpipe_lab::experiment::{self, Experiment};
use fullpipe_lab::profile::Profiles;
use fullpipe_lab::race::{Cell, EMU, SIM};
use fullpipe_lab::scenario::Scenario;

pub use fullpipe_lab::arm::{Arm, LAUNCH_WINDOW, UnknownArm};
pub use fullpipe_lab::race::{HarmPlan, HarmReport, HarmTable, Pair, RacePlan, RaceReport, RaceTable};
pub use fullpipe_lab::victim::{UnknownVictim, Victim};
pub use harm::{EMULATED_SEEDS, EmulatedHarm, HARM_FULL, HARM_QUICK, emulated_cells, harm, prepare_harm};
pub(crate) use store::Relay;

use self::forecast::{Size, announce};
use self::store::Store;
use crate::files::write_atomically;
use crate::{Datapath, Error, Observer, emu, json, run};

/// Experiment file with the 24 cells of a quick race.
pub const QUICK: &str = include_str!("../assets/race/quick.toml");
/// Experiment file with the 68 cells of a full race. Eight of them have several connections.
pub const FULL: &str = include_str!("../assets/race/full.toml");

/// Name of the file with one line per pair.
const PAIRS: &str = "race.jsonl";
/// Name of the file with the results.
const RESULT: &str = "race.json";

/// Reads an experiment whose points are the cells of a race.
///
/// # Errors
/// Returns an error if the file cannot be read or does not contain a valid experiment.
pub fn read(path: &Path) -> Result<Experiment, Error> {
    run::read_hinting(path, "pass an experiment file with downloads; without --paths, a race has 24 cells")
}

/// Reads a file with profiles for the arms of a race.
///
/// # Errors
/// Returns an error if the file cannot be read, or if one of its profiles is invalid.
pub fn read_profiles(path: &Path) -> Result<Profiles, Error> {
    let file = path.display();
    let text = run::read_at_most(run::LARGEST_EXPERIMENT, path).map_err(|e| {
        Error::new(format!("cannot read {file}: {e}"), "pass a file with tables [profile.NAME]")
    })?;
    experiment::read_profiles(&text).map_err(|e| Error::from(e).about(file))
}

/// Runs all pairs of `plan` in the simulator, unless `observer` stops the race early. Before the first run, the
/// observer receives the size of the race and the estimated time for the pairs that are not stored. Its progress
/// counts pairs.
///
/// If there is a folder `out`, each pair is appended to `race.jsonl` in this folder as soon as it is
/// complete. Pairs of the same plan that the file already contains are not run again, unless another version of the
/// program made them. The results are written to `race.json`.
///
/// ```
/// use fullpipe::lab::experiment::Experiment;
/// use fullpipe::race::{Arm, RacePlan, race};
///
/// let experiment = Experiment::from_toml(
///     "name = 'small'\nduration = '10s'\nrepeat = 2\n[path]\nrate = '20mbit'\nrtt = '50ms'\n\
///      [[flow]]\ncc = 'bbr1'\nbytes = '60kB'\napp = { request = '200B' }\n",
/// )
/// .map_err(fullpipe::Error::from)?;
/// let [bbr1, iw] = ["bbr1", "bbr1+iw"].map(|arm| arm.parse::<Arm>().expect("an arm"));
/// let plan = RacePlan::new(&experiment, &[bbr1, iw], bbr1).map_err(fullpipe::Error::from)?;
/// let report = race(&plan, None, &())?;
/// let ratio = report.cells[0].arm("bbr1+iw").and_then(|arm| arm.ratio).expect("a ratio");
/// assert!(ratio.low > 1.2, "{ratio:?}");
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if a run panics because of a defect, if a stored pair is not readable, or if a file
/// cannot be written.
pub fn race(plan: &RacePlan, out: Option<&Path>, observer: &impl Observer) -> Result<RaceReport, Error> {
    complete(plan, SIM, out, observer, |missing, relay| {
        let to_make: usize = missing.iter().map(|missing| missing.seeds.len()).sum();
        let (cells, runs) = (plan.cells().len(), plan.pairs());
        let cost = |missing: &MissingSeeds| plan.cost(&plan.cells()[missing.cell], &missing.seeds).packets();
        let size = Size { cells, runs, unit: "pair", stored: runs - to_make };
        announce(observer, size, RunCost::sum(missing.iter().map(cost)));
        let mut made = Vec::new();
        for MissingSeeds { cell: number, seeds } in missing {
            let cell = &plan.cells()[*number];
            let runner = |scenario: &Scenario| plan.run_pair(cell, scenario);
            let runs = campaign::run(slice::from_ref(&cell.point), seeds, runner, relay)?;
            made.extend(runs.into_iter().map(|run| (*number, run.value)));
        }
        Ok(made)
    })
}

/// Checks whether the emulator can run `plan`, and acquires the necessary privileges. The kernel sends for every arm
/// that it supports. For other arms, fullpipe's TCP sends, and a note to `observer` names these arms. The function must
/// be called before the process starts a thread.
///
/// ```no_run
/// use fullpipe::lab::experiment::Experiment;
/// use fullpipe::race::{self, Arm, RacePlan};
///
/// let experiment = Experiment::from_toml(race::QUICK).map_err(fullpipe::Error::from)?;
/// let [bbr1, iw] = ["bbr1", "bbr1+iw"].map(|arm| arm.parse::<Arm>().expect("an arm"));
/// let plan = RacePlan::new(&experiment, &[bbr1, iw], bbr1).map_err(fullpipe::Error::from)?;
/// let report = race::prepare(&plan, &())?.run(None, &())?;
/// assert_eq!(report.world, "emu");
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if this system is not Linux, if the process lacks the privileges, if the congestion control of an
/// arm is part of Linux but not of this kernel, or if the emulator cannot run a cell.
pub fn prepare<'a>(plan: &'a RacePlan, observer: &impl Observer) -> Result<EmulatedRace<'a>, Error> {
    let points = plan.cells().iter().map(|cell| (&cell.point, Datapath::Plain));
    emu::prepare(points, observer)?;
    let own = emu::check_arms(plan, observer)?;
    Ok(EmulatedRace { plan, own })
}

/// A race that [`prepare`] has checked and prepared for the emulator.
#[derive(Clone, Debug)]
pub struct EmulatedRace<'a> {
    plan: &'a RacePlan,
    own: emu::OwnArms,
}

impl EmulatedRace<'_> {
    /// Runs all pairs of the race on emulated paths, unless `observer` stops the race early. The clients are kernel
    /// sockets. The folder `out` has the same meaning as for [`race`].
    ///
    /// Several downloads are concurrent, on separate paths. If the machine did not keep up with a download,
    /// the download is repeated at most twice.
    ///
    /// # Errors
    /// Returns an error if a run fails, if a stored pair is not readable, or if a file cannot be written.
    pub fn run(self, out: Option<&Path>, observer: &impl Observer) -> Result<RaceReport, Error> {
        complete(self.plan, EMU, out, observer, |missing, relay| {
            emu::pairs(self.plan, &self.own, missing, relay)
        })
    }
}

/// Pairs or runs of one cell that are not stored yet.
#[derive(Debug)]
pub(crate) struct MissingSeeds {
    /// Number of the cell in the plan.
    pub(crate) cell: usize,
    /// Seeds of the pairs or runs; not empty.
    pub(crate) seeds: Vec<u64>,
}

/// Runs those pairs of `plan` that are not stored in the folder `out`, and writes the results to this folder.
/// `make` runs the missing pairs in `world`, and returns each pair with the number of its cell.
fn complete<O: Observer>(
    plan: &RacePlan,
    world: &str,
    out: Option<&Path>,
    observer: &O,
    make: impl FnOnce(&[MissingSeeds], &Relay<'_, O, Pair>) -> Result<Vec<(usize, Pair)>, Error>,
) -> Result<RaceReport, Error> {
    let store = out.map(|dir| Store::open(dir, PAIRS)).transpose()?;
    let stored = |cell: &Cell| -> BTreeMap<u64, Pair> {
        let kept = store.iter().flat_map(Store::kept).filter(|pair| plan.accepts(world, cell, pair));
        kept.map(|pair| (pair.seed, pair.clone())).collect()
    };
    let mut pairs: Vec<BTreeMap<u64, Pair>> = plan.cells().iter().map(stored).collect();
    let missing = plan.cells().iter().zip(&pairs).enumerate().map(|(number, (cell, pairs))| {
        let seeds = cell.seeds.iter().copied().filter(|seed| !pairs.contains_key(seed));
        MissingSeeds { cell: number, seeds: seeds.collect() }
    });
    let missing: Vec<MissingSeeds> = missing.filter(|missing| !missing.seeds.is_empty()).collect();
    if let Some(store) = &store {
        store.note_foreign(observer, |pair| {
            let is_of = |missing: &MissingSeeds| {
                missing.seeds.contains(&pair.seed) && plan.accepts(world, &plan.cells()[missing.cell], pair)
            };
            missing.iter().any(is_of)
        });
    }
    let done = pairs.iter().map(BTreeMap::len).sum();
    let relay = Relay::new(observer, store.as_ref(), done, plan.pairs());
    for (cell, pair) in make(&missing, &relay)? {
        pairs[cell].insert(pair.seed, pair);
    }
    if let Some(store) = store {
        store.finish()?;
    }
    let in_order = |(cell, mut pairs): (&Cell, BTreeMap<u64, Pair>)| -> Vec<Pair> {
        cell.seeds.iter().filter_map(|seed| pairs.remove(seed)).collect()
    };
    let cells: Vec<Vec<Pair>> = plan.cells().iter().zip(pairs).map(in_order).collect();
    let report = RaceReport::new(plan, world, &cells);
    if let Some(dir) = out {
        write_atomically(dir, RESULT, json::document(&report)?)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use fullpipe_lab::race::{ArmRun, HarmRun, HarmRuns, SlowRuns};

    use super::*;

    #[test]
    fn both_races_of_the_program_are_valid() {
        for (text, cells, pairs) in [(QUICK, 24, 7_500), (FULL, 68, 17_090)] {
            let experiment = Experiment::from_toml(text).expect("valid");
            let [cubic, bbr1, iw] =
                ["cubic", "bbr1", "bbr1+iw"].map(|arm| arm.parse::<Arm>().expect("an arm"));
            let plan = RacePlan::new(&experiment, &[cubic, bbr1, iw], bbr1).expect("a plan");
            assert_eq!((plan.cells().len(), plan.pairs()), (cells, pairs), "{}", plan.name());
        }
    }

    /// Observer that keeps the announcement of a race, and starts no run.
    #[derive(Default)]
    struct Announced(Mutex<String>);

    impl Observer for Announced {
        fn goes_on(&self) -> bool {
            false
        }

        fn status(&self, text: &str) {
            text.clone_into(&mut self.0.lock().expect("not poisoned"));
        }
    }

    /// Returns the estimated seconds in an announcement.
    fn seconds(announced: &str) -> f64 {
        let (_, time) = announced.split_once("takes about ").expect("a time");
        time.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("seconds")
    }

    /// If one of 500 pairs is missing, the race announces the time of one pair.
    #[test]
    fn the_announced_time_is_that_of_the_missing_runs() {
        let dir = std::env::temp_dir().join(format!("fullpipe-announced-{}", std::process::id()));
        let text = "name = 'long'\nduration = '1000s'\nrepeat = 500\n\
                    [path]\nrate = '50mbit'\nrtt = '50ms'\nloss = '1%'\n[[flow]]\ncc = 'bbr1'\n";
        let arms: Vec<Arm> = ["bbr1", "surge"].map(|arm| arm.parse().expect("an arm")).into();
        let announced = |race: &dyn Fn(&Announced) -> Result<(), Error>| {
            let observer = Announced::default();
            race(&observer).expect("a report");
            observer.0.into_inner().expect("not poisoned")
        };

        let download = format!("{text}bytes = '64MB'\napp = {{ request = '200B' }}\n");
        let experiment = Experiment::from_toml(&download).expect("valid");
        let plan = RacePlan::new(&experiment, &arms, arms[0]).expect("a plan");
        let times = |out: &Path| announced(&|observer| race(&plan, Some(out), observer).map(drop));
        let whole = times(&dir.join("none"));
        let cell = &plan.cells()[0];
        let store = Store::open(&dir, PAIRS).expect("a file");
        for &seed in &cell.seeds[1..] {
            let scenario = Scenario { seed, ..cell.point.scenario.clone() };
            let made = |_: &Scenario| Ok::<_, Error>(ArmRun::default());
            store.add(&plan.run_pair_in(SIM, cell, &scenario, made).expect("a pair"));
        }
        let rest = times(&dir);
        assert!(whole.starts_with("1 cell, 500 pairs; takes about "), "{whole}");
        assert!(rest.starts_with("1 cell, 500 pairs, 499 of which are stored; takes about "), "{rest}");
        assert!(seconds(&rest) < seconds(&whole) / 10.0, "{rest}; {whole}");

        let experiment = Experiment::from_toml(text).expect("valid");
        let plan = HarmPlan::new(&experiment, &arms, arms[0], &[Victim::Cubic]).expect("a plan");
        let times = |out: &Path| announced(&|observer| harm(&plan, Some(out), observer).map(drop));
        let whole = times(&dir.join("none"));
        let cell = &plan.cells()[0];
        let store = Store::open(&dir, harm::RUNS).expect("a file");
        let runs = HarmRuns { alone: None, arms: vec![HarmRun::default(); 2], slow: SlowRuns::default() };
        plan.seeds()[1..].iter().for_each(|&seed| store.add(&plan.stored(SIM, cell, seed, &runs)));
        let rest = times(&dir);
        assert!(rest.starts_with("1 cell, 500 seeds, 499 of which are stored; takes about "), "{rest}");
        assert!(seconds(&rest) < seconds(&whole) / 10.0, "{rest}; {whole}");
        std::fs::remove_dir_all(&dir).expect("a folder");
    }
}
