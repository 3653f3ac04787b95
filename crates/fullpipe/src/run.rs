//! Runs experiments in the simulator, on the emulator, or on guests.
//!
//! ```text
//!   Experiment ─► World::Sim  virtual time, all cores, any system          ─┐
//!             ├─► World::Emu  real time, one run after another             ─┼─► Report ─► document, table, traces, page
//!             └─► World::Uml  virtual time, a kernel's TCP, all cores      ─┘
//! ```

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullpipe_lab::campaign::{self, JobWatch, Progress, RunResult, Watch};
use fullpipe_lab::experiment::{Experiment, Point};
use fullpipe_lab::results::{self, Run, Summary, TimedOutcome, Totals, summaries};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::{Csv, NoTrace, Row, Sink};
use fullpipe_units::{Duration, Rate};

use crate::capture::PcapNg;
use crate::run_files::ResultFiles;
use crate::trace_spool::{RunTrace, TraceSpool};
use crate::{Error, emu, uml};

/// Maximum size of an experiment file in bytes. The parsed form takes many times as much memory.
pub(crate) const LARGEST_EXPERIMENT: u64 = 1 << 20;
/// Maximum size of a rate trace in bytes: hours of delivery opportunities, one line each.
pub(crate) const LARGEST_RATE_TRACE: u64 = 64 << 20;

/// Environment in which an experiment runs: simulator, emulator or guest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum World {
    /// Simulator: virtual time, with fullpipe's TCP stack.
    Sim(SimOptions),
    /// Emulator: real time on an emulated path, with the kernel's or fullpipe's TCP stack. The emulator
    /// requires Linux and the privilege to create namespaces.
    Emu(EmuOptions),
    /// Guest: virtual time, with the TCP stack of an unmodified Linux kernel. A guest requires Linux on x86_64
    /// and a User-Mode Linux kernel, but no privileges. The calling program becomes the guest's init if it has
    /// called `fullpipe::linux::uml::run_if_guest` at the start of `main`; otherwise, the program
    /// `fullpipe-guest` becomes the init.
    Uml(UmlOptions),
}

impl World {
    /// Returns the name of this environment in options and documents: `sim`, `emu` or `uml`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sim(_) => "sim",
            Self::Emu(_) => "emu",
            Self::Uml(_) => "uml",
        }
    }

    const fn is_traced(&self) -> bool {
        match self {
            Self::Sim(SimOptions { traced, .. })
            | Self::Emu(EmuOptions { traced, .. })
            | Self::Uml(UmlOptions { traced, .. }) => *traced,
        }
    }

    /// Checks whether this environment can run `experiment`, acquires the necessary privileges, and creates
    /// the capture file. The function must be called before the process starts a thread. The emulator
    /// requires a user namespace if the process is unprivileged, and only a single-threaded process can
    /// create a user namespace.
    ///
    /// # Errors
    /// Returns an error if the experiment has too many runs, if this environment cannot run it, if the
    /// process lacks the privileges, or if the capture file cannot be written.
    pub fn prepare<'a>(
        &'a self,
        experiment: &'a Experiment,
        observer: &impl Observer,
    ) -> Result<PreparedRun<'a>, Error> {
        experiment.check_size()?;
        if self.is_traced() {
            experiment.check_trace_size()?;
        }
        let capture = match self {
            Self::Sim(SimOptions { capture, .. })
            | Self::Emu(EmuOptions { capture, .. })
            | Self::Uml(UmlOptions { capture, .. }) => capture.as_deref(),
        };
        let capture = capture.map(PcapNg::begin).transpose()?;
        let mut guest = None;
        match self {
            Self::Sim(_) => experiment.check_simulated()?,
            Self::Emu(options) => {
                let points = experiment.points().iter();
                emu::prepare(points.map(|point| (point, options.datapath)), observer)?;
            }
            Self::Uml(options) => guest = Some(uml::prepare(options, experiment, observer)?),
        }
        Ok(PreparedRun { experiment, world: self, capture, guest })
    }
}

