//! Total rate of parallel flows on a path, for each number of flows.
//!
//! ```text
//!   path, hosts ──► one model per number ──► runs ──► rate, limit and memory of each number ──► enough()
//! ```
//!
//! Path and hosts are the same as for [`whatif`](crate::whatif()); only the number of flows differs. A
//! program that opens several connections to one host, such as `fullpipe copy`, needs the smallest number of
//! connections that reaches almost the best rate: each further connection takes memory, and takes capacity
//! from other traffic.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use fullpipe_lab::campaign::JobWatch;
use fullpipe_measurement::PathFacts;
use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::Serialize;

pub use crate::ladder::FlowCount;
use crate::ladder::{self, DiagnoseError, counted, effort_of_counts, lengths};
use crate::whatif::{self, Inputs, Question};

/// Version of the JSON document. Within a version, keys are only added, never changed or removed.
pub const SCHEMA: &str = "fullpipe.flow-counts/1";

/// Largest number of flows that is simulated.
pub const MOST: u64 = 64;

/// Share of the best rate that is enough: above it, further flows are not worth their memory and the capacity that they
/// take from other traffic.
/// Source: chosen, not measured.
const ENOUGH: f64 = 0.95;

/// Range of numbers of flows, such as `1..16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRange(RangeInclusive<u64>);

impl FlowRange {
    /// Creates the range from `least` to `most` flows, or returns `None` if it is empty or not within 1 to
    /// [`MOST`].
    pub fn new(least: u64, most: u64) -> Option<Self> {
        (1 <= least && least <= most && most <= MOST).then_some(Self(least..=most))
    }
}

/// Error for a string that is not a range of numbers of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFlowRangeError(String);

impl fmt::Display for ParseFlowRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a range of flow counts within 1 to {MOST}, for example 1..16", self.0)
    }
}

impl std::error::Error for ParseFlowRangeError {}

impl FromStr for FlowRange {
    type Err = ParseFlowRangeError;

    /// Parses a range that contains its end, such as `1..16`.
    fn from_str(text: &str) -> Result<Self, ParseFlowRangeError> {
        let wrong = || ParseFlowRangeError(text.into());
        let (least, most) = text.split_once("..").ok_or_else(wrong)?;
        let (least, most) = (least.parse().map_err(|_| wrong())?, most.parse().map_err(|_| wrong())?);
        Self::new(least, most).ok_or_else(wrong)
    }
}

/// Rates for different numbers of flows on a path, in the form of the JSON document.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowCounts {
    /// Name and version of the document.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The question, with all defaults filled in; `flows` is the smallest number.
    pub path: Inputs,
    /// Payload rate of the link: key `line_bps`.
    #[serde(rename = "line_bps", with = "fullpipe_measurement::json::Bps")]
    pub line: Rate,
    /// Figures for each number of flows, in ascending order; empty if the runs would take too long.
    pub counts: Vec<FlowCount>,
    /// Smallest number of flows that reaches 95 % of the best steady-state rate; null without runs.
    pub enough: Option<u64>,
    /// Assumptions behind the figures.
    pub assumptions: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl FlowCounts {
    /// Returns the figures for the smallest number of flows that is enough.
    pub fn enough(&self) -> Option<&FlowCount> {
        self.counts.iter().find(|count| Some(count.flows) == self.enough)
    }

    /// Returns the figures for `flows` flows.
    pub fn of(&self, flows: u64) -> Option<&FlowCount> {
        self.counts.iter().find(|count| count.flows == flows)
    }
}

