//! Runs a race that measures the harm that senders cause to other flows.

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;

use fullpipe_lab::campaign;
use fullpipe_lab::cost::RunCost;
use fullpipe_lab::race::{HarmCell, HarmPlan, HarmReport, HarmRuns, SIM, StoredHarm};
use fullpipe_lab::scenario::Scenario;

use super::forecast::{Size, announce};
use super::store::{Relay, Store};
use crate::files::write_atomically;
use crate::{Error, Observer, json};

/// Experiment file with the 30 cells of a quick race for harm: six paths and five victims.
pub const HARM_QUICK: &str = include_str!("../../assets/race/harm.toml");
/// Experiment file with the 525 cells of a full race for harm.
pub const HARM_FULL: &str = include_str!("../../assets/race/harm-full.toml");

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
    let store: Option<Store<StoredHarm>> = out.map(|dir| Store::open(dir, RUNS)).transpose()?;
    let stored = |cell: &HarmCell| -> BTreeMap<u64, HarmRuns> {
        let kept = store.iter().flat_map(Store::kept);
        kept.filter_map(|stored| Some((stored.seed, plan.restored(cell, stored)?))).collect()
    };
    let missing_seeds = |(_, made): (&HarmCell, &BTreeMap<u64, HarmRuns>)| -> Vec<u64> {
        plan.seeds().iter().copied().filter(|seed| !made.contains_key(seed)).collect()
    };
    let mut made: Vec<BTreeMap<u64, HarmRuns>> = plan.cells().iter().map(stored).collect();
    let missing: Vec<Vec<u64>> = plan.cells().iter().zip(&made).map(missing_seeds).collect();
    if let Some(store) = &store {
        store.note_foreign(observer, |stored| {
            let mut cells = plan.cells().iter().zip(&missing);
            cells.any(|(cell, seeds)| seeds.contains(&stored.seed) && plan.restored(cell, stored).is_some())
        });
    }
    let (cells, runs) = (plan.cells().len(), plan.runs());
    let stored = runs - missing.iter().map(Vec::len).sum::<usize>();
    let cost =
        |(cell, missing): (&HarmCell, &Vec<u64>)| plan.seed_cost(cell).packets() * missing.len() as f64;
    let cost = RunCost::sum(plan.cells().iter().zip(&missing).map(cost));
    announce(observer, Size { cells, runs, unit: "seed", stored }, cost);
    let relay = Relay::new(observer, store.as_ref(), stored, runs);
    for ((cell, missing), made) in plan.cells().iter().zip(&missing).zip(&mut made) {
        let runner = |scenario: &Scenario| plan.stored(cell, scenario.seed, &plan.run(cell, scenario));
        let runs = campaign::run(slice::from_ref(&cell.point), missing, runner, &relay)?;
        made.extend(runs.iter().filter_map(|run| Some((run.value.seed, plan.restored(cell, &run.value)?))));
    }
    if let Some(store) = store {
        store.finish()?;
    }
    let cells: Vec<Vec<HarmRuns>> = made.into_iter().map(|made| made.into_values().collect()).collect();
    let report = HarmReport::new(plan, SIM, &cells);
    if let Some(dir) = out {
        write_atomically(dir, RESULT, json::document(&report)?)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::experiment::Experiment;
    use fullpipe_lab::victim::Victim;

    use super::*;
    use crate::race::Arm;

    #[test]
    fn both_races_for_harm_are_valid() {
        for (text, cells) in [(HARM_QUICK, 30), (HARM_FULL, 525)] {
            let experiment = Experiment::from_toml(text).expect("valid");
            experiment.check_size().expect("within the limits");
            let arms: Vec<Arm> = ["bbr1", "surge"].map(|arm| arm.parse().expect("an arm")).into();
            let plan = HarmPlan::new(&experiment, &arms, arms[0], &Victim::ALL).expect("a plan");
            assert_eq!((plan.cells().len(), plan.bounds().len()), (cells, 1), "{}", plan.name());
        }
    }
}
