//! `fullpipe run`: runs an experiment and prints the results as a table or a document.

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use fullpipe::lab::campaign::Progress;
use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::results::Run;
use fullpipe::{EmuOptions, Forecast, Observer, ReportTotals, SimOptions, TimeLeft, UmlOptions};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::args::{RunArgs, RunFormat, RunWorld};
use crate::dataset;
use crate::failure::{EXPECTATION, Failure, INTERRUPTED};
use crate::interrupt;
use crate::output::{self, Notes};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    check_world(args)?;
    if let Some(dir) = &args.dataset.dataset {
        return dataset::make(args, dir);
    }
    let experiment = read(args)?;
    if args.check && experiment.expectations().is_empty() {
        return Err(Failure::new(
            "--check requires an [[expect]], but the experiment has none",
            "add an [[expect]] or remove --check",
        )
        .about(args.file.display()));
    }

    let world = world(args);
    if matches!(world, fullpipe::World::Sim(_)) {
        experiment.check_simulated().map_err(|e| Failure::from(e).about(args.file.display()))?;
    }
    // The run is prepared before the progress bar and the signal handler start threads, because acquiring
    // privileges may require a single-threaded process.
    let prepared = world.prepare(&experiment, &Notes)?;
    let forecast = Forecast::new(&experiment, &world);
    eprintln!("{}", forecast_text(&forecast, &world));
    let (made, abandoned) = attended(forecast, args, |observer| match &args.out {
        // A JSON document that is printed needs all runs in memory.
        None if args.format() == RunFormat::Json => Ok(prepared.run(observer)?.into()),
        out => prepared.run_to(out.as_deref(), observer),
    })?;
    let report = &made.document;
    let any = made.runs > 0;
    match &args.html {
        // The charts of the HTML page would require another run of each point, which takes too long after an
        // abort.
        Some(path) if abandoned => eprintln!("note: {} is not written after a second Ctrl-C", path.display()),
        Some(path) => output::write_html(path, |about| made.html(&experiment, about))?,
        None => {}
    }
    match args.format() {
        RunFormat::Json => match args.out.as_ref().filter(|_| any) {
            Some(dir) => output::print_file(&dir.join("result.json"))?,
            None => output::print(&output::json(report)?)?,
        },
        RunFormat::Jsonl => {}
        RunFormat::Text if !any => {}
        RunFormat::Text => {
            output::print(&output::table(&experiment, &made.summaries, report))?;
        }
    }
    if report.interrupted {
        let all = experiment.runs();
        eprintln!("interrupted after {} of {all} runs", made.runs);
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let failed = args.check && !report.holds();
    Ok(if failed { ExitCode::from(EXPECTATION) } else { ExitCode::SUCCESS })
}

/// Checks that all given options are supported by the selected world.
fn check_world(args: &RunArgs) -> Result<(), Failure> {
    let only = |option: &str, world: &str| {
        let message = format!("{option} applies to --world {world} only");
        Err(Failure::usage(message, format!("add --world {world} or remove {option}")))
    };
    match args.world {
        world if args.datapath.is_some() && world != RunWorld::Emu => only("--datapath", "emu"),
        world if args.kernel.is_some() && world != RunWorld::Uml => only("--kernel", "uml"),
        world if args.modules.is_some() && world != RunWorld::Uml => only("--modules", "uml"),
        world if args.time_limit.is_some() && world != RunWorld::Uml => only("--time-limit", "uml"),
        _ => Ok(()),
    }
}

fn read(args: &RunArgs) -> Result<Experiment, Failure> {
    let experiment = match args.dataset.row {
        Some(row) => dataset::experiment(&args.file, row)?,
        None => fullpipe::run::read(&args.file)?,
    };
    let seeded = match args.seed {
        Some(seed) => experiment.with_seed(seed),
        None => experiment,
    };
    let experiment = match args.repeat {
        Some(repeat) => seeded.with_repeat(repeat),
        None => seeded,
    };
    experiment.check_size().map_err(|e| Failure::from(e).about(args.file.display()))?;
    Ok(experiment)
}

/// Returns the environment (simulator, emulator or guest) that the options select.
fn world(args: &RunArgs) -> fullpipe::World {
    let (traced, capture) = (args.out.is_some(), args.pcapng.clone());
    match args.world {
        RunWorld::Emu => {
            let datapath = args.datapath.unwrap_or_default().into();
            fullpipe::World::Emu(EmuOptions { datapath, traced, capture })
        }
        RunWorld::Sim => fullpipe::World::Sim(SimOptions { traced, capture }),
        RunWorld::Uml => {
            let (kernel, modules) = (args.kernel.clone(), args.modules.clone());
            fullpipe::World::Uml(UmlOptions { kernel, modules, limit: args.time_limit, traced, capture })
        }
    }
}

