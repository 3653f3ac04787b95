//! `fullpipe fidelity`: an experiment in both worlds, and a page of how near they are.
//!
//! Kernel runs take real time, so each is kept as soon as it is made and never made twice: what was interrupted
//! goes on where it stopped. The order is by seed, then by cell, so that a page of half of the runs has all cells.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use fullpipe_lab::campaign::{self, RunResult};
use fullpipe_lab::experiment::{Experiment, Point};
use fullpipe_lab::fidelity::{self, Criterion};
use fullpipe_lab::results::{Run, Timed};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use fullpipe_linux::emu::{self, Options};
use fullpipe_linux::rights;

use crate::args::FidelityArgs;
use crate::failure::Failure;
use crate::output;
use crate::run::{now, progress_bar};

/// A run that the machine disturbed is made again so often.
const ATTEMPTS: usize = 3;
/// Name of the file of kernel runs.
const KEPT: &str = "kernel.jsonl";
/// What stands between these in a page is made anew; the rest of it stays.
const MARKS: [&str; 2] = ["<!-- begin of the table -->\n", "<!-- end of the table -->\n"];

pub(crate) fn fidelity(args: &FidelityArgs) -> Result<ExitCode, Failure> {
    let file = args.file.display();
    let text = fs::read_to_string(&args.file)
        .map_err(|e| Failure::new(format!("cannot read {file}: {e}"), "give an experiment file"))?;
    let experiment = Experiment::from_toml(&text).map_err(|e| Failure::from(e).about(&file))?;
    let kernel = kernel_runs(&experiment, args)?;
    let timed = |scenario: &Scenario| Timed { outcome: sim::run(scenario), wall_s: 0.0, validity: None };
    let made = campaign::run(experiment.points(), &experiment.seeds(), timed, |_| ())?;
    let wanted =
        |run: &&RunResult<Timed>| seeds(&experiment, &experiment.points()[run.point]).contains(&run.seed);
    let sim: Vec<Run> = made.iter().filter(wanted).map(|run| Run::new(&experiment, run)).collect();
    let (valid, disturbed): (Vec<Run>, Vec<Run>) = kernel.into_iter().partition(is_valid);

    let cells = fidelity::cells(&experiment, &sim, &valid);
    let mut table = format!(
        "Kernel {}, {} valid runs of {}; `fullpipe fidelity {file}` makes this table.\n\n",
        release(),
        valid.len(),
        valid.len() + disturbed.len()
    );
    table += &fidelity::table(&cells);
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

/// Where nothing but timing differs between runs, one tells as much as many.
fn seeds(experiment: &Experiment, point: &Point) -> Vec<u64> {
    let seeds = experiment.seeds();
    let lossless = point.scenario.path.forward.loss.is_zero();
    if lossless && Criterion::of(point) != Criterion::InSpread { seeds[..1].to_vec() } else { seeds }
}

fn is_valid(run: &Run) -> bool {
    run.validity.as_ref().is_some_and(|validity| validity.valid)
}

/// The kernel's runs: those kept from earlier, and those still to be made.
fn kernel_runs(experiment: &Experiment, args: &FidelityArgs) -> Result<Vec<Run>, Failure> {
    let kept_in = args.out.join(KEPT);
    let mut runs = kept(&kept_in)?;
    let known = |runs: &[Run], point: &Point, seed| {
        runs.iter().any(|run| run.point == point.label && run.seed == seed)
    };
    let mut missing = Vec::new();
    for &seed in &experiment.seeds() {
        for (number, point) in experiment.points().iter().enumerate() {
            if seeds(experiment, point).contains(&seed) && !known(&runs, point, seed) {
                missing.push((number, seed));
            }
        }
    }
    if missing.is_empty() {
        return Ok(runs);
    }
    rights::acquire()?;
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

/// One run of the kernel; again if the machine disturbed it.
fn kernel_run(experiment: &Experiment, number: usize, seed: u64) -> Result<Run, Failure> {
    let point = &experiment.points()[number];
    let scenario = Scenario { seed, ..point.scenario.clone() };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let start = now();
        let made = emu::run(&scenario, Options::default(), &mut NoTrace)
            .map_err(|error| Failure::from(error).about(format_args!("run '{}'", point.label)))?;
        let value = Timed {
            outcome: made.outcome,
            wall_s: start.elapsed().as_secs_f64(),
            validity: Some(made.validity),
        };
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
