//! Runs a race that measures the harm that senders cause to other flows.

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use fullpipe_lab::campaign::{self, Progress, RunResult, Watch};
use fullpipe_lab::race::{HarmPlan, HarmReport, HarmRuns, SIM};
use fullpipe_lab::scenario::Scenario;

use crate::{Error, Observer};

/// Experiment file with the 30 cells of a quick race for harm: six paths and five victims.
pub const HARM_QUICK: &str = include_str!("../../assets/race/harm.toml");
/// Experiment file with the 510 cells of a full race for harm.
pub const HARM_FULL: &str = include_str!("../../assets/race/harm-full.toml");

/// Runs the victim of each cell of `plan` alone and beside each arm in the simulator, unless `observer` stops
/// the race early. The observer's progress counts the seeds over all cells.
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
/// let report = harm(&plan, &())?;
/// let harm = report.cells[0].arm("reno").and_then(|arm| arm.harm).expect("harm");
/// assert!((0.1..0.9).contains(&harm.mean), "{harm:?}");
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if a run panics because of a defect.
pub fn harm(plan: &HarmPlan, observer: &impl Observer) -> Result<HarmReport, Error> {
    let total = plan.cells().len() * plan.seeds().len();
    let relay = SeedRelay { observer, done: AtomicUsize::new(0), total };
    observer.progress(Progress { done: 0, total });
    let mut cells = Vec::new();
    for cell in plan.cells() {
        let runner = |scenario: &Scenario| plan.run(cell, scenario);
        let runs = campaign::run(slice::from_ref(&cell.point), plan.seeds(), runner, &relay)?;
        cells.push(runs.into_iter().map(|run| run.value).collect());
    }
    Ok(HarmReport::new(plan, SIM, &cells))
}

/// Forwards the progress of a race to an [`Observer`].
struct SeedRelay<'a, O> {
    observer: &'a O,
    /// Number of seeds that are complete, over all cells.
    done: AtomicUsize,
    /// Total number of seeds over all cells.
    total: usize,
}

impl<O: Observer> Watch<HarmRuns> for &SeedRelay<'_, O> {
    fn goes_on(&self) -> bool {
        self.observer.goes_on()
    }

    fn abandons(&self) -> bool {
        self.observer.abandons()
    }

    fn finished(&self, _: Progress, _: &RunResult<HarmRuns>) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.observer.progress(Progress { done, total: self.total });
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::experiment::Experiment;
    use fullpipe_lab::victim::Victim;

    use super::*;
    use crate::race::Arm;

    #[test]
    fn both_races_for_harm_are_valid() {
        for (text, cells) in [(HARM_QUICK, 30), (HARM_FULL, 510)] {
            let experiment = Experiment::from_toml(text).expect("valid");
            experiment.check_size().expect("within the limits");
            let arms: Vec<Arm> = ["bbr1", "surge"].map(|arm| arm.parse().expect("an arm")).into();
            let plan = HarmPlan::new(&experiment, &arms, arms[0], &Victim::ALL).expect("a plan");
            assert_eq!((plan.cells().len(), plan.bounds().len()), (cells, 1), "{}", plan.name());
        }
    }
}
