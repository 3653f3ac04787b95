//! ACK aggregation: the amount by which ACKs run ahead of the estimated bandwidth.
//!
//! Wireless links, cable modems and GRO receivers hold ACKs back and send them in bursts. To continue to send
//! between two bursts, the sender needs additional data in flight: as much as the next burst will acknowledge
//! beyond `bw x time`. Without that data, transmission stops after every burst.
//!
//! ```text
//!   acked                    ┌────   burst
//!     │              ┌───────┘ ▲
//!     │      ┌───────┘   ╱     │ extra_acked = acked - bw x time
//!     │──────┘    ╱  ▼         ▼
//!     └────╱──────────────────── time since ACKs were last no faster than `bw`
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use crate::cc::gain::amount;
use crate::cc::{AckSample, Context};

/// Length of one filter window in rounds; the filter takes the maximum over the current and the previous
/// window.
const WINDOW_ROUNDS: u64 = 5;

/// Maximum length of an aggregation epoch, in ACKed segments. The limit lets the estimate follow bandwidth
/// changes.
const EPOCH_SEGMENTS: u64 = 1 << 20;

/// Upper limit of the excess of ACKed data, expressed as its transmission time at the estimated bandwidth. A
/// longer gap between ACKs is an outage, not aggregation.
const MAX_EXTRA_TIME: Duration = Duration::from_millis(100);

/// ACK aggregation filter of one connection, in segments.
#[derive(Debug)]
pub(super) struct Aggregation {
    epoch_start: Instant,
    epoch_acked: u64,
    /// Largest excess of ACKed data in each of the two filter windows; `present` is the index of the current
    /// window.
    excess: [u64; 2],
    present: usize,
    rounds: u64,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self { epoch_start: now, epoch_acked: 0, excess: [0; 2], present: 0, rounds: 0 }
    }

    /// Starts a new aggregation epoch after an idle period, because a gap in transmission is not a gap
    /// between two bursts of ACKs.
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
        // Limit the excess to the congestion window, because a larger excess is not a property of the path.
        let excess = self.epoch_acked.saturating_sub(expected).min(cwnd);
        let present = &mut self.excess[self.present];
        *present = excess.max(*present);
    }

    /// Returns the number of segments to add to the congestion window to cover ACK aggregation.
    pub(super) fn extra(&self, bw: Rate, mss: u64) -> u64 {
        let [one, other] = self.excess;
        one.max(other).min(amount(bw, MAX_EXTRA_TIME) / mss)
    }
}
