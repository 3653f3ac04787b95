//! Compares senders by the times of downloads, in pairs of simulated runs with identical losses.
//!
//! ```text
//!   QUICK, FULL or a file ─► Experiment ─► RacePlan ─► race ─► RaceReport ─► RaceTable
//!                                                       │
//!                                                       └─► race.jsonl: one line per pair
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, PoisonError};

use fullpipe_lab::campaign::{self, Progress, RunResult, Watch};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::race::Cell;
use fullpipe_lab::scenario::Scenario;

pub use fullpipe_lab::arm::{Arm, LAUNCH_WINDOW, UnknownArm};
pub use fullpipe_lab::race::{Pair, RacePlan, RaceReport, RaceTable};

use crate::files::{cannot_write, write_atomically};
use crate::{Error, Observer, json, run};

/// Experiment file with the 24 cells of a quick race.
pub const QUICK: &str = include_str!("../assets/race/quick.toml");
/// Experiment file with the 60 cells of a full race.
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

/// Runs all pairs of `plan` in the simulator, unless `observer` stops the race early. The observer's progress
/// counts pairs.
///
/// With the folder `out`, each pair is appended to `race.jsonl` there as soon as it is complete. Pairs of the
/// same plan that the file already contains are not run again. The results are written to `race.json`.
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
    let store = out.map(Store::open).transpose()?;
    let mut done = 0;
    let mut cells: Vec<Vec<Pair>> = Vec::new();
    for cell in plan.cells() {
        let mut pairs = store.as_ref().map_or_else(BTreeMap::new, |store| store.of(plan, cell));
        let missing: Vec<u64> = cell.seeds.iter().copied().filter(|seed| !pairs.contains_key(seed)).collect();
        done += pairs.len();
        observer.progress(Progress { done, total: plan.pairs() });
        if !missing.is_empty() {
            let relay = PairRelay { observer, store: store.as_ref(), before: done, total: plan.pairs() };
            let runner = |scenario: &Scenario| plan.run_pair(cell, scenario);
            let made = campaign::run(slice::from_ref(&cell.point), &missing, runner, &relay)?;
            done += made.len();
            pairs.extend(made.into_iter().map(|run| (run.seed, run.value)));
        }
        cells.push(cell.seeds.iter().filter_map(|seed| pairs.remove(seed)).collect());
    }
    if let Some(store) = store {
        store.finish()?;
    }
    let report = RaceReport::new(plan, "sim", &cells);
    if let Some(dir) = out {
        write_atomically(dir, RESULT, json::document(&report)?)?;
    }
    Ok(report)
}

/// Forwards the progress of one cell to an [`Observer`], and stores its pairs.
struct PairRelay<'a, O> {
    observer: &'a O,
    store: Option<&'a Store>,
    /// Number of pairs that were complete before the first of these runs.
    before: usize,
    /// Number of pairs of the race.
    total: usize,
}

impl<O: Observer> Watch<Pair> for &PairRelay<'_, O> {
    fn goes_on(&self) -> bool {
        // Without a place for the pairs, further runs would be lost.
        self.observer.goes_on() && self.store.is_none_or(Store::is_writable)
    }

    fn abandons(&self) -> bool {
        self.observer.abandons()
    }

    fn finished(&self, progress: Progress, run: &RunResult<Pair>) {
        if let Some(store) = self.store {
            store.add(&run.value);
        }
        self.observer.progress(Progress { done: self.before + progress.done, total: self.total });
    }
}

/// File with one JSON line per pair. A race that is killed loses at most the pairs in progress.
struct Store {
    path: PathBuf,
    /// Pairs that the file contained when it was opened.
    kept: Vec<Pair>,
    /// File, or the first error that occurred.
    file: Mutex<Result<File, Error>>,
}

impl Store {
    fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(PAIRS);
        let refused = |e: &io::Error| cannot_write(&path, e, "choose a folder that you may write to");
        fs::create_dir_all(dir).map_err(|e| refused(&e))?;
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(|e| unreadable(&path, &e))?,
        };
        // A process that was killed may have left a part of a line at the end.
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        let pair = |(number, line): (usize, &str)| {
            serde_json::from_str::<Pair>(line)
                .map_err(|e| unreadable(&path, &format_args!("line {}: {e}", number + 1)))
        };
        let kept: Vec<Pair> = text[..complete].lines().enumerate().map(pair).collect::<Result<_, Error>>()?;
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(|e| refused(&e))?;
        file.set_len(complete as u64).map_err(|e| refused(&e))?;
        Ok(Self { path, kept, file: Mutex::new(Ok(file)) })
    }

    /// Returns the stored pairs of `cell` in the race `plan`, by seed.
    fn of(&self, plan: &RacePlan, cell: &Cell) -> BTreeMap<u64, Pair> {
        let pairs = self.kept.iter().filter(|pair| plan.accepts(cell, pair));
        pairs.map(|pair| (pair.seed, pair.clone())).collect()
    }

    fn add(&self, pair: &Pair) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(open) = &mut *file else { return };
        let written = json::line(pair).and_then(|line| {
            let written = open.write_all(line.as_bytes());
            written.map_err(|e| cannot_write(&self.path, &e, "choose a folder that you may write to"))
        });
        if let Err(error) = written {
            *file = Err(error);
        }
    }

    fn is_writable(&self) -> bool {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).is_ok()
    }

    /// Returns the first error that occurred.
    fn finish(self) -> Result<(), Error> {
        self.file.into_inner().unwrap_or_else(PoisonError::into_inner).map(drop)
    }
}

fn unreadable(path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::new(
        format!("cannot read {}: {problem}", path.display()),
        "remove this file, or choose another folder with --out",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_races_of_the_program_are_valid() {
        for (text, cells, pairs) in [(QUICK, 24, 7_500), (FULL, 60, 16_670)] {
            let experiment = Experiment::from_toml(text).expect("valid");
            let [cubic, bbr1, iw] =
                ["cubic", "bbr1", "bbr1+iw"].map(|arm| arm.parse::<Arm>().expect("an arm"));
            let plan = RacePlan::new(&experiment, &[cubic, bbr1, iw], bbr1).expect("a plan");
            assert_eq!((plan.cells().len(), plan.pairs()), (cells, pairs), "{}", plan.name());
        }
    }
}
