//! Compares ladders that are climbed from iperf3 logs with kernel runs in the states of their rungs.
//!
//! ```text
//!   cell ──► iperf3 test on the kernel ──► log ──► diagnosis ──► rungs ──┐
//!     └────────────── remedies of each rung, on the kernel ──────────────┴──► one line per rung
//! ```
//!
//! If the log has too few loss events, the diagnosis recommends a longer test, and its log replaces the first one.
//!
//! A guest runs no iperf3: its sockets are sampled every second, and [`iperf3_log`](fullpipe_fidelity::iperf3_log)
//! writes what iperf3 would print.
//!
//! The diagnosis gets the facts that a user knows: the log, the contracted rate of the link, the RTT that
//! ping reports, and the sysctl settings of the hosts. It does not know the loss, the queue and the rate caps
//! of the path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fullpipe::forecast::emulated_seconds;
use fullpipe::input::trace::Choice;
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::linux::rights;
use fullpipe::units::{Bytes, Duration};
use fullpipe::{Diagnosis, Error, HostFacts, Input, PathFacts, diagnose};
use fullpipe_fidelity::rung_runs::{self, CellLadder};
use fullpipe_fidelity::{drawn, ladder_validation};
use serde::{Deserialize, Serialize};

use crate::Comparison;
use crate::args::{FidelityArgs, KernelWorld};
use crate::guest;
use crate::iperf3::{self, cannot};
use crate::kernel::{ATTEMPTS, MOST_FAILURES, RunRequest, keep, kept};
use crate::ladder::{Compared, points};
use crate::progress::{Simulated, with_ladder};

/// Difference between the first seed of the experiment and the first seed of the kernel runs. A diagnosis
/// simulates with the first seeds of the experiment, and must not see the losses of the runs that it
/// predicts.
const APART: u64 = 1_000;
/// Typical number of rungs of a ladder, for estimating the duration of a campaign whose ladders are not known
/// yet.
const USUAL_RUNGS: u64 = 3;
/// Name of the file that stores the logs.
const KEPT: &str = "logs.jsonl";

/// Log of a cell as stored in the file of logs.
#[derive(Serialize, Deserialize)]
struct LogRecord {
    /// Identity of the run to which the log belongs ([`Scenario::identity`]).
    scenario: String,
    /// Document of the iperf3 client.
    log: String,
    /// Release of the guest's kernel; `None` for the host's kernel on the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guest: Option<String>,
}

/// A cell with its number, starting from 1.
struct Cell {
    number: usize,
    point: Point,
}

/// Returns the table of rungs with the kernel's results. The comparison holds if every rung was run and
/// enough of them meet their criterion.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<Comparison, Error> {
    let seeds = kernel_seeds(experiment);
    let cells = cells(experiment, args)?;
    let mut remarks = String::new();
    let mut ladders = climbed(&cells, &seeds, args, &mut remarks)?;
    // Where the diagnosis recommends a longer test, that test is the input.
    let longer: Vec<Cell> =
        ladders.iter().filter_map(|(number, climb)| longer(&cells, *number, climb)).collect();
    for cell in &longer {
        let _ = writeln!(
            remarks,
            "\nThe first log has few loss events, so the log lasts {}, as the diagnosis recommends: cell {}, {}.",
            cell.point.scenario.duration, cell.number, cell.point.label
        );
    }
    for (number, again) in climbed(&longer, &seeds, args, &mut remarks)? {
        ladders.insert(number, again);
    }
    let ladders: Vec<CellLadder> = ladders.into_values().map(|climb| climb.ladder).collect();
    let wanted = of_seeds(&points(&ladders), &seeds, args);
    let compared = Compared::run(&ladders, &wanted, args)?;
    let without = if args.without_sysctl { "--without-sysctl " } else { "" };
    let mode = format!("--ladder --logs {without}{}", args.world_option());
    let mut table = compared.table(&crate::command(&mode, args));
    if args.world == KernelWorld::Emu {
        table += &again(&cells, &compared);
    }
    table += &remarks;
    let complete = compared.has_all_runs() && ladders.len() == cells.len();
    let holds = complete && ladder_validation::is_proven(&compared.rungs);
    Ok(Comparison { table, verdict: holds.into(), complete })
}

/// A ladder that was climbed from a log.
struct Climb {
    ladder: CellLadder,
    /// Length of the test that the diagnosis recommends because this log has few loss events.
    longer_test: Option<Duration>,
}

/// Records the log of each cell, and returns the ladders by the number of the cell. `remarks` are extended by
/// a line for each cell without a log or a fit.
fn climbed(
    cells: &[Cell],
    seeds: &[u64],
    args: &FidelityArgs,
    remarks: &mut String,
) -> Result<BTreeMap<usize, Climb>, Error> {
    let seed = log_seed(seeds);
    let logs = match args.world {
        KernelWorld::Emu => logs(cells, seed, seeds.len() as u64, &args.out)?,
        KernelWorld::Uml => guest_logs(cells, seed, args)?,
    };
    let mut climbs = BTreeMap::new();
    for (Cell { number, point }, log) in cells.iter().zip(&logs) {
        let Some(log) = log else {
            let _ = writeln!(
                remarks,
                "\nNo log in {ATTEMPTS} undisturbed attempts: cell {number}, {}.",
                point.label
            );
            continue;
        };
        let climb = climb(point, log, !args.without_sysctl)?;
        if climb.ladder.steps.first().is_none_or(|first| first.rung.remedies.title().is_some()) {
            let _ = writeln!(
                remarks,
                "\nThe log has no fit, so its rate is not compared: cell {number}, {}.",
                point.label
            );
        }
        climbs.insert(*number, climb);
    }
    Ok(climbs)
}

