//! Stub for builds without the feature `tables`: the data set commands return an error.

use std::path::Path;
use std::process::ExitCode;

use fullpipe::lab::experiment::Experiment;

use crate::args::{DatasetArgs, RunArgs};
use crate::failure::Failure;

pub(crate) fn dataset(_: &DatasetArgs) -> Result<ExitCode, Failure> {
    Err(absent())
}

pub(crate) fn make(_: &RunArgs, _: &Path) -> Result<ExitCode, Failure> {
    Err(absent())
}

pub(crate) fn experiment(_: &Path, _: u64) -> Result<Experiment, Failure> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::new(
        "this program was built without data sets",
        "build it with cargo install fullpipe-cli --features tables",
    )
}
