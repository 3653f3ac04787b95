//! Retreat: continues after a congestive loss in the start, at about the rate that the ACKs show.
//!
//! BBRv1's Startup sends at 2.89 times the bandwidth until it has not grown for three round trips. After a
//! congestive loss, this would overflow the same queue again: the path carries little more than what it has
//! delivered. Retreat therefore probes like BBRv1's cruise, by a quarter, and BBRv1's rules decide when the pipe is
//! full. A dispersed train of ACKs shows the rate of the bottleneck as in [`climb`](super::climb).

use super::settle::Settle;
use super::{Observation, State};
use crate::cc::Bbr1;

/// Pacing rate in terms of the rate that the ACKs have shown: 5/4, as in BBRv1's probes.
const GAIN: (u64, u64) = (5, 4);

/// Handles an ACK. Returns the next state, if Retreat is over.
pub(super) fn on_ack(path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
    if let Some(train) = seen.train.filter(|train| train.is_dispersed()) {
        return Some(Settle::begin(train.rate, path, seen));
    }
    limit(path, seen);
    None
}

/// Limits the pacing rate to what the ACKs have shown. Before the first measurement, it stays as it is.
pub(super) fn limit(path: &mut Bbr1, seen: &Observation<'_>) {
    let shown = path.path_rate().max(seen.shown);
    if !shown.is_zero() {
        path.set_control(path.window(), path.rate().min(shown.mul_div(GAIN.0, GAIN.1)));
    }
}
