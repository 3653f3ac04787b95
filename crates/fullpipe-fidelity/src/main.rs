//! `fullpipe-fidelity` runs an experiment in the simulator and on the kernel, and writes a page that compares
//! the results. The pages are in `docs/evidence`.
//!
//! ```text
//!   points ──► simulated ─────────────────────┐
//!      └─────► kernel runs, kept in --out ────┴──► one cell per point                    (fidelity.md)
//!   points ──► ladders, simulated ────────────┐
//!      └─► logs, with --logs ──► ladders ─────┤
//!                └──► kernel runs of each rung┴──► one line per rung, with --ladder      (ladder.md)
//!   points ──► the limits in their tables ────┐
//!      └─► kernel runs ─► the classifier ─────┴──► one line per point, with --situations (situations.md)
//!      └─► every kind of input ─► diagnosis ──┴──► one line per kind, with --inputs      (situations.md)
//!      └─► fullpipe iperf3 ─► iperf3 -s ──────┴──► one line per point, with --live       (live.md)
//!   points ──► simulated ─────────────────────┐
//!      └─► guests in virtual time ────────────┴──► one cell per point, with --world uml  (guests.md),
//!                                                  which also runs the rungs and the situations
//! ```
//!
//! Kernel runs are ordered by seed and then by cell, so a page already contains all cells when half of the
//! runs have completed.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod args;
mod from_log;
mod golden;
mod guest;
mod inputs;
mod iperf3;
mod kernel;
mod ladder;
mod live;
mod page;
mod progress;
mod situations;

use std::io::stdout;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::Parser as _;
use fullpipe::files::write_to;
use fullpipe::lab::campaign::{self, Job};
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::results::{Run, TimedOutcome};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::sim;
use fullpipe::{Error, ErrorKind};
use fullpipe_fidelity::cells::{self, Verdict};

use crate::args::{FidelityArgs, KernelWorld};
use crate::kernel::{RunDetail, RunRequest};

/// Number of blocks of seeds that are simulated in addition to the block of the kernel runs.
const FURTHER_BLOCKS: u64 = 4;

/// Exit code of `--check` if the result does not meet the requirements.
const EXPECTATION: u8 = 5;
/// Exit code of `--check` if no cell disagrees, but some cells could not be compared because every attempt of
/// their kernel runs was disturbed.
const INCOMPLETE: u8 = 3;

fn main() -> ExitCode {
    // In a guest of --world uml, this program is init.
    fullpipe::linux::uml::run_if_guest();
    let args = match FidelityArgs::try_parse() {
        Ok(args) => args,
        // Help and version are printed as output instead of errors.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            let text = error.render().to_string();
            let what: Vec<&str> =
                text.lines().map_while(|line| Some(line.trim()).filter(|line| !line.is_empty())).collect();
            let message = what.join(" ");
            let message = message.trim_start_matches("error: ");
            return refuse(&Error::usage(message, "see fullpipe-fidelity --help"));
        }
    };
    compare(&args).unwrap_or_else(|error| refuse(&error))
}

fn refuse(error: &Error) -> ExitCode {
    eprintln!("error: {}", error.message);
    if !error.hint.is_empty() {
        eprintln!("hint: {}", error.hint);
    }
    ExitCode::from(match error.kind {
        ErrorKind::Usage => 2,
        ErrorKind::Rights => 4,
        _ => 1,
    })
}

/// Comparison with the kernel, as Markdown.
struct Comparison {
    table: String,
    verdict: Verdict,
    /// Whether the table is complete. A table that lacks runs does not replace a page.
    complete: bool,
}

impl From<(String, Verdict)> for Comparison {
    fn from((table, verdict): (String, Verdict)) -> Self {
        Self { table, verdict, complete: true }
    }
}

impl From<(String, bool)> for Comparison {
    fn from((table, holds): (String, bool)) -> Self {
        (table, Verdict::from(holds)).into()
    }
}

