//! Start and end of fast recovery and of the recovery after a timeout; [`Phase`] has the state diagram. These
//! functions start a recovery when a loss is detected, and inform the congestion controller.

use fullpipe_units::Instant;

use super::delivery::Delivery;
use super::mtu::BLACK_HOLE_TIMEOUTS;
use super::timers::RetransmitTimer;
use super::{Phase, Sender};
use crate::cc::Signal;
use crate::recovery::Losses;
use crate::recovery::probe::ProbeEnd;

impl Sender {
    /// Handles an ACK that acknowledges an original transmission rather than its retransmission (Eifel, RFC
    /// 3522). `hole` is the offset up to which data was acknowledged before. Returns whether the whole
    /// episode was spurious. While retransmissions for other holes are in flight, an episode is not
    /// considered spurious.
    pub(super) fn on_late_original(&mut self, hole: u64) -> bool {
        let recovery = &mut self.recovery;
        let partial = matches!(recovery.phase, Phase::Recovery { until } if self.snd_una < until);
        if partial {
            recovery.rack.on_late_original(hole);
            if recovery.board.resent_in_network() > 0 {
                return false;
            }
        }
        if recovery.phase != Phase::Open {
            recovery.undo.end();
        }
        recovery.phase != Phase::Open
    }

    /// Ends the tail loss probe, fast recovery or timeout recovery that this ACK completes. Returns whether a
    /// recovery has ended with later losses still unrepaired.
    pub(super) fn end_episodes(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        una_advanced: bool,
        duplicate: bool,
        spurious: bool,
    ) -> bool {
        let news = delivery.delivered() > 0;
        if self.recovery.probe.on_ack(self.snd_una, news, duplicate) == Some(ProbeEnd::RepairedLoss)
            && self.recovery.phase == Phase::Open
        {
            self.signal(now, Signal::TlpRepaired);
        }
        match self.recovery.phase {
            Phase::Open => {
                if spurious {
                    self.signal(now, Signal::SpuriousRecovery);
                }
            }
            Phase::Recovery { until } => {
                if spurious {
                    self.recovery.unmark_all();
                    self.recovery.phase = Phase::Open;
                    self.signal(now, Signal::SpuriousRecovery);
                } else if self.snd_una >= until {
                    return self.end_recovery(now);
                }
            }
            Phase::Loss => {
                if delivery.spurious_timeout || spurious {
                    self.recovery.unmark_all();
                    self.retransmission.unforce();
                    self.recovery.rto.end_repair();
                    self.recovery.undo.end();
                    self.recovery.phase = Phase::Open;
                    self.signal(now, Signal::SpuriousTimeout);
                } else if self.recovery.rto.repaired(self.snd_una) {
                    return self.end_recovery(now);
                } else {
                    let snd_nxt = self.snd_nxt();
                    let waits = self.unsent() > 0 || self.fresh.fin_pending(&self.queue);
                    let sendable = waits && self.snd_una + self.peer.wnd > snd_nxt;
                    self.recovery.rto.on_ack_in_repair(una_advanced, delivery.sacked > 0, snd_nxt, sendable);
                }
            }
        }
        false
    }

    /// Ends a recovery whose losses are repaired. Returns whether there are later losses. Later losses are a
    /// new congestion event, and the next recovery begins at once, whether or not the lost data has been
    /// retransmitted. Linux does the same. On a path with a loss in every round trip, senders are therefore
    /// always in recovery, and loss-based senders reduce the window every round trip.
    fn end_recovery(&mut self, now: Instant) -> bool {
        self.recovery.phase = Phase::Open;
        self.recovery.rack.on_recovery_exit();
        let board = &self.recovery.board;
        let unrepaired = board.lost_pending() > 0 || board.resent_in_network() > 0;
        self.signal(now, Signal::ExitRecovery);
        unrepaired
    }

    /// Lets RACK mark losses. Enters recovery if there are losses, or if the last recovery left losses
    /// `unrepaired`. Returns the time of the next check.
    #[inline]
    pub(in crate::conn) fn detect_losses(&mut self, now: Instant, unrepaired: bool) -> Option<Instant> {
        if !self.recovery.suspects() && !unrepaired {
            return None;
        }
        self.mark_lost(now, unrepaired)
    }

    #[inline(never)]
    fn mark_lost(&mut self, now: Instant, unrepaired: bool) -> Option<Instant> {
        let mut buffer = std::mem::take(&mut self.losses);
        let (losses, look_again) = self.recovery.detect(now, &self.rtt, &mut buffer);
        if !losses.is_empty() || unrepaired {
            self.on_losses(now, losses);
        }
        self.losses = buffer;
        look_again
    }

    /// Detects losses from duplicate ACKs; replaces [`Self::detect_losses`] without SACK.
    pub(super) fn detect_without_sack(&mut self, now: Instant, advanced: bool) {
        let mut buffer = std::mem::take(&mut self.losses);
        let losses = self.recovery.detect_without_sack(self.snd_una, advanced, &mut buffer);
        if !losses.is_empty() {
            self.on_losses(now, losses);
        }
        self.losses = buffer;
    }

