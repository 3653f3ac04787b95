//! Loss episodes, and whether a fixed rate causes them.
//!
//! A policer drops the data that exceeds its rate and leaves the RTT unchanged, and a short queue has nearly
//! the same effect. As a result, a loss-based sender has a large window at each loss. Random loss hits each
//! packet with the same probability, whatever the window. The classifier therefore ranks the windows at
//! losses among the windows of all data:
//!
//! ```text
//!   random loss     ranks spread evenly over 0..1, for any congestion control: their mean is 1/2,
//!                   with a standard deviation of 0.29 / sqrt(losses)
//!   a fixed rate    ranks near 1
//! ```
//!
//! A fixed rate indicates a policer only if, in addition, all losses occur at one delivered rate and without
//! a standing queue.

use fullpipe_lab::stats::{self, upper_median};
use fullpipe_lab::trace::Row;

use super::Limit;
use super::spans::round_trip;
use super::window::{Flow, Window, spread, stretch};
use crate::loss_estimate::LossEstimate;
use crate::thresholds::{loss, queue};

/// Minimum number of losses for a meaningful mean rank.
const FEWEST: usize = 3;
/// Accepted probability that random loss is mistaken for a fixed rate.
const MISTAKE: f64 = 0.001;
/// Standard deviation of a rank that is uniformly distributed over 0 to 1.
/// Source: the square root of 1/12.
const EVEN: f64 = 0.289;
/// Distance by which the mean of many ranks exceeds its expected value with probability `MISTAKE`.
/// Source: the normal distribution.
/// Unit: standard deviations
const DEVIATIONS: f64 = 3.09;
/// Largest number of losses for which the tail of the mean rank is computed exactly, as the volume of a
/// corner of the unit hypercube. For more losses, the normal distribution is a good approximation.
const FEW: usize = 6;
/// Minimum mean rank at which a fixed rate is assumed to cause the losses. It applies to any number of
/// losses, because some of them may have another cause.
const HIGH: f64 = 0.65;
/// If the standard deviation of the windows at losses is below this share of their mean, a fixed rate causes
/// the losses.
const ALIKE: f64 = 0.3;
/// Minimum number of rows over which the rate around a loss is measured, because the rate between two
/// single rows is not meaningful.
const FEWEST_ROWS: usize = 6;
/// Minimum mean number of round trips between losses for which windows are ranked.
/// Unit: round trips
const FEWEST_TRIPS: f64 = 8.0;
/// Minimum mean window at loss for which windows are ranked.
/// Unit: segments
const FEWEST_SEGMENTS: f64 = 20.0;
/// Number of round trips from the first loss of a burst until all lost segments of the burst are
/// retransmitted.
const REPAIR: u64 = 2;
/// Maximum number of rows read per round trip.
const MOST_ROWS: usize = 64;

/// Loss episodes of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Losses {
    /// Number of episodes; retransmissions within two round trips belong to the same episode.
    pub(super) episodes: usize,
    /// Standard deviation of the windows at loss, divided by their mean.
    pub(super) spread: f64,
    /// Mean rank of the windows at losses among the windows of all data, 0 to 1.
    pub(super) rank: f64,
    /// Median of the rates delivered around the episodes, in bit/s; `None` without episodes.
    pub(super) rate: Option<f64>,
    /// Number of episodes that occurred without a queue and at a delivered rate within 5 % of the median,
    /// `rate`.
    pub(super) alike: usize,
    /// Whether the number of segments lost in the first episode shows that slow start overshot a rate.
    overshoots: bool,
    /// Highest rate that was delivered over a few rows, in bit/s.
    fastest: f64,
    /// Mean number of round trips between two episodes.
    apart: f64,
    /// Mean window at loss, in segments.
    window: f64,
}

impl Losses {
    pub(super) fn of(rows: &[Row]) -> Self {
        let mut heights: Vec<f64> = Vec::new();
        let mut around: [Vec<(f64, bool)>; 2] = [Vec::new(), Vec::new()];
        let (mut first, mut last) = (None, None);
        for (i, pair) in rows.windows(2).enumerate() {
            let (before, row) = (&pair[0].sender, &pair[1]);
            if row.sender.retransmits <= before.retransmits {
                continue;
            }
            if last.is_none_or(|at| row.at.saturating_since(at) > round_trip(row) * 2) {
                if first.is_none() {
                    // The first loss ends slow start. The window at that loss is random, because slow start
                    // overshoots.
                    first = Some(i);
                } else {
                    heights.push(height(&rows[..=i], row));
                    for (around, later) in around.iter_mut().zip(0..) {
                        around.extend(delivered(&rows[..=i + 1], later));
                    }
                }
            }
            last = Some(row.at);
        }
        let Some(first) = first else { return Self::default() };
        let rank = mean_rank(&rows[first..], &heights);
        // A retransmission leaves one round trip after the loss and arrives another round trip later, when
        // the sender has already slowed down. In rows of a receiver, the rate at the loss is therefore found
        // one round trip earlier.
        let [sender, receiver] = around.map(|around| one_rate(&around));
        let (rate, alike) = if sender.1 >= receiver.1 { sender } else { receiver };
        Self {
            episodes: heights.len() + 1,
            spread: spread(&heights),
            rank,
            rate,
            alike,
            overshoots: overshoots(rows, first),
            fastest: fastest(rows),
            apart: apart(&rows[first..], heights.len()),
            window: stats::mean(heights.iter().copied()).unwrap_or(0.0)
                / rows[first].sender.mss.get().max(1) as f64,
        }
    }

