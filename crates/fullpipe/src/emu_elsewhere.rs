//! Stub for systems other than Linux: every call to the emulator returns an error.

use fullpipe_lab::campaign::RunResult;
use fullpipe_lab::experiment::Point;
use fullpipe_lab::race::{HarmPlan, Pair, RacePlan, StoredHarm};
use fullpipe_lab::results::TimedOutcome;
use fullpipe_lab::trace::Sink;
use fullpipe_units::Duration;

use crate::Error;
use crate::capture::PcapNg;
use crate::race::{MissingSeeds, Relay};
use crate::run::{Datapath, EmuOptions, Observer, ObserverRelay, TracedRun};

pub(crate) fn prepare<'p>(
    _: impl Iterator<Item = (&'p Point, Datapath)>,
    _: &impl Observer,
) -> Result<(), Error> {
    Err(no_linux())
}

pub(crate) fn runs(
    _: &EmuOptions,
    _: Option<&mut PcapNg>,
    _: &ObserverRelay<'_, impl Observer>,
) -> Result<Vec<RunResult<TracedRun>>, Error> {
    Err(no_linux())
}

pub(crate) fn one(
    _: &Point,
    _: u64,
    _: Datapath,
    _: &mut dyn Sink,
    _: Option<&mut PcapNg>,
) -> Result<TimedOutcome, Error> {
    Err(no_linux())
}

/// Congestion controls that only fullpipe's TCP has; none without an emulator.
#[derive(Clone, Debug)]
pub(crate) struct OwnArms;

pub(crate) fn check_arms(_: &RacePlan, _: &impl Observer) -> Result<OwnArms, Error> {
    Err(no_linux())
}

pub(crate) fn pairs<O: Observer>(
    _: &RacePlan,
    _: &OwnArms,
    _: &[MissingSeeds],
    _: &Relay<'_, O, Pair>,
) -> Result<Vec<(usize, Pair)>, Error> {
    Err(no_linux())
}

pub(crate) fn check_harm(_: &HarmPlan, _: &impl Observer) -> Result<OwnArms, Error> {
    Err(no_linux())
}

pub(crate) fn expected_harm_time(_: &HarmPlan, _: &[MissingSeeds]) -> Duration {
    Duration::ZERO
}

pub(crate) fn harm_runs<O: Observer>(
    _: &HarmPlan,
    _: &OwnArms,
    _: &[MissingSeeds],
    _: &Relay<'_, O, StoredHarm>,
) -> Result<Vec<(usize, StoredHarm)>, Error> {
    Err(no_linux())
}

fn no_linux() -> Error {
    Error::new("the emulator requires Linux", "run experiments in the simulator: --world sim")
}
