//! Small observers of the path: rounds, the best bandwidth, a full pipe, lumps of ACKs.

use fullpipe_units::{Duration, Instant, Rate};

use super::constants::*;
use crate::cc::gain::{amount, rate_of};
use crate::cc::windowed::WindowedMax;
use crate::cc::{AckSample, Context};

/// What the draft calls `RS`: what an ACK says, with nothing in it if it delivered nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// `RS.newly_acked` in bytes; zero for an ACK that only led to marks.
    pub(super) newly_acked: u64,
    /// `RS.delivery_rate`; zero if there is no valid one.
    pub(super) delivery_rate: Rate,
    /// `RS.delivered` in bytes.
    pub(super) delivered: u64,
    /// `RS.prior_delivered`; `None` if nothing was delivered.
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

/// Packet-timed round trips (5.5.1). Phases begin new ones, so these are not the connection's.
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

    /// `StartRound()`: what is sent from now on belongs to the next.
    pub(super) fn begin(&mut self, cx: &Context) {
        self.next_round_delivered = cx.delivered;
    }
}

/// `BBR.max_bw` (5.5.2 to 5.5.6): the best of the present and the previous cycle of probing.
#[derive(Debug, Default)]
pub(super) struct MaxBw {
    pub(super) present: Rate,
    pub(super) previous: Rate,
}

impl MaxBw {
    pub(super) fn get(&self) -> Rate {
        self.present.max(self.previous)
    }

    /// A slow application makes low samples, but no sample is higher than the path is fast.
    pub(super) fn update(&mut self, rs: &Sample) {
        if rs.delivery_rate >= self.get() || !rs.is_app_limited {
            self.present = self.present.max(rs.delivery_rate);
        }
    }

    /// A cycle ends. One that brought no sample forgets nothing.
    pub(super) fn advance(&mut self) {
        if !self.present.is_zero() {
            self.previous = self.present;
            self.present = Rate::ZERO;
        }
    }
}

/// Has the delivery rate stopped growing (5.3.1.2)?
///
/// As long as the pipe has room, faster sending shows in the delivery rate. Three rounds without a quarter more
/// mean that there is none: enough for a receive window to follow and for one more look.
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    /// `BBR.full_bw`: the rate when it last grew.
    bw: Rate,
    count: u32,
    /// `BBR.full_bw_now`: since the search last began.
    pub(super) now: bool,
    /// `BBR.full_bw_reached`: ever.
    pub(super) reached: bool,
}

impl FullPipe {
    /// `ResetFullBW()`: looks anew, from this rate on. What was reached stays reached.
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

/// How far ACKs run ahead of the bandwidth (5.5.9).
///
/// Wireless links and merging receivers hold ACKs back and send them in lumps. Between two lumps the sender needs
/// as much more in flight as the next one will carry beyond what the bandwidth explains.
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

    /// Time without transmission is not time between lumps.
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
            // ACKs are no faster than the bandwidth: the lump is over.
            self.delivered = 0;
            self.interval_start = now;
            expected = 0;
        }
        self.delivered += newly_acked;
        let extra = (self.delivered - expected).min(cwnd);
        self.filter.set_window(if full { EXTRA_ACKED_FILTER_LEN } else { EXTRA_ACKED_STARTUP_LEN });
        self.filter.update(round, extra);
    }

    /// `BBR.extra_acked` in bytes.
    pub(super) fn extra(&self) -> u64 {
        self.filter.get()
    }
}