    /// Returns the losses of `past` and `rows` together; `past` need not contain every earlier row.
    pub(super) fn after(past: &[Row], rows: &[Row]) -> Self {
        let (first, last) = (past.first(), rows.last());
        match first.zip(last).map(|(first, last)| first.sender.retransmits == last.sender.retransmits) {
            // Most flows lose nothing for a long time; their rows need not be copied.
            Some(true) => Self::default(),
            Some(false) => Self::of(&[past, rows].concat()),
            None => Self::of(rows),
        }
    }

    /// Returns whether at least three losses, and at least half of all losses, occurred at one delivered rate
    /// and without a queue, as at a policer.
    pub(super) fn at_one_rate(&self) -> bool {
        let others = self.episodes.saturating_sub(1) as f64;
        self.alike >= loss::FEWEST_EPISODES && self.alike as f64 >= loss::MOST_EPISODES * others
    }

    /// Returns whether a fixed rate causes the losses.
    pub(super) fn at_fixed_rate(&self) -> bool {
        let count = self.episodes.saturating_sub(1);
        count >= FEWEST && self.rank >= beyond_chance(count).max(HIGH) && self.spread < ALIKE
    }

    /// Returns whether losses are so frequent that the windows just before them are not meaningful: in a
    /// short or low sawtooth, the largest window of two round trips always ranks high.
    pub(super) fn are_dense(&self) -> bool {
        self.apart < FEWEST_TRIPS || self.window < FEWEST_SEGMENTS
    }

    /// Returns whether slow start overshot a rate that may still be the limit. If later losses occur at much
    /// lower rates, that rate is not the limit.
    pub(super) fn may_come_from_a_rate(&self) -> bool {
        let later = self.episodes.saturating_sub(1);
        let lower = self.rate.is_some_and(|rate| rate < loss::FAR_BELOW * self.fastest);
        self.overshoots && !(later >= FEWEST && lower)
    }
}

/// Returns the value that the mean of `count` uniformly distributed ranks exceeds with probability `MISTAKE`.
fn beyond_chance(count: usize) -> f64 {
    let n = count as f64;
    if count <= FEW {
        // The sum of n uniform ranks exceeds n - x with probability x^n / n!, for x up to 1.
        let factorial: f64 = (1..=count).map(|i| i as f64).product();
        1.0 - (factorial * MISTAKE).powf(1.0 / n) / n
    } else {
        0.5 + DEVIATIONS * EVEN / n.sqrt()
    }
}

/// Returns the losses that the path itself causes; `limit` is the limit that applies for most of the time.
pub(super) fn of_path(flow: &Flow<'_>, limit: Option<Limit>) -> LossEstimate {
    let (Some(first), Some(last)) = (flow.rows.first(), flow.rows.last()) else {
        return LossEstimate::new(0, 0);
    };
    let (first, last) = (&first.sender, &last.sender);
    let resent = last.retransmits.saturating_sub(first.retransmits);
    let delivered = last.delivered.saturating_sub(first.delivered).get();
    let segments = delivered.div_ceil(last.mss.get().max(1)).saturating_add(resent);
    // If a segment arrives twice, its retransmission repaired no loss. If more segments arrive twice than
    // were retransmitted, the network duplicates segments, and the reports do not show how many
    // retransmissions were spurious.
    let spurious = Some(last.dsack_dups.saturating_sub(first.dsack_dups)).filter(|count| *count <= resent);
    let again = if flow.by_rate { resent - spurious.unwrap_or(0) } else { resent };
    // A loss-based sender causes its own losses by overflowing the queue. A policer drops the excess
    // packets of loss-based and rate-based senders alike.
    let own = flow.losses().at_fixed_rate()
        || matches!(limit, Some(Limit::Cap | Limit::Policer))
        || limit == Some(Limit::Link) && !flow.by_rate;
    let events = if flow.by_rate { again } else { flow.losses().episodes as u64 };
    let estimate = if flow.by_rate && !own {
        LossEstimate::of_retransmissions(events, segments)
    } else {
        LossEstimate::new(if own { 0 } else { events }, segments)
    };
    estimate.bounded_by(again, segments)
}

