//! Effects of a transmission on the pacer, PRR, the congestion controller, timers and counters. The modules
//! in `tx/` choose the data, and `conn/output.rs` determines the order.

use fullpipe_units::{Duration, Ecn, Instant};

use super::timers::RetransmitTimer;
use super::{Phase, Sender};
use crate::cc::{Sent, SentKind, Signal};
use crate::recovery::probe::ProbeKind;
use crate::recovery::scoreboard::RecordNo;
use crate::tx::retransmit::{CopyLimits, Retransmission, Retransmitted, copy, retransmit};
use crate::tx::{Departure, Transmit};
use crate::wire::{Flags, Segment};
use crate::{Bursts, SendLimit};

impl Sender {
    fn departure(&self, now: Instant) -> Departure {
        Departure { at: now, origin: self.iss.plus(1), mss: self.mss }
    }

    /// Sends `len` bytes of data that has never been sent before. If they are the last bytes of the stream
    /// and the peer's window has room, the FIN leaves in the same transmission (Linux: `tcp_send_fin`).
    pub(in crate::conn) fn transmit_new(&mut self, now: Instant, len: u64) -> Transmit {
        self.restart_after_idle(now);
        let first_after_idle = self.recovery.board.is_empty();
        let (offset, departure) = (self.snd_nxt(), self.departure(now));
        let (ecn, flags) = self.ecn.of_new_data();
        let push = self.fresh.pushes(&self.queue, len, self.peer.max);
        let flags = if push { flags.with(Flags::PSH) } else { flags };
        let fin = self.fresh.ends_stream(&self.queue, len) && len < self.window_left();
        let flags = if fin { flags.with(Flags::FIN) } else { flags };
        let board = &mut self.recovery.board;
        let (transmit, segments) =
            self.fresh.send(departure, board, &mut self.rate, len, (ecn, flags), self.config.nodelay);
        let sent =
            Sent { offset, len, kind: SentKind::New, first_after_idle, idle: Duration::ZERO, departure: now };
        self.on_sent(now, sent, segments);
        let limited = self.recovery.board.inflight() >= self.effective_cwnd();
        self.usage.on_send(self.snd_una, self.fresh.snd_nxt(), self.flight_size(), limited);
        self.rearm_after_send(now, first_after_idle);
        transmit
    }

    /// Sends the FIN in a segment without payload.
    pub(in crate::conn) fn transmit_fin(&mut self, now: Instant) -> Transmit {
        let first_after_idle = self.recovery.board.is_empty();
        let departure = self.departure(now);
        let transmit = self.fresh.send_fin(departure, &mut self.recovery.board, &mut self.rate);
        self.rearm_after_send(now, first_after_idle);
        transmit
    }

    /// Retransmits record `number`.
    pub(in crate::conn) fn retransmit(
        &mut self,
        now: Instant,
        number: RecordNo,
        kind: SentKind,
    ) -> Option<Transmit> {
        let departure = self.departure(now);
        let Retransmitted { transmit, offset, len, segments } =
            retransmit(departure, &mut self.recovery, &mut self.rate, number, kind)?;
        self.stats.retransmits += 1;
        if self.decision.control.repair.second_copy && kind == SentKind::Retransmission {
            self.retransmission.await_copy(number, now);
        }
        let sent = Sent { offset, len, kind, first_after_idle: false, idle: Duration::ZERO, departure: now };
        self.on_sent(now, sent, segments);
        if self.timer.is_none() {
            self.arm_timeout(now);
        }
        Some(transmit)
    }

    /// Sends a copy of a segment that is not marked lost. Copies are sent only if the controller requests
    /// copies, a copy is due, and neither the congestion window nor the pacer is the `limit`. A copy never
    /// exceeds the windows.
    #[cold]
    pub(in crate::conn) fn transmit_copy(&mut self, now: Instant, limit: SendLimit) -> Option<Transmit> {
        let copies = self.retransmission.copies();
        copies.due = None;
        let idle = matches!(limit, SendLimit::Rwnd | SendLimit::Sndbuf | SendLimit::App);
        if !idle || self.recovery.phase == Phase::Loss || !self.recovery.has_sack {
            return None;
        }
        let limits = CopyLimits {
            repair: self.decision.control.repair,
            cwnd_left: self.decision.control.cwnd.saturating_sub(self.recovery.board.inflight()),
            window_end: self.snd_una + self.peer.wnd,
            at_end: self.fresh.unsent(&self.queue) == 0 && !self.queue.is_blocked(),
            sent: self.stats.bytes_sent,
            srtt: self.rtt.srtt()?,
            mss: self.mss,
        };
        let number = copies.next(now, &self.recovery.board, limits)?;
        if self.paced() && self.pacer.next_departure() > now {
            self.retransmission.copies().due = Some(self.pacer.next_departure());
            return None;
        }
        let departure = self.departure(now);
        let Retransmitted { transmit, offset, len, segments } =
            copy(departure, &self.recovery.board, self.retransmission.copies(), number)?;
        self.stats.retransmits += 1;
        self.stats.copies += 1;
        let kind = SentKind::Copy;
        let sent = Sent { offset, len, kind, first_after_idle: false, idle: Duration::ZERO, departure: now };
        self.on_sent(now, sent, segments);
        Some(transmit)
    }

