//! Detection of a full pipe: Startup ends when the bandwidth has stopped growing.
//!
//! While the pipe has room, Startup doubles the delivery rate every round trip. Three rounds that each grow
//! by less than a quarter mean that the pipe is full: one round for the receiver's window to follow, one for
//! the congestion window to grow into it, and one for the higher rate to appear in the measurements.

use fullpipe_units::Rate;

/// Smallest factor that counts as bandwidth growth: 5/4.
const GROWTH_NUM: u64 = 5;
const GROWTH_DEN: u64 = 4;

/// Number of consecutive rounds without growth after which the pipe counts as full.
const ROUNDS: u32 = 3;

/// Detector of a full pipe: tracks bandwidth growth during Startup.
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    /// Bandwidth estimate when growth was last detected.
    bw: Rate,
    rounds: u32,
    reached: bool,
}

impl FullPipe {
    pub(super) fn is_reached(&self) -> bool {
        self.reached
    }

    /// Ends the detection: the pipe is known to be full.
    pub(super) fn declare(&mut self) {
        self.reached = true;
    }

    /// Records the bandwidth at the end of a round that was not application-limited.
    pub(super) fn update(&mut self, bw: Rate) {
        if self.reached {
            return;
        }
        if bw >= self.bw.mul_div(GROWTH_NUM, GROWTH_DEN) {
            self.bw = bw;
            self.rounds = 0;
            return;
        }
        self.rounds += 1;
        self.reached = self.rounds >= ROUNDS;
    }

    /// Restarts the detection of bandwidth growth. A pipe that was found full still counts as full.
    pub(super) fn forget_growth(&mut self) {
        self.bw = Rate::ZERO;
        self.rounds = 0;
    }
}
