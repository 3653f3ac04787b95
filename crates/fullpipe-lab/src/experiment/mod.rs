//! Experiments: a TOML file of defaults, lists and multiples, and the points it stands for.
//!
//! ```text
//!   file ──[[point]] overrides──► tables ──lists, ranges──► points ──seeds──► runs
//! ```
//!
//! `duration` and every field of `[path]`, `[host]` and `[[flow]]` take one value, a list, or a range
//! `{ from = "10mbit", to = "100mbit", steps = 4 }`; the points are all combinations. What shall vary
//! together instead goes into `[[point]]` tables, each a set of overrides of those three:
//!
//! ```toml
//! [[point]]
//! name = "4 MiB"                                 # optional; stands in the label and in `where`
//! limit = "rwnd"                                 # optional; what the point is built to be limited by
//! host = { sndbuf = "4MiB", rcvbuf = "4MiB" }
//! ```
//!
//! `app` in a `[[flow]]` is what its applications do ([`workload`](crate::workload)); left out, one always has
//! more to write and the other reads at once. A value is one table, and a list of them a sweep:
//!
//! | `app` | means |
//! |---|---|
//! | `"greedy"` | the default, to stand in a list |
//! | `{ write = "20mbit" }` | writes payload at a rate, a millisecond's worth at a time |
//! | `{ write = "20mbit", chunk = "64KiB" }` | the same in bursts: 64 KiB every 26 ms |
//! | `{ read = "8mbit" }` | reads payload at a rate, evenly |
//! | `{ read = "200kB/s", rule = "curl" }` | reads as `curl --limit-rate` does: a buffer, then a pause |
//! | `{ read_buffer = "1KiB", reads_per_second = 20 }` | reads 1 KiB, sleeps 50 ms, and so on |
//!
//! Keys for writing and for reading may stand together. In labels and `where` it is a text without spaces:
//! `where = { app = "write=20mbit,chunk=64KiB" }`.
//!
//! A `queue` is a size, or a table with who manages it; sizes may be multiples of the BDP, and what is left out has the
//! value of the RFC (of `tc-red` for RED):
//!
//! | `queue` | means |
//! |---|---|
//! | `"1bdp"` | drop-tail |
//! | `{ size = "1bdp", aqm = "codel", target = "5ms", interval = "100ms", ecn = true }` | CoDel (RFC 8289), marking what can be marked |
//! | `{ aqm = "fq_codel", flows = 1024, quantum = "1514B", packets = 10240 }` | FQ-CoDel (RFC 8290), with CoDel's keys as well |
//! | `{ aqm = "pie", target = "15ms", update = "15ms", burst = "150ms" }` | PIE (RFC 8033) |
//! | `{ aqm = "red", min = "30KiB", max = "90KiB", probability = "2%", gentle = true }` | RED; `max` a quarter of the size, `min` a third of that |
//! | `{ aqm = "step", threshold = "100KiB" }` | marks above a threshold, drops at the end of the queue (DCTCP's) |
//!
//! Other fields of a path, of either direction unless noted; in `[path]` itself they are the data direction's:
//!
//! | field | means |
//! |---|---|
//! | `rate = { trace = "cellular.trace" }` | delivery opportunities of 1500 bytes in Mahimahi's format, from a file beside the experiment |
//! | `jitter = "10ms"` | up to so much more delay, evenly spread; packets stay in order |
//! | `jitter = { up_to = "10ms", spread = "normal", share = "5%", order = false }` | a bell (or `"fixed"`), for a share of packets, which others then overtake |
//! | `detour = { by = "40ms", at = "20s", until = "60s" }` | a longer way for a time; packets stay in order; without `until` for the rest of the run |
//! | `duplicate = "1%"` | so many packets come twice |
//! | `ack_thinning = 4` | one pure ACK in four passes; `[path.backward]` or `[path.forward]` only |
//! | `aggregation = { within = "5ms", packets = 32 }` | packets are held and let go together; likewise |
//!
//! `stack` in a `[[flow]]` says whose TCP its ends have; left out, it is the world's own (fullpipe's in the simulator, the kernel's
//! in the emulator):
//!
//! | `stack` | means |
//! |---|---|
//! | `"fullpipe"` | fullpipe's TCP sends; in the emulator a kernel's receives |
//! | `"kernel"` | a kernel's TCP at both ends; emulator only |
//! | `"kernel-to-fullpipe"` | a kernel's sends and fullpipe's receives; emulator only |
//!
//! All of the file is checked when it is read: what [`Experiment::from_toml`] accepts can be run.

mod error;
mod file;
mod impairments;
mod queue;
mod resolve;
mod swept;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;

pub use error::ExperimentError;
use error::Source;
use file::{ExpectFile, ExperimentFile, PathFile};
use impairments::Traces;
pub use value::Amount;

use crate::metric::{Metric, Over};
use crate::scenario::{Scenario, Stack};

/// An experiment, checked and spread out into its points.
#[derive(Clone, Debug)]
pub struct Experiment {
    name: String,
    description: String,
    repeat: u64,
    seed: u64,
    points: Vec<Point>,
    expectations: Vec<Expectation>,
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What tells it from the others: `"loss=1.5% cc=bbr1"`.
    pub label: String,
    /// Every field that the file gives, as written (`forward.` and `backward.` before a direction's,
    /// `flow2.` before those of the second `[[flow]]`), and `point` for the name of its `[[point]]`.
    pub parameters: BTreeMap<String, String>,
    /// The limit that the point is built to have, as the file names it.
    pub limit: Option<String>,
    /// The run; its seed is zero and comes from the repeat.
    pub scenario: Scenario,
}

