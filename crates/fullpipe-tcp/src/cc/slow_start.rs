//! Early exit from slow start: HyStart (Ha and Rhee, 2011) as in Linux. The module [`plus_plus`] contains
//! HyStart++.
//!
//! Without an early exit, slow start ends only after it has overflowed the queue by up to a full window. Two
//! signs show earlier that the window has reached the capacity of the path, and HyStart looks for both once
//! per round trip:
//!
//! ```text
//!   delay   after 8 samples of the round its minimum RTT still exceeds
//!           min_rtt + clamp(min_rtt / 8, 4 ms, 16 ms): a queue is building up
//!   train   ACKs at most 2 ms apart, which together span the path's RTT: the segments of one
//!           round, sent back to back, fill the path from end to end
//! ```
//!
//! Either sign sets `ssthresh = cwnd` at once. If the host does not pace, HyStart compares the length of a
//! train with *half* the minimum RTT, because the forward path and the return path each account for half of
//! the RTT. A paced sender itself spreads a round over up to half a round trip, so in this case the threshold
//! is the whole RTT. The host is considered to pace after its pacer has held back a segment, or if it paces
//! the first flight ([`super::Launch`]).

use fullpipe_units::{Duration, Instant};

use self::plus_plus::HyStartPlusPlus;
use super::window::Window;
use super::{AckSample, Context, SlowStart};

mod plus_plus;

/// Smallest window, in segments, at which HyStart looks for a sign. With a smaller window, a round has too
/// few ACKs.
const LOW_WINDOW: u64 = 16;

/// Number of RTT samples in a round that HyStart requires before it uses their minimum.
const MIN_SAMPLES: u32 = 8;

/// Largest gap between two ACKs of a train.
const ACK_SPACING: Duration = Duration::from_millis(2);

/// Bounds of the RTT growth that HyStart takes as a sign. Growth below the lower bound is timer and
/// scheduling noise. With a larger upper bound, HyStart would leave the queue of a long path full for too
/// long.
const DELAY_MIN: Duration = Duration::from_millis(4);
const DELAY_MAX: Duration = Duration::from_millis(16);

/// Upper limit of the time by which super-segments delay ACKs, and the number of bytes from which that delay
/// is computed. Segments leave the host in bursts of up to 64 KiB, and a few bursts wait in the queue of the
/// host.
const LUMP_DELAY_MAX: Duration = Duration::from_millis(1);
const LUMP_BYTES: u64 = 4 * 65_536;

/// Early-exit rule of slow start on one connection.
#[derive(Debug)]
pub(super) enum Watch {
    /// No early exit: slow start ends with a loss.
    Nothing,
    /// HyStart.
    HyStart(HyStart),
    /// HyStart++.
    PlusPlus(HyStartPlusPlus),
}

impl Watch {
    /// Returns the rule `kind` for a new connection. `host_paces` indicates whether the host paces the first
    /// flight.
    pub(super) fn new(cx: &Context, kind: SlowStart, host_paces: bool) -> Self {
        match kind {
            SlowStart::Standard => Self::Nothing,
            SlowStart::HyStart => Self::HyStart(HyStart { host_paces, ..HyStart::new(cx) }),
            SlowStart::HyStartPlusPlus => Self::PlusPlus(HyStartPlusPlus::new(cx)),
        }
    }

    /// Handles an ACK before the window grows, and returns the number of segments by which slow start may
    /// grow the window. `min_rtt` is the minimum RTT, or `None` if this ACK's sample is not used.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        min_rtt: Option<Duration>,
        window: &mut Window,
    ) -> u64 {
        match self {
            Self::Nothing => {}
            Self::HyStart(hystart) => {
                if let (Some(rtt), Some(min_rtt)) = (sample.rtt, min_rtt) {
                    hystart.on_rtt(cx, rtt, min_rtt, window);
                }
            }
            Self::PlusPlus(plus_plus) => return plus_plus.on_ack(cx, sample, window),
        }
        sample.acked_segments
    }

    /// Restarts HyStart after a timeout, for the slow start that follows.
    pub(super) fn restart(&mut self, cx: &Context) {
        if let Self::HyStart(hystart) = self {
            hystart.restart(cx);
        }
    }

    /// Returns the name of the phase, for traces.
    pub(super) fn phase(&self, window: &Window) -> &'static str {
        match self {
            Self::PlusPlus(watch) if watch.is_conservative() && window.in_first_slow_start() => {
                "conservative_slow_start"
            }
            _ => window.phase(),
        }
    }
}

