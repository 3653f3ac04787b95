//! Names the limits of a flow over time, from the state of its sockets.
//!
//! ```text
//!   rows ──► lifetime ──► one window of a few round trips per row ──► rules ──► intervals ──► findings
//!                                                     path, truth ──► exact ──► intervals
//! ```
//!
//! [`classify`] reads the socket state that a kernel reports (`TCP_INFO`, `SO_MEMINFO`, the receiver's
//! `Recv-Q`) together with the known facts about the hosts. [`exact`] reads values that only a simulation
//! records: the reason why each transmission stopped, and how busy the path was. Both return intervals of the
//! same [`Limit`]s, so that [`agreement`] can compare them.
//!
//! A limit applies to a span of round trips, never to an instant: within one round trip an ACK-clocked sender
//! waits alternately for its window, its application and its pacer. The kernel counters that add up such
//! instants are misleading (`sndbuf_limited` shows 2 to 15 % for a flow that its send buffer limits all the
//! time), so no rule reads them. The rules need at least ten rows per second.
//!
//! | file | concept |
//! |---|---|
//! | `spans` | a flow's lifetime, the rows around a row, intervals from rows |
//! | `window` | values over the rows of a few round trips |
//! | `losses` | episodes of loss, and whether a fixed rate causes them |
//! | `rules` | the order of the rules |
//! | `reader` | whether a slow reader or a small buffer fills the receive window |
//! | `buffers` | whether a buffer is autotuned, is at its limit, or was set |
//! | `streams` | parallel streams together: limits of each stream, and limits of the shared path |
//! | `shared_link` | running flows together: whether they fill the link |
//! | `tally` | time of one limit, for rows and packets alike |
//! | `finding` | a limit with its confidence and evidence |
//! | `evidence` | findings: evidence, and what the rows leave open |
//! | `exact` | exact limits from the simulator's record |
//! | `packets` | limits from a capture, which shows less than a socket |

mod buffers;
mod evidence;
mod exact;
mod finding;
mod losses;
mod packets;
mod reader;
mod rules;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod shared_link;
mod spans;
mod streams;
mod tally;
mod window;

pub use exact::exact;
pub use finding::{Confidence, Finding, Limit};
pub use packets::classify_capture;
pub use shared_link::{SharedLink, Sharing};
pub use streams::{classify_streams, of_one_of_several};

use fullpipe_lab::trace::Row;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::loss_estimate::LossEstimate;
use window::Flow;

/// Facts about the hosts that the rows do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// Link rate, in bits of IP packets per second.
    pub link: Option<Rate>,
    /// The sender's congestion control, if the rows do not name it.
    pub cc: Option<Algorithm>,
    /// Largest autotuned send buffer of the sender: `tcp_wmem[2]`.
    pub wmem: Option<Bytes>,
    /// Largest autotuned receive buffer of the receiver: `tcp_rmem[2]`.
    pub rmem: Option<Bytes>,
}

/// Origin of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The simulated sender's own record and the state of the path.
    Exact,
    /// The socket state that the kernel reports.
    Inferred,
}

/// Span of time during which one limit applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitPeriod {
    /// Start of the span: key `from_s`.
    #[serde(rename = "from_s", with = "crate::json::At")]
    pub from: Instant,
    /// End of the span: key `to_s`.
    #[serde(rename = "to_s", with = "crate::json::At")]
    pub to: Instant,
    /// The limit.
    pub limit: Limit,
    /// Origin of the limit.
    pub basis: Basis,
    /// Confidence in the limit.
    pub confidence: Confidence,
}

impl LimitPeriod {
    /// Returns the length of the span.
    pub fn length(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

/// Limits of one flow over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// Intervals in chronological order, without gaps; neighbours differ in limit or confidence.
    pub intervals: Vec<LimitPeriod>,
    /// One finding per limit, longest first, with the evidence from the time for which it applied.
    pub findings: Vec<Finding>,
    /// Whether the sender paces at a rate that it measures, as BBR does. This is inferred if the rows do not
    /// name the congestion control.
    pub is_rate_based: bool,
    /// Losses attributed to the path. Losses in a queue that the flow itself fills, or at a policer, are
    /// excluded. The unit is a loss episode for a loss-based sender and a segment for a rate-based one.
    pub loss: LossEstimate,
    /// Notes about the rows for the report.
    pub notes: Vec<String>,
}

/// Classifies the limits of the flow in `rows`, which must belong to one flow and be in chronological order.
/// Rows before the first data and after the last data are ignored.
///
/// Only the columns that [`Row::observed`] keeps are read.
pub fn classify(rows: &[Row], host: &SocketFacts) -> Classification {
    classify_since(rows, host, &Past::default(), Instant::ZERO)
}

/// History of a flow whose older rows were dropped.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Largest receive window so far.
    largest_window: Bytes,
    /// Whether the dropped rows delivered data. If so, the rows that follow are not the start of the flow.
    started: bool,
    /// A subset of the dropped rows, to classify losses: on a long path losses are many seconds apart.
    rows: Vec<Row>,
}

impl Past {
    /// The history keeps one in this many dropped rows, in addition to the rows before and after each loss.
    const KEPT: usize = 4;
    /// Maximum number of rows that the history keeps.
    pub const ROWS: usize = 256;

