//! The manifest of a data set: a description of its content, as a value and as `manifest.json`.

use std::fmt::Write as _;

use fullpipe_lab::columns::Kind;
use fullpipe_lab::cost::RunCost;
use fullpipe_lab::experiment::{Design, DesignPoint, ExperimentError, FieldColumns};
use fullpipe_lab::results::RUN_COLUMNS;
use fullpipe_lab::scenario::Scenario;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Name and version of the format of data sets.
pub const SCHEMA: &str = "fullpipe.dataset/1";
/// Default size of a part in packets, which take 4 to 16 s on a core that simulates 2 to 8 million packets
/// per second.
pub const PART_PACKETS: u64 = 32_000_000;
/// Divisor for the size of a part: a part contains at most 1/8 of the remaining work, so that up to eight
/// workers finish at about the same time. This limit never falls below 1/8 of the maximum size of a part.
const TAPER: u64 = 8;
/// Maximum number of rows of a part, which ensures that a part of many short runs fits into memory.
const PART_ROWS: u64 = 20_000;
/// Maximum number of trace rows of a part, which ensures that a part fits into memory; a single run may have
/// [`RUN_TRACE_ROWS`].
const PART_TRACE_ROWS: u64 = 200_000;
/// Maximum number of trace rows of one run; each takes about 400 bytes of memory until its part is written.
const RUN_TRACE_ROWS: u64 = 1_000_000;

/// Description of the content of a data set. Everything in it is a function of the experiment, the options
/// and the version of fullpipe, but not of time, host or threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// Name and version of the format of the data set.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Version of fullpipe with which the parts are made. Another version may give other results.
    pub version: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Text of the experiment file.
    pub text: String,
    /// BLAKE3 hash of the text.
    pub blake3: String,
    /// Files to which the experiment refers, which are copied to the folder `inputs`.
    pub inputs: Vec<InputFile>,
    /// BLAKE3 hash of the table of points, which is stored as a CSV file in the folder `inputs`; null if
    /// there is no table.
    pub points_blake3: Option<String>,
    /// First random seed.
    pub seed: u64,
    /// Number of random seeds per point.
    pub repeat: u64,
    /// Interval between the rows of the trace, in nanoseconds; null if the data set has no trace.
    pub trace_ns: Option<u64>,
    /// Maximum size of a part, in predicted packets; a part ends before the run that would exceed it. The last
    /// parts are smaller.
    pub part_packets: u64,
    /// Number of points.
    pub points: u64,
    /// Number of runs: points x seeds.
    pub runs: u64,
    /// Number of rows: one for each flow of each run.
    pub rows: u64,
    /// Columns of the table `runs`, in order.
    pub columns: Vec<ColumnSpec>,
    /// Parts of the data set, numbered from zero.
    pub parts: Vec<Part>,
}

/// File to which an experiment refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputFile {
    /// Name of the file, as written in the experiment.
    pub name: String,
    /// BLAKE3 hash of the content, which is also the name of the copy.
    pub blake3: String,
}

/// Column of a table in a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ColumnSpec {
    /// Name of the column, which ends in the unit of its values.
    pub name: String,
    /// Type of the values: `u32`, `u64`, `f64`, `bool` or `text`; in tables of trace rows, also `word` for a
    /// text with few distinct values.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether rows may lack a value.
    pub optional: bool,
}

impl ColumnSpec {
    pub(crate) fn new(name: &str, kind: Kind, optional: bool) -> Self {
        Self { name: name.into(), kind: kind.name().into(), optional }
    }
}

/// A part of a data set: consecutive runs whose results are in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Number of the first run in the part.
    pub first_run: u64,
    /// Number of runs in the part.
    pub runs: u64,
    /// Number of rows in the part: one for each flow of each run.
    pub rows: u64,
    /// Predicted work in data packets that cross the path.
    pub packets: u64,
}

/// Inputs from which a manifest is computed.
pub(super) struct Sources {
    pub(super) text: String,
    pub(super) inputs: Vec<InputFile>,
    pub(super) points_blake3: Option<String>,
    pub(super) trace_ns: Option<u64>,
    pub(super) part_packets: u64,
}

