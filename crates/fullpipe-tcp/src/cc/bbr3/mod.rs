//! BBR version 3 (draft-ietf-ccwg-bbr, source of 3 August 2026). Names and section numbers are taken from the
//! draft.
//!
//! Like BBRv1, BBRv3 models the path by the highest delivery rate (`max_bw`) and the round-trip time with an
//! empty queue (`min_rtt`), and alternates between measuring them. Unlike BBRv1, it also derives bounds from
//! loss. If a round trip loses more than 2 %, BBRv3 bounds the long-term volume in flight
//! (`inflight_longterm`). Any loss outside a probe lowers the short-term bounds to the capacity that other
//! flows currently leave (`bw_shortterm`, `inflight_shortterm`).
//!
//! ```text
//!                 │                                             pacing   cwnd   bounds
//!            ┌────▼────┐
//!      ┌────►│ Startup │ doubles every round trip               2.7726   2      -
//!      │     └────┬────┘
//!      │          │ 3 rounds below 1.25x growth, or > 2 % lost in 6 ranges
//!      │     ┌────▼────┐
//!      │     │  Drain  │ until the queue is gone, or 3 rounds   0.5      2      short
//!      │     └────┬────┘
//!      │     ┌────▼────┐ until inflight <= BDP and 0.85 long
//!      │  ┌─►│  DOWN   │ (or it is time to probe)               0.9      2      long, short
//!      │  │  └────┬────┘
//!      │  │  ┌────▼────┐ 2 to 3 s since the last probe, or as
//!      │  │  │ CRUISE  │ many rounds as the BDP has segments    1        2      0.85 long, short
//!      │  │  └────┬────┘
//!      │  │  ┌────▼────┐ one round: the pipe is full when the
//!      │  │  │ REFILL  │ probe begins                           1        2      long
//!      │  │  └────┬────┘
//!      │  │  ┌────▼────┐ until 3 rounds below 1.25x growth, or
//!      │  └──┤   UP    │ > 2 % lost                             1.25     2.25   long, growing
//!      │     └─────────┘
//!      │     ┌──────────┐ from any state, 5 s after the lowest RTT: half the pipe for 200 ms
//!      └─────┤ ProbeRTT ├──► DOWN and at once CRUISE            1        0.5    0.85 long, short
//!            └──────────┘
//! ```
//!
//! Other parts are [`constants`], [`signals`] (rounds, `max_bw`, full pipe, ACK aggregation), [`bounds`]
//! (long-term and short-term bounds), [`probe`] (schedule and growth of probes) and [`min_rtt`].
//!
//! `docs/explanation/algorithms/bbr3.md` lists the points at which the draft leaves a choice or contradicts
//! itself.

use fullpipe_units::{Duration, Rate};

use self::bounds::{Bounds, Latest, StartupLoss, inflight_at_loss, is_too_high};
use self::constants::*;
use self::min_rtt::{MinRtt, ProbeRtt};
use self::probe::{AckPhase, Probe};
use self::signals::{Aggregation, FullPipe, MaxBw, Rounds, Sample};
use super::gain::{amount, rate_of};
use super::window::INITIAL_SEGMENTS;
use super::{
    AckSample, CongestionControl, Context, Control, Hints, Lost, MAX_QUANTUM, Pacing, Recovery, Repair,
    SendQuantum, Sent, Signal, Status,
};

mod bounds;
mod constants;
mod min_rtt;
mod probe;
mod signals;

/// State of the BBRv3 state machine (`BBR.state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Implements `IsInAProbeBWState()` of the BBR draft.
    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Implements `IsProbingBW()`: returns whether the current state probes for bandwidth and may therefore
    /// cause losses.
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    fn pacing_gain(self) -> Gain {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::Down => DOWN_PACING_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt => Gain::UNIT,
            Self::Up => UP_PACING_GAIN,
        }
    }

    fn cwnd_gain(self) -> Gain {
        match self {
            Self::Startup | Self::Drain | Self::Down | Self::Cruise | Self::Refill => DEFAULT_CWND_GAIN,
            Self::Up => UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Drain => "Drain",
            Self::Down => "ProbeBW_DOWN",
            Self::Cruise => "ProbeBW_CRUISE",
            Self::Refill => "ProbeBW_REFILL",
            Self::Up => "ProbeBW_UP",
            Self::ProbeRtt => "ProbeRTT",
        }
    }
}