/// Returns the cell `number` with the length of the test that its diagnosis recommends, if it recommends one.
fn longer(cells: &[Cell], number: usize, climb: &Climb) -> Option<Cell> {
    let duration = climb.longer_test?;
    let Cell { point, .. } = cells.iter().find(|cell| cell.number == number)?;
    let scenario = Scenario { duration, ..point.scenario.clone() };
    Some(Cell { number, point: Point { scenario, ..point.clone() } })
}

/// Returns the cells of `experiment` and the drawn cells, or only the one that `args` select, as the kernel
/// that `args` select runs them.
fn cells(experiment: &Experiment, args: &FidelityArgs) -> Result<Vec<Cell>, Error> {
    let only = args.cell;
    let first = experiment.points().first().map(|point| point.scenario.duration).unwrap_or_default();
    let drawn = drawn::experiment(drawn::SEED, first)?;
    let points = [guest::points(experiment, args)?, guest::points(&drawn, args)?].into_iter().flatten();
    let mut cells: Vec<Cell> = points.zip(1..).map(|(point, number)| Cell { number, point }).collect();
    let all = cells.len();
    cells.retain(|cell| only.is_none_or(|only| cell.number as u64 == only));
    if cells.is_empty() {
        let message = format!("cell {} does not exist", only.unwrap_or_default());
        return Err(Error::usage(message, format!("give a number from 1 to {all}")));
    }
    Ok(cells)
}

/// Returns the seeds of the kernel runs.
pub(crate) fn kernel_seeds(experiment: &Experiment) -> Vec<u64> {
    experiment.seeds().into_iter().map(|seed| seed.wrapping_add(APART)).collect()
}

/// Returns the seed of the run to which a log belongs; no kernel run of a rung has this seed.
fn log_seed(seeds: &[u64]) -> u64 {
    seeds.first().map_or(APART, |first| first.wrapping_sub(1))
}

/// Returns requests for the runs of `points`, ordered by seed. On the emulator, every point has every seed,
/// because the kernel's mean is compared even where nothing is random. A guest repeats such a run exactly.
pub(crate) fn of_seeds(points: &[Point], seeds: &[u64], args: &FidelityArgs) -> Vec<RunRequest> {
    if args.world == KernelWorld::Uml {
        return crate::wanted(points, seeds);
    }
    let of_seed = |&seed: &u64| points.iter().map(move |point| RunRequest::new(point, seed));
    seeds.iter().flat_map(of_seed).collect()
}

/// Returns the iperf3 log of each cell, as a guest's sockets report it. Stored logs are reused.
fn guest_logs(cells: &[Cell], seed: u64, args: &FidelityArgs) -> Result<Vec<Option<String>>, Error> {
    let (dir, release) = (&args.out, guest::found(args)?.release);
    let file = dir.join(KEPT);
    let stored: Vec<LogRecord> = kept(&file)?;
    let scenario = |cell: &Cell| Scenario { seed, ..cell.point.scenario.clone() };
    let known = |cell: &Cell| {
        let identity = scenario(cell).identity();
        let is = |record: &&LogRecord| {
            record.scenario == identity && record.guest.as_deref() == Some(release.as_str())
        };
        stored.iter().rev().find(is).map(|record| record.log.clone())
    };
    let mut logs: Vec<Option<String>> = cells.iter().map(known).collect();
    fs::create_dir_all(dir).map_err(|error| cannot("create", dir, &error))?;
    let missing = cells.iter().zip(&logs).filter(|(_, log)| log.is_none());
    let scenarios: Vec<Scenario> = missing.map(|(cell, _)| scenario(cell)).collect();
    let store = |scenario: &Scenario, log: &str| {
        let (scenario, log, guest) = (scenario.identity(), log.to_owned(), Some(release.clone()));
        keep(&file, &LogRecord { scenario, log, guest })
    };
    let made = guest::logs(&scenarios, args, store)?;
    for (log, made) in logs.iter_mut().filter(|log| log.is_none()).zip(made) {
        *log = Some(made);
    }
    Ok(logs)
}

