//! Estimates of the loss rate, with confidence intervals.
//!
//! Congestion controls react to loss *events*, not to lost segments: 92 retransmissions in one second are one
//! queue overflow or one loss burst, and count once. A log with one report per second cannot separate events
//! within a second, and an episode that spans two reports counts twice. Both errors are small compared with
//! the confidence interval for so few events.

use std::fmt;

use fullpipe_units::Probability;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measurement::{Protocol, Transfer};
use crate::segment::DEFAULT_MSS;

/// Returns the median of `values`: the upper of two middle values, or the default if there are none.
pub(crate) fn middle<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Quantity that a loss estimate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossBasis {
    /// Loss events. All losses close to each other are one event, because most of them may be one overflow of
    /// a queue, to which the sender reacts once.
    #[default]
    Events,
    /// Retransmitted segments: the sender does not react to losses, and each retransmission repairs one.
    Retransmissions,
}

/// Losses per data segment, with the exact 95 % confidence interval of a Poisson count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossEstimate {
    /// Quantity that is counted.
    pub basis: LossBasis,
    /// Number of loss events or of retransmitted segments.
    pub events: u64,
    /// Number of data segments sent.
    pub segments: u64,
    /// Events per segment.
    pub rate: Probability,
    /// Lower bound of the 95 % confidence interval.
    pub low: Probability,
    /// Upper bound of the 95 % confidence interval; 1 if nothing was sent.
    pub high: Probability,
    /// Retransmissions per segment sent, an upper bound of the loss rate, whatever the cause of the losses;
    /// `high` if retransmissions are not counted.
    pub at_most: Probability,
}

impl LossEstimate {
    /// Returns the estimate for `events` loss events in `segments` data segments.
    pub fn new(events: u64, segments: u64) -> Self {
        let (low, high) = poisson_interval(events);
        if segments == 0 {
            return Self {
                basis: LossBasis::Events,
                events,
                segments,
                rate: Probability::ZERO,
                low: Probability::ZERO,
                high: Probability::ONE,
                at_most: Probability::ONE,
            };
        }
        let per_segment = |count: f64| Probability::from_f64(count / segments as f64);
        Self {
            basis: LossBasis::Events,
            events,
            segments,
            rate: per_segment(events as f64),
            low: per_segment(low),
            high: per_segment(high),
            at_most: per_segment(high),
        }
    }

    /// Returns the estimate for `retransmits` retransmissions among `segments` segments sent, if each of them
    /// repairs one lost segment.
    pub fn of_retransmissions(retransmits: u64, segments: u64) -> Self {
        Self { basis: LossBasis::Retransmissions, ..Self::new(retransmits, segments) }
    }

    /// Returns the estimate for two flows of one path.
    #[must_use]
    pub fn together(self, other: Self) -> Self {
        let segments = self.segments.saturating_add(other.segments);
        let again = |of: Self| of.at_most.as_f64() * of.segments as f64;
        let sum = Self::new(self.events.saturating_add(other.events), segments);
        let both = self.basis == LossBasis::Retransmissions && other.basis == self.basis;
        let basis = if both { LossBasis::Retransmissions } else { LossBasis::Events };
        Self { basis, ..sum }.bounded_by((again(self) + again(other)).round() as u64, segments)
    }

    /// Adds the upper bound: `retransmits` retransmissions among `segments` segments sent.
    #[must_use]
    pub fn bounded_by(self, retransmits: u64, segments: u64) -> Self {
        let share = retransmits as f64 / segments.max(1) as f64;
        Self { at_most: Probability::from_f64(share.min(1.0)), ..self }
    }

    /// Returns the loss estimate of a log. For TCP, each stream with retransmissions in an interval counts as
    /// one event, and the number of segments is derived from the payload. For UDP, each lost datagram counts,
    /// relative to the datagrams sent. `None` if the log shows neither: a TCP receiver's log, or a UDP
    /// sender's log without the receiver's report.
    pub fn of_transfer(log: &Transfer) -> Option<Self> {
        if log.protocol == Protocol::Udp {
            let datagrams = log.datagrams?;
            return Some(Self::new(datagrams.lost?, datagrams.total));
        }
        if log.intervals.iter().all(|interval| interval.retransmits.is_none()) {
            return None;
        }
        let events = log.intervals.iter().fold(0u64, |sum, i| sum.saturating_add(i.lossy_streams));
        let sent = log.sent.map_or_else(|| log.bytes(), |sent| sent.bytes);
        let mss = log.mss.unwrap_or(DEFAULT_MSS).get().max(1);
        Some(Self::new(events, sent.get().div_ceil(mss)))
    }
}

