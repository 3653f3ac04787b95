//! Settle: sends at the rate that the ACKs showed, until the path model has measured the bandwidth.
//!
//! The path model of BBRv1 measures the data delivered in a whole round trip, which shows the bandwidth only
//! once the pipe is full. Settle fills the pipe at the rate of the bottleneck, so that the queue does not
//! grow. If later ACKs of the same flight are faster, the dispersion was a disturbance, and Climb goes on.

use fullpipe_units::Rate;

use super::climb::Climb;
use super::{Observation, State};
use crate::cc::Bbr1;

/// Window in terms of the BDP: 3/2. The pacing rate fills the pipe; the window only bounds an error of the rate.
const WINDOW: (u64, u64) = (3, 2);

/// Segments by which the window grows for each segment delivered, as in Climb.
const GROWTH: u64 = 2;

/// Share of the rate at which the measured bandwidth ends Settle: 15/16. Two percent of the rate are the
/// headers that the ACKs of the train and of the round trip both lack; the rest is the noise of the train.
const MEASURED: (u64, u64) = (15, 16);

/// Factor by which later ACKs are faster than the first train if that train was a disturbance: 5/4.
const FASTER: (u64, u64) = (5, 4);

/// Progress of Settle.
#[derive(Debug)]
pub(super) struct Settle {
    climb: Climb,
    /// Rate of the first train.
    first: Rate,
    /// Rate in use: that of the fastest train, within [`FASTER`] of the first.
    rate: Rate,
}

impl Settle {
    pub(super) fn new(climb: Climb, rate: Rate) -> Self {
        Self { climb, first: rate, rate }
    }

    /// Returns the rate in use.
    #[cfg(test)]
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Handles an ACK. Returns the next state, if Settle is over.
    pub(super) fn on_ack(&mut self, path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
        if path.path_rate() >= self.rate.mul_div(MEASURED.0, MEASURED.1) {
            path.end_startup();
            return Some(State::Cruise);
        }
        if let Some(train) = seen.train {
            let most = self.first.mul_div(FASTER.0, FASTER.1);
            if train.rate > most && !train.is_dispersed() && !seen.congestion {
                if let Some(climb) = self.climb.again() {
                    return Some(State::Climb(climb));
                }
            } else if train.is_dispersed() {
                self.rate = self.rate.max(train.rate.min(most));
            }
        }
        let rate = self.rate.min(path.rate());
        path.set_control(path.window(), rate);
        if !path.is_conserving() {
            let most = path.window_for(self.rate, WINDOW.0, WINDOW.1);
            let grown = seen.window + GROWTH * seen.sample.acked_segments;
            path.set_control(grown.min(most).max(1), rate);
        }
        None
    }
}
