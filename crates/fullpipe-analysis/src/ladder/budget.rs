//! Budget of a ladder: the work that all of its runs together may take.
//!
//! The work of a run is estimated before the run starts ([`RunCost`]) and never timed, so the same input
//! gives the same ladder on every machine.

use fullpipe_lab::campaign::{Job, RunPanicked};
use fullpipe_lab::cost::RunCost;

/// Data packets that the simulator handles per second on two cores: the medians in `BENCHMARKS.md` are about
/// six million packets per core.
const PACKETS_PER_SECOND: u64 = 12_000_000;
/// Budget for an interactive answer: about ten seconds on two cores.
pub(crate) const INTERACTIVE: u64 = 10 * PACKETS_PER_SECOND;

/// Returns the approximate time that work takes on two cores, in whole seconds.
pub(super) const fn seconds(packets: u64) -> u64 {
    packets.div_ceil(PACKETS_PER_SECOND)
}

/// Reason why a walk makes no further runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A simulated run panicked, which is a defect of this library.
    Panicked(RunPanicked),
    /// The next runs exceed the budget.
    OverBudget,
    /// The observer abandoned the runs. The ladder then ends as if the budget were spent, and the function
    /// that builds the ladder returns an error.
    Abandoned,
}

impl From<RunPanicked> for Stop {
    fn from(panicked: RunPanicked) -> Self {
        Self::Panicked(panicked)
    }
}

impl Stop {
    /// Returns `None` for a result over the budget, and for abandoned runs.
    ///
    /// # Errors
    /// Returns an error if a simulated run panicked.
    pub(super) fn allow<T>(result: Result<T, Self>) -> Result<Option<T>, RunPanicked> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Self::OverBudget | Self::Abandoned) => Ok(None),
            Err(Self::Panicked(panicked)) => Err(panicked),
        }
    }
}

/// Work that the runs of a ladder may still take, in data packets.
#[derive(Debug)]
pub(super) struct Budget {
    left: f64,
}

impl Budget {
    /// Creates a budget of this many data packets.
    pub(super) const fn new(packets: u64) -> Self {
        Self { left: packets as f64 }
    }

    /// Creates the budget that the runs of `jobs` need.
    pub(super) fn of(jobs: &[Job]) -> Self {
        Self { left: work(jobs) }
    }

    /// Subtracts the work of `jobs`. If the budget is too small for them, it stays unchanged.
    ///
    /// # Errors
    /// Returns [`Stop::OverBudget`] if the budget is too small.
    pub(super) fn spend(&mut self, jobs: &[Job]) -> Result<(), Stop> {
        let work = work(jobs);
        // The work of a state is subtracted in parts, whose sum may differ from the total in the last digit.
        if work > self.left + 1.0 {
            return Err(Stop::OverBudget);
        }
        self.left -= work;
        Ok(())
    }
}

/// Returns the estimated work of `jobs`, in data packets.
fn work(jobs: &[Job]) -> f64 {
    jobs.iter().map(|job| RunCost::of(&job.scenario, false).packets()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::model;
    use super::*;

    #[test]
    fn runs_are_paid_for_until_the_budget_is_spent() {
        let model = model();
        let jobs = model.jobs(model.present());
        let work = RunCost::of(&jobs[0].scenario, false).packets();
        assert_eq!(jobs.len(), 1);
        let mut budget = Budget::new((2.5 * work) as u64);
        assert_eq!((budget.spend(&jobs), budget.spend(&jobs)), (Ok(()), Ok(())));
        assert_eq!(budget.spend(&jobs), Err(Stop::OverBudget));
        assert_eq!(budget.spend(&[]), Ok(()), "no run costs nothing");
    }
}
