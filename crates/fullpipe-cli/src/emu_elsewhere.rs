//! Where there is no Linux there is no emulator.

use std::process::ExitCode;

use fullpipe_lab::campaign::Watch;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::results::Timed;

use crate::args::{EmuArgs, RunArgs};
use crate::failure::Failure;
use crate::pcapng::PcapNg;
use crate::run::Made;

pub(crate) fn emu(_: &EmuArgs) -> Result<ExitCode, Failure> {
    Err(no_linux())
}

pub(crate) fn prepare(_: &Experiment, _: &RunArgs) -> Result<(), Failure> {
    Err(no_linux())
}

pub(crate) fn runs(
    _: &Experiment,
    _: &RunArgs,
    _: Option<&mut PcapNg>,
    _: impl Watch<(Timed, String)>,
) -> Result<Vec<Made>, Failure> {
    Err(no_linux())
}

pub(crate) fn no_linux() -> Failure {
    Failure::new("the emulator needs Linux", "run experiments in the simulator: --world sim")
}