    /// Enters recovery if records have just been marked lost, or if the last recovery has left losses
    /// unrepaired.
    fn on_losses(&mut self, now: Instant, losses: Losses<'_>) {
        let again = losses.has_retransmission();
        let begins = match self.recovery.phase {
            Phase::Open => true,
            Phase::Recovery { .. } => again && self.config.tunables.lost_retransmission_reduces,
            // The retransmission after the timeout was lost too. Fast recovery repairs this loss, with a
            // second window reduction.
            Phase::Loss => again,
        };
        if begins {
            self.begin_recovery(now);
        }
        self.report_losses(now, losses);
    }

    fn begin_recovery(&mut self, now: Instant) {
        let snd_nxt = self.snd_nxt();
        let recovery = &mut self.recovery;
        recovery.reduced_at = now;
        recovery.rto.end_repair();
        recovery.undo.begin(self.snd_una, recovery.board.resent_in_network());
        recovery.probe.cancel();
        self.stats.recoveries += 1;
        recovery.newreno.begin(snd_nxt);
        if recovery.phase == Phase::Open
            && let Some(until) = self.ecn.hand_over()
        {
            // A window reduction for ECE already covers this window of data (RFC 3168 section 6.1.2), so PRR
            // continues that reduction.
            recovery.phase = Phase::Recovery { until };
            return;
        }
        recovery.prr.enter(self.decision.control.cwnd);
        recovery.phase = Phase::Recovery { until: snd_nxt };
        self.ecn.on_reduced(snd_nxt);
        self.signal(now, Signal::EnterRecovery);
    }

    /// Reports each record that was marked lost to the congestion controller.
    fn report_losses(&mut self, now: Instant, losses: Losses<'_>) {
        self.first_flight.lost += losses.first_transmissions_below(self.first_flight.end);
        let cx = self.context(now);
        for lost in losses.iter() {
            self.decision.cc.on_lost(&cx, &lost);
        }
        self.decision.cc.on_signal(&cx, Signal::LossBatchEnd);
    }

    /// Handles the expiry of RACK's reordering timer.
    pub(in crate::conn) fn on_reordering_timeout(&mut self, now: Instant) {
        let was_recovering = matches!(self.recovery.phase, Phase::Recovery { .. });
        let look_again = self.detect_losses(now, false);
        self.refresh_control(now);
        if !was_recovering && self.reduces_by_prr() {
            // No ACK sets the window of this recovery, so the timer sets it, as if an ACK had delivered one
            // segment (Linux: `tcp_rack_reo_timeout`). Without this limit, the whole old window would be
            // retransmitted at once.
            let (inflight, ssthresh) = (self.recovery.board.inflight(), self.decision.control.ssthresh);
            self.recovery.prr.on_ack(self.mss, inflight, ssthresh, self.mss, false);
        }
        match look_again {
            Some(at) => self.timer = Some((RetransmitTimer::Reordering, at)),
            None => self.arm_timeout(now),
        }
    }

    /// Handles a retransmission timeout. Returns whether the connection gives up; a `detached` connection
    /// gives up sooner.
    pub(in crate::conn) fn on_retransmission_timeout(&mut self, now: Instant, detached: bool) -> bool {
        if self.recovery.board.is_empty() {
            return false;
        }
        let retries = self.config.tunables.retries;
        let most = if detached { retries.orphan } else { retries.data };
        if self.recovery.rto.expiries() >= most || self.exceeds_user_timeout(now) {
            return true;
        }
        if self.config.mtu_probing && self.recovery.rto.backoff() >= BLACK_HOLE_TIMEOUTS {
            self.suspect_black_hole(now);
        }
        self.stats.timeouts += 1;
        let snd_nxt = self.snd_nxt();
        let recovery = &mut self.recovery;
        recovery.probe.cancel();
        let recovering = matches!(recovery.phase, Phase::Recovery { .. });
        let first = recovery.rto.on_expiry(now, self.snd_una, snd_nxt, recovering);
        let reneged = recovery.board.is_reneged();
        if reneged {
            // The peer has dropped at least part of the data that it had SACKed, so its SACK blocks cannot
            // prove the timeout spurious.
            recovery.board.forget_sacks();
            recovery.rto.confirm();
        }
        if recovery.phase == Phase::Open {
            recovery.rack.on_timeout(recovery.board.sacked_segments());
            recovery.undo.begin(self.snd_una, recovery.board.resent_in_network());
        }
        recovery.phase = Phase::Loss;
        recovery.newreno.begin(snd_nxt);
        recovery.reduced_at = now;
        let mut buffer = std::mem::take(&mut self.losses);
        let losses = self.recovery.mark_on_timeout(now, &self.rtt, reneged, &mut buffer);
        self.report_losses(now, losses);
        self.losses = buffer;
        self.ecn.on_reduced(snd_nxt);
        self.signal(now, Signal::Timeout { first });
        self.refresh_control(now);
        self.retransmission.force();
        self.arm_timeout(now);
        if let Some((_, at)) = self.timer {
            self.timer = Some((RetransmitTimer::Timeout, self.within_user_timeout(at)));
        }
        false
    }
}
