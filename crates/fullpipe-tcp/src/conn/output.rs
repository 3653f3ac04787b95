//! Order of transmission: probes, lost data, new data, a FIN without data, copies, and a bare ACK.
//!
//! This file determines the order of transmission and the limit that blocks sending. `tx/fresh.rs` and
//! `tx/retransmit.rs` choose the exact range.

use fullpipe_units::Instant;

use super::sender::{Deferral, Sender};
use super::{Connection, Event, State, Transmit};
use crate::SendLimit;
use crate::cc::SentKind;
use crate::recovery::scoreboard::RecordNo;
use crate::tx::fresh::{Allowance, StopReason};

impl Connection {
    /// Returns true if [`Connection::poll_transmit`] has nothing to send, for example on a receiver between
    /// two ACKs.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.lifecycle.state.carries_data() && self.sender.is_idle() && !self.receiver.acks.is_due()
    }

    /// Returns the next transmission, or `None` if nothing may be sent now. Sending may cause
    /// [`Event::Writable`], so poll for events afterwards.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if !self.lifecycle.state.carries_data() {
            return self.poll_without_data(now);
        }
        if !self.sender.is_idle() {
            if let Some(mut transmit) = self.sender.poll(now) {
                self.receiver.acknowledge(now, &mut transmit);
                return Some(transmit);
            }
            if self.sender.wakes_writer(now) {
                self.events.add(Event::Writable);
            }
        }
        if self.receiver.acks.is_due() {
            return Some(self.bare_ack(now));
        }
        None
    }

    #[inline(always)]
    fn bare_ack(&mut self, now: Instant) -> Transmit {
        let mut transmit = self.sender.bare_ack(now);
        self.receiver.acknowledge(now, &mut transmit);
        transmit
    }

    #[cold]
    fn poll_without_data(&mut self, now: Instant) -> Option<Transmit> {
        let segment = match (self.lifecycle.reset_due.take(), self.lifecycle.state) {
            (Some(reset), _) => *reset,
            (None, State::SynSent | State::SynReceived) if self.handshake.is_pending() => {
                self.transmit_syn(now)
            }
            (None, State::SynReceived) if self.receiver.acks.is_due() => return Some(self.bare_ack(now)),
            (None, State::TimeWait) if self.receiver.acks.is_due() => {
                self.receiver.acks.on_ack_sent();
                self.lifecycle.time_wait.as_ref()?.acknowledgement(now)
            }
            _ => return None,
        };
        Some(Transmit::without_data(segment, now))
    }
}

/// Next action of the sender.
enum Step {
    Retransmit(RecordNo),
    New { len: u64 },
    BareFin,
    Defer(Deferral),
    Stop(SendLimit),
}

impl Sender {
    /// Returns the next transmission of data, a FIN or a probe. If there is none, records what limits the
    /// sender.
    fn poll(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(kind) = self.probes.take_due()
            && let Some(transmit) = self.transmit_probe(now, kind)
        {
            return Some(transmit);
        }
        if self.paced() {
            self.settle_release();
        }
        let (lost, forced) = self.retransmission.next(&mut self.recovery.board);
        if forced && let Some(number) = lost {
            return self.retransmit(now, number, SentKind::Retransmission);
        }
        let lost = if self.recovery.rto.asks_with_new_data() { self.ask_or_repair(lost, now) } else { lost };
        let limit = match self.next_step(lost, now) {
            Step::Retransmit(number) => return self.retransmit(now, number, SentKind::Retransmission),
            Step::New { len } => return Some(self.transmit_new(now, len)),
            Step::BareFin => return Some(self.transmit_fin(now)),
            Step::Defer(deferral) => self.on_deferral(deferral),
            Step::Stop(limit) => limit,
        };
        self.limits.set(now, limit);
        self.guard_closed_window(now, limit);
        let copies = self.decision.control.repair.is_any() || self.retransmission.copy_due().is_some();
        if copies { self.transmit_copy(now, limit) } else { None }
    }

    /// Returns whether a writer that waits for the unsent data to fall below its limit can continue. The
    /// caller must have sent all data that may leave now.
    #[inline]
    fn wakes_writer(&mut self, now: Instant) -> bool {
        let woken = self.queue.on_sent(self.snd_nxt());
        if woken && self.limits.current == SendLimit::Sndbuf {
            // From now on, the sender waits for the application.
            self.limits.set(now, SendLimit::App);
        }
        woken
    }

    /// Withholds lost data while F-RTO sends new data or the FIN to test whether the timeout was spurious. If
    /// neither can be sent, ends the test and returns the lost record.
    #[cold]
    fn ask_or_repair(&mut self, lost: Option<RecordNo>, now: Instant) -> Option<RecordNo> {
        let asked = self.recovery.rto.has_asked(self.snd_nxt());
        if asked {
            return None;
        }
        match self.next_step(None, now) {
            Step::New { .. } | Step::BareFin | Step::Stop(SendLimit::Pacing) => None,
            _ => {
                self.recovery.rto.confirm();
                lost
            }
        }
    }

    /// Chooses between lost and new data, or returns the reason why neither is sent.
    #[inline(always)]
    fn next_step(&self, lost: Option<RecordNo>, now: Instant) -> Step {
        let inflight = self.recovery.board.inflight();
        let cwnd = self.effective_cwnd();
        let unsent = self.unsent();
        let fin_pending = self.fresh.fin_pending(&self.queue);
        if lost.is_none() && unsent == 0 && !fin_pending {
            // The buffer limits the sender only if the window has room (Linux: `tcp_cwnd_validate`).
            return Step::Stop(match self.queue.is_blocked() {
                true if inflight >= cwnd => self.window_limit(),
                true => SendLimit::Sndbuf,
                false => SendLimit::App,
            });
        }
        if inflight >= cwnd {
            return Step::Stop(self.window_limit());
        }
        if self.paced() && self.pacer.next_departure() > now {
            return Step::Stop(SendLimit::Pacing);
        }
        if let Some(number) = lost {
            return Step::Retransmit(number);
        }
        let (rwnd, mss) = (self.window_left(), self.mss);
        if fin_pending {
            // The windows and the pacer hold back a FIN as they hold back data (Linux: since 6.10).
            return if rwnd > 0 { Step::BareFin } else { Step::Stop(SendLimit::Rwnd) };
        }
        // Linux never fills more than half of the window with one transmission.
        let at_once = (cwnd - inflight).min((cwnd / 2).max(mss));
        let quantum = self.quantum_for(unsent.min(at_once).min(rwnd));
        let snd_una = self.snd_una;
        let allowance = Allowance { cwnd: cwnd - inflight, at_once, rwnd, quantum, snd_una, mss };
        match self.fresh.next(&self.queue, allowance) {
            Ok(len) => match self.deferral(now, cwnd, cwnd - inflight, rwnd) {
                Some(deferral) => Step::Defer(deferral),
                None => Step::New { len },
            },
            Err(StopReason::Cwnd) => Step::Stop(self.window_limit()),
            Err(StopReason::Limit(limit)) => Step::Stop(limit),
        }
    }
}
