//! `fullpipe fidelity`: an experiment in both worlds, and a page of how near they are.
//!
//! Kernel runs take real time, so each is kept as soon as it is made and never made twice: what was interrupted
//! goes on where it stopped. The order is by seed, then by cell, so that a page of half of the runs has all cells.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;

use fullpipe_lab::campaign::{self, Job, RunResult};
use fullpipe_lab::experiment::{Experiment, Point};
use fullpipe_lab::fidelity;
use fullpipe_lab::results::{Run, Timed};
use fullpipe_lab::scenario::{LossPattern, Scenario};
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;

use crate::args::{DatapathName, FidelityArgs};
use crate::failure::Failure;
use crate::run::{self, progress_bar};
use crate::{emu, output};

/// A run that the machine disturbed is made again so often.
const ATTEMPTS: usize = 3;
/// Name of the file of kernel runs.
const KEPT: &str = "kernel.jsonl";
/// What stands between these in a page is made anew; the rest of it stays.
const MARKS: [&str; 2] = ["<!-- begin of the table -->\n", "<!-- end of the table -->\n"];

pub(crate) fn fidelity(args: &FidelityArgs) -> Result<ExitCode, Failure> {
    let file = args.file.display();
    let experiment = run::experiment(&args.file)?;
    let wanted = wanted(&experiment);
    let kernel = kernel_runs(&experiment, &wanted, args)?;
    let sim = simulated(&experiment, &wanted)?;
    let (valid, disturbed): (Vec<Run>, Vec<Run>) = kernel.into_iter().partition(is_valid);

    let cells = fidelity::cells(&experiment, &sim, &valid);
    let mut table = format!(
        "Kernel {}, {} valid runs of {}; `fullpipe fidelity {file}` makes this table.\n\n",
        release(),
        valid.len(),
        valid.len() + disturbed.len()
    );
    table += &fidelity::table(&cells);
    if let Some(published) = fidelity::published(&experiment, &sim, &valid) {
        let _ = writeln!(table, "\n{published}");
    }
    for run in &disturbed {
        let _ = writeln!(
            table,
            "\nNot valid after {ATTEMPTS} attempts, and not counted: {}, seed {}.",
            run.point, run.seed
        );
    }
    output::print(&table)?;
    if let Some(page) = &args.page {
        write_page(page, &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The runs to make in both worlds, by seed: number of the point, and seed. Where nothing but timing differs
/// between runs, one tells as much as many.
fn wanted(experiment: &Experiment) -> Vec<(usize, u64)> {
    let seeds = experiment.seeds();
    let points = || experiment.points().iter().enumerate();
    let of_seed = |(nth, &seed): (usize, &u64)| {
        let told = move |point: &Point| nth == 0 || fidelity::varies(point);
        points().filter(move |(_, point)| told(point)).map(move |(number, _)| (number, seed))
    };
    seeds.iter().enumerate().flat_map(of_seed).collect()
}

/// The simulator's runs, on all cores.
fn simulated(experiment: &Experiment, wanted: &[(usize, u64)]) -> Result<Vec<Run>, Failure> {
    let job = |&(number, seed): &(usize, u64)| {
        let point = &experiment.points()[number];
        Job { label: point.label.clone(), scenario: Scenario { seed, ..point.scenario.clone() } }
    };
    let jobs: Vec<Job> = wanted.iter().map(job).collect();
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcomes = campaign::run_jobs(threads, &jobs, sim::run, |_| ())?;
    let run = |(&(point, seed), outcome)| {
        let value = Timed { outcome, wall_s: 0.0, validity: None };
        Run::new(experiment, &RunResult { point, seed, value })
    };
    Ok(wanted.iter().zip(outcomes).map(run).collect())
}

fn is_valid(run: &Run) -> bool {
    run.validity.as_ref().is_some_and(|validity| validity.valid)
}

/// The kernel's runs: those kept from earlier, and those still to be made.
fn kernel_runs(
    experiment: &Experiment,
    wanted: &[(usize, u64)],
    args: &FidelityArgs,
) -> Result<Vec<Run>, Failure> {
    let kept_in = args.out.join(KEPT);
    let mut runs = kept(&kept_in)?;
    let is_known = |&&(number, seed): &&(usize, u64)| {
        let label = &experiment.points()[number].label;
        runs.iter().any(|run| run.point == *label && run.seed == seed)
    };
    let missing: Vec<_> = wanted.iter().filter(|run| !is_known(run)).copied().collect();
    if missing.is_empty() {
        return Ok(runs);
    }
    let to_run = missing.iter().map(|&(number, _)| &experiment.points()[number]);
    emu::prepare(to_run.map(|point| (point, datapath(point))))?;
    fs::create_dir_all(&args.out).map_err(|e| {
        Failure::new(format!("cannot make {}: {e}", args.out.display()), "give another --out")
    })?;
    let bar = progress_bar(missing.len());
    for (number, seed) in missing {
        let run = kernel_run(experiment, number, seed)?;
        let line = output::json_line(&run)?;
        let mut options = OpenOptions::new();
        let opened = options.create(true).append(true).open(&kept_in);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| {
            Failure::new(format!("cannot write {}: {e}", kept_in.display()), "give another --out")
        })?;
        runs.push(run);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// Packet by packet, as the simulator sends them, is the reference; what is lost in super-packets has to come out of the
/// kernel in them.
fn datapath(point: &Point) -> DatapathName {
    let path = &point.scenario.path;
    let whole =
        [&path.forward, &path.backward].iter().any(|way| way.loss_pattern == LossPattern::SuperPackets);
    if whole { DatapathName::Offload } else { DatapathName::Plain }
}

/// One run of the kernel; again if the machine disturbed it.
fn kernel_run(experiment: &Experiment, number: usize, seed: u64) -> Result<Run, Failure> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let point = &experiment.points()[number];
        let value = emu::one(point, seed, datapath(point), &mut NoTrace, None)?;
        let run = Run::new(experiment, &RunResult { point: number, seed, value });
        if is_valid(&run) || attempt == ATTEMPTS {
            return Ok(run);
        }
    }
}

/// The runs in a file of earlier ones. A last line that was cut off is a run that was not finished: it is taken
/// out, so that the next line stands by itself.
fn kept(file: &Path) -> Result<Vec<Run>, Failure> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(Vec::new()) };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    if whole.len() < text.len() {
        fs::write(file, whole).map_err(|e| {
            Failure::new(format!("cannot write {}: {e}", file.display()), "give another --out")
        })?;
    }
    let runs = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    runs.map_err(|e| Failure::new(format!("{} has no runs: {e}", file.display()), "give another --out"))
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or("unknown".into(), |text| text.trim().into())
}

/// Puts the table between the marks of a page, or makes a page of it.
fn write_page(page: &Path, table: &str) -> Result<(), Failure> {
    let [begin, end] = MARKS;
    let old = fs::read_to_string(page).unwrap_or_else(|_| format!("# Fidelity\n\n{begin}{end}"));
    let parts = old.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let Some((before, after)) = parts else {
        return Err(Failure::new(
            format!("{} has no place for the table", page.display()),
            "give a page that does not exist yet, or one that this command has made",
        ));
    };
    let name = page.file_name().and_then(|name| name.to_str()).unwrap_or("FIDELITY.md");
    let dir = page.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    output::write_atomically(dir, name, format!("{before}{begin}{table}{end}{after}"))
}