impl Manifest {
    /// Computes the manifest, and the columns of the fields that differ between points. Each point is
    /// resolved once, which takes about 20 us.
    pub(super) fn of(design: &Design, sources: Sources) -> Result<(Self, FieldColumns), ExperimentError> {
        let Sources { text, inputs, points_blake3, trace_ns, part_packets } = sources;
        let mut fields = FieldColumns::default();
        let mut points = Vec::new();
        let traced = trace_ns.is_some();
        design.visit(|DesignPoint { point, settings }| {
            point.check_simulated()?;
            fields.add(&settings);
            points.push(RunSize {
                rows: point.scenario.flows.len() as u64,
                trace_rows: if traced { trace_rows(&point.scenario)? } else { 0 },
                packets: RunCost::of(&point.scenario, traced).packets().round().max(1.0) as u64,
            });
            Ok(())
        })?;
        let parts = divided(&points, design.repeat(), part_packets);
        let of_fields = fields
            .columns()
            .map(|field| ColumnSpec::new(&field.name(), field.kind, fields.is_optional(field)));
        let of_runs =
            RUN_COLUMNS.iter().map(|column| ColumnSpec::new(column.name, column.kind, column.optional));
        let columns: Vec<ColumnSpec> = of_fields.chain(of_runs).collect();
        let manifest = Self {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            experiment: design.name().into(),
            blake3: hash(text.as_bytes()),
            text,
            inputs,
            points_blake3,
            seed: design.seed(),
            repeat: design.repeat(),
            trace_ns,
            part_packets,
            points: design.points(),
            runs: design.runs(),
            rows: parts.iter().map(|part| part.rows).sum(),
            columns,
            parts,
        };
        Ok((manifest, fields))
    }

    /// Returns the text of `manifest.json`.
    pub(super) fn to_text(&self) -> Result<String, Error> {
        crate::json::document(self)
    }

    /// Describes the first difference from another manifest: the value in this manifest, and the value in the
    /// other one.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let Self {
            schema, version, text, inputs, points_blake3, seed, repeat, trace_ns, part_packets, ..
        } = self;
        let differ = |what: &str, this: String, that: String| {
            Some(format!(
                "{what}: {this} in the data set, {that} \
                in this command"
            ))
        };
        let none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
        if *schema != other.schema {
            differ("schema", schema.clone(), other.schema.clone())
        } else if *version != other.version {
            differ("version of fullpipe", version.clone(), other.version.clone())
        } else if *text != other.text {
            let lines = (1..).zip(text.lines().zip(other.text.lines()));
            match lines.into_iter().find(|(_, (this, that))| this != that) {
                Some((line, (this, that))) => differ(
                    &format!("line {line} of the experiment"),
                    format!("'{this}'"),
                    format!("'{that}'"),
                ),
                None => differ(
                    "length of the experiment",
                    format!("{} lines", text.lines().count()),
                    format!("{} lines", other.text.lines().count()),
                ),
            }
        } else if *inputs != other.inputs {
            let names = |inputs: &[InputFile]| {
                let mut names = String::new();
                for file in inputs {
                    // Writing to a string cannot fail.
                    let _ = write!(names, "{} ({:.8}) ", file.name, file.blake3);
                }
                names.trim_end().to_owned()
            };
            differ("rate traces", names(inputs), names(&other.inputs))
        } else if *points_blake3 != other.points_blake3 {
            differ("table of points (BLAKE3)", none(points_blake3), none(&other.points_blake3))
        } else if *seed != other.seed {
            differ("first seed", seed.to_string(), other.seed.to_string())
        } else if *repeat != other.repeat {
            differ("seeds per point", repeat.to_string(), other.repeat.to_string())
        } else if *trace_ns != other.trace_ns {
            let period = |ns: &Option<u64>| ns.map_or("none".into(), |ns| format!("{} ms", ns as f64 / 1e6));
            differ("interval of the trace", period(trace_ns), period(&other.trace_ns))
        } else if *part_packets != other.part_packets {
            differ("packets per part", part_packets.to_string(), other.part_packets.to_string())
        } else if self != other {
            // The same inputs always give the same manifest, so the file must have been edited.
            differ("columns or parts", "edited values".into(), "those of the experiment".into())
        } else {
            None
        }
    }

    /// Returns the number of the part that contains row `row`, and the number of the row in that part.
    pub(super) fn part_of(&self, row: u64) -> Option<(usize, u64)> {
        let mut before = 0;
        for (number, part) in self.parts.iter().enumerate() {
            if row < before + part.rows {
                return Some((number, row - before));
            }
            before += part.rows;
        }
        None
    }
}

/// Returns the number of trace rows of a run.
fn trace_rows(scenario: &Scenario) -> Result<u64, ExperimentError> {
    let times = scenario.duration.as_nanos() / scenario.sample_every.as_nanos().max(1);
    let rows = times.saturating_mul(scenario.flows.len() as u64);
    if rows <= RUN_TRACE_ROWS {
        return Ok(rows);
    }
    Err(ExperimentError::new(
        format!("the trace of one run would have {rows} rows"),
        format!("allowed: up to {RUN_TRACE_ROWS}; set a longer --trace period"),
    ))
}

