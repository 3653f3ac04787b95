//! Collapse: the path has become much slower during the cruise.
//!
//! BBRv1 keeps the highest delivery rate of the last ten round trips. When a path falls to a small fraction of
//! its rate, as a cellular link does, these round trips become long, because the queue fills: the sender keeps
//! up to two BDP of the former path in flight for seconds. Delivery rates far below the estimate, while the RTT
//! shows a queue of more than one BDP, show that the estimate is outdated. They must continue for longer than
//! after an outage, which slows down one flight only.

use fullpipe_units::{Duration, Instant, Rate};

use super::train::Train;
use crate::cc::{AckSample, Context};

/// Share of the bandwidth estimate below which a delivery rate is that of a slower path: a quarter. Where flows
/// join, the share of a flow seldom falls this far at once.
const RATE_SHARE: u64 = 4;

/// RTT, in minimum RTTs, above which the queue holds more than one BDP. BBRv1 keeps up to two BDP in flight.
const QUEUED_RTTS: u64 = 2;

/// Time, in minimum RTTs, for which delivery rates must be low: twice as long as after an outage.
const LOW_RTTS: u64 = 2;

/// Delivery rates that are far below the bandwidth estimate.
#[derive(Debug, Default)]
pub(super) struct Collapse {
    /// Time of the first low rate; `None` after a rate that is not low.
    since: Option<Instant>,
    /// Number of bytes that were delivered at the last collapse.
    delivered: u64,
}

impl Collapse {
    /// Returns whether the delivery rate of a sample contains the rate before the last collapse: its segment was
    /// sent earlier.
    pub(super) fn is_outdated(&self, sample: &AckSample) -> bool {
        sample.prior_delivered < self.delivered
    }

    /// Handles an ACK. Returns the rate of the path if it has collapsed below the bandwidth `estimate`. A delivery
    /// rate is a mean over more than a round trip, and contains the former rate; `train` measures the new one.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        (estimate, min_rtt): (Rate, Option<Duration>),
        train: &mut Train,
    ) -> Option<Rate> {
        let (rate, rtt, min_rtt) = (sample.delivery_rate()?, sample.rtt?, min_rtt?);
        let low = estimate.mul_div(1, RATE_SHARE);
        if rate >= low || rtt <= min_rtt * QUEUED_RTTS || sample.app_limited {
            self.since = None;
            return None;
        }
        if self.since.is_none() {
            *train = Train::default();
        }
        let since = *self.since.get_or_insert(cx.now);
        let latest = train.on_ack(cx, sample, Some(min_rtt))?;
        if latest.rate >= low || !latest.is_dispersed() || cx.now.saturating_since(since) < min_rtt * LOW_RTTS
        {
            return None;
        }
        (self.since, self.delivered) = (None, cx.delivered);
        Some(latest.rate)
    }
}