    /// Adds rows that are about to be dropped.
    pub fn take(&mut self, rows: &[Row]) {
        let largest = rows.iter().map(|row| row.sender.rwnd).max().unwrap_or_default();
        self.largest_window = self.largest_window.max(largest);
        self.started |= rows.iter().any(|row| !row.sender.delivered.is_zero());
        let losses = |i: usize| {
            let sent_again = |i: usize| rows.get(i).map(|row| row.sender.retransmits);
            sent_again(i) != sent_again(i + 1) || i > 0 && sent_again(i - 1) != sent_again(i)
        };
        let kept = (0..rows.len()).filter(|i| i % Self::KEPT == 0 || losses(*i));
        self.rows.extend(kept.map(|i| rows[i].observed()));
        self.rows.drain(..self.rows.len().saturating_sub(Self::ROWS));
    }
}

/// Like [`classify`], for rows that follow `past`; findings cover only the time since `from`.
pub fn classify_since(rows: &[Row], host: &SocketFacts, past: &Past, from: Instant) -> Classification {
    let rows = spans::lifetime(rows);
    let flow = Flow::after(past, rows, host);
    let judged = JudgedRows::of(&flow, from, Instant::FAR_FUTURE);
    let findings: Vec<Finding> = evidence::findings(&flow, &judged, from).collect();
    let intervals = spans::merged(judged.rows, &judged.verdicts, Basis::Inferred);
    let loss = losses::of_path(&flow, findings.first().map(|finding| finding.limit));
    let (is_rate_based, notes) = (flow.by_rate, evidence::notes(&flow));
    Classification { intervals, findings, is_rate_based, loss, notes }
}

/// Like [`classify_since`], but builds only the first finding; with 1000 flows per second the other findings
/// would dominate the cost.
pub fn longest_since(rows: &[Row], host: &SocketFacts, past: &Past, from: Instant) -> Option<Finding> {
    let flow = Flow::after(past, spans::lifetime(rows), host);
    evidence::findings(&flow, &JudgedRows::since(&flow, from), from).next()
}

/// Like [`longest_since`], but returns only the limit and the confidence; building the evidence is most of
/// the cost of a finding.
pub fn limit_since(
    rows: &[Row],
    host: &SocketFacts,
    past: &Past,
    from: Instant,
) -> Option<(Limit, Confidence)> {
    let flow = Flow::after(past, spans::lifetime(rows), host);
    evidence::longest(&flow, &JudgedRows::since(&flow, from), from)
}

/// Like [`classify_since`], but returns only the intervals, for the time between `from` and `to` and a few
/// rows beyond.
pub fn intervals_between(
    rows: &[Row],
    host: &SocketFacts,
    past: &Past,
    from: Instant,
    to: Instant,
) -> Vec<LimitPeriod> {
    let flow = Flow::after(past, spans::lifetime(rows), host);
    let judged = JudgedRows::of(&flow, from, to);
    spans::merged(judged.rows, &judged.verdicts, Basis::Inferred)
}

/// Rows, with a verdict for the time between each row and the next.
struct JudgedRows<'a> {
    rows: &'a [Row],
    verdicts: Vec<spans::Verdict>,
}

impl<'a> JudgedRows<'a> {
    /// Judges the rows between `from` and `to`, and 16 rows on either side, because the neighbouring verdicts
    /// decide whether a verdict is noise.
    fn of(flow: &Flow<'a>, from: Instant, to: Instant) -> Self {
        const MORE: usize = 16;
        let begin = up_to(flow.rows, from).saturating_sub(MORE);
        let end = (up_to(flow.rows, to) + MORE).min(flow.rows.len());
        let rows = &flow.rows[begin..end];
        Self { rows, verdicts: rules::verdicts(flow, begin..end) }
    }

    /// Judges the rows after `from`. Earlier rows are judged only if the later rows have different limits.
    /// Otherwise all later rows have the last limit of the flow, which is never noise. Usually one limit
    /// applies for the whole time.
    fn since(flow: &Flow<'a>, from: Instant) -> Self {
        let begin = up_to(flow.rows, from).saturating_sub(1);
        match rules::of_one_limit(flow, begin..flow.rows.len()) {
            Some(verdicts) => Self { rows: &flow.rows[begin..], verdicts },
            None => Self::of(flow, from, Instant::FAR_FUTURE),
        }
    }
}

/// Returns the number of rows up to `to`, searching from the end. Most callers need only the last few rows,
/// and a binary search would touch rows that are no longer in the processor cache.
fn up_to(rows: &[Row], to: Instant) -> usize {
    rows.len() - rows.iter().rev().take_while(|row| row.at > to).count()
}

/// Returns the share of their common time for which `a` and `b` name the same limit, 0 to 1; `None` if they
/// have no time in common.
pub fn agreement(a: &[LimitPeriod], b: &[LimitPeriod]) -> Option<f64> {
    let (mut common, mut same) = (Duration::ZERO, Duration::ZERO);
    for x in a {
        // Both lists are in chronological order.
        let begin = b.partition_point(|y| y.to <= x.from);
        for y in b[begin..].iter().take_while(|y| y.from < x.to) {
            let span = x.to.min(y.to).saturating_since(x.from.max(y.from));
            common += span;
            if x.limit == y.limit {
                same += span;
            }
        }
    }
    (!common.is_zero()).then(|| same.as_secs_f64() / common.as_secs_f64())
}

/// Returns the share of the total time of `intervals` for which `limit` applied, 0 to 1.
pub fn share(intervals: &[LimitPeriod], limit: Limit) -> f64 {
    let time = |of: &mut dyn Iterator<Item = &LimitPeriod>| {
        of.fold(Duration::ZERO, |sum, interval| sum + interval.length()).as_secs_f64()
    };
    let all = time(&mut intervals.iter());
    let held = time(&mut intervals.iter().filter(|interval| interval.limit == limit));
    if all > 0.0 { held / all } else { 0.0 }
}

#[cfg(test)]
mod tests;
