//! Experiments: a TOML file with defaults, lists and multiples of the BDP, and the experiment points that the
//! file defines.
//!
//! ```text
//!   file ──[[point]] overrides──► tables ──lists, ranges──► points ──seeds──► runs
//! ```
//!
//! `duration` and every field of `[path]`, `[host]` and `[[flow]]` take one value, a list, or a range `{ from
//! = "10mbit", to = "100mbit", steps = 4 }`; the points are all combinations. Fields that vary together
//! belong in `[[point]]` tables; each of these tables is a set of overrides of path, host and flow:
//!
//! ```toml
//! [[point]]
//! name = "4 MiB"                                 # optional; appears in the label and in `where`
//! limit = "rwnd"                                 # optional; the limit that the point is designed to reach
//! host = { sndbuf = "4MiB", rcvbuf = "4MiB" }
//! ```
//!
//! `app` in a `[[flow]]` describes the applications of the flow ([`workload`](crate::workload)). By default
//! the sender always has more to write and the receiver reads at once. A value is one table; a list of tables
//! is a sweep:
//!
//! | `app` | meaning |
//! |---|---|
//! | `"greedy"` | the default, for use in a list of values |
//! | `{ write = "20mbit" }` | writes payload at the given rate, one millisecond of data at a time |
//! | `{ write = "20mbit", chunk = "64KiB" }` | writes at the given rate in bursts: 64 KiB every 26 ms |
//! | `{ read = "8mbit" }` | reads payload at the given rate, evenly |
//! | `{ read = "200kB/s", rule = "curl" }` | reads like `curl --limit-rate`: fills one buffer, then pauses |
//! | `{ read_buffer = "1KiB", reads_per_second = 20 }` | repeats: read 1 KiB, then sleep 50 ms |
//! | `{ request = "200B" }` | the receiver connects and sends 200 bytes; the sender replies with `bytes` |
//!
//! A table may combine keys for writing, for reading and for the request. In labels and in `where`, the value
//! is written as a string without spaces: `where = { app = "write=20mbit,chunk=64KiB" }`.
//!
//! A `queue` is a size, or a table that selects the AQM. Sizes may be multiples of the BDP. Omitted AQM keys
//! have the default of the RFC; for RED, they have the default of `tc-red`:
//!
//! | `queue` | meaning |
//! |---|---|
//! | `"1bdp"` | drop-tail queue of one BDP |
//! | `{ size = "1bdp", aqm = "codel", target = "5ms", interval = "100ms", ecn = true }` | CoDel (RFC 8289), with ECN |
//! | `{ aqm = "fq_codel", flows = 1024, quantum = "1514B", packets = 10240 }` | FQ-CoDel (RFC 8290); takes CoDel's keys too |
//! | `{ aqm = "pie", target = "15ms", update = "15ms", burst = "150ms" }` | PIE (RFC 8033) |
//! | `{ aqm = "red", min = "30KiB", max = "90KiB", probability = "2%", gentle = true }` | RED; `max` = size/4, `min` = `max`/3 |
//! | `{ aqm = "step", threshold = "100KiB" }` | marks above a threshold (DCTCP), drops when the queue is full |
//!
//! Each of the other fields of a path may be set for either direction unless noted otherwise. In `[path]`
//! itself, `rate` applies to both directions and the other fields apply to the data direction:
//!
//! | field | meaning |
//! |---|---|
//! | `rate = { trace = "cellular.trace" }` | 1500-byte delivery opportunities from a file in Mahimahi's format |
//! | `jitter = "10ms"` | random extra delay, uniform up to 10 ms; packets stay in order |
//! | `jitter = { up_to = "10ms", spread = "normal", share = "5%", order = false }` | delays 5 % of packets; others overtake |
//! | `detour = { by = "40ms", at = "20s", until = "60s" }` | adds delay from `at` on; `until` is optional |
//! | `duplicate = "1%"` | duplicates 1 % of packets |
//! | `ack_thinning = 4` | ACK decimation: forwards one pure ACK in four; not in `[path]` itself |
//! | `aggregation = { within = "5ms", packets = 32 }` | releases packets in batches; not in `[path]` itself |
//!
//! `spread` is `"uniform"`, `"normal"` or `"fixed"`. A detour does not reorder packets. The path of a trace
//! file is relative to the experiment file.
//!
//! `stack` in a `[[flow]]` selects the TCP implementation at both ends. The default is fullpipe's TCP in the
//! simulator, and the kernel TCP stack in the emulator and in guests:
//!
//! | `stack` | meaning |
//! |---|---|
//! | `"fullpipe"` | fullpipe's TCP sends; in the emulator the kernel TCP stack receives |
//! | `"kernel"` | the kernel TCP stack at both ends; emulator or guest only |
//! | `"kernel-to-fullpipe"` | the kernel TCP stack sends and fullpipe's TCP receives; emulator only |
//!
//! An experiment has at most 100 000 points, 10 000 seeds per point and 10 000 flows per point, and at most
//! [`MOST_RESULTS`] flows over all runs ([`Experiment::check_size`]).
//!
//! The whole file is validated when it is parsed: an experiment that [`Experiment::from_toml`] accepts and
//! that is within these limits can be run.

