//! The sending side's timer.
//!
//! Of the timers on the sending side one runs at a time, as they answer the same question, "what if
//! nothing more is heard?":
//!
//! ```text
//!   Reordering   RACK waits for what may only be late        (shortest)
//!   TailProbe    nothing was delivered for two round trips
//!   Timeout      nothing was delivered for the RTO
//!   Persist      the peer's window is closed
//!   KeepAlive    nothing is outstanding, and nothing is heard
//!   FinWait2     nobody's connection waits for the peer's FIN
//!   TimeWait     two segment lifetimes
//! ```
//! The last three are set by the connection (`conn/liveness.rs`, `conn/close.rs`) while the sending half has nothing to wait for.

use fullpipe_units::Instant;

use super::episodes::MAX_TIMEOUTS;
use super::{Phase, Sender};
use crate::SendLimit;
use crate::estimate::RTO_MAX;
use crate::recovery::probe::{ProbeKind, TailProbe};

/// What the sending side's timer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum RetransmitTimer {
    Reordering,
    TailProbe,
    Timeout,
    Persist,
    KeepAlive,
    FinWait2,
    TimeWait,
}

impl RetransmitTimer {
    /// It runs while nothing is outstanding, and gives way to whatever is.
    pub(super) fn is_of_silence(self) -> bool {
        matches!(self, Self::KeepAlive | Self::FinWait2 | Self::TimeWait)
    }
}

impl Sender {
    /// The timer that is due, which thereby stops.
    pub(in crate::conn) fn take_due_timer(&mut self, now: Instant) -> Option<RetransmitTimer> {
        self.probe_armed_at = None;
        let (timer, at) = self.timer?;
        if at > now {
            return None;
        }
        self.timer = None;
        Some(timer)
    }

    /// Neither a timer runs nor is there anything to wait for.
    #[inline]
    pub(in crate::conn) fn waits_for_nothing(&self) -> bool {
        self.timer.is_none() && self.recovery.board.is_empty() && !self.probes.is_due()
    }

    /// The peer's window has been closed for another timeout: asks for it again. True if the connection is given up; a
    /// `detached` one is sooner.
    pub(in crate::conn) fn on_persist_timeout(&mut self, now: Instant, detached: bool) -> bool {
        if self.gives_up_on_window(detached) || self.exceeds_user_timeout(now) {
            return true;
        }
        self.probes.request(ProbeKind::Window);
        self.recovery.rto.on_unanswered_probe();
        false
    }

    /// Nothing answers the probes of a closed window; or, if nobody uses the connection any more, the window has been closed
    /// until the back-off came to its end, whatever answers.
    fn gives_up_on_window(&self, detached: bool) -> bool {
        let orphan = detached && self.recovery.rto.timeout(&self.rtt) >= RTO_MAX;
        orphan || self.probes.unanswered() >= MAX_TIMEOUTS
    }

    /// Data has been under way, or waiting for a closed window, for longer than the application puts up with
    /// ([`Config::user_timeout`](crate::Config::user_timeout)).
    pub(super) fn exceeds_user_timeout(&self, now: Instant) -> bool {
        let waited = now.saturating_since(self.recovery.rto_base);
        self.config.user_timeout.is_some_and(|most| waited >= most)
    }

    /// `at`, or the end of the user timeout if that comes first. The peer owes an answer since the last progress, the first
    /// transmission after a pause, or the closing of its window.
    pub(super) fn within_user_timeout(&self, at: Instant) -> Instant {
        self.config.user_timeout.map_or(at, |most| at.min(self.recovery.rto_base + most))
    }

    /// Restarts the retransmission timeout from `now`.
    pub(super) fn arm_timeout(&mut self, now: Instant) {
        self.timer = if self.recovery.board.is_empty() {
            None
        } else {
            Some((RetransmitTimer::Timeout, now + self.recovery.rto.timeout(&self.rtt)))
        };
    }

    /// Arms the tail loss probe if its conditions hold (RFC 8985 section 7.2), else the timeout.
    pub(super) fn arm_probe_or_timeout(&mut self, now: Instant) {
        let recovery = &self.recovery;
        let may_probe = recovery.phase == Phase::Open
            && recovery.board.sacked_segments() == 0
            && !recovery.probe.is_outstanding()
            && self.agreed.sack;
        let Some(oldest) = recovery.board.oldest().filter(|_| may_probe) else {
            self.arm_timeout(now);
            return;
        };
        let probe_at = now + TailProbe::timeout(self.rtt.srtt(), recovery.board.outstanding() as u64);
        let timeout_at = oldest.sent_at.max(recovery.rto_base) + recovery.rto.timeout(&self.rtt);
        // The probe gives way to a timeout that would strike first.
        let at = probe_at.min(timeout_at).max(now);
        self.timer = Some((RetransmitTimer::TailProbe, at));
        self.probe_armed_at = (recovery.board.outstanding() > 1).then_some(now);
    }

    pub(super) fn arm_persist(&mut self, now: Instant) {
        let due = now + self.recovery.rto.timeout(&self.rtt);
        self.timer = Some((RetransmitTimer::Persist, self.within_user_timeout(due)));
    }

    /// With the peer's window closed and nothing in flight, only a probe can learn that it reopened.
    pub(in crate::conn) fn guard_closed_window(&mut self, now: Instant, limit: SendLimit) {
        let idle = self.timer.is_none_or(|(timer, _)| timer.is_of_silence());
        if limit == SendLimit::Rwnd && self.recovery.board.is_empty() && idle {
            self.recovery.rto_base = now;
            self.arm_persist(now);
        }
    }
}
