//! BIC: binary increase (Xu, Harfoush and Rhee, INFOCOM 2004), in the integer arithmetic of Linux.
//!
//! After a loss at `last_max` the best window lies between what is left and there. BIC halves that
//! distance again and again instead of walking it, so that a long path is full again after a number of
//! round trips that grows with the logarithm of the loss, not with the loss itself:
//!
//! ```text
//!   cwnd                                      ╱ linear, 16 a round trip
//!                                           ╱
//!                                    ╭────╯   away from the plateau: slowly at first
//!   last_max ─ ─ ─ ─ ─ ─ ─ ─ ╭──────╯
//!                      ╭─────╯       at the plateau: a segment in five windows
//!                   ╭──╯             a quarter of what is left, each round trip
//!                  ╱                 linear, 16 a round trip: more would be a burst
//!   0.8 last_max  ╱
//! ```
//!
//! Growth is the number `count` of ACKed segments per segment, as in CUBIC, which replaced it. Up to 14
//! segments BIC is Reno. Nothing here asks for the RTT, and so flows with a short one win.
//!
//! As in Linux: cuts are of the window, not of what is in flight; and `count` is divided by the segments
//! per ACK, for windows once grew per ACK. Today they grow per segment, so that this doubles the growth
//! wherever ACKs cover two segments. It is kept: it is what hosts do.

use fullpipe_units::Instant;

use super::window::{KEEP_ONE, RECOMPUTE, Window, plateau};
use super::{AckSample, CongestionControl, Context, Control, Hints, Signal, Status};

/// What a cut leaves of the window, in 1/1024: 0.79980 for 0.8 (Linux `beta`; the paper takes an eighth away).
const BETA: u64 = 819;

/// Up to this window in segments BIC grows and halves as Reno does (`low_window`).
const LOW_WINDOW: u64 = 14;

/// Most segments of growth per round trip (`max_increment`; the paper's Smax is 32).
const MAX_INCREMENT: u64 = 16;

/// A quarter of the distance to `last_max` is walked in a round trip: the `B` of the search.
const SEARCH_DIVISOR: u64 = 4;

/// At the plateau `cwnd` grows by a segment in so many quarter windows: five windows (`smooth_part`).
const SMOOTH_PART: u64 = 20;

/// ACKed segments per segment of growth before the first loss, at most: 5 % per round trip, as nothing
/// says that the plateau is near.
const MAX_COUNT_WITHOUT_LOSS: u64 = 20;

/// Binary digits of the estimate of segments per ACK, and its gain: 1/16.
const PER_ACK_SHIFT: u32 = 4;

/// The estimate before anything is known: two segments per ACK.
const PER_ACK_AT_START: u64 = 2 << PER_ACK_SHIFT;

/// BIC on one connection.
#[derive(Debug)]
pub struct Bic {
    window: Window,
    search: Search,
}

impl Bic {
    /// A controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        Self { window: Window::new(cx, hints), search: Search::default() }
    }
}

impl CongestionControl for Bic {
    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        let Self { window, search } = self;
        window.on_signal(cx, signal, |cwnd| search.cut(cwnd));
        if let Signal::Timeout { .. } = signal {
            // What the search knew is out of date: slow start up to ssthresh, then as before the first loss.
            *search = Search::default();
        }
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        let Self { window, search } = self;
        if sample.una_advanced && !cx.in_recovery && !cx.in_loss {
            search.note_ack(sample.acked_segments);
        }
        let rest = window.on_ack(cx, sample);
        if rest > 0 {
            let count = search.count(cx.now, window.cwnd());
            window.avoid_congestion(count, rest);
        }
    }

    fn control(&self) -> Control {
        self.window.control()
    }

    fn status(&self) -> Status {
        Status {
            phase: self.window.phase(),
            values: [
                ("last_max", self.search.last_max as f64),
                ("count", self.search.count as f64),
                ("per_ack", self.search.per_ack as f64 / (1u64 << PER_ACK_SHIFT) as f64),
                ("", 0.0),
            ],
        }
    }
}

/// The search for the window that the path holds. Windows are in segments.
#[derive(Debug)]
struct Search {
    /// The window at the last cut (less, by fast convergence); zero before the first.
    last_max: u64,
    /// Segments to be acknowledged per segment of growth, and what it was computed for.
    count: u64,
    count_cwnd: u64,
    count_time: Instant,
    /// Segments per ACK, in 1/16.
    per_ack: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self { last_max: 0, count: 0, count_cwnd: 0, count_time: Instant::ZERO, per_ack: PER_ACK_AT_START }
    }
}

impl Search {
    /// A moving average in whole sixteenths. It is rounded so that with one segment per ACK it comes down
    /// from 32 to 31 and stays there.
    fn note_ack(&mut self, segments: u64) {
        self.per_ack = self.per_ack + segments - (self.per_ack >> PER_ACK_SHIFT);
    }

    /// A reason to reduce: returns the new threshold.
    fn cut(&mut self, cwnd: u64) -> u64 {
        self.last_max = plateau(cwnd, self.last_max, BETA);
        if cwnd <= LOW_WINDOW { cwnd / 2 } else { cwnd * BETA / KEEP_ONE }
    }

    /// Segments to be acknowledged per segment of growth.
    fn count(&mut self, now: Instant, cwnd: u64) -> u64 {
        if self.count_cwnd != cwnd || now.saturating_since(self.count_time) > RECOMPUTE {
            self.count_cwnd = cwnd;
            self.count_time = now;
            self.count = self.count_at(cwnd);
        }
        self.count
    }

    fn count_at(&self, cwnd: u64) -> u64 {
        if cwnd <= LOW_WINDOW {
            return cwnd;
        }
        let at_the_plateau = cwnd * SMOOTH_PART / SEARCH_DIVISOR;
        let linear = cwnd / MAX_INCREMENT;
        let count = if let Some(distance) = self.last_max.checked_sub(cwnd).filter(|left| *left > 0) {
            match distance / SEARCH_DIVISOR {
                0 | 1 => at_the_plateau,
                step if step > MAX_INCREMENT => linear,
                step => cwnd / step,
            }
        } else {
            match cwnd - self.last_max {
                beyond if beyond < SEARCH_DIVISOR => at_the_plateau,
                beyond if beyond < MAX_INCREMENT * (SEARCH_DIVISOR - 1) => {
                    cwnd * (SEARCH_DIVISOR - 1) / beyond
                }
                _ => linear,
            }
        };
        let count = if self.last_max == 0 { count.min(MAX_COUNT_WITHOUT_LOSS) } else { count };
        ((count << PER_ACK_SHIFT) / self.per_ack.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests;
