//! BBR version 1 (Cardwell et al., "BBR: congestion-based congestion control", 2016), as in Linux.
//!
//! BBR models a path by two quantities: the highest delivery rate (`bw`) and the round-trip time with an
//! empty queue (`min_rtt`). Loss is not part of the model. A sender can measure only one of these quantities
//! at a time, so BBR alternates between them by varying two gains: `pacing = gain x bw`, `cwnd = gain x bw x
//! min_rtt`.
//!
//! ```text
//!            ┌─────────┐ bw stopped growing ┌───────┐
//!   start ──►│ Startup │───────────────────►│ Drain │   gains: pacing       cwnd
//!            │  2.885  │                    │ 0.344 │   Startup 2.885       2.885
//!            └─────────┘                    └───────┘   Drain   0.344       2.885
//!                 ▲  │                          │       ProbeBW 1.25, 0.75, 2
//!     pipe never  │  │ min_rtt is 10 s old      │ queue         1 x 6
//!     was full    │  ▼                          ▼ gone  ProbeRTT 1          1, 4 segments
//!            ┌──────────┐   min_rtt is     ┌─────────┐
//!            │ ProbeRTT │◄─────────────────│ ProbeBW │
//!            │          │─────────────────►│         │
//!            └──────────┘   200 ms later   └─────────┘
//! ```
//!
//! Other parts are [`full_pipe`] (detects that `bw` has stopped growing), [`aggregation`] (enlarges the
//! window for aggregated ACKs), and [`policer`] (detects token buckets, at which BBR must not probe).
//! [`Bbr1::recover_or_restore`] adjusts the window during and after loss recovery. Windows are in whole
//! segments, as in Linux.

use fullpipe_units::{Duration, Instant, Rate};

use self::aggregation::Aggregation;
use self::full_pipe::FullPipe;
use self::policer::Policer;
use super::gain::{self, amount, rate_of};
use super::window::INITIAL_SEGMENTS;
use super::windowed::WindowedMax;
use super::{
    AckSample, CongestionControl, Context, Control, Hints, MAX_QUANTUM, Pacing, Recovery, SendQuantum, Sent,
    Signal, Status,
};

mod aggregation;
mod full_pipe;
mod policer;
mod startup;

/// Gain in units of 1/256, as in Linux.
type Gain = gain::Gain<256>;

/// Pacing and window gain of Startup: 2/ln 2, the smallest gain with which a paced sender doubles its rate
/// every round trip.
const HIGH_GAIN: Gain = Gain::of(2_885, 1_000, 1);

/// Pacing gain of Drain: the inverse of the Startup gain, so that the queue drains in about the time in which
/// it was built.
const DRAIN_GAIN: Gain = Gain::of(1_000, 2_885, 0);

/// Window gain in ProbeBW: twice the BDP, so that delayed and aggregated ACKs do not stop transmission.
const CWND_GAIN: Gain = Gain::of(2, 1, 0);

/// Pacing gains of ProbeBW: one phase paces above the bandwidth to probe for more, the next one paces below
/// it to drain the queue that the probe has built, and six phases cruise. The mean of the gains is 1.
const CYCLE: [Gain; 8] = [
    Gain::of(5, 4, 0),
    Gain::of(3, 4, 0),
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
];

/// Length, in round trips, of the maximum filter for `bw`: one gain cycle plus two spare rounds.
const BW_ROUNDS: u64 = CYCLE.len() as u64 + 2;

/// Age at which `min_rtt` expires and must be measured again. The queue of a competing flow rarely lasts that
/// long.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// Time for which ProbeRTT keeps the pipe nearly empty. This is long enough for the ProbeRTT phases of
/// several flows to overlap, and only 2 % of [`MIN_RTT_WINDOW`].
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

/// Congestion window in ProbeRTT, and minimum window in all other states, in segments. The minimum does not
/// apply during packet conservation or just after a timeout. Four segments keep the ACK clock running despite
/// delayed ACKs.
const MIN_CWND: u64 = 4;

