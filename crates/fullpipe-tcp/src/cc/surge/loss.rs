//! Judgement of losses as congestive or random.
//!
//! A queue drops packets when it is full, and a full queue delays the packets around the loss. A loss without
//! a queue is random unless it is one of many, because a short queue or a policer drops packets without much
//! delay.
//!
//! | observation | judgement |
//! |---|---|
//! | ECN mark | congestion |
//! | no SACK: one hole is repaired per round trip, and a larger flight has more holes | congestion |
//! | queueing delay above an eighth of the minimum RTT | congestion |
//! | at least [`MANY_SEGMENTS`] and an eighth of the segments of a round trip lost | congestion |
//! | anything else | random |

use fullpipe_units::Duration;

use super::queue_threshold;
use crate::cc::{AckSample, Context, Lost};

/// Number of segments that must be lost in a round trip for a loss without a queue to be congestive. The
/// number must also exceed an eighth of the segments of the round trip. With random loss of 3 %, 1 in 500
/// flights of 44 segments loses at least this number.
const MANY_SEGMENTS: u64 = 6;
const MANY_SHARE: u64 = 8;

/// Judgement of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossVerdict {
    Congestion,
    Random,
}

/// Judge that classifies the losses of one connection.
#[derive(Debug, Default)]
pub(super) struct LossJudge {
    /// Bytes lost since the last ACK.
    pending: u64,
    /// Bytes lost in this round trip, and bytes delivered before the round trip began.
    lost: u64,
    delivered: u64,
    /// Latest RTT.
    rtt: Duration,
}

impl LossJudge {
    pub(super) fn on_lost(&mut self, lost: &Lost) {
        self.pending += lost.len;
    }

    /// Returns the time that the latest packet spent in queues.
    pub(super) fn queueing(&self, min_rtt: Option<Duration>) -> Duration {
        min_rtt.map_or(Duration::ZERO, |min_rtt| self.rtt.saturating_sub(min_rtt))
    }

    /// Returns the number of segments lost in this round trip.
    pub(super) fn lost_segments(&self, mss: u64) -> u64 {
        self.lost.div_ceil(mss)
    }

    /// Handles an ACK, after [`LossJudge::on_lost`] for its losses. `marked` tells whether the peer has echoed an ECN
    /// mark since the last ACK. Returns the judgement of the losses and marks since then, or `None` if there were
    /// none.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        min_rtt: Option<Duration>,
        marked: bool,
    ) -> Option<LossVerdict> {
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
        }
        if sample.round_start {
            self.lost = 0;
            self.delivered = cx.delivered;
        }
        if self.pending == 0 && !marked {
            return None;
        }
        self.lost += std::mem::take(&mut self.pending);
        let queued = min_rtt.is_some_and(|min_rtt| self.queueing(Some(min_rtt)) > queue_threshold(min_rtt));
        let window = cx.delivered.saturating_sub(self.delivered) + cx.inflight + self.lost;
        let many = self.lost >= MANY_SEGMENTS * cx.mss && self.lost.saturating_mul(MANY_SHARE) > window;
        Some(if marked || !cx.has_sack || queued || many {
            LossVerdict::Congestion
        } else {
            LossVerdict::Random
        })
    }
}
