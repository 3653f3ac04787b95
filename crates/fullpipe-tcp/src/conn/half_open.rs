//! A connection in SYN-RECEIVED in little memory.
//!
//! ```text
//!   Listen ── SYN ──► SynReceived ── SYN-ACK sent ──► progress() ──► the SYN and HandshakeProgress
//!                          ▲                                                    │
//!                          └──────────── a segment, a timer ◄── half_open() ────┘
//! ```
//!
//! Until the handshake is complete, a passive connection differs from a new one only in the peer's SYN and in
//! the progress of the handshake. A stack with many such connections keeps these two, and makes the connection
//! again when a segment arrives or a timer expires.

use std::sync::Arc;

use fullpipe_units::Instant;

use super::sender::RetransmitTimer;
use super::{Config, Connection, State};
use crate::wire::{Segment, SeqNum};

/// Progress of a handshake that the peer's SYN has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandshakeProgress {
    /// Number of timeouts.
    retries: u32,
    /// Number of SYN-ACKs sent.
    transmissions: u32,
    /// Departure time of the first SYN-ACK.
    opened_at: Instant,
    timer: Option<(RetransmitTimer, Instant)>,
    /// Time of the last answer to an unacceptable segment or to a retransmitted SYN.
    challenged_at: Option<Instant>,
}

impl Connection {
    /// Returns the progress of the handshake, from which [`Connection::half_open`] makes this connection
    /// again. Returns `None` if more is needed for that: if the connection is not in SYN-RECEIVED, if it has
    /// something to send, or if it has to report an ICMP error.
    pub(crate) fn progress(&self) -> Option<HandshakeProgress> {
        let settled = self.lifecycle.state == State::SynReceived
            && self.handshake.passive
            && !self.handshake.pending
            && !self.lifecycle.detached
            && self.lifecycle.reset_due.is_none()
            && !self.receiver.acks.is_due()
            && self.soft_error.is_none();
        settled.then_some(HandshakeProgress {
            retries: self.handshake.retries,
            transmissions: self.handshake.transmissions,
            opened_at: self.handshake.opened_at,
            timer: self.sender.timer,
            challenged_at: self.receiver.challenged_at,
        })
    }

    /// Makes a connection in SYN-RECEIVED again: it has received `syn` at `heard_at`, has sent a SYN-ACK with
    /// sequence number `iss`, and its handshake has made `progress`. `config` and `seed` must be those of the
    /// first time.
    pub(crate) fn half_open(
        config: Arc<Config>,
        seed: u64,
        iss: SeqNum,
        (heard_at, syn): (Instant, &Segment),
        progress: HandshakeProgress,
    ) -> Self {
        let HandshakeProgress { retries, transmissions, opened_at, timer, challenged_at } = progress;
        let mut connection = Self::server_with(config, seed);
        connection.start_at(iss);
        connection.handle_segment(heard_at, syn);
        // Building the SYN-ACK again restores the window that it has advertised.
        let _ = connection.poll_transmit(opened_at);
        connection.handshake.retries = retries;
        connection.handshake.transmissions = transmissions;
        connection.handshake.opened_at = opened_at;
        connection.sender.timer = timer;
        connection.receiver.challenged_at = challenged_at;
        connection
    }
}
