//! Interface between the sending half and congestion control: input to the controller, and execution of its
//! decision.

use fullpipe_units::Instant;

use super::{Phase, Sender};
use crate::SendLimit;
use crate::cc::{Assessment, CongestionControl, Context, Control, Pacing, Recovery, Signal, Status};
use crate::tx::build::{Basis, Release, ReleaseLimits};

/// The congestion controller, its decision, and the release parameters derived from the decision.
#[derive(Debug)]
pub(in crate::conn) struct Decision {
    pub(super) cc: Box<dyn CongestionControl>,
    pub(in crate::conn) control: Control,
    pub(super) release: Release,
    /// Input from which `release` is still to be computed; `None` once it has been computed. Computing the
    /// rate and the quantum costs one division each per ACK, and an unpaced sender that only refills the
    /// window needs neither.
    pub(super) basis: Option<Basis>,
    /// Minimum congestion window in segments ([`Tunables::least_window`](crate::Tunables::least_window)).
    least_segments: u64,
}

impl Decision {
    pub(super) fn new(cc: Box<dyn CongestionControl>, mss: u64, least_segments: u64) -> Self {
        let control = cc.control();
        Self { cc, control, release: Release { rate: None, quantum: 2 * mss }, basis: None, least_segments }
    }

    /// Replaces the congestion controller. The caller then reads the new controller's decision.
    pub(in crate::conn) fn replace(&mut self, cc: Box<dyn CongestionControl>) {
        self.cc = cc;
    }

    /// Reads the controller's decision, which determines the release parameters.
    #[inline]
    pub(super) fn refresh(&mut self, cx: &Context) {
        // The decision rarely changes, and comparing it is cheaper than copying it.
        let control = self.read(cx);
        if control != self.control {
            self.control = control;
        }
        self.basis = Some(Basis::of(cx));
    }

    /// Returns the controller's decision, with at least the minimum window.
    #[inline]
    fn read(&self, cx: &Context) -> Control {
        let control = self.cc.control();
        if self.least_segments == 0 || cx.in_loss {
            return control;
        }
        Control { cwnd: control.cwnd.max(self.least_segments * cx.mss), ..control }
    }

    /// Returns the release parameters that follow from the current decision.
    fn release(&self, limits: ReleaseLimits) -> Release {
        match &self.basis {
            None => self.release,
            Some(basis) => basis.release(&self.control, limits),
        }
    }

    fn settle(&mut self, limits: ReleaseLimits) {
        if self.basis.is_some() {
            self.release = self.release(limits);
            self.basis = None;
        }
    }

    /// Returns the congestion controller's conclusions about the path.
    pub(in crate::conn) fn assessment(&self) -> Assessment {
        self.cc.assessment()
    }

    /// Returns the phase and internal values of the congestion controller, for traces.
    pub(in crate::conn) fn status(&self) -> Status {
        self.cc.status()
    }
}

/// Use of the congestion window (as in Linux, in the spirit of RFC 7661). The window may grow only if the
/// sender has filled it at some time in the round.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowUsage {
    cwnd_limited: bool,
    max_inflight: u64,
    round_end: u64,
}

impl WindowUsage {
    pub(super) fn on_send(&mut self, snd_una: u64, snd_nxt: u64, flight_size: u64, limited: bool) {
        if snd_una >= self.round_end || limited || (!self.cwnd_limited && flight_size > self.max_inflight) {
            self.cwnd_limited = limited;
            self.max_inflight = flight_size;
            self.round_end = snd_nxt;
        }
    }
}

impl Sender {
    /// Returns the congestion window in effect: PRR's window during a reduction, otherwise the controller's
    /// window.
    pub(in crate::conn) fn effective_cwnd(&self) -> u64 {
        if self.reduces_by_prr() { self.recovery.prr.cwnd() } else { self.decision.control.cwnd }
    }

    /// Returns whether PRR sets the window: during fast recovery or a reduction for ECE, provided that the
    /// controller leaves the reduction to PRR.
    pub(super) fn reduces_by_prr(&self) -> bool {
        self.decision.control.recovery == Recovery::Prr && self.is_reducing()
    }

    pub(super) fn is_reducing(&self) -> bool {
        match self.recovery.phase {
            Phase::Recovery { .. } => true,
            Phase::Open => self.ecn.is_reducing(),
            Phase::Loss => false,
        }
    }