/// HyStart state of one connection.
#[derive(Debug)]
pub(super) struct HyStart {
    /// Whether HyStart has found a sign, which ends the search.
    found: bool,
    round_start: Instant,
    /// Offset beyond which an acknowledgement ends the round.
    round_end: u64,
    last_ack: Instant,
    lowest_rtt: Duration,
    samples: u32,
    host_paces: bool,
}

impl HyStart {
    fn new(cx: &Context) -> Self {
        let mut this = Self {
            found: false,
            round_start: cx.now,
            round_end: cx.snd_nxt,
            last_ack: cx.now,
            lowest_rtt: Duration::MAX,
            samples: 0,
            host_paces: false,
        };
        this.begin_round(cx);
        this
    }

    /// Restarts the search after a timeout, for the slow start that follows.
    fn restart(&mut self, cx: &Context) {
        self.found = false;
        self.begin_round(cx);
    }

    fn begin_round(&mut self, cx: &Context) {
        self.round_start = cx.now;
        self.last_ack = cx.now;
        self.round_end = cx.snd_nxt;
        self.lowest_rtt = Duration::MAX;
        self.samples = 0;
    }

    /// Handles one RTT sample, and ends slow start if it finds a sign. `min_rtt` is the minimum RTT,
    /// including this sample.
    fn on_rtt(&mut self, cx: &Context, rtt: Duration, min_rtt: Duration, window: &mut Window) {
        if self.found || !window.in_slow_start() {
            return;
        }
        // Count rounds even while the window is below `LOW_WINDOW` (Linux: `hystart_update`). Otherwise the
        // first round to be evaluated would begin in the middle of a burst, and its train would look short.
        if cx.snd_una > self.round_end {
            self.begin_round(cx);
        }
        if window.cwnd() < LOW_WINDOW {
            return;
        }
        self.host_paces |= cx.next_departure > cx.now && !cx.next_departure.is_never();
        if self.sees_train(cx, min_rtt, window) || self.sees_delay(rtt, min_rtt) {
            self.found = true;
            window.leave_slow_start();
        }
    }

    fn sees_train(&mut self, cx: &Context, min_rtt: Duration, window: &Window) -> bool {
        // Several ACKs that arrive at one instant also form a train, with a spacing of zero.
        if cx.now.saturating_since(self.last_ack) > ACK_SPACING {
            return false;
        }
        self.last_ack = cx.now;
        let span = min_rtt + lump_delay(cx, window);
        let threshold = if self.host_paces { span } else { span / 2 };
        cx.now.saturating_since(self.round_start) > threshold
    }

    fn sees_delay(&mut self, rtt: Duration, min_rtt: Duration) -> bool {
        self.lowest_rtt = self.lowest_rtt.min(rtt);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        self.lowest_rtt > min_rtt + delay_threshold(min_rtt)
    }
}

/// Returns the amount by which the RTT of a round must exceed `min_rtt`.
fn delay_threshold(min_rtt: Duration) -> Duration {
    (min_rtt / 8).clamp(DELAY_MIN, DELAY_MAX)
}

/// Returns the time that [`LUMP_BYTES`] take at the pacing rate, which is a percentage of `cwnd / srtt`.
fn lump_delay(cx: &Context, window: &Window) -> Duration {
    let Some(srtt) = cx.srtt else {
        return Duration::ZERO;
    };
    let bytes_per_srtt = window.cwnd().saturating_mul(cx.mss).saturating_mul(window.pacing_percent()) / 100;
    (srtt * LUMP_BYTES / bytes_per_srtt.max(1)).min(LUMP_DELAY_MAX)
}

#[cfg(test)]
mod tests;