/// An experiment that [`World::prepare`] has checked and prepared.
pub struct PreparedRun<'a> {
    experiment: &'a Experiment,
    world: &'a World,
    capture: Option<PcapNg>,
    /// Kernel of the guests; `None` unless the world is [`World::Uml`].
    guest: Option<uml::Guest>,
}

impl PreparedRun<'_> {
    /// Runs every point of the experiment with every seed, unless `observer` stops the experiment early.
    ///
    /// # Errors
    /// Returns an error if a run fails or panics because of a defect, or if the capture file cannot be
    /// written.
    pub fn run(self, observer: &impl Observer) -> Result<Report, Error> {
        let Self { experiment, world, mut capture, guest } = self;
        let observed = ObserverRelay { experiment, observer };
        let mut kernel = None;
        let made = match world {
            World::Sim(options) => {
                let runner = |scenario: &Scenario| {
                    let (timed, trace) = simulated(scenario, options.traced, observer);
                    (timed, RunTrace::Text(trace))
                };
                campaign::run(experiment.points(), &experiment.seeds(), runner, &observed)?
            }
            World::Emu(options) => emu::runs(options, capture.as_mut(), &observed)?,
            World::Uml(options) => {
                let Some(guest) = &guest else { unreachable!("prepare has found the kernel") };
                let (made, of_guests) = uml::runs(guest, options, capture.as_mut(), &observed)?;
                kernel = of_guests;
                made
            }
        };
        let has_first = made.first().is_some_and(|run| is_first(experiment, run));
        finish_capture(capture.filter(|_| has_first), experiment, world, observer)?;
        let (runs, traces): (Vec<_>, Vec<_>) = made.into_iter().map(split).unzip();
        let document = results::Report { kernel, ..results::Report::new(experiment, world.name(), &runs) };
        Ok(Report { document, summaries: summaries(experiment, &runs), traces })
    }

    /// Runs the experiment like [`PreparedRun::run`], but keeps only the summary of each point. With `out`,
    /// each run is written to the files of [`Report::write`] in this folder as it finishes. In the simulator,
    /// memory does not grow with the number of runs. If no run finishes, no file is written.
    ///
    /// # Errors
    /// Returns the errors of [`PreparedRun::run`] and [`Report::write`].
    pub fn run_to(self, out: Option<&Path>, observer: &impl Observer) -> Result<ReportTotals, Error> {
        let World::Sim(options) = self.world else {
            let report = self.run(observer)?;
            if let Some(dir) = out.filter(|_| !report.document.runs.is_empty()) {
                report.write(dir)?;
            }
            return Ok(report.into());
        };
        let Self { experiment, world, capture, .. } = self;
        let mut totals = Totals::new(experiment);
        let (mut files, mut has_first) = (None, false);
        let mut add = |run: RunResult<TracedRun>| -> Result<(), Error> {
            has_first |= is_first(experiment, &run);
            let (run, trace) = split(run);
            let entry = totals.add(&run);
            let Some(dir) = out else { return Ok(()) };
            if files.is_none() {
                files = Some(ResultFiles::create(dir)?);
            }
            files.as_mut().map_or(Ok(()), |files| files.add(&entry, &trace))
        };
        let mut failed = None;
        let take = |run| {
            failed = add(run).err();
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // If a run finishes before an earlier run, its rows wait in a file.
        let spool = out.map(TraceSpool::new).filter(|_| options.traced);
        let runner = |scenario: &Scenario| {
            let (timed, trace) = simulated(scenario, options.traced, observer);
            (timed, spool.as_ref().map_or_else(|| RunTrace::Text(String::new()), |spool| spool.store(trace)))
        };
        let observed = ObserverRelay { experiment, observer };
        campaign::run_in_order(experiment.points(), &experiment.seeds(), runner, &observed, take)?;
        if let Some(error) = failed {
            return Err(error);
        }
        finish_capture(capture.filter(|_| has_first), experiment, world, observer)?;
        let runs = totals.runs();
        let (document, summaries) = totals.finish(world.name());
        files.map_or(Ok(()), |files| files.commit(&document))?;
        Ok(ReportTotals { document, summaries, runs })
    }
}