    /// Sends a probe. A tail loss probe carries new data or the FIN if one of them has not been sent and the
    /// peer's window has room; otherwise it retransmits the newest record (Linux: `tcp_send_loss_probe`).
    pub(in crate::conn) fn transmit_probe(&mut self, now: Instant, kind: ProbeKind) -> Option<Transmit> {
        let unsent = self.unsent();
        let rwnd = self.window_left();
        match kind {
            ProbeKind::Window => {
                let len = unsent.min(rwnd).min(self.mss);
                if len > 0 {
                    // The window is too small for a whole segment and has not changed. A short segment is
                    // sent after the override timeout of RFC 9293 section 3.8.6.2.1; otherwise nothing would
                    // ever be sent.
                    self.recovery.rto.on_valid_sample();
                    return Some(self.transmit_new(now, len));
                }
                self.arm_persist(now);
                Some(self.question(now))
            }
            ProbeKind::KeepAlive => Some(self.question(now)),
            ProbeKind::Tail => {
                self.stats.probes += 1;
                let len = unsent.min(self.mss);
                let (transmit, repeats) = if len > 0 && len <= rwnd {
                    (self.transmit_new(now, len), false)
                } else if rwnd > 0 && self.fresh.fin_pending(&self.queue) {
                    (self.transmit_fin(now), false)
                } else {
                    let newest = Retransmission::newest_in_network(&self.recovery.board);
                    let again = newest.and_then(|number| self.retransmit(now, number, SentKind::Probe));
                    let Some(transmit) = again else {
                        self.arm_timeout(now);
                        return None;
                    };
                    (transmit, true)
                };
                self.recovery.probe.on_sent(self.fresh.snd_nxt(), repeats);
                self.arm_timeout(now);
                Some(transmit)
            }
        }
    }

    /// Builds a probe without payload. The probe's sequence number has already been acknowledged, so the peer
    /// must answer (ZWP-1, KA-3).
    fn question(&self, now: Instant) -> Transmit {
        let header = self.departure(now).header(0, Flags::ACK, Ecn::NotEct);
        Transmit::without_data(Segment { seq: self.iss.plus(self.snd_una), ..header }, now)
    }

    /// Builds a pure ACK: a segment without payload at SND.NXT.
    #[inline(always)]
    pub(in crate::conn) fn bare_ack(&self, now: Instant) -> Transmit {
        Transmit::without_data(self.departure(now).header(self.snd_nxt(), Flags::ACK, Ecn::NotEct), now)
    }

    fn on_sent(&mut self, now: Instant, sent: Sent, segments: u64) {
        self.stats.segments_sent += segments;
        self.stats.bytes_sent += sent.len;
        let last = self.last_sent_at.replace(now);
        if self.is_reducing() {
            self.recovery.prr.on_send(sent.len);
        }
        let rate = if self.paced() { self.release().rate } else { None };
        // Until the sender has caught up, its delay is attributed to pacing.
        let missed = match self.config.tunables.bursts {
            Bursts::Limited { missed, .. } if self.limits.current == SendLimit::Pacing => Some(missed),
            _ => None,
        };
        self.pacer.on_send(now, sent.len, segments, rate, missed);
        if sent.first_after_idle || self.decision.cc.follows_sends() {
            self.tell_of_send(now, sent, last);
        }
    }

    #[inline(never)]
    fn tell_of_send(&mut self, now: Instant, sent: Sent, last: Option<Instant>) {
        let cx = self.context(now);
        let idle = last.map_or(Duration::ZERO, |last| now.saturating_since(last));
        self.decision.cc.on_send(&cx, &Sent { idle, ..sent });
        if sent.first_after_idle {
            self.decision.refresh(&cx);
        }
    }

    /// Notifies the congestion controller of an idle period, after which the congestion window no longer
    /// reflects the path (RFC 5681 section 4.1, SS-5). Time spent waiting for the peer's window is not an
    /// idle period (ZWP-4).
    fn restart_after_idle(&mut self, now: Instant) {
        if !self.config.slow_start_after_idle
            || !self.recovery.board.is_empty()
            || self.limits.current == SendLimit::Rwnd
        {
            return;
        }
        let Some(last) = self.last_sent_at else { return };
        let (idle, rto) = (now.saturating_since(last), self.recovery.rto.timeout(&self.rtt));
        if idle > rto {
            self.signal(now, Signal::Idle { idle, rto });
        }
    }

    fn rearm_after_send(&mut self, now: Instant, was_idle: bool) {
        use RetransmitTimer::{KeepAlive, Persist, TailProbe, Timeout};
        if was_idle {
            self.recovery.rto_base = now;
        }
        match self.timer {
            Some((TailProbe, _)) if self.probe_armed_at == Some(now) => {}
            None | Some((TailProbe | Persist | KeepAlive, _)) => {
                self.arm_probe_or_timeout(now);
            }
            Some((Timeout, _)) if was_idle => self.arm_probe_or_timeout(now),
            Some(_) => {}
        }
    }
}
