//! Compares the limits that the classifier reports for kernel runs with the limits that these runs are known
//! to have.

use fullpipe::Limit;
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe_fidelity::classifier_validation::{self, Situation};

use crate::args::{FidelityArgs, KernelWorld};
use crate::guest;
use crate::kernel::{self, RunDetail, RunRequest};
use fullpipe::Error;

/// Returns the table of situations, and whether enough runs are classified correctly. On the emulator, every
/// seed is run, even if nothing on the path is random, because the kernel's timing varies.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<(String, bool), Error> {
    let points = guest::points(experiment, args)?;
    let expected = points.iter().map(expected).collect::<Result<Vec<_>, _>>()?;
    let of_seed = |seed: u64| points.iter().map(move |point| RunRequest::new(point, seed));
    let wanted: Vec<RunRequest> = match args.world {
        KernelWorld::Emu => experiment.seeds().into_iter().flat_map(of_seed).collect(),
        KernelWorld::Uml => crate::wanted(&points, &experiment.seeds()),
    };
    let kernel = kernel::runs(&wanted, args, RunDetail::Limit)?;
    let situation = |(point, expected)| Situation { point, expected, named: kernel.named(&point.label) };
    let situations: Vec<_> = points.iter().zip(expected).map(situation).collect();
    let command = crate::command(&format!("--situations {}", args.world_option()), args);
    // A missing run counts as a failure of the comparison.
    let holds = classifier_validation::holds(&situations) && kernel.valid().len() == wanted.len();
    Ok((kernel.heading(&command) + &classifier_validation::table(&situations) + &kernel.missing(), holds))
}

pub(crate) fn expected(point: &Point) -> Result<Limit, Error> {
    classifier_validation::expected(point).ok_or_else(|| {
        let names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
        Error::new(
            format!("point '{}' does not state the limit that it is designed to have", point.label),
            format!("add limit = \"rwnd\" to its [[point]]; known limits: {}", names.join(", ")),
        )
    })
}
