//! Compares the ladder of each experiment point with kernel runs of its rungs.

use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::ladder::{Repeats, climb_known, present_known};
use fullpipe::{DiagnoseError, Error, Rung};
use fullpipe_fidelity::cells;
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

/// Returns the rungs of the ladder of `scenario`.
fn known(label: &str, scenario: &Scenario, seeds: &[u64]) -> Result<Vec<Rung>, Error> {
    let (scenario, repeats) = apart(scenario, seeds);
    let climbed = with_ladder(|progress| climb_known(&scenario, repeats, progress));
    Ok(climbed.map_err(|error| about(label, error))?.rungs)
}

/// Returns the ladder's prediction for `scenario` without any remedy.
pub(crate) fn present(label: &str, scenario: &Scenario, seeds: &[u64]) -> Result<Option<Rung>, Error> {
    let (scenario, repeats) = apart(scenario, seeds);
    with_ladder(|progress| present_known(&scenario, repeats, progress)).map_err(|error| about(label, error))
}

/// Returns `scenario` with the first seed of its ladder, and the runs of the ladder. The ladder's seeds begin
/// after the last of `seeds`, which are the seeds of the kernel runs. With the same seeds, the ladder would
/// see the losses that it must predict.
fn apart(scenario: &Scenario, seeds: &[u64]) -> (Scenario, Repeats) {
    let seed = seeds.last().map_or(0, |last| last.wrapping_add(1));
    let repeats = Repeats { measurements: MEASUREMENTS, runs: seeds.len() as u64 };
    (Scenario { seed, ..scenario.clone() }, repeats)
}

fn about(label: &str, error: DiagnoseError) -> Error {
    match error {
        DiagnoseError::Input(error) => Error::from(error).about(format_args!("point '{label}'")),
        other => Error::from(other),
    }
}

/// Returns the points that the kernel must run for the rungs of `ladders`.
pub(crate) fn points(ladders: &[CellLadder]) -> Vec<Point> {
    ladders.iter().flat_map(|ladder| &ladder.steps).map(|step| step.point.clone()).collect()
}

/// Returns the random points of `wanted` with further blocks of seeds, which no run of `wanted` has.
fn blocks(wanted: &[RunRequest]) -> Vec<Vec<RunRequest>> {
    let random: Vec<&RunRequest> = wanted.iter().filter(|wanted| cells::varies(wanted.point())).collect();
    let mut seeds: Vec<u64> = random.iter().map(|wanted| wanted.scenario().seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let first = seeds.first().copied();
    let points = random.iter().filter(|wanted| Some(wanted.scenario().seed) == first);
    let points: Vec<Point> = points.map(|wanted| wanted.point().clone()).collect();
    let blocks = cells::further_blocks(&seeds, crate::FURTHER_BLOCKS);
    blocks.into_iter().map(|seeds| crate::wanted(&points, &seeds)).collect()
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
        let (valid, sim) = (kernel.valid(), guest::paired(wanted, args)?);
        let blocks = blocks(wanted).into_iter().map(|block| guest::paired(&block, args));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let rungs = ladders.iter().flat_map(|ladder| ladder.comparisons(&valid, &sim, &blocks)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Only random points have further runs, with seeds that occur nowhere else.
    #[test]
    fn further_blocks_repeat_no_run() {
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = '10ms'\nloss = ['0%', '1%']\n\
                    [[flow]]\ncc = 'cubic'";
        let experiment = Experiment::from_toml(text).expect("valid");
        let wanted = crate::wanted(experiment.points(), &[7, 8]);
        assert_eq!(wanted.len(), 3);
        let blocks = blocks(&wanted);
        let seeds = |block: &Vec<RunRequest>| {
            assert!(block.iter().all(|wanted| cells::varies(wanted.point())));
            block.iter().map(|wanted| wanted.scenario().seed).collect::<Vec<_>>()
        };
        let seeds: Vec<_> = blocks.iter().map(seeds).collect();
        assert_eq!(seeds, [[9, 10], [11, 12], [13, 14], [15, 16]]);
    }
}
