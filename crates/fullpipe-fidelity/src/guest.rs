//! Compares the simulator with the kernel of a guest, seed by seed.
//!
//! A guest takes virtual time, so its runs are repeatable, may be concurrent, and are never disturbed by
//! other load. Each run has the same path and the same losses as the simulated run with the same seed, so the
//! two runs form a pair:
//!
//! ```text
//!   point, seed ──► guest ─────┬──► deviation of the pair ──► median over the seeds of a cell
//!         └───────► simulator ─┘└─► first packet that differs
//! ```
//!
//! Rungs of ladders and situations run on guests in the same way as on the emulator.

use std::fmt::{self, Write as _};
use std::fs;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

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
use fullpipe::{Error, json};
use fullpipe_fidelity::cells::{self, Verdict};
use fullpipe_fidelity::classifier_validation::{self, NamedLimit};
use fullpipe_fidelity::iperf3_log;
use serde::{Deserialize, Serialize};

use crate::args::{FidelityArgs, KernelWorld};
use crate::kernel::{RunDetail, RunRequest, Runs, keep, kept};
use crate::progress::bar;

/// Name of the file that stores the guests' runs.
const KEPT: &str = "uml.jsonl";
/// Permitted relative deviation of goodput and retransmissions in cells without loss. A small difference in
/// the number of retransmitted segments is ignored.
const LOSSLESS: f64 = 0.02;
const RETRANSMITS: f64 = 0.10;
const FEW_RETRANSMITS: f64 = 3.0;
/// Permitted median of the relative deviations in a cell with loss.
const LOSSY: f64 = 0.03;
/// Allowed deviation of the mean goodput with `--strict`.
const STRICT: f64 = 0.01;
/// Value of `STRICT` for a rate-based control behind a send buffer below one BDP, whose rate depends on when the
/// kernel wakes the writer.
const STRICT_BY_RATE: f64 = 0.07;
/// Allowed deviation of the retransmissions of several flows with `--strict`: runs with several
/// flows diverge early.
const RETRANSMITS_OF_SEVERAL: f64 = 0.25;
/// Maximum difference in time between packets that count as equal.
const TOLERANCE: Duration = Duration::from_millis(1);

/// One line of the file that stores the guests' runs.
#[derive(Clone, Serialize, Deserialize)]
struct GuestRecord {
    /// Identity of the scenario, with its seed.
    scenario: String,
    /// Kernel of the guest.
    kernel: String,
    /// Description of the first packet that differed from the simulated run when the run was stored, or
    /// `none`; `None` if the two runs were not compared.
    parting: Option<String>,
    /// Limit that the classifier reported for the run, if a classification was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<NamedLimit>,
    run: Run,
}

/// Requested results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuestDetail {
    /// The metrics of the run and, depending on the detail, the limit that the classifier reports.
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

/// Returns the points to compare with the kernel that `args` select. If this kernel runs in a guest, the
/// points follow its receive-window rules, and points whose link is too fast are omitted.
pub(crate) fn points(experiment: &Experiment, args: &FidelityArgs) -> Result<Vec<Point>, Error> {
    if args.world != KernelWorld::Uml {
        return Ok(experiment.points().to_vec());
    }
    let kernel = found(args)?;
    let on_guest =
        |point: &Point| Point { scenario: uml::simulated(&kernel, &point.scenario), ..point.clone() };
    let wanted = experiment
        .points()
        .iter()
        .filter(|point| args.max_rate.is_none_or(|most| point.scenario.path.forward.rate <= most));
    Ok(wanted.map(on_guest).collect())
}

/// Returns the kernel of the guests.
pub(crate) fn found(args: &FidelityArgs) -> Result<Kernel, Error> {
    Ok(Kernel::find(&options(args))?)
}

