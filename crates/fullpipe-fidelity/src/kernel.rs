//! Kernel runs of an experiment, which are stored because they take real time.
//!
//! Each run is stored as soon as it completes and is never repeated, so an interrupted campaign continues
//! where it stopped. A run is identified by its scenario, which includes the seed, and not by its label. If a
//! ladder or an experiment changes, only the changed runs are repeated. A run that was disturbed by other
//! load on the machine is not stored. A disturbed run is repeated after all other runs, when the other load
//! may have ended. A run that fails is repeated in the same way, until too many runs have failed.
//!
//! Runs take place one after the other, because concurrent runs disturb each other's timing. With
//! `--parallel`, the first attempts of runs with low link rates are concurrent; in any case, only valid runs
//! are stored.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use fullpipe::forecast::emulated_seconds;
use fullpipe::lab::experiment::Point;
use fullpipe::lab::results::{Run, TimedOutcome};
use fullpipe::lab::scenario::{LossPattern, Scenario};
use fullpipe::lab::trace::Row;
use fullpipe::run::{Datapath, emulate, prepare};
use fullpipe::units::Rate;
use fullpipe::{Error, files, json};
use fullpipe_fidelity::classifier_validation::{self, NamedLimit};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::{FidelityArgs, KernelWorld};
use crate::guest;
use crate::progress::{Notes, bar};

/// Maximum number of attempts for a run that is disturbed by other load on the machine.
pub(crate) const ATTEMPTS: usize = 5;
/// Number of failed runs after which a campaign ends. A single failure, for example of a connection that is
/// not established in time, must not end a campaign of hours.
pub(crate) const MOST_FAILURES: usize = 3;
/// Name of the file that stores the kernel runs.
const KEPT: &str = "kernel.jsonl";
/// Maximum sum of the link rates of concurrent runs. Two cores forward more than twice this rate without
/// delay.
const RATES_TOGETHER: Rate = Rate::from_bps(400_000_000);
/// Maximum number of concurrent runs.
const RUNS_TOGETHER: usize = 4;

/// Result of a kernel run with its trace rows.
type Emulated = Result<(TimedOutcome, Vec<Row>), Error>;

/// Request for one kernel run.
pub(crate) struct RunRequest {
    /// Point to run; its scenario contains the seed.
    point: Point,
}

impl RunRequest {
    pub(crate) fn new(point: &Point, seed: u64) -> Self {
        let scenario = Scenario { seed, ..point.scenario.clone() };
        Self { point: Point { scenario, ..point.clone() } }
    }

    pub(crate) fn point(&self) -> &Point {
        &self.point
    }

    pub(crate) fn label(&self) -> &str {
        &self.point.label
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.point.scenario
    }

    /// Returns the datapath of the run. By default the emulator transfers single packets, as the simulator
    /// does. Loss of whole super-packets requires a datapath with super-packets.
    fn datapath(&self) -> Datapath {
        let path = &self.scenario().path;
        let whole =
            [&path.forward, &path.backward].iter().any(|way| way.loss_pattern == LossPattern::SuperPackets);
        if whole { Datapath::Offload } else { Datapath::Plain }
    }

    fn seed(&self) -> u64 {
        self.point.scenario.seed
    }

    fn link(&self) -> Rate {
        self.scenario().path.forward.rate
    }

    /// Runs the scenario on the kernel, and returns the result with the trace rows.
    fn emulated(&self) -> Emulated {
        let mut rows: Vec<Row> = Vec::new();
        let timed = emulate(&self.point, self.seed(), self.datapath(), &mut rows)?;
        Ok((timed, rows))
    }

    /// Returns the report entry for the result of this run.
    pub(crate) fn run(&self, timed: &TimedOutcome) -> Run {
        Run::of(self.point.label.clone(), self.seed(), timed)
    }
}

