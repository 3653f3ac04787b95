//! Division of socket samples into intervals, like those of a log.

use fullpipe_units::{Duration, Instant};

/// Length of an interval, unless the transfer is so short that it would have few of them.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum number of intervals of a transfer that has as many samples.
const FEWEST: u64 = 10;

/// Returns start and end of each interval of a transfer that lasts from `begin` to `end` and was sampled at
/// `moments`, in order. An interval ends at the first sample that makes it long enough, and the last interval
/// at the last sample.
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
