//! Lifetime of a flow, the rows near a row, and intervals made from rows.

use std::ops::Range;

use fullpipe_lab::trace::Row;
use fullpipe_units::{Duration, Instant};

use super::{Basis, Confidence, Limit, LimitPeriod};

/// Maximum number of rows considered on one side of a row, to bound the work.
const MOST_ROWS: usize = 512;
/// Value that replaces an RTT that is not known yet.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);

/// Limit and confidence for the time between two neighbouring rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) limit: Limit,
    pub(super) confidence: Confidence,
}

/// Returns the rows of the transfer: from the last row before any data is in flight or delivered, to the last
/// row that delivers data. Outside this range nothing limits the transfer.
pub(super) fn lifetime(rows: &[Row]) -> &[Row] {
    let moves = |row: &Row| {
        let sender = &row.sender;
        // Before the first RTT sample of a handshake, the kernel counts the SYN as data in flight.
        let open = sender.srtt.is_some() || !sender.delivered.is_zero();
        open && !(sender.flight_size.is_zero() && sender.delivered.is_zero() && sender.notsent.is_zero())
    };
    let first = rows.iter().position(moves).unwrap_or(rows.len());
    let rows = &rows[first.saturating_sub(1)..];
    let Some(end) = rows.last() else { return rows };
    let idle = |row: &Row| {
        row.sender.delivered == end.sender.delivered
            && row.sender.flight_size.is_zero()
            && row.sender.notsent.is_zero()
    };
    let rest = rows.iter().rev().take_while(|row| idle(row)).count();
    // The first idle row ends the interval in which the last byte was delivered.
    &rows[..rows.len() - rest.saturating_sub(1)]
}

/// Returns the smoothed RTT at a row, or a substitute if it is unknown.
pub(super) fn round_trip(row: &Row) -> Duration {
    row.sender.srtt.filter(|srtt| !srtt.is_zero()).unwrap_or(UNKNOWN_RTT)
}

/// Returns the rows within `round_trips` before and after row `at`, and at least `least` rows on either side.
pub(super) fn around(rows: &[Row], at: usize, round_trips: u64, least: usize) -> Range<usize> {
    let (now, reach) = (rows[at].at, round_trip(&rows[at]) * round_trips);
    let (earliest, latest) = (now.saturating_sub(reach), now + reach);
    let (before, after) = (&rows[at.saturating_sub(MOST_ROWS)..at], &rows[at + 1..]);
    let before = before.len() - before.partition_point(|row| row.at < earliest);
    let after = after[..after.len().min(MOST_ROWS)].partition_point(|row| row.at <= latest);
    at - before.max(least).min(at)..(at + 1 + after.max(least)).min(rows.len())
}

/// Returns one interval for each run of equal verdicts; verdict `i` applies to the time between rows `i` and
/// `i + 1`.
pub(super) fn merged(rows: &[Row], verdicts: &[Verdict], basis: Basis) -> Vec<LimitPeriod> {
    let mut intervals: Vec<LimitPeriod> = Vec::new();
    for (pair, verdict) in rows.windows(2).zip(verdicts) {
        let (from, to): (Instant, Instant) = (pair[0].at, pair[1].at);
        let Verdict { limit, confidence } = *verdict;
        match intervals.last_mut() {
            Some(last) if (last.limit, last.confidence) == (limit, confidence) => last.to = to,
            _ => intervals.push(LimitPeriod { from, to, limit, basis, confidence }),
        }
    }
    intervals
}
