//! Estimates the path's loss rate from the retransmissions of a log.
//!
//! ```text
//!   sender                       losses close together are              the estimate counts
//!   reduces its window           one overflow, mostly its own           events: one per interval that has any
//!     in half of the intervals   too many for one per interval          events, corrected for those that coincide
//!   ignores losses (BBR)         independent of each other              retransmissions
//!     fills the link or a cap    perhaps its own                        events; retransmissions are the upper bound
//! ```
//!
//! Whatever the cause of the losses, the number of lost segments is at most the number of retransmissions, so
//! every estimate has this upper bound. A log does not report which retransmissions were spurious (D-SACK),
//! so they count as losses.

use fullpipe_measurement::loss_estimate::LossEstimate;
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_measurement::thresholds::link;
use fullpipe_units::Probability;

use super::{Explainer, Sender};

/// If at least this share of the intervals has retransmissions, the few other intervals do not show how many
/// events share an interval. The upper bound of the loss then assumes the maximum number of events to which
/// the sender can react.
const SATURATED: f64 = 0.5;
/// The number of lost segments is between these multiples of the number of retransmissions: some retransmissions are
/// unnecessary, and some repair losses from before the counted time.
/// Source: chosen; `tests/it/loss.rs` checks it with simulated logs of BBR.
const MISCOUNTED: (f64, f64) = (0.95, 1.05);

impl Explainer<'_> {
    /// Returns the loss estimate of a log; `None` if the log does not count retransmissions.
    pub(super) fn estimated_loss(&self) -> Option<LossEstimate> {
        let events = LossEstimate::of_transfer(self.facts.transfer)?;
        let again = self.measured.retransmits.unwrap_or(0);
        let sent = events.segments.saturating_add(again);
        let tolerant = !matches!(self.sender, Sender::Assumed(_)) && self.sender.algorithm().is_rate_based();
        if !tolerant {
            return Some(self.apart(self.not_all_random(events)).bounded_by(again, sent));
        }
        let counted = self.series.steady_retransmits(self.measured.mss);
        let counted = LossEstimate::of_retransmissions(counted.0, counted.1);
        let estimate = if self.fills_the_path() {
            LossEstimate { high: counted.high.max(events.high), ..self.not_all_random(events) }
        } else {
            // The count is exact, except for retransmissions that were unnecessary or that repaired a loss from before
            // the count began.
            let off = |rate: Probability, times: f64| Probability::from_f64(rate.as_f64() * times);
            let low = off(counted.low, MISCOUNTED.0);
            let high = off(counted.high, MISCOUNTED.1);
            // An unknown link may be full, and its queue may overflow.
            let low = if self.link_has_room() { low } else { low.min(events.low) };
            LossEstimate { low, high, ..counted }
        };
        Some(estimate.bounded_by(again, sent))
    }

    /// Lowers the lower bound of `events` to zero if the flow may have caused all of them.
    fn not_all_random(&self, events: LossEstimate) -> LossEstimate {
        if self.fills_the_path() { LossEstimate { low: Probability::ZERO, ..events } } else { events }
    }

    /// Returns whether rate, RTT or losses show a full link or a cap, so that the flow itself may overflow its queue or
    /// token bucket.
    fn fills_the_path(&self) -> bool {
        self.facts.path.link.is_some_and(|link| self.fills(link))
            || self.queue().is_some()
            || self.meets_the_control_rate()
            || self.losses_at_one_rate().is_some()
    }

    fn link_has_room(&self) -> bool {
        let steady = self.measured.steady.as_bps() as f64;
        self.facts.path.link.is_some_and(|link| steady < link::ROOM * link.as_bps() as f64)
    }

    /// Corrects a count of intervals with retransmissions for events that share an interval. If events are
    /// independent, the share of intervals without any is exp(-events per interval). The sender reacts to at
    /// most one event per round trip.
    fn apart(&self, events: LossEstimate) -> LossEstimate {
        let log = self.facts.transfer;
        let mss = log.mss.unwrap_or(DEFAULT_MSS);
        let all = (log.intervals.len() * log.streams) as f64;
        let lossy = events.events as f64;
        if self.fills_the_path() || mss.is_zero() {
            return events;
        }
        let rtt = self.measured.mean_rtt.unwrap_or(self.measured.rtt).as_secs_f64();
        let reactions = |length: f64| if rtt > 0.0 { (length / rtt).ceil() } else { f64::INFINITY };
        let most: f64 = log
            .intervals
            .iter()
            .map(|i| {
                let again = i.retransmits.unwrap_or(0) as f64;
                again.min(i.lossy_streams as f64 * reactions(i.length().as_secs_f64()))
            })
            .sum();
        let independent = if lossy < all { all * (all / (all - lossy)).ln() } else { f64::INFINITY };
        let likely = LossEstimate::new(independent.min(most).max(lossy) as u64, events.segments);
        if lossy < SATURATED * all {
            return likely;
        }
        let most = LossEstimate::new(most.max(lossy) as u64, events.segments);
        LossEstimate { low: events.low, high: most.high, ..likely }
    }
}