/// Returns the iperf3 log of each cell. Logs that are stored in `dir` are reused; the others are recorded on
/// the kernel and stored in `dir`. A log is `None` if every attempt was disturbed by other load.
///
/// # Errors
/// Returns the error of the third test that fails.
fn logs(cells: &[Cell], seed: u64, runs: u64, dir: &Path) -> Result<Vec<Option<String>>, Error> {
    let file = dir.join(KEPT);
    let stored: Vec<LogRecord> = kept(&file)?;
    let identity = |cell: &Cell| Scenario { seed, ..cell.point.scenario.clone() }.identity();
    let known = |cell: &Cell| {
        let identity = identity(cell);
        let is = |record: &&LogRecord| record.scenario == identity && record.guest.is_none();
        stored.iter().rev().find(is).map(|record| record.log.clone())
    };
    let mut logs: Vec<Option<String>> = cells.iter().map(known).collect();
    announce(cells, &logs, runs);
    if logs.iter().all(Option::is_some) {
        return Ok(logs);
    }
    fs::create_dir_all(dir).map_err(|error| cannot("create", dir, &error))?;
    rights::acquire()?;
    let mut failures = 0;
    for (cell, log) in cells.iter().zip(&mut logs).filter(|(_, log)| log.is_none()) {
        for _ in 0..ATTEMPTS {
            let test = match iperf3::run(&cell.point, seed, dir, "--no-diagnosis") {
                Ok(test) => test,
                Err(error) => {
                    failures += 1;
                    if failures >= MOST_FAILURES {
                        return Err(error);
                    }
                    eprintln!("failed: {}", error.message);
                    continue;
                }
            };
            if test.disturbed {
                eprintln!("not valid: the log of {}", cell.point.label);
                continue;
            }
            keep(&file, &LogRecord { scenario: identity(cell), log: test.document.clone(), guest: None })?;
            *log = Some(test.document);
            break;
        }
    }
    Ok(logs)
}

/// Prints the estimated duration of the campaign before its first run. The number of rungs, and how many of
/// their runs are stored, is known only after the logs.
fn announce(cells: &[Cell], logs: &[Option<String>], runs: u64) {
    let missing = cells.iter().zip(logs).filter(|(_, log)| log.is_none());
    let of_logs: f64 = missing.clone().map(|(cell, _)| emulated_seconds(&cell.point.scenario)).sum();
    let of_rungs = |cell: &Cell| {
        let scenario = &cell.point.scenario;
        // A run of a rung lasts at most twice as long as the log.
        emulated_seconds(&Scenario { duration: scenario.duration * 2, ..scenario.clone() })
    };
    let of_rungs = cells.iter().map(of_rungs).sum::<f64>() * (USUAL_RUNGS * runs) as f64;
    let all = of_logs + of_rungs;
    eprintln!(
        "{} logs and about {} kernel runs, {all:.0} s of real time; takes about {:.0} min, less the stored runs",
        missing.count(),
        cells.len() as u64 * USUAL_RUNGS * runs,
        (all / 60.0).max(1.0)
    );
}

/// Climbs the ladder of a cell from its log.
fn climb(cell: &Point, log: &str, with_sysctl: bool) -> Result<Climb, Error> {
    let Scenario { path, host, .. } = &cell.scenario;
    let known = PathFacts { link: Some(path.forward.rate), rtt: Some(path.rtt()), ..PathFacts::default() };
    let hosts = HostFacts { local: with_sysctl.then(|| rung_runs::settings(host)), ..HostFacts::default() };
    let diagnosis = diagnosed(&cell.label, log, &known, &hosts)?;
    let buffers = &diagnosis.hosts;
    let present = (Bytes::new(buffers.sender.buffer_bytes), Bytes::new(buffers.receiver.buffer_bytes));
    let steps = rung_runs::steps(cell, &diagnosis, |rung, simulated| match rung.remedies.title() {
        None => Ok(cell.scenario.clone()),
        Some(remedy) => rung_runs::applied(&cell.scenario, simulated, present).ok_or_else(|| {
            let message =
                format!("'{}': this program cannot apply the remedy '{remedy}' to a kernel", cell.label);
            Error::new(message, "add the remedy to rung_runs::applied")
        }),
    })?;
    let longer_test = diagnosis.fit.and_then(|fit| fit.longer_test);
    Ok(Climb { ladder: CellLadder { cell: cell.label.clone(), steps }, longer_test })
}

/// Diagnoses the log `name`, and climbs its ladder.
pub(crate) fn diagnosed(
    name: &str,
    log: &str,
    path: &PathFacts,
    hosts: &HostFacts,
) -> Result<Diagnosis, Error> {
    let input = Input::from_bytes(name, log.as_bytes(), &Choice::default())?;
    let diagnosis = with_ladder(|progress| diagnose(&input.measurement, path, hosts, &Simulated(progress)));
    diagnosis.map_err(|error| Error::from(error).about(name))
}

/// Returns the commands that rerun each cell in which a rung misses its criterion. A miss counts only if a
/// run on a quiet machine confirms it.
fn again(cells: &[Cell], compared: &Compared<'_, '_>) -> String {
    let misses =
        |cell: &&Cell| compared.rungs.iter().any(|rung| rung.cell == cell.point.label && !rung.holds());
    let mut text = String::new();
    for Cell { number, point } in cells.iter().filter(misses) {
        let _ = writeln!(
            text,
            "\nTo be run again on a quiet machine before it counts as a miss, with `--cell {number} --again`: {}.",
            point.label
        );
    }
    text
}
