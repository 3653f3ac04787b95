//! The three-way handshake (RFC 9293 section 3.5) and the options it agrees on.
//!
//! ```text
//!   client                          server
//!   SynSent      ── SYN ──►         Listen
//!                ◄─ SYN-ACK ──      SynReceived
//!   Established  ── ACK ──►         Established
//! ```

use fullpipe_units::{Duration, Ecn, Instant};

use super::timers::RetransmitTimer;
use super::{Connection, Event, State};
use crate::cc::Hints;
use crate::tx::build;
use crate::wire::{Flags, SackBlocks, Segment, SynOptions};

/// Retransmissions of a SYN before giving up, and how many of them are a second apart before the
/// interval doubles (TCP-9).
const SYN_RETRIES: u32 = 10;
const SYN_LINEAR_TIMEOUTS: u32 = 4;
/// Retransmissions of a SYN-ACK before giving up.
const SYN_ACK_RETRIES: u32 = 5;

impl Connection {
    /// Begins to connect: the next transmission is a SYN.
    pub fn open(&mut self) {
        if self.state == State::Closed && self.stats.segments_sent == 0 {
            self.state = State::SynSent;
            self.syn_pending = true;
        }
    }

    /// The SYN or SYN-ACK, if one is to be sent.
    pub(super) fn transmit_syn(&mut self, now: Instant) -> Option<Segment> {
        if !std::mem::take(&mut self.syn_pending) {
            return None;
        }
        let answer = self.state == State::SynReceived;
        self.syn_sent_at = now;
        self.retransmit_timer = Some((RetransmitTimer::Timeout, now + self.syn_timeout(answer)));
        let window = self.window.offer_in_syn(self.mss);
        let ecn = self.ecn.of_syn(answer, self.config.ecn, self.syn_retries > 0);
        Some(Segment {
            seq: self.iss,
            ack: if answer { self.irs.plus(1) } else { Default::default() },
            len: 0,
            window,
            flags: if answer { Flags::SYN.with(Flags::ACK) } else { Flags::SYN }.with(ecn),
            timestamps: self.has_timestamps.then(|| self.timestamps(now)),
            syn: Some(SynOptions {
                mss: u16::try_from(self.config.mtu.saturating_sub(40)).unwrap_or(u16::MAX),
                window_scale: Some(self.window.scale()),
                sack_permitted: self.has_sack,
            }),
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        })
    }

    fn syn_timeout(&self, answer: bool) -> Duration {
        let linear = if answer { 0 } else { SYN_LINEAR_TIMEOUTS };
        Duration::from_secs(1) * (1 << self.syn_retries.saturating_sub(linear).min(7))
    }

    /// The SYN or SYN-ACK was not answered in time.
    pub(super) fn on_syn_timeout(&mut self) {
        let most = if self.state == State::SynReceived { SYN_ACK_RETRIES } else { SYN_RETRIES };
        if self.syn_retries >= most {
            self.abort();
            return;
        }
        self.syn_retries += 1;
        self.syn_pending = true;
    }

    /// A segment before the connection is there. True when it is there now, and the segment is to be handled
    /// further.
    #[cold]
    pub(super) fn on_early_segment(&mut self, now: Instant, segment: &Segment) -> bool {
        match self.state {
            State::Closed => {}
            State::Listen => self.on_segment_in_listen(now, segment),
            State::SynSent => self.on_segment_in_syn_sent(now, segment),
            State::SynReceived => return self.on_segment_in_syn_received(now, segment),
            State::Established => return true,
        }
        false
    }

    /// A segment in `Listen`: only a SYN means anything.
    fn on_segment_in_listen(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::RST) {
            self.agree(now, segment);
            self.state = State::SynReceived;
            self.syn_pending = true;
        }
    }

    /// A segment in `SynSent`: the SYN-ACK, if it acknowledges our SYN (TCP-2).
    fn on_segment_in_syn_sent(&mut self, now: Instant, segment: &Segment) {
        let acknowledges = segment.flags.has(Flags::ACK) && segment.ack == self.iss.plus(1);
        if !acknowledges {
            return;
        }
        if segment.flags.has(Flags::RST) {
            self.abort();
        } else if segment.flags.has(Flags::SYN) {
            self.agree(now, segment);
            self.establish(now, segment);
            self.acks.demand();
        }
    }

    /// A segment in `SynReceived`. True when it completes the handshake and is to be handled further.
    fn on_segment_in_syn_received(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.flags.has(Flags::SYN) {
            // The SYN-ACK was lost, or is late.
            self.syn_pending = true;
            return false;
        }
        if segment.flags.has(Flags::ACK) && segment.ack == self.iss.plus(1) {
            self.establish(now, segment);
            return true;
        }
        false
    }

    /// Takes what the peer's SYN says. An option counts only if both sides sent it.
    fn agree(&mut self, now: Instant, segment: &Segment) {
        self.irs = segment.seq;
        self.ecn.agree(segment, self.config.ecn);
        let Some(options) = segment.syn else { return };
        self.has_sack &= options.sack_permitted;
        self.has_timestamps &= segment.timestamps.is_some();
        match options.window_scale {
            Some(shift) => self.peer_scale = shift.min(14),
            None => self.window.disable_scaling(),
        }
        if let Some(timestamps) = segment.timestamps {
            self.ts_recent = timestamps.value;
            self.ts_recent_at = now;
        }
        // Absent, or absurd: RFC 9293's default and the kernel's floor (MSS-2, MSS-3).
        let peer_mss = u64::from(if options.mss == 0 { 536 } else { options.mss }).max(88);
        let own_mss = self.config.mtu.saturating_sub(40);
        let option_bytes = if self.has_timestamps { 12 } else { 0 };
        self.mss = own_mss.min(peer_mss).saturating_sub(option_bytes).max(48);
    }

    fn establish(&mut self, now: Instant, segment: &Segment) {
        self.state = State::Established;
        self.window.on_established(now);
        self.retransmit_timer = None;
        // A SYN's own window is never scaled; in SynReceived the segment is an ordinary one.
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.peer_scale };
        self.snd_wnd = u64::from(segment.window) << shift;
        self.max_snd_wnd = self.snd_wnd;
        self.mss = build::bound_to_half_window(self.mss, self.snd_wnd);
        // Karn: a retransmitted SYN gives no sample.
        if self.syn_retries == 0 {
            let rtt = now.saturating_since(self.syn_sent_at);
            self.rtt.on_sample(rtt, 0, 0);
            self.rtt.on_min_sample(rtt, now);
        }
        self.rate.delivered_time = now;
        // TCP-10: a SYN lost more than once is a sign of congestion; begin with one segment.
        let initial_cwnd = if self.syn_retries > 1 { self.mss } else { 10 * self.mss };
        let slow_start = self.config.slow_start;
        let hints = Hints { rtt: self.rtt.srtt(), initial_cwnd: Some(initial_cwnd), slow_start };
        let cx = self.context(now);
        self.cc = self.config.cc.build(&cx, &hints);
        self.refresh_control(&cx);
        self.queue.autotune(self.control.cwnd, self.mss, 2);
        self.events.add(Event::Connected);
    }

    pub(super) fn abort(&mut self) {
        self.state = State::Closed;
        self.retransmit_timer = None;
        self.events.add(Event::Aborted);
    }
}