/// Runs each of the scenarios once on a guest, on all cores, and passes the iperf3 log of each run to `store`
/// as soon as the run ends. Each log comes from the sending host, and contains a report every second.
pub(crate) fn logs(
    scenarios: &[Scenario],
    args: &FidelityArgs,
    store: impl Fn(&Scenario, &str) -> Result<(), Error> + Sync,
) -> Result<Vec<String>, Error> {
    let (options, kernel) = (options(args), found(args)?);
    let job = |scenario: &Scenario| Job { label: String::new(), scenario: scenario.clone() };
    let jobs: Vec<Job> = scenarios.iter().map(job).collect();
    let bar = bar(jobs.len());
    let writing = Mutex::new(());
    let run = |scenario: &Scenario| {
        let mut rows: Vec<Row> = Vec::new();
        let reported = Scenario { sample_every: iperf3_log::INTERVAL, ..scenario.clone() };
        uml::run(&kernel, &reported, &options, &mut rows)?;
        let log = json::line(&iperf3_log::document(&reported, &kernel.release, &rows))?;
        let _guard = writing.lock().unwrap_or_else(PoisonError::into_inner);
        store(scenario, &log)?;
        Ok::<_, Error>(log)
    };
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let progress = |Progress { done, .. }: Progress| bar.set_position(done as u64);
    let made = campaign::run_jobs(threads, &jobs, run, progress)?;
    bar.finish_and_clear();
    made.into_iter().collect()
}

/// Runs `wanted` in the simulator, with the receive-window rules of the kernel that `args` select.
pub(crate) fn paired(wanted: &[RunRequest], args: &FidelityArgs) -> Result<Vec<Run>, Error> {
    match args.world {
        KernelWorld::Emu => crate::simulated(wanted),
        KernelWorld::Uml => simulated(wanted, &found(args)?),
    }
}

/// Returns the requested runs on guests.
pub(crate) fn runs<'w>(
    wanted: &'w [RunRequest],
    args: &FidelityArgs,
    asked: RunDetail,
) -> Result<Runs<'w>, Error> {
    let (options, kernel) = (options(args), found(args)?);
    for wanted in wanted {
        uml::check(&kernel, wanted.point())?;
    }
    let records = records(wanted, &kernel, &options, GuestDetail::Run(asked), args)?;
    let name = records.first().map_or_else(|| kernel.release.clone(), |record| record.kernel.clone());
    let made = records.into_iter().map(|record| (record.run, record.named)).collect();
    Ok(Runs::of_guests(wanted, made, name))
}

/// Returns the table of all cells, and whether all of them agree. Cells that a guest cannot run are named below
/// the table.
pub(crate) fn table(
    experiment: &Experiment,
    command: &str,
    args: &FidelityArgs,
) -> Result<(String, Verdict), Error> {
    let options = Options { logged: true, ..options(args) };
    let kernel = found(args)?;
    let (mut points, mut refused) = (Vec::new(), String::new());
    for point in experiment.points() {
        match uml::check(&kernel, point) {
            Ok(_) => points.push(point.clone()),
            Err(error) => {
                let _ = writeln!(refused, "\nNot run on a guest: {}.", error.message);
            }
        }
    }
    let wanted = crate::wanted(&points, &experiment.seeds());
    let records = records(&wanted, &kernel, &options, GuestDetail::Parting, args)?;
    let simulated = simulated(&wanted, &kernel)?;
    let name = records.first().map_or("none", |record| &record.kernel);
    let mut text = format!("Guest: {name}; {} runs; `{command}` makes this table.\n\n", records.len());
    text.push_str(
        "| cell | path | cc | goodput sim / guest | deviation of each seed (median) | retransmits sim / guest | \
         first packet that differs | criterion | |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut agreeing = 0;
    for point in &points {
        let bounds = if args.strict { Bounds::strict(point) } else { Bounds::of(point) };
        let pairs: Vec<_> = wanted
            .iter()
            .zip(records.iter().zip(&simulated))
            .filter(|(wanted, _)| wanted.label() == point.label)
            .map(|(_, pair)| pair)
            .collect();
        let holds = line(&mut text, point, bounds, &pairs);
        agreeing += usize::from(holds);
    }
    let cells = points.len();
    let _ = writeln!(text, "\n{agreeing} of {cells} cells agree.");
    let guests =
        wanted.iter().zip(records).map(|(wanted, record)| Run { point: wanted.label().into(), ..record.run });
    if let Some(published) = cells::published(experiment, &simulated, &guests.collect::<Vec<_>>()) {
        let _ = write!(text, "\n{published}");
    }
    Ok((text + &refused, Verdict::from(agreeing == cells)))
}

/// Allowed deviations of the simulator in one cell, as shares of the guest's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    goodput: f64,
    /// Whether `goodput` applies to the median deviation over the seeds, instead of to the mean
    /// goodput.
    of_median: bool,
    /// Allowed deviation of the mean number of retransmissions; `None` if retransmissions are not compared.
    retransmits: Option<f64>,
    /// Difference between the mean numbers of retransmissions that is ignored.
    few: f64,
}

