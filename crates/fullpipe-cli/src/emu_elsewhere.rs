//! Stub for systems other than Linux: the commands `emu` and `tune` return an error.

use std::process::ExitCode;

use crate::args::EmuArgs;
use crate::failure::Failure;

pub(crate) fn emu(_: &EmuArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new("the emulator requires Linux", "run experiments in the simulator: --world sim"))
}

pub(crate) fn no_kernel() -> Failure {
    Failure::new("tune requires Linux", "use fullpipe whatif to print the settings for a Linux host")
}
