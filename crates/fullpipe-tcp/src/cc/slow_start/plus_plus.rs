//! HyStart++ (RFC 9406), which leaves slow start through Conservative Slow Start (CSS).
//!
//! Like HyStart, HyStart++ interprets a growing RTT as a sign of a queue. Unlike HyStart, it compares the RTT
//! with that of the previous round instead of the overall minimum, and confirms the sign before it leaves
//! slow start:
//!
//! ```text
//!               round's minimum RTT >= last round's + clamp(1/8, 4 ms, 16 ms)
//!   slow start ──────────────────────────────────────────► CSS: a quarter of the growth
//!       ▲                                                   │                │
//!       └─── round's minimum RTT below CSS's baseline ──────┘                │ 5 rounds
//!            (it was jitter)                                                 ▼
//!                                                              ssthresh = cwnd: congestion avoidance
//! ```
//!
//! HyStart++ runs only in the first slow start of a connection (RFC 9406 section 4.3), because a later slow
//! start has a known ssthresh.

use fullpipe_units::Duration;

use super::{DELAY_MAX, DELAY_MIN, delay_threshold};
use crate::cc::window::Window;
use crate::cc::{AckSample, Context};

/// Number of RTT samples required in a round before their minimum is used (`N_RTT_SAMPLE` in RFC 9406).
const N_RTT_SAMPLE: u32 = 8;

/// Divisor of the slow-start growth during Conservative Slow Start (`CSS_GROWTH_DIVISOR` in RFC 9406).
const CSS_GROWTH_DIVISOR: u64 = 4;

/// Number of rounds of Conservative Slow Start, including the round in which it begins (`CSS_ROUNDS` in RFC
/// 9406).
const CSS_ROUNDS: u32 = 5;

/// Maximum window growth per ACK without pacing, in segments (`L`). With pacing, there is no limit, because
/// pacing prevents the burst.
const UNPACED_LIMIT: u64 = 8;

// The constants of HyStart serve as `MIN_RTT_THRESH` (4 ms), `MAX_RTT_THRESH` (16 ms) and `MIN_RTT_DIVISOR`
// (8).
const _: () = assert!(DELAY_MIN.as_nanos() == 4_000_000 && DELAY_MAX.as_nanos() == 16_000_000);

/// State of Conservative Slow Start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// Minimum RTT of the round in which Conservative Slow Start began (`cssBaselineMinRtt`).
    baseline: Duration,
    rounds: u32,
    /// Number of ACKed segments that do not yet add up to a whole segment of growth.
    credit: u64,
}

/// HyStart++ state of one connection.
#[derive(Debug)]
pub(in crate::cc) struct HyStartPlusPlus {
    /// Offset whose acknowledgement ends the round (`windowEnd`).
    window_end: u64,
    last_round: Option<Duration>,
    /// Minimum RTT of the current round (`currentRoundMinRTT`).
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

    /// Handles an ACK, and ends slow start after the last round of Conservative Slow Start. Returns the
    /// allowed window growth in segments.
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
            // The RTT increase was only jitter.
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
