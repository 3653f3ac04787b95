//! The random seeds of an experiment.

use super::{ExperimentError, MOST_REPEATS};

/// Random seeds with which every point of an experiment is run: the first seed, and consecutive numbers for
/// the repeats. Runs are numbered point by point, and all runs of a point are consecutive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seeds {
    first: u64,
    count: u64,
}

impl Seeds {
    /// Checks the number of seeds and returns the seeds.
    pub(super) fn new(first: u64, count: u64) -> Result<Self, ExperimentError> {
        if (1..=MOST_REPEATS).contains(&count) {
            Ok(Self { first, count })
        } else {
            let message = format!("repeat {count} is out of range");
            Err(ExperimentError::new(message, format!("allowed: 1 to {MOST_REPEATS}")))
        }
    }

    /// Returns a single seed.
    pub(super) const fn only(seed: u64) -> Self {
        Self { first: seed, count: 1 }
    }

    pub(super) const fn first(self) -> u64 {
        self.first
    }

    pub(super) const fn count(self) -> u64 {
        self.count
    }

    /// Replaces the first seed.
    pub(super) const fn with_first(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// Replaces the number of seeds, clamped to the allowed range.
    pub(super) fn with_count(self, count: u64) -> Self {
        Self { count: count.clamp(1, MOST_REPEATS), ..self }
    }

    /// Returns the seeds in their order.
    pub(super) fn all(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |repeat| self.first.wrapping_add(repeat))
    }

    /// Returns the number of runs of `points` points.
    pub(super) const fn runs(self, points: u64) -> u64 {
        points.saturating_mul(self.count)
    }

    /// Returns the seed of a run.
    pub(super) const fn of_run(self, run: u64) -> u64 {
        self.first.wrapping_add(run % self.count)
    }

    /// Returns the number of the point of a run.
    pub(super) const fn point_of_run(self, run: u64) -> u64 {
        run / self.count
    }
}
