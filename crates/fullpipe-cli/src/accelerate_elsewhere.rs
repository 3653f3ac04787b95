//! Stub for systems other than Linux: the command `accelerate` returns an error.

use std::process::ExitCode;

use crate::args::AccelerateArgs;
use crate::failure::Failure;

pub(crate) fn accelerate(_: &AccelerateArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new("accelerate requires Linux", "run fullpipe accelerate on the Linux host of the server"))
}
