//! Names what limits a flow while it runs.
//!
//! ```text
//!   push(row) ──► kept rows, a bounded number ──┬─ held() ──► the limit of the last round trips, and why
//!                     │ full: the older half    └─ times() ─► the time of each limit so far
//!                     ▼ goes, once its limits are counted
//!                 counted times, and what later rows want to know of the past
//! ```
//!
//! The rules are those of [`crate::classify`] over the rows that are kept: 512 of them, which at ten a second are
//! those of the last half to whole minute, less than half a mebibyte. A row costs a copy. The rules are asked when
//! somebody asks, and when the kept rows are full; a flow may run for weeks.
//!
//! Of rows that are gone the rules still want three things: how large the receiver's window once was (a buffer never
//! shrinks, so a smaller window is its reader's), that the start is over, and at what windows there were losses. What only
//! time tells, a policer by several losses, is not told of the time before it was known.

use std::collections::BTreeMap;

use fullpipe_lab::trace::Row;
use fullpipe_units::{Duration, Instant};

use crate::classify::{
    Classification, Classified, Confidence, Limit, Past, SocketFacts, classify_since, intervals_between,
    limit_since, longest_since,
};

/// Rows kept at most. Losses tell their cause by the dozen, and on a long path they come seconds apart.
const ROWS: usize = 512;
/// Of a full store, what is counted and then dropped; of what stays, half is counted too, and is there
/// only for the rules to look back at.
const DROPPED: usize = ROWS / 2;
const COUNTED: usize = DROPPED + ROWS / 4;
/// A flow of so many rows will fill the store: it gets the room of all at once, for to grow is to copy. Pages that are not
/// written to take no memory.
const LONG: usize = 64;
/// Rows nearer to each other than this are one: the rules want ten a second.
const SPACING: Duration = Duration::from_millis(50);
/// The first part of a flow is short and told by rows as they come: its start lasts some round trips.
const START: usize = 64;
/// Rows of a rest that are kept: of more than two rows the rules believe that something changed.
const REST: usize = 4;
/// What holds now is what held longest in so many round trips, and in no less time.
const NOW_ROUND_TRIPS: u64 = 4;
const NOW: Duration = Duration::from_secs(1);

/// One flow that runs.
#[derive(Clone, Debug, Default)]
pub struct Live {
    host: SocketFacts,
    rows: Vec<Row>,
    past: Past,
    counted: BTreeMap<Limit, Duration>,
    /// Up to where time is in `counted`.
    counted_to: Instant,
    /// Rows that came, of which many are gone.
    seen: u64,
}

/// The limit that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentLimit {
    /// The limit.
    pub limit: Limit,
    /// How sure it is.
    pub confidence: Confidence,
    /// Its share of the time asked for, 0 to 1.
    pub share: f64,
    /// What it is in plain words.
    pub what: String,
    /// What speaks for it: one line.
    pub evidence: String,
}

impl Live {
    /// A flow of which nothing is known yet.
    pub fn new(host: SocketFacts) -> Self {
        Self { host, ..Self::default() }
    }

    /// Takes the next row, of which nothing is read but what [`Row::observed`] leaves. Rows come in order of time, ten
    /// times a second or more often; one that is not newer than the last is left out.
    pub fn push(&mut self, row: &Row) {
        self.push_observed(row.observed());
    }

    /// The same of a row that has nothing else, without a copy of it.
    pub(crate) fn push_observed(&mut self, row: Row) {
        self.seen = self.seen.saturating_add(1);
        if let Some(last) = self.rows.last() {
            if row.at <= last.at {
                return;
            }
            // What was reported by SACK counts as delivered by estimate, and a timeout takes it back; it is a part of what is in
            // flight. A counter that falls by more is of another flow.
            let estimated = last.sender.flight_size + last.sender.mss;
            if row.sender.delivered + estimated < last.sender.delivered {
                self.count(self.rows.len());
                (self.rows, self.past) = (Vec::new(), Past::default());
            }
        }
        let replaced = self.replaces_the_last(&row);
        match self.rows.last_mut() {
            Some(last) if replaced => *last = row,
            _ => {
                if self.rows.len() == LONG {
                    self.rows.reserve_exact(ROWS - LONG);
                }
                self.rows.push(row);
            }
        }
        if self.rows.len() >= ROWS {
            self.count(COUNTED);
            self.past.take(&self.rows[..DROPPED]);
            self.rows.drain(..DROPPED);
        }
    }

