//! `fullpipe emu`, and `fullpipe run --world emu`: kernel TCP on an emulated path.

use std::collections::BTreeSet;
use std::process::ExitCode;

use fullpipe_lab::campaign::{Progress, RunResult, Watch};
use fullpipe_lab::experiment::{Experiment, Point};
use fullpipe_lab::results::Timed;
use fullpipe_lab::scenario::{PathSpec, Scenario};
use fullpipe_lab::trace::{Csv, NoTrace, Sink};
use fullpipe_linux::command::{self, Behind, Ended};
use fullpipe_linux::emu::{self, Options};
use fullpipe_linux::{Datapath, rights};

use crate::args::{DatapathName, EmuArgs, RunArgs};
use crate::failure::Failure;
use crate::pcapng::PcapNg;
use crate::run::{Kept, Made, now};

impl From<DatapathName> for Datapath {
    fn from(name: DatapathName) -> Self {
        match name {
            DatapathName::Plain => Self::Plain,
            DatapathName::Offload => Self::Offload,
        }
    }
}

/// Whether every point can be run here, each on its datapath, and the rights to do it.
pub(crate) fn prepare<'p>(points: impl Iterator<Item = (&'p Point, DatapathName)>) -> Result<(), Failure> {
    let notes = points.map(|(point, datapath)| emu::check(point, datapath.into()));
    let notes = notes.collect::<Result<Vec<_>, _>>()?;
    for note in notes.into_iter().flatten().collect::<BTreeSet<_>>() {
        eprintln!("note: {note}");
    }
    Ok(rights::acquire()?)
}

/// Makes every run, one after another: beside each other they would disturb each other.
pub(crate) fn runs(
    experiment: &Experiment,
    args: &RunArgs,
    mut capture: Option<&mut PcapNg>,
    watch: impl Watch<Kept>,
) -> Result<Vec<Made>, Failure> {
    let datapath = args.datapath.unwrap_or_default();
    let traced = args.out.is_some();
    let seeds = experiment.seeds();
    let total = experiment.points().len() * seeds.len();
    let mut made = Vec::new();
    for (number, point) in experiment.points().iter().enumerate() {
        for &seed in &seeds {
            if !watch.goes_on() {
                return Ok(made);
            }
            let mut trace = Csv::default();
            // The first run alone is captured.
            let capture = capture.take();
            let timed = if traced {
                one(point, seed, datapath, &mut trace, capture)
            } else {
                one(point, seed, datapath, &mut NoTrace, capture)
            };
            let run = RunResult { point: number, seed, value: (timed?, trace.into_text()) };
            watch.finished(Progress { done: made.len() + 1, total }, &run);
            made.push(run);
        }
    }
    Ok(made)
}

/// Makes one run.
pub(crate) fn one(
    point: &Point,
    seed: u64,
    datapath: DatapathName,
    sink: &mut impl Sink,
    capture: Option<&mut PcapNg>,
) -> Result<Timed, Failure> {
    let scenario = Scenario { seed, ..point.scenario.clone() };
    let options = Options { datapath: datapath.into(), ..Options::default() };
    let start = now();
    let run = match capture {
        Some(capture) => emu::run_captured(&scenario, options, sink, capture),
        None => emu::run(&scenario, options, sink),
    };
    let run = run.map_err(|error| Failure::from(error).about(format_args!("run '{}'", point.label)))?;
    let wall_s = start.elapsed().as_secs_f64();
    Ok(Timed { outcome: run.outcome, wall_s, validity: Some(run.validity) })
}

pub(crate) fn emu(args: &EmuArgs) -> Result<ExitCode, Failure> {
    if args.rtt.is_zero() {
        return Err(Failure::new("the rtt is zero", "allowed: 1us to 100s"));
    }
    rights::acquire()?;
    let queue = args.queue.resolve(args.rate * args.rtt);
    let path = PathSpec::symmetric(args.rate, args.rtt, args.loss, queue);
    let behind = Behind { path: &path, seed: args.seed, datapath: args.datapath.into() };
    let Ended { status, report, validity } = command::run(&behind, &args.command, args.serve.as_deref())?;
    let (forward, backward) = (report.forward.counters, report.backward.counters);
    let (late, stalls) = (validity.lateness, validity.stalls);
    eprintln!(
        "path: {} packets to the peer ({} lost, {} found the queue full), {} back; written late by p50 {}, p99 {}, \
         p99.9 {}, at most {}; hosts: woken late by p99 {}, at most {}, answered after p99 {}, at most {}",
        forward.offered,
        forward.random_drops,
        forward.queue_drops,
        backward.offered,
        late.p50,
        late.p99,
        late.p999,
        late.max,
        stalls.woken.p99,
        stalls.woken.max,
        stalls.answered.p99,
        stalls.answered.max
    );
    for problem in validity.problems() {
        eprintln!("not valid: {problem}");
    }
    Ok(ExitCode::from(status))
}
