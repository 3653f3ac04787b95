//! Share: corrects the bandwidth estimate at the start of Cruise if other flows use the bottleneck.
//!
//! During its start, surge sends faster than the other flows for some round trips, so the bottleneck passes more of its
//! data than later. BBRv1 keeps the highest rate of ten round trips. With this estimate, the queue stays full for as long,
//! and the other flows, whose estimates expire in that time, lose their share for good. If the queue has not been empty
//! for a whole round trip, the rate of this round trip therefore replaces a higher estimate. A flow that is alone in Cruise
//! leaves the queue empty between two probes.
//!
//! ```text
//!            start │ Cruise, ten round trips                │ then
//!   estimate ──────┴──┐                                     │
//!                     └──┐ delivered while a queue stands   │ maximum of ten round trips, as in BBRv1
//!                        └──────────────────────────────────┴───────────
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use super::queue_threshold;
use crate::cc::gain::rate_of;
use crate::cc::{AckSample, Context};

/// Number of round trips in which the estimate is corrected: the length of BBRv1's maximum filter, which holds rates of the
/// start for this time. With 20, surge at 210 ms takes less of the link than a BBRv1 flow in its place.
const ROUNDS: u32 = 10;

/// Measurement of a round trip of Cruise.
#[derive(Debug)]
pub(super) struct Share {
    /// Number of complete round trips.
    rounds: u32,
    /// Number of bytes delivered when Cruise began.
    cruise: Option<u64>,
    /// Time and number of bytes delivered when this round trip began; `None` until segments that were sent in Cruise are
    /// acknowledged.
    begin: Option<(Instant, u64)>,
    /// Least queueing delay in this round trip.
    queueing: Duration,
    /// Whether the application limited the rate in this round trip.
    app_limited: bool,
}

impl Default for Share {
    fn default() -> Self {
        Self { rounds: 0, cruise: None, begin: None, queueing: Duration::MAX, app_limited: false }
    }
}

impl Share {
    /// Handles an ACK in Cruise after Startup. At the end of a round trip, returns its delivery rate if a queue has stood for
    /// the whole round trip and the rate is below the bandwidth `estimate`.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        (estimate, min_rtt): (Rate, Option<Duration>),
        queueing: Duration,
    ) -> Option<Rate> {
        if self.rounds == ROUNDS {
            return None;
        }
        let cruise = *self.cruise.get_or_insert(cx.delivered);
        self.queueing = self.queueing.min(queueing);
        self.app_limited |= sample.app_limited;
        if !sample.round_start || sample.prior_delivered < cruise {
            return None;
        }
        let complete = self.begin.replace((cx.now, cx.delivered));
        let queueing = std::mem::replace(&mut self.queueing, Duration::MAX);
        let app_limited = std::mem::take(&mut self.app_limited);
        let (begin, delivered) = complete?;
        self.rounds += 1;
        let elapsed = cx.now.saturating_since(begin);
        if elapsed.is_zero() {
            return None;
        }
        let rate = rate_of(cx.delivered - delivered, elapsed);
        let stands = min_rtt.is_some_and(|min_rtt| queueing > queue_threshold(min_rtt));
        (stands && !app_limited && rate < estimate).then_some(rate)
    }
}