/// What the author of the file expects of some of its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The `where` of the file.
    pub conditions: BTreeMap<String, String>,
    /// What is looked at.
    pub metric: Metric,
    /// The least it may be, in the unit of the metric.
    pub min: Option<f64>,
    /// The most it may be.
    pub max: Option<f64>,
    /// How the repeats of a point become one figure.
    pub over: Over,
    /// A figure to be shown beside it: what the real kernel did.
    pub kernel: Option<String>,
    /// The same: what others have published.
    pub published: Option<String>,
    /// Indices of the points that meet the conditions; at least one.
    pub points: Vec<usize>,
}

/// Seeds of one point: more would be a slip of the pen.
pub const MOST_REPEATS: u64 = 10_000;

impl Experiment {
    /// Whether the simulator can run all of it.
    ///
    /// # Errors
    /// When a flow wants a kernel's TCP, which it does not have.
    pub fn check_simulated(&self) -> Result<(), ExperimentError> {
        let kernels = |point: &&Point| {
            point.scenario.flows.iter().any(|flow| flow.stack.is_some_and(|stack| stack != Stack::Fullpipe))
        };
        match self.points.iter().find(kernels) {
            None => Ok(()),
            Some(point) => Err(ExperimentError::new(
                format!("point '{}' wants a kernel's TCP, which the simulator does not have", point.label),
                "remove stack (each world then uses its own), or add --world emu",
            )),
        }
    }

    /// Reads an experiment that names no other file.
    ///
    /// # Errors
    /// One line on what is wrong and where, and a hint on what to write instead.
    pub fn from_toml(text: &str) -> Result<Self, ExperimentError> {
        Self::from_toml_with(text, &|name| {
            Err(format!("cannot read the trace '{name}' without the experiment's folder"))
        })
    }

    /// Reads an experiment; `load` gives the text of a file that it names, relative to its own, or says in a line why it
    /// cannot.
    ///
    /// # Errors
    /// One line on what is wrong and where, and a hint on what to write instead.
    pub fn from_toml_with(
        text: &str,
        load: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ExperimentError> {
        let source = Source(text);
        let file: ExperimentFile = toml::from_str(text).map_err(|e| source.explain(&e))?;
        let refused = |message: String, hint: &str| Err(ExperimentError::new(message, hint));
        if file.name.trim().is_empty() {
            return refused("the name is empty".into(), "add name = \"weak-network\"");
        }
        if !(1..=MOST_REPEATS).contains(&file.repeat) {
            return refused(format!("repeat {} is out of range", file.repeat), "allowed: 1 to 10000");
        }
        if file.flow.is_empty() {
            return refused("there is no flow".into(), "add a [[flow]] with cc = \"cubic\"");
        }
        let overrides = file.point.iter().map(|point| &point.path);
        let named = std::iter::once(&file.path).chain(overrides).flat_map(PathFile::traces);
        let traces = Traces::read(named, load)?;
        let points = resolve::points(&file, &traces)?;
        let expectations = file.expect.into_iter().map(|expect| {
            let at = expect.span().start;
            expectation(expect.into_inner(), &points).map_err(|e| source.at(at, e))
        });
        let expectations = expectations.collect::<Result<_, _>>()?;
        let (name, description) = (file.name, file.description);
        Ok(Self { name, description, repeat: file.repeat, seed: file.seed, points, expectations })
    }

    /// The experiment's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is about; may be empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its points, in the order of the file.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// What is expected of them.
    pub fn expectations(&self) -> &[Expectation] {
        &self.expectations
    }

    /// The seeds of every point: the first, and its successors for the repeats.
    pub fn seeds(&self) -> Vec<u64> {
        (0..self.repeat).map(|i| self.seed.wrapping_add(i)).collect()
    }

    /// The same experiment from another first seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same experiment with so many seeds a point, at least one and at most [`MOST_REPEATS`].
    #[must_use]
    pub fn with_repeat(self, repeat: u64) -> Self {
        Self { repeat: repeat.clamp(1, MOST_REPEATS), ..self }
    }
}

fn expectation(file: ExpectFile, points: &[Point]) -> Result<Expectation, ExperimentError> {
    let metric = file.metric.0;
    let bound = |written: Option<swept::Scalar>| written.map(|w| metric.read_bound(&w.text)).transpose();
    let (min, max) = (bound(file.min)?, bound(file.max)?);
    match (min, max) {
        (None, None) => {
            return Err(ExperimentError::new(
                format!("[[expect]] of {metric} has no bound"),
                "add min, max or both",
            ));
        }
        (Some(min), Some(max)) if min > max => {
            return Err(ExperimentError::new(format!("min of {metric} is above its max"), "swap them"));
        }
        _ => {}
    }
    let conditions: BTreeMap<_, _> = file.conditions.into_iter().map(|(k, w)| (k, w.text)).collect();
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
            format!("points are {}{}", labels.join(", "), if points.len() > 4 { ", …" } else { "" }),
        ));
    }
    let text = |written: Option<swept::Scalar>| written.map(|written| written.text);
    let (kernel, published) = (text(file.kernel), text(file.published));
    Ok(Expectation { conditions, metric, min, max, over: file.over.0, kernel, published, points: matching })
}

/// Whether `point` has all of `conditions`, compared as values: `"0.015 %"` is `"150ppm"`.
fn meets(point: &Point, conditions: &BTreeMap<String, String>) -> Result<bool, ExperimentError> {
    for (key, wanted) in conditions {
        // Compared with itself first, so that a slip in the file shows even where the field is absent.
        value::same(key, wanted, wanted)?;
        match point.parameters.get(key) {
            Some(value) if value::same(key, wanted, value)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}
