//! How far ACKs run ahead of the bandwidth.
//!
//! Wireless links, cable modems and merging receivers hold ACKs back and send them in lumps. Between
//! two lumps the sender needs as much more in flight as the next lump will carry beyond what the
//! bandwidth explains; without it, transmission stops in every gap.
//!
//! ```text
//!   acked                    ┌────   lump
//!     │              ┌───────┘ ▲
//!     │      ┌───────┘   ╱     │ extra_acked = acked - bw x time
//!     │──────┘    ╱  ▼         ▼
//!     └────╱──────────────────── time since ACKs were last no faster than `bw`
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use crate::cc::gain::amount;
use crate::cc::{AckSample, Context};

/// The maximum is over the present and the previous window of so many rounds.
const WINDOW_ROUNDS: u64 = 5;

/// An epoch ends after so many segments at the latest, so that it follows the bandwidth.
const EPOCH_SEGMENTS: u64 = 1 << 20;

/// No more than the bandwidth makes up for in this time: longer gaps are outages, not lumps.
const MAX_EXTRA_TIME: Duration = Duration::from_millis(100);

/// Measures the lumps of one connection. Amounts are in segments.
#[derive(Debug)]
pub(super) struct Aggregation {
    epoch_start: Instant,
    epoch_acked: u64,
    /// The largest excess of two windows, of which `present` is being filled.
    excess: [u64; 2],
    present: usize,
    rounds: u64,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self { epoch_start: now, epoch_acked: 0, excess: [0; 2], present: 0, rounds: 0 }
    }

    /// Time without transmission is not time between lumps.
    pub(super) fn restart(&mut self, now: Instant) {
        self.epoch_start = now;
        self.epoch_acked = 0;
    }

    pub(super) fn update(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        bw: Rate,
        round_start: bool,
        cwnd: u64,
    ) {
        if sample.acked_segments == 0 || sample.interval.is_none_or(Duration::is_zero) {
            return;
        }
        if round_start {
            self.rounds += 1;
            if self.rounds >= WINDOW_ROUNDS {
                self.rounds = 0;
                self.present ^= 1;
                self.excess[self.present] = 0;
            }
        }
        let elapsed = cx.delivered_time.saturating_since(self.epoch_start);
        let mut expected = amount(bw, elapsed) / cx.mss;
        if self.epoch_acked <= expected || self.epoch_acked + sample.acked_segments >= EPOCH_SEGMENTS {
            self.restart(cx.delivered_time);
            expected = 0;
        }
        self.epoch_acked += sample.acked_segments;
        // More than a window at once is not a property of the path.
        let excess = self.epoch_acked.saturating_sub(expected).min(cwnd);
        let present = &mut self.excess[self.present];
        *present = excess.max(*present);
    }

    /// What the window needs on top.
    pub(super) fn extra(&self, bw: Rate, mss: u64) -> u64 {
        let [one, other] = self.excess;
        one.max(other).min(amount(bw, MAX_EXTRA_TIME) / mss)
    }
}