mod design;
mod error;
mod file;
mod impairments;
mod number;
mod point_table;
mod profiles;
mod queue;
mod resolve;
mod seeds;
mod swept;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;

pub use design::{Design, DesignPoint, FieldColumn, FieldColumns, Setting};
pub use error::ExperimentError;
use error::Source;
use file::{ExpectFile, ExperimentFile, HarmFile, RatioFile};
use fullpipe_tcp::cc::Algorithm;
pub use number::Number;
pub use point_table::PointTable;
pub use profiles::{missing_profile, read_profiles};
use seeds::Seeds;
pub use value::Amount;

use crate::arm::Arm;
use crate::metric::{Metric, Over};
use crate::profile::Profiles;
use crate::scenario::{FlowSpec, Scenario, Stack};
use crate::victim::Victim;

/// An experiment that has been validated and expanded into its points.
#[derive(Clone, Debug)]
pub struct Experiment {
    name: String,
    description: String,
    seeds: Seeds,
    points: Vec<Point>,
    profiles: Profiles,
    expectations: Vec<Expectation>,
    ratios: Vec<RatioBound>,
    harms: Vec<HarmBound>,
}

/// A point of an experiment: one combination of field values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Label that distinguishes the point from the other points, such as `"loss=1.5% cc=bbr1"`.
    pub label: String,
    /// Every field that the file sets, with its value as written; the name of the `[[point]]` has the key
    /// `point`. Fields of a direction have the prefix `forward.` or `backward.`, and fields of the second
    /// `[[flow]]` have the prefix `flow2.`.
    pub parameters: BTreeMap<String, String>,
    /// Limit that the point is designed to reach, such as `rwnd`; `None` if the file states none.
    pub limit: Option<String>,
    /// Scenario of the point; its seed is zero, and each run sets its own seed.
    pub scenario: Scenario,
}

impl Point {
    /// Checks that every flow of the point can run in the simulator.
    ///
    /// # Errors
    /// Returns an error if a flow requires the kernel TCP stack, or a congestion control that only Linux has.
    pub fn check_simulated(&self) -> Result<(), ExperimentError> {
        let ours = |flow: &&FlowSpec| flow.cc.of_fullpipe().is_some();
        if let Some(flow) = self.scenario.flows.iter().find(|flow| !ours(flow)) {
            let simulated = Algorithm::ALL.map(Algorithm::name).join(", ");
            return Err(ExperimentError::new(
                format!(
                    "point '{}' requires the congestion control '{}', which only Linux has",
                    self.label, flow.cc
                ),
                format!(
                    "run it on a kernel (--world uml), or choose one that the simulator has: {simulated}"
                ),
            ));
        }
        if self.scenario.flows.iter().all(|flow| flow.stack.is_none_or(|stack| stack == Stack::Fullpipe)) {
            return Ok(());
        }
        Err(ExperimentError::new(
            format!(
                "point '{}' requires the kernel TCP stack, which the simulator does not have",
                self.label
            ),
            "remove stack (each world then uses its default), or add --world emu",
        ))
    }
}

/// Bounds for a metric at some of the points.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Field values that select points, from the key `where` of the file.
    pub conditions: BTreeMap<String, String>,
    /// Metric to which the bounds apply.
    pub metric: Metric,
    /// Lower bound, in the unit of the metric; `None` for no lower bound.
    pub min: Option<f64>,
    /// Upper bound, in the unit of the metric; `None` for no upper bound.
    pub max: Option<f64>,
    /// How the values of a point's runs are aggregated into one value.
    pub over: Over,
    /// Value measured with a real kernel, as a string that is shown next to the result.
    pub kernel: Option<String>,
    /// Published value, as a string that is shown next to the result.
    pub published: Option<String>,
    /// Indices of the points that meet the conditions; there is always at least one.
    pub points: Vec<usize>,
}

