//! Timer of the sending half.
//!
//! Only one of these timers runs at a time, because all of them handle the same case: nothing arrives from
//! the peer.
//!
//! ```text
//!   Reordering   RACK waits for a segment that may only be late   (shortest)
//!   TailProbe    nothing was delivered for two round trips
//!   Timeout      nothing was delivered for the RTO
//!   Persist      the peer's window is closed
//!   KeepAlive    nothing is outstanding, and nothing is heard
//!   FinWait2     a detached connection waits for the peer's FIN
//!   TimeWait     two segment lifetimes
//! ```
//! The connection sets the last three timers (`conn/liveness.rs`, `conn/close.rs`) while the sending half has
//! nothing outstanding.

use fullpipe_units::Instant;

use super::{Phase, Sender};
use crate::SendLimit;
use crate::recovery::probe::{ProbeKind, TailProbe};

/// Kind of timer that runs in the sending half.
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
    /// Returns whether the timer runs while nothing is outstanding. A timer of this kind is replaced when new
    /// data is sent.
    pub(super) fn is_of_silence(self) -> bool {
        matches!(self, Self::KeepAlive | Self::FinWait2 | Self::TimeWait)
    }
}

impl Sender {
    /// Stops the timer and returns it if it is due.
    pub(in crate::conn) fn take_due_timer(&mut self, now: Instant) -> Option<RetransmitTimer> {
        self.probe_armed_at = None;
        let (timer, at) = self.timer?;
        if at > now {
            return None;
        }
        self.timer = None;
        Some(timer)
    }

    /// Returns whether no timer runs, nothing is outstanding, and no probe is due.
    #[inline]
    pub(in crate::conn) fn waits_for_nothing(&self) -> bool {
        self.timer.is_none() && self.recovery.board.is_empty() && !self.probes.is_due()
    }

    /// Handles an expiry of the persist timer by requesting a window probe. Returns whether the connection
    /// gives up; a `detached` connection gives up sooner.
    pub(in crate::conn) fn on_persist_timeout(&mut self, now: Instant, detached: bool) -> bool {
        if self.gives_up_on_window(detached) || self.exceeds_user_timeout(now) {
            return true;
        }
        self.probes.request(ProbeKind::Window);
        self.recovery.rto.on_unanswered_probe();
        false
    }

    /// Returns whether too many window probes in a row are unanswered. A `detached` connection also gives up
    /// when the back-off reaches its maximum, even if the peer answers the probes.
    fn gives_up_on_window(&self, detached: bool) -> bool {
        let tunables = &self.config.tunables;
        let orphan = detached && self.recovery.rto.timeout(&self.rtt) >= tunables.rto_max;
        orphan || self.probes.unanswered() >= tunables.retries.data
    }

    /// Returns whether data has been in flight, or has waited for a closed window, for longer than the user
    /// timeout ([`Config::user_timeout`](crate::Config::user_timeout)).
    pub(super) fn exceeds_user_timeout(&self, now: Instant) -> bool {
        let waited = now.saturating_since(self.recovery.rto_base);
        self.config.user_timeout.is_some_and(|most| waited >= most)
    }

    /// Returns `at` or the end of the user timeout, whichever is earlier. The user timeout starts at the last
    /// progress, at the first transmission after a pause, or when the peer's window closes.
    pub(super) fn within_user_timeout(&self, at: Instant) -> Instant {
        self.config.user_timeout.map_or(at, |most| at.min(self.recovery.rto_base + most))
    }

    /// Restarts the retransmission timeout at `now`.
    pub(super) fn arm_timeout(&mut self, now: Instant) {
        self.timer = if self.recovery.board.is_empty() {
            None
        } else {
            Some((RetransmitTimer::Timeout, now + self.recovery.rto.timeout(&self.rtt)))
        };
    }

    /// Arms the tail loss probe if its conditions are met (RFC 8985 section 7.2). If they are not met, arms
    /// the retransmission timeout.
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
        let (rule, in_flight) = (&self.config.tunables.probe_timeout, recovery.board.outstanding() as u64);
        let probe_at = now + TailProbe::timeout(rule, &self.rtt, in_flight);
        let timeout_at = oldest.sent_at.max(recovery.rto_base) + recovery.rto.timeout(&self.rtt);
        // The probe is sent at the latest when the retransmission timeout would expire.
        let at = probe_at.min(timeout_at).max(now);
        self.timer = Some((RetransmitTimer::TailProbe, at));
        self.probe_armed_at = (recovery.board.outstanding() > 1).then_some(now);
    }

    pub(super) fn arm_persist(&mut self, now: Instant) {
        let due = now + self.recovery.rto.timeout(&self.rtt);
        self.timer = Some((RetransmitTimer::Persist, self.within_user_timeout(due)));
    }

    /// Arms the persist timer if the peer's window is closed and nothing is in flight. If a window update is
    /// lost, only a probe can show that the window has reopened.
    pub(in crate::conn) fn guard_closed_window(&mut self, now: Instant, limit: SendLimit) {
        let idle = self.timer.is_none_or(|(timer, _)| timer.is_of_silence());
        if limit == SendLimit::Rwnd && self.recovery.board.is_empty() && idle {
            self.recovery.rto_base = now;
            self.arm_persist(now);
        }
    }
}