impl Bounds {
    /// Returns the bounds for the cell of `point` without `--strict`. Without loss, there is one run, whose
    /// deviation is also the median.
    fn of(point: &Point) -> Self {
        let varies = cells::varies(point);
        Self {
            goodput: if varies { LOSSY } else { LOSSLESS },
            of_median: true,
            retransmits: (!varies).then_some(RETRANSMITS),
            few: FEW_RETRANSMITS,
        }
    }

    /// Returns the bounds for the cell of `point` with `--strict`.
    fn strict(point: &Point) -> Self {
        let Scenario { path, host, flows, .. } = &point.scenario;
        let behind_buffer = host.sndbuf.limit() < path.forward.rate * path.rtt();
        let by_rate = flows.iter().any(|flow| flow.cc.is_rate_based());
        Self {
            goodput: if by_rate && behind_buffer { STRICT_BY_RATE } else { STRICT },
            of_median: false,
            retransmits: Some(if flows.len() > 1 { RETRANSMITS_OF_SEVERAL } else { RETRANSMITS }),
            few: 0.0,
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of_median && self.retransmits.is_none() {
            f.write_str("median ")?;
        }
        write!(f, "{:.0} %", 100.0 * self.goodput)?;
        self.retransmits.map_or(Ok(()), |share| write!(f, ", retransmits {:.0} %", 100.0 * share))
    }
}

/// Appends the line for a cell to `text`, and returns whether simulator and guest agree in this cell.
fn line(text: &mut String, point: &Point, bounds: Bounds, pairs: &[(&GuestRecord, &Run)]) -> bool {
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
    let of_mean = sim / guest - 1.0;
    let near = if bounds.of_median { median } else { of_mean.abs() } <= bounds.goodput;
    let as_many = bounds
        .retransmits
        .is_none_or(|share| (sim_repeats - guest_repeats).abs() <= (share * guest_repeats).max(bounds.few));
    let holds = near && as_many;
    let each: Vec<String> = deviations.iter().map(|deviation| format!("{:+.1}", 100.0 * deviation)).collect();
    let in_all = match bounds.of_median {
        true => format!("{:.1} %", 100.0 * median),
        false => format!("mean {:+.1} %", 100.0 * of_mean),
    };
    let first = pairs.first().and_then(|(record, _)| record.parting.clone()).unwrap_or_else(|| "none".into());
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} / {} | {} % ({in_all}) | {} / {} | {first} | {bounds} | {} |",
        point.parameters.get("point").unwrap_or(&point.label),
        cells::path(point),
        cells::flows(point),
        cells::mbit(sim),
        cells::mbit(guest),
        each.join(", "),
        count(sim_repeats),
        count(guest_repeats),
        if holds { "agrees" } else { "**misses**" },
    );
    holds
}

/// Returns a mean count with one decimal place if it is small.
fn count(mean: f64) -> String {
    if mean < 20.0 && mean.fract() != 0.0 { format!("{mean:.1}") } else { format!("{mean:.0}") }
}

/// Returns the guests' runs for the requests. Stored runs are reused; the other runs use all cores, and each
/// run is stored as soon as it ends.
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

/// Runs a scenario on a guest, and determines the requested results.
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

