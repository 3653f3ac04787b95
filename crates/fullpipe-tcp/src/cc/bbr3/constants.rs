//! Constants of BBRv3, with the draft's names and sections (draft-ietf-ccwg-bbr, source of 3 August 2026).

use fullpipe_units::Duration;

use crate::cc::gain;

/// Gain as a decimal fraction with four places.
pub(super) type Gain = gain::Gain<10_000>;

/// `BBR.StartupPacingGain` (draft section 2.4): 4 ln 2, the smallest gain with which a sender whose window is
/// twice the BDP doubles its rate every round trip.
pub(super) const STARTUP_PACING_GAIN: Gain = Gain::of(27_726, 10_000, 0);

/// `BBR.DrainPacingGain` (draft section 2.4): with this gain, one round trip of Drain removes the queue that
/// one round trip of Startup has built.
pub(super) const DRAIN_PACING_GAIN: Gain = Gain::of(1, 2, 0);

/// Pacing gain in ProbeBW_DOWN (draft section 5.3.3.1): the smallest gain with which flows that probe at 1.25
/// converge to equal shares.
pub(super) const DOWN_PACING_GAIN: Gain = Gain::of(9, 10, 0);

/// Pacing gain in ProbeBW_UP (draft section 5.3.3.4).
pub(super) const UP_PACING_GAIN: Gain = Gain::of(5, 4, 0);

/// `BBR.DefaultCwndGain` (draft section 2.5): window gain with which transmission continues despite delayed
/// and aggregated ACKs.
pub(super) const DEFAULT_CWND_GAIN: Gain = Gain::of(2, 1, 0);

/// Window gain in ProbeBW_UP (draft section 5.3.3.4): allows the higher pacing rate even if the window
/// limited the flow before.
pub(super) const UP_CWND_GAIN: Gain = Gain::of(9, 4, 0);

/// `BBR.ProbeRTTCwndGain` (draft section 2.13.2): window gain in ProbeRTT, half the BDP.
pub(super) const PROBE_RTT_CWND_GAIN: Gain = Gain::of(1, 2, 0);

/// `BBR.LossThresh` (draft section 2.7): maximum loss per round trip, 2 %. More loss means that
/// too much was in flight.
pub(super) const LOSS_THRESH_PERCENT: u64 = 2;

/// `BBR.Beta` (draft section 2.7): smallest factor by which a round trip with loss multiplies the short-term
/// bounds. CUBIC uses the same factor.
pub(super) const BETA: Gain = Gain::of(7, 10, 0);

/// `BBR.Headroom` (draft section 2.7): share of the long-term bound that ProbeBW_CRUISE leaves to other
/// flows.
pub(super) const HEADROOM: Gain = Gain::of(15, 100, 0);

/// `BBR.MinPipeCwnd` (draft section 2.7): minimum window in segments. This window keeps the ACK clock running
/// despite delayed ACKs.
pub(super) const MIN_PIPE_SEGMENTS: u64 = 4;

/// `BBR.ExtraAckedFilterLen` (draft section 2.10): length of the `extra_acked` filter in round trips, in
/// general and before the pipe is full (draft section 5.5.9).
pub(super) const EXTRA_ACKED_FILTER_LEN: u64 = 10;
pub(super) const EXTRA_ACKED_STARTUP_LEN: u64 = 1;

/// Number of rounds without bandwidth growth after which the pipe is considered full (draft section 5.3.1.2).
pub(super) const FULL_BW_ROUNDS: u32 = 3;

/// Factor by which the delivery rate must rise to count as growth (draft-ietf-ccwg-bbr section 5.3.1.2).
pub(super) const FULL_BW_GROWTH: Gain = Gain::of(5, 4, 0);

/// `BBRStartupFullLossCnt` (draft section 5.3.1.3): number of discontiguous ranges lost in a round trip that
/// ends Startup.
pub(super) const STARTUP_FULL_LOSS_COUNT: u64 = 6;

/// Number of rounds after which Drain ends even if a queue remains (draft section 5.3.2). A queue remains if
/// the bandwidth was overestimated.
pub(super) const DRAIN_ROUNDS: u64 = 3;

/// `T_bbr` (draft section 5.3.3.8): minimum time between two bandwidth probes. [`PROBE_WAIT_SPREAD`] is the
/// maximum random time that is added to it.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(2);
pub(super) const PROBE_WAIT_SPREAD: Duration = Duration::from_secs(1);

/// `T_reno_bound` (draft section 5.3.3.8): upper limit of the time between two probes, in round trips. A Reno
/// flow at 25 Mbit/s with an RTT of 30 ms has about this number of round trips between two losses.
pub(super) const MAX_RENO_ROUNDS: u64 = 63;

/// Maximum number of times that ProbeBW_UP doubles the growth of the long-term bound (draft section 5.3.3.9).
pub(super) const MAX_UP_ROUNDS: u32 = 30;

/// `BBR.MinRTTFilterLen` (draft section 2.13.1): length of the minimum filter for `min_rtt`.
pub(super) const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);

/// `BBR.ProbeRTTInterval` (draft section 2.13.2): interval between ProbeRTT phases. The interval is the same
/// in all implementations, so that flows drain the queue together.
pub(super) const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

/// `BBR.ProbeRTTDuration` (draft section 2.13.2): minimum time in ProbeRTT, long enough for the ProbeRTT
/// phases of several flows to overlap. Halving the window for this time costs 2 % of the throughput.
pub(super) const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

/// RTT assumed for the first pacing rate when no RTT is known (draft section 5.6.2).
pub(super) const ASSUMED_RTT: Duration = Duration::from_millis(1);

/// Transmission time of `C.send_quantum` at the pacing rate (draft section 5.6.3). The quantum is at most 64
/// KiB and at least two segments.
pub(super) const QUANTUM_TIME: Duration = Duration::from_millis(1);
pub(super) const MIN_QUANTUM_SEGMENTS: u64 = 2;

/// Number of send quanta held inside the two hosts (draft section 5.5.8): one each in the sender's queue, the
/// sender's network card and the receiver's GRO.
pub(super) const OFFLOAD_QUANTA: u64 = 3;

/// Additional segments in ProbeBW_UP (draft section 5.6.4.2). Without them, rounding would cancel the gain of
/// 1.25 with few segments in flight.
pub(super) const UP_EXTRA_SEGMENTS: u64 = 2;
