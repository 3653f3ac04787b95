//! When ProbeBW probes, and how fast it raises the long-term bound (5.3.3.8, 5.3.3.9).

use fullpipe_units::{Duration, Instant};

use super::constants::*;
use crate::cc::Context;

/// What the ACKs that come in now say of a probe (`BBR.ack_phase`). They run a round trip behind the sending.
///
/// ```text
///   sending   DOWN, CRUISE │ REFILL │ UP                     │ DOWN
///   ACKs of   ... Init     │ Refill │ Starting │ Feedback    │ Stopping │ Init
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// Nothing that was sent while probing.
    #[default]
    Init,
    /// The pipe being filled before a probe.
    Refilling,
    /// Still what was sent before the probe.
    ProbeStarting,
    /// What the probe sent.
    ProbeFeedback,
    /// What the probe sent, after it ended.
    ProbeStopping,
}

/// The clock of probes, and the present one.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) ack_phase: AckPhase,
    /// `BBR.is_bw_probe_sample`: losses may be the probe's, and it has not reacted to any yet.
    pub(super) is_sample: bool,
    /// `BBR.prev_probe_too_high`: the last probe lost too much.
    pub(super) prev_too_high: bool,
    /// `BBR.prev_probe_precautionary`: the last one stopped where the one before had lost too much.
    pub(super) prev_precautionary: bool,
    /// `BBR.rounds_since_probe_up`, from zero or one.
    pub(super) rounds_since_up: u64,
    /// `BBR.bw_probe_wait`, counted from `cycle_stamp`.
    pub(super) wait: Duration,
    pub(super) cycle_stamp: Instant,
    /// `BBR.probe_up_acked_per_inc` and `BBR.bw_probe_up_acked` in bytes: what must be acknowledged for one more
    /// segment, and what has been.
    acked_per_inc: u64,
    acked: u64,
    up_rounds: u32,
    /// How many random numbers were used.
    draws: u64,
}

impl Probe {
    /// `PickProbeWait()` and the rest of the way to DOWN. Chance keeps flows that began together from probing
    /// together.
    pub(super) fn start_down(&mut self, cx: &Context) {
        let draw = cx.rng.at(self.draws);
        self.draws += 1;
        self.rounds_since_up = draw & 1;
        self.wait = PROBE_WAIT + PROBE_WAIT_SPREAD.mul_div(draw >> 32, 1 << 32);
        self.cycle_stamp = cx.now;
        self.acked_per_inc = u64::MAX;
        self.ack_phase = AckPhase::ProbeStopping;
    }

    pub(super) fn start_refill(&mut self) {
        self.up_rounds = 0;
        self.acked = 0;
        self.prev_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
    }

    pub(super) fn start_up(&mut self, cwnd: u64, mss: u64) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.raise_slope(cwnd, mss);
    }

    /// `ProbeInflightLongtermUpward()`: by how many segments the bound grows with so much acknowledged: one in the
    /// first round, twice as many in each that follows, spread over the round.
    pub(super) fn growth(&mut self, newly_acked: u64, round_start: bool, cwnd: u64, mss: u64) -> u64 {
        self.acked += newly_acked;
        let segments = self.acked / self.acked_per_inc;
        self.acked -= segments * self.acked_per_inc;
        if round_start {
            self.raise_slope(cwnd, mss);
        }
        segments
    }

    /// `RaiseInflightLongtermSlope()`.
    fn raise_slope(&mut self, cwnd: u64, mss: u64) {
        self.acked_per_inc = (cwnd >> self.up_rounds).max(mss);
        self.up_rounds = (self.up_rounds + 1).min(MAX_UP_ROUNDS);
    }
}