/// Simulates each number of flows in `range`. The number of flows in `question` is ignored. `watch` is called
/// from any thread as runs finish.
///
/// # Errors
/// Returns an error for an implausible or incomplete path, for abandoned runs, or for a defect of the simulator.
pub fn flow_counts(
    question: &Question,
    range: &FlowRange,
    watch: impl JobWatch,
) -> Result<FlowCounts, DiagnoseError> {
    let of = |flows| Question { path: PathFacts { flows: Some(flows), ..question.path }, ..*question };
    let mut models = Vec::new();
    for flows in range.0.clone() {
        let question = of(flows);
        let path = whatif::check(&question).map_err(DiagnoseError::Input)?;
        models.push(whatif::model(&question, path, effort_of_counts(path.rtt, path.loss, flows)));
    }
    // A range has at least one number.
    let first = models[0];
    let mut notes: Vec<String> = first.hosts_are_not_modelled().into_iter().collect();
    let too_fast = models.iter().find_map(ladder::Model::too_fast);
    let is_simulated = too_fast.is_none();
    notes.extend(too_fast);
    let counts: Vec<FlowCount> = match is_simulated {
        true => ladder::complete(&watch, |watch| counted(&models, watch))?,
        false => Vec::new(),
    };
    let least = of(*range.0.start());
    let mut assumptions = whatif::assumptions(&least);
    if is_simulated {
        assumptions.extend(ladder::assumptions(&models[models.len() - 1], Some("--queue")));
        assumptions.push(lengths(&models, "ranges show the variation between the seeds"));
    }
    Ok(FlowCounts {
        schema: SCHEMA,
        path: whatif::inputs(&least, &first),
        line: first.link_payload(),
        enough: enough(&counts),
        counts,
        assumptions,
        notes,
    })
}

/// Returns the smallest number of flows that reaches the share [`ENOUGH`] of the best rate.
fn enough(counts: &[FlowCount]) -> Option<u64> {
    let best = counts.iter().map(|count| count.steady.as_bps()).max()? as f64;
    counts.iter().find(|count| count.steady.as_bps() as f64 >= ENOUGH * best).map(|count| count.flows)
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::cc::Algorithm;
    use fullpipe_units::Bytes;

    use super::*;
    use fullpipe_measurement::classify::Limit;

    #[test]
    fn ranges_are_read() {
        assert_eq!("1..16".parse(), Ok(FlowRange(1..=16)));
        assert_eq!("3..3".parse(), Ok(FlowRange(3..=3)));
        for wrong in ["16", "0..4", "4..2", "1..65", "1..", "..4", "1..=4"] {
            assert!(wrong.parse::<FlowRange>().is_err(), "{wrong}");
        }
    }

    /// A send buffer of 128 KiB limits each flow, so that only four flows fill 40 Mbit/s. The burst from one buffer
    /// queues behind the bursts from the others, so that two flows carry less than twice as much as one.
    #[test]
    fn enough_flows_fill_the_link() {
        let question = Question {
            path: PathFacts {
                link: "40mbit".parse().ok(),
                rtt: "100ms".parse().ok(),
                ..PathFacts::default()
            },
            sndbuf: Some(Bytes::from_kib(128)),
            rcvbuf: None,
            kernel: None,
            cc: Algorithm::Cubic,
        };
        let range = FlowRange::new(1, 5).expect("a range");
        let counts = flow_counts(&question, &range, |_| {}).expect("figures");
        let limits: Vec<Limit> = counts.counts.iter().map(|count| count.limit).collect();
        assert_eq!(limits, [Limit::Sndbuf, Limit::Sndbuf, Limit::Sndbuf, Limit::Link, Limit::Link]);
        assert_eq!(counts.enough, Some(4));
        let (one, two) = (&counts.counts[0], &counts.counts[1]);
        let ratio = two.steady.as_bps() as f64 / one.steady.as_bps() as f64;
        assert!((1.5..2.0).contains(&ratio), "{ratio}");
        // The data that a flow has in flight fills its buffer.
        assert!((110 << 10..=128 << 10).contains(&one.memory_bytes), "{}", one.memory_bytes);
    }

    /// Four flows have one seed, but with loss, other seeds give other rates.
    #[test]
    fn one_run_with_loss_does_not_stand_for_all_seeds() {
        let path = PathFacts {
            link: "10mbit".parse().ok(),
            rtt: "50ms".parse().ok(),
            loss: "1%".parse().ok(),
            ..PathFacts::default()
        };
        let question = Question { path, sndbuf: None, rcvbuf: None, kernel: None, cc: Algorithm::Cubic };
        let range = FlowRange::new(4, 4).expect("a range");
        let counts = flow_counts(&question, &range, |_| {}).expect("figures");
        let lengths = counts.assumptions.last().expect("an assumption");
        assert!(lengths.contains("means of one run over"), "{lengths}");
        assert!(lengths.ends_with("other seeds give other rates"), "{lengths}");
    }
}
