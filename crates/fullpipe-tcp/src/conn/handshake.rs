//! The three-way handshake (RFC 9293 section 3.5) and the options that it negotiates.
//!
//! ```text
//!   client                      server               simultaneous open
//!   SynSent      ── SYN ──►     Listen               SynSent      ── SYN ──►  ◄── SYN ──      SynSent
//!                ◄─ SYN-ACK ──  SynReceived          SynReceived  ─ SYN-ACK ─►◄─ SYN-ACK ─    SynReceived
//!   Established  ── ACK ──►     Established          Established                              Established
//! ```
//!
//! If a segment acknowledges a SYN that was never sent, the reply is a reset, because the peer still
//! considers an earlier connection to be open.

use fullpipe_units::{Duration, Ecn, Instant};

use super::config::Config;
use super::ecn;
use super::reset::reset_for;
use super::sender::RetransmitTimer;
use super::{Connection, Event, State};
use crate::tunables::SYN_ACK_EARLY;
use crate::wire::{Flags, SackBlocks, Segment, SynOptions, Timestamps};

/// Number of retransmissions of a SYN that are sent one second apart before the interval starts to double
/// (TCP-9).
const SYN_LINEAR_TIMEOUTS: u32 = 4;

/// TCP options that both ends have offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Whether selective acknowledgement is used (RFC 2018).
    pub(super) sack: bool,
    /// Whether timestamps are used (RFC 7323).
    pub(super) timestamps: bool,
}

impl Agreed {
    /// Returns the size of the TCP options that every segment carries, in bytes.
    pub(super) const fn option_bytes(self) -> u64 {
        if self.timestamps { 12 } else { 0 }
    }
}

/// Progress of the handshake. The negotiated values are passed to the sending and the receiving half.
#[derive(Debug)]
pub(super) struct Handshake {
    /// Whether the peer's SYN opened the connection.
    pub(super) passive: bool,
    /// Whether a SYN or SYN-ACK is due to be sent.
    pub(super) pending: bool,
    /// Number of timeouts since the handshake began.
    pub(super) retries: u32,
    /// Number of SYNs or SYN-ACKs sent, for any reason.
    pub(super) transmissions: u32,
    /// Departure time of the first SYN or SYN-ACK.
    pub(super) opened_at: Instant,
    /// Smallest RTT of an earlier connection to the same client, if it is known.
    pub(super) known_rtt: Option<Duration>,
}

impl Handshake {
    pub(super) fn new(passive: bool) -> Self {
        Self {
            passive,
            pending: false,
            retries: 0,
            transmissions: 0,
            opened_at: Instant::ZERO,
            known_rtt: None,
        }
    }

    /// Returns whether a SYN or SYN-ACK is due to be sent.
    pub(super) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Records the departure of a SYN-ACK (if `answer`) or a SYN, and returns the time at which its
    /// retransmission is due.
    fn on_transmission(&mut self, now: Instant, answer: bool, config: &Config) -> Instant {
        self.pending = false;
        if self.transmissions == 0 {
            self.opened_at = now;
        }
        self.transmissions += 1;
        let due = now + self.timeout(answer, config);
        config.user_timeout.map_or(due, |most| due.min(self.opened_at + most))
    }

    /// Returns the time after which an early retransmission of the SYN-ACK is due; `None` if there is none.
    /// If the RTT of an earlier connection is known, the time is 1.5 times this RTT, within the limits of
    /// [`SYN_ACK_EARLY`].
    fn early(&self, config: &Config) -> Option<Duration> {
        let unknown = config.tunables.syn_ack_early.filter(|_| self.passive)?;
        let known = self.known_rtt.map(|rtt| (rtt + rtt / 2).clamp(SYN_ACK_EARLY.0, SYN_ACK_EARLY.1));
        Some(known.unwrap_or(unknown))
    }

    /// Returns the time from the transmission of a SYN-ACK (if `answer`) or a SYN until its retransmission.
    fn timeout(&self, answer: bool, config: &Config) -> Duration {
        let early = self.early(config);
        if let Some(early) = early.filter(|_| self.retries == 0) {
            return early;
        }
        // The early retransmission does not double the timeout, but starts the timeout of one second.
        let linear = if answer { u32::from(early.is_some()) } else { SYN_LINEAR_TIMEOUTS };
        Duration::from_secs(1) * (1 << self.retries.saturating_sub(linear).min(7))
    }

