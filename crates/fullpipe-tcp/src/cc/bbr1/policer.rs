//! Is the limit a token bucket rather than a link?
//!
//! A policer lets a burst through at full speed and then drops everything beyond its rate. The
//! maximum filter remembers the burst; probing empties the bucket again each time; the result is
//! heavy loss for no gain. The signs: two intervals in a row with heavy loss and nearly equal mean
//! rates. Then that mean is the rate to send at, without probing, for a while.
//!
//! ```text
//!   rate   ▄▄ burst
//!          ██▄▄                 first loss ──┬── interval ──┬── interval ──┬── 48 rounds at the mean
//!          ████▄▄▄▄▄▄▄▄▄▄▄▄                  4 to 16 rounds, ending with a loss
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use crate::cc::Context;
use crate::cc::gain::rate_of;

/// Length of an interval in rounds: at least, for a mean; at most, or loss was only at its ends.
const MIN_ROUNDS: u64 = 4;
const MAX_ROUNDS: u64 = 4 * MIN_ROUNDS;

/// Bytes lost per 256 delivered that make heavy loss (20 %).
const HEAVY_LOSS: u64 = 50;

/// Rates within 1/8 of each other, or within 4 kbit/s, are nearly equal.
const EQUAL_SHARE: u64 = 8;
const EQUAL_RATE: Rate = Rate::from_bps(4_000);

/// The rate is good for so many rounds; the policer may be gone.
const USE_ROUNDS: u64 = 48;

/// The least interval that a rate is computed of.
const MIN_TIME: Duration = Duration::from_millis(1);

/// Watches for a policer, and knows its rate once found.
#[derive(Debug)]
pub(super) struct Policer {
    sampling: bool,
    in_use: bool,
    /// Mean rate of the last interval, or the rate in use; zero before the first.
    rate: Rate,
    /// Rounds of this interval, or of use.
    rounds: u64,
    start: Instant,
    delivered: u64,
    lost: u64,
}

impl Policer {
    pub(super) fn new(cx: &Context) -> Self {
        Self {
            sampling: false,
            in_use: false,
            rate: Rate::ZERO,
            rounds: 0,
            start: cx.delivered_time,
            delivered: cx.delivered,
            lost: cx.lost,
        }
    }

    /// What the policer lets through, if one was found.
    pub(super) fn rate_in_use(&self) -> Option<Rate> {
        self.in_use.then_some(self.rate)
    }

    pub(super) fn reset(&mut self, cx: &Context) {
        *self = Self::new(cx);
    }

    fn begin_interval(&mut self, cx: &Context) {
        *self = Self { sampling: true, in_use: self.in_use, rate: self.rate, ..Self::new(cx) };
    }

    /// One ACK, or a timeout. Returns true when the rate in use has just been given up in ProbeBW.
    pub(super) fn update(
        &mut self,
        cx: &Context,
        round_start: bool,
        lost: bool,
        app_limited: bool,
        probing: bool,
    ) -> bool {
        if self.in_use {
            self.rounds += u64::from(probing && round_start);
            let over = self.rounds >= USE_ROUNDS;
            if over {
                self.reset(cx);
            }
            return over;
        }
        // Wait for the bucket to run empty: before the first loss, its burst is measured.
        if !self.sampling {
            if !lost {
                return false;
            }
            self.begin_interval(cx);
        }
        if app_limited {
            self.reset(cx);
            return false;
        }
        self.rounds += u64::from(round_start);
        if self.rounds > MAX_ROUNDS {
            self.reset(cx);
        } else if self.rounds >= MIN_ROUNDS && lost {
            // End with a loss, when the bucket is as empty as it was at the start.
            self.end_interval(cx);
        }
        false
    }

    fn end_interval(&mut self, cx: &Context) {
        let lost = cx.lost - self.lost;
        let delivered = cx.delivered - self.delivered;
        if delivered == 0 || lost.saturating_mul(256) < delivered.saturating_mul(HEAVY_LOSS) {
            return;
        }
        let time = cx.delivered_time.saturating_since(self.start);
        if time < MIN_TIME {
            return;
        }
        let rate = rate_of(delivered, time);
        if !self.rate.is_zero() && nearly_equal(rate, self.rate) {
            self.rate = Rate::from_bps(u64::midpoint(rate.as_bps(), self.rate.as_bps()));
            self.in_use = true;
            self.rounds = 0;
        } else {
            self.rate = rate;
            self.begin_interval(cx);
        }
    }
}

fn nearly_equal(new: Rate, old: Rate) -> bool {
    let difference = Rate::from_bps(new.as_bps().abs_diff(old.as_bps()));
    difference <= Rate::from_bps(old.as_bps() / EQUAL_SHARE) || difference <= EQUAL_RATE
}
