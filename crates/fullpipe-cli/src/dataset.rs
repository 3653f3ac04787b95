//! `fullpipe run --dataset` and `fullpipe dataset`: make data sets and inspect them.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use fullpipe::Observer;
use fullpipe::dataset::{Dataset, DatasetOptions, Made, Shard, check};
use fullpipe::lab::campaign::Progress;
use fullpipe::lab::experiment::Experiment;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{DatasetAction, DatasetArgs, DatasetCheckArgs, DatasetShowArgs, RunArgs, RunWorld};
use crate::failure::{Failure, INTERRUPTED};
use crate::output::{self, quoted};
use crate::run::interruptible;

pub(crate) fn dataset(args: &DatasetArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        DatasetAction::Show(args) => show(args),
        DatasetAction::Check(args) => checked(args),
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
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    bar
}
