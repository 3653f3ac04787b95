//! The three-way handshake (RFC 9293 section 3.5) and the options it agrees on.
//!
//! ```text
//!   client                          server               both at once
//!   SynSent      ── SYN ──►         Listen               SynSent      ── SYN ──►  ◄── SYN ──      SynSent
//!                ◄─ SYN-ACK ──      SynReceived          SynReceived  ─ SYN-ACK ─►◄─ SYN-ACK ─    SynReceived
//!   Established  ── ACK ──►         Established          Established                              Established
//! ```
//!
//! What acknowledges a SYN that was not sent is answered with a reset: the peer takes us for somebody who is gone.

use fullpipe_units::{Duration, Ecn, Instant};

use super::reset::reset_for;
use super::timers::RetransmitTimer;
use super::{Connection, Event, State};
use crate::cc::Hints;
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
        if self.state == State::Closed && !self.over {
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
        if self.syn_transmissions == 0 {
            self.opened_at = now;
        }
        self.syn_sent_at = now;
        self.syn_transmissions += 1;
        // An answer that was asked for again does not put off the end of waiting.
        let due = now + self.syn_timeout(answer);
        let due = self.within_user_timeout(due);
        self.retransmit_timer.get_or_insert((RetransmitTimer::Timeout, due));
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
                mss: u16::try_from(self.own_mss()).unwrap_or(u16::MAX),
                window_scale: Some(self.window.scale()),
                sack_permitted: self.has_sack,
            }),
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        })
    }

    /// Payload of the largest packet if it had no options (RFC 9293 section 3.7.1).
    fn own_mss(&self) -> u64 {
        self.config.mtu.saturating_sub(self.config.ip.headers())
    }

    fn syn_timeout(&self, answer: bool) -> Duration {
        let linear = if answer { 0 } else { SYN_LINEAR_TIMEOUTS };
        Duration::from_secs(1) * (1 << self.syn_retries.saturating_sub(linear).min(7))
    }

    /// The SYN or SYN-ACK was not answered in time.
    pub(super) fn on_syn_timeout(&mut self, now: Instant) {
        let most = if self.passive { SYN_ACK_RETRIES } else { SYN_RETRIES };
        if self.syn_retries >= most {
            self.end(now, Event::Aborted);
            return;
        }
        if self.exceeds_user_timeout(now) {
            return;
        }
        self.syn_retries += 1;
        self.syn_pending = true;
    }

    /// A segment before the connection is there, or after it. True when it is there now, and the segment is to be
    /// handled further.
    #[cold]
    pub(super) fn on_segment_without_data(&mut self, now: Instant, segment: &Segment) -> bool {
        match self.state {
            State::Closed => self.reset_due = reset_for(segment),
            State::Listen => self.on_segment_in_listen(now, segment),
            State::SynSent => self.on_segment_in_syn_sent(now, segment),
            State::SynReceived => return self.on_segment_in_syn_received(now, segment),
            State::TimeWait => self.on_segment_in_time_wait(now, segment),
            _ => return true,
        }
        false
    }

    /// A segment in `Listen`: a SYN opens, an ACK is of a connection that is not known (TCP-3).
    fn on_segment_in_listen(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.has(Flags::ACK) {
            self.reset_due = reset_for(segment);
        } else if segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::RST) {
            self.agree(now, segment);
            self.state = State::SynReceived;
            self.syn_pending = true;
        }
    }

    /// A segment in `SynSent`: the SYN-ACK, if it acknowledges our SYN, or the SYN of a peer that opens at the same time
    /// (TCP-1). What acknowledges anything else is reset (TCP-2).
    fn on_segment_in_syn_sent(&mut self, now: Instant, segment: &Segment) {
        let acknowledges = segment.flags.has(Flags::ACK);
        if acknowledges && segment.ack != self.iss.plus(1) {
            self.reset_due = reset_for(segment);
        } else if segment.flags.has(Flags::RST) {
            // Without an ACK anybody could have guessed it.
            if acknowledges {
                self.end(now, Event::Aborted);
            }
        } else if segment.flags.has(Flags::SYN) {
            self.agree(now, segment);
            if acknowledges {
                self.establish(now, segment);
                self.acks.demand();
            } else {
                self.state = State::SynReceived;
                self.retransmit_timer = None;
                self.syn_pending = true;
            }
        }
    }

    /// A segment in `SynReceived`. True when it completes the handshake and is to be handled further.
    fn on_segment_in_syn_received(&mut self, now: Instant, segment: &Segment) -> bool {
        let acknowledges = segment.flags.has(Flags::ACK) && segment.ack == self.iss.plus(1);
        let offset = segment.seq.offset_near(self.irs.plus(1), 0);
        let in_window = offset.is_some_and(|offset| offset <= self.window.edge());
        if segment.flags.has(Flags::RST) {
            match offset {
                Some(0) => self.on_refusal(now),
                _ if in_window => self.challenge(now),
                _ => {}
            }
        } else if segment.flags.has(Flags::SYN) && segment.seq == self.irs {
            if acknowledges && !self.passive {
                // Both have opened at the same time: their SYN-ACK acknowledges ours.
                self.establish(now, segment);
            } else {
                // The SYN-ACK was lost, or is late.
                self.syn_pending = true;
            }
        } else if segment.flags.has(Flags::SYN)
            || offset.is_none_or(|start| self.is_stale(now, segment, start))
            || !in_window
        {
            self.challenge(now);
        } else if acknowledges {
            self.establish(now, segment);
            return true;
        } else if segment.flags.has(Flags::ACK) {
            self.reset_due = reset_for(segment);
        }
        false
    }

    /// The peer does not want the connection. Who was opened by a SYN waits for the next one (RFC 9293 MUST-11), and nobody
    /// is told.
    fn on_refusal(&mut self, now: Instant) {
        if !self.passive || self.detached {
            self.end(now, Event::Aborted);
            return;
        }
        let fresh = Self::new(self.config.clone(), State::Listen);
        // Numbers of the next attempt do not overlap with those of this one.
        *self = Self { iss: self.iss.plus(65_537), queue: self.queue.clone(), ..fresh };
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
        let default = self.config.ip.default_mss();
        let peer_mss = u64::from(if options.mss == 0 { default } else { options.mss }).max(88);
        self.path_mss = self.own_mss().min(peer_mss).saturating_sub(self.option_bytes()).max(48);
        self.mss = self.path_mss;
    }

    fn establish(&mut self, now: Instant, segment: &Segment) {
        // Who has closed in the meantime goes on at once.
        self.state = if self.queue.is_closed() { State::FinWait1 } else { State::Established };
        self.window.on_established(now);
        self.heard_at = now;
        self.retransmit_timer = self.silence_timer();
        // A SYN's own window is never scaled; in SynReceived the segment is an ordinary one.
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.peer_scale };
        self.snd_wnd = u64::from(segment.window) << shift;
        self.max_snd_wnd = self.snd_wnd;
        self.mss = self.bounded_mss();
        // Karn: a SYN that was sent again gives no sample.
        if self.syn_transmissions == 1 && self.syn_retries == 0 {
            let rtt = now.saturating_since(self.syn_sent_at);
            self.rtt.on_sample(rtt, 0, 0);
            self.rtt.on_min_sample(rtt, now);
        }
        self.rate.delivered_time = now;
        // TCP-10: a SYN lost more than once is a sign of congestion; begin with one segment.
        let initial_cwnd = if self.syn_retries > 1 { self.mss } else { self.config.initial_window(self.mss) };
        let slow_start = self.config.slow_start;
        let hints = Hints { rtt: self.rtt.srtt(), initial_cwnd: Some(initial_cwnd), slow_start };
        let cx = self.context(now);
        self.cc = self.config.cc.build(&cx, &hints);
        self.refresh_control(&cx);
        self.queue.autotune(self.control.cwnd, self.mss, 2);
        self.events.add(Event::Connected);
    }
}
