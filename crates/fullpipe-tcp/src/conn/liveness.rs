//! Keep-alive (RFC 9293 section 3.8.4) and the user timeout (RFC 5482).
//!
//! ```text
//!   nothing outstanding   silent for `idle` ──► probe ──`interval`──► probe … ──► reset after `probes`
//!                              ▲                  │ any segment
//!                              └──────────────────┘
//!   data outstanding      retransmissions or zero-window probes ──► given up when the user timeout expires
//! ```
//!
//! The only cost per packet is to store the arrival time of an ACK that delivers data. When the keep-alive
//! timer expires, the time of the next probe is computed from the stored time.

use fullpipe_units::{Duration, Instant};

use super::reset::bare;
use super::sender::RetransmitTimer;
use super::{Connection, State};
use crate::recovery::probe::ProbeKind;
use crate::wire::{Flags, Segment, SeqNum, Timestamps};

/// Keep-alive settings of a connection (`SO_KEEPALIVE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle time before the first keep-alive probe (`TCP_KEEPIDLE`).
    pub idle: Duration,
    /// Time between keep-alive probes (`TCP_KEEPINTVL`).
    pub interval: Duration,
    /// Number of unanswered keep-alive probes after which the connection is reset (`TCP_KEEPCNT`). A user
    /// timeout, if set, replaces this limit.
    pub probes: u32,
}

impl Default for KeepAlive {
    /// Linux defaults: two hours of idle time, then nine probes 75 s apart (`net.ipv4.tcp_keepalive_*`).
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Numbers of a keep-alive probe, from which [`Self::segment`] builds the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Sequence number of the probe: one less than the first octet that the peer has not acknowledged.
    pub seq: SeqNum,
    /// Acknowledgement number of the probe.
    pub ack: SeqNum,
    /// Timestamps of the probe, if negotiated.
    pub timestamps: Option<Timestamps>,
}

impl Probe {
    /// Returns the probe, a segment without payload.
    pub fn segment(&self) -> Segment {
        let probe = bare(self.seq, Some(self.ack));
        Segment { flags: Flags::ACK, timestamps: self.timestamps, ..probe }
    }
}

impl Connection {
    /// Returns the numbers of a keep-alive probe for the current state of the connection: an ACK with the last
    /// sequence number that the peer has acknowledged (RFC 9293 section 3.8.4). A peer that considers the
    /// connection established must answer this probe. Returns `None` if the connection is not synchronized,
    /// or has ended.
    ///
    /// The probe may also be sent after the state of the connection has been lost, for example by another
    /// process. The peer's reply then belongs to no connection, so the local host answers it with a reset.
    #[inline]
    pub fn probe(&self, now: Instant) -> Option<Probe> {
        let state = self.lifecycle.state;
        // A peer in SYN-SENT discards the probe of a half-open connection (RFC 9293 section 3.10.7.3).
        (state.carries_data() || state == State::SynReceived).then(|| Probe {
            // SND.UNA - 1: offset zero is one octet after the initial sequence number.
            seq: self.sender.iss.plus(self.sender.snd_una),
            ack: self.receiver.rcv_nxt_on_wire(),
            timestamps: self.receiver.timestamps(now),
        })
    }

    /// Returns the arrival time of the last data segment or ACK from the peer.
    fn last_heard(&self) -> Instant {
        let heard_at = self.sender.heard_at;
        self.receiver.acks.last_arrival().map_or(heard_at, |at| at.max(heard_at))
    }

    /// Arms the keep-alive timer if keep-alive is configured and no data is outstanding.
    #[inline(always)]
    pub(super) fn watch_silence(&mut self) {
        if let Some(keep_alive) = self.config.keep_alive {
            self.arm_keep_alive(keep_alive);
        }
    }

    #[cold]
    fn arm_keep_alive(&mut self, keep_alive: KeepAlive) {
        if self.sender.waits_for_nothing() && self.lifecycle.state.carries_data() {
            self.sender.timer = Some((RetransmitTimer::KeepAlive, self.last_heard() + keep_alive.idle));
        }
    }

    pub(super) fn on_keep_alive_timeout(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        let silent = now.saturating_since(self.last_heard());
        let unanswered = self.sender.probes.unanswered();
        if unanswered == 0 && silent < keep_alive.idle {
            // A segment has arrived since the timer was armed, so arm the timer again.
            self.watch_silence();
            return;
        }
        // As in Linux, a user timeout replaces the limit on the number of probes.
        let gives_up = match self.config.user_timeout {
            Some(timeout) => unanswered > 0 && silent >= timeout,
            None => unanswered >= keep_alive.probes,
        };
        if gives_up {
            self.abort(now);
            return;
        }
        self.sender.probes.request(ProbeKind::KeepAlive);
        self.sender.timer = Some((RetransmitTimer::KeepAlive, now + keep_alive.interval));
    }
}
