//! Climb: triples the window every round trip, until the ACKs show the rate of the bottleneck.
//!
//! A Linux client opens its receive window by two bytes for each byte received, in addition to the byte
//! itself, so that a faster growth would not be used. Random loss does not slow the growth down. A congestive
//! loss ends Climb.

use super::settle::Settle;
use super::{Observation, State, queue_threshold, spread};
use crate::cc::Bbr1;

/// Segments by which the window grows for each segment delivered (Linux: `tcp_grow_window`).
const GROWTH: u64 = 2;

/// The window may grow up to this multiple of the data in flight, so that a sender that does not use its
/// window does not enlarge it (RFC 7661).
const INFLIGHT_MULTIPLE: u64 = 3;

/// Share of a round trip in which a window is sent. Twice the mean rate lets the ACKs of a flight that was
/// shorter than half a round trip clock the next flight.
const SPREAD: (u64, u64) = (1, 2);

/// Number of segments lost in a round trip with which a strong dispersion shows the rate of the bottleneck,
/// although its queue is too short to delay packets.
const LOST_SEGMENTS: u64 = 3;

/// Number of times that Settle may return to Climb. Each return requires faster ACKs.
const RETURNS: u32 = 2;

/// Progress of Climb.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Climb {
    /// Number of returns from Settle.
    returns: u32,
}

impl Climb {
    /// Returns the state after a return from Settle, or `None` if there were too many.
    pub(super) fn again(self) -> Option<Self> {
        (self.returns < RETURNS).then_some(Self { returns: self.returns + 1 })
    }

    /// Handles an ACK. Returns the next state, if Climb is over.
    pub(super) fn on_ack(self, path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
        let queued = path.path_rtt().is_some_and(|rtt| seen.queueing > queue_threshold(rtt));
        if let Some(train) = seen.train
            && ((queued && train.is_dispersed())
                || (seen.lost >= LOST_SEGMENTS && train.is_strongly_dispersed()))
        {
            let mut settle = Settle::new(self, train.rate);
            return settle.on_ack(path, seen).or(Some(State::Settle(settle)));
        }
        if seen.congestion {
            return Some(State::Cruise);
        }
        if !path.is_conserving() {
            grow(path, seen);
        }
        None
    }
}

/// Grows the window by the data that this ACK delivered, and raises the pacing rate with the window.
fn grow(path: &mut Bbr1, seen: &Observation<'_>) {
    let cx = seen.cx;
    let most = INFLIGHT_MULTIPLE * cx.max_inflight.div_ceil(cx.mss);
    let used = cx.cwnd_limited || seen.window < most;
    let grown = seen.window + if used { GROWTH * seen.sample.acked_segments } else { 0 };
    let window = grown.min(cx.rwnd.div_ceil(cx.mss)).max(seen.window).max(path.window());
    let rate = spread(cx, window, SPREAD.0, SPREAD.1).map_or(path.rate(), |rate| rate.max(path.rate()));
    path.set_control(window, rate);
}