/// Loss episode that may later prove spurious (draft section 5.5.11.1).
#[derive(Clone, Copy, Debug)]
struct Episode {
    /// Values of the bounds before the loss episode.
    before: Bounds,
    /// `BBR.undo_state`: the state that the losses of this episode ended, if it was Startup or ProbeBW_UP.
    ended: Option<State>,
}

/// BBRv3 state of one connection; amounts are in bytes.
#[derive(Debug)]
pub struct Bbr3 {
    mss: u64,
    state: State,

    // Path model.
    max_bw: MaxBw,
    /// `BBR.bw`: the maximum bandwidth, limited by the short-term bound.
    bw: Rate,
    min_rtt: MinRtt,
    aggregation: Aggregation,
    full_pipe: FullPipe,
    bounds: Bounds,

    // Path signals and the state of the state machine.
    rounds: Rounds,
    latest: Latest,
    startup_loss: StartupLoss,
    probe: Probe,
    probe_rtt: ProbeRtt,
    drain_start_round: u64,
    idle_restart: bool,
    episode: Option<Episode>,

    // Control parameters derived from the path model.
    cwnd: u64,
    initial_cwnd: u64,
    /// Number of segments by which the window may exceed the data in flight after the first timeout for the
    /// outstanding data.
    loss_window: u64,
    /// Congestion window to restore after recovery or ProbeRTT.
    prior_cwnd: u64,
    ssthresh: Option<u64>,
    pacing_rate: Rate,
    send_quantum: u64,

    /// Whether the first pacing rate was computed from a measured RTT.
    has_seen_rtt: bool,
}