    /// Returns the limit to report while the congestion window blocks sending.
    pub(in crate::conn) fn window_limit(&self) -> SendLimit {
        match self.recovery.phase {
            _ if self.is_reducing() => SendLimit::Recovery,
            Phase::Recovery { .. } | Phase::Loss => SendLimit::Recovery,
            Phase::Open if self.decision.control.cwnd < self.decision.control.ssthresh => {
                SendLimit::SlowStart
            }
            Phase::Open => SendLimit::Cwnd,
        }
    }

    pub(in crate::conn) fn context(&self, now: Instant) -> Context {
        let board = &self.recovery.board;
        Context {
            now,
            mss: self.mss,
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt(),
            inflight: board.inflight(),
            flight_size: self.flight_size(),
            cwnd_limited: self.usage.cwnd_limited,
            max_inflight: self.usage.max_inflight,
            app_limited: self.rate.is_app_limited(),
            sent: self.stats.bytes_sent,
            delivered: self.rate.delivered,
            delivered_time: self.rate.delivered_time,
            lost: board.lost_total(),
            copied: self.retransmission.copied(),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rtt.min_rtt(),
            rwnd: self.peer.wnd,
            in_recovery: self.is_reducing(),
            in_loss: self.recovery.phase == Phase::Loss,
            has_sack: self.agreed.sack,
            has_timestamps: self.agreed.timestamps,
            next_departure: self.pacer.next_departure(),
            rng: self.draws,
        }
    }

    pub(in crate::conn) fn signal(&mut self, now: Instant, signal: Signal) {
        // Release parameters that have not been computed yet must follow from the old decision, so compute
        // them first.
        self.settle_release();
        let cx = self.context(now);
        self.decision.cc.on_signal(&cx, signal);
        self.decision.control = self.decision.read(&cx);
    }

    /// Reads the controller's decision after an event other than an ACK.
    pub(in crate::conn) fn refresh_control(&mut self, now: Instant) {
        let cx = self.context(now);
        self.decision.refresh(&cx);
    }

    /// Returns the release parameters in effect.
    pub(in crate::conn) fn release(&self) -> Release {
        self.decision.release(self.release_limits())
    }

    /// Returns the send quantum. For a transmission of `len` bytes that fits into the minimum quantum,
    /// returns that minimum, which needs no division.
    #[inline(always)]
    pub(in crate::conn) fn quantum_for(&self, len: u64) -> u64 {
        let Decision { basis, release, control, .. } = &self.decision;
        match basis {
            None => release.quantum,
            Some(basis) => basis.quantum_for(len, control, self.release_limits()),
        }
    }

    pub(in crate::conn) fn settle_release(&mut self) {
        let limits = self.release_limits();
        self.decision.settle(limits);
    }

    fn release_limits(&self) -> ReleaseLimits {
        ReleaseLimits { rate: self.config.max_pacing_rate, bursts: self.config.tunables.bursts }
    }

    /// Checks at an ACK or a timer whether the application fills the window, if the tunables require it.
    /// Linux calls [`Self::check_app_limited`] only for writes (`tcp_rate_check_app_limited`). With a check
    /// at every ACK, a write directly after an ACK would look like a pause, and BBR behind a small send
    /// buffer would never leave Startup.
    #[inline(always)]
    pub(in crate::conn) fn check_app_limited_without_write(&mut self) {
        if self.config.tunables.app_limited_without_write {
            self.check_app_limited();
        }
    }

    /// Marks the following rate samples application-limited if the application does not fill the window
    /// (draft-ietf-ccwg-bbr section 4.1.2.4).
    #[inline(always)]
    pub(in crate::conn) fn check_app_limited(&mut self) {
        let unsent = self.unsent();
        let inflight = self.recovery.board.inflight();
        if unsent < self.mss && inflight < self.effective_cwnd() && self.recovery.board.lost_pending() == 0 {
            self.rate.mark_app_limited(inflight);
        }
    }

    /// Returns whether pacing delays transmissions.
    pub(in crate::conn) fn paced(&self) -> bool {
        if self.config.max_pacing_rate.is_some() {
            return true;
        }
        match self.decision.control.pacing {
            Pacing::Unpaced => false,
            Pacing::SrttRatio { .. } => self.config.fair_queue,
            Pacing::Rate(_) => true,
        }
    }

    /// Returns the time at which the pacer or the schedule of copies allows the next transmission, or
    /// [`Instant::FAR_FUTURE`] if the sender waits for neither.
    #[inline]
    pub(in crate::conn) fn pacing_deadline(&self) -> Instant {
        if self.limits.current == SendLimit::Pacing {
            self.pacer.next_departure()
        } else {
            let due = self.retransmission.copy_due().filter(|_| !self.recovery.board.is_empty());
            due.unwrap_or(Instant::FAR_FUTURE)
        }
    }
}
