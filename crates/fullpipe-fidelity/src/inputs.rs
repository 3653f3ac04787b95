//! Diagnoses each run of the situations from every kind of input, and compares the answers with the limits of
//! the runs.
//!
//! ```text
//!   points of FILE, drawn variants ──► runs ──► rows, packets ──► five files ──► diagnosis ──► right, wrong, open
//!                                                                        └────► --before PROGRAM ──► the same
//! ```
//!
//! The runs take virtual time: in the simulator, or on guests. The diagnosis is given the link rate and, for
//! iperf3 logs, also the RTT of the idle path.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use fullpipe::classify::{exact, share};
use fullpipe::input::trace::Choice;
use fullpipe::lab::campaign::{self, Job, Progress};
use fullpipe::lab::capture::Wire;
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::sim;
use fullpipe::lab::trace::Row;
use fullpipe::linux::uml::{self, Kernel};
use fullpipe::units::{Duration, Instant, Rate};
use fullpipe::{Error, HostFacts, Input, Limit, PathFacts, explain, files};
use fullpipe_fidelity::answers::{self, Answer, Graded};
use fullpipe_fidelity::drawn_situations::{self, SEED};
use fullpipe_fidelity::recorded::{InputKind, Pcap, Recorded};

use crate::args::{FidelityArgs, KernelWorld};
use crate::guest;
use crate::progress::bar;
use crate::situations::expected;

/// Length of the drawn runs, which is the default length of an iperf3 test.
const DURATION: Duration = Duration::from_secs(10);
/// Minimum share of its duration for which a drawn run must have the limit of its situation, according to the
/// simulator's own record.
const LEAST_SHARE: f64 = 0.7;
/// Name of the file that identifies the run whose inputs are in a folder.
const IDENTITY: &str = "scenario.txt";

/// Returns the tables, and whether the answers meet the requirements.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<(String, bool), Error> {
    let kernel = match args.world {
        KernelWorld::Uml => Some(Kernel::find(&guest::options(args))?),
        KernelWorld::Emu => None,
    };
    let points = points(experiment, kernel.as_ref(), args.variants)?;
    let truths = points.iter().map(expected).collect::<Result<Vec<_>, _>>()?;
    // The scenario of a drawn variant contains a seed.
    let seed = |(number, point): (u64, &Point)| match point.scenario.seed {
        0 => number,
        drawn => drawn,
    };
    let jobs: Vec<Job> = (1..)
        .zip(&points)
        .map(|numbered| Job {
            label: numbered.1.label.clone(),
            scenario: Scenario { seed: seed(numbered), ..numbered.1.scenario.clone() },
        })
        .collect();
    let bar = bar(jobs.len());
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let progress = |Progress { done, .. }: Progress| bar.set_position(done as u64);
    let answers =
        campaign::run_jobs(threads, &jobs, |scenario| answered(scenario, kernel.as_ref(), args), progress)?;
    bar.finish_and_clear();
    let mut graded = Vec::new();
    for ((point, truth), answers) in points.iter().zip(truths).zip(answers) {
        graded.extend(answers?.into_iter().map(|(kind, answer, before)| Graded {
            situation: drawn_situations::situation(point).to_owned(),
            label: point.label.clone(),
            truth,
            kind,
            answer,
            before,
        }));
    }
    let before = args.before.as_deref().map(|_| args.before_name.as_deref().unwrap_or("before"));
    let runs =
        kernel.map_or("the simulator".into(), |kernel| format!("guests with Linux {}", kernel.release));
    let command = crate::command(&format!("--situations --inputs {}", args.world_option()), args);
    let heading = format!("{} runs of {runs}; `{command}` makes this table.\n\n", points.len());
    Ok((heading + &answers::tables(&graded, before), answers::holds(&graded)))
}

/// Returns the points of `experiment` and the drawn variants, as the simulator has to run them.
fn points(experiment: &Experiment, kernel: Option<&Kernel>, variants: u64) -> Result<Vec<Point>, Error> {
    let as_run = |point: &Point| match kernel {
        Some(kernel) => Point { scenario: uml::simulated(kernel, &point.scenario), ..point.clone() },
        None => point.clone(),
    };
    let has_its_limit = |point: &Point| {
        let mut rows: Vec<Row> = Vec::new();
        sim::run_traced(&as_run(point).scenario, &mut rows);
        let Some((periods, limit)) = exact(&rows).zip(expected(point).ok()) else { return false };
        share(&periods, limit) >= LEAST_SHARE
            && (limit != Limit::Link || link_is_used(&rows, &point.scenario))
    };
    let drawn = drawn_situations::points(SEED, variants, DURATION, has_its_limit)?;
    let points: Vec<Point> = experiment.points().iter().chain(&drawn).map(as_run).collect();
    if let Some(kernel) = kernel {
        for point in &points {
            uml::check(kernel, point)?;
        }
    }
    Ok(points)
}

