//! Climb: triples the window every round trip until the ACKs show the rate of the bottleneck.
//!
//! A Linux client moves the right edge of its receive window by three bytes for each byte received. The connection
//! could not use faster growth. Random loss does not slow down the growth. A congestive loss ends Climb.

use fullpipe_units::{Duration, Rate};

use super::settle::Settle;
use super::{Observation, State, queue_threshold, retreat, spread};
use crate::cc::Bbr1;

/// Number of segments by which the window grows for each segment delivered (Linux: `tcp_grow_window`).
pub(super) const GROWTH: u64 = 2;

/// Upper bound of the window as a multiple of the data in flight. A sender that does not use its window must not
/// enlarge it (RFC 7661).
const INFLIGHT_MULTIPLE: u64 = 3;

/// Share of a round trip over which Climb spreads a window: 1/3. A flight that takes longer delays the last byte of a
/// download that consists of few flights. With 1/2, 640 kB take 2 % longer at RTTs of 100 ms and more.
const SPREAD: (u64, u64) = (1, 3);

/// Bound of the pacing rate as a multiple of the highest rate of an ACK train so far. The ACKs of a flight arrive a
/// round trip later, so the pacing rate exceeds the rate of the bottleneck for a round trip. At twice the rate, the
/// excess fills a queue of one BDP. With 3/2, Climb takes longer, and the mean download time over the 45 cells of
/// `surge.md` is 0.7 % longer. With 5/2, the sender sends 0.4 % more segments if the client's window does not limit it.
const FASTEST_MULTIPLE: u64 = 2;

/// Bound of the pacing rate as a multiple of a remembered bottleneck rate: 5/4. If the bottleneck has not changed, the
/// ACKs show a dispersion of 5/4, which ends Climb. If the bottleneck has become faster, the rate of the ACKs exceeds
/// the remembered rate, which lifts the bound.
const REMEMBERED_MULTIPLE: (u64, u64) = (5, 4);

/// Upper limit of the queueing delay above which a dispersion of ACKs is attributed to the bottleneck. On short paths,
/// an eighth of the RTT is used instead. With 1 ms or 8 ms, the mean download time over the 45 cells of `surge.md`
/// changes by less than 0.2 %.
const QUEUE: Duration = Duration::from_millis(4);

/// Minimum number of segments lost in a round trip for a strong dispersion to show the rate of the bottleneck, even if
/// the queue is too short to delay packets.
const LOST_SEGMENTS: u64 = 3;

/// Handles an ACK. Returns the next state if Climb is over.
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

/// Returns the bound of the pacing rate that follows from the rate of a remembered bottleneck, or `Rate::MAX` if no
/// bottleneck is known.
pub(super) fn bound(bottleneck: Rate) -> Rate {
    if bottleneck == Rate::MAX {
        return bottleneck;
    }
    bottleneck.mul_div(REMEMBERED_MULTIPLE.0, REMEMBERED_MULTIPLE.1)
}

/// Grows the window with the data that this ACK delivered, and raises the pacing rate accordingly.
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
