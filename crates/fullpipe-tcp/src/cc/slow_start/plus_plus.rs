//! HyStart++ (RFC 9406): leaves slow start by way of a slower one.
//!
//! Like HyStart it takes a growing RTT for a queue that builds up, but it compares with the round before, not with the
//! least RTT ever; and it does not believe it at once:
//!
//! ```text
//!               round's least RTT >= last round's + clamp(1/8, 4 ms, 16 ms)
//!   slow start ──────────────────────────────────────────► CSS: a quarter of the growth
//!       ▲                                                   │                │
//!       └─── round's least RTT below where CSS began ───────┘                │ 5 rounds
//!            (it was jitter)                                                 ▼
//!                                                              ssthresh = cwnd: congestion avoidance
//! ```
//!
//! Only the first slow start of a connection is watched (section 4.3): the threshold of a later one is known.

use fullpipe_units::Duration;

use super::{DELAY_MAX, DELAY_MIN, delay_threshold};
use crate::cc::window::Window;
use crate::cc::{AckSample, Context};

/// RTT samples of a round before its least is believed (`N_RTT_SAMPLE`).
const N_RTT_SAMPLE: u32 = 8;

/// Growth in Conservative Slow Start is this part of slow start's (`CSS_GROWTH_DIVISOR`).
const CSS_GROWTH_DIVISOR: u64 = 4;

/// Rounds of Conservative Slow Start (`CSS_ROUNDS`); the one in which it begins counts.
const CSS_ROUNDS: u32 = 5;

/// Most segments that one ACK lets an unpaced window grow by (`L`); a paced one makes no burst of it.
const UNPACED_LIMIT: u64 = 8;

// `MIN_RTT_THRESH`, `MAX_RTT_THRESH` and `MIN_RTT_DIVISOR` are HyStart's own: 4 ms, 16 ms and 8.
const _: () = assert!(DELAY_MIN.as_nanos() == 4_000_000 && DELAY_MAX.as_nanos() == 16_000_000);

/// Conservative Slow Start under way.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// `cssBaselineMinRtt`.
    baseline: Duration,
    rounds: u32,
    /// Segments acknowledged that have not yet earned a whole segment of growth.
    credit: u64,
}

/// HyStart++ on one connection.
#[derive(Debug)]
pub(in crate::cc) struct HyStartPlusPlus {
    /// The round ends when this offset is acknowledged (`windowEnd`).
    window_end: u64,
    last_round: Option<Duration>,
    /// `currentRoundMinRTT` and `rttSampleCount`.
    this_round: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
    host_paces: bool,
}

impl HyStartPlusPlus {
    pub(super) fn new(cx: &Context) -> Self {
        Self {
            window_end: cx.snd_nxt,
            last_round: None,
            this_round: None,
            samples: 0,
            conservative: None,
            host_paces: false,
        }
    }

    /// Looks at an ACK; ends slow start if it is time. Returns the segments that it lets the window grow by.
    pub(super) fn on_ack(&mut self, cx: &Context, sample: &AckSample, window: &mut Window) -> u64 {
        let acked = sample.acked_segments;
        if !window.in_first_slow_start() {
            return acked;
        }
        self.host_paces |= cx.next_departure > cx.now && !cx.next_departure.is_never();
        if let Some(rtt) = sample.rtt {
            self.on_rtt(rtt);
        }
        if cx.snd_una >= self.window_end {
            self.end_round(cx, window);
        }
        let acked = if self.host_paces { acked } else { acked.min(UNPACED_LIMIT) };
        let Some(css) = &mut self.conservative else {
            return acked;
        };
        css.credit += acked;
        let grown = css.credit / CSS_GROWTH_DIVISOR;
        css.credit %= CSS_GROWTH_DIVISOR;
        grown
    }

    fn on_rtt(&mut self, rtt: Duration) {
        let least = self.this_round.map_or(rtt, |least| least.min(rtt));
        self.this_round = Some(least);
        self.samples += 1;
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match self.conservative {
            // It was jitter.
            Some(css) if least < css.baseline => self.conservative = None,
            Some(_) => {}
            None => {
                if self.last_round.is_some_and(|last| least >= last + delay_threshold(last)) {
                    self.conservative = Some(Conservative { baseline: least, rounds: 0, credit: 0 });
                }
            }
        }
    }

    fn end_round(&mut self, cx: &Context, window: &mut Window) {
        self.window_end = cx.snd_nxt;
        self.last_round = self.this_round.take();
        self.samples = 0;
        if let Some(css) = &mut self.conservative {
            css.rounds += 1;
            if css.rounds >= CSS_ROUNDS {
                self.conservative = None;
                window.leave_slow_start();
            }
        }
    }

    pub(super) fn is_conservative(&self) -> bool {
        self.conservative.is_some()
    }
}

#[cfg(test)]
mod tests;
