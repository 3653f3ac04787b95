//! Stub for systems other than Linux: guests in virtual time require Linux.

use fullpipe_lab::campaign::RunResult;
use fullpipe_lab::experiment::Experiment;

use crate::Error;
use crate::capture::PcapNg;
use crate::run::{Observer, ObserverRelay, TracedRun, UmlOptions};

/// A type without values, because a guest requires Linux.
pub(crate) enum Guest {}

pub(crate) fn prepare(_: &UmlOptions, _: &Experiment, _: &impl Observer) -> Result<Guest, Error> {
    Err(Error::new(
        "a guest in virtual time requires Linux on x86_64",
        "run experiments in the simulator: --world sim",
    ))
}

pub(crate) fn runs(
    guest: &Guest,
    _: &UmlOptions,
    _: Option<&mut PcapNg>,
    _: &ObserverRelay<'_, impl Observer>,
) -> Result<(Vec<RunResult<TracedRun>>, Option<String>), Error> {
    match *guest {}
}