/// Describes, in a few words, the first packet that differs.
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
    crate::simulated_as(wanted, |scenario| uml::simulated(kernel, scenario))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(path: &str, host: &str, flow: &str) -> Point {
        let text = format!(
            "name = 'x'\nduration = '1s'\n[path]\nrate = '100mbit'\nrtt = '100ms'\n{path}\n[host]\n{host}\n[[flow]]\n{flow}"
        );
        Experiment::from_toml(&text).expect("valid").points()[0].clone()
    }

    /// Returns the line of a cell whose runs have these goodputs in Mbit/s and retransmissions.
    fn judged(point: &Point, bounds: Bounds, runs: &[[(f64, u64); 2]]) -> (bool, String) {
        let run = |(mbit, retransmits): (f64, u64)| {
            let timed = TimedOutcome { outcome: sim::run(&point.scenario), wall_s: 0.0, validity: None };
            let mut run = Run::of(point.label.clone(), 1, &timed);
            run.flows.truncate(1);
            run.flows[0].goodput_bps = (mbit * 1e6) as u64;
            run.flows[0].retransmits = retransmits;
            run
        };
        let pairs: Vec<(GuestRecord, Run)> = runs
            .iter()
            .map(|&[sim, guest]| {
                let (scenario, kernel, parting, named) = (String::new(), String::new(), None, None);
                (GuestRecord { scenario, kernel, parting, named, run: run(guest) }, run(sim))
            })
            .collect();
        let pairs: Vec<_> = pairs.iter().map(|(record, sim)| (record, sim)).collect();
        let mut text = String::new();
        (line(&mut text, point, bounds, &pairs), text)
    }

    #[test]
    fn strict_bounds_depend_on_the_kind_of_cell() {
        let (cubic, bbr) = ("cc = 'cubic'", "cc = 'bbr1'");
        let of = |host: &str, flow: &str| {
            let bounds = Bounds::strict(&point("", host, flow));
            (bounds.goodput, bounds.retransmits)
        };
        let (large, small) = ("sndbuf = '64MiB'", "sndbuf = '1MiB'");
        assert_eq!(of(large, cubic), (0.01, Some(0.1)));
        assert_eq!(of(small, cubic), (0.01, Some(0.1)));
        assert_eq!(of(large, bbr), (0.01, Some(0.1)));
        assert_eq!(of(small, bbr), (0.07, Some(0.1)));
        assert_eq!(of(large, "cc = 'cubic'\ncount = 10"), (0.01, Some(0.25)));
    }

    /// With `--strict`, the bounds apply to the means, and every retransmission counts. Otherwise, they apply
    /// to the median of the deviations, and a few retransmissions are ignored.
    #[test]
    fn a_cell_agrees_within_its_bounds() {
        let cell = point("", "", "cc = 'cubic'");
        let strict = |runs: &[[(f64, u64); 2]]| judged(&cell, Bounds::strict(&cell), runs).0;
        assert!(strict(&[[(99.1, 10), (100.0, 11)]]));
        assert!(!strict(&[[(98.9, 10), (100.0, 10)]]), "goodput");
        assert!(!strict(&[[(100.0, 10), (100.0, 12)]]), "retransmissions");
        assert!(strict(&[[(90.0, 0), (100.0, 0)], [(110.0, 0), (100.0, 0)]]), "the means are equal");
        let usual = |runs: &[[(f64, u64); 2]]| judged(&cell, Bounds::of(&cell), runs).0;
        assert!(usual(&[[(98.1, 10), (100.0, 13)]]) && !usual(&[[(100.0, 10), (100.0, 14)]]));
        let lossy = point("loss = '1%'", "", "cc = 'cubic'");
        let runs = [[(90.0, 0), (100.0, 9)], [(101.0, 0), (100.0, 0)], [(98.0, 0), (100.0, 0)]];
        let (holds, text) = judged(&lossy, Bounds::of(&lossy), &runs);
        assert!(holds && text.contains("| -10.0, +1.0, -2.0 % (2.0 %) | 0 / 3 |"), "{text}");
        assert!(text.ends_with("| none | median 3 % | agrees |\n"), "{text}");
        let (holds, text) = judged(&lossy, Bounds::strict(&lossy), &runs);
        assert!(!holds && text.contains("% (mean -3.7 %) |"), "{text}");
    }
}
