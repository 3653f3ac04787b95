//! `fullpipe run`: runs an experiment and prints the results as a table or a document.

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe::lab::campaign::Progress;
use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::results::Run;
use fullpipe::{EmuOptions, Observer, Report, SimOptions};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::args::{RunArgs, RunFormat, World};
use crate::failure::{EXPECTATION, Failure, INTERRUPTED};
use crate::interrupt;
use crate::output::{self, Notes};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    if args.datapath.is_some() && args.world != World::Emu {
        return Err(Failure::usage(
            "--datapath applies to --world emu only",
            "add --world emu or remove --datapath",
        ));
    }
    let experiment = read(args)?;
    if args.check && experiment.expectations().is_empty() {
        return Err(Failure::new(
            "--check requires an [[expect]], and the experiment has none",
            "add an [[expect]] or remove --check",
        )
        .about(args.file.display()));
    }

    let world = world(args);
    if matches!(world, fullpipe::World::Sim(_)) {
        experiment.check_simulated().map_err(|e| Failure::from(e).about(args.file.display()))?;
    }
    // Precedes the progress bar and the signal handler, which start threads: acquiring privileges
    // may require a single-threaded process.
    let prepared = world.prepare(&experiment, &Notes)?;
    let made = attended(&experiment, args, |observer| prepared.run(observer))?;
    let report = &made.document;
    if let Some(dir) = &args.out {
        made.write(&experiment, dir)?;
    }
    if let Some(path) = &args.html {
        output::write_html(path, |about| made.html(&experiment, about))?;
    }
    match args.format() {
        RunFormat::Json => output::print(&output::json(report)?)?,
        RunFormat::Jsonl => {}
        RunFormat::Text => {
            output::print(&output::table(&experiment, &made.summaries, report))?;
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

fn read(args: &RunArgs) -> Result<Experiment, Failure> {
    let experiment = fullpipe::run::read(&args.file)?;
    let seeded = match args.seed {
        Some(seed) => experiment.with_seed(seed),
        None => experiment,
    };
    Ok(match args.repeat {
        Some(repeat) => seeded.with_repeat(repeat),
        None => seeded,
    })
}

/// Returns the world that the options select.
fn world(args: &RunArgs) -> fullpipe::World {
    let (traced, capture) = (args.out.is_some(), args.pcapng.clone());
    match args.world {
        World::Emu => {
            let datapath = args.datapath.unwrap_or_default().into();
            fullpipe::World::Emu(EmuOptions { datapath, traced, capture })
        }
        World::Sim => fullpipe::World::Sim(SimOptions { traced, capture }),
    }
}

/// Makes the runs, with a progress bar and an interrupt handler.
fn attended(
    experiment: &Experiment,
    args: &RunArgs,
    make: impl FnOnce(&ProgressDisplay) -> Result<Report, fullpipe::Error>,
) -> Result<Report, Failure> {
    let bar = progress_bar(experiment.points().len() * experiment.seeds().len());
    let observer = ProgressDisplay {
        bar: bar.clone(),
        interrupted: interruptible(&bar)?,
        lines: args.format() == RunFormat::Jsonl,
    };
    let made = make(&observer);
    bar.finish_and_clear();
    Ok(made?)
}

/// Observer that shows progress, prints completed runs, and stops after Ctrl-C.
struct ProgressDisplay {
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    lines: bool,
}

impl Observer for ProgressDisplay {
    fn goes_on(&self) -> bool {
        !self.interrupted.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: Progress) {
        self.bar.set_position(progress.done as u64);
    }

    fn finished(&self, run: &Run) {
        if self.lines {
            let line = output::json_line(run);
            // Standard output is closed. The error is ignored here: the next write reports it, and
            // the result files still have to be written.
            let _ = line.and_then(|line| self.bar.suspend(|| output::print(&line)));
        }
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("note: {text}"));
    }
}

/// Returns a flag that the first Ctrl-C sets, which stops after the current runs and keeps
/// completed ones. The second Ctrl-C ends the process.
fn interruptible(bar: &ProgressBar) -> Result<Arc<AtomicBool>, Failure> {
    let bar = bar.clone();
    interrupt::noted(move || {
        bar.suspend(|| eprintln!("interrupted: finishing the runs under way; Ctrl-C again to end at once"));
    })
}

/// Creates a progress bar. It appears on a terminal only, because redrawn lines would clutter a
/// log.
pub(crate) fn progress_bar(runs: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {left} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", time_left);
    let bar = ProgressBar::new(runs as u64).with_style(style);
    // Shows the bar at once, with the clock running during the first run.
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    bar
}

/// Writes the estimated time left, or `?` until the first run has completed.
fn time_left(state: &ProgressState, out: &mut dyn fmt::Write) {
    // A write error only affects the progress bar, so it is ignored.
    let _ =
        if state.pos() == 0 { out.write_str("?") } else { write!(out, "{:#}", HumanDuration(state.eta())) };
}