const EMPTY: Part = Part { first_run: 0, runs: 0, rows: 0, packets: 0 };

/// Size of each run of a point.
#[derive(Clone, Copy)]
struct RunSize {
    rows: u64,
    trace_rows: u64,
    /// Predicted work in data packets.
    packets: u64,
}

/// Divides `repeat` runs of each point into parts of at most `most` packets. The parts become smaller towards
/// the end, so that no worker has to wait long for the last one.
fn divided(points: &[RunSize], repeat: u64, most: u64) -> Vec<Part> {
    let total = points.iter().map(|run| run.packets.saturating_mul(repeat)).fold(0, u64::saturating_add);
    let mut parts = Vec::new();
    let (mut open, mut open_trace_rows) = (EMPTY, 0);
    let (mut left, mut limit) = (total, 0);
    for RunSize { rows, trace_rows, packets } in points.iter().copied() {
        for _ in 0..repeat {
            let full = open.packets.saturating_add(packets) > limit
                || open.rows + rows > PART_ROWS
                || open_trace_rows + trace_rows > PART_TRACE_ROWS;
            if full && open.runs > 0 {
                parts.push(open);
                (open, open_trace_rows) = (Part { first_run: open.first_run + open.runs, ..EMPTY }, 0);
            }
            if open.runs == 0 {
                limit = (left / TAPER).clamp(most / TAPER, most);
            }
            open.runs += 1;
            open.rows += rows;
            open.packets = open.packets.saturating_add(packets);
            open_trace_rows += trace_rows;
            left = left.saturating_sub(packets);
        }
    }
    parts.extend((open.runs > 0).then_some(open));
    parts
}

/// Returns the BLAKE3 hash of `bytes` in hexadecimal.
pub(super) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts consist of consecutive runs, contain each run exactly once, and end at the bound that is reached
    /// first. A run that exceeds the bound on its own is one part.
    #[test]
    fn parts_end_at_a_bound() {
        let cut = |most, repeat, points: &[(u64, u64, u64)]| {
            let size = |&(rows, trace_rows, packets): &_| RunSize { rows, trace_rows, packets };
            let points: Vec<_> = points.iter().map(size).collect();
            let parts = divided(&points, repeat, most);
            parts.iter().map(|part| (part.first_run, part.runs, part.packets)).collect::<Vec<_>>()
        };
        assert_eq!(cut(10, 5, &[(1, 0, 4)])[..2], [(0, 1, 4), (1, 1, 4)]);
        assert_eq!(cut(10, 100, &[(1, 0, 4)])[..2], [(0, 2, 8), (2, 2, 8)]);
        assert_eq!(cut(10, 1, &[(1, 0, 4), (1, 0, 40), (1, 0, 4)]), [(0, 1, 4), (1, 1, 40), (2, 1, 4)]);
        assert_eq!(cut(u64::MAX, 1, &[(12_000, 0, 1), (12_000, 0, 1)]), [(0, 1, 1), (1, 1, 1)]);
        assert_eq!(cut(u64::MAX, 2, &[(1, 150_000, 1)]), [(0, 1, 1), (1, 1, 1)]);
        assert_eq!(cut(10, 1, &[]), []);
        assert_eq!(cut(0, 2, &[(1, 0, 4)]), [(0, 1, 4), (1, 1, 4)]);
    }

    /// Two to eight workers, each of which takes the next part when it has finished one, finish at most 3 %
    /// later than with an even division, also for sweeps of few full parts.
    #[test]
    fn workers_finish_at_about_the_same_time() {
        for (million_packets, workers) in [(190, 2), (190, 3), (320, 4), (640, 8), (4_000, 8)] {
            let run = RunSize { rows: 1, trace_rows: 0, packets: 50_000 };
            let parts = divided(&[run; 100], 10 * million_packets / 50, PART_PACKETS);
            let mut busy_until = vec![0; workers];
            for part in &parts {
                assert!(part.packets <= PART_PACKETS);
                if let Some(first) = busy_until.iter_mut().min() {
                    *first += part.packets;
                }
            }
            let total: u64 = parts.iter().map(|part| part.packets).sum();
            let last = busy_until.iter().max().copied().unwrap_or_default();
            let excess = (last * workers as u64) as f64 / total as f64;
            assert!(excess < 1.03, "{million_packets} million packets, {workers} workers: {excess}");
        }
    }
}