/// Returns whether the flow used most of the link. A sender that is still approaching the link rate is paced
/// by its estimate of that rate, and its own record also names the link in this case.
fn link_is_used(rows: &[Row], scenario: &Scenario) -> bool {
    rows.last().is_some_and(|row| {
        let mean = Rate::mean(row.sender.delivered, row.at.saturating_since(Instant::ZERO));
        mean.as_bps() as f64 >= LEAST_SHARE * scenario.path.forward.rate.as_bps() as f64
    })
}

/// Answers to all inputs of a run: for each kind of input, the answer of this build and that of the older
/// build.
type Answers = Vec<(InputKind, Answer, Option<Answer>)>;

/// Runs a scenario unless its folder already contains the inputs, and returns the answers to them.
fn answered(scenario: &Scenario, kernel: Option<&Kernel>, args: &FidelityArgs) -> Result<Answers, Error> {
    let dir = args.out.join(format!("{:03}", scenario.seed));
    let release =
        kernel.map_or_else(|| format!("{}.0", scenario.host.kernel), |kernel| kernel.release.clone());
    let identity = format!("{release} {}\n", scenario.identity());
    if fs::read_to_string(dir.join(IDENTITY)).ok().as_deref() != Some(&identity) {
        let recorded = recorded(scenario, kernel, release, args)?;
        let store = || {
            fs::create_dir_all(&dir)?;
            for kind in InputKind::ALL {
                fs::write(dir.join(kind.file()), recorded.bytes(kind))?;
            }
            // The last file shows that the others are complete.
            fs::write(dir.join(IDENTITY), identity)
        };
        store().map_err(|error| files::cannot_write(&dir, &error, "choose another --out"))?;
    }
    let path = |kind: InputKind| PathFacts {
        link: Some(scenario.path.forward.rate),
        rtt: kind.is_log().then(|| scenario.path.rtt()),
        ..PathFacts::default()
    };
    let one = |kind: InputKind| {
        let file = dir.join(kind.file());
        let answer = answer(&file, &path(kind)).unwrap_or_else(|error| Answer::None(error.message));
        let before = args.before.as_deref().map(|program| before(program, &file, &path(kind))).transpose()?;
        Ok((kind, answer, before))
    };
    InputKind::ALL.into_iter().map(one).collect()
}

fn recorded<'s>(
    scenario: &'s Scenario,
    kernel: Option<&Kernel>,
    release: String,
    args: &FidelityArgs,
) -> Result<Recorded<'s>, Error> {
    let (mut rows, mut packets): (Vec<Row>, Pcap) = Default::default();
    match kernel {
        Some(kernel) => {
            uml::run_captured(kernel, scenario, &guest::options(args), &mut rows, &mut packets)?;
        }
        None => {
            sim::run_tapped(scenario, &mut rows, &mut Wire(&mut packets));
        }
    }
    Ok(Recorded::new(scenario, &rows, packets, release))
}

fn answer(file: &Path, path: &PathFacts) -> Result<Answer, Error> {
    let input = Input::open(&file.display().to_string(), &Choice::default())?;
    let hosts = HostFacts::default();
    let diagnosis = explain(&input.measurement, path, &hosts)?.without_ladder();
    Ok(Answer::of(&diagnosis))
}

/// Returns the answer of another build: `PROGRAM diagnose FILE --json` with the same facts.
fn before(program: &Path, file: &Path, path: &PathFacts) -> Result<Answer, Error> {
    let mut command = Command::new(program);
    command.arg("diagnose").arg(file).arg("--json");
    if let Some(link) = path.link {
        command.args(["--link", &format!("{}bit", link.as_bps())]);
    }
    if let Some(rtt) = path.rtt {
        command.args(["--rtt", &format!("{}us", rtt.as_micros())]);
    }
    let output = command.output().map_err(|error| {
        Error::new(format!("cannot run {}: {error}", program.display()), "give --before a fullpipe program")
    })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Ok(Answer::None(message.lines().next().unwrap_or_default().to_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout).map_or_else(
        |error| Answer::None(format!("no JSON: {error}")),
        |document| Answer::of_document(&document),
    ))
}
