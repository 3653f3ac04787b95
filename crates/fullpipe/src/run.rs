//! Experiments, run in a world.
//!
//! ```text
//!   Experiment ─► World::Sim  virtual time, all cores, any system  ─┐
//!             └─► World::Emu  real time, one run after another     ─┴─► Report ─► document, table, traces, page
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullpipe_lab::campaign::{self, Progress, RunResult, Watch};
use fullpipe_lab::experiment::{Experiment, Point};
use fullpipe_lab::results::{self, ResultTable, Run, Summary, TimedOutcome, TraceTable, summaries};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::{Csv, Sink};
use fullpipe_units::Rate;

use crate::capture::PcapNg;
use crate::files::write_atomically;
use crate::{Error, emu};

/// Where an experiment runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum World {
    /// In virtual time, with fullpipe's own TCP.
    Sim(SimOptions),
    /// In real time on an emulated path, with the kernel's TCP or fullpipe's. Needs Linux and the right to make namespaces.
    Emu(EmuOptions),
}

impl World {
    /// Its name in options and documents.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sim(_) => "sim",
            Self::Emu(_) => "emu",
        }
    }

    /// Checks that this world can run `experiment`, acquires the rights for it, and begins its capture. Call it before the process
    /// starts a thread: only a single-threaded process gets a user namespace, by which one without rights may use the emulator.
    ///
    /// # Errors
    /// The world cannot run it: not on this system, without these rights, or not this experiment; or the capture cannot be
    /// written.
    pub fn prepare<'a>(
        &'a self,
        experiment: &'a Experiment,
        observer: &impl Observer,
    ) -> Result<PreparedRun<'a>, Error> {
        let capture = match self {
            Self::Sim(SimOptions { capture, .. }) | Self::Emu(EmuOptions { capture, .. }) => capture,
        };
        let capture = capture.as_deref().map(PcapNg::begin).transpose()?;
        match self {
            Self::Sim(_) => experiment.check_simulated()?,
            Self::Emu(options) => {
                let points = experiment.points().iter();
                emu::prepare(points.map(|point| (point, options.datapath)), observer)?;
            }
        }
        Ok(PreparedRun { experiment, world: self, capture })
    }
}

/// An experiment that can run: see [`World::prepare`].
pub struct PreparedRun<'a> {
    experiment: &'a Experiment,
    world: &'a World,
    capture: Option<PcapNg>,
}

impl PreparedRun<'_> {
    /// Runs every point with every seed, or as many as `observer` has patience for.
    ///
    /// # Errors
    /// A run failed or, which is a defect, panicked; or the capture cannot be written.
    pub fn run(self, observer: &impl Observer) -> Result<Report, Error> {
        let Self { experiment, world, mut capture } = self;
        let observed = ObserverRelay { experiment, observer };
        let made = match world {
            World::Sim(options) => {
                let timed = |scenario: &Scenario| simulated(scenario, options.traced);
                campaign::run(experiment.points(), &experiment.seeds(), timed, &observed)?
            }
            World::Emu(options) => emu::runs(options, capture.as_mut(), &observed)?,
        };
        // An interrupt may have come before the first run.
        if let Some(mut capture) = capture.filter(|_| !made.is_empty()) {
            if matches!(world, World::Sim(_)) {
                capture.simulate(experiment);
            }
            capture.finish(experiment, observer)?;
        }
        let split = |RunResult { point, seed, value: (timed, trace) }| {
            (RunResult { point, seed, value: timed }, RunResult { point, seed, value: trace })
        };
        let (runs, traces): (Vec<_>, Vec<_>) = made.into_iter().map(split).unzip();
        let document = results::Report::new(experiment, world.name(), &runs);
        Ok(Report { document, summaries: summaries(experiment, &runs), traces })
    }
}

/// How to run in the simulator.
#[derive(Clone, Debug, Default)]
pub struct SimOptions {
    /// Keep every trace row of every run; takes time and memory.
    pub traced: bool,
    /// Write the packets of the first run to this pcapng file.
    pub capture: Option<PathBuf>,
}

/// How to run on the emulator.
#[derive(Clone, Debug, Default)]
pub struct EmuOptions {
    /// How packets come out of the kernel.
    pub datapath: Datapath,
    /// Keep every trace row of every run; takes time and memory.
    pub traced: bool,
    /// Write the packets of the first run to this pcapng file.
    pub capture: Option<PathBuf>,
}

/// How packets come out of the kernel and go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Datapath {
    /// Each by itself, of at most the MTU: the reference.
    #[default]
    Plain,
    /// In super-packets of up to 64 KiB, as with segmentation offload: for rates above 1 Gbit/s.
    Offload,
}

/// Watches what takes long, and may end it early. Called from the threads that run.
pub trait Observer: Sync {
    /// Asked before each run: `false` lets those under way finish and begins no more.
    fn goes_on(&self) -> bool {
        true
    }

    /// A run has finished.
    fn progress(&self, _progress: Progress) {}

    /// A run of an experiment has finished, with this result.
    fn finished(&self, _run: &Run) {}

    /// What begins now, in a line.
    fn status(&self, _text: &str) {}

    /// A measurement begins.
    fn measuring(&self, _what: &str) {}

