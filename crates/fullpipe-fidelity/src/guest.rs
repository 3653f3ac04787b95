//! Compares the simulator with the kernel of a guest, seed by seed.
//!
//! A guest takes virtual time, so its runs are repeatable, may be concurrent, and are never disturbed by other
//! load. Each run has the path and the losses of the simulated run with the same seed, so the two are a pair:
//!
//! ```text
//!   point, seed ──► guest ─────┬──► deviation of the pair ──► median over the seeds of a cell
//!         └───────► simulator ─┘└─► first packet that differs
//! ```
//!
//! Rungs of ladders and situations run on guests in the same way as on the emulator.

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use fullpipe::Error;
use fullpipe::lab::campaign::{self, Job, Progress};
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::pair::{PacketLog, Parting, parting};
use fullpipe::lab::results::{Run, TimedOutcome};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::sim;
use fullpipe::lab::stats;
use fullpipe::lab::trace::{NoTrace, Row};
use fullpipe::linux::uml::{self, Kernel, Options};
use fullpipe::units::Duration;
use fullpipe_fidelity::cells::{self, Verdict};
use fullpipe_fidelity::classifier_validation::{self, NamedLimit};
use serde::{Deserialize, Serialize};

use crate::args::{FidelityArgs, KernelWorld};
use crate::kernel::{RunDetail, RunRequest, Runs, keep, kept};
use crate::progress::bar;

/// Name of the file that stores the guests' runs.
const KEPT: &str = "uml.jsonl";
/// Allowed deviation of the goodput of cells without loss, and of their retransmissions. A few segments more or
/// less count as equal.
const LOSSLESS: f64 = 0.02;
const RETRANSMITS: f64 = 0.10;
const FEW_RETRANSMITS: f64 = 3.0;
/// Allowed median of the deviations of a cell with loss.
const LOSSY: f64 = 0.03;
/// Difference in time of packets that count as equal.
const TOLERANCE: Duration = Duration::from_millis(1);

/// One line of the file that stores the guests' runs.
#[derive(Clone, Serialize, Deserialize)]
struct GuestRecord {
    /// Identity of the scenario, with its seed.
    scenario: String,
    /// Kernel of the guest.
    kernel: String,
    /// First packet that differed from the simulated run when the run was stored; `None` if they were not
    /// compared.
    parting: Option<String>,
    /// Limit that the classifier reported for the run, if a classification was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<NamedLimit>,
    run: Run,
}

/// Which results of a run are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuestDetail {
    /// The metrics of the run, and perhaps the limit that the classifier reports.
    Run(RunDetail),
    /// The metrics of the run, and the first packet that differs from the simulated run.
    Parting,
}

impl GuestRecord {
    fn answers(&self, asked: GuestDetail) -> bool {
        match asked {
            GuestDetail::Run(RunDetail::Figures) => true,
            GuestDetail::Run(RunDetail::Limit) => self.named.is_some(),
            GuestDetail::Parting => self.parting.is_some(),
        }
    }
}

pub(crate) fn options(args: &FidelityArgs) -> Options {
    Options { kernel: args.kernel.clone(), ..Options::default() }
}

/// Returns the points as the simulator has to run them to be compared with the kernel that `args` select: if
/// that is the kernel of a guest, with its receive-window rules, and without the points that are too fast.
pub(crate) fn points(experiment: &Experiment, args: &FidelityArgs) -> Result<Vec<Point>, Error> {
    if args.world != KernelWorld::Uml {
        return Ok(experiment.points().to_vec());
    }
    let kernel = Kernel::find(&options(args))?;
    let on_guest =
        |point: &Point| Point { scenario: uml::simulated(&kernel, &point.scenario), ..point.clone() };
    let wanted = experiment
        .points()
        .iter()
        .filter(|point| args.max_rate.is_none_or(|most| point.scenario.path.forward.rate <= most));
    Ok(wanted.map(on_guest).collect())
}

/// Returns the requested runs on guests.
pub(crate) fn runs<'w>(
    wanted: &'w [RunRequest],
    args: &FidelityArgs,
    asked: RunDetail,
) -> Result<Runs<'w>, Error> {
    let options = options(args);
    let kernel = Kernel::find(&options)?;
    for wanted in wanted {
        uml::check(&kernel, wanted.point())?;
    }
    let records = records(wanted, &kernel, &options, GuestDetail::Run(asked), args)?;
    let name = records.first().map_or_else(|| kernel.release.clone(), |record| record.kernel.clone());
    let made = records.into_iter().map(|record| (record.run, record.named)).collect();
    Ok(Runs::of_guests(wanted, made, name))
}

