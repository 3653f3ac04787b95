//! Climb: triples the window every round trip, until the ACKs show the rate of the bottleneck.
//!
//! A Linux client opens its receive window by two bytes for each byte received, in addition to the byte
//! itself, so that a faster growth would not be used. Random loss does not slow the growth down. A congestive
//! loss ends Climb.

use fullpipe_units::{Duration, Rate};

use super::settle::Settle;
use super::{Observation, State, queue_threshold, retreat, spread};
use crate::cc::Bbr1;

/// Segments by which the window grows for each segment delivered (Linux: `tcp_grow_window`).
pub(super) const GROWTH: u64 = 2;

/// The window may grow up to this multiple of the data in flight, so that a sender that does not use its
/// window does not enlarge it (RFC 7661).
const INFLIGHT_MULTIPLE: u64 = 3;

/// Share of a round trip in which a window is sent: 1/3. A flight that takes longer delays the last byte of a
/// download of a few flights: with 1/2, 640 kB take 2 % longer at RTTs of 100 ms and more.
const SPREAD: (u64, u64) = (1, 3);

/// Bound of the pacing rate in terms of the fastest train of ACKs so far. The ACKs of a flight arrive a round
/// trip later, so the rate exceeds that of the bottleneck for a round trip: at twice the rate, a queue of one
/// BDP fills up. With 3/2, a climb takes longer, so that the mean of 45 cells without loss is 0.7 % slower;
/// with 5/2, 0.4 % more segments are sent where the client's window is not the limit.
const FASTEST_MULTIPLE: u64 = 2;

/// Bound of the pacing rate in terms of a remembered bottleneck: 5/4. If the bottleneck is as it was, the ACKs show
/// a dispersion of 5/4, which ends Climb. If it has become faster, their rate exceeds the remembered one, which ends
/// the bound.
const REMEMBERED_MULTIPLE: (u64, u64) = (5, 4);

/// Queueing delay above which a dispersion of ACKs is due to the bottleneck, where an eighth of the RTT is
/// longer. 1 ms and 8 ms change the mean of 45 cells by less than 0.2 %.
const QUEUE: Duration = Duration::from_millis(4);

/// Number of segments lost in a round trip with which a strong dispersion shows the rate of the bottleneck,
/// although its queue is too short to delay packets.
const LOST_SEGMENTS: u64 = 3;

/// Handles an ACK. Returns the next state, if Climb is over.
pub(super) fn on_ack(path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
    let queued = path.path_rtt().is_some_and(|rtt| seen.queueing > queue_threshold(rtt).min(QUEUE));
    if let Some(train) = seen.train
        && ((queued && train.is_dispersed()) || (seen.lost >= LOST_SEGMENTS && train.is_strongly_dispersed()))
    {
        return Some(Settle::begin(train.rate, path, seen));
    }
    if seen.congestion {
        retreat::limit(path, seen);
        return Some(State::Retreat);
    }
    if !path.is_conserving() {
        grow(path, seen);
    }
    None
}

/// Returns the bound of the pacing rate from the rate of a remembered bottleneck, or `Rate::MAX` without one.
pub(super) fn bound(bottleneck: Rate) -> Rate {
    if bottleneck == Rate::MAX {
        return bottleneck;
    }
    bottleneck.mul_div(REMEMBERED_MULTIPLE.0, REMEMBERED_MULTIPLE.1)
}

/// Grows the window by the data that this ACK delivered, and raises the pacing rate with the window.
fn grow(path: &mut Bbr1, seen: &Observation<'_>) {
    let cx = seen.cx;
    let most = INFLIGHT_MULTIPLE * cx.max_inflight.div_ceil(cx.mss);
    let used = cx.cwnd_limited || seen.window < most;
    let grown = seen.window + if used { GROWTH * seen.sample.acked_segments } else { 0 };
    let window = grown.min(cx.rwnd.div_ceil(cx.mss)).max(seen.window).max(path.window());
    let of_window = spread(cx, window, SPREAD.0, SPREAD.1).unwrap_or(Rate::ZERO);
    // BBRv1 lowers the rate in Startup only when the first RTT replaces an assumed one.
    let shown = seen.shown.max(path.path_rate());
    let most = shown.mul_div(FASTEST_MULTIPLE, 1).min(seen.bound);
    let rate = of_window.min(most).max(seen.rate.min(path.rate()));
    path.set_control(window, rate);
}
