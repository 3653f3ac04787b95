//! Share: lowers the bandwidth estimate in Cruise while a queue stands.
//!
//! BBRv1 keeps the highest rate of ten round trips. While a queue stands, this rate is higher than the flow's share of the
//! bottleneck: it was measured in a probe, at the start, or before other flows took their shares. All flows together then
//! send more than the bottleneck passes, the queue stays full, and unequal shares last. If the queue has not been empty for
//! four round trips, the highest rate that one of them delivered on average therefore replaces a higher estimate. At the
//! start of Cruise, when the estimates of other flows are about to expire, fewer round trips are enough. A flow that is
//! alone leaves the queue empty between two probes, so its estimate stays.
//!
//! ```text
//!   pacing gain │ 1 │ 1 │ 1 │ 5/4 │ 3/4 │ 1 │ 1 │ 1 │ 1 │ 1 │
//!   counted     │ x │ x │ x │  x  │     │   │ x │ x │ x │ x │    what is sent at 3/4 is delivered one round trip later
//!               └───────┬───────┘           └───────┬───────┘
//!                       └ if no queue was empty: ───┘ estimate = highest of four rates, if that is lower
//! ```

use std::mem;

use fullpipe_units::{Duration, Instant, Rate};

use super::queue_threshold;
use crate::cc::gain::rate_of;
use crate::cc::{AckSample, Bbr1, Context};

/// Number of counted round trips whose highest rate replaces the estimate. Experiment (decision 0103): with five, surge does
/// more harm to BBRv1; with one, it gets half of what a BBRv1 flow gets in its place.
const ROUNDS: usize = 4;

/// State of BBRv1 at an ACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Bandwidth estimate.
    pub(super) estimate: Rate,
    pub(super) min_rtt: Option<Duration>,
    /// Queueing delay that surge's own super-segments may cause; used at the end of a round trip.
    pub(super) allowance: Duration,
    /// Whether surge paces below the estimate.
    pub(super) paces_below: bool,
}

impl Model {
    pub(super) fn of(path: &Bbr1, round_start: bool) -> Self {
        Self {
            estimate: path.path_rate(),
            min_rtt: path.path_rtt(),
            allowance: if round_start { path.allowance() } else { Duration::ZERO },
            paces_below: path.paces_below_bandwidth(),
        }
    }
}

/// Latest round trips of Cruise.
#[derive(Debug)]
pub(super) struct Share {
    /// Delivery rates of the latest counted round trips, oldest first; `None` if the queue was empty or the application
    /// limited the rate. At the start of Cruise, the missing round trips have no effect: a queue that delivered nothing.
    rates: [Option<Rate>; ROUNDS],
    /// Number of bytes delivered when Cruise began.
    cruise: Option<u64>,
    /// Time and number of bytes delivered when this round trip began; `None` until segments that were sent in Cruise are
    /// acknowledged.
    begin: Option<(Instant, u64)>,
    /// Least queueing delay in this round trip.
    queueing: Duration,
    /// Whether the application limited the rate in this round trip.
    app_limited: bool,
    /// Whether surge paced below its estimate in this round trip.
    paced_below: bool,
    /// Whether surge paced below its estimate in the round trip before, in which the segments that this one delivers were
    /// sent.
    sent_below: bool,
    /// Whether a queue stood in the latest counted round trip that is longer than surge's own super-segments cause.
    held: bool,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            rates: [Some(Rate::ZERO); ROUNDS],
            cruise: None,
            begin: None,
            queueing: Duration::MAX,
            app_limited: false,
            paced_below: false,
            sent_below: false,
            held: false,
        }
    }
}

impl Share {
    /// Returns whether other flows hold a queue. A flow that is alone empties the queue after each of its probes.
    pub(super) fn is_queue_held(&self) -> bool {
        self.held
    }

    /// Handles an ACK in Cruise after Startup. At the end of a round trip, returns the highest rate of the latest ones if a
    /// queue has stood in all of them and the rate is below the estimate.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        model: Model,
        queueing: Duration,
    ) -> Option<Rate> {
        let cruise = *self.cruise.get_or_insert(cx.delivered);
        self.queueing = self.queueing.min(queueing);
        self.app_limited |= sample.app_limited;
        self.paced_below |= model.paces_below;
        if !sample.round_start || sample.prior_delivered < cruise {
            return None;
        }
        let complete = self.begin.replace((cx.now, cx.delivered));
        let queueing = mem::replace(&mut self.queueing, Duration::MAX);
        let app_limited = mem::take(&mut self.app_limited);
        let paced_below = mem::take(&mut self.paced_below);
        let sent_below = mem::replace(&mut self.sent_below, paced_below);
        let (begin, delivered) = complete?;
        let elapsed = cx.now.saturating_since(begin);
        if elapsed.is_zero() || paced_below || sent_below {
            return None;
        }
        let stands = model.min_rtt.is_some_and(|min_rtt| queueing > queue_threshold(min_rtt));
        // The delay by super-segments varies by a third.
        self.held = stands && queueing / 4 * 3 > model.allowance;
        self.rates.rotate_left(1);
        self.rates[ROUNDS - 1] = (stands && !app_limited).then(|| rate_of(cx.delivered - delivered, elapsed));
        let highest =
            self.rates.iter().try_fold(Rate::ZERO, |highest, rate| rate.map(|rate| highest.max(rate)))?;
        (highest < model.estimate).then_some(highest)
    }
}