/// One line of the file that stores the kernel runs.
#[derive(Clone, Serialize, Deserialize)]
struct RunRecord {
    /// Identity of the run ([`Scenario::identity`]); absent from old lines, which are identified by point and
    /// seed.
    #[serde(default)]
    scenario: Option<String>,
    /// Limit that the classifier reported for the run, if a classification was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<NamedLimit>,
    #[serde(flatten)]
    run: Run,
}

/// Requested results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunDetail {
    /// Only the metrics of the run are requested.
    Figures,
    /// The metrics of the run, and the limit that the classifier reports, are requested.
    Limit,
}

impl RunRecord {
    fn is(&self, wanted: &RunRequest) -> bool {
        match &self.scenario {
            Some(scenario) => *scenario == wanted.scenario().identity(),
            None => self.run.point == wanted.label() && self.run.seed == wanted.seed(),
        }
    }

    fn answers(&self, asked: RunDetail) -> bool {
        is_valid(&self.run) && (asked == RunDetail::Figures || self.named.is_some())
    }
}

/// Results of the requested kernel runs; disturbed runs are missing.
pub(crate) struct Runs<'w> {
    wanted: &'w [RunRequest],
    /// Stored run for each request; `None` if every attempt was disturbed.
    made: Vec<Option<RunRecord>>,
    /// Kernel of the guests; `None` if the host's kernel ran on the emulator.
    guest: Option<String>,
}

impl<'w> Runs<'w> {
    /// Returns the runs that guests have made for all requests. No run is missing, because guests are never
    /// disturbed.
    pub(crate) fn of_guests(
        wanted: &'w [RunRequest],
        made: Vec<(Run, Option<NamedLimit>)>,
        kernel: String,
    ) -> Self {
        let record = |(run, named)| Some(RunRecord { scenario: None, named, run });
        Self { wanted, made: made.into_iter().map(record).collect(), guest: Some(kernel) }
    }

    /// Returns the valid kernel runs, in the order of the requests.
    pub(crate) fn valid(&self) -> Vec<Run> {
        let made = self.wanted.iter().zip(&self.made);
        let called = made.filter_map(|(wanted, made)| {
            Some(Run { point: wanted.label().into(), ..made.as_ref()?.run.clone() })
        });
        called.collect()
    }

    /// Returns the limits that the classifier reported in the valid runs of the point `label`.
    pub(crate) fn named(&self, label: &str) -> Vec<NamedLimit> {
        let of_point = self.wanted.iter().zip(&self.made).filter(|(wanted, _)| wanted.label() == label);
        of_point.filter_map(|(_, made)| made.as_ref()?.named).collect()
    }

    /// Returns the heading of a result table: the kernel, the number of valid runs, and the command.
    pub(crate) fn heading(&self, command: &str) -> String {
        let valid = self.made.iter().flatten().count();
        if let Some(guest) = &self.guest {
            return format!("Guest: {guest}; {valid} runs; `{command}` makes this table.\n\n");
        }
        format!(
            "Kernel {}, {valid} valid runs of {}; `{command}` makes this table.\n\n",
            release(),
            self.made.len()
        )
    }

    /// Returns whether every requested run was valid.
    pub(crate) fn are_complete(&self) -> bool {
        self.made.iter().all(Option::is_some)
    }

    /// Returns one line of text for each run that is missing.
    pub(crate) fn missing(&self) -> String {
        let missing = self.wanted.iter().zip(&self.made).filter(|(_, made)| made.is_none());
        missing.fold(String::new(), |mut text, (wanted, _)| {
            let _ = writeln!(
                text,
                "\nNot valid in {ATTEMPTS} attempts, and not counted: {}, seed {}.",
                wanted.label(),
                wanted.seed()
            );
            text
        })
    }
}

