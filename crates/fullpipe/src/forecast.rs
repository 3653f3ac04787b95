//! Estimates the time that an experiment takes, before it starts and while it runs.
//!
//! ```text
//!   packets of each run (lab::cost)  ÷  speed of this machine, measured on a short run  ÷  cores
//! ```
//!
//! The costs of the runs of an experiment can differ by a factor of a thousand. The remaining time is
//! therefore estimated from the cost of the finished runs instead of from their number.

use std::collections::BTreeMap;
use std::thread;

use fullpipe_lab::cost::RunCost;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::{FlowSpec, HostSpec, PathSpec, Scenario};
use fullpipe_lab::sim;
use fullpipe_tcp::buffers::{Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::World;
use crate::run::now;

/// Time in seconds that the emulator takes for a run in addition to the run's duration: creating and removing
/// both namespaces, and draining the path.
const EMU_OVERHEAD: f64 = 0.7;
/// Speed of a guest on one core, in data packets per second, and the time in seconds that a guest takes to boot
/// and to power off.
const GUEST_SPEED: f64 = 40_000.0;
const GUEST_BOOT: f64 = 0.5;
/// Virtual duration of the run that measures the speed of this machine: about 30 000 packets, which take 5 to
/// 20 ms of real time.
const PROBE: Duration = Duration::from_secs(4);

/// Estimated cost of an experiment, in runs and in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Number of runs of the experiment: points x seeds.
    pub runs: u64,
    /// Sum of the durations of all runs in seconds: virtual time in the simulator, real time in the emulator.
    pub run_time_s: f64,
    /// Estimated wall-clock time of the whole experiment, in seconds.
    pub wall_s: f64,
    /// Number of runs that are executed at the same time.
    pub threads: usize,
    /// Estimated time in seconds of a run of each point on one core, by the label of the point.
    points: BTreeMap<String, f64>,
    /// Number of random seeds per point.
    seeds: u64,
}

impl Forecast {
    /// Estimates the cost of `experiment` in `world`. For the simulator, the speed of this machine is
    /// measured with a short run, which takes about 10 ms.
    pub fn new(experiment: &Experiment, world: &World) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (threads, speed) = match world {
            World::Sim(_) => (cores, speed()),
            World::Uml(_) => (cores, GUEST_SPEED),
            // Concurrent runs would disturb each other's timing.
            World::Emu(_) => (1, 1.0),
        };
        let seconds = |scenario: &Scenario| match world {
            World::Sim(options) => RunCost::of(scenario, options.traced).packets() / speed,
            World::Emu(_) => emulated_seconds(scenario),
            World::Uml(options) => RunCost::of(scenario, options.traced).packets() / speed + GUEST_BOOT,
        };
        let points: BTreeMap<String, f64> =
            experiment.points().iter().map(|point| (point.label.clone(), seconds(&point.scenario))).collect();
        let runs = experiment.runs();
        let seeds = runs / (experiment.points().len() as u64).max(1);
        let durations = experiment.points().iter().map(|point| point.scenario.duration.as_secs_f64());
        let run_time_s = durations.sum::<f64>() * seeds as f64;
        let threads = threads.min(usize::try_from(runs).unwrap_or(usize::MAX)).max(1);
        let mut forecast = Self { runs, run_time_s, wall_s: 0.0, threads, points, seeds };
        let longest = forecast.points.values().copied().fold(0.0, f64::max);
        forecast.wall_s = (forecast.total() / threads as f64).max(longest);
        forecast
    }

    /// Returns the sum of the estimated times of all runs on one core, in seconds.
    fn total(&self) -> f64 {
        self.points.values().sum::<f64>() * self.seeds as f64
    }
}

/// Returns the estimated wall-clock time of a run on the emulator, in seconds.
pub fn emulated_seconds(scenario: &Scenario) -> f64 {
    scenario.duration.as_secs_f64() + EMU_OVERHEAD
}

