//! Classifies the limit of a flow while it is running.
//!
//! ```text
//!   push(row) ──► kept rows, a bounded number ──┬─ held() ──► the limit over the last round trips, with evidence
//!                     │ full: the older half    └─ times() ─► the time of each limit so far
//!                     ▼ is dropped once counted
//!                 counted times, and the history that the rules need
//! ```
//!
//! The rules are those of [`fullpipe_measurement::classify`], applied to the last 256 to 512 rows. At ten rows
//! per second, these cover 25 to 51 seconds. They take less than half a mebibyte. Adding a row costs one copy. The rules
//! run only on request and when the store is full, because a flow may run for weeks.
//!
//! The rules need three facts from dropped rows: the maximum receive window (a buffer never shrinks, so a
//! smaller window is the effect of a slow reader), whether the start is over, and the windows at which losses
//! occurred. Only several losses reveal a limit such as a policer; time that was counted before these losses
//! is not reassigned to this limit.
//!
//! Flows that run at the same time may share a link ([`ConcurrentFlows`], [`SharedTime`]).

mod concurrent;
mod shared_time;

use std::collections::BTreeMap;

use fullpipe_lab::trace::Row;
use fullpipe_measurement::classify::{
    Classification, Confidence, Limit, LimitPeriod, Past, SocketFacts, classify_since, intervals_between,
    limit_since, longest_since,
};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

pub use concurrent::ConcurrentFlows;
use shared_time::SharedPeriod;
pub use shared_time::SharedTime;

/// Maximum number of rows kept. About a dozen losses are needed to show their cause, and on a long path
/// losses are seconds apart.
const ROWS: usize = 512;
/// Number of rows that are dropped when the store is full. Before they are dropped, the time of the first
/// `COUNTED` rows is counted. These include half of the remaining rows, which then serve only as history.
const DROPPED: usize = ROWS / 2;
const COUNTED: usize = DROPPED + ROWS / 4;
/// Number of rows at which a flow gets its full capacity. Such a flow will probably fill the store, and a
/// single allocation avoids repeated copies. Memory pages that are never written take no memory.
const LONG: usize = 64;
/// Minimum spacing of rows that are kept; the rules need ten rows per second.
const SPACING: Duration = Duration::from_millis(50);
/// Number of initial rows that are kept regardless of their spacing: the start of a flow lasts only a few
/// round trips.
const START: usize = 64;
/// Number of rows kept from an idle period. The rules treat a span of up to two rows as noise, so more than
/// two rows have to be kept.
const REST: usize = 4;
/// Span over which the current limit is determined, in round trips; it lasts at least `NOW`.
const NOW_ROUND_TRIPS: u64 = 4;
const NOW: Duration = Duration::from_secs(1);

/// Running flow with a bounded history of rows.
#[derive(Clone, Debug, Default)]
pub struct Live {
    host: SocketFacts,
    rows: Vec<Row>,
    past: Past,
    counted: BTreeMap<Limit, Duration>,
    /// Time up to which `counted` is complete.
    counted_to: Instant,
    /// Periods after `counted_to` in which the flow shared a link with others, in chronological order.
    shared: Vec<SharedPeriod>,
    /// Total number of rows received, including dropped ones.
    seen: u64,
}

/// Limit of a flow over a recent span of time.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentLimit {
    /// The limit.
    pub limit: Limit,
    /// Confidence in the limit.
    pub confidence: Confidence,
    /// Share of the requested time for which the limit applied, 0 to 1.
    pub share: f64,
    /// Description of the limit in plain words.
    pub what: String,
    /// Main evidence, one line.
    pub evidence: String,
}

impl Live {
    /// Creates a flow without rows.
    pub fn new(host: SocketFacts) -> Self {
        Self { host, ..Self::default() }
    }

    /// Adds the next row; only the columns that [`Row::observed`] keeps are read. Rows must be in
    /// chronological order, at least ten per second; a row that is not newer than the last one is ignored.
    pub fn push(&mut self, row: &Row) {
        self.push_observed(row.observed());
    }