/// Returns whether `run` is the run of the capture file: the first point with the first seed.
fn is_first<T>(experiment: &Experiment, run: &RunResult<T>) -> bool {
    run.point == 0 && Some(&run.seed) == experiment.seeds().first()
}

/// Writes the capture file. For this file, the simulator repeats the first run, which takes as long as the
/// run itself.
fn finish_capture(
    capture: Option<PcapNg>,
    experiment: &Experiment,
    world: &World,
    observer: &impl Observer,
) -> Result<(), Error> {
    let is_simulated = matches!(world, World::Sim(_));
    let Some(mut capture) = capture.filter(|_| !(is_simulated && observer.abandons())) else { return Ok(()) };
    if is_simulated {
        capture.simulate(experiment);
    }
    capture.finish(experiment, observer)
}

fn split(run: RunResult<TracedRun>) -> (RunResult<TimedOutcome>, RunResult<RunTrace>) {
    let RunResult { point, seed, value: (timed, trace) } = run;
    (RunResult { point, seed, value: timed }, RunResult { point, seed, value: trace })
}

/// Results of an experiment whose runs need not be in memory ([`PreparedRun::run_to`]).
#[derive(Clone, Debug)]
pub struct ReportTotals {
    /// JSON document; the list of runs is empty after [`PreparedRun::run_to`] in the simulator.
    pub document: results::Report,
    /// Summary of each point over its runs.
    pub summaries: Vec<Summary>,
    /// Number of finished runs.
    pub runs: usize,
}

impl From<Report> for ReportTotals {
    fn from(Report { document, summaries, .. }: Report) -> Self {
        Self { runs: document.runs.len(), document, summaries }
    }
}

impl ReportTotals {
    /// Renders the results as one HTML page.
    ///
    /// # Errors
    /// Returns an error if a run panics because of a defect; runs are repeated to draw their curves.
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

/// Options of a simulated experiment.
#[derive(Clone, Debug, Default)]
pub struct SimOptions {
    /// Whether to keep the trace rows of all runs; this takes time and memory.
    pub traced: bool,
    /// Path of a pcapng file to which the packets of the first run are written.
    pub capture: Option<PathBuf>,
}

/// Options of an emulated experiment.
#[derive(Clone, Debug, Default)]
pub struct EmuOptions {
    /// Form in which packets enter and leave the kernel: single packets or super-packets.
    pub datapath: Datapath,
    /// Whether to keep the trace rows of all runs; this takes time and memory.
    pub traced: bool,
    /// Path of a pcapng file to which the packets of the first run are written.
    pub capture: Option<PathBuf>,
}

/// Options of an experiment on guests.
#[derive(Clone, Debug, Default)]
pub struct UmlOptions {
    /// Path of a User-Mode Linux kernel; `None` to search `PATH` for it.
    pub kernel: Option<PathBuf>,
    /// Folder with the kernel modules; `None` for the folder of the kernel's package.
    pub modules: Option<PathBuf>,
    /// Real time after which a run is killed; `None` for two minutes plus one minute per simulated second.
    pub limit: Option<Duration>,
    /// Whether to keep the trace rows of all runs; this takes time and memory.
    pub traced: bool,
    /// Path of a pcapng file to which the packets of the first run are written.
    pub capture: Option<PathBuf>,
}

/// Form in which packets enter and leave the kernel: single packets or super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Datapath {
    /// Single packets of at most the MTU; this form serves as the reference.
    #[default]
    Plain,
    /// Super-packets of up to 64 KiB, as with segmentation offload; this form is for rates above 1 Gbit/s.
    Offload,
}

