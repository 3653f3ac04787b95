//! Names what limits a flow over time, from what its sockets tell.
//!
//! ```text
//!   rows ──► lifetime ──► one window of a few round trips a row ──► rules ──► intervals ──► findings
//!                                                   path, truth ──► exact ──► intervals
//! ```
//!
//! [`classify`] sees what a kernel tells of its sockets (`TCP_INFO`, `SO_MEMINFO`, the receiver's `Recv-Q`)
//! and what is known of the hosts. [`exact`] sees what only a world of our own knows: what stopped each
//! transmission, and how busy the path was. Both answer in intervals of the same [`Limit`]s, so that one
//! can be compared with the other ([`agreement`]).
//!
//! A limit belongs to a span of round trips, never to a moment: within one round trip an ACK-clocked sender
//! waits by turns for its window, its application and its pacer. The kernel's own counters of
//! such moments mislead (`sndbuf_limited` shows 2 to 15 % for a flow that its send buffer holds all the
//! time), so no rule asks for them. Rows are wanted at least ten times a second.
//!
//! | file | concept |
//! |---|---|
//! | `spans` | a flow's lifetime, the rows around a row, intervals from rows |
//! | `window` | what the rows of a short time say together |
//! | `losses` | the episodes of loss, and whether a fixed rate is behind them |
//! | `rules` | the order of the rules |
//! | `reader` | whose a full receive window is, and what it is by turns beside a path |
//! | `buffers` | whether a buffer grows by itself, is at its limit, or was set |
//! | `streams` | parallel streams together: what each has of its own, and what they share |
//! | `tally` | the time of one limit, of rows and of packets alike |
//! | `finding` | a limit, how sure it is, and what speaks for it |
//! | `evidence` | findings: evidence, what could not be told, and why |
//! | `exact` | the truth |
//! | `packets` | the same from what a capture shows, which is less |

mod buffers;
mod evidence;
mod exact;
mod finding;
mod losses;
mod packets;
mod reader;
mod rules;
#[cfg(test)]
pub(crate) mod samples;
mod spans;
mod streams;
mod tally;
mod window;

pub use exact::exact;
pub use finding::{Confidence, Finding, Limit};
pub use packets::classify_capture;
pub use streams::{classify_streams, of_one_of_several};

use fullpipe_lab::trace::Row;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::LossEstimate;
use window::Flow;

/// What is known beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// Rate of the link in bits of IP packets per second.
    pub link: Option<Rate>,
    /// The sender's congestion control, where the rows do not have it.
    pub cc: Option<Algorithm>,
    /// Largest autotuned send buffer of the sender: `tcp_wmem[2]`.
    pub wmem: Option<Bytes>,
    /// Largest autotuned receive buffer of the receiver: `tcp_rmem[2]`.
    pub rmem: Option<Bytes>,
}

/// How a limit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// From the sender's own record and the state of the path.
    Exact,
    /// From what sockets tell.
    Inferred,
}

/// One limit over a span of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Classified {
    /// Where it begins: key `from_s`.
    #[serde(rename = "from_s", with = "crate::json::At")]
    pub from: Instant,
    /// Where it ends: key `to_s`.
    #[serde(rename = "to_s", with = "crate::json::At")]
    pub to: Instant,
    /// The limit.
    pub limit: Limit,
    /// How it is known.
    pub basis: Basis,
    /// How sure it is.
    pub confidence: Confidence,
}

impl Classified {
    /// Its length.
    pub fn length(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

/// The limits of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// In order of time, without gaps; neighbours differ in limit or confidence.
    pub intervals: Vec<Classified>,
    /// One a limit, the longest first, with evidence from all of its time.
    pub findings: Vec<Finding>,
    /// The sender paces at a rate that it measures, as BBR does: named or, where nothing names it, inferred.
    pub is_rate_based: bool,
    /// Losses that the path is thought to have of its own: those of a queue that the flow fills itself, or of a
    /// policer, are none. For a loss-based sender episodes count, for one that bears losses segments.
    pub loss: LossEstimate,
    /// What the reader should know about the rows.
    pub notes: Vec<String>,
}

/// Names what limits the flow of `rows`, which are in order of time and of one flow; rows in which
/// nothing had been sent yet, or nothing was to follow, are left out.
///
/// Reads nothing of a row but what [`Row::observed`] leaves.
pub fn classify(rows: &[Row], host: &SocketFacts) -> Classification {
    classify_since(rows, host, &Past::default(), Instant::ZERO)
}

/// What the rows of a flow's past have shown, when they are no longer there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// The largest receive window.
    largest_window: Bytes,
    /// Data went out and came back: what follows is not the first start.
    started: bool,
    /// Some of the rows, for losses: on a long path there is one in many seconds.
    rows: Vec<Row>,
}