/// Returns the table of all cells, and whether all of them agree.
pub(crate) fn table(
    experiment: &Experiment,
    wanted: &[RunRequest],
    command: &str,
    args: &FidelityArgs,
) -> Result<(String, Verdict), Error> {
    let options = Options { logged: true, ..options(args) };
    let kernel = Kernel::find(&options)?;
    for point in experiment.points() {
        uml::check(&kernel, point)?;
    }
    let records = records(wanted, &kernel, &options, GuestDetail::Parting, args)?;
    let simulated = simulated(wanted, &kernel)?;
    let name = records.first().map_or("none", |record| &record.kernel);
    let mut text = format!("Guest: {name}; {} runs; `{command}` makes this table.\n\n", records.len());
    text.push_str(
        "| cell | path | cc | goodput sim / guest | deviation of each seed (median) | retransmits sim / guest | \
         first packet that differs | asked | |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut agreeing = 0;
    for point in experiment.points() {
        let pairs: Vec<_> = wanted
            .iter()
            .zip(records.iter().zip(&simulated))
            .filter(|(wanted, _)| wanted.label() == point.label)
            .map(|(_, pair)| pair)
            .collect();
        let holds = line(&mut text, point, &pairs);
        agreeing += usize::from(holds);
    }
    let cells = experiment.points().len();
    let _ = writeln!(text, "\n{agreeing} of {cells} cells agree.");
    Ok((text, Verdict::from(agreeing == cells)))
}

/// Adds a line for the cell, and returns whether simulator and guest agree in it.
fn line(text: &mut String, point: &Point, pairs: &[(&GuestRecord, &Run)]) -> bool {
    let goodput = |run: &Run| run.flows.iter().map(|flow| flow.goodput_bps).sum::<u64>() as f64;
    let repeats = |run: &Run| run.flows.iter().map(|flow| flow.retransmits).sum::<u64>() as f64;
    let mean = |values: &mut dyn Iterator<Item = f64>| stats::mean(values).unwrap_or(0.0);
    let of_sim = || pairs.iter().map(|(_, sim)| *sim);
    let of_guest = || pairs.iter().map(|(record, _)| &record.run);
    let (sim, guest) = (mean(&mut of_sim().map(goodput)), mean(&mut of_guest().map(goodput)));
    let (sim_repeats, guest_repeats) = (mean(&mut of_sim().map(repeats)), mean(&mut of_guest().map(repeats)));
    let deviations: Vec<f64> =
        pairs.iter().map(|(record, sim)| goodput(sim) / goodput(&record.run) - 1.0).collect();
    let sizes = deviations.iter().map(|deviation| deviation.abs()).collect();
    let median = stats::median(sizes).unwrap_or(f64::NAN);
    let (holds, asked) = if cells::varies(point) {
        (median <= LOSSY, format!("median {:.0} %", 100.0 * LOSSY))
    } else {
        let few = (sim_repeats - guest_repeats).abs() <= (RETRANSMITS * guest_repeats).max(FEW_RETRANSMITS);
        (median <= LOSSLESS && few, format!("{:.0} %, retransmits 10 %", 100.0 * LOSSLESS))
    };
    let each: Vec<String> = deviations.iter().map(|deviation| format!("{:+.1}", 100.0 * deviation)).collect();
    let first = pairs.first().and_then(|(record, _)| record.parting.clone()).unwrap_or_else(|| "none".into());
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} / {} | {} % ({:.1} %) | {sim_repeats:.0} / {guest_repeats:.0} | {first} | {asked} | {} |",
        point.parameters.get("point").unwrap_or(&point.label),
        cells::path(point),
        cells::flows(point),
        cells::mbit(sim),
        cells::mbit(guest),
        each.join(", "),
        100.0 * median,
        if holds { "agrees" } else { "**misses**" },
    );
    holds
}