/// Pacing rate below which the pacer releases single segments. At this rate, one segment takes 10 ms or more,
/// so a burst of two segments would be noticeable.
const ONE_SEGMENT_RATE: Rate = Rate::from_bps(1_200_000);

/// Largest number of segments in a super-segment.
const MAX_TSO_SEGMENTS: u64 = 127;

/// RTT assumed for the first pacing rate when no RTT is known.
const ASSUMED_RTT: Duration = Duration::from_millis(1);

/// State of the BBRv1 state machine, with the data specific to each state.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBw(Cycle),
    ProbeRtt(ProbeRtt),
}

/// Current phase of the gain cycle ([`CYCLE`]) and its start time.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    phase: usize,
    since: Instant,
}

/// Progress of the current ProbeRTT phase.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeRtt {
    /// Earliest end of ProbeRTT; `None` until the pipe has drained.
    done_at: Option<Instant>,
    /// Whether a full round trip has passed since the pipe drained.
    round_done: bool,
}

/// Kind of loss recovery in progress at the last ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    None,
    Recovery,
    Loss,
}

/// BBRv1 state of one connection.
#[derive(Debug)]
pub struct Bbr1 {
    mss: u64,
    mode: Mode,

    // Path model.
    bw: WindowedMax<Rate>,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    full_pipe: FullPipe,
    aggregation: Aggregation,
    policer: Policer,

    // Packet-timed round trips: a round ends when a segment sent after the start of the round is delivered.
    round: u64,
    round_end: u64,
    round_start: bool,

    // Control parameters derived from the path model, in segments.
    cwnd: u64,
    ssthresh: Option<u64>,
    pacing_rate: Rate,

    /// Upper bound of the congestion window, in segments; `u64::MAX` in BBRv1 itself ([`startup`]).
    bound: u64,
    /// Congestion window to restore after recovery or ProbeRTT.
    prior_cwnd: u64,
    /// Number of segments by which the window may exceed the data in flight after the first timeout for the
    /// outstanding data.
    loss_window: u64,
    repair: Repair,
    /// Whether packet conservation applies, that is, whether transmission is limited to the amount delivered,
    /// as in the first round of recovery.
    conserving: bool,
    /// Whether recovery begins with packet conservation; always true in BBRv1 itself ([`startup`]).
    conserves: bool,
    /// Whether packet conservation has yet to begin in the current recovery, or in the next recovery.
    conservation_due: bool,

    /// Whether the first pacing rate was computed from a measured RTT.
    has_seen_rtt: bool,
    /// Whether the flow has resumed after an idle period. The queue was empty during that period, so ProbeRTT
    /// is not needed.
    idle_restart: bool,
    /// Whether the last ACK arrived in ProbeRTT. Rate samples of segments sent after such an ACK are below
    /// the bandwidth of the path.
    window_is_low: bool,
    /// Number of random numbers drawn so far.
    draws: u64,
}

