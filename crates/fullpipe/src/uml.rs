//! Runs experiments on guests: unmodified Linux kernels in virtual time. Guests do not disturb each other, so
//! there is one per core.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use fullpipe_lab::campaign::{self, Progress, RunResult, Watch};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::results::TimedOutcome;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::{Csv, NoTrace, Sink};
use fullpipe_linux::uml::{self, Kernel, Options};

use crate::Error;
use crate::run::{Attended, Observer, ObserverRelay, TracedRun, UmlOptions, note_once, now};

/// What a prepared experiment on guests needs.
pub(crate) type Guest = Kernel;

impl UmlOptions {
    /// Returns the options of runs whose packets are not recorded.
    pub(crate) fn options(&self) -> Options {
        Options { kernel: self.kernel.clone(), modules: self.modules.clone(), logged: false }
    }
}

pub(crate) fn prepare(
    options: &UmlOptions,
    experiment: &Experiment,
    observer: &impl Observer,
) -> Result<Guest, Error> {
    let kernel = Kernel::find(&options.options())?;
    note_once(experiment.points().iter().map(|point| uml::check(&kernel, point)), observer)?;
    Ok(kernel)
}

/// Runs all points with all seeds, and returns the results and the kernel of the guests.
pub(crate) fn runs(
    guest: &Guest,
    options: &UmlOptions,
    observed: &ObserverRelay<'_, impl Observer>,
) -> Result<(Vec<RunResult<TracedRun>>, Option<String>), Error> {
    let relay = GuestRelay { observed, failed: AtomicBool::new(false) };
    let kernel = OnceLock::new();
    let guest_options = options.options();
    let timed = |scenario: &Scenario| {
        let start = now();
        let mut trace = Csv::default();
        let observer = observed.observer;
        let run = if options.traced {
            one(guest, scenario, &guest_options, &mut Attended { rows: &mut trace, observer })
        } else {
            one(guest, scenario, &guest_options, &mut Attended { rows: &mut NoTrace, observer })
        }?;
        let _ = kernel.set(run.kernel);
        let wall_s = start.elapsed().as_secs_f64();
        Ok((TimedOutcome { outcome: run.outcome, wall_s, validity: None }, trace.into_text()))
    };
    let experiment = observed.experiment;
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let made = campaign::run_on(threads, experiment.points(), &experiment.seeds(), timed, &relay)?;
    let kept = made.into_iter().map(|RunResult { point, seed, value }| {
        let value = value.map_err(|error: Error| {
            error.about(format_args!("run '{}' with seed {seed}", experiment.points()[point].label))
        });
        Ok(RunResult { point, seed, value: value? })
    });
    Ok((kept.collect::<Result<_, Error>>()?, kernel.into_inner()))
}

fn one(
    guest: &Guest,
    scenario: &Scenario,
    options: &Options,
    sink: &mut impl Sink,
) -> Result<uml::UmlRun, Error> {
    Ok(uml::run(guest, scenario, options, sink)?)
}

/// Passes on the progress of runs that may fail. After a failure, no further run starts.
struct GuestRelay<'a, O> {
    observed: &'a ObserverRelay<'a, O>,
    failed: AtomicBool,
}

impl<O: Observer> Watch<Result<TracedRun, Error>> for &GuestRelay<'_, O> {
    fn goes_on(&self) -> bool {
        !self.failed.load(Ordering::Relaxed) && self.observed.goes_on()
    }

    fn abandons(&self) -> bool {
        self.observed.abandons()
    }

    fn finished(&self, progress: Progress, run: &RunResult<Result<TracedRun, Error>>) {
        match &run.value {
            Ok((timed, _)) => self.observed.made(progress, run.point, run.seed, timed),
            Err(_) => self.failed.store(true, Ordering::Relaxed),
        }
    }
}
