//! Long-term and short-term bounds on the rate and on the volume in flight, and their reduction after loss
//! (draft section 5.5.10).
//!
//! ```text
//!                        set by                                      forgotten
//!   inflight_longterm    loss above 2 % while probing                raised by probes with less loss
//!   inflight_shortterm   any loss while not probing, once a round    when the next probe begins
//!   bw_shortterm         any loss while not probing, once a round    when the next probe begins
//! ```
//!
//! The long-term bound is the volume in flight that the path can hold. The short-term bounds follow the
//! capacity that competing traffic currently leaves. `None` represents the draft's value Infinity.

use fullpipe_units::Rate;

use super::constants::*;
use super::signals::Sample;
use crate::cc::{Context, Lost};

/// BBR bounds on the rate, in bit/s, and on the volume in flight, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) bw_shortterm: Option<Rate>,
    pub(super) inflight_shortterm: Option<u64>,
    pub(super) inflight_longterm: Option<u64>,
}

impl Bounds {
    /// Implements `ResetShortTermModel()` of the BBR draft.
    pub(super) fn reset_short_term(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (None, None);
    }

    /// Raises each bound to at least its value `before` the losses, after the losses have proved spurious
    /// (draft section 5.5.11.2).
    pub(super) fn undo(&mut self, before: Self) {
        fn larger<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            Some(a?.max(b?))
        }
        self.bw_shortterm = larger(self.bw_shortterm, before.bw_shortterm);
        self.inflight_shortterm = larger(self.inflight_shortterm, before.inflight_shortterm);
        self.inflight_longterm = larger(self.inflight_longterm, before.inflight_longterm);
    }

    /// Implements `LossLowerBounds()`: lowers the short-term bounds at the end of a round with loss. Each
    /// bound falls to the amount that the round delivered, but to no less than 0.7 times its value. A round
    /// with 1 % loss therefore lowers the bounds by 1 %.
    pub(super) fn lower(&mut self, latest: &Latest, max_bw: Rate, cwnd: u64) {
        let bw = self.bw_shortterm.unwrap_or(max_bw);
        let inflight = self.inflight_shortterm.unwrap_or(cwnd);
        self.bw_shortterm = Some(latest.bw.max(BETA.of_rate(bw)));
        self.inflight_shortterm = Some(latest.inflight.max(BETA.times(inflight)));
    }

    /// Implements `InflightWithHeadroom()`: returns the long-term bound minus the headroom for other flows,
    /// in bytes.
    pub(super) fn with_headroom(&self, mss: u64) -> Option<u64> {
        let bound = self.inflight_longterm?;
        let headroom = HEADROOM.times(bound).max(mss);
        Some(bound.saturating_sub(headroom).max(MIN_PIPE_SEGMENTS * mss))
    }
}

/// Maximum delivery rate and delivered volume of the latest round, and whether a loss occurred in that round
/// (draft section 5.5.10.3). The first loss begins a new round, so that a full round is measured.
#[derive(Debug, Default)]
pub(super) struct Latest {
    /// `BBR.bw_latest`: maximum delivery rate of the latest round.
    pub(super) bw: Rate,
    /// `BBR.inflight_latest`: maximum volume delivered in the latest round, in bytes.
    pub(super) inflight: u64,
    /// `BBR.is_loss_in_round`: whether a loss occurred in the latest round.
    pub(super) is_loss_in_round: bool,
    /// Whether this ACK ends a packet-timed round.
    pub(super) round_start: bool,
    /// `BBR.loss_round_delivered`: the delivered volume at which the loss round ends, in bytes.
    pub(super) round_delivered: u64,
}

impl Latest {
    /// Implements `NoteLoss()` of the BBR draft, but does not save the state. The first loss begins a new
    /// round, so that the measurement covers a full round.
    pub(super) fn note_loss(&mut self, cx: &Context) {
        if !self.is_loss_in_round {
            self.round_delivered = cx.delivered;
        }
        self.is_loss_in_round = true;
    }

    /// Implements `UpdateLatestDeliverySignals()` of the BBR draft.
    pub(super) fn update(&mut self, cx: &Context, rs: &Sample) {
        self.bw = self.bw.max(rs.delivery_rate);
        self.inflight = self.inflight.max(rs.delivered);
        self.round_start = rs.prior_delivered.is_some_and(|prior| prior >= self.round_delivered);
        if self.round_start {
            self.round_delivered = cx.delivered;
        }
    }

    /// Implements `AdvanceLatestDeliverySignals()` of the BBR draft.
    pub(super) fn advance(&mut self, rs: &Sample) {
        if self.round_start {
            (self.bw, self.inflight) = (rs.delivery_rate, rs.delivered);
        }
    }

    /// Implements `ResetCongestionSignals()` of the BBR draft.
    pub(super) fn reset(&mut self) {
        self.is_loss_in_round = false;
        (self.bw, self.inflight) = (Rate::ZERO, 0);
    }
}

/// Implements `IsInflightTooHigh()`: returns whether more than 2 % of the bytes in flight were lost. Without
/// SACK, the sender detects at most one loss per round trip, so any loss is too much.
pub(super) fn is_too_high(lost: u64, tx_in_flight: u64, has_sack: bool) -> bool {
    // The product saturates instead of overflowing; no real window is that large.
    lost.saturating_mul(100) > tx_in_flight.saturating_mul(LOSS_THRESH_PERCENT) || (lost > 0 && !has_sack)
}

/// Implements `InflightAtLoss()`: returns the bytes in flight when the loss ratio crossed 2 %. The result is
/// the volume in flight before `lost` was sent, plus the part of `lost` at whose end the ratio reaches 2 %:
/// `(2 % x before
/// - lost before) / (1 - 2 %)`.
pub(super) fn inflight_at_loss(lost: &Lost) -> u64 {
    let before = lost.tx_in_flight.saturating_sub(lost.len);
    let lost_before = lost.lost_since_sent.saturating_sub(lost.len);
    // If the loss ratio exceeded 2 % even before `lost`, the part would be negative and is set to zero.
    let prefix =
        (LOSS_THRESH_PERCENT * before).saturating_sub(100 * lost_before) / (100 - LOSS_THRESH_PERCENT);
    before + prefix
}

/// Detector for the exit from Startup on loss (draft section 5.3.1.3). The detector requires that the loss is
/// spread over a whole round trip.
#[derive(Debug, Default)]
pub(super) struct StartupLoss {
    ranges: u64,
    /// End offset of the last lost range; a loss that begins at this offset extends the range.
    end: u64,
}

impl StartupLoss {
    pub(super) fn note(&mut self, lost: &Lost) {
        if lost.offset != self.end || self.ranges == 0 {
            self.ranges += 1;
        }
        self.end = lost.offset + lost.len;
    }

    /// Returns whether this ACK ends a round of fast recovery with too much loss. At the end of a round, the
    /// count of lost ranges is reset to zero.
    pub(super) fn check(&mut self, cx: &Context, latest: &Latest, rs: &Sample) -> bool {
        let too_high = if cx.has_sack {
            latest.round_start
                && cx.in_recovery
                && self.ranges >= STARTUP_FULL_LOSS_COUNT
                && is_too_high(rs.lost, rs.tx_in_flight, true)
        } else {
            cx.in_recovery && self.ranges > 0
        };
        if latest.round_start {
            self.ranges = 0;
        }
        too_high
    }
}
