//! Retreat: continues the start after a congestive loss, at about the rate that the ACKs show.
//!
//! BBRv1's Startup sends at 2.89 times the bandwidth until the bandwidth has not grown for three round trips. After a
//! congestive loss, this would overflow the same queue again, because the path carries little more than it has
//! delivered. Retreat therefore probes only a quarter above the bandwidth, like BBRv1's cruise, and the rules of BBRv1
//! decide when the pipe is full. A dispersed train of ACKs shows the rate of the bottleneck as in
//! [`climb`](super::climb).

use super::settle::Settle;
use super::{Observation, State};
use crate::cc::Bbr1;

/// Pacing gain: 5/4 of the rate that the ACKs have shown, as in BBRv1's probes.
const GAIN: (u64, u64) = (5, 4);

/// Handles an ACK. Returns the next state if Retreat is over.
pub(super) fn on_ack(path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
    if let Some(train) = seen.train.filter(|train| train.is_dispersed()) {
        return Some(Settle::begin(train.rate, path, seen));
    }
    limit(path, seen);
    None
}

/// Limits the pacing rate to 5/4 of the rate that the ACKs have shown. Before the first measurement, the rate does not
/// change.
pub(super) fn limit(path: &mut Bbr1, seen: &Observation<'_>) {
    let shown = path.path_rate().max(seen.shown);
    if !shown.is_zero() {
        path.set_control(path.window(), path.rate().min(shown.mul_div(GAIN.0, GAIN.1)));
    }
}