impl Bbr1 {
    /// Returns a BBRv1 controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        let cwnd = hints.initial_cwnd.map_or(INITIAL_SEGMENTS, |bytes| cx.segments(bytes).max(1));
        let rtt = cx.srtt.or(hints.rtt);
        Self {
            mss: cx.mss,
            mode: Mode::Startup,
            bw: WindowedMax::new(BW_ROUNDS),
            min_rtt: cx.min_rtt.or(hints.rtt),
            min_rtt_at: cx.now,
            full_pipe: FullPipe::default(),
            aggregation: Aggregation::new(cx.now),
            policer: Policer::new(cx),
            round: 0,
            round_end: cx.delivered,
            round_start: false,
            cwnd,
            ssthresh: None,
            pacing_rate: hints.launch_rate(cx).unwrap_or_else(|| first_pacing_rate(cwnd * cx.mss, rtt)),
            bound: u64::MAX,
            prior_cwnd: 0,
            loss_window: hints.loss_window.map_or(1, u64::from),
            repair: Repair::None,
            conserving: false,
            conserves: true,
            conservation_due: false,
            // The rate of a launch applies regardless of whether the handshake measured an RTT.
            has_seen_rtt: rtt.is_some() || hints.launch.is_some(),
            idle_restart: false,
            window_is_low: false,
            draws: 0,
        }
    }

    /// Returns the bandwidth estimate in use: the policer's rate if a policer was detected, otherwise `bw`.
    fn bandwidth(&self) -> Rate {
        self.policer.rate_in_use().unwrap_or_else(|| self.bw.get())
    }

    fn pacing_gain(&self) -> Gain {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            // Probing above the policer's rate would only empty the policer's token bucket.
            Mode::ProbeBw(_) if self.policer.rate_in_use().is_some() => Gain::UNIT,
            Mode::ProbeBw(cycle) => CYCLE[cycle.phase],
            Mode::ProbeRtt(_) => Gain::UNIT,
        }
    }

    fn cwnd_gain(&self) -> Gain {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw(_) => CWND_GAIN,
            Mode::ProbeRtt(_) => Gain::UNIT,
        }
    }

    // ---- amounts in flight, in segments ----

    /// Returns `gain` times the bandwidth-delay product, rounded up, because rounding down would leave the
    /// path idle for a fraction of a segment.
    fn bdp(&self, bw: Rate, gain: Gain) -> u64 {
        match self.min_rtt {
            Some(min_rtt) => gain.times(amount(bw, min_rtt)).div_ceil(self.mss),
            None => INITIAL_SEGMENTS,
        }
    }

    /// Adds the offload allowance to `segments`: one super-segment each for the pacer, the sender's network
    /// card and the receiver's GRO. The result is even, because receivers acknowledge every other segment.
    fn with_lumps(&self, segments: u64) -> u64 {
        let even = (segments + 3 * self.tso_goal()).next_multiple_of(2);
        // With few segments in flight, rounding would otherwise cancel the gain of 1.25.
        if let Mode::ProbeBw(Cycle { phase: 0, .. }) = self.mode { even + 2 } else { even }
    }

    fn target_inflight(&self, bw: Rate, gain: Gain) -> u64 {
        self.with_lumps(self.bdp(bw, gain))
    }

    fn min_tso_segments(&self) -> u64 {
        if self.pacing_rate < ONE_SEGMENT_RATE { 1 } else { 2 }
    }

    /// Returns the size of a super-segment in segments: about 1 ms of data at the current pacing rate.
    fn tso_goal(&self) -> u64 {
        let bytes = (self.pacing_rate.as_bytes_per_sec() >> 10).min(MAX_QUANTUM);
        (bytes / self.mss).max(self.min_tso_segments()).min(MAX_TSO_SEGMENTS)
    }

    /// Returns the number of segments that will be in the network when the pacer releases the next one. The
    /// pacer schedules departures ahead of time, so "in flight" includes segments that have not left yet.
    fn in_network_at_next_departure(&self, cx: &Context, inflight: u64) -> u64 {
        let wait = cx.next_departure.saturating_since(cx.now);
        let delivered = if wait.is_zero() { 0 } else { amount(self.bandwidth(), wait) / self.mss };
        let released = if self.pacing_gain() > Gain::UNIT { self.tso_goal() } else { 0 };
        (inflight.div_ceil(self.mss) + released).saturating_sub(delivered)
    }

    // ---- path model ----

    fn update_bandwidth(&mut self, cx: &Context, sample: &AckSample) {
        self.round_start = false;
        let Some(interval) = sample.interval.filter(|interval| !interval.is_zero()) else {
            return;
        };
        if sample.prior_delivered >= self.round_end {
            self.round_end = cx.delivered;
            self.round += 1;
            self.round_start = true;
            self.conserving = false;
        }
        self.update_policer(cx, sample.newly_lost > 0, sample.app_limited);
        // An application-limited sample may be too low, but never too high, so it is used only if it is not
        // below the estimate.
        let bw = rate_of(sample.delivered, interval);
        if !sample.app_limited || bw >= self.bw.get() {
            self.bw.update(self.round, bw);
        }
    }

    fn update_policer(&mut self, cx: &Context, lost: bool, app_limited: bool) {
        let probing = matches!(self.mode, Mode::ProbeBw(_));
        if self.policer.update(cx, self.round_start, lost, app_limited, probing) {
            self.enter_probe_bw(cx);
        }
    }

    fn update_min_rtt(&mut self, cx: &Context, sample: &AckSample) {
        let expired = cx.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (expired || self.min_rtt.is_none_or(|min| rtt < min))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = cx.now;
        }
        if expired && !self.idle_restart && !matches!(self.mode, Mode::ProbeRtt(_)) {
            self.save_cwnd();
            self.enter(Mode::ProbeRtt(ProbeRtt::default()));
        }
        self.update_probe_rtt(cx);
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    // ---- state machine ----

    fn enter(&mut self, mode: Mode) {
        use Mode::{Drain, ProbeBw, ProbeRtt, Startup};
        debug_assert!(
            matches!(
                (self.mode, mode),
                (Startup, Drain)
                    | (Drain | ProbeBw(_), ProbeBw(_))
                    | (ProbeRtt(_), Startup | ProbeBw(_))
                    | (Startup | Drain | ProbeBw(_), ProbeRtt(_))
            ),
            "no edge from {:?} to {mode:?}",
            self.mode
        );
        self.mode = mode;
    }

    /// Enters ProbeBW in a random phase, so that flows that start together do not probe together. The
    /// draining phase is excluded, because there is no queue to drain yet.
    fn enter_probe_bw(&mut self, cx: &Context) {
        let draw = cx.rng.at(self.draws) >> 32;
        self.draws += 1;
        let steps = (draw * (CYCLE.len() as u64 - 1)) >> 32;
        let phase = (CYCLE.len() - steps as usize) % CYCLE.len();
        self.enter(Mode::ProbeBw(Cycle { phase, since: cx.delivered_time }));
    }

    fn update_cycle(&mut self, cx: &Context, sample: &AckSample) {
        if let Mode::ProbeBw(cycle) = self.mode
            && self.is_phase_over(cx, sample, cycle)
        {
            let phase = (cycle.phase + 1) % CYCLE.len();
            self.mode = Mode::ProbeBw(Cycle { phase, since: cx.delivered_time });
        }
    }

    fn is_phase_over(&self, cx: &Context, sample: &AckSample, cycle: Cycle) -> bool {
        let full_length =
            self.min_rtt.is_some_and(|min_rtt| cx.delivered_time.saturating_since(cycle.since) > min_rtt);
        let gain = self.pacing_gain();
        let inflight = || self.in_network_at_next_departure(cx, sample.prior_inflight);
        let bw = self.bw.get();
        if gain > Gain::UNIT {
            // Only more data in flight can reveal a higher bandwidth, so the phase lasts until that data is
            // in flight or the queue overflows. Behind a bound, the data in flight cannot become more.
            let bounded = || self.bound != u64::MAX && cx.cwnd_limited;
            full_length
                && (sample.newly_lost > 0 || inflight() >= self.target_inflight(bw, gain) || bounded())
        } else if gain < Gain::UNIT {
            // The draining phase ends as soon as the queue is empty, because with less than the BDP in flight
            // the path would idle.
            full_length || inflight() <= self.target_inflight(bw, Gain::UNIT)
        } else {
            full_length
        }
    }

    fn update_drain(&mut self, cx: &Context) {
        if matches!(self.mode, Mode::Startup) && self.full_pipe.is_reached() {
            self.ssthresh = Some(self.target_inflight(self.bw.get(), Gain::UNIT));
            self.enter(Mode::Drain);
        }
        if matches!(self.mode, Mode::Drain)
            && self.in_network_at_next_departure(cx, cx.inflight)
                <= self.target_inflight(self.bw.get(), Gain::UNIT)
        {
            self.enter_probe_bw(cx);
        }
    }

    fn update_probe_rtt(&mut self, cx: &Context) {
        let round_start = self.round_start;
        self.window_is_low = matches!(self.mode, Mode::ProbeRtt(_));
        let Mode::ProbeRtt(probe) = &mut self.mode else {
            return;
        };
        if probe.done_at.is_none() {
            if cx.inflight.div_ceil(self.mss) <= MIN_CWND {
                probe.done_at = Some(cx.now + PROBE_RTT_TIME);
                self.round_end = cx.delivered;
            }
        } else {
            probe.round_done |= round_start;
            if probe.round_done {
                self.leave_probe_rtt_if_done(cx);
            }
        }
    }

    fn leave_probe_rtt_if_done(&mut self, cx: &Context) {
        let Mode::ProbeRtt(ProbeRtt { done_at: Some(done_at), .. }) = self.mode else {
            return;
        };
        if cx.now <= done_at {
            return;
        }
        self.min_rtt_at = cx.now;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        if self.full_pipe.is_reached() {
            self.enter_probe_bw(cx);
        } else {
            self.enter(Mode::Startup);
        }
    }

    // ---- control parameters ----

    fn update_pacing(&mut self, cx: &Context, bw: Rate, gain: Gain) {
        if !self.has_seen_rtt && cx.srtt.is_some() {
            self.has_seen_rtt = true;
            self.pacing_rate = first_pacing_rate(self.cwnd * self.mss, cx.srtt);
        }
        let rate = gain.pacing(bw);
        // Before the pipe is full, low bandwidth samples result from a window that is still small.
        if self.full_pipe.is_reached() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn update_cwnd(&mut self, cx: &Context, sample: &AckSample, bw: Rate, gain: Gain) {
        let acked = sample.acked_segments;
        if acked > 0 && !self.recover_or_restore(cx, sample) {
            let extra = if self.full_pipe.is_reached() { self.aggregation.extra(bw, self.mss) } else { 0 };
            let target = self.with_lumps(self.bdp(bw, gain) + extra);
            if self.full_pipe.is_reached() {
                self.cwnd = (self.cwnd + acked).min(target);
            } else if self.cwnd < target || cx.delivered < INITIAL_SEGMENTS * self.mss {
                self.cwnd += acked;
            }
            self.cwnd = self.cwnd.max(MIN_CWND);
        }
        if let Mode::ProbeRtt(_) = self.mode {
            self.cwnd = self.cwnd.min(MIN_CWND);
        }
    }

    /// Adjusts the window during and after loss recovery. Returns true while packet conservation alone sets
    /// the window.
    ///
    /// BBR subtracts lost segments from the window at once. In the first round of recovery, the state of the
    /// path is unknown, so the sender sends only as much as the ACKs deliver. From the second round on, the
    /// model sets the window again. After recovery, the window returns to its earlier size, because BBR does
    /// not slow down for loss alone.
    fn recover_or_restore(&mut self, cx: &Context, sample: &AckSample) -> bool {
        let acked = sample.acked_segments;
        let conserved = cx.inflight.div_ceil(self.mss) + acked;
        let lost = sample.newly_lost.div_ceil(self.mss);
        if lost > 0 {
            self.cwnd = self.cwnd.saturating_sub(lost).max(1);
        }
        let repair = match (cx.in_loss, cx.in_recovery) {
            (true, _) => Repair::Loss,
            (false, true) => Repair::Recovery,
            (false, false) => Repair::None,
        };
        self.conservation_due |= self.repair != Repair::Recovery;
        if repair == Repair::Recovery && self.conservation_due && self.conserves {
            self.conservation_due = false;
            self.conserving = true;
            self.round_end = cx.delivered;
            self.cwnd = conserved;
        } else if repair == Repair::None && self.repair != Repair::None {
            self.conserving = false;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
        }
        self.repair = repair;
        if self.conserving {
            self.cwnd = self.cwnd.max(conserved);
        }
        self.conserving
    }

    /// Saves the congestion window, to restore it after recovery or ProbeRTT.
    fn save_cwnd(&mut self) {
        if self.repair == Repair::None && !matches!(self.mode, Mode::ProbeRtt(_)) {
            self.prior_cwnd = self.cwnd;
        } else {
            // The window has already been reduced for another reason, so keep the larger saved window.
            self.prior_cwnd = self.prior_cwnd.max(self.cwnd);
        }
    }
}

