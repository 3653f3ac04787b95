//! `fullpipe run --dataset` and `fullpipe dataset`: make data sets and inspect them.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fullpipe::Observer;
use fullpipe::dataset::{Dataset, DatasetOptions, DatasetProgress, DatasetWatch, Made, Shard, check};
use fullpipe::lab::campaign::Progress;
use fullpipe::lab::experiment::Experiment;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{
    DatasetAction, DatasetArgs, DatasetCheckArgs, DatasetShowArgs, DatasetWatchArgs, RunArgs, RunWorld,
};
use crate::failure::{Failure, INTERRUPTED};
use crate::output::{self, quoted};
use crate::run::interruptible;

pub(crate) fn dataset(args: &DatasetArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        DatasetAction::Show(args) => show(args),
        DatasetAction::Check(args) => checked(args),
        DatasetAction::Watch(args) => watch(args),
    }
}

/// Makes the data set of `fullpipe run --dataset`.
pub(crate) fn make(args: &RunArgs, dir: &Path) -> Result<ExitCode, Failure> {
    if args.world != RunWorld::Sim {
        return Err(Failure::usage("--dataset applies to --world sim only", "remove --world, or use --out"));
    }
    let options = &args.dataset;
    let shard = options.shard.as_deref().map_or(Ok(Shard::ALL), str::parse)?;
    let dataset = Dataset::plan(
        &args.file,
        &DatasetOptions {
            points: options.points.clone(),
            seed: args.seed,
            repeat: args.repeat,
            trace: options.trace,
            part_packets: options.part_packets,
        },
    )?;
    let manifest = dataset.manifest();
    dataset.prepare(dir)?;
    let parts = (0..manifest.parts.len()).filter(|part| shard.has(*part)).count();
    let of_shard =
        if shard == Shard::ALL { String::new() } else { format!(", {parts} of them in this shard") };
    eprintln!(
        "{} in {}{of_shard}",
        counted(manifest.runs, "run"),
        counted(manifest.parts.len() as u64, "part")
    );
    let bar = progress_bar();
    let observer = Display { interrupts: interruptible(&bar)?, bar: bar.clone() };
    let made = dataset.make(dir, shard, options.threads, &observer);
    bar.finish_and_clear();
    let Made { made, existed, missing } = made?;
    let mut text = format!("{}: {} made", dir.display(), counted(made, "part"));
    if existed > 0 {
        text.push_str(&format!(", {existed} existed"));
    }
    output::print(&(text + "\n"))?;
    if missing > 0 {
        eprintln!(
            "interrupted with {} missing; to continue, run the same command again",
            counted(missing, "part")
        );
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an experiment that consists only of the run to which a row belongs.
pub(crate) fn experiment(dir: &Path, row: u64) -> Result<Experiment, Failure> {
    Ok(Dataset::open(dir)?.experiment(row)?)
}

fn show(args: &DatasetShowArgs) -> Result<ExitCode, Failure> {
    let dataset = Dataset::open(&args.dir)?;
    let origin = dataset.origin(args.row)?;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<10} {value}\n"));
    line("experiment", &dataset.manifest().experiment);
    line("point", &origin.label);
    line("seed", &origin.seed.to_string());
    line("run", &format!("{}, flow {}", origin.run, origin.flow));
    line("file", &format!("{}, row {}", origin.file, origin.row_in_file));
    line("command", &format!("fullpipe run {} --row {}", quoted(&args.dir.to_string_lossy()), args.row));
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn checked(args: &DatasetCheckArgs) -> Result<ExitCode, Failure> {
    let report = check(&args.dir)?;
    let mut text = String::new();
    report.problems.iter().for_each(|problem| text.push_str(&format!("{problem}\n")));
    if report.problems.is_empty() {
        let (parts, rows) = (counted(report.parts as u64, "part"), counted(report.rows, "row"));
        text = format!("{parts} with {rows}: complete\n");
    }
    output::print(&text)?;
    if report.problems.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let files = counted(report.problems.len() as u64, "file");
    Err(Failure::new(
        format!("{}: {files} missing, damaged or not part of the data set", args.dir.display()),
        "delete the damaged and the foreign files, then run the command that made the data set again",
    ))
}

/// Interval at which `watch` reads the folder; a part takes at least some seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval between the lines of `watch` if standard output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Shows the progress of a data set until it is complete.
#[expect(clippy::disallowed_methods, reason = "other processes make the data set in real time")]
fn watch(args: &DatasetWatchArgs) -> Result<ExitCode, Failure> {
    let mut watch = DatasetWatch::open(&args.dir)?;
    let is_terminal = io::stdout().is_terminal();
    let mut printed: Option<(Instant, u64)> = None;
    loop {
        let progress = watch.progress(SystemTime::now());
        let is_over = progress.is_complete() || args.once;
        let text = progress_line(&progress);
        // On a terminal, each line replaces the one before.
        if is_terminal {
            output::print(&format!("\r\x1b[K{text}{}", if is_over { "\n" } else { "" }))?;
        } else if is_over
            || printed.is_none_or(|(at, finished)| {
                at.elapsed() >= LINE_EVERY && finished != progress.finished_parts
            })
        {
            output::print(&format!("{text}\n"))?;
            printed = Some((Instant::now(), progress.finished_parts));
        }
        if is_over {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Formats progress: `12 of 40 parts, 3200 of 10000 runs, 520 runs/s, 3 min left`.
fn progress_line(progress: &DatasetProgress) -> String {
    let DatasetProgress { parts, finished_parts, runs, finished_runs, runs_per_second, left, idle } =
        progress;
    let mut text = format!(
        "{finished_parts} of {}, {finished_runs} of {}",
        counted(*parts, "part"),
        counted(*runs, "run")
    );
    if progress.is_complete() {
        return text + ": complete";
    }
    if let Some(rate) = runs_per_second {
        text.push_str(&format!(", {} runs/s", rounded(*rate)));
    }
    match (left, idle) {
        (Some(left), _) => text.push_str(&format!(", {} left", duration(*left))),
        (None, Some(idle)) => text.push_str(&format!(", newest part {} ago", duration(*idle))),
        (None, None) => {}
    }
    text
}

/// Formats a rate with three significant digits.
fn rounded(rate: f64) -> String {
    let decimals = if rate >= 100.0 {
        0
    } else if rate >= 10.0 {
        1
    } else {
        2
    };
    format!("{rate:.decimals$}")
}

/// Formats a duration to about two digits: `45 s`, `12 min`, `3 h 20 min`.
fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a number with its noun, in the singular or the plural.
fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// An observer that shows the progress. The first Ctrl-C ends the work after the parts in progress, and the
/// second one abandons these parts.
struct Display {
    bar: ProgressBar,
    /// Number of Ctrl-C signals received so far.
    interrupts: Arc<AtomicU8>,
}

impl Observer for Display {
    fn goes_on(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed) == 0
    }

    fn abandons(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed) > 1
    }

    fn progress(&self, progress: Progress) {
        self.bar.set_length(progress.total as u64);
        self.bar.set_position(progress.done as u64);
    }
}

/// Creates a progress bar, which appears only on a terminal.
fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {per_sec}, {eta} left");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_has_what_is_known() {
        let none = DatasetProgress {
            parts: 40,
            finished_parts: 0,
            runs: 10_000,
            finished_runs: 0,
            runs_per_second: None,
            left: None,
            idle: None,
        };
        assert_eq!(progress_line(&none), "0 of 40 parts, 0 of 10000 runs");
        let some = DatasetProgress {
            finished_parts: 12,
            finished_runs: 3_200,
            runs_per_second: Some(52.0612),
            left: Some(Duration::from_secs(185)),
            idle: Some(Duration::from_secs(5)),
            ..none
        };
        assert_eq!(progress_line(&some), "12 of 40 parts, 3200 of 10000 runs, 52.1 runs/s, 3 min left");
        let stalled = DatasetProgress { left: None, idle: Some(Duration::from_secs(8000)), ..some };
        assert!(progress_line(&stalled).ends_with("52.1 runs/s, newest part 2 h 13 min ago"));
        let complete = DatasetProgress { finished_parts: 40, finished_runs: 10_000, ..stalled };
        assert_eq!(progress_line(&complete), "40 of 40 parts, 10000 of 10000 runs: complete");
    }
}