/// Formats the number of runs and their expected duration in one line.
fn forecast_text(forecast: &Forecast, world: &fullpipe::World) -> String {
    let Forecast { runs, run_time_s, wall_s, threads, .. } = *forecast;
    let runs = if runs == 1 { "1 run".into() } else { format!("{runs} runs") };
    let (clock, how) = match world {
        fullpipe::World::Emu(_) => ("real", "one after another".into()),
        _ if threads == 1 => ("virtual", "on 1 core".into()),
        _ => ("virtual", format!("on {threads} cores")),
    };
    format!("{runs}, {} s of {clock} time; takes about {} s {how}", seconds(run_time_s), seconds(wall_s))
}

/// Formats seconds with one to three significant digits below 10 s, and as a whole number above.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 9.95 => format!("{s:.0}"),
        s if s >= 0.095 => format!("{s:.1}").trim_end_matches(".0").into(),
        s if s >= 0.01 => format!("{s:.2}"),
        _ => "0.01".into(),
    }
}

/// Runs the experiment, with a progress bar and a handler for Ctrl-C. Returns the report and whether runs in
/// progress were abandoned.
fn attended(
    forecast: Forecast,
    args: &RunArgs,
    make: impl FnOnce(&ProgressDisplay) -> Result<ReportTotals, fullpipe::Error>,
) -> Result<(ReportTotals, bool), Failure> {
    let runs = forecast.runs;
    let left = Arc::new(Mutex::new(TimeLeft::new(forecast)));
    let bar = progress_bar(runs, &left);
    let interrupts = interruptible(&bar)?;
    let observer =
        ProgressDisplay { bar: bar.clone(), left, interrupts, lines: args.format() == RunFormat::Jsonl };
    let made = make(&observer);
    bar.finish_and_clear();
    Ok((made?, observer.abandons()))
}

/// Observer that shows the progress and prints completed runs. After the first Ctrl-C, only the runs in
/// progress are completed; the second Ctrl-C abandons them.
struct ProgressDisplay {
    bar: ProgressBar,
    left: Arc<Mutex<TimeLeft>>,
    /// Number of Ctrl-C signals received so far.
    interrupts: Arc<AtomicU8>,
    lines: bool,
}

impl Observer for ProgressDisplay {
    fn goes_on(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed) == 0
    }

    fn abandons(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed) > 1
    }

    fn progress(&self, progress: Progress) {
        self.bar.set_position(progress.done as u64);
    }

    fn finished(&self, run: &Run) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).finished(&run.point, run.wall_s);
        if self.lines {
            let line = output::json_line(run);
            // If standard output is closed, the error is ignored here. The next write reports the error, and
            // the result files still have to be written.
            let _ = line.and_then(|line| self.bar.suspend(|| output::print(&line)));
        }
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("note: {text}"));
    }
}

/// Returns the number of Ctrl-C signals. After the first Ctrl-C, only the runs in progress are completed;
/// the second Ctrl-C abandons them, and the third one ends the process. Completed runs are kept after the
/// first and after the second Ctrl-C.
pub(crate) fn interruptible(bar: &ProgressBar) -> Result<Arc<AtomicU8>, Failure> {
    let bar = bar.clone();
    interrupt::counted(move |number| {
        bar.suspend(|| match number {
            1 => eprintln!("interrupted: finishing the current runs; press Ctrl-C again to abandon them"),
            _ => {
                eprintln!("interrupted again: keeping the finished runs; press Ctrl-C again to exit at once");
            }
        });
    })
}

/// Creates a progress bar, which appears only on a terminal, because redrawn lines are noise in a log.
fn progress_bar(runs: u64, left: &Arc<Mutex<TimeLeft>>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {left} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", time_left(left));
    let bar = ProgressBar::new(runs).with_style(style);
    // The bar is shown immediately, and is redrawn periodically even during the first run.
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    bar
}

/// Returns a function that writes the estimated remaining time.
fn time_left(left: &Arc<Mutex<TimeLeft>>) -> impl Fn(&ProgressState, &mut dyn fmt::Write) + Clone + use<> {
    let left = Arc::clone(left);
    move |state, out| {
        let seconds =
            left.lock().unwrap_or_else(PoisonError::into_inner).seconds(state.elapsed().as_secs_f64());
        let left = std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9));
        // A write error affects only the progress bar, so it is ignored.
        let _ = write!(out, "{:#}", HumanDuration(left));
    }
}
