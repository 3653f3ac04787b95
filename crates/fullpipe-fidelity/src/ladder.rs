//! Compares the ladder of each experiment point with kernel runs of its rungs.

use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::ladder::{Repeats, climb_known};
use fullpipe::{DiagnoseError, Error, Rung};
use fullpipe_fidelity::ladder_validation::{self, RungComparison};
use fullpipe_fidelity::rung_runs::{CellLadder, Period, Step};

use crate::Comparison;
use crate::args::FidelityArgs;
use crate::guest;
use crate::kernel::{self, RunDetail, RunRequest, Runs};
use crate::progress::with_ladder;

/// Number of simulated measurements per rung; each measurement is the mean of as many runs as there are
/// kernel runs. If simulator and kernel have the same distribution, the kernel's mean lies between the
/// minimum and the maximum of n measurements with probability (n - 1) / (n + 1), whatever the distribution:
/// 90 % for 19 measurements.
const MEASUREMENTS: u64 = 19;

/// Returns the table of rungs with the kernel's results. The comparison holds if all rungs were run and
/// enough of them meet their criterion.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<Comparison, Error> {
    let seeds = experiment.seeds();
    let climb = |point| climb(point, &seeds);
    let cells = guest::points(experiment, args)?;
    let ladders: Vec<CellLadder> = cells.iter().map(climb).collect::<Result<_, _>>()?;
    let wanted = crate::wanted(&points(&ladders), &seeds);
    let compared = Compared::run(&ladders, &wanted, args)?;
    let command = crate::command(&format!("--ladder {}", args.world_option()), args);
    let holds = compared.has_all_rungs() && ladder_validation::is_proven(&compared.rungs);
    // The table itself lists the missing runs, so the comparison can be shown without them.
    Ok((compared.table(&command), holds).into())
}

/// Computes the ladder of a point with a known path. The kernel runs of the rungs have the seeds `seeds`.
pub(crate) fn climb(cell: &Point, seeds: &[u64]) -> Result<CellLadder, Error> {
    let rungs = known(&cell.label, &cell.scenario, seeds)?;
    let steps = rungs.into_iter().filter_map(|rung| {
        let scenario = rung.scenario.clone()?;
        Some(Step::new(cell, rung, scenario, Period::SecondHalf))
    });
    Ok(CellLadder { cell: cell.label.clone(), steps: steps.collect() })
}

/// Returns the rungs of the ladder of `scenario`. The ladder uses seeds after the last of `seeds`, with which
/// the kernel runs. With the same seeds, the ladder would see the losses that it must predict.
pub(crate) fn known(label: &str, scenario: &Scenario, seeds: &[u64]) -> Result<Vec<Rung>, Error> {
    let seed = seeds.last().map_or(0, |last| last.wrapping_add(1));
    let repeats = Repeats { measurements: MEASUREMENTS, runs: seeds.len() as u64 };
    let scenario = Scenario { seed, ..scenario.clone() };
    let climbed = with_ladder(|progress| climb_known(&scenario, repeats, progress));
    let ladder = climbed.map_err(|error| match error {
        DiagnoseError::Input(error) => Error::from(error).about(format_args!("point '{label}'")),
        other => Error::from(other),
    })?;
    Ok(ladder.rungs)
}

/// Returns the points that the kernel must run for the rungs of `ladders`.
pub(crate) fn points(ladders: &[CellLadder]) -> Vec<Point> {
    ladders.iter().flat_map(|ladder| &ladder.steps).map(|step| step.point.clone()).collect()
}

/// Rungs of several ladders, compared with their kernel runs.
pub(crate) struct Compared<'l, 'w> {
    /// Rungs that the kernel has run.
    pub(crate) rungs: Vec<RungComparison<'l>>,
    /// Number of rungs with a prediction.
    all: usize,
    kernel: Runs<'w>,
}

impl<'l, 'w> Compared<'l, 'w> {
    /// Runs the requests `wanted`, which are the points of `ladders`, on the kernel and in the simulator.
    pub(crate) fn run(
        ladders: &'l [CellLadder],
        wanted: &'w [RunRequest],
        args: &FidelityArgs,
    ) -> Result<Self, Error> {
        let kernel = kernel::runs(wanted, args, RunDetail::Figures)?;
        let (valid, sim) = (kernel.valid(), crate::simulated(wanted)?);
        let rungs = ladders.iter().flat_map(|ladder| ladder.comparisons(&valid, &sim)).collect();
        Ok(Self { rungs, all: ladders.iter().map(|ladder| ladder.steps.len()).sum(), kernel })
    }

    /// Returns whether the kernel has run each rung at least once.
    pub(crate) fn has_all_rungs(&self) -> bool {
        self.rungs.len() == self.all
    }

    /// Returns whether every run of every rung was valid.
    pub(crate) fn has_all_runs(&self) -> bool {
        self.kernel.are_complete()
    }

    /// Returns the table of rungs; `command` is the command that recreates it from the stored runs.
    pub(crate) fn table(&self, command: &str) -> String {
        self.kernel.heading(command) + &ladder_validation::table(&self.rungs) + &self.kernel.missing()
    }
}
