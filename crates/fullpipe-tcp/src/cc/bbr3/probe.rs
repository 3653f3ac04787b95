//! Schedule of the ProbeBW bandwidth probes, and growth of the long-term bound (draft sections 5.3.3.8 and
//! 5.3.3.9).

use fullpipe_units::{Duration, Instant};

use super::constants::*;
use crate::cc::Context;

/// Probe phase in which the newly acknowledged segments were sent (`BBR.ack_phase`). The ACK phase follows
/// the sending phase one round trip later.
///
/// ```text
///   sending   DOWN, CRUISE │ REFILL │ UP                     │ DOWN
///   ACKs of   ... Init     │ Refill │ Starting │ Feedback    │ Stopping │ Init
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// ACKs of segments sent outside a probe.
    #[default]
    Init,
    /// ACKs of segments that fill the pipe before a probe.
    Refilling,
    /// ACKs received during a probe for segments sent before the probe.
    ProbeStarting,
    /// ACKs received during a probe for segments sent by the probe.
    ProbeFeedback,
    /// ACKs received after the end of a probe for segments sent by the probe.
    ProbeStopping,
}

/// Schedule of the bandwidth probes, and state of the current probe.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) ack_phase: AckPhase,
    /// `BBR.is_bw_probe_sample`: whether the probe may have caused a loss to which BBR has not reacted yet.
    pub(super) is_sample: bool,
    /// `BBR.prev_probe_too_high`: whether the previous probe caused too much loss.
    pub(super) prev_too_high: bool,
    /// `BBR.prev_probe_precautionary`: whether the previous probe stopped at the bound, because the probe
    /// before it had caused too much loss.
    pub(super) prev_precautionary: bool,
    /// `BBR.rounds_since_probe_up`: number of rounds since the last probe; the count starts at a random value
    /// of zero or one.
    pub(super) rounds_since_up: u64,
    /// `BBR.bw_probe_wait`: time until the next probe, counted from `cycle_stamp`.
    pub(super) wait: Duration,
    pub(super) cycle_stamp: Instant,
    /// `BBR.probe_up_acked_per_inc` and `BBR.bw_probe_up_acked`, in bytes: the ACKed amount per segment of
    /// growth, and the amount ACKed so far.
    acked_per_inc: u64,
    acked: u64,
    up_rounds: u32,
    /// Number of random numbers drawn so far.
    draws: u64,
}

impl Probe {
    /// Enters DOWN, and implements `PickProbeWait()`. The wait is random, so that flows that start at the
    /// same time do not probe at the same time.
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

    /// Implements `ProbeInflightLongtermUpward()`: returns the growth of the long-term bound in segments. The
    /// bound grows by one segment in the first round, and twice as fast in each following round. The growth
    /// is spread evenly over the round.
    pub(super) fn growth(&mut self, newly_acked: u64, round_start: bool, cwnd: u64, mss: u64) -> u64 {
        self.acked += newly_acked;
        let segments = self.acked / self.acked_per_inc;
        self.acked -= segments * self.acked_per_inc;
        if round_start {
            self.raise_slope(cwnd, mss);
        }
        segments
    }

    /// Implements `RaiseInflightLongtermSlope()` of the BBR draft.
    fn raise_slope(&mut self, cwnd: u64, mss: u64) {
        self.acked_per_inc = (cwnd >> self.up_rounds).max(mss);
        self.up_rounds = (self.up_rounds + 1).min(MAX_UP_ROUNDS);
    }
}