    /// Handles a SYN or SYN-ACK that was not answered in time. Returns whether the connection gives up.
    fn on_timeout(&mut self, now: Instant, config: &Config) -> bool {
        let retries = config.tunables.retries;
        let early = u32::from(self.early(config).is_some());
        let most = if self.passive { retries.syn_ack + early } else { retries.syn };
        let waited = now.saturating_since(self.opened_at);
        if self.retries >= most || config.user_timeout.is_some_and(|most| waited >= most) {
            return true;
        }
        self.retries += 1;
        self.pending = true;
        false
    }

    /// Returns the handshake RTT when the reply arrives, or `None` if the RTT is ambiguous because the SYN or
    /// SYN-ACK was retransmitted (Karn's rule). After an early retransmission, the timestamp that the reply
    /// echoes (`echo`) may still be that of the first SYN-ACK.
    fn rtt(&self, now: Instant, echo: Option<u32>, config: &Config) -> Option<Duration> {
        let only_one = self.transmissions == 1 && self.retries == 0;
        let of_first = only_one || self.is_answer_to_first(echo, config);
        of_first.then(|| now.saturating_since(self.opened_at))
    }

    /// Returns the number of SYNs or SYN-ACKs to consider lost when the reply arrives. An early
    /// retransmission implies a loss, unless the timestamp that the reply echoes (`echo`) shows that the
    /// first SYN-ACK arrived.
    fn lost(&self, echo: Option<u32>, config: &Config) -> u32 {
        self.retries - u32::from(self.is_answer_to_first(echo, config))
    }

    /// Returns whether a SYN-ACK was retransmitted early although the first one has arrived.
    fn is_answer_to_first(&self, echo: Option<u32>, config: &Config) -> bool {
        let first = Timestamps::clock(self.opened_at);
        let retransmitted = self.retries > 0 && self.transmissions > 1;
        retransmitted && self.early(config).is_some() && echo == Some(first)
    }
}

impl Connection {
    /// Starts the handshake. The next transmission is a SYN.
    pub fn open(&mut self) {
        if self.lifecycle.state == State::Closed && !self.lifecycle.over {
            self.lifecycle.state = State::SynSent;
            self.handshake.pending = true;
        }
    }