/// Returns the guests' runs for the requests. Stored runs are reused; the others run on all cores, and each is
/// stored as soon as it ends.
fn records(
    wanted: &[RunRequest],
    kernel: &Kernel,
    options: &Options,
    asked: GuestDetail,
    args: &FidelityArgs,
) -> Result<Vec<GuestRecord>, Error> {
    let dir = &args.out;
    fs::create_dir_all(dir)
        .map_err(|e| Error::new(format!("cannot create {}: {e}", dir.display()), "choose another --out"))?;
    let file = dir.join(KEPT);
    let stored: Vec<GuestRecord> = kept(&file)?;
    let is = |record: &&GuestRecord, wanted: &RunRequest| {
        let same_kernel = record.kernel.split([' ', ',']).any(|word| word == kernel.release);
        same_kernel && record.scenario == wanted.scenario().identity()
    };
    let known = |wanted: &RunRequest| {
        stored.iter().rev().find(|record| record.answers(asked) && is(record, wanted)).cloned()
    };
    let mut made: Vec<Option<GuestRecord>> = wanted.iter().map(known).collect();
    let missing: Vec<usize> = (0..made.len()).filter(|&nth| made[nth].is_none()).collect();
    let jobs: Vec<Job> = missing
        .iter()
        .map(|&nth| Job { label: wanted[nth].label().into(), scenario: wanted[nth].scenario().clone() })
        .collect();
    let bar = bar(missing.len());
    let writing = Mutex::new(());
    let run = |scenario: &Scenario| {
        let label = wanted.iter().find(|wanted| wanted.scenario() == scenario).map(RunRequest::label);
        let record = record(kernel, options, scenario, label.unwrap_or_default(), asked)?;
        let _guard = writing.lock().unwrap_or_else(PoisonError::into_inner);
        keep(&file, &record)?;
        Ok::<_, Error>(record)
    };
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let progress = |Progress { done, .. }: Progress| bar.set_position(done as u64);
    for (nth, record) in missing.into_iter().zip(campaign::run_jobs(threads, &jobs, run, progress)?) {
        made[nth] = Some(record?);
    }
    bar.finish_and_clear();
    Ok(made.into_iter().flatten().collect())
}

/// Runs a scenario on a guest, and determines what is asked for.
fn record(
    kernel: &Kernel,
    options: &Options,
    scenario: &Scenario,
    label: &str,
    asked: GuestDetail,
) -> Result<GuestRecord, Error> {
    let mut rows: Vec<Row> = Vec::new();
    let of_guest = match asked {
        GuestDetail::Run(RunDetail::Limit) => uml::run(kernel, scenario, options, &mut rows),
        _ => uml::run(kernel, scenario, options, &mut NoTrace),
    }
    .map_err(Error::from)?;
    let parting = (asked == GuestDetail::Parting).then(|| {
        let mut log = PacketLog::default();
        sim::run_tapped(&uml::simulated(kernel, scenario), &mut NoTrace, &mut log);
        let parting = parting(&log.into_records(), &of_guest.packets, TOLERANCE);
        parting.as_ref().map_or_else(|| "none".into(), describe)
    });
    let timed = TimedOutcome { outcome: of_guest.outcome, wall_s: 0.0, validity: None };
    Ok(GuestRecord {
        scenario: scenario.identity(),
        kernel: of_guest.kernel,
        parting,
        named: classifier_validation::named(&rows, scenario),
        run: Run::of(label.into(), scenario.seed, &timed),
    })
}

/// Describes the first packet that differs in a few words.
fn describe(parting: &Parting) -> String {
    let packet = parting.either();
    let kind = if packet.len > 0 { "data" } else { "ACK" };
    let how = match (parting.left, parting.right) {
        _ if parting.is_timing() => "time",
        (Some(_), Some(_)) => "content",
        (Some(_), None) => "sim only",
        _ => "guest only",
    };
    format!("{:.3} s, {kind} {} ({how})", packet.at.as_secs_f64(), parting.number)
}

/// Simulates the requested runs on all cores, with the receive-window rules of the guest's kernel.
fn simulated(wanted: &[RunRequest], kernel: &Kernel) -> Result<Vec<Run>, Error> {
    let job = |wanted: &RunRequest| Job {
        label: wanted.label().into(),
        scenario: uml::simulated(kernel, wanted.scenario()),
    };
    let jobs: Vec<Job> = wanted.iter().map(job).collect();
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcomes = campaign::run_jobs(threads, &jobs, sim::run, |_| ())?;
    let run = |(wanted, outcome): (&RunRequest, _)| {
        wanted.run(&TimedOutcome { outcome, wall_s: 0.0, validity: None })
    };
    Ok(wanted.iter().zip(outcomes).map(run).collect())
}