fn compare(args: &FidelityArgs) -> Result<ExitCode, Error> {
    let mut experiment = fullpipe::run::read(&args.file)?;
    if let Some(repeat) = args.repeat {
        experiment = experiment.with_repeat(repeat);
    }
    experiment.check_size()?;
    experiment.check_simulated()?;
    // iperf3 tests leave signal handlers behind. This call restores the default; otherwise, only SIGKILL
    // would end the campaign after such a test.
    fullpipe::linux::command::end_at_signals()?;
    const LADDER: &str = "The ladder against the kernel";
    const SITUATIONS: &str = "Situations on the kernel";
    const TABLE: &str = "table";
    let section = match (args.golden, args.logs, args.world) {
        (true, ..) => "golden ladder",
        (_, true, _) => "ladders from logs",
        (.., KernelWorld::Uml) if args.inputs => "answers for guests",
        _ if args.inputs => "answers",
        (.., KernelWorld::Uml) if args.ladder => "ladders",
        (.., KernelWorld::Uml) if args.situations => "situations",
        (.., KernelWorld::Uml) if args.strict => "strict cells",
        (.., KernelWorld::Uml) if has_published(&experiment) => "guests",
        _ => TABLE,
    };
    args.page.as_deref().map_or(Ok(()), |page| page::check(page, section))?;
    if args.strict && args.world != KernelWorld::Uml {
        return Err(Error::usage("--strict compares with a guest", "add --world uml"));
    }
    if args.again && args.world == KernelWorld::Uml {
        return Err(Error::usage("a guest repeats a run exactly", "remove --again, or choose another --out"));
    }
    let (title, comparison) = if args.golden {
        (LADDER, golden::table(&experiment, args)?)
    } else if args.logs {
        (LADDER, from_log::table(&experiment, args)?)
    } else if args.ladder {
        (LADDER, ladder::table(&experiment, args)?)
    } else if args.live {
        ("Situations measured live", live::table(&experiment, args)?.into())
    } else if args.inputs {
        (SITUATIONS, inputs::table(&experiment, args)?.into())
    } else if args.situations {
        (SITUATIONS, situations::table(&experiment, args)?.into())
    } else if args.world == KernelWorld::Uml {
        let strict = if args.strict { "--strict " } else { "" };
        let command = command(&format!("{}{strict}", args.world_option()), args);
        ("The simulator compared with a guest", guest::table(&experiment, &command, args)?.into())
    } else {
        ("Fidelity", cells(&experiment, args)?.into())
    };
    let Comparison { table, verdict, complete } = comparison;
    write_to(&mut stdout().lock(), "standard output", &table)?;
    match &args.page {
        Some(page) if complete => page::write(page, title, section, &table)?,
        Some(page) => eprintln!("note: runs are missing, so {} stays as it is", page.display()),
        None => {}
    }
    Ok(match verdict {
        Verdict::Fails if args.check => ExitCode::from(EXPECTATION),
        Verdict::Incomplete if args.check => ExitCode::from(INCOMPLETE),
        _ => ExitCode::SUCCESS,
    })
}

/// Returns whether the experiment contains published results, which its page then compares as well.
fn has_published(experiment: &Experiment) -> bool {
    experiment.expectations().iter().any(|expectation| expectation.published.is_some())
}

/// Returns the command that recreates the same table from stored runs.
fn command(mode: &str, args: &FidelityArgs) -> String {
    let repeat = args.repeat.map(|repeat| format!(" --repeat {repeat}")).unwrap_or_default();
    let most = args
        .max_rate
        .map(|most| format!(" --max-rate {}mbit", most.as_bps() / 1_000_000))
        .unwrap_or_default();
    format!("fullpipe-fidelity {mode}{}{repeat}{most}", args.file.display())
}

/// Returns the table of cells, and whether simulator and kernel agree in every cell.
fn cells(experiment: &Experiment, args: &FidelityArgs) -> Result<(String, Verdict), Error> {
    let wanted = wanted(experiment.points(), &experiment.seeds());
    let kernel = kernel::runs(&wanted, args, RunDetail::Figures)?;
    let sim = simulated(&wanted)?;
    let random: Vec<Point> =
        experiment.points().iter().filter(|point| cells::varies(point)).cloned().collect();
    let block = |seeds: Vec<u64>| simulated(&self::wanted(&random, &seeds));
    let blocks = cells::further_blocks(&experiment.seeds(), FURTHER_BLOCKS);
    let blocks = blocks.into_iter().map(block).collect::<Result<Vec<_>, _>>()?;
    let valid = kernel.valid();
    let cells = cells::cells(experiment, &sim, &blocks, &valid);
    let published = cells::published(experiment, &sim, &valid).map(|table| format!("\n{table}\n"));
    let command = command("", args);
    let table = kernel.heading(&command) + &cells::table(&cells);
    let verdict = Verdict::of(&cells, experiment.points().len());
    Ok((table + &published.unwrap_or_default() + &kernel.missing(), verdict))
}

/// Returns the requests for the runs of `points`, ordered by seed. Points without random loss are run only
/// with the first seed, because only timing differs between their runs.
fn wanted(points: &[Point], seeds: &[u64]) -> Vec<RunRequest> {
    let of_seed = |(nth, &seed): (usize, &u64)| {
        let told = points.iter().filter(move |point| nth == 0 || cells::varies(point));
        told.map(move |point| RunRequest::new(point, seed))
    };
    seeds.iter().enumerate().flat_map(of_seed).collect()
}

/// Runs the requested runs in the simulator, on all cores.
fn simulated(wanted: &[RunRequest]) -> Result<Vec<Run>, Error> {
    simulated_as(wanted, Scenario::clone)
}

/// Like [`simulated`], but first changes each scenario with `as_run`.
fn simulated_as(wanted: &[RunRequest], as_run: impl Fn(&Scenario) -> Scenario) -> Result<Vec<Run>, Error> {
    let job = |wanted: &RunRequest| Job { label: wanted.label().into(), scenario: as_run(wanted.scenario()) };
    let jobs: Vec<Job> = wanted.iter().map(job).collect();
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcomes = campaign::run_jobs(threads, &jobs, sim::run, |_| ())?;
    let run = |(wanted, outcome): (&RunRequest, _)| {
        wanted.run(&TimedOutcome { outcome, wall_s: 0.0, validity: None })
    };
    Ok(wanted.iter().zip(outcomes).map(run).collect())
}
