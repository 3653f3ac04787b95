//! What congestion control is shown of the sending half, and how its decision is carried out.

use fullpipe_units::{Instant, Rate};

use super::{Phase, Sender};
use crate::SendLimit;
use crate::cc::{CongestionControl, Context, Control, Pacing, Recovery, Signal, Status};
use crate::tx::build::{Basis, Release};

/// The controller, its decision, and what follows from that for each transmission.
#[derive(Debug)]
pub(in crate::conn) struct Decision {
    pub(super) cc: Box<dyn CongestionControl>,
    pub(in crate::conn) control: Control,
    pub(super) release: Release,
    /// What `release` is to be made of; `None` once it is. Both its parts cost a division for each ACK, and
    /// whoever sends unpaced what an ACK has made room for needs neither.
    pub(super) basis: Option<Basis>,
}

impl Decision {
    pub(super) fn new(cc: Box<dyn CongestionControl>, mss: u64) -> Self {
        let control = cc.control();
        Self { cc, control, release: Release { rate: None, quantum: 2 * mss }, basis: None }
    }

    /// Another controller takes over; its decision is still to be read.
    pub(super) fn replace(&mut self, cc: Box<dyn CongestionControl>) {
        self.cc = cc;
    }

    /// Reads the decision, from which what is used per transmission follows.
    #[inline]
    pub(super) fn refresh(&mut self, cx: &Context) {
        // Mostly it stands, and to find that out is cheaper than a copy.
        let control = self.cc.control();
        if control != self.control {
            self.control = control;
        }
        self.basis = Some(Basis::of(cx));
    }

    /// How the decision is carried out.
    fn release(&self, max_pacing_rate: Option<Rate>) -> Release {
        match &self.basis {
            None => self.release,
            Some(basis) => basis.release(&self.control, max_pacing_rate),
        }
    }

    fn settle(&mut self, max_pacing_rate: Option<Rate>) {
        if self.basis.is_some() {
            self.release = self.release(max_pacing_rate);
            self.basis = None;
        }
    }

    /// The controller's phase, for traces.
    pub(in crate::conn) fn status(&self) -> Status {
        self.cc.status()
    }
}

/// Whether the window was used (RFC 7661's spirit, the kernel's bookkeeping): growth is earned only by a
/// window that was full at some moment of the round.
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
    /// The window in force: the controller's, or PRR's while it is reduced.
    pub(in crate::conn) fn effective_cwnd(&self) -> u64 {
        if self.reduces_by_prr() { self.recovery.prr.cwnd() } else { self.decision.control.cwnd }
    }

    /// In fast recovery, or in the reduction for a mark, that the controller leaves to PRR.
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

    /// Which limit the congestion window stands for now.
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

    pub(super) fn context(&self, now: Instant) -> Context {
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
        // What was not asked for yet still follows from the decision that is about to change.
        self.settle_release();
        let cx = self.context(now);
        self.decision.cc.on_signal(&cx, signal);
        self.decision.control = self.decision.cc.control();
    }

    /// Reads the decision after an event that no ACK brought.
    pub(in crate::conn) fn refresh_control(&mut self, now: Instant) {
        let cx = self.context(now);
        self.decision.refresh(&cx);
    }

    /// How the decision is carried out.
    pub(in crate::conn) fn release(&self) -> Release {
        self.decision.release(self.config.max_pacing_rate)
    }

    /// Most to release at once, as far as it matters for a transmission of up to `len` bytes.
    #[inline(always)]
    pub(in crate::conn) fn quantum_for(&self, len: u64) -> u64 {
        let Decision { basis, release, control, .. } = &self.decision;
        match basis {
            None => release.quantum,
            Some(basis) => basis.quantum_for(len, control, self.config.max_pacing_rate),
        }
    }

    pub(in crate::conn) fn settle_release(&mut self) {
        self.decision.settle(self.config.max_pacing_rate);
    }

    /// Marks the samples to come when the application leaves the window unused
    /// (draft-ietf-ccwg-bbr section 4.1.2.4).
    #[inline(always)]
    pub(in crate::conn) fn check_app_limited(&mut self) {
        let unsent = self.unsent();
        let inflight = self.recovery.board.inflight();
        if unsent < self.mss && inflight < self.effective_cwnd() && self.recovery.board.lost_pending() == 0 {
            self.rate.mark_app_limited(inflight);
        }
    }

    /// Releases are held back by the pacer.
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

    /// When the pacer lets the next transmission go, if it is the pacer that holds it.
    pub(in crate::conn) fn pacing_deadline(&self) -> Instant {
        if self.limits.current == SendLimit::Pacing {
            self.pacer.next_departure()
        } else {
            Instant::FAR_FUTURE
        }
    }
}