/// Observer of a long operation. It can stop the operation early. Worker threads call the methods of the
/// observer.
pub trait Observer: Sync {
    /// Returns whether to continue; called before each run. If the observer returns `false`, no further run
    /// starts, and runs in progress finish.
    fn goes_on(&self) -> bool {
        true
    }

    /// Returns whether to abandon the runs in progress; called frequently during a run. The results of
    /// abandoned runs are discarded, and those of finished runs are kept.
    fn abandons(&self) -> bool {
        false
    }

    /// Reports that a run has finished, with the number of finished runs.
    fn progress(&self, _progress: Progress) {}

    /// Reports that a run of an experiment has finished, with the results of that run.
    fn finished(&self, _run: &Run) {}

    /// Reports which step of the operation starts now, in one line.
    fn status(&self, _text: &str) {}

    /// Reports that a measurement of throughput starts.
    fn measuring(&self, _what: &str) {}

    /// Reports that a measurement of throughput has ended; `_rate` is `None` if the measurement failed.
    fn measured(&self, _rate: Option<Rate>) {}

    /// Passes a one-line note to the user.
    fn note(&self, _text: &str) {}
}

/// An observer that ignores all reports and never stops the operation.
impl Observer for () {}

/// Result of a run; if traces were requested, also the trace of the run as CSV lines.
pub(crate) type TracedRun = (TimedOutcome, RunTrace);

/// Forwards the progress of simulated jobs to an [`Observer`], which can abandon them.
pub(crate) struct JobRelay<'a, O>(pub(crate) &'a O);

impl<O: Observer> JobWatch for JobRelay<'_, O> {
    fn finished(&self, progress: Progress) {
        self.0.progress(progress);
    }

    fn abandons(&self) -> bool {
        self.0.abandons()
    }
}

/// Forwards the progress reports of the lab to an [`Observer`].
pub(crate) struct ObserverRelay<'a, O> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) observer: &'a O,
}

impl<O: Observer> ObserverRelay<'_, O> {
    /// Reports a run that is complete.
    pub(crate) fn made(&self, progress: Progress, point: usize, seed: u64, timed: &TimedOutcome) {
        self.observer.progress(progress);
        let label = self.experiment.points()[point].label.clone();
        self.observer.finished(&Run::of(label, seed, timed));
    }
}

/// Passes the notes from checking all points to the observer, each different note once.
#[cfg(target_os = "linux")]
pub(crate) fn note_once<E: Into<Error>>(
    checks: impl Iterator<Item = Result<Vec<String>, E>>,
    observer: &impl Observer,
) -> Result<(), Error> {
    let notes = checks.collect::<Result<Vec<_>, E>>().map_err(Into::into)?;
    notes.into_iter().flatten().collect::<BTreeSet<_>>().iter().for_each(|note| observer.note(note));
    Ok(())
}

impl<O: Observer, T> Watch<(TimedOutcome, T)> for &ObserverRelay<'_, O> {
    fn goes_on(&self) -> bool {
        self.observer.goes_on()
    }

    fn abandons(&self) -> bool {
        self.observer.abandons()
    }

    fn finished(&self, progress: Progress, run: &RunResult<(TimedOutcome, T)>) {
        self.made(progress, run.point, run.seed, &run.value.0);
    }
}

/// Results of an experiment: the JSON document, the summaries and the traces.
#[derive(Clone, Debug)]
pub struct Report {
    /// JSON document with all runs and expectations.
    pub document: results::Report,
    /// Summary of each point over its runs.
    pub summaries: Vec<Summary>,
    traces: Vec<RunResult<RunTrace>>,
}

impl Report {
    /// Returns whether all expectations of the experiment are met.
    pub fn holds(&self) -> bool {
        self.document.holds()
    }

