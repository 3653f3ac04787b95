//! Runs experiments on guests: unmodified Linux kernels in virtual time. Guests do not disturb each other, so
//! one guest per core runs at a time.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::available_parallelism;

use fullpipe_lab::campaign::{self, Progress, RunResult, Watch};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::results::TimedOutcome;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::{Csv, NoTrace, Sink};
use fullpipe_linux::uml::{self, Kernel, Options};

use crate::Error;
use crate::capture::PcapNg;
use crate::run::{Attended, Observer, ObserverRelay, TracedRun, UmlOptions, note_once, now};
use crate::trace_spool::RunTrace;

/// Resources that a prepared experiment on guests needs.
pub(crate) type Guest = Kernel;

impl UmlOptions {
    /// Returns the options of runs whose packets are not recorded.
    pub(crate) fn options(&self) -> Options {
        let (kernel, modules) = (self.kernel.clone(), self.modules.clone());
        Options { kernel, modules, logged: false, limit: self.limit }
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
    capture: Option<&mut PcapNg>,
    observed: &ObserverRelay<'_, impl Observer>,
) -> Result<(Vec<RunResult<TracedRun>>, Option<String>), Error> {
    let relay = GuestRelay { observed, failed: AtomicBool::new(false) };
    let kernel = OnceLock::new();
    let guest_options = options.options();
    let experiment = observed.experiment;
    // Only the packets of the first run are captured.
    let first = experiment.points().first().zip(experiment.seeds().first().copied());
    let first = first.map(|(point, seed)| Scenario { seed, ..point.scenario.clone() });
    let capture = Mutex::new(capture);
    let timed = |scenario: &Scenario| {
        let start = now();
        let capture = match &first {
            Some(first) if first == scenario => capture.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        let mut trace = Csv::default();
        let observer = observed.observer;
        let run = if options.traced {
            one(guest, scenario, &guest_options, &mut Attended { rows: &mut trace, observer }, capture)
        } else {
            one(guest, scenario, &guest_options, &mut Attended { rows: &mut NoTrace, observer }, capture)
        }?;
        let _ = kernel.set(run.kernel);
        let wall_s = start.elapsed().as_secs_f64();
        Ok((TimedOutcome { outcome: run.outcome, wall_s, validity: None }, RunTrace::Text(trace.into_text())))
    };
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
    sink: &mut dyn Sink,
    capture: Option<&mut PcapNg>,
) -> Result<uml::UmlRun, Error> {
    Ok(match capture {
        Some(capture) => uml::run_captured(guest, scenario, options, sink, capture),
        None => uml::run(guest, scenario, options, sink),
    }?)
}

/// Reports the progress of runs, each of which may fail. After a failure, no further run starts.
struct GuestRelay<'a, O> {
    observed: &'a ObserverRelay<'a, O>,
    failed: AtomicBool,
}

impl<O: Observer> Watch<Result<TracedRun, Error>> for &GuestRelay<'_, O> {
    fn goes_on(&self) -> bool {
        !self.failed.load(Ordering::Relaxed) && self.observed.observer.goes_on()
    }

    fn abandons(&self) -> bool {
        self.observed.observer.abandons()
    }

    fn finished(&self, progress: Progress, run: &RunResult<Result<TracedRun, Error>>) {
        match &run.value {
            Ok((timed, _)) => self.observed.made(progress, run.point, run.seed, timed),
            Err(_) => self.failed.store(true, Ordering::Relaxed),
        }
    }
}