/// Returns the runs that `wanted` requests. Runs that are stored in the folder `--out` are reused, unless
/// `--again` is set; the other runs are executed and stored there.
pub(crate) fn runs<'w>(
    wanted: &'w [RunRequest],
    args: &FidelityArgs,
    asked: RunDetail,
) -> Result<Runs<'w>, Error> {
    if args.world == KernelWorld::Uml {
        return guest::runs(wanted, args, asked);
    }
    let dir = &args.out;
    let file = dir.join(KEPT);
    let mut stored: Vec<RunRecord> = kept(&file)?;
    if args.again {
        stored.clear();
    }
    let known =
        |wanted: &RunRequest| stored.iter().rev().find(|run| run.answers(asked) && run.is(wanted)).cloned();
    let mut made: Vec<Option<RunRecord>> = wanted.iter().map(known).collect();
    let missing = made.iter().filter(|run| run.is_none()).count();
    if missing == 0 {
        return Ok(Runs { wanted, made, guest: None });
    }
    let to_run = wanted.iter().zip(&made).filter(|(_, made)| made.is_none());
    prepare(to_run.map(|(wanted, _)| (&wanted.point, wanted.datapath())), &Notes)?;
    fs::create_dir_all(dir)
        .map_err(|e| Error::new(format!("cannot create {}: {e}", dir.display()), "choose another --out"))?;
    let pending = |made: &[Option<RunRecord>], attempt: usize| {
        let missing: Vec<usize> = (0..made.len()).filter(|&nth| made[nth].is_none()).collect();
        let rates: Vec<Rate> = missing.iter().map(|&nth| wanted[nth].link()).collect();
        let groups = groups(&rates, RATES_TOGETHER, together(args.parallel, attempt)).into_iter();
        groups.map(|group| missing[group].to_vec()).collect::<Vec<_>>()
    };
    announce(wanted, &pending(&made, 0));
    let bar = bar(missing);
    let mut failures = 0;
    for attempt in 0..ATTEMPTS {
        for group in pending(&made, attempt) {
            let mut failed = None;
            for (nth, emulated) in side_by_side(wanted, &group) {
                let wanted = &wanted[nth];
                let (timed, rows) = match emulated {
                    Ok(emulated) => emulated,
                    // The completed runs of the group are stored before the error is handled.
                    Err(error) => {
                        bar.suspend(|| eprintln!("failed: seed {}: {}", wanted.seed(), error.message));
                        failures += 1;
                        failed = Some(error);
                        continue;
                    }
                };
                let run = wanted.run(&timed);
                if let Some(validity) = run.validity.as_ref().filter(|validity| !validity.valid) {
                    let (label, seed, problems) =
                        (wanted.label(), wanted.seed(), validity.problems.join("; "));
                    bar.suspend(|| eprintln!("not valid: {label}, seed {seed}: {problems}"));
                    continue;
                }
                let named = match asked {
                    RunDetail::Figures => None,
                    RunDetail::Limit => classifier_validation::named(&rows, wanted.scenario()),
                };
                let record = RunRecord { scenario: Some(wanted.scenario().identity()), named, run };
                keep(&file, &record)?;
                made[nth] = Some(record);
                bar.inc(1);
            }
            if let Some(error) = failed.filter(|_| failures >= MOST_FAILURES) {
                return Err(error);
            }
        }
    }
    bar.finish_and_clear();
    Ok(Runs { wanted, made, guest: None })
}

/// Returns the maximum number of concurrent runs in an attempt. Runs that were disturbed by concurrent runs
/// are repeated one at a time.
const fn together(parallel: bool, attempt: usize) -> usize {
    if parallel && attempt == 0 { RUNS_TOGETHER } else { 1 }
}

/// Divides runs with these link rates into groups of at most `runs` runs each, in order. The rates of a group
/// add up to at most `most`; a run with a higher rate gets its own group.
fn groups(rates: &[Rate], most: Rate, runs: usize) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut sum = 0_u64;
    for (nth, rate) in rates.iter().enumerate() {
        let with_this = sum.saturating_add(rate.as_bps());
        match groups.last_mut().filter(|last| last.len() < runs && with_this <= most.as_bps()) {
            Some(last) => (last.end, sum) = (nth + 1, with_this),
            None => {
                groups.push(nth..nth + 1);
                sum = rate.as_bps();
            }
        }
    }
    groups
}