impl Past {
    /// Of so many rows that go one is kept, and those before and after a loss.
    const KEPT: usize = 4;
    /// Rows kept at most.
    pub(crate) const ROWS: usize = 256;

    /// Takes in rows that go.
    pub(crate) fn take(&mut self, rows: &[Row]) {
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

/// The same for rows before which there were others; with findings of the time since `from` only.
pub(crate) fn classify_since(rows: &[Row], host: &SocketFacts, past: &Past, from: Instant) -> Classification {
    let rows = spans::lifetime(rows);
    let flow = Flow::after(past, rows, host);
    let judged = JudgedRows::of(&flow, from, Instant::FAR_FUTURE);
    let findings: Vec<Finding> = evidence::findings(&flow, &judged, from).collect();
    let intervals = spans::merged(judged.rows, &judged.verdicts, Basis::Inferred);
    let loss = losses::of_path(&flow, findings.first().map(|finding| finding.limit));
    let (is_rate_based, notes) = (flow.by_rate, evidence::notes(&flow));
    Classification { intervals, findings, is_rate_based, loss, notes }
}

/// The first finding of the same alone: of a thousand flows a second, the other findings and what stands beside them are most of the work.
pub(crate) fn longest_since(rows: &[Row], host: &SocketFacts, past: &Past, from: Instant) -> Option<Finding> {
    let flow = Flow::after(past, spans::lifetime(rows), host);
    evidence::findings(&flow, &JudgedRows::since(&flow, from), from).next()
}

/// The limit of that finding and how sure it is, without a word on why: for a line of text the words are most of the work.
pub(crate) fn limit_since(
    rows: &[Row],
    host: &SocketFacts,
    past: &Past,
    from: Instant,
) -> Option<(Limit, Confidence)> {
    let flow = Flow::after(past, spans::lifetime(rows), host);
    evidence::longest(&flow, &JudgedRows::since(&flow, from), from)
}

/// The intervals of the same alone, between two times at least.
pub(crate) fn intervals_between(
    rows: &[Row],
    host: &SocketFacts,
    past: &Past,
    from: Instant,
    to: Instant,
) -> Vec<Classified> {
    let flow = Flow::after(past, spans::lifetime(rows), host);
    let judged = JudgedRows::of(&flow, from, to);
    spans::merged(judged.rows, &judged.verdicts, Basis::Inferred)
}

/// Rows and the verdicts on the times between them.
struct JudgedRows<'a> {
    rows: &'a [Row],
    verdicts: Vec<spans::Verdict>,
}

impl<'a> JudgedRows<'a> {
    /// Those between two times, and some more on either side: what surrounds a moment decides whether it is noise.
    fn of(flow: &Flow<'a>, from: Instant, to: Instant) -> Self {
        const MORE: usize = 16;
        let begin = up_to(flow.rows, from).saturating_sub(MORE);
        let end = (up_to(flow.rows, to) + MORE).min(flow.rows.len());
        let rows = &flow.rows[begin..end];
        Self { rows, verdicts: rules::verdicts(flow, begin..end) }
    }

    /// Those after `from` to the end, and more only where that may matter: what ends a flow's rows is never noise, and mostly one
    /// limit holds all of that time.
    fn since(flow: &Flow<'a>, from: Instant) -> Self {
        let begin = up_to(flow.rows, from).saturating_sub(1);
        match rules::of_one_limit(flow, begin..flow.rows.len()) {
            Some(verdicts) => Self { rows: &flow.rows[begin..], verdicts },
            None => Self::of(flow, from, Instant::FAR_FUTURE),
        }
    }
}

/// How many rows there are up to `to`: most often that asks for the last few of many, which a search from the middle would not find
/// in the processor's caches.
fn up_to(rows: &[Row], to: Instant) -> usize {
    rows.len() - rows.iter().rev().take_while(|row| row.at > to).count()
}

/// The share of the time covered by both in which they name the same limit, 0 to 1; `None` where they have no
/// time in common.
pub fn agreement(a: &[Classified], b: &[Classified]) -> Option<f64> {
    let (mut common, mut same) = (Duration::ZERO, Duration::ZERO);
    for x in a {
        // Both are in order of time.
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

/// The share of the time of `intervals` that `limit` held, 0 to 1.
pub fn share(intervals: &[Classified], limit: Limit) -> f64 {
    let time = |of: &mut dyn Iterator<Item = &Classified>| {
        of.fold(Duration::ZERO, |sum, interval| sum + interval.length()).as_secs_f64()
    };
    let all = time(&mut intervals.iter());
    let held = time(&mut intervals.iter().filter(|interval| interval.limit == limit));
    if all > 0.0 { held / all } else { 0.0 }
}

#[cfg(test)]
mod tests;
