//! Runs one point of an experiment in two worlds with virtual time, and finds the first packet that differs.
//!
//! Both runs have the same path. In both runs, it loses the packets with the same numbers. Until the two TCP
//! stacks behave differently, the same packets are sent at the same times.

use std::path::PathBuf;

use fullpipe_lab::experiment::Point;
use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::pair::{PacketLog, PacketRecord, Parting, parting};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::Row;
use fullpipe_linux::uml::{self, Kernel};
use fullpipe_units::{Duration, Instant};

use crate::Error;

/// World of one of the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairWorld {
    /// The simulator with fullpipe's TCP.
    Sim,
    /// A guest with the TCP of a User-Mode Linux kernel.
    Uml,
}

/// Options for comparing two runs.
#[derive(Clone, Debug)]
pub struct PairOptions {
    /// Worlds of both runs.
    pub worlds: [PairWorld; 2],
    /// Path of a User-Mode Linux kernel; `None` to search `PATH` for it.
    pub kernel: Option<PathBuf>,
    /// Folder with the kernel modules; `None` for the folder of the kernel's package.
    pub modules: Option<PathBuf>,
    /// Maximum difference in time between packets that count as equal.
    pub tolerance: Duration,
    /// Interval between the trace rows of both runs; `None` for the interval of the experiment.
    pub sample_every: Option<Duration>,
}

/// One of two runs of a scenario.
#[derive(Clone, Debug)]
pub struct PairedRun {
    /// Name of the world; for a guest, also its kernel.
    pub world: String,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Trace rows, sorted by time, then by flow.
    pub rows: Vec<Row>,
    /// Packets in the order in which they entered the path.
    pub packets: Vec<PacketRecord>,
}

impl PairedRun {
    /// Returns the last trace row of `flow` up to time `at`, and the first row after it.
    pub fn around(&self, flow: u32, at: Instant) -> [Option<&Row>; 2] {
        let mut of_flow = self.rows.iter().filter(|row| row.flow == flow);
        let after = of_flow.clone().find(|row| row.at > at);
        [of_flow.rfind(|row| row.at <= at), after]
    }
}

/// Two runs of a scenario.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Both runs, in the order of [`PairOptions::worlds`].
    pub runs: [PairedRun; 2],
    /// First packet that differs; `None` if there is none.
    pub parting: Option<Parting>,
}

/// Runs `point` with `seed` in two worlds. If one of them is a guest, the simulator follows the receive-window
/// rules of the guest's kernel.
///
/// The calling program becomes the guest's init if it has called `fullpipe::linux::uml::run_if_guest` at the start
/// of `main`; otherwise, the program `fullpipe-guest` becomes the init.
///
/// # Errors
/// Returns an error if there is no kernel, if a world cannot run the point, or if a run fails.
pub fn pair(point: &Point, seed: u64, options: &PairOptions) -> Result<Pair, Error> {
    let (kernel, modules) = (options.kernel.clone(), options.modules.clone());
    if options.worlds.contains(&PairWorld::Sim) {
        point.check_simulated()?;
    }
    let guest_options = uml::Options { kernel, modules, logged: true, limit: None };
    let kernel = if options.worlds.contains(&PairWorld::Uml) {
        let kernel = Kernel::find(&guest_options)?;
        uml::check(&kernel, point)?;
        Some(kernel)
    } else {
        None
    };
    let mut scenario = Scenario { seed, ..point.scenario.clone() };
    if let Some(every) = options.sample_every {
        scenario.sample_every = every;
    }
    let run = |world: PairWorld| match (world, &kernel) {
        (PairWorld::Uml, Some(kernel)) => guest(kernel, &scenario, &guest_options),
        (_, Some(kernel)) => Ok(simulated(&uml::simulated(kernel, &scenario))),
        (_, None) => Ok(simulated(&scenario)),
    };
    let runs = [run(options.worlds[0])?, run(options.worlds[1])?];
    let parting = parting(&runs[0].packets, &runs[1].packets, options.tolerance);
    Ok(Pair { runs, parting })
}

fn simulated(scenario: &Scenario) -> PairedRun {
    let (mut rows, mut log): (Vec<Row>, _) = (Vec::new(), PacketLog::default());
    let outcome = sim::run_tapped(scenario, &mut rows, &mut log);
    PairedRun { world: "sim".into(), outcome, rows, packets: log.into_records() }
}

fn guest(kernel: &Kernel, scenario: &Scenario, options: &uml::Options) -> Result<PairedRun, Error> {
    let mut rows: Vec<Row> = Vec::new();
    let run = uml::run(kernel, scenario, options, &mut rows)?;
    let world = format!("uml ({})", run.kernel);
    Ok(PairedRun { world, outcome: run.outcome, rows, packets: run.packets })
}
