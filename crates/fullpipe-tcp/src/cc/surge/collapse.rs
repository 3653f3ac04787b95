//! Collapse: detects that the path has become much slower during the cruise.
//!
//! BBRv1 keeps the highest delivery rate of the last ten round trips. If the rate of a path falls to a small fraction,
//! as on a cellular link, the queue fills and these round trips become long. The sender then keeps up to two BDP of the
//! former path in flight for seconds. The estimate is outdated if delivery rates are far below it while the RTT shows a
//! queue of more than one BDP. An outage also lowers the delivery rates, but only those of one flight. The delivery
//! rates must therefore stay low for longer.

use fullpipe_units::{Instant, Rate};

use super::share::Model;
use super::train::Train;
use crate::cc::{AckSample, Context};

/// Divisor of the bandwidth estimate: a delivery rate below a quarter of the estimate indicates a slower path. When
/// other flows join, the share of a flow seldom falls this far at once.
const RATE_SHARE: u64 = 4;

/// RTT, in minimum RTTs, above which the queue holds more than one BDP. On an unchanged path, BBRv1 keeps at most two
/// BDP in flight and does not exceed this RTT.
const QUEUED_RTTS: u64 = 2;

/// Time, in minimum RTTs, for which delivery rates must stay low: twice as long as they are low after an outage.
const LOW_RTTS: u64 = 2;

/// Observation of delivery rates far below the bandwidth estimate.
#[derive(Debug, Default)]
pub(super) struct Collapse {
    /// Time of the first low rate; `None` if the last rate was not low.
    since: Option<Instant>,
    /// Number of bytes delivered up to the last collapse.
    delivered: u64,
}

impl Collapse {
    /// Returns whether the delivery rate of a sample still includes the rate before the last collapse, because the
    /// sampled segment was sent before the collapse.
    pub(super) fn is_outdated(&self, sample: &AckSample) -> bool {
        sample.prior_delivered < self.delivered
    }

    /// Handles an ACK. Returns the rate of the path if it has collapsed below the bandwidth estimate. A delivery rate
    /// is a mean over more than a round trip and still includes the former rate, so `train` measures the new rate.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        model: Model,
        train: &mut Train,
    ) -> Option<Rate> {
        let (rate, rtt, min_rtt) = (sample.delivery_rate()?, sample.rtt?, model.min_rtt?);
        let low = model.estimate.mul_div(1, RATE_SHARE);
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
