//! Estimates of the loss rate, with their confidence intervals.
//!
//! Congestion controls react to loss *events*, not to lost segments: 92 retransmissions in one second are one
//! queue overflow or one loss burst, and count once. A log with one report per second cannot separate events
//! within a second, and an episode that spans two reports counts twice. Both errors are small compared with
//! the confidence interval for so few events.

use std::fmt;

use fullpipe_lab::stats::poisson_interval;
use fullpipe_units::Probability;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measurement::{Protocol, Transfer};
use crate::segment::DEFAULT_MSS;

/// Quantity that a loss estimate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossBasis {
    /// Loss events. All losses close to each other are one event, because most of them may be one overflow of
    /// a queue, to which the sender reacts once.
    #[default]
    Events,
    /// Retransmitted segments. The sender does not react to losses, and each retransmission repairs one lost
    /// segment.
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
    /// Retransmissions per segment sent: an upper bound of the loss rate for any cause of the losses; `high`
    /// if retransmissions are not counted.
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

    /// Combines the estimates for two flows on one path.
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
    /// one event, and the number of segments is derived from the payload. For UDP, the estimate counts lost
    /// datagrams, relative to the datagrams sent. `None` if the log shows neither: a TCP receiver's log, or a
    /// UDP sender's log without the receiver's report.
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

#[cfg(test)]
mod tests {
    use super::*;

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