impl CongestionControl for Bbr1 {
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        if !(sent.first_after_idle && cx.app_limited) {
            return;
        }
        // The queue is empty and the bandwidth is known, so BBR resumes at that bandwidth, without probing or
        // draining.
        self.idle_restart = true;
        self.aggregation.restart(cx.now);
        match self.mode {
            Mode::ProbeBw(_) => self.update_pacing(cx, self.bandwidth(), Gain::UNIT),
            Mode::ProbeRtt(_) => self.leave_probe_rtt_if_done(cx),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        match signal {
            Signal::EnterRecovery => self.save_cwnd(),
            Signal::Timeout { first } => {
                if first {
                    self.save_cwnd();
                }
                let inflight = cx.inflight.div_ceil(self.mss);
                let more = if first { self.loss_window } else { 1 };
                self.cwnd = (inflight + 1).max((inflight + more).min(self.cwnd));
                self.repair = Repair::Loss;
                self.full_pipe.forget_growth();
                // The policer detector treats a retransmission timeout as the end of a round with loss.
                self.round_start = true;
                self.update_policer(cx, true, false);
            }
            Signal::SpuriousRecovery | Signal::SpuriousTimeout => {
                // The recovery was spurious, so rounds without bandwidth growth do not show a full pipe.
                // Growth detection restarts. The end of recovery restores the window itself.
                self.full_pipe.forget_growth();
                self.policer.reset(cx);
            }
            Signal::MssChanged => self.mss = cx.mss,
            // BBRv1 ignores loss and ECN marks as signals, and `on_send` handles idle periods.
            Signal::ExitRecovery
            | Signal::TlpRepaired
            | Signal::LossBatchEnd
            | Signal::EcnEcho
            | Signal::Idle { .. } => {}
        }
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        self.update_bandwidth(cx, sample);
        self.aggregation.update(cx, sample, self.bandwidth(), self.round_start, self.cwnd);
        self.update_cycle(cx, sample);
        if self.round_start && !sample.app_limited {
            self.full_pipe.update(self.bw.get());
        }
        self.update_drain(cx);
        self.update_min_rtt(cx, sample);

        let bw = self.bandwidth();
        self.update_pacing(cx, bw, self.pacing_gain());
        self.update_cwnd(cx, sample, bw, self.cwnd_gain());
    }

