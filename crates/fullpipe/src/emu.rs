//! Runs experiments on the emulator, one run at a time, because concurrent runs would disturb each
//! other. Only the runs of races are concurrent.

mod harm;
mod lanes;
mod race;

use fullpipe_lab::campaign::{Progress, RunResult, Watch as _};
use fullpipe_lab::experiment::Point;
use fullpipe_lab::results::TimedOutcome;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::{Csv, NoTrace, Sink};
use fullpipe_linux::emu::{self, Options};
use fullpipe_linux::rights;

use crate::Error;
use crate::capture::PcapNg;
use crate::run::{Attended, Datapath, EmuOptions, Observer, ObserverRelay, TracedRun, note_once, now};
use crate::trace_spool::RunTrace;

pub(crate) use harm::{check_harm, expected_harm_time, harm_runs};
pub(crate) use race::{OwnArms, check_arms, pairs};

impl From<Datapath> for fullpipe_linux::Datapath {
    fn from(datapath: Datapath) -> Self {
        match datapath {
            Datapath::Plain => Self::Plain,
            Datapath::Offload => Self::Offload,
        }
    }
}

pub(crate) fn prepare<'p>(
    points: impl Iterator<Item = (&'p Point, Datapath)>,
    observer: &impl Observer,
) -> Result<(), Error> {
    note_once(points.map(|(point, datapath)| emu::check(point, datapath.into())), observer)?;
    Ok(rights::acquire()?)
}

pub(crate) fn runs(
    options: &EmuOptions,
    mut capture: Option<&mut PcapNg>,
    observed: &ObserverRelay<'_, impl Observer>,
) -> Result<Vec<RunResult<TracedRun>>, Error> {
    let points = observed.experiment.points();
    let seeds = observed.experiment.seeds();
    let total = points.len() * seeds.len();
    let mut made = Vec::new();
    for (number, point) in points.iter().enumerate() {
        for &seed in &seeds {
            if !observed.observer.goes_on() {
                return Ok(made);
            }
            let mut trace = Csv::default();
            // Only the packets of the first run are captured.
            let capture = capture.take();
            let observer = observed.observer;
            let timed = if options.traced {
                one(point, seed, options.datapath, &mut Attended { rows: &mut trace, observer }, capture)
            } else {
                one(point, seed, options.datapath, &mut Attended { rows: &mut NoTrace, observer }, capture)
            };
            if observed.observer.abandons() {
                return Ok(made);
            }
            let run = RunResult { point: number, seed, value: (timed?, RunTrace::Text(trace.into_text())) };
            observed.finished(Progress { done: made.len() + 1, total }, &run);
            made.push(run);
        }
    }
    Ok(made)
}

pub(crate) fn one(
    point: &Point,
    seed: u64,
    datapath: Datapath,
    sink: &mut dyn Sink,
    capture: Option<&mut PcapNg>,
) -> Result<TimedOutcome, Error> {
    let scenario = Scenario { seed, ..point.scenario.clone() };
    let options = Options { datapath: datapath.into(), ..Options::default() };
    let start = now();
    let run = match capture {
        Some(capture) => emu::run_captured(&scenario, options, sink, capture),
        None => emu::run(&scenario, options, sink),
    };
    let run = run.map_err(|error| Error::from(error).about(format_args!("run '{}'", point.label)))?;
    let wall_s = start.elapsed().as_secs_f64();
    Ok(TimedOutcome { outcome: run.outcome, wall_s, validity: Some(run.validity) })
}
