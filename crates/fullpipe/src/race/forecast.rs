//! Estimates the time that a simulated race takes.

use std::{fmt, thread};

use fullpipe_lab::cost::RunCost;
use fullpipe_lab::race::{HarmPlan, RacePlan};

use crate::forecast::speed;

/// Estimated time of a race in the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaceForecast {
    /// Estimated wall-clock time of the whole race, in seconds.
    pub wall_s: f64,
    /// Number of runs that are executed at the same time.
    pub threads: usize,
}

impl RaceForecast {
    /// Estimates the time of a race that compares download times. The speed of this machine is measured with
    /// a short run, which takes about 10 ms.
    pub fn of_race(plan: &RacePlan) -> Self {
        Self::of(plan.cost())
    }

    /// Estimates the time of a race that measures harm. The speed of this machine is measured with a short
    /// run, which takes about 10 ms.
    pub fn of_harm(plan: &HarmPlan) -> Self {
        Self::of(plan.cost())
    }

    fn of(cost: RunCost) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { wall_s: cost.packets() / speed() / threads as f64, threads }
    }
}

impl fmt::Display for RaceForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.wall_s < 9.95);
        let cores = if self.threads == 1 { "core" } else { "cores" };
        write!(f, "takes about {:.digits$} s on {} {cores}", self.wall_s.max(0.1), self.threads)
    }
}
