//! What to send now: lost data first, then new data, then a bare ACK.

use fullpipe_units::{Duration, Ecn, Instant};

use super::timers::RetransmitTimer;
use super::{Connection, Phase, ProbeKind, State, Transmit};
use crate::SendLimit;
use crate::cc::{Sent, SentKind, Signal};
use crate::estimate::RateSnapshot;
use crate::recovery::scoreboard::RecordNo;
use crate::tx::build::{self, Room};
use crate::wire::{Flags, SackBlocks, Segment};

impl Connection {
    /// There is nothing to ask [`Connection::poll_transmit`] for: a receiver between two ACKs.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.state.carries_data() && self.only_acknowledges() && !self.acks.is_due()
    }

    /// The next transmission, or `None` when nothing may be sent now.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if !self.state.carries_data() {
            return self.poll_without_data(now);
        }
        if !self.only_acknowledges()
            && let Some(transmit) = self.poll_data(now)
        {
            return Some(transmit);
        }
        if self.acks.is_due() {
            let segment = self.segment(now, self.snd_nxt, 0, Flags::ACK);
            return Some(Transmit { segment, gso_size: 0, depart_at: now });
        }
        None
    }

    #[cold]
    fn poll_without_data(&mut self, now: Instant) -> Option<Transmit> {
        let segment = match (self.reset_due.take(), self.state) {
            (Some(reset), _) => reset,
            (None, State::SynSent | State::SynReceived) if self.syn_pending => self.transmit_syn(now)?,
            (None, State::SynReceived) if self.acks.is_due() => self.segment(now, 0, 0, Flags::ACK),
            (None, State::TimeWait) if self.acks.is_due() => {
                self.acks.on_ack_sent();
                self.time_wait.as_ref()?.acknowledgement(now)
            }
            _ => return None,
        };
        Some(Transmit { segment, gso_size: 0, depart_at: now })
    }

    /// Nothing is outstanding or waits to be sent, and that is already on record: the receiving side of a
    /// transfer, which is asked after every segment.
    fn only_acknowledges(&self) -> bool {
        self.board.is_empty()
            && self.queue.written() <= self.snd_nxt
            && self.limits.current == SendLimit::App
            && self.probe_due.is_none()
            && !self.queue.is_blocked()
            && !self.queue.is_closed()
    }

    fn poll_data(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(kind) = self.probe_due.take()
            && let Some(transmit) = self.transmit_probe(now, kind)
        {
            return Some(transmit);
        }
        if self.paced() {
            self.settle_release();
        }
        let lost = self.board.next_lost();
        if std::mem::take(&mut self.force_retransmit)
            && let Some(number) = lost
        {
            return Some(self.retransmit(now, number, SentKind::Retransmission));
        }
        let lost = if self.rto.asks_with_new_data() { self.ask_or_repair(lost, now) } else { lost };
        let limit = match self.next_step(lost, now) {
            Step::Retransmit(number) => return Some(self.retransmit(now, number, SentKind::Retransmission)),
            Step::New { len } => return Some(self.transmit_new(now, len)),
            Step::Fin => return Some(self.transmit_fin(now)),
            Step::Stop(limit) => limit,
        };
        self.limits.set(now, limit);
        self.guard_closed_window(now, limit);
        None
    }

    /// F-RTO: while the path is asked with new data what is lost waits; unless nothing new can go.
    #[cold]
    fn ask_or_repair(&mut self, lost: Option<RecordNo>, now: Instant) -> Option<RecordNo> {
        let asked = self.rto.has_asked(self.snd_nxt);
        if !asked && !matches!(self.next_step(None, now), Step::New { .. } | Step::Stop(SendLimit::Pacing)) {
            self.rto.confirm();
            return lost;
        }
        None
    }

    /// Chooses between lost and new data, or says what forbids both.
    #[inline(always)]
    fn next_step(&self, lost: Option<RecordNo>, now: Instant) -> Step {
        let inflight = self.board.inflight();
        let cwnd = self.effective_cwnd();
        let unsent = self.unsent();
        let fin_pending = self.queue.is_closed() && !self.fin_sent && unsent == 0;
        if lost.is_none() && unsent == 0 && !fin_pending {
            return Step::Stop(if self.queue.is_blocked() { SendLimit::Sndbuf } else { SendLimit::App });
        }
        if fin_pending && lost.is_none() {
            // In a kernel the FIN rides on the last segment; here it is its own, and takes no room.
            return Step::Fin;
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
        let rwnd = self.window_left();
        // The kernel never fills more than half a window with one transmission.
        let in_window = (cwnd - inflight).min((cwnd / 2).max(self.mss));
        let quantum = match &self.release_basis {
            None => self.release.quantum,
            Some(basis) => {
                basis.quantum_for(unsent.min(in_window).min(rwnd), &self.control, self.config.max_pacing_rate)
            }
        };
        let room = Room {
            unsent,
            cwnd: in_window,
            rwnd,
            quantum,
            short_outstanding: self.short_until > self.snd_una,
            last: self.queue.is_closed(),
        };
        match build::next_length(room, self.mss) {
            0 if rwnd < self.mss.min(unsent) => Step::Stop(SendLimit::Rwnd),
            0 if cwnd - inflight < self.mss.min(unsent) => Step::Stop(self.window_limit()),
            // A short rest that waits for more: the writer is the limit, or the buffer it waits for.
            0 if self.queue.is_blocked() => Step::Stop(SendLimit::Sndbuf),
            0 => Step::Stop(SendLimit::App),
            len => Step::New { len },
        }
    }

    /// Bytes that were written and have not been sent.
    #[inline]
    pub(super) fn unsent(&self) -> u64 {
        self.queue.written().saturating_sub(self.snd_nxt)
    }

    /// Bytes that the peer's window still takes.
    #[inline]
    pub(super) fn window_left(&self) -> u64 {
        (self.snd_una + self.snd_wnd).saturating_sub(self.snd_nxt)
    }

    fn window_limit(&self) -> SendLimit {
        match self.phase {
            _ if self.is_reducing() => SendLimit::Recovery,
            Phase::Recovery { .. } | Phase::Loss => SendLimit::Recovery,
            Phase::Open if self.control.cwnd < self.control.ssthresh => SendLimit::SlowStart,
            Phase::Open => SendLimit::Cwnd,
        }
    }

    /// Releases are held back by the pacer.
    pub(super) fn paced(&self) -> bool {
        if self.config.max_pacing_rate.is_some() {
            return true;
        }
        match self.control.pacing {
            crate::cc::Pacing::Unpaced => false,
            crate::cc::Pacing::SrttRatio { .. } => self.config.fair_queue,
            crate::cc::Pacing::Rate(_) => true,
        }
    }

    /// When the pacer lets the next transmission go, if it is the pacer that holds it.
    pub(super) fn pacing_deadline(&self) -> Instant {
        if self.limits.current == SendLimit::Pacing {
            self.pacer.next_departure()
        } else {
            Instant::FAR_FUTURE
        }
    }

    fn transmit_new(&mut self, now: Instant, len: u64) -> Transmit {
        self.restart_after_idle(now);
        let offset = self.snd_nxt;
        let first_after_idle = self.board.is_empty();
        let inflight = self.board.inflight();
        let snapshot = self.rate.on_send(now, inflight, len, self.board.lost_total());
        let (mut at, end, mut segments) = (offset, offset + len, 0);
        while at < end {
            // At most one MSS, which fits.
            let piece = self.mss.min(end - at) as u32;
            at += u64::from(piece);
            segments += 1;
            // Within a transmission each segment adds to what is in flight.
            let snapshot = RateSnapshot { tx_in_flight: inflight + (at - offset), ..snapshot };
            self.board.push_new(at - u64::from(piece), piece, false, now, snapshot);
        }
        self.snd_nxt = end;
        if len < segments * self.mss && !self.config.nodelay {
            self.short_until = end;
        }
        let sent =
            Sent { offset, len, kind: SentKind::New, first_after_idle, idle: Duration::ZERO, departure: now };
        self.on_sent(now, sent, segments);
        let limited = self.board.inflight() >= self.effective_cwnd();
        self.usage.on_send(self.snd_una, self.snd_nxt, self.snd_nxt - self.snd_una, limited);
        self.rearm_after_send(now, first_after_idle);
        let (ecn, cwr) = self.ecn.of_new_data();
        let mut transmit = self.data_segment(now, offset, len, Flags::ACK.with(Flags::PSH).with(cwr));
        transmit.segment.ecn = ecn;
        transmit
    }

    fn transmit_fin(&mut self, now: Instant) -> Transmit {
        let offset = self.snd_nxt;
        let first_after_idle = self.board.is_empty();
        let snapshot = self.rate.on_send(now, self.board.inflight(), 1, self.board.lost_total());
        self.board.push_new(offset, 1, true, now, snapshot);
        self.snd_nxt += 1;
        self.fin_sent = true;
        self.rearm_after_send(now, first_after_idle);
        self.data_segment(now, offset, 0, Flags::ACK.with(Flags::FIN))
    }

    fn retransmit(&mut self, now: Instant, number: RecordNo, kind: SentKind) -> Transmit {
        let inflight = self.board.inflight();
        let (offset, len, fin) = self
            .board
            .get(number)
            .map_or((self.snd_una, 0, false), |record| (record.offset, record.len, record.fin));
        let snapshot = self.rate.on_send(now, inflight, u64::from(len), self.board.lost_total());
        self.board.on_resent(number, now, snapshot, kind != SentKind::Retransmission);
        if self.has_sack {
            self.rack.on_resent(number, now);
        }
        self.undo.on_retransmission(super::input::clock(now));
        self.stats.retransmits += 1;
        let sent = Sent {
            offset,
            len: len.into(),
            kind,
            first_after_idle: false,
            idle: Duration::ZERO,
            departure: now,
        };
        self.on_sent(now, sent, u64::from(len).div_ceil(self.mss));
        if self.retransmit_timer.is_none() {
            self.arm_timeout(now);
        }
        if fin {
            return self.data_segment(now, offset, 0, Flags::ACK.with(Flags::FIN));
        }
        self.data_segment(now, offset, len.into(), Flags::ACK)
    }

    /// Sends a tail loss probe (new data if there is some, else the newest again), or a window probe.
    fn transmit_probe(&mut self, now: Instant, kind: ProbeKind) -> Option<Transmit> {
        let unsent = self.unsent();
        let rwnd = self.window_left();
        match kind {
            ProbeKind::Window => {
                let len = unsent.min(rwnd).min(self.mss);
                if len > 0 {
                    // A window too small for a whole segment, of which nothing more was heard: better a short segment now than
                    // none ever (RFC 9293 section 3.8.6.2.1, the override timeout).
                    self.rto.on_valid_sample();
                    return Some(self.transmit_new(now, len));
                }
                self.arm_persist(now);
                Some(self.question(now))
            }
            ProbeKind::KeepAlive => Some(self.question(now)),
            ProbeKind::Tail => {
                self.stats.probes += 1;
                let len = unsent.min(self.mss);
                let transmit = if len > 0 && len <= rwnd {
                    let transmit = self.transmit_new(now, len);
                    self.probe.on_sent(self.snd_nxt, false);
                    transmit
                } else {
                    let Some(number) = self.newest_in_network() else {
                        self.arm_timeout(now);
                        return None;
                    };
                    let transmit = self.retransmit(now, number, SentKind::Probe);
                    self.probe.on_sent(self.snd_nxt, true);
                    transmit
                };
                self.arm_timeout(now);
                Some(transmit)
            }
        }
    }

    /// An octet that the peer has already acknowledged, and none (ZWP-1, KA-3): it must answer.
    fn question(&mut self, now: Instant) -> Transmit {
        let seq = self.iss.plus(self.snd_una);
        let segment = self.segment(now, self.snd_nxt, 0, Flags::ACK);
        Transmit { segment: Segment { seq, ..segment }, gso_size: 0, depart_at: now }
    }

    fn on_sent(&mut self, now: Instant, sent: Sent, segments: u64) {
        self.stats.segments_sent += segments;
        self.stats.bytes_sent += sent.len;
        let last = self.last_sent_at.replace(now);
        if self.is_reducing() {
            self.prr.on_send(sent.len);
        }
        let rate = if self.paced() { self.release().rate } else { None };
        self.pacer.on_send(now, sent.len, segments, rate);
        if sent.first_after_idle || self.cc.follows_sends() {
            self.tell_of_send(now, sent, last);
        }
    }

    #[inline(never)]
    fn tell_of_send(&mut self, now: Instant, sent: Sent, last: Option<Instant>) {
        let cx = self.context(now);
        let idle = last.map_or(Duration::ZERO, |last| now.saturating_since(last));
        self.cc.on_send(&cx, &Sent { idle, ..sent });
        if sent.first_after_idle {
            self.refresh_control(&cx);
        }
    }

    /// SS-5: after an idle period the window no longer says what the path bears. Waiting for the peer's
    /// window is not idling (ZWP-4).
    fn restart_after_idle(&mut self, now: Instant) {
        if !self.config.slow_start_after_idle
            || !self.board.is_empty()
            || self.limits.current == SendLimit::Rwnd
        {
            return;
        }
        let Some(last) = self.last_sent_at else { return };
        let (idle, rto) = (now.saturating_since(last), self.rto.timeout(&self.rtt));
        if idle > rto {
            self.signal(now, Signal::Idle { idle, rto });
        }
    }

    fn rearm_after_send(&mut self, now: Instant, was_idle: bool) {
        use RetransmitTimer::{KeepAlive, Persist, TailProbe, Timeout};
        if was_idle {
            self.rto_base = now;
        }
        match self.retransmit_timer {
            Some((TailProbe, _)) if self.probe_armed_at == Some(now) => {}
            None | Some((TailProbe | Persist | KeepAlive, _)) => {
                self.arm_probe_or_timeout(now);
            }
            Some((Timeout, _)) if was_idle => self.arm_probe_or_timeout(now),
            Some(_) => {}
        }
    }

    /// With the peer's window closed and nothing in flight, only a probe can learn that it reopened.
    fn guard_closed_window(&mut self, now: Instant, limit: SendLimit) {
        let idle = self.retransmit_timer.is_none_or(|(timer, _)| timer.is_of_silence());
        if limit == SendLimit::Rwnd && self.board.is_empty() && idle {
            self.rto_base = now;
            self.arm_persist(now);
        }
    }

    fn arm_persist(&mut self, now: Instant) {
        let due = now + self.rto.timeout(&self.rtt);
        self.retransmit_timer = Some((RetransmitTimer::Persist, self.within_user_timeout(due)));
    }

    fn data_segment(&mut self, now: Instant, offset: u64, len: u64, flags: Flags) -> Transmit {
        let segment = self.segment(now, offset, len, flags);
        // At most 64 KiB of segments of at most 64 KiB.
        Transmit { segment, gso_size: self.mss as u32, depart_at: now }
    }

    /// A segment at `offset`; it acknowledges what has been received, whatever else it carries.
    fn segment(&mut self, now: Instant, offset: u64, len: u64, flags: Flags) -> Segment {
        let rcv_nxt = self.reassembly.rcv_nxt();
        let window = self.window.offer(rcv_nxt, self.reassembly.held_bytes(), self.readable(), self.rcv_mss);
        let origin = self.irs.plus(1);
        let sack = if self.has_sack && self.reassembly.has_reports() {
            self.sack_blocks()
        } else {
            SackBlocks::default()
        };
        let timestamps = self.has_timestamps.then(|| self.timestamps(now));
        self.last_ack_sent = rcv_nxt;
        self.acks.on_ack_sent();
        Segment {
            seq: self.iss.plus(1).plus(offset),
            ack: origin.plus(rcv_nxt),
            len: len as u32,
            window,
            flags: flags.with(self.ecn.of_ack()),
            timestamps,
            syn: None,
            sack,
            ecn: Ecn::NotEct,
        }
    }

    /// What arrived out of place, the newest change first, behind a duplicate if there is one to report.
    #[cold]
    fn sack_blocks(&mut self) -> SackBlocks {
        let origin = self.irs.plus(1);
        let mut sack = SackBlocks::default();
        let most = if self.has_timestamps { 3 } else { 4 };
        let duplicate = self.reassembly.take_duplicate();
        let blocks = duplicate.iter().chain(self.reassembly.recent());
        for &(start, end) in blocks.take(most) {
            sack.push(origin.plus(start), origin.plus(end));
        }
        sack
    }
}

/// What `poll_data` does next.
enum Step {
    Retransmit(RecordNo),
    New { len: u64 },
    Fin,
    Stop(SendLimit),
}
