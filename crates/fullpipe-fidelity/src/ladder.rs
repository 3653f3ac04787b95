//! Compares the ladder of each experiment point with kernel runs of its rungs.

use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::results::Run;
use fullpipe::lab::scenario::Scenario;
use fullpipe::ladder::{Repeats, climb_known};
use fullpipe::{DiagnoseError, Rung};
use fullpipe_fidelity::ladder_validation::{self, RungComparison};

use crate::args::FidelityArgs;
use crate::kernel::{self, RunDetail};
use crate::progress::with_ladder;
use fullpipe::Error;

/// Number of simulated measurements per rung, each of which is the mean of as many runs as there are kernel
/// runs. If simulator and kernel had the same distribution, the kernel's mean would lie between the minimum
/// and the maximum of n measurements with probability (n - 1) / (n + 1), whatever the distribution: 80 % for
/// n = 9.
const MEASUREMENTS: u64 = 9;

/// Returns the table of rungs with the kernel's results. Also returns whether all rungs were run and enough
/// of them meet their criterion.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<(String, bool), Error> {
    let climbed: Vec<PointLadder<'_>> =
        experiment.points().iter().map(|point| climb(experiment, point)).collect::<Result<_, _>>()?;
    let steps: Vec<Point> = climbed.iter().flat_map(|climbed| climbed.steps.clone()).collect();
    let wanted = crate::wanted(&steps, &experiment.seeds());
    let kernel = kernel::runs(&wanted, &args.out, RunDetail::Figures)?;
    let (valid, sim) = (kernel.valid(), crate::simulated(&wanted)?);
    let held: Vec<RungComparison<'_>> =
        climbed.iter().flat_map(|climbed| climbed.held(&valid, &sim)).collect();
    let command = crate::command("--ladder ", args);
    let holds = held.len() == steps.len() && ladder_validation::is_proven(&held);
    Ok((kernel.heading(&command) + &ladder_validation::table(&held) + &kernel.missing(), holds))
}

/// An experiment point, its ladder, and the scenarios of its rungs.
struct PointLadder<'e> {
    cell: &'e Point,
    /// Simulated rungs of the ladder; the last rung, the link, has no run.
    rungs: Vec<Rung>,
    /// Kernel runs that correspond to the rungs, one point for each rung.
    steps: Vec<Point>,
}

/// Computes the ladder of one point. The ladder's seeds begin after the last seed of the kernel runs. With
/// the same seeds, the ladder would see the losses that it must predict.
fn climb<'e>(experiment: &Experiment, cell: &'e Point) -> Result<PointLadder<'e>, Error> {
    let seeds = experiment.seeds();
    let seed = seeds.last().map_or(0, |last| last.wrapping_add(1));
    let repeats = Repeats { measurements: MEASUREMENTS, runs: seeds.len() as u64 };
    let scenario = Scenario { seed, ..cell.scenario.clone() };
    let climbed = with_ladder(|progress| climb_known(&scenario, repeats, progress));
    let ladder = climbed.map_err(|error| match error {
        DiagnoseError::Input(error) => Error::from(error).about(format_args!("point '{}'", cell.label)),
        defect @ DiagnoseError::Defect(_) => Error::from(defect),
    })?;
    let mut rungs = ladder.rungs;
    rungs.retain(|rung| rung.scenario.is_some());
    let steps = rungs.iter().filter_map(|rung| {
        let done = rung.remedies.title().map_or_else(String::new, |remedy| format!(", then {remedy}"));
        let scenario = Scenario { seed: 0, ..rung.scenario.clone()? };
        Some(Point { label: format!("{}{done}", cell.label), scenario, ..cell.clone() })
    });
    let steps = steps.collect();
    Ok(PointLadder { cell, rungs, steps })
}

impl PointLadder<'_> {
    /// Returns a comparison for each rung that the kernel has run.
    fn held(&self, kernel: &[Run], sim: &[Run]) -> Vec<RungComparison<'_>> {
        let held = self.rungs.iter().zip(&self.steps).map(|(rung, step)| {
            let of_step =
                |runs: &[Run]| runs.iter().filter(|run| run.point == step.label).map(steady).collect();
            RungComparison { cell: &self.cell.label, rung, kernel: of_step(kernel), paired: of_step(sim) }
        });
        held.filter(|held| !held.kernel.is_empty()).collect()
    }
}

/// Returns the goodput of all flows over the second half of the run, in bit/s.
fn steady(run: &Run) -> f64 {
    run.flows.iter().map(|flow| flow.goodput_second_half_bps).sum::<u64>() as f64
}