    /// The measurement has ended, with this rate unless it failed.
    fn measured(&self, _rate: Option<Rate>) {}

    /// Something that users should know, in a line.
    fn note(&self, _text: &str) {}
}

/// Nobody watches.
impl Observer for () {}

/// A run, and its trace as lines of comma-separated values if one is wanted.
pub(crate) type TracedRun = (TimedOutcome, String);

/// What the lab tells, as an [`Observer`] hears it.
pub(crate) struct ObserverRelay<'a, O> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) observer: &'a O,
}

impl<O: Observer> Watch<TracedRun> for &ObserverRelay<'_, O> {
    fn goes_on(&self) -> bool {
        self.observer.goes_on()
    }

    fn finished(&self, progress: Progress, run: &RunResult<TracedRun>) {
        self.observer.progress(progress);
        let label = self.experiment.points()[run.point].label.clone();
        self.observer.finished(&Run::of(label, run.seed, &run.value.0));
    }
}

/// All results of an experiment.
#[derive(Clone, Debug)]
pub struct Report {
    /// The document: every run and every expectation.
    pub document: results::Report,
    /// One for each point, over its runs.
    pub summaries: Vec<Summary>,
    traces: Vec<RunResult<String>>,
}

impl Report {
    /// Whether every expectation is met.
    pub fn holds(&self) -> bool {
        self.document.holds()
    }

    /// Writes `result.json`, `results.csv`, `results.jsonl` and `trace.csv` into `dir`, each whole or not at all.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, experiment: &Experiment, dir: &Path) -> Result<(), Error> {
        let report = &self.document;
        write_atomically(dir, "result.json", crate::json::document(report)?)?;
        write_atomically(dir, "results.csv", ResultTable { report })?;
        let lines = report.runs.iter().map(crate::json::line).collect::<Result<String, _>>()?;
        write_atomically(dir, "results.jsonl", lines)?;
        write_atomically(dir, "trace.csv", TraceTable { experiment, runs: &self.traces })
    }

    /// The report as one HTML page.
    ///
    /// # Errors
    /// A run that is made again for its curves panics: a defect.
    #[cfg(feature = "html")]
    pub fn html(
        &self,
        experiment: &Experiment,
        made: fullpipe_analysis::report::html::Provenance<'_>,
    ) -> Result<String, Error> {
        let render = fullpipe_analysis::report::html::render_experiment;
        Ok(render(experiment, &self.summaries, &self.document, made)?)
    }
}

/// Runs every point of `experiment` with every seed, or as many as `observer` has patience for.
///
/// ```
/// use fullpipe::lab::experiment::Experiment;
/// use fullpipe::{SimOptions, World, run};
///
/// let experiment = Experiment::from_toml(
///     "name = 'small'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n\
///      [[flow]]\ncc = ['reno', 'bbr1']\n",
/// )
/// .map_err(fullpipe::Error::from)?;
/// let report = run(&experiment, &World::Sim(SimOptions::default()), &())?;
/// assert_eq!(report.document.runs.len(), 2);
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// [`World::prepare`] and [`PreparedRun::run`] in one.
///
/// # Errors
/// As those.
pub fn run(experiment: &Experiment, world: &World, observer: &impl Observer) -> Result<Report, Error> {
    world.prepare(experiment, observer)?.run(observer)
}

/// The experiment in the file `path`; files that it names are found beside it.
///
/// # Errors
/// It cannot be read, or is no experiment.
pub fn read(path: &Path) -> Result<Experiment, Error> {
    let file = path.display();
    let text = fs::read_to_string(path).map_err(|e| {
        Error::new(
            format!("cannot read {file}: {e}"),
            "pass an experiment file: fullpipe run experiments/window-rtt.toml",
        )
    })?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let load = |name: &str| {
        let named = beside.join(name);
        fs::read_to_string(&named).map_err(|e| format!("cannot read {}: {e}", named.display()))
    };
    Experiment::from_toml_with(&text, &load).map_err(|e| Error::from(e).about(file))
}

fn simulated(scenario: &Scenario, traced: bool) -> TracedRun {
    let start = now();
    let mut trace = Csv::default();
    let outcome = if traced { sim::run_traced(scenario, &mut trace) } else { sim::run(scenario) };
    (TimedOutcome { outcome, wall_s: start.elapsed().as_secs_f64(), validity: None }, trace.into_text())
}

/// Makes one run of `point` on the emulator, and hands its trace rows to `sink`.
///
/// # Errors
/// This system is not Linux, or the machine does not let the process do it: see [`prepare`].
pub fn emulate(
    point: &Point,
    seed: u64,
    datapath: Datapath,
    sink: &mut impl Sink,
) -> Result<TimedOutcome, Error> {
    emu::one(point, seed, datapath, sink, None)
}

/// Checks that each of `points` can run on the emulator with its datapath, and acquires the rights for it. Call it before any
/// thread is started.
///
/// # Errors
/// As [`emulate`].
pub fn prepare<'p>(
    points: impl Iterator<Item = (&'p Point, Datapath)>,
    observer: &impl Observer,
) -> Result<(), Error> {
    emu::prepare(points, observer)
}

#[expect(clippy::disallowed_methods, reason = "how long a run takes is no part of its result")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