impl Bbr3 {
    /// Returns a BBRv3 controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        let cwnd = hints.initial_cwnd.unwrap_or(INITIAL_SEGMENTS * cx.mss).max(cx.mss);
        let rtt = cx.srtt.or(hints.rtt);
        let mut this = Self {
            mss: cx.mss,
            state: State::Startup,
            max_bw: MaxBw::default(),
            bw: Rate::ZERO,
            min_rtt: MinRtt::new(cx.now, rtt),
            aggregation: Aggregation::new(cx.now),
            full_pipe: FullPipe::default(),
            bounds: Bounds::default(),
            rounds: Rounds::default(),
            latest: Latest::default(),
            startup_loss: StartupLoss::default(),
            probe: Probe::default(),
            probe_rtt: ProbeRtt::default(),
            drain_start_round: 0,
            idle_restart: false,
            episode: None,
            cwnd,
            initial_cwnd: cwnd,
            loss_window: hints.loss_window.map_or(1, u64::from),
            prior_cwnd: 0,
            ssthresh: None,
            pacing_rate: hints.launch_rate(cx).unwrap_or_else(|| first_pacing_rate(cwnd, rtt)),
            send_quantum: 0,
            // The rate of a launch applies regardless of whether the handshake measured an RTT.
            has_seen_rtt: rtt.is_some() || hints.launch.is_some(),
        };
        this.set_send_quantum();
        this
    }

    // ---- amounts in flight ----

    /// Implements `BDPMultiple(gain)` of the BBR draft for the bandwidth `bw`.
    fn bdp_multiple(&self, bw: Rate, gain: Gain) -> u64 {
        match self.min_rtt.get() {
            Some(min_rtt) => gain.times(amount(bw, min_rtt)),
            None => self.initial_cwnd,
        }
    }

    /// Returns `BBR.bdp`, the bandwidth-delay product in bytes.
    fn bdp(&self) -> u64 {
        self.bdp_multiple(self.bw, Gain::UNIT)
    }

    /// Implements `QuantizationBudget()`: raises `inflight` to at least the volume that segmentation offload
    /// keeps in the two hosts.
    fn with_quanta(&self, inflight: u64) -> u64 {
        let least = inflight.max(OFFLOAD_QUANTA * self.send_quantum).max(MIN_PIPE_SEGMENTS * self.mss);
        if self.state == State::Up { least + UP_EXTRA_SEGMENTS * self.mss } else { least }
    }

    /// Implements `Inflight(bw, gain)` of the BBR draft.
    fn inflight(&self, bw: Rate, gain: Gain) -> u64 {
        self.with_quanta(self.bdp_multiple(bw, gain))
    }

    /// Implements `TargetInflight()`: returns the BDP, or the congestion window if congestion has reduced the
    /// window below the BDP.
    fn target_inflight(&self) -> u64 {
        self.bdp().min(self.cwnd)
    }

    /// Implements `ProbeRTTCwnd()` of the BBR draft.
    fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp_multiple(self.bw, PROBE_RTT_CWND_GAIN).max(MIN_PIPE_SEGMENTS * self.mss)
    }

    // ---- Startup and Drain ----

    fn check_startup_done(&mut self, cx: &Context, rs: &Sample) {
        let too_much_lost = self.startup_loss.check(cx, &self.latest, rs);
        if self.state == State::Startup && !self.full_pipe.reached && too_much_lost {
            self.full_pipe.set();
            self.bounds.inflight_longterm = Some(self.bdp().max(self.latest.inflight));
            self.note_ended(State::Startup);
        }
        if self.state == State::Startup && self.full_pipe.reached {
            self.ssthresh = Some(self.inflight(self.max_bw.get(), Gain::UNIT));
            self.state = State::Drain;
            self.drain_start_round = self.rounds.count;
        }
    }

    fn check_drain_done(&mut self, cx: &Context) {
        if self.state == State::Drain
            && (cx.inflight <= self.inflight(self.bw, Gain::UNIT)
                || self.rounds.count > self.drain_start_round + DRAIN_ROUNDS)
        {
            self.start_down(cx);
        }
    }

    // ---- ProbeBW (draft section 5.3.3.9) ----

    fn start_down(&mut self, cx: &Context) {
        self.latest.reset();
        self.probe.start_down(cx);
        self.rounds.begin(cx);
        self.state = State::Down;
    }

    fn start_refill(&mut self, cx: &Context) {
        self.bounds.reset_short_term();
        self.probe.start_refill();
        self.rounds.begin(cx);
        self.state = State::Refill;
    }

    fn start_up(&mut self, cx: &Context, rs: &Sample) {
        self.probe.start_up(self.cwnd, self.mss);
        self.rounds.begin(cx);
        self.full_pipe.reset(rs.delivery_rate);
        self.state = State::Up;
    }

    /// Implements `UpdateProbeBWCyclePhase()` of the BBR draft.
    fn update_probe_bw(&mut self, cx: &Context, rs: &Sample, prior_inflight: u64) {
        if !self.full_pipe.reached || self.adapt_long_term_model(cx, rs) {
            return;
        }
        let state = self.state;
        match state {
            State::Down if self.is_time_to_probe(cx) => self.start_refill(cx),
            State::Down if self.is_time_to_cruise(cx) => self.state = State::Cruise,
            State::Cruise if self.is_time_to_probe(cx) => self.start_refill(cx),
            State::Refill if self.rounds.start => {
                self.probe.is_sample = true;
                self.start_up(cx, rs);
            }
            State::Up if self.is_time_to_go_down(cx, rs, prior_inflight) => {
                self.probe.prev_too_high = false;
                self.start_down(cx);
            }
            _ => {}
        }
    }

    /// Implements `AdaptLongTermModel()`: evaluates the ACKs of a probe. Returns true if the state has
    /// changed.
    fn adapt_long_term_model(&mut self, cx: &Context, rs: &Sample) -> bool {
        let in_probe_bw = self.state.is_probe_bw();
        match self.probe.ack_phase {
            AckPhase::ProbeStarting if self.rounds.start => self.probe.ack_phase = AckPhase::ProbeFeedback,
            AckPhase::ProbeStopping if self.rounds.start => {
                self.probe.is_sample = false;
                self.probe.ack_phase = AckPhase::Init;
                if in_probe_bw && !rs.is_app_limited {
                    self.max_bw.advance();
                }
                if in_probe_bw && self.probe.prev_precautionary && !self.probe.prev_too_high {
                    // The precautionary probe caused no excessive loss, so a full probe starts at once,
                    // without a cruise phase.
                    self.start_refill(cx);
                    return true;
                }
            }
            _ => {}
        }
        let Some(bound) = self.bounds.inflight_longterm else {
            return false;
        };
        if !is_too_high(rs.lost, rs.tx_in_flight, cx.has_sack) {
            let mut bound = bound.max(rs.tx_in_flight);
            if self.state == State::Up && cx.cwnd_limited && self.cwnd >= bound {
                bound += self.mss * self.probe.growth(rs.newly_acked, self.rounds.start, self.cwnd, self.mss);
            }
            self.bounds.inflight_longterm = Some(bound);
        }
        false
    }

    /// Implements `IsTimeToProbeBW()`: returns whether the wait between two probes is over. To coexist with
    /// Reno, the wait also ends after a number of round trips that equals the target volume in flight in
    /// segments (at most 63).
    fn is_time_to_probe(&self, cx: &Context) -> bool {
        let reno_rounds = (self.target_inflight() / self.mss).min(MAX_RENO_ROUNDS);
        cx.now > self.probe.cycle_stamp + self.probe.wait || self.probe.rounds_since_up >= reno_rounds
    }

    /// Implements `IsTimeToCruise()`: returns true if there is headroom and no queue.
    fn is_time_to_cruise(&self, cx: &Context) -> bool {
        self.bounds.with_headroom(self.mss).is_none_or(|bound| cx.inflight <= bound)
            && cx.inflight <= self.inflight(self.max_bw.get(), Gain::UNIT)
    }

    /// Implements `IsTimeToGoDown()` of the BBR draft.
    fn is_time_to_go_down(&mut self, cx: &Context, rs: &Sample, prior_inflight: u64) -> bool {
        let bound = self.bounds.inflight_longterm.unwrap_or(u64::MAX);
        // The comparison with the volume in flight before this ACK has a tolerance of one segment, because a
        // flow limited by `bound` never exceeds `bound`.
        if self.probe.prev_too_high && prior_inflight.saturating_add(self.mss) > bound {
            self.probe.prev_precautionary = true;
            return true;
        }
        if cx.cwnd_limited && self.cwnd >= bound {
            // In this case, the bound limits the flow, and not the capacity of the path.
            self.full_pipe.reset(rs.delivery_rate);
            return false;
        }
        self.full_pipe.now
    }

    /// Implements `HandleInflightTooHigh()`: handles a probe with too much loss at `inflight` bytes in
    /// flight.
    fn on_inflight_too_high(&mut self, cx: &Context, inflight: u64, is_app_limited: bool) {
        self.probe.prev_too_high = true;
        // BBR reacts to loss only once per probe.
        self.probe.is_sample = false;
        if !is_app_limited {
            self.bounds.inflight_longterm = Some(inflight.max(BETA.times(self.target_inflight())));
        }
        if self.state == State::Up {
            self.note_ended(State::Up);
            self.start_down(cx);
        }
    }

    // ---- ProbeRTT (draft section 5.3.4) ----

    fn check_probe_rtt(&mut self, cx: &Context, rs: &Sample) {
        if self.state != State::ProbeRtt && self.min_rtt.is_due() && !self.idle_restart {
            self.state = State::ProbeRtt;
            self.save_cwnd();
            self.probe_rtt = ProbeRtt::default();
            self.probe.ack_phase = AckPhase::ProbeStopping;
            self.rounds.begin(cx);
        }
        if self.state == State::ProbeRtt {
            if self.probe_rtt.done_at.is_none() {
                if cx.inflight <= self.probe_rtt_cwnd() {
                    self.probe_rtt.done_at = Some(cx.now + PROBE_RTT_DURATION);
                    self.rounds.begin(cx);
                }
            } else {
                self.probe_rtt.round_done |= self.rounds.start;
                if self.probe_rtt.round_done {
                    self.check_probe_rtt_done(cx);
                }
            }
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn check_probe_rtt_done(&mut self, cx: &Context) {
        if self.probe_rtt.done_at.is_none_or(|done_at| cx.now <= done_at) {
            return;
        }
        self.min_rtt.schedule(cx.now);
        self.restore_cwnd();
        self.bounds.reset_short_term();
        if self.full_pipe.reached {
            // The queue has already drained, so the flow skips DOWN.
            self.start_down(cx);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    // ---- loss ----

    /// Implements `SaveStateUponLoss()` at the start of a loss episode.
    fn begin_episode(&mut self) {
        self.save_cwnd();
        self.episode.get_or_insert(Episode { before: self.bounds, ended: None });
    }

    fn note_ended(&mut self, state: State) {
        if let Some(episode) = &mut self.episode {
            episode.ended = Some(state);
        }
    }

    /// Implements `HandleSpuriousLossDetection()`. Nothing was lost, so the volume in flight was not too
    /// high.
    fn undo(&mut self, cx: &Context) {
        self.restore_cwnd();
        self.latest.is_loss_in_round = false;
        self.full_pipe.reset(Rate::ZERO);
        let Some(Episode { before, ended }) = self.episode.take() else {
            return;
        };
        self.bounds.undo(before);
        match ended {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if !matches!(self.state, State::Up | State::ProbeRtt) => self.start_refill(cx),
            _ => {}
        }
    }

    /// Saves the congestion window, to restore it after recovery or ProbeRTT.
    fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.episode.is_none() && self.state != State::ProbeRtt {
            self.cwnd
        } else {
            // The window has already been reduced for another reason, so keep the larger saved window.
            self.prior_cwnd.max(self.cwnd)
        };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    // ---- control parameters (draft section 5.6) ----

    fn set_pacing_rate(&mut self, cx: &Context, gain: Gain) {
        if !self.has_seen_rtt && cx.srtt.is_some() {
            self.has_seen_rtt = true;
            self.pacing_rate = first_pacing_rate(self.initial_cwnd, cx.srtt);
        }
        let rate = gain.pacing(self.bw);
        // Before the pipe is full, low bandwidth samples result from a window that is still small.
        if self.full_pipe.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn set_send_quantum(&mut self) {
        let in_time = amount(self.pacing_rate, QUANTUM_TIME);
        self.send_quantum = in_time.min(MAX_QUANTUM).max(MIN_QUANTUM_SEGMENTS * self.mss);
    }

    fn set_cwnd(&mut self, cx: &Context, rs: &Sample) {
        let bdp = self.bdp_multiple(self.bw, self.state.cwnd_gain());
        let max_inflight = self.with_quanta(bdp.saturating_add(self.aggregation.extra()));
        if self.full_pipe.reached {
            self.cwnd = (self.cwnd + rs.newly_acked).min(max_inflight);
        } else if self.cwnd < max_inflight || cx.delivered < self.initial_cwnd {
            self.cwnd += rs.newly_acked;
        }
        let least = MIN_PIPE_SEGMENTS * self.mss;
        self.cwnd = self.cwnd.max(least);
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        // Implements `BoundCwndForModel()` of the BBR draft.
        let long_term = match self.state {
            State::Startup | State::Drain => None,
            State::Down | State::Refill | State::Up => self.bounds.inflight_longterm,
            State::Cruise | State::ProbeRtt => self.bounds.with_headroom(self.mss),
        };
        for bound in [long_term, self.bounds.inflight_shortterm].into_iter().flatten() {
            self.cwnd = self.cwnd.min(bound.max(least));
        }
    }
}

impl CongestionControl for Bbr3 {
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        if !(sent.first_after_idle && cx.app_limited) {
            return;
        }
        // The queue is empty and the bandwidth is known, so BBR resumes at that bandwidth, without probing or
        // draining.
        self.idle_restart = true;
        self.aggregation.restart(cx.now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate(cx, Gain::UNIT);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(cx);
        }
    }

    fn on_lost(&mut self, cx: &Context, lost: &Lost) {
        if self.episode.is_none() {
            self.begin_episode();
        }
        self.latest.note_loss(cx);
        self.startup_loss.note(lost);
        if self.probe.is_sample && is_too_high(lost.lost_since_sent, lost.tx_in_flight, cx.has_sack) {
            self.on_inflight_too_high(cx, inflight_at_loss(lost), lost.app_limited);
        }
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        match signal {
            Signal::EnterRecovery => self.begin_episode(),
            Signal::Timeout { first } => {
                self.begin_episode();
                let more = if first { self.loss_window * self.mss } else { self.mss };
                self.cwnd = (cx.inflight + self.mss).max((cx.inflight + more).min(self.cwnd));
            }
            Signal::ExitRecovery => {
                self.restore_cwnd();
                self.episode = None;
            }
            Signal::SpuriousRecovery | Signal::SpuriousTimeout => self.undo(cx),
            // An ECN mark is a congestion signal (draft section 3.7), but the draft does not specify the
            // response. This implementation treats a round with a mark like a round with loss. It treats a
            // probe with a mark like a probe with too much loss, because an ECN echo does not give the number
            // of marks.
            Signal::EcnEcho => {
                self.latest.note_loss(cx);
                if self.probe.is_sample {
                    self.on_inflight_too_high(cx, cx.inflight, cx.app_limited);
                }
            }
            Signal::MssChanged => self.mss = cx.mss,
            // The segment that the tail loss probe repaired was lost, although it was never marked lost.
            Signal::TlpRepaired => self.latest.note_loss(cx),
            Signal::LossBatchEnd | Signal::Idle { .. } => {}
        }
    }

    /// Implements `UpdateOnACK()` of the BBR draft (section 5.2.3), with the steps in the draft's order.
    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        let rs = &Sample::of(sample);
        self.latest.update(cx, rs);
        // Implements `UpdateCongestionSignals()` of the BBR draft.
        self.rounds.update(cx, rs);
        self.probe.rounds_since_up += u64::from(self.rounds.start);
        self.max_bw.update(rs);
        if self.latest.round_start {
            if self.latest.is_loss_in_round && !self.state.is_probing() {
                self.bounds.lower(&self.latest, self.max_bw.get(), self.cwnd);
            }
            self.latest.is_loss_in_round = false;
        }
        let full = self.full_pipe.reached;
        self.aggregation.update(cx.now, rs.newly_acked, self.bw, self.rounds.count, self.cwnd, full);
        self.full_pipe.check(self.rounds.start, rs);
        self.check_startup_done(cx, rs);
        self.check_drain_done(cx);
        self.update_probe_bw(cx, rs, sample.prior_inflight);
        self.min_rtt.update(cx.now, sample.rtt);
        self.check_probe_rtt(cx, rs);
        self.latest.advance(rs);
        self.bw = self.bounds.bw_shortterm.map_or(self.max_bw.get(), |bound| bound.min(self.max_bw.get()));

        self.set_pacing_rate(cx, self.state.pacing_gain());
        self.set_send_quantum();
        self.set_cwnd(cx, rs);
    }

    fn control(&self) -> Control {
        Control {
            // The window is rounded down to whole segments, because the sender sends only whole segments.
            cwnd: (self.cwnd / self.mss).max(1) * self.mss,
            ssthresh: self.ssthresh.unwrap_or(u64::MAX),
            pacing: Pacing::Rate(self.pacing_rate),
            send_quantum: SendQuantum::Bytes(self.send_quantum),
            recovery: Recovery::Own,
            mark_app_limited: self.state == State::ProbeRtt,
            repair: Repair::NONE,
        }
    }

    fn status(&self) -> Status {
        let bytes = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bytes| bytes as f64);
        Status {
            phase: self.state.name(),
            values: [
                ("bw", self.bw.as_bps() as f64),
                ("min_rtt", self.min_rtt.get().unwrap_or_default().as_millis_f64()),
                ("inflight_longterm", bytes(self.bounds.inflight_longterm)),
                ("inflight_shortterm", bytes(self.bounds.inflight_shortterm)),
            ],
        }
    }
}

/// Implements `InitPacingRate()`: one window per RTT, multiplied by the Startup gain.
fn first_pacing_rate(cwnd: u64, rtt: Option<Duration>) -> Rate {
    // An RTT below 1 us is measurement noise.
    let rtt = rtt.map_or(ASSUMED_RTT, |rtt| rtt.max(Duration::from_micros(1)));
    STARTUP_PACING_GAIN.of_rate(rate_of(cwnd, rtt))
}

#[cfg(test)]
mod tests;