/// Executes the requests with the numbers `group`, each on its own thread, and returns their results.
fn side_by_side(wanted: &[RunRequest], group: &[usize]) -> Vec<(usize, Emulated)> {
    thread::scope(|scope| {
        let started: Vec<_> =
            group.iter().map(|&nth| (nth, scope.spawn(move || wanted[nth].emulated()))).collect();
        let joined = started
            .into_iter()
            .map(|(nth, run)| (nth, run.join().unwrap_or_else(|panic| resume_unwind(panic))));
        joined.collect()
    })
}

/// Prints the number of remaining runs, and their estimated duration.
fn announce(wanted: &[RunRequest], groups: &[Vec<usize>]) {
    let seconds = |nth: &usize| emulated_seconds(wanted[*nth].scenario());
    let runs: usize = groups.iter().map(Vec::len).sum();
    let all: f64 = groups.iter().flatten().map(seconds).sum();
    let wall: f64 = groups.iter().map(|group| group.iter().map(seconds).fold(0.0, f64::max)).sum();
    eprintln!("{runs} kernel runs, {all:.0} s of real time; takes about {:.0} min", (wall / 60.0).max(1.0));
}

fn is_valid(run: &Run) -> bool {
    run.validity.as_ref().is_some_and(|validity| validity.valid)
}

/// Appends `run` to the file as one line. If the disk has no space for the whole line, nothing is appended.
pub(crate) fn keep(file: &Path, run: &impl Serialize) -> Result<(), Error> {
    let line = json::line(run)?;
    let add = || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(file)?;
        let before = file.metadata()?.len();
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).inspect_err(|_| {
            // An error here is ignored, because the next call also removes a truncated line.
            let _ = file.set_len(before);
        })
    };
    add().map_err(|e| cannot_write(file, &e))
}

/// Reads the runs that are stored in a file. A truncated last line belongs to an unfinished run and is
/// removed, so that the next run starts on a new line. The file is truncated instead of rewritten, because an
/// interrupted rewrite would lose all runs.
pub(crate) fn kept<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>, Error> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        // Continuing would repeat hours of runs.
        Err(error) => {
            return Err(Error::new(
                format!("cannot read {}: {error}", file.display()),
                "repair the file, or choose another --out",
            ));
        }
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    if whole.len() < text.len() {
        let shortened = OpenOptions::new().write(true).open(file);
        let shortened = shortened.and_then(|file| file.set_len(whole.len() as u64));
        shortened.map_err(|e| cannot_write(file, &e))?;
    }
    let runs = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    runs.map_err(|e| Error::new(format!("{} has no valid runs: {e}", file.display()), "choose another --out"))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Error {
    files::cannot_write(file, error, "choose another --out")
}

/// Returns the release of the running kernel.
pub(crate) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or("unknown".into(), |text| text.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_runs_are_repeated_alone() {
        assert_eq!([0, 1, 4].map(|attempt| together(true, attempt)), [RUNS_TOGETHER, 1, 1]);
        assert_eq!(together(false, 0), 1);
    }

    #[test]
    fn runs_side_by_side_share_the_rate() {
        let of = |mbit: &[u64], runs: usize| {
            let rates: Vec<Rate> = mbit.iter().map(|mbit| Rate::from_bps(mbit * 1_000_000)).collect();
            groups(&rates, Rate::from_bps(400_000_000), runs)
        };
        assert_eq!(of(&[100, 300, 1, 1_000, 1, 1], 4), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(of(&[1; 5], 4), [0..4, 4..5]);
        assert_eq!(of(&[1, 1], 1), [0..1, 1..2], "one after the other");
        assert_eq!(groups(&[Rate::MAX, Rate::MAX], Rate::from_bps(1), 2), [0..1, 1..2]);
        assert_eq!(of(&[], 4), [] as [Range<usize>; 0]);
    }
}
