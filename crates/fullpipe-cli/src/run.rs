//! `fullpipe run`: an experiment, its table, its document.

use std::fs;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Instant;

use fullpipe_lab::campaign::{self, Progress, RunResult};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::results::{Report, Timed, TraceTable, summaries};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::Csv;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Format, RunArgs, World};
use crate::failure::{EXPECTATION, Failure};
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

    let traced = args.out.is_some();
    let made = match args.world {
        World::Emu => emu::runs(&experiment, args.datapath.unwrap_or_default(), traced)?,
        World::Sim | World::Live => simulate(&experiment, traced)?,
    };
    let split = |RunResult { point, seed, value: (timed, trace) }| {
        (RunResult { point, seed, value: timed }, RunResult { point, seed, value: trace })
    };
    let (runs, traces): (Vec<_>, Vec<_>) = made.into_iter().map(split).unzip();
    let report = Report::new(&experiment, args.world.name(), &runs);
    let document = output::json(&report)?;
    if let Some(dir) = &args.out {
        output::write_atomically(dir, "result.json", &document)?;
        let traces = TraceTable { experiment: &experiment, runs: &traces };
        output::write_atomically(dir, "trace.csv", traces)?;
    }
    match args.format {
        Format::Json => output::print(&document)?,
        Format::Text => output::print(&output::table(&experiment, &summaries(&experiment, &runs), &report))?,
    }
    let failed = args.check && !report.holds();
    Ok(if failed { ExitCode::from(EXPECTATION) } else { ExitCode::SUCCESS })
}

fn read(args: &RunArgs) -> Result<Experiment, Failure> {
    let file = args.file.display();
    let text = fs::read_to_string(&args.file).map_err(|e| {
        Failure::new(
            format!("cannot read {file}: {e}"),
            "give an experiment file, as in fullpipe run experiments/window-rtt.toml",
        )
    })?;
    let experiment = Experiment::from_toml(&text).map_err(|e| Failure::from(e).about(file))?;
    let seeded = match args.seed {
        Some(seed) => experiment.with_seed(seed),
        None => experiment,
    };
    Ok(match args.repeat {
        Some(repeat) => seeded.with_repeat(repeat),
        None => seeded,
    })
}

/// One run: its result, and its trace as lines of comma-separated values.
pub(crate) type Made = RunResult<(Timed, String)>;

/// Makes every run; traces take time and memory, and are empty unless `traced`.
fn simulate(experiment: &Experiment, traced: bool) -> Result<Vec<Made>, Failure> {
    let timed = |scenario: &Scenario| {
        let start = now();
        let mut trace = Csv::default();
        let outcome = if traced { sim::run_traced(scenario, &mut trace) } else { sim::run(scenario) };
        (Timed { outcome, wall_s: start.elapsed().as_secs_f64(), validity: None }, trace.into_text())
    };
    let seeds = experiment.seeds();
    let bar = progress_bar(experiment.points().len() * seeds.len());
    let progress = |progress: Progress| bar.set_position(progress.done as u64);
    let runs = campaign::run(experiment.points(), &seeds, timed, progress);
    bar.finish_and_clear();
    Ok(runs?)
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
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left");
    let bar = ProgressBar::new(runs as u64);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
