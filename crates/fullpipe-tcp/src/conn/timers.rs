//! The connection's timers.
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

use fullpipe_units::Instant;

use super::mtu::BLACK_HOLE_TIMEOUTS;
use super::{Connection, Event, Phase, ProbeKind, State};
use crate::cc::Signal;
use crate::estimate::RTO_MAX;
use crate::recovery::probe::TailProbe;

/// What the sending side's timer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetransmitTimer {
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

/// Expiries without an answer after which a connection gives up (the kernel's `tcp_retries2`).
const MAX_TIMEOUTS: u32 = 15;
/// The same where nobody uses the connection any more (`tcp_orphan_retries`).
const ORPHAN_TIMEOUTS: u32 = 8;

impl Connection {
    /// When `handle_timeout` is to be called; [`Instant::FAR_FUTURE`] for never.
    pub fn poll_timeout(&self) -> Instant {
        let mut due = self.acks.deadline();
        if let Some((_, at)) = self.retransmit_timer {
            due = due.min(at);
        }
        due.min(self.pacing_deadline())
    }

    /// Handles whatever is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.acks.deadline() <= now {
            self.acks.on_timeout(now);
        }
        self.probe_armed_at = None;
        let Some((timer, at)) = self.retransmit_timer else { return };
        if at > now {
            return;
        }
        self.retransmit_timer = None;
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.on_syn_timeout(now);
            return;
        }
        // The same question as at a write and at an ACK (draft-ietf-ccwg-bbr section 4.1.2.4).
        self.check_app_limited();
        match timer {
            RetransmitTimer::Reordering => self.on_reordering_timeout(now),
            RetransmitTimer::TailProbe => self.probe_due = Some(ProbeKind::Tail),
            RetransmitTimer::Timeout => self.on_retransmission_timeout(now),
            RetransmitTimer::Persist if self.gives_up_on_window() => self.end(now, Event::Aborted),
            RetransmitTimer::Persist if self.exceeds_user_timeout(now) => {}
            RetransmitTimer::Persist => {
                self.unanswered_probes += 1;
                self.probe_due = Some(ProbeKind::Window);
                self.rto.on_unanswered_probe();
            }
            RetransmitTimer::KeepAlive => self.on_keep_alive_timeout(now),
            RetransmitTimer::FinWait2 | RetransmitTimer::TimeWait => self.end(now, Event::Closed),
        }
    }

    fn on_reordering_timeout(&mut self, now: Instant) {
        let look_again = self.detect_losses(now);
        let cx = self.context(now);
        self.refresh_control(&cx);
        match look_again {
            Some(at) => self.retransmit_timer = Some((RetransmitTimer::Reordering, at)),
            None => self.arm_timeout(now),
        }
    }

    fn on_retransmission_timeout(&mut self, now: Instant) {
        if self.board.is_empty() {
            return;
        }
        let most = if self.detached { ORPHAN_TIMEOUTS } else { MAX_TIMEOUTS };
        if self.rto.expiries() >= most {
            self.end(now, Event::Aborted);
            return;
        }
        if self.exceeds_user_timeout(now) {
            return;
        }
        if self.config.mtu_probing && self.rto.backoff() >= BLACK_HOLE_TIMEOUTS {
            self.suspect_black_hole(now);
        }
        self.stats.timeouts += 1;
        self.probe.cancel();
        let recovering = matches!(self.phase, Phase::Recovery { .. });
        let first = self.rto.on_expiry(now, self.snd_una, self.snd_nxt, recovering);
        let reneged = self.board.is_reneged();
        if reneged {
            // What the peer has dropped, or only some of it: nothing that it reports now says that the path was late.
            self.board.forget_sacks();
            self.rto.confirm();
        }
        if self.phase == Phase::Open {
            self.undo.begin(self.snd_una, self.board.resent_in_network());
        }
        self.phase = Phase::Loss;
        self.newreno.begin(self.snd_nxt);
        self.reduced_at = now;
        let lost_before = self.board.lost_total();
        if self.has_sack {
            let patience = super::input::patience(&self.rtt, self.phase);
            let Self { rack, board, lost_scratch, .. } = self;
            rack.mark_on_timeout(now, board, patience, reneged, |number, record| {
                lost_scratch.push(super::input::lost_record(number, record, crate::cc::LossCause::Rto));
            });
        } else {
            self.mark_on_timeout_without_sack();
        }
        self.report_losses(now, lost_before);
        self.ecn.on_reduced(self.snd_nxt);
        self.signal(now, Signal::Timeout { first });
        let cx = self.context(now);
        self.refresh_control(&cx);
        self.force_retransmit = true;
        self.arm_timeout(now);
        if let Some((_, at)) = self.retransmit_timer {
            self.retransmit_timer = Some((RetransmitTimer::Timeout, self.within_user_timeout(at)));
        }
    }

    /// Nothing answers the probes of a closed window; or, if nobody uses the connection any more, the window has been closed
    /// until the back-off came to its end, whatever answers.
    fn gives_up_on_window(&self) -> bool {
        let orphan = self.detached && self.rto.timeout(&self.rtt) >= RTO_MAX;
        orphan || self.unanswered_probes >= MAX_TIMEOUTS
    }

    /// Restarts the retransmission timeout from `now`.
    pub(super) fn arm_timeout(&mut self, now: Instant) {
        self.retransmit_timer = if self.board.is_empty() {
            self.silence_timer()
        } else {
            Some((RetransmitTimer::Timeout, now + self.rto.timeout(&self.rtt)))
        };
    }

    /// Arms the tail loss probe if its conditions hold (RFC 8985 section 7.2), else the timeout.
    pub(super) fn arm_probe_or_timeout(&mut self, now: Instant) {
        let may_probe = self.phase == Phase::Open
            && self.board.sacked_segments() == 0
            && !self.probe.is_outstanding()
            && self.has_sack;
        let Some(oldest) = self.board.oldest().filter(|_| may_probe) else {
            self.arm_timeout(now);
            return;
        };
        let probe_at = now + TailProbe::timeout(self.rtt.srtt(), self.board.outstanding() as u64);
        let timeout_at = oldest.sent_at.max(self.rto_base) + self.rto.timeout(&self.rtt);
        // The probe gives way to a timeout that would strike first.
        let at = probe_at.min(timeout_at).max(now);
        self.retransmit_timer = Some((RetransmitTimer::TailProbe, at));
        self.probe_armed_at = (self.board.outstanding() > 1).then_some(now);
    }
}