    /// Whether the last row says nothing that `row` does not say too.
    fn replaces_the_last(&self, row: &Row) -> bool {
        let [.., before, last] = self.rows.as_slice() else { return false };
        // The last one is asked first: of many sockets, each row further back has long left the processor's caches.
        let within = |other: &Row| row.at.saturating_since(other.at) < SPACING;
        let near = self.seen > START as u64 && within(last) && within(before);
        let rest = self.rows.len() > REST && {
            let rests = |other: &Row| rests(other) && other.sender.delivered == row.sender.delivered;
            rests(row) && self.rows[self.rows.len() - REST..].iter().all(rests)
        };
        // A pause in which something waits is not a rest, and a moment of recovery is not lost.
        rest || near && last.sender.recovering == row.sender.recovering
    }

    /// The last row.
    pub fn last(&self) -> Option<&Row> {
        self.rows.last()
    }

    /// What is known of the hosts beside the rows.
    pub const fn host(&self) -> &SocketFacts {
        &self.host
    }

    /// The rows that are kept.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What holds the flow now; `None` before anything was sent, and where it rests.
    pub fn held(&self) -> Option<CurrentLimit> {
        let last = self.rows.last()?;
        let span = (last.sender.srtt.unwrap_or_default() * NOW_ROUND_TRIPS).max(NOW);
        self.held_since(last.at.saturating_sub(span))
    }

    /// What held the flow for most of the time since `from`, as far as rows are kept.
    pub fn held_since(&self, from: Instant) -> Option<CurrentLimit> {
        let finding = longest_since(&self.rows, &self.host, &self.past, from)?;
        Some(CurrentLimit {
            limit: finding.limit,
            confidence: finding.confidence,
            share: finding.share,
            what: finding.what,
            evidence: finding.evidence.into_iter().next().unwrap_or_default(),
        })
    }

    /// Its limit and confidence alone.
    pub fn limit_since(&self, from: Instant) -> Option<(Limit, Confidence)> {
        limit_since(&self.rows, &self.host, &self.past, from)
    }

    /// The limits of the kept rows; findings and their evidence are of the time since `from`.
    pub fn classified(&self, from: Instant) -> Classification {
        classify_since(&self.rows, &self.host, &self.past, from)
    }

    /// The time of each limit since the first row. What came last may be told otherwise by what is yet to come.
    pub fn times(&self) -> BTreeMap<Limit, Duration> {
        let mut times = self.counted.clone();
        add(&mut times, &self.intervals(Instant::FAR_FUTURE), self.counted_to, None);
        times
    }

    /// Those that are not counted yet, up to `to` and some more.
    fn intervals(&self, to: Instant) -> Vec<Classified> {
        intervals_between(&self.rows, &self.host, &self.past, self.counted_to, to)
    }

    /// Counts the time up to row `end`.
    fn count(&mut self, end: usize) {
        let to = self.rows.get(end).or(self.rows.last()).map(|row| row.at);
        let intervals = self.intervals(to.unwrap_or(Instant::FAR_FUTURE));
        add(&mut self.counted, &intervals, self.counted_to, to);
        self.counted_to = to.unwrap_or(self.counted_to);
    }
}

/// A connection in which nothing waits and nothing is under way.
fn rests(row: &Row) -> bool {
    row.sender.flight_size.is_zero() && row.sender.notsent.is_zero()
}

/// Adds the intervals' time after `from`, and before `to`.
fn add(times: &mut BTreeMap<Limit, Duration>, intervals: &[Classified], from: Instant, to: Option<Instant>) {
    for interval in intervals {
        let end = to.map_or(interval.to, |to| to.min(interval.to));
        let time = end.saturating_since(interval.from.max(from));
        if !time.is_zero() {
            *times.entry(interval.limit).or_default() += time;
        }
    }
}

#[cfg(test)]
mod tests;
