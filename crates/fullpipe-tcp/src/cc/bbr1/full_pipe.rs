//! Has the bandwidth stopped growing? Then the pipe is full, and Startup is over.
//!
//! As long as the pipe has room, Startup doubles the delivery rate every round trip. Three rounds
//! without even a quarter more mean that there is no room: one for the receiver's window to follow,
//! one for the window to grow into it, one for the higher rate to show.

use fullpipe_units::Rate;

/// Less than a quarter more is no growth.
const GROWTH_NUM: u64 = 5;
const GROWTH_DEN: u64 = 4;

/// Rounds without growth until the pipe counts as full.
const ROUNDS: u32 = 3;

/// The watch on the bandwidth during Startup.
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    /// The bandwidth when it last grew.
    bw: Rate,
    rounds: u32,
    reached: bool,
}

impl FullPipe {
    pub(super) fn is_reached(&self) -> bool {
        self.reached
    }

    /// A round ended in which the application was not the limit.
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

    /// Whether it grew is to be judged anew. A pipe that was full stays full.
    pub(super) fn forget_growth(&mut self) {
        self.bw = Rate::ZERO;
        self.rounds = 0;
    }
}