impl fmt::Display for LossEstimate {
    /// `3 loss events in 180315 segments: 16.6 ppm (95 %: 3.43 ppm to 48.6 ppm)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = match (self.basis, self.events) {
            (LossBasis::Events, 1) => "loss event",
            (LossBasis::Events, _) => "loss events",
            (LossBasis::Retransmissions, 1) => "retransmission",
            (LossBasis::Retransmissions, _) => "retransmissions",
        };
        write!(
            f,
            "{} {counted} in {} segments: {} (95 %: {} to {})",
            self.events, self.segments, self.rate, self.low, self.high
        )
    }
}

/// Probability beyond each bound of a 95 % interval.
/// Source: the definition of 95 %.
const TAIL: f64 = 0.025;
/// Half width of a 95 % interval, in the normal approximation of the Poisson distribution.
/// Source: the normal distribution.
/// Unit: standard deviations
const DEVIATIONS: f64 = 1.96;
/// Maximum count for the exact interval. For larger counts, the bounds of the normal approximation differ
/// from it by less than 2 in 100,000.
const MANY: u64 = 100_000;

/// Returns the exact (Garwood) 95 % confidence interval of a Poisson mean for a count of `events`. If the
/// mean is the lower bound, a count at least this high has a probability of 2.5 %; if it is the upper bound,
/// a count at most this high has.
pub fn poisson_interval(events: u64) -> (f64, f64) {
    let n = events as f64;
    if events > MANY {
        let half_width = DEVIATIONS * n.sqrt();
        return (n - half_width, n + half_width);
    }
    let ln_factorial: f64 = (1..=events).map(|i| (i as f64).ln()).sum();
    let ln_point = |mean: f64| if events == 0 { -mean } else { n * mean.ln() - mean - ln_factorial };
    // Both tails are summed from the counted value outwards, where the terms decrease. This avoids
    // cancellation and any underflow that matters.
    let at_least = |mean: f64| ln_point(mean).exp() * falling_sum((events + 1..).map(|i| mean / i as f64));
    let at_most = |mean: f64| ln_point(mean).exp() * falling_sum((1..=events).rev().map(|i| i as f64 / mean));
    let low = if events == 0 { 0.0 } else { bisect(0.0, n, |mean| at_least(mean) < TAIL) };
    let high = bisect(n, n + 10.0 * n.sqrt() + 10.0, |mean| at_most(mean) > TAIL);
    (low, high)
}

/// Returns 1 + r1 + r1 r2 + ... for ratios below one.
fn falling_sum(ratios: impl Iterator<Item = f64>) -> f64 {
    let mut sum = 1.0;
    let mut term = 1.0;
    for ratio in ratios {
        term *= ratio;
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    sum
}

/// Returns the point between `low` and `high` where `below` becomes false.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    // Each step adds one bit; 80 bits are more than a double can hold.
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if below(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_interval(events: u64, low: f64, high: f64) {
        let (l, h) = poisson_interval(events);
        assert!((l - low).abs() < 6e-4 * low.max(1.0), "low of {events}: {l}, not {low}");
        assert!((h - high).abs() < 6e-4 * high, "high of {events}: {h}, not {high}");
    }

    /// Garwood's table (chi-square quantiles halved).
    #[test]
    fn the_interval_is_the_exact_one() {
        assert_interval(0, 0.0, 3.689);
        assert_interval(1, 0.0253, 5.572);
        assert_interval(2, 0.242, 7.225);
        assert_interval(3, 0.619, 8.767);
        assert_interval(10, 4.795, 18.390);
        assert_interval(100, 81.364, 121.627);
    }

    #[test]
    fn large_counts_neither_overflow_nor_jump() {
        assert_interval(MANY, 99_381.2, 100_621.7);
        let (exact, _) = poisson_interval(MANY);
        let (normal, _) = poisson_interval(MANY + 1);
        assert!((exact - normal).abs() < 5.0);
        let (low, high) = poisson_interval(u64::MAX);
        assert!(low.is_finite() && high.is_finite());
    }

    #[test]
    fn the_rate_is_events_over_segments() {
        let loss = LossEstimate::new(3, 180_000);
        assert_eq!(
            loss.to_string(),
            "3 loss events in 180000 segments: 16.7 ppm (95 %: 3.44 ppm to 48.7 ppm)"
        );
        let none = LossEstimate::new(0, 0);
        assert_eq!((none.rate, none.high), (Probability::ZERO, Probability::ONE));
    }
}