    /// Adds a row without a copy, if [`Row::observed`] would not change it.
    pub(crate) fn push_observed(&mut self, row: Row) {
        self.seen = self.seen.saturating_add(1);
        if let Some(last) = self.rows.last() {
            if row.at <= last.at {
                return;
            }
            // SACKed data is counted as delivered, which is an estimate. A timeout may reduce the counter by
            // at most the data in flight; if the counter falls further, it belongs to another flow.
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

    /// Returns whether `row` makes the last row redundant.
    fn replaces_the_last(&self, row: &Row) -> bool {
        let [.., before, last] = self.rows.as_slice() else { return false };
        // The last row is checked first: with many sockets, older rows are no longer in the processor cache.
        let within = |other: &Row| row.at.saturating_since(other.at) < SPACING;
        let near = self.seen > START as u64 && within(last) && within(before);
        let rest = self.rows.len() > REST && {
            let rests = |other: &Row| rests(other) && other.sender.delivered == row.sender.delivered;
            rests(row) && self.rows[self.rows.len() - REST..].iter().all(rests)
        };
        // A flow with unsent data is not idle during a pause. Rows with different recovery states are both
        // kept.
        rest || near && last.sender.recovering == row.sender.recovering
    }

    /// Returns the last row.
    pub fn last(&self) -> Option<&Row> {
        self.rows.last()
    }

    /// Returns the facts about the hosts that the rows do not contain.
    pub const fn host(&self) -> &SocketFacts {
        &self.host
    }

    /// Returns the kept rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the current limit, or `None` before any data was sent and while the flow is idle.
    pub fn held(&self) -> Option<CurrentLimit> {
        let last = self.rows.last()?;
        self.held_since(last.at.saturating_sub(self.recent()))
    }

    /// Returns the length of the span over which the current limit is determined.
    fn recent(&self) -> Duration {
        let srtt = self.rows.last().and_then(|last| last.sender.srtt);
        (srtt.unwrap_or_default() * NOW_ROUND_TRIPS).max(NOW)
    }

    /// Returns the mean rate at which payload was delivered between `from` and `to`, or for the part of that
    /// time for which rows have been kept.
    fn rate_between(&self, from: Instant, to: Instant) -> Rate {
        let bytes = (self.delivered_by(to) - self.delivered_by(from)).max(0.0);
        Rate::mean(Bytes::new(bytes as u64), to.saturating_since(from))
    }

    /// Returns the number of bytes delivered by `at`. The rate between two rows is assumed to be constant.
    fn delivered_by(&self, at: Instant) -> f64 {
        let next = self.rows.partition_point(|row| row.at <= at);
        let bytes = |row: &Row| row.sender.delivered.get() as f64;
        match (next.checked_sub(1).map(|last| &self.rows[last]), self.rows.get(next)) {
            (Some(last), Some(next)) => {
                let (passed, apart) = (at.saturating_since(last.at), next.at.saturating_since(last.at));
                let share = passed.as_secs_f64() / apart.as_secs_f64();
                bytes(last) + share * (bytes(next) - bytes(last))
            }
            (Some(row), None) | (None, Some(row)) => bytes(row),
            (None, None) => 0.0,
        }
    }

    /// Returns the limit that applied for most of the time since `from`, as far as rows have been kept.
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

    /// Returns the limit and the confidence of [`Self::held_since`], without building the finding.
    pub fn limit_since(&self, from: Instant) -> Option<(Limit, Confidence)> {
        limit_since(&self.rows, &self.host, &self.past, from)
    }

    /// Classifies the kept rows; findings and their evidence cover the time since `from`.
    pub fn classified(&self, from: Instant) -> Classification {
        classify_since(&self.rows, &self.host, &self.past, from)
    }

    /// Returns the time of each limit since the first row. Later rows may still change the limit of the most
    /// recent span. For times in which flows share a link, [`SharedTime`] judges them together.
    pub fn times(&self) -> BTreeMap<Limit, Duration> {
        let mut times = self.counted.clone();
        add(&mut times, &self.intervals(Instant::FAR_FUTURE), &self.shared, self.counted_to, None);
        times
    }

    /// Returns the intervals that have not been counted yet, up to `to` and a few rows beyond.
    fn intervals(&self, to: Instant) -> Vec<LimitPeriod> {
        intervals_between(&self.rows, &self.host, &self.past, self.counted_to, to)
    }

    /// Counts the time up to row `end`.
    fn count(&mut self, end: usize) {
        let to = self.rows.get(end).or(self.rows.last()).map(|row| row.at);
        let intervals = self.intervals(to.unwrap_or(Instant::FAR_FUTURE));
        add(&mut self.counted, &intervals, &self.shared, self.counted_to, to);
        let counted_to = to.unwrap_or(self.counted_to);
        self.counted_to = counted_to;
        self.shared.retain(|period| period.to > counted_to);
    }

    /// Adds a period in which the flow shares a link. It must not begin before the end of the previous
    /// period.
    fn share(&mut self, period: SharedPeriod) {
        match self.shared.last_mut() {
            Some(last) if last.to == period.from && last.sharing == period.sharing => last.to = period.to,
            _ => self.shared.push(period),
        }
    }
}

/// Returns whether a connection is idle: no data is in flight or waiting to be sent.
fn rests(row: &Row) -> bool {
    row.sender.flight_size.is_zero() && row.sender.notsent.is_zero()
}

/// Adds the part of `intervals` between `from` and `to`. In a period of `shared`, the limit of the flow is
/// judged together with the flows that share its link.
fn add(
    times: &mut BTreeMap<Limit, Duration>,
    intervals: &[LimitPeriod],
    shared: &[SharedPeriod],
    from: Instant,
    to: Option<Instant>,
) {
    for interval in intervals {
        let begin = interval.from.max(from);
        let end = to.map_or(interval.to, |to| to.min(interval.to));
        if end <= begin {
            continue;
        }
        let mut alone = end.saturating_since(begin);
        let first = shared.partition_point(|period| period.to <= begin);
        for period in shared[first..].iter().take_while(|period| period.from < end) {
            let time = period.to.min(end).saturating_since(period.from.max(begin));
            alone = alone.saturating_sub(time);
            let own = (interval.limit, interval.confidence);
            let (limit, _) = period.sharing.corrected(Some(own)).unwrap_or(own);
            *times.entry(limit).or_default() += time;
        }
        if !alone.is_zero() {
            *times.entry(interval.limit).or_default() += alone;
        }
    }
}

#[cfg(test)]
mod tests;