/// Returns the rate that was delivered over two round trips before a loss, and whether there was a standing
/// queue; `None` if there are too few rows. `later` is the number of round trips between the loss and the
/// last row.
fn delivered(rows: &[Row], later: u64) -> Option<(f64, bool)> {
    let (at, trip) = (rows.last()?.at, round_trip(rows.last()?));
    let (from, to) = (at.saturating_sub(trip * (later + 2)), at.saturating_sub(trip * later));
    let end = rows.len() - rows.iter().rev().take(MOST_ROWS).take_while(|row| row.at > to).count();
    let near = rows[..end].iter().rev().take(MOST_ROWS).take_while(|row| row.at >= from).count();
    let near = Window { rows: &rows[end.saturating_sub(near.max(FEWEST_ROWS))..end] };
    // Use the median, because the bursts of a sender build a short queue on any path.
    let queued = near.median(stretch).is_some_and(|stretch| stretch >= queue::NONE_IN_LOG);
    (near.rate() > 0.0).then_some((near.rate(), queued))
}

/// Returns whether the number of losses that first appear in the row after `first` shows that slow start
/// overshot a rate.
fn overshoots(rows: &[Row], first: usize) -> bool {
    let before = &rows[first].sender;
    let until = rows[first].at + round_trip(&rows[first]) * REPAIR;
    let after = rows[first..].iter().take(MOST_ROWS).take_while(|row| row.at <= until).last();
    let resent = |row: &Row| row.sender.retransmits.saturating_sub(before.retransmits);
    let lost = after.into_iter().chain(rows.get(first + 1)).map(resent).max().unwrap_or(0);
    let window = rows[..=first]
        .iter()
        .rev()
        .take(MOST_ROWS)
        .map(|row| row.sender.flight_size.max(row.sender.inflight))
        .max();
    let segments = window.unwrap_or_default().get() / before.mss.get().max(1);
    lost >= loss::FEWEST_IN_A_BURST && lost as f64 >= loss::BURST * segments as f64
}

/// Returns the highest rate that was delivered over a few rows, in bit/s.
fn fastest(rows: &[Row]) -> f64 {
    rows.windows(FEWEST_ROWS).map(|rows| Window { rows }.rate()).fold(0.0, f64::max)
}

/// Returns the mean number of round trips between losses: the first loss in `rows` and the `later` ones.
fn apart(rows: &[Row], later: usize) -> f64 {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return f64::INFINITY };
    let time = last.at.saturating_since(first.at).as_secs_f64();
    time / round_trip(last).as_secs_f64() / later.max(1) as f64
}

/// Returns the median of the rates around the losses, and the number of losses that occurred without a queue
/// and at a rate within 5 % of that median.
fn one_rate(around: &[(f64, bool)]) -> (Option<f64>, usize) {
    let rate = upper_median(around.iter().map(|(rate, _)| *rate).collect(), f64::total_cmp);
    let near = |of: f64| rate.is_some_and(|rate| (of - rate).abs() <= loss::ONE_RATE * rate);
    (rate, around.iter().filter(|(of, queued)| !queued && near(*of)).count())
}

/// Returns the largest window, in bytes, just before a loss that first appears in `row`. The window in `row`
/// itself may already be reduced.
fn height(before: &[Row], row: &Row) -> f64 {
    let reach = row.at.saturating_sub(round_trip(row) * 2);
    let near = before.iter().rev().take(MOST_ROWS).take_while(|row| row.at >= reach);
    let newest = before.last().map_or(0.0, |row| row.sender.cwnd.get() as f64);
    near.map(|row| row.sender.cwnd.get() as f64).fold(newest, f64::max)
}

/// Returns the mean rank of the windows in `heights`. The rank of a window is the share of the data that was
/// sent with smaller windows.
fn mean_rank(rows: &[Row], heights: &[f64]) -> f64 {
    if heights.is_empty() {
        return 0.0;
    }
    let sent = |pair: &[Row]| {
        let bytes = pair[1].sender.delivered.saturating_sub(pair[0].sender.delivered);
        (pair[0].sender.cwnd.get() as f64, bytes.get() as f64)
    };
    let mut data: Vec<(f64, f64)> = rows.windows(2).map(sent).collect();
    data.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Bytes sent with windows up to each size.
    let sums: Vec<f64> = data
        .iter()
        .scan(0.0, |sum, (_, bytes)| {
            *sum += bytes;
            Some(*sum)
        })
        .collect();
    let up_to = |count: usize| count.checked_sub(1).map_or(0.0, |last| sums[last]);
    let all = up_to(sums.len());
    if all <= 0.0 {
        return 0.0;
    }
    let rank = |height: &f64| {
        let below = up_to(data.partition_point(|(window, _)| window < height));
        let with = up_to(data.partition_point(|(window, _)| window <= height));
        0.5 * (below + with) / all
    };
    heights.iter().map(rank).sum::<f64>() / heights.len() as f64
}
