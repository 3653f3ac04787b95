//! Path signals: rounds, maximum bandwidth, full pipe and ACK aggregation.

use fullpipe_units::{Duration, Instant, Rate};

use super::constants::*;
use crate::cc::gain::{amount, rate_of};
use crate::cc::windowed::WindowedMax;
use crate::cc::{AckSample, Context};

/// Rate sample of one ACK (the draft's `RS`); all zero if the ACK delivered nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// `RS.newly_acked`: bytes newly acknowledged; zero for an ACK that only revealed losses.
    pub(super) newly_acked: u64,
    /// `RS.delivery_rate`; zero if the sample has no valid delivery rate.
    pub(super) delivery_rate: Rate,
    /// `RS.delivered`: bytes delivered during the sampling interval.
    pub(super) delivered: u64,
    /// `RS.prior_delivered`: total bytes delivered when the newest delivered segment was sent; `None` if
    /// nothing was delivered.
    pub(super) prior_delivered: Option<u64>,
    pub(super) tx_in_flight: u64,
    pub(super) lost: u64,
    pub(super) is_app_limited: bool,
}

impl Sample {
    pub(super) fn of(sample: &AckSample) -> Self {
        let news = sample.acked_segments > 0;
        let of_news = |value: u64| if news { value } else { 0 };
        let rate = |interval: Duration| rate_of(sample.delivered, interval);
        Self {
            newly_acked: sample.cum_acked + sample.sacked,
            delivery_rate: sample.interval.filter(|i| news && !i.is_zero()).map_or(Rate::ZERO, rate),
            delivered: of_news(sample.delivered),
            prior_delivered: news.then_some(sample.prior_delivered),
            tx_in_flight: of_news(sample.tx_in_flight),
            lost: of_news(sample.lost_since_sent),
            is_app_limited: sample.app_limited,
        }
    }
}

/// Packet-timed round trips (draft section 5.5.1). The draft starts a new round at some state changes, so
/// this count differs from the round count of the connection.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) count: u64,
    pub(super) start: bool,
    next_round_delivered: u64,
}

impl Rounds {
    pub(super) fn update(&mut self, cx: &Context, rs: &Sample) {
        self.start = rs.prior_delivered.is_some_and(|prior| prior >= self.next_round_delivered);
        if self.start {
            self.begin(cx);
            self.count += 1;
        }
    }

    /// Implements `StartRound()`: segments that leave from now on belong to the next round.
    pub(super) fn begin(&mut self, cx: &Context) {
        self.next_round_delivered = cx.delivered;
    }
}

/// `BBR.max_bw` (draft sections 5.5.2 to 5.5.6): maximum over the current and the previous probing cycle.
#[derive(Debug, Default)]
pub(super) struct MaxBw {
    pub(super) present: Rate,
    pub(super) previous: Rate,
}

impl MaxBw {
    pub(super) fn get(&self) -> Rate {
        self.present.max(self.previous)
    }

    /// Records a bandwidth sample. An application-limited sample may be too low, but never too high, so it is
    /// used only if it is not below the maximum.
    pub(super) fn update(&mut self, rs: &Sample) {
        if rs.delivery_rate >= self.get() || !rs.is_app_limited {
            self.present = self.present.max(rs.delivery_rate);
        }
    }

    /// Ends a probing cycle. A cycle without a sample leaves the maximum unchanged.
    pub(super) fn advance(&mut self) {
        if !self.present.is_zero() {
            self.previous = self.present;
            self.present = Rate::ZERO;
        }
    }
}

/// Detector of a full pipe: checks whether the delivery rate has stopped growing (draft section 5.3.1.2).
///
/// While the pipe has room, a higher sending rate raises the delivery rate. If the rate grows by less than a
/// quarter in each of three rounds, the pipe is full. Three rounds leave time for the receive window to grow,
/// for the sender to fill it, and for one more measurement.
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    /// `BBR.full_bw`: delivery rate when growth was last detected.
    bw: Rate,
    count: u32,
    /// `BBR.full_bw_now`: whether the pipe was found full since the last reset.
    pub(super) now: bool,
    /// `BBR.full_bw_reached`: whether the pipe was ever found full.
    pub(super) reached: bool,
}

impl FullPipe {
    /// Implements `ResetFullBW()`: restarts the full-pipe detection from the rate `bw`. `reached` keeps its
    /// value.
    pub(super) fn reset(&mut self, bw: Rate) {
        *self = Self { bw, count: 0, now: false, reached: self.reached };
    }

    pub(super) fn check(&mut self, round_start: bool, rs: &Sample) {
        let tells = round_start && !rs.is_app_limited && !rs.delivery_rate.is_zero();
        if self.now || !tells {
            return;
        }
        if rs.delivery_rate >= FULL_BW_GROWTH.of_rate(self.bw) {
            self.reset(rs.delivery_rate);
            return;
        }
        self.count += 1;
        if self.count >= FULL_BW_ROUNDS {
            self.set();
        }
    }

    pub(super) fn set(&mut self) {
        (self.now, self.reached) = (true, true);
    }
}

/// ACK aggregation: the amount by which ACKs run ahead of the bandwidth estimate (draft section 5.5.9).
///
/// Wireless links and GRO receivers hold ACKs back and send them in bursts. To continue to send between two
/// bursts, the sender needs additional data in flight: as much as the next burst will acknowledge beyond the
/// bandwidth estimate.
#[derive(Debug)]
pub(super) struct Aggregation {
    interval_start: Instant,
    delivered: u64,
    filter: WindowedMax<u64>,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self { interval_start: now, delivered: 0, filter: WindowedMax::new(EXTRA_ACKED_STARTUP_LEN) }
    }

    /// Starts a new aggregation interval after an idle period, because a gap in transmission is not a gap
    /// between two bursts of ACKs.
    pub(super) fn restart(&mut self, now: Instant) {
        self.interval_start = now;
    }

    pub(super) fn update(
        &mut self,
        now: Instant,
        newly_acked: u64,
        bw: Rate,
        round: u64,
        cwnd: u64,
        full: bool,
    ) {
        let mut expected = amount(bw, now.saturating_since(self.interval_start));
        if self.delivered <= expected {
            // The ACKs no longer run ahead of the bandwidth, so the burst is over.
            self.delivered = 0;
            self.interval_start = now;
            expected = 0;
        }
        self.delivered += newly_acked;
        let extra = (self.delivered - expected).min(cwnd);
        self.filter.set_window(if full { EXTRA_ACKED_FILTER_LEN } else { EXTRA_ACKED_STARTUP_LEN });
        self.filter.update(round, extra);
    }

    /// Returns `BBR.extra_acked`: the allowance for ACK aggregation, in bytes.
    pub(super) fn extra(&self) -> u64 {
        self.filter.get()
    }
}