    /// Builds the SYN or SYN-ACK that is due to be sent.
    pub(super) fn transmit_syn(&mut self, now: Instant) -> Segment {
        let answer = self.lifecycle.state == State::SynReceived;
        let repeated = self.handshake.retries > 0;
        let due = self.handshake.on_transmission(now, answer, &self.config);
        // A SYN-ACK retransmitted in response to a retransmitted SYN does not postpone the timeout.
        self.sender.timer.get_or_insert((RetransmitTimer::Timeout, due));
        let agreed = self.sender.agreed;
        let ecn = ecn::of_syn(answer, self.sender.ecn.agreed, self.config.ecn, repeated);
        // The advertised window is a multiple of the size of segments that this host receives. The peer's MSS
        // limits only the segments that this host sends.
        let mss = if answer { self.received_mss(agreed) } else { self.sender.mss };
        Segment {
            seq: self.sender.iss,
            ack: if answer { self.receiver.irs.plus(1) } else { Default::default() },
            len: 0,
            window: self.receiver.window.offer_in_syn(mss),
            flags: if answer { Flags::SYN.with(Flags::ACK) } else { Flags::SYN }.with(ecn),
            timestamps: self.receiver.timestamps(now),
            syn: Some(SynOptions {
                mss: u16::try_from(self.own_mss()).unwrap_or(u16::MAX),
                window_scale: self.receiver.window.offered_scale(),
                sack_permitted: agreed.sack,
            }),
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }

    /// Returns the value of this host's MSS option: the payload length of the largest packet without TCP
    /// options (RFC 9293 section 3.7.1).
    fn own_mss(&self) -> u64 {
        self.config.mtu.saturating_sub(self.config.ip.headers())
    }

    /// Returns the payload length of the largest segment that this host can receive if the `agreed` options
    /// are in use.
    fn received_mss(&self, agreed: Agreed) -> u64 {
        self.own_mss().saturating_sub(agreed.option_bytes()).max(48)
    }

    /// Handles a SYN or SYN-ACK that was not answered in time.
    pub(super) fn on_syn_timeout(&mut self, now: Instant) {
        if self.handshake.on_timeout(now, &self.config) {
            self.end(now, Event::Aborted);
        }
    }

    /// Handles a segment in a state that carries no data. Returns true if the connection is now established
    /// and the segment needs further handling.
    #[cold]
    pub(super) fn on_segment_without_data(&mut self, now: Instant, segment: &Segment) -> bool {
        match self.lifecycle.state {
            State::Closed => self.lifecycle.reset_due = reset_for(segment).map(Box::new),
            State::Listen => self.on_segment_in_listen(now, segment),
            State::SynSent => self.on_segment_in_syn_sent(now, segment),
            State::SynReceived => return self.on_segment_in_syn_received(now, segment),
            State::TimeWait => self.on_segment_in_time_wait(now, segment),
            _ => return true,
        }
        false
    }

    /// Handles a segment in LISTEN (RFC 9293 section 3.10.7.2, TCP-3). A SYN opens the connection. An ACK
    /// belongs to an unknown connection, so the reply is a reset. Like Linux, this connection ignores a SYN
    /// with a FIN, which no legitimate host sends.
    fn on_segment_in_listen(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.has(Flags::ACK) {
            self.lifecycle.reset_due = reset_for(segment).map(Box::new);
        } else if segment.flags.has(Flags::SYN)
            && !segment.flags.has(Flags::RST)
            && !segment.flags.has(Flags::FIN)
        {
            self.agree(now, segment);
            self.receiver.window.start_with(self.received_mss(self.sender.agreed));
            self.lifecycle.state = State::SynReceived;
            self.handshake.pending = true;
        }
    }

    /// Handles a segment in SYN-SENT: a SYN-ACK for our SYN, or the SYN of a simultaneous open (RFC 9293
    /// section 3.10.7.3, TCP-1). The reply is a reset if the segment acknowledges anything else (TCP-2), or
    /// if it echoes a timestamp that none of our SYNs carried (as in Linux, `PAWSACTIVEREJECTED`).
    fn on_segment_in_syn_sent(&mut self, now: Instant, segment: &Segment) {
        let acknowledges = segment.flags.has(Flags::ACK);
        let of_another = segment.ack != self.sender.iss.plus(1) || self.echoes_another(now, segment);
        if acknowledges && of_another {
            self.lifecycle.reset_due = reset_for(segment).map(Box::new);
        } else if segment.flags.has(Flags::RST) {
            // Without a valid ACK, any off-path host could have forged the reset.
            if acknowledges {
                self.end(now, Event::Aborted);
            }
        } else if segment.flags.has(Flags::SYN) {
            self.agree(now, segment);
            if acknowledges {
                self.establish(now, segment);
                self.receiver.acks.demand();
            } else {
                self.lifecycle.state = State::SynReceived;
                self.sender.timer = None;
                self.handshake.pending = true;
            }
        }
    }

    /// Handles a segment in SYN-RECEIVED. Returns true if the segment completes the handshake and needs
    /// further handling. As in Linux since 6.15 (`TSEcrRejected`), the segment must echo a timestamp that
    /// this connection has sent.
    fn on_segment_in_syn_received(&mut self, now: Instant, segment: &Segment) -> bool {
        let acknowledges = segment.flags.has(Flags::ACK) && segment.ack == self.sender.iss.plus(1);
        let offset = segment.seq.offset_near(self.receiver.irs.plus(1), 0);
        let in_window = offset.is_some_and(|offset| offset <= self.receiver.window.edge());
        if segment.flags.has(Flags::RST) {
            match offset {
                Some(0) => self.on_refusal(now),
                _ if in_window => self.receiver.challenge(now),
                _ => {}
            }
        } else if segment.flags.has(Flags::SYN) && segment.seq == self.receiver.irs {
            if acknowledges && !self.handshake.passive {
                // Simultaneous open: the peer's SYN-ACK acknowledges our SYN.
                self.establish(now, segment);
            } else if self.receiver.may_answer(now) {
                // Our SYN-ACK was lost or is late. The rate limit prevents forged segments from causing a
                // flood of SYN-ACKs.
                self.handshake.pending = true;
            }
        } else if segment.flags.has(Flags::SYN)
            || offset.is_none_or(|start| self.is_stale(now, segment, start))
            || !in_window
            || (self.handshake.passive && self.echoes_another(now, segment))
        {
            self.receiver.challenge(now);
        } else if acknowledges {
            self.establish(now, segment);
            return true;
        } else if segment.flags.has(Flags::ACK) {
            self.lifecycle.reset_due = reset_for(segment).map(Box::new);
        }
        false
    }

    /// Returns true if the segment echoes a timestamp that this connection has not sent since its first SYN
    /// or SYN-ACK. The segment then belongs to another connection, even if its ACK happens to match. An echo
    /// of zero is accepted, because some hosts do not echo timestamps during the handshake.
    fn echoes_another(&self, now: Instant, segment: &Segment) -> bool {
        let [first, last] = [self.handshake.opened_at, now].map(Timestamps::clock);
        self.receiver.timestamps_of(segment).is_some_and(|Timestamps { echo, .. }| {
            echo != 0 && echo.wrapping_sub(first) > last.wrapping_sub(first)
        })
    }

    /// Handles a reset in SYN-RECEIVED. A passive connection returns to LISTEN (RFC 9293 MUST-11) without
    /// notifying the application.
    fn on_refusal(&mut self, now: Instant) {
        if !self.handshake.passive || self.lifecycle.detached {
            self.end(now, Event::Aborted);
            return;
        }
        let mut fresh = Self::new(self.config.clone(), self.sender.draws, State::Listen);
        // The initial sequence number of the next connection attempt is 65 537 higher, so that its sequence
        // numbers do not overlap those of this attempt.
        fresh.sender.iss = self.sender.iss.plus(65_537);
        fresh.sender.queue = self.sender.queue.clone();
        *self = fresh;
    }

    /// Reads the TCP options of the peer's SYN. An option is used only if both sides sent it.
    fn agree(&mut self, now: Instant, segment: &Segment) {
        self.receiver.irs = segment.seq;
        let ecn = ecn::is_agreed(segment, self.config.ecn);
        self.sender.ecn.agreed = ecn;
        self.receiver.ecn.agreed = ecn;
        let Some(options) = segment.syn else { return };
        let offered = self.sender.agreed;
        let agreed = Agreed {
            sack: offered.sack && options.sack_permitted,
            timestamps: offered.timestamps && segment.timestamps.is_some(),
        };
        let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        self.receiver.agree(now, agreed, options.window_scale.is_some(), timestamp);
        // A missing MSS option is replaced by RFC 9293's default, and a tiny value by Linux's minimum (MSS-2,
        // MSS-3).
        let default = self.config.ip.default_mss();
        let peer_mss = u64::from(if options.mss == 0 { default } else { options.mss }).max(88);
        let mss = self.own_mss().min(peer_mss).saturating_sub(agreed.option_bytes()).max(48);
        self.sender.agree(agreed, options.window_scale.map_or(0, |shift| shift.min(14)), mss);
    }

    fn establish(&mut self, now: Instant, segment: &Segment) {
        // If the application has already closed the connection, the state becomes FIN-WAIT-1 at once.
        let closed = self.sender.queue.is_closed();
        self.lifecycle.state = if closed { State::FinWait1 } else { State::Established };
        self.receiver.window.on_established(now);
        // The window field of a SYN is never scaled. In SYN-RECEIVED, the segment has no SYN, and its window
        // field is scaled.
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.sender.peer.scale };
        let window = u64::from(segment.window) << shift;
        let echo = self.receiver.timestamps_of(segment).map(|timestamps| timestamps.echo);
        let rtt = self.handshake.rtt(now, echo, &self.config);
        self.sender.establish(now, window, rtt, self.handshake.lost(echo, &self.config));
        self.watch_silence();
        self.events.add(Event::Connected);
    }
}
