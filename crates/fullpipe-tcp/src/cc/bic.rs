//! BIC (binary increase congestion control; Xu, Harfoush and Rhee, INFOCOM 2004) in the integer arithmetic of
//! Linux.
//!
//! After a loss at the window `last_max`, the best window lies between the reduced window and `last_max`. BIC
//! covers a fixed fraction of that distance per round trip instead of growing linearly. On a long path, the
//! window therefore reaches its earlier size after a number of round trips proportional to the logarithm of
//! the reduction:
//!
//! ```text
//!   cwnd                                      ╱ linear, 16 per round trip
//!                                           ╱
//!                                    ╭────╯   away from the plateau: slowly at first
//!   last_max ─ ─ ─ ─ ─ ─ ─ ─ ╭──────╯
//!                      ╭─────╯       at the plateau: one segment per five windows
//!                   ╭──╯             a quarter of the distance per round trip
//!                  ╱                 linear, 16 per round trip: more would be a burst
//!   0.8 last_max  ╱
//! ```
//!
//! Growth is expressed as `count`, the number of ACKed segments per segment of growth, as in BIC's successor
//! CUBIC. Up to 14 segments, BIC behaves like Reno. The growth per round trip does not depend on the RTT, so
//! flows with a short RTT get a larger share.
//!
//! As in Linux, a reduction is computed from the congestion window, not from the bytes in flight. Linux also
//! divides `count` by the segments per ACK, a rule from the time when windows grew per ACK. Windows now grow
//! per segment, so the division doubles the growth wherever an ACK covers two segments. This engine keeps the
//! rule, because real hosts have it.

use fullpipe_units::Instant;

use super::window::{KEEP_ONE, RECOMPUTE, Window, plateau};
use super::{AckSample, CongestionControl, Context, Control, Hints, Signal, Status};

/// Share of the window that remains after a reduction, in units of 1/1024: 0.79980, which approximates 0.8
/// (Linux `beta`; in the paper, 7/8 remain).
const BETA: u64 = 819;

/// Largest window, in segments, at which BIC grows and halves like Reno (`low_window`).
const LOW_WINDOW: u64 = 14;

/// Largest growth per round trip, in segments (`max_increment`; the paper's Smax is 32).
const MAX_INCREMENT: u64 = 16;

/// Divisor of the distance to `last_max` that one round trip covers: a quarter (the `B` of the search).
const SEARCH_DIVISOR: u64 = 4;

/// Number of quarter windows that must be ACKed at the plateau for one segment of growth (`smooth_part`).
/// Twenty quarters are five windows.
const SMOOTH_PART: u64 = 20;

/// Largest `count` before the first loss. Growth is then at least 5 % per round trip, because nothing
/// indicates that the plateau is near.
const MAX_COUNT_WITHOUT_LOSS: u64 = 20;

/// Number of fractional bits in the estimate of segments per ACK, a moving average with a gain of 1/16.
const PER_ACK_SHIFT: u32 = 4;

/// Estimate of segments per ACK before the first ACK: two.
const PER_ACK_AT_START: u64 = 2 << PER_ACK_SHIFT;

/// BIC state of one connection.
#[derive(Debug)]
pub struct Bic {
    window: Window,
    search: Search,
}

impl Bic {
    /// Returns a controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        Self { window: Window::new(cx, hints), search: Search::default() }
    }
}

impl CongestionControl for Bic {
    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        let Self { window, search } = self;
        window.on_signal(cx, signal, |cwnd| search.cut(cwnd));
        if let Signal::Timeout { .. } = signal {
            // The search is out of date. Slow start runs up to ssthresh, and then the window grows as before
            // the first loss.
            *search = Search::default();
        }
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        let Self { window, search } = self;
        // As in Linux, ACKs during disorder and recovery do not count. Neither does the ACK that ends a
        // recovery, because it covers the segments that waited for the hole.
        if sample.una_advanced && sample.was_open {
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

/// Search for the window that fills the path, with windows in segments.
#[derive(Debug)]
struct Search {
    /// Window at the last reduction, or less with fast convergence; zero before the first reduction.
    last_max: u64,
    /// Number of ACKed segments per segment of growth, with the window and time for which it was computed.
    count: u64,
    count_cwnd: u64,
    count_time: Instant,
    /// Estimated number of segments per ACK, in units of 1/16.
    per_ack: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self { last_max: 0, count: 0, count_cwnd: 0, count_time: Instant::ZERO, per_ack: PER_ACK_AT_START }
    }
}

impl Search {
    /// Updates the moving average of segments per ACK, in whole sixteenths. Because of the rounding, an
    /// average that starts at 32 stops at 31 instead of 16 if every ACK covers one segment.
    fn note_ack(&mut self, segments: u64) {
        self.per_ack = self.per_ack + segments - (self.per_ack >> PER_ACK_SHIFT);
    }

    /// Reduces the window on congestion, and returns the new ssthresh.
    fn cut(&mut self, cwnd: u64) -> u64 {
        self.last_max = plateau(cwnd, self.last_max, BETA);
        if cwnd <= LOW_WINDOW { cwnd / 2 } else { cwnd * BETA / KEEP_ONE }
    }

    /// Returns the number of ACKed segments per segment of growth.
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
