//! Stub for systems other than Linux: `pair` requires a Linux kernel as a guest.

use std::process::ExitCode;

use crate::args::PairArgs;
use crate::failure::Failure;

pub(crate) fn pair(_: &PairArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(
        "pair requires Linux on x86_64",
        "run the experiment only in the simulator: fullpipe run FILE",
    ))
}