/// Bound on the ratio between the times of two arms at some of the points, for a
/// [race](crate::race::RacePlan).
#[derive(Clone, Debug, PartialEq)]
pub struct RatioBound {
    /// Field values that select points, from the key `where` of the file.
    pub conditions: BTreeMap<String, String>,
    /// Arm whose times are the denominator of the ratio.
    pub arm: Arm,
    /// Arm whose times are the numerator of the ratio.
    pub against: Arm,
    /// Minimum for the lower end of the ratio's confidence interval.
    pub min: f64,
    /// Share of the ratio of the fastest possible download; if lower than `min`, it replaces `min`.
    pub floor_share: Option<f64>,
    /// Indices of the points that meet the conditions; there is always at least one.
    pub points: Vec<usize>,
}

/// Bound on the difference between the harm that two arms cause at some of the points
/// ([`HarmPlan`](crate::race::HarmPlan)).
#[derive(Clone, Debug, PartialEq)]
pub struct HarmBound {
    /// Field values that select points, from the key `where` of the file.
    pub conditions: BTreeMap<String, String>,
    /// Victim that the bound applies to; `None` for all victims.
    pub victim: Option<Victim>,
    /// Arm whose harm is bounded.
    pub arm: Arm,
    /// Arm whose harm is subtracted.
    pub against: Arm,
    /// Maximum for the upper end of the confidence interval of the difference.
    pub max: f64,
    /// Indices of the points that meet the conditions; there is always at least one.
    pub points: Vec<usize>,
}

/// Maximum number of seeds per point; a larger number is treated as a typing error.
pub const MOST_REPEATS: u64 = 10_000;

/// Maximum number of flows over all runs of an experiment (points x seeds x flows). The results of all runs
/// are kept until the end, and each flow takes about 3 KB.
pub const MOST_RESULTS: u64 = 200_000;

/// Maximum number of trace rows over all runs, for callers that keep the rows; each row takes about 300
/// bytes.
pub const MOST_ROWS: u64 = 10_000_000;

/// Maximum product of the number of expectations and the number of points. Each expectation is compared with each
/// point, and keeps a list of the points that meet its conditions.
const MOST_COMPARISONS: u64 = 4_000_000;

impl Experiment {
    /// Checks whether the results of all runs fit into memory.
    ///
    /// # Errors
    /// Returns an error if points x seeds x flows exceed [`MOST_RESULTS`].
    pub fn check_size(&self) -> Result<(), ExperimentError> {
        let flows: u64 = self.points.iter().map(|point| point.scenario.flows.len() as u64).sum();
        let (runs, results) = (self.runs(), self.seeds.runs(flows));
        let described = format!("{runs} runs with {results} flows in total");
        self.check_results(results, &described, "flows over all runs")
    }

    /// Checks whether the results of all runs fit into memory, for a caller that keeps a few figures per run instead of
    /// those of each flow.
    ///
    /// # Errors
    /// Returns an error if points x seeds exceed [`MOST_RESULTS`].
    pub fn check_runs(&self) -> Result<(), ExperimentError> {
        let runs = self.runs();
        self.check_results(runs, &format!("{runs} runs"), "runs")
    }

    /// Checks that `results`, which `described` names, are at most [`MOST_RESULTS`] `units`.
    fn check_results(&self, results: u64, described: &str, units: &str) -> Result<(), ExperimentError> {
        if results <= MOST_RESULTS {
            return Ok(());
        }
        let (points, seeds) = (self.points.len(), self.seeds.count());
        Err(ExperimentError::new(
            format!("the experiment has {described} ({points} points x {seeds} seeds)"),
            format!(
                "allowed: up to {MOST_RESULTS} {units}; shorten a list, lower repeat or split the experiment"
            ),
        ))
    }

    /// Checks whether the trace rows of all runs fit into memory, for a caller that keeps them.
    ///
    /// # Errors
    /// Returns an error if all runs together have more than [`MOST_ROWS`] trace rows.
    pub fn check_trace_size(&self) -> Result<(), ExperimentError> {
        let rows = |point: &Point| {
            let Scenario { duration, sample_every, flows, .. } = &point.scenario;
            (duration.as_nanos() / sample_every.as_nanos().max(1)).saturating_mul(flows.len() as u64)
        };
        let rows = self.points.iter().map(rows).fold(0, u64::saturating_add);
        let rows = self.seeds.runs(rows);
        if rows <= MOST_ROWS {
            return Ok(());
        }
        Err(ExperimentError::new(
            format!("the trace of all runs would have {rows} rows"),
            format!("allowed: up to {MOST_ROWS}; sample less often ([[sample]] every), or make fewer runs"),
        ))
    }

