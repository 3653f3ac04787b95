//! Launch: the first flight, and the round trip in which the peer acknowledges it.
//!
//! The window and the rate of the flight come from [`Launch`](crate::cc::Launch). While the ACKs of the
//! flight arrive, the window grows as in [`climb`](super::climb).

use super::{Observation, State, climb};
use crate::cc::{Bbr1, Context};

/// Progress of the first flight.
#[derive(Debug)]
pub(super) struct FirstFlight {
    /// Number of bytes delivered or lost at which the flight is over.
    end: u64,
}

impl FirstFlight {
    pub(super) fn new(cx: &Context, window: u64) -> Self {
        Self { end: cx.delivered + cx.lost + window * cx.mss }
    }

    /// Handles an ACK. Returns the next state if the flight is over.
    pub(super) fn on_ack(&self, path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
        let next = climb::on_ack(path, seen);
        let over = seen.cx.delivered + seen.cx.lost >= self.end;
        next.or_else(|| over.then_some(State::Climb))
    }
}