    /// Writes `result.json`, `results.csv`, `results.jsonl` and `trace.csv` to the folder `dir`, each of them
    /// atomically.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let mut files = ResultFiles::create(dir)?;
        for (run, trace) in self.document.runs.iter().zip(&self.traces) {
            files.add(run, trace)?;
        }
        files.commit(&results::Report { runs: Vec::new(), ..self.document.clone() })
    }
}

/// Runs every point of `experiment` with every seed, unless `observer` stops it early.
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
/// The function combines [`World::prepare`] and [`PreparedRun::run`].
///
/// # Errors
/// Returns the same errors as [`World::prepare`] and [`PreparedRun::run`].
pub fn run(experiment: &Experiment, world: &World, observer: &impl Observer) -> Result<Report, Error> {
    world.prepare(experiment, observer)?.run(observer)
}

/// Reads the experiment in the file `path`. File names in the experiment are relative to the folder
/// of that file.
///
/// # Errors
/// Returns an error if the file cannot be read or does not contain a valid experiment.
pub fn read(path: &Path) -> Result<Experiment, Error> {
    read_hinting(path, "pass an experiment file, for example experiments/window-rtt.toml")
}

/// Reads the experiment in the file `path`, like [`read`]. `hint` is the hint for a file that cannot be read.
pub(crate) fn read_hinting(path: &Path, hint: &str) -> Result<Experiment, Error> {
    let file = path.display();
    let text = read_at_most(LARGEST_EXPERIMENT, path)
        .map_err(|e| Error::new(format!("cannot read {file}: {e}"), hint))?;
    Experiment::from_toml_with(&text, &beside(path)).map_err(|e| Error::from(e).about(file))
}

/// Returns a function that reads files whose names are relative to the folder of the file `path`.
pub(crate) fn beside(path: &Path) -> impl Fn(&str) -> Result<String, String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    move |name| {
        let named = folder.join(name);
        read_at_most(LARGEST_RATE_TRACE, &named).map_err(|e| format!("cannot read {}: {e}", named.display()))
    }
}

/// Reads a text file of at most `most` bytes.
pub(crate) fn read_at_most(most: u64, path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("the file is larger than {} MiB", most >> 20)));
    }
    Ok(text)
}

fn simulated(scenario: &Scenario, traced: bool, observer: &impl Observer) -> (TimedOutcome, String) {
    let mut trace = Csv::default();
    let timed =
        if traced { timed(scenario, &mut trace, observer) } else { timed(scenario, &mut NoTrace, observer) };
    (timed, trace.into_text())
}

/// Simulates a run, and passes its trace rows to `rows`.
pub(crate) fn timed(scenario: &Scenario, rows: &mut dyn Sink, observer: &impl Observer) -> TimedOutcome {
    let start = now();
    let outcome = sim::run_traced(scenario, &mut Attended { rows, observer });
    TimedOutcome { outcome, wall_s: start.elapsed().as_secs_f64(), validity: None }
}

/// Trace sink of a run that the observer may abandon.
pub(crate) struct Attended<'a, O> {
    pub(crate) rows: &'a mut dyn Sink,
    pub(crate) observer: &'a O,
}

impl<O: Observer> Sink for Attended<'_, O> {
    fn row(&mut self, row: &Row) {
        self.rows.row(row);
    }

    fn goes_on(&self) -> bool {
        !self.observer.abandons()
    }
}

/// Runs `point` once on the emulator, and passes the trace rows of the run to `sink`.
///
/// # Errors
/// Returns an error if this system is not Linux, or if the process lacks the privileges (see [`prepare`]).
pub fn emulate(
    point: &Point,
    seed: u64,
    datapath: Datapath,
    sink: &mut dyn Sink,
) -> Result<TimedOutcome, Error> {
    emu::one(point, seed, datapath, sink, None)
}

/// Checks whether the emulator can run each of `points` with its datapath, and acquires the necessary
/// privileges. The function must be called before the process starts a thread.
///
/// # Errors
/// Returns the same errors as [`emulate`].
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