    /// Returns the number of runs of the experiment: points x seeds.
    pub fn runs(&self) -> u64 {
        self.seeds.runs(self.points.len() as u64)
    }

    /// Checks that every flow of the experiment can run in the simulator.
    ///
    /// # Errors
    /// Returns an error if a flow requires the kernel TCP stack, or a congestion control that only Linux has.
    pub fn check_simulated(&self) -> Result<(), ExperimentError> {
        self.points.iter().try_for_each(Point::check_simulated)
    }

    /// Parses an experiment that refers to no other file.
    ///
    /// # Errors
    /// If the experiment is invalid, returns an error with a one-line message, the position in the file and a
    /// hint.
    pub fn from_toml(text: &str) -> Result<Self, ExperimentError> {
        Self::from_toml_with(text, &|name| {
            Err(format!("cannot read the trace '{name}', because the folder of the experiment is not known"))
        })
    }

    /// Parses an experiment. `load` returns the text of another file to which the experiment refers, given
    /// its path relative to the experiment file, or a one-line error.
    ///
    /// # Errors
    /// If the experiment is invalid, returns an error with a one-line message, the position in the file and a
    /// hint.
    pub fn from_toml_with(
        text: &str,
        load: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ExperimentError> {
        let source = Source(text);
        let file: ExperimentFile = toml::from_str(text).map_err(|e| source.explain(&e))?;
        let design = Design::of(&file, &source, load, None)?;
        let points = design.all_points()?;
        let comparisons = (file.expect.len() as u64).saturating_mul(points.len() as u64);
        if comparisons > MOST_COMPARISONS {
            return Err(ExperimentError::new(
                format!("the experiment has {} expectations for {} points", file.expect.len(), points.len()),
                format!(
                    "the number of expectations times the number of points may be up to \
                         {MOST_COMPARISONS}; split the experiment"
                ),
            ));
        }
        let expectations = file.expect.into_iter().map(|expect| {
            let at = expect.span().start;
            expectation(expect.into_inner(), &points).map_err(|e| source.at(at, e))
        });
        let expectations = expectations.collect::<Result<_, _>>()?;
        let ratios = file.ratio.into_iter().map(|ratio| {
            let at = ratio.span().start;
            ratio_bound(ratio.into_inner(), &points).map_err(|e| source.at(at, e))
        });
        let ratios = ratios.collect::<Result<_, _>>()?;
        let harms = file.harm.into_iter().map(|harm| {
            let at = harm.span().start;
            harm_bound(harm.into_inner(), &points).map_err(|e| source.at(at, e))
        });
        let harms = harms.collect::<Result<_, _>>()?;
        let (name, description) = (file.name, file.description);
        let (seeds, profiles) = (design.seeds, design.into_profiles());
        Ok(Self { name, description, seeds, points, profiles, expectations, ratios, harms })
    }

    /// Returns the name of the experiment.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description of the experiment; it may be empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the points of the experiment, in the order of the file.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the profiles of the experiment, by name.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Adds profiles for the arms of a race. They replace profiles of the experiment that have the same names, except
    /// in flows to which the experiment gives a profile.
    #[must_use]
    pub fn with_profiles(mut self, profiles: Profiles) -> Self {
        self.profiles.extend(profiles);
        self
    }

    /// Returns the expectations of the experiment.
    pub fn expectations(&self) -> &[Expectation] {
        &self.expectations
    }

    /// Returns the bounds on ratios, which apply to races.
    pub fn ratios(&self) -> &[RatioBound] {
        &self.ratios
    }

    /// Returns the bounds on harm, which apply to races with victims.
    pub fn harms(&self) -> &[HarmBound] {
        &self.harms
    }

    /// Returns the random seeds with which every point is run: the first seed, and consecutive numbers for
    /// the repeats.
    pub fn seeds(&self) -> Vec<u64> {
        self.seeds.all().collect()
    }

    /// Replaces the first random seed of the experiment.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seeds: self.seeds.with_first(seed), ..self }
    }

    /// Sets the number of seeds per point, at least one and at most [`MOST_REPEATS`].
    #[must_use]
    pub fn with_repeat(self, repeat: u64) -> Self {
        Self { seeds: self.seeds.with_count(repeat), ..self }
    }
}

