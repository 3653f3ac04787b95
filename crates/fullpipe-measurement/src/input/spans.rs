//! Division of socket samples into intervals like those of a log.

use fullpipe_units::{Duration, Instant};

/// Length of an interval, unless the transfer is too short for several of them.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum number of intervals of a transfer, if there are as many samples.
const FEWEST: u64 = 10;

/// Returns the start and end of each interval of a transfer from `begin` to `end`, sampled at `moments` in
/// chronological order. An interval ends at the first sample that makes it long enough; the last interval
/// ends at the last sample.
pub(super) fn of_samples(
    begin: Instant,
    end: Instant,
    moments: impl ExactSizeIterator<Item = Instant>,
) -> Vec<(Instant, Instant)> {
    let width = INTERVAL.min(end.saturating_since(begin) / FEWEST).max(Duration::from_millis(1));
    let last = moments.len().saturating_sub(1);
    let mut spans = Vec::new();
    let mut from = begin;
    for (nth, at) in moments.enumerate().skip(1) {
        if at.saturating_since(from) >= width || nth == last {
            spans.push((from, at));
            from = at;
        }
    }
    spans
}
