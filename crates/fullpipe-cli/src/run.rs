//! `fullpipe run`: an experiment, its table, its document.

use std::fmt;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fullpipe_analysis::report::html::render_experiment;
use fullpipe_lab::campaign::{self, Progress, RunResult, Watch};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::results::{Report, ResultTable, Run, Timed, TraceTable, summaries};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::Csv;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::args::{RunArgs, RunFormat, World};
use crate::failure::{EXPECTATION, Failure, INTERRUPTED};
use crate::interrupt;
use crate::pcapng::{self, PcapNg};
use crate::{emu, output};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    match args.world {
        World::Sim | World::Emu => {}
        World::Live => {
            return Err(Failure::new(
                "the world 'live' is not built yet",
                "run it in the simulator: --world sim",
            ));
        }
    }
    if args.datapath.is_some() && args.world != World::Emu {
        return Err(Failure::usage("--datapath is for kernel packets", "add --world emu, or leave it out"));
    }
    let experiment = read(args)?;
    if args.check && experiment.expectations().is_empty() {
        return Err(Failure::new("there is nothing to check", "add an [[expect]] or leave --check out")
            .about(args.file.display()));
    }

    let mut capture = args.pcapng.as_deref().map(PcapNg::begin).transpose()?;
    let made = match args.world {
        World::Emu => {
            // Before anything starts a thread: rights may have to be asked for.
            let datapath = args.datapath.unwrap_or_default();
            emu::prepare(experiment.points().iter().map(|point| (point, datapath)))?;
            attended(&experiment, args, |watch| emu::runs(&experiment, args, capture.as_mut(), watch))?
        }
        World::Sim | World::Live => {
            experiment.check_simulated().map_err(|e| Failure::from(e).about(args.file.display()))?;
            attended(&experiment, args, |watch| simulate(&experiment, args, watch))?
        }
    };
    let split = |RunResult { point, seed, value: (timed, trace) }| {
        (RunResult { point, seed, value: timed }, RunResult { point, seed, value: trace })
    };
    let (runs, traces): (Vec<_>, Vec<_>) = made.into_iter().map(split).unzip();
    let report = Report::new(&experiment, args.world.name(), &runs);
    let document = output::json(&report)?;
    if let Some(dir) = &args.out {
        output::write_atomically(dir, "result.json", &document)?;
        output::write_atomically(dir, "results.csv", ResultTable { report: &report })?;
        let lines = report.runs.iter().map(output::json_line).collect::<Result<String, _>>()?;
        output::write_atomically(dir, "results.jsonl", lines)?;
        let traces = TraceTable { experiment: &experiment, runs: &traces };
        output::write_atomically(dir, "trace.csv", traces)?;
    }
    // An interrupt may have come before the first run.
    if let Some(mut capture) = capture.filter(|_| !runs.is_empty()) {
        if args.world == World::Sim {
            pcapng::simulate(&experiment, &mut capture);
        }
        capture.finish(&experiment)?;
    }
    let summaries = summaries(&experiment, &runs);
    if let Some(path) = &args.html {
        output::write_html(path, |made| render_experiment(&experiment, &summaries, &report, made))?;
    }
    match args.format() {
        RunFormat::Json => output::print(&document)?,
        RunFormat::Jsonl => {}
        RunFormat::Text => {
            output::print(&output::table(&experiment, &summaries, &report))?;
        }
    }
    if report.interrupted {
        let all = experiment.points().len() * experiment.seeds().len();
        eprintln!("interrupted: {} of {all} runs were made", report.runs.len());
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let failed = args.check && !report.holds();
    Ok(if failed { ExitCode::from(EXPECTATION) } else { ExitCode::SUCCESS })
}

/// The experiment in a file.
pub(crate) fn experiment(path: &Path) -> Result<Experiment, Failure> {
    let file = path.display();
    let text = fs::read_to_string(path).map_err(|e| {
        Failure::new(
            format!("cannot read {file}: {e}"),
            "give an experiment file, as in fullpipe run experiments/window-rtt.toml",
        )
    })?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let load = |name: &str| {
        let named = beside.join(name);
        fs::read_to_string(&named).map_err(|e| format!("cannot read {}: {e}", named.display()))
    };
    Experiment::from_toml_with(&text, &load).map_err(|e| Failure::from(e).about(file))
}