fn expectation(file: ExpectFile, points: &[Point]) -> Result<Expectation, ExperimentError> {
    let metric = file.metric.0;
    let bound = |written: Option<swept::Scalar>| written.map(|w| metric.read_bound(&w.text)).transpose();
    let (min, max) = (bound(file.min)?, bound(file.max)?);
    match (min, max) {
        (None, None) => {
            return Err(ExperimentError::new(
                format!("[[expect]] for {metric} has no bound"),
                "add min, max or both",
            ));
        }
        (Some(min), Some(max)) if min > max => {
            return Err(ExperimentError::new(
                format!("min of {metric} is above its max"),
                "swap min and max",
            ));
        }
        _ => {}
    }
    let (conditions, points) = selected(file.conditions, points)?;
    let text = |written: Option<swept::Scalar>| written.map(|written| written.text);
    let (kernel, published) = (text(file.kernel), text(file.published));
    Ok(Expectation { conditions, metric, min, max, over: file.over.0, kernel, published, points })
}

/// Checks that a bound in the table `[[table]]` compares two different arms.
fn different(table: &str, arm: Arm, against: Arm) -> Result<(), ExperimentError> {
    if arm == against {
        return Err(ExperimentError::new(
            format!("[[{table}]] compares {arm} with itself"),
            "set against to a different arm",
        ));
    }
    Ok(())
}

fn ratio_bound(file: RatioFile, points: &[Point]) -> Result<RatioBound, ExperimentError> {
    let (arm, against) = (file.arm.0, file.against.0);
    different("ratio", arm, against)?;
    let min = file.min.text.parse::<f64>().ok().filter(|min| (0.0..=1_000.0).contains(min));
    let Some(min) = min else {
        return Err(ExperimentError::new(
            format!("min '{}' of [[ratio]] is not a ratio", file.min.text),
            "allowed: 0 to 1000; a value above 1 requires the arm to be faster",
        ));
    };
    let floor_share = file.floor_share.map(|share| {
        let valid = share.text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        valid.ok_or_else(|| {
            ExperimentError::new(
                format!("floor_share '{}' of [[ratio]] is not a share", share.text),
                "allowed: 0 to 1; 0.95 requires 95 % of the ratio that the path allows",
            )
        })
    });
    let floor_share = floor_share.transpose()?;
    let (conditions, points) = selected(file.conditions, points)?;
    Ok(RatioBound { conditions, arm, against, min, floor_share, points })
}

fn harm_bound(file: HarmFile, points: &[Point]) -> Result<HarmBound, ExperimentError> {
    let (arm, against) = (file.arm.0, file.against.0);
    different("harm", arm, against)?;
    let max = file.max.text.parse::<f64>().ok().filter(|max| (-1.0..=1.0).contains(max));
    let Some(max) = max else {
        return Err(ExperimentError::new(
            format!("max '{}' of [[harm]] is not a difference between two harms", file.max.text),
            "allowed: -1 to 1; 0.05 allows the arm to do 5 percentage points more harm than the other arm",
        ));
    };
    let (conditions, points) = selected(file.conditions, points)?;
    Ok(HarmBound { conditions, victim: file.victim.map(|victim| victim.0), arm, against, max, points })
}

/// Returns the conditions as strings, and the indices of the points that meet all of them.
///
/// # Errors
/// Returns an error if a condition is invalid, or if no point meets the conditions.
fn selected(
    written: BTreeMap<String, swept::Scalar>,
    points: &[Point],
) -> Result<(BTreeMap<String, String>, Vec<usize>), ExperimentError> {
    let conditions: BTreeMap<_, _> = written.into_iter().map(|(k, w)| (k, w.text)).collect();
    let mut matching = Vec::new();
    for (i, point) in points.iter().enumerate() {
        if meets(point, &conditions)? {
            matching.push(i);
        }
    }
    if matching.is_empty() {
        let listed: Vec<_> = conditions.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let labels: Vec<_> = points.iter().take(4).map(|p| format!("'{}'", p.label)).collect();
        return Err(ExperimentError::new(
            format!("no point has {}", listed.join(" ")),
            format!("the points are {}{}", labels.join(", "), if points.len() > 4 { ", …" } else { "" }),
        ));
    }
    Ok((conditions, matching))
}

/// Returns whether `point` meets all of `conditions`. Values are compared as quantities rather than as
/// strings: `"0.015 %"` equals `"150ppm"`.
fn meets(point: &Point, conditions: &BTreeMap<String, String>) -> Result<bool, ExperimentError> {
    for (key, wanted) in conditions {
        // The condition is parsed first, so an invalid condition is reported even if the point lacks the field.
        value::same(key, wanted, wanted)?;
        match point.parameters.get(key) {
            Some(value) if value::same(key, wanted, value)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}