/// Returns the speed of the simulator on this machine, in data packets per second of one core.
pub(crate) fn speed() -> f64 {
    let path = PathSpec::symmetric(
        Rate::from_bps(100_000_000),
        Duration::from_millis(50),
        Probability::ZERO,
        Bytes::new(625_000),
    );
    let buffer = Buffer::Auto { max: Bytes::from_mib(6) };
    let scenario = Scenario {
        path,
        host: HostSpec::plain(KernelVersion::new(6, 18), WindowRule::ScalingRatio(160), buffer, buffer),
        flows: vec![FlowSpec::plain(Algorithm::Cubic)],
        duration: PROBE,
        seed: 1,
        sample_every: Duration::from_millis(100),
    };
    let start = now();
    let outcome = sim::run(&scenario);
    outcome.path.delivered as f64 / start.elapsed().as_secs_f64().max(1e-6)
}

/// Estimate of the time that remains, corrected by the times of finished runs.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeLeft {
    forecast: Forecast,
    /// Estimated time of the finished runs, and the time that these runs actually took, in seconds.
    estimated: f64,
    took: f64,
}

impl TimeLeft {
    /// Creates the estimate for an experiment that starts now.
    pub const fn new(forecast: Forecast) -> Self {
        Self { forecast, estimated: 0.0, took: 0.0 }
    }

    /// Records that a run of the point with the label `label` has finished after `wall_s` seconds.
    pub fn finished(&mut self, label: &str, wall_s: f64) {
        self.estimated += self.forecast.points.get(label).copied().unwrap_or(0.0);
        self.took += wall_s;
    }

    /// Returns the estimated time that remains, in seconds, `elapsed_s` seconds after the start of the
    /// experiment.
    pub fn seconds(&self, elapsed_s: f64) -> f64 {
        let total = self.forecast.total();
        if self.estimated <= 0.0 {
            return (self.forecast.wall_s - elapsed_s).max(0.0);
        }
        // The ratio of actual to estimated times of finished runs corrects the estimate.
        let factor = self.took / self.estimated;
        let threads = self.forecast.threads as f64;
        let pending = (total - self.estimated).max(0.0) * factor / threads;
        // Runs in progress count as pending. Even if the estimated time has passed, half of the pending time
        // is assumed to remain.
        (total * factor / threads - elapsed_s).clamp(pending / 2.0, pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EmuOptions, SimOptions};

    fn experiment(rates: &str) -> Experiment {
        Experiment::from_toml(&format!(
            "name = 'x'\nduration = '10s'\nrepeat = 5\n[path]\nrate = {rates}\nrtt = '20ms'\n[[flow]]\ncc = 'reno'"
        ))
        .expect("valid")
    }

    #[test]
    fn the_forecast_states_runs_and_time() {
        let experiment = experiment("['1mbit', '100mbit']");
        let sim = Forecast::new(&experiment, &World::Sim(SimOptions::default()));
        assert_eq!((sim.runs, sim.run_time_s), (10, 100.0));
        assert!(sim.wall_s > 0.001 && sim.wall_s < 60.0, "{sim:?}");
        let emu = Forecast::new(&experiment, &World::Emu(EmuOptions::default()));
        assert_eq!((emu.runs, emu.threads), (10, 1));
        assert!((100.0..120.0).contains(&emu.wall_s), "{emu:?}");
    }

    /// One of the two points in this test accounts for almost all of the cost. When all runs of the other
    /// point have finished, half of the runs are complete, but almost none of the time has passed.
    #[test]
    fn the_time_left_weighs_runs_by_their_cost() {
        let points = [("light".to_owned(), 1.0), ("heavy".to_owned(), 99.0)].into();
        let forecast = Forecast { runs: 10, run_time_s: 0.0, wall_s: 500.0, threads: 1, points, seeds: 5 };
        let mut left = TimeLeft::new(forecast);
        assert_eq!(left.seconds(20.0), 480.0);
        // In this test, the machine is twice as fast as the estimate.
        (0..5).for_each(|_| left.finished("light", 0.5));
        assert!((left.seconds(2.5) - 247.5).abs() < 1e-6, "{}", left.seconds(2.5));
        (0..4).for_each(|_| left.finished("heavy", 49.5));
        assert!((left.seconds(200.5) - 49.5).abs() < 1e-6, "{}", left.seconds(200.5));
        left.finished("heavy", 49.5);
        assert_eq!(left.seconds(251.0), 0.0);
    }
}