fn read(args: &RunArgs) -> Result<Experiment, Failure> {
    let experiment = experiment(&args.file)?;
    let seeded = match args.seed {
        Some(seed) => experiment.with_seed(seed),
        None => experiment,
    };
    Ok(match args.repeat {
        Some(repeat) => seeded.with_repeat(repeat),
        None => seeded,
    })
}

/// What a run is made into: its result, and its trace as lines of comma-separated values if one is wanted.
pub(crate) type Kept = (Timed, String);

/// One run.
pub(crate) type Made = RunResult<Kept>;

/// Makes every run, or as many as there is patience for, on all cores; traces take time and memory, and are
/// empty unless they are to be written.
fn simulate(experiment: &Experiment, args: &RunArgs, watch: &Attended<'_>) -> Result<Vec<Made>, Failure> {
    let traced = args.out.is_some();
    let timed = |scenario: &Scenario| -> Kept {
        let start = now();
        let mut trace = Csv::default();
        let outcome = if traced { sim::run_traced(scenario, &mut trace) } else { sim::run(scenario) };
        (Timed { outcome, wall_s: start.elapsed().as_secs_f64(), validity: None }, trace.into_text())
    };
    Ok(campaign::run(experiment.points(), &experiment.seeds(), timed, watch)?)
}

/// Lets `make` make runs while someone watches.
fn attended(
    experiment: &Experiment,
    args: &RunArgs,
    make: impl FnOnce(&Attended<'_>) -> Result<Vec<Made>, Failure>,
) -> Result<Vec<Made>, Failure> {
    let bar = progress_bar(experiment.points().len() * experiment.seeds().len());
    let watch = Attended {
        experiment,
        bar: bar.clone(),
        interrupted: interruptible(&bar)?,
        lines: args.format() == RunFormat::Jsonl,
    };
    let made = make(&watch);
    bar.finish_and_clear();
    made
}

/// Someone watches: shows how far it is, prints what is finished, and may be told to stop.
pub(crate) struct Attended<'a> {
    experiment: &'a Experiment,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    lines: bool,
}

impl Watch<Kept> for &Attended<'_> {
    fn goes_on(&self) -> bool {
        !self.interrupted.load(Ordering::Relaxed)
    }

    fn finished(&self, progress: Progress, run: &RunResult<Kept>) {
        self.bar.set_position(progress.done as u64);
        if self.lines {
            let run = RunResult { point: run.point, seed: run.seed, value: run.value.0.clone() };
            let line = output::json_line(&Run::new(self.experiment, &run));
            // Nobody is there any more to tell: the next writing will fail too, and the files are still to come.
            let _ = line.and_then(|line| self.bar.suspend(|| output::print(&line)));
        }
    }
}

/// The first Ctrl-C is noted, so that what is finished is kept; the second ends the process.
fn interruptible(bar: &ProgressBar) -> Result<Arc<AtomicBool>, Failure> {
    let bar = bar.clone();
    interrupt::noted(move || {
        bar.suspend(|| eprintln!("interrupted: finishing the runs under way; Ctrl-C again to end at once"));
    })
}

#[expect(clippy::disallowed_methods, reason = "how long a run takes is no part of its result")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// On a terminal only: in a log, redrawn lines are noise.
pub(crate) fn progress_bar(runs: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {left} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", time_left);
    let bar = ProgressBar::new(runs as u64).with_style(style);
    // There from the start, and the clock runs while the first run takes its time.
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    bar
}

/// Before anything has finished nothing is known, which is not "no time".
fn time_left(state: &ProgressState, out: &mut dyn fmt::Write) {
    // A bar that cannot be drawn is not drawn.
    let _ =
        if state.pos() == 0 { out.write_str("?") } else { write!(out, "{:#}", HumanDuration(state.eta())) };
}
