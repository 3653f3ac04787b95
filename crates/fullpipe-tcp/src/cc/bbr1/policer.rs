//! Detection of policers, which enforce a rate with a token bucket.
//!
//! A policer passes a burst at full speed and then drops everything beyond its rate. The `bw` maximum filter
//! retains the rate of the burst, and each probe empties the bucket again. The probes cause heavy loss but no
//! higher throughput. Two consecutive intervals with heavy loss and nearly equal mean rates identify a
//! policer. BBR then sends at that mean rate, without probing, for 48 rounds.
//!
//! ```text
//!   rate   ▄▄ burst
//!          ██▄▄                 first loss ──┬── interval ──┬── interval ──┬── 48 rounds at the mean
//!          ████▄▄▄▄▄▄▄▄▄▄▄▄                  4 to 16 rounds, ending with a loss
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use crate::cc::Context;
use crate::cc::gain::rate_of;

/// Limits on the length of a sampling interval, in rounds. A shorter interval gives no meaningful mean rate.
/// An interval ends with a loss. If the upper limit is reached without one, the interval is discarded.
const MIN_ROUNDS: u64 = 4;
const MAX_ROUNDS: u64 = 4 * MIN_ROUNDS;

/// Threshold of heavy loss, in bytes lost per 256 bytes delivered (20 %).
const HEAVY_LOSS: u64 = 50;

/// Two rates are nearly equal if their difference is at most 1/8 of the older rate, or at most 4 kbit/s.
const EQUAL_SHARE: u64 = 8;
const EQUAL_RATE: Rate = Rate::from_bps(4_000);

/// Number of ProbeBW rounds for which BBR uses the detected policer rate. After that, the policer may no
/// longer be on the path, so BBR probes again.
const USE_ROUNDS: u64 = 48;

/// Shortest interval from which the detector computes a rate.
const MIN_TIME: Duration = Duration::from_millis(1);

/// Policer detector; holds the policer's rate after detection.
#[derive(Debug)]
pub(super) struct Policer {
    sampling: bool,
    in_use: bool,
    /// Mean delivery rate of the last sampling interval, or the policer rate in use; zero before the first
    /// interval has ended.
    rate: Rate,
    /// Number of rounds in the current sampling interval, or number of ProbeBW rounds since the policer rate
    /// came into use.
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

    /// Returns the detected policer rate, or `None` if no policer is detected.
    pub(super) fn rate_in_use(&self) -> Option<Rate> {
        self.in_use.then_some(self.rate)
    }

    pub(super) fn reset(&mut self, cx: &Context) {
        *self = Self::new(cx);
    }

    fn begin_interval(&mut self, cx: &Context) {
        *self = Self { sampling: true, in_use: self.in_use, rate: self.rate, ..Self::new(cx) };
    }

    /// Records one ACK or timeout. Returns whether the policer rate in use has just expired in ProbeBW.
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
        // Wait for the first loss. Until then, the token bucket is not empty, and the measured rate is that
        // of the burst.
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
            // The interval ends with a loss, so the token bucket is as empty as at the start of the interval.
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
