//! Where there is no Linux there is no emulator.

use std::process::ExitCode;

use fullpipe_lab::campaign::Watch;
use fullpipe_lab::experiment::{Experiment, Point};

use crate::args::{DatapathName, EmuArgs, RunArgs};
use crate::failure::Failure;
use crate::pcapng::PcapNg;
use crate::run::{Kept, Made};

pub(crate) fn emu(_: &EmuArgs) -> Result<ExitCode, Failure> {
    Err(no_linux())
}

pub(crate) fn prepare<'p>(_: impl Iterator<Item = (&'p Point, DatapathName)>) -> Result<(), Failure> {
    Err(no_linux())
}

pub(crate) fn runs(
    _: &Experiment,
    _: &RunArgs,
    _: Option<&mut PcapNg>,
    _: impl Watch<Kept>,
) -> Result<Vec<Made>, Failure> {
    Err(no_linux())
}

pub(crate) fn no_linux() -> Failure {
    Failure::new("the emulator needs Linux", "run experiments in the simulator: --world sim")
}

pub(crate) fn no_kernel() -> Failure {
    Failure::new(
        "tune changes a Linux host, and this is none",
        "fullpipe whatif prints what to change on one",
    )
}