    fn control(&self) -> Control {
        Control {
            cwnd: self.cwnd.min(self.bound).saturating_mul(self.mss),
            ssthresh: self.ssthresh.map_or(u64::MAX, |segments| segments.saturating_mul(self.mss)),
            pacing: Pacing::Rate(self.pacing_rate),
            send_quantum: SendQuantum::FromRate { min_segments: self.min_tso_segments() },
            recovery: Recovery::Own,
            mark_app_limited: self.window_is_low,
            repair: super::Repair::NONE,
        }
    }

    fn status(&self) -> Status {
        let phase = match self.mode {
            Mode::Startup => "Startup",
            Mode::Drain => "Drain",
            Mode::ProbeBw(_) => "ProbeBW",
            Mode::ProbeRtt(_) => "ProbeRTT",
        };
        Status {
            phase,
            values: [
                ("bw", self.bandwidth().as_bps() as f64),
                ("min_rtt", self.min_rtt.unwrap_or_default().as_millis_f64()),
                ("pacing_gain", self.pacing_gain().as_f64()),
                ("cwnd_gain", self.cwnd_gain().as_f64()),
            ],
        }
    }
}

/// Returns the pacing rate before the first delivery: one window per RTT, multiplied by the Startup gain.
fn first_pacing_rate(cwnd: u64, rtt: Option<Duration>) -> Rate {
    // An RTT below 1 us is measurement noise.
    let rtt = rtt.map_or(ASSUMED_RTT, |rtt| rtt.max(Duration::from_micros(1)));
    HIGH_GAIN.pacing(rate_of(cwnd, rtt))
}

#[cfg(test)]
mod tests;
