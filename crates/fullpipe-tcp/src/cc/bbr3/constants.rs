//! Every constant of BBRv3, with the draft's name and section (draft-ietf-ccwg-bbr, source of 3 August 2026).

use fullpipe_units::Duration;

use crate::cc::gain;

/// Gains are decimal fractions, to four places.
pub(super) type Gain = gain::Gain<10_000>;

/// `BBR.StartupPacingGain` (2.4): 4 ln 2, the least with which a sender whose window is twice the BDP doubles its
/// rate every round trip.
pub(super) const STARTUP_PACING_GAIN: Gain = Gain::of(27_726, 10_000, 0);

/// `BBR.DrainPacingGain` (2.4): what one round trip of Startup queued is gone after one of Drain.
pub(super) const DRAIN_PACING_GAIN: Gain = Gain::of(1, 2, 0);

/// Pacing in ProbeBW_DOWN (5.3.3.1): the least with which flows that probe with 1.25 converge to equal shares.
pub(super) const DOWN_PACING_GAIN: Gain = Gain::of(9, 10, 0);

/// Pacing in ProbeBW_UP (5.3.3.4).
pub(super) const UP_PACING_GAIN: Gain = Gain::of(5, 4, 0);

/// `BBR.DefaultCwndGain` (2.5): so that delayed and lumped ACKs do not stop transmission.
pub(super) const DEFAULT_CWND_GAIN: Gain = Gain::of(2, 1, 0);

/// The window in ProbeBW_UP (5.3.3.4): room for the faster sending, even if the window was the limit before.
pub(super) const UP_CWND_GAIN: Gain = Gain::of(9, 4, 0);

/// `BBR.ProbeRTTCwndGain` (2.13.2): half the pipe.
pub(super) const PROBE_RTT_CWND_GAIN: Gain = Gain::of(1, 2, 0);

/// `BBR.LossThresh` (2.7): more loss than 2 % of a round trip is too much in flight.
pub(super) const LOSS_THRESH_PERCENT: u64 = 2;

/// `BBR.Beta` (2.7): what a round trip with loss leaves of the short-term bounds at the least; CUBIC's factor.
pub(super) const BETA: Gain = Gain::of(7, 10, 0);

/// `BBR.Headroom` (2.7): this share of the long-term bound is left to others while cruising.
pub(super) const HEADROOM: Gain = Gain::of(15, 100, 0);

/// `BBR.MinPipeCwnd` (2.7) in segments: keeps the ACK clock running through delayed ACKs.
pub(super) const MIN_PIPE_SEGMENTS: u64 = 4;

/// `BBR.ExtraAckedFilterLen` (2.10) in round trips, and before the pipe was full (5.5.9).
pub(super) const EXTRA_ACKED_FILTER_LEN: u64 = 10;
pub(super) const EXTRA_ACKED_STARTUP_LEN: u64 = 1;

/// The pipe is full after so many rounds (5.3.1.2) ...
pub(super) const FULL_BW_ROUNDS: u32 = 3;

/// ... in which the delivery rate is less than this times what it was.
pub(super) const FULL_BW_GROWTH: Gain = Gain::of(5, 4, 0);

/// `BBRStartupFullLossCnt` (5.3.1.3): discontiguous ranges lost in a round trip.
pub(super) const STARTUP_FULL_LOSS_COUNT: u64 = 6;

/// Drain ends after so many rounds though there still is a queue (5.3.2): the bandwidth was overestimated.
pub(super) const DRAIN_ROUNDS: u64 = 3;

/// `T_bbr` (5.3.3.8): seconds between probes for bandwidth, and how much more by chance.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(2);
pub(super) const PROBE_WAIT_SPREAD: Duration = Duration::from_secs(1);

/// `T_reno_bound` (5.3.3.8) in round trips: Reno needs as long at 25 Mbit/s and 30 ms.
pub(super) const MAX_RENO_ROUNDS: u64 = 63;

/// Doublings of the long-term bound's growth in ProbeBW_UP (5.3.3.9).
pub(super) const MAX_UP_ROUNDS: u32 = 30;

/// `BBR.MinRTTFilterLen` (2.13.1).
pub(super) const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);

/// `BBR.ProbeRTTInterval` (2.13.2): the same in every implementation, so that flows empty the queue together.
pub(super) const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

/// `BBR.ProbeRTTDuration` (2.13.2): long enough to overlap; at half the pipe it costs 2 % of the interval.
pub(super) const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

/// The RTT that the first pacing rate assumes when none is known (5.6.2).
pub(super) const ASSUMED_RTT: Duration = Duration::from_millis(1);

/// `C.send_quantum` (5.6.3): what leaves in this time, at most 64 KiB, at least two segments.
pub(super) const QUANTUM_TIME: Duration = Duration::from_millis(1);
pub(super) const MIN_QUANTUM_SEGMENTS: u64 = 2;

/// Quanta in the hosts at both ends (5.5.8): in the sender's queue, in its card, and in the receiver's merging.
pub(super) const OFFLOAD_QUANTA: u64 = 3;

/// Segments on top in ProbeBW_UP (5.6.4.2): on a path of few, 1.25 times as many are no more.
pub(super) const UP_EXTRA_SEGMENTS: u64 = 2;
