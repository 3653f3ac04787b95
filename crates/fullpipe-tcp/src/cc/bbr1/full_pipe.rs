//! Detection of a full pipe, which ends Startup when the bandwidth has stopped growing.
//!
//! While the pipe has room, Startup doubles the delivery rate every round trip. If the bandwidth grows by
//! less than a quarter in each of three rounds, the pipe is full. Three rounds are needed: in the first
//! round, the receiver enlarges its window; in the second, the sender fills that window; in the third, the
//! higher rate appears in the measurements.

use fullpipe_units::Rate;

/// Smallest factor that counts as bandwidth growth: 5/4.
const GROWTH_NUM: u64 = 5;
const GROWTH_DEN: u64 = 4;

/// Number of consecutive rounds without growth after which the pipe is considered full.
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

    /// Ends the detection, because the pipe is known to be full.
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

    /// Restarts the detection of bandwidth growth. A pipe that was found full is still considered full.
    pub(super) fn forget_growth(&mut self) {
        self.bw = Rate::ZERO;
        self.rounds = 0;
    }
}
