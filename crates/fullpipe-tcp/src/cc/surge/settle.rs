//! Settle: sends at the rate that the ACKs have shown until the path model has measured the bandwidth.
//!
//! The path model of BBRv1 measures the data delivered in a whole round trip, which shows the bandwidth only
//! once the pipe is full. Settle fills the pipe at the rate of the bottleneck, so that the queue does not
//! grow. If that rate was too high, the bandwidth stops growing, which ends BBRv1's Startup. If the rate was
//! too low, BBRv1's probes correct it.

use fullpipe_units::Rate;

use super::climb::GROWTH;
use super::{Observation, State};
use crate::cc::Bbr1;

/// Window as a multiple of the BDP: 3/2. The pacing rate fills the pipe, and the window only limits the
/// effect of an error in the rate.
const WINDOW: (u64, u64) = (3, 2);

/// Share of the rate that the measured bandwidth must reach to end Settle: 15/16. The rate of a train of 16
/// segments has an error of up to one segment. Shares of 3/4 and 63/64 change the mean download time over the
/// 45 cells of `surge.md` by less than 0.1 %.
const MEASURED: (u64, u64) = (15, 16);

/// Progress of Settle.
#[derive(Debug)]
pub(super) struct Settle {
    /// Rate of the train that ended Climb.
    rate: Rate,
}

impl Settle {
    /// Starts Settle at the `rate` of a train of ACKs. Returns the next state, which is Settle unless the
    /// path model has already measured the bandwidth.
    pub(super) fn begin(rate: Rate, path: &mut Bbr1, seen: &Observation<'_>) -> State {
        let settle = Self { rate };
        settle.on_ack(path, seen).unwrap_or(State::Settle(settle))
    }

    /// Handles an ACK. Returns the next state if Settle is over.
    pub(super) fn on_ack(&self, path: &mut Bbr1, seen: &Observation<'_>) -> Option<State> {
        if path.path_rate() >= self.rate.mul_div(MEASURED.0, MEASURED.1) {
            path.end_startup();
            return Some(State::Cruise);
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
