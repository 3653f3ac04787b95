//! Compact form of a connection in SYN-RECEIVED.
//!
//! ```text
//!   Listen ── SYN ──► SynReceived ── SYN-ACK sent ──► progress() ──► the SYN and HandshakeProgress
//!                          ▲                                                    │
//!                          └──────────── a segment, a timer ◄── half_open() ────┘
//! ```
//!
//! Until the handshake is complete, a passive connection differs from a new one only in the peer's SYN and in
//! the progress of the handshake. A stack with many such connections keeps only these two, and rebuilds the
//! connection when a segment arrives or a timer expires.

use std::sync::Arc;

use fullpipe_units::{Duration, Instant};

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
    /// Smallest RTT of an earlier connection to the same client.
    known_rtt: Option<Duration>,
    timer: Option<(RetransmitTimer, Instant)>,
    /// Time of the last reply to an unacceptable segment or to a retransmitted SYN.
    challenged_at: Option<Instant>,
}

impl Connection {
    /// Returns the progress of the handshake, from which [`Connection::half_open`] rebuilds this connection.
    /// Returns `None` if the progress alone is not sufficient: the connection is not in SYN-RECEIVED, has
    /// something to send, or has an ICMP error to report.
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
            known_rtt: self.handshake.known_rtt,
            timer: self.sender.timer,
            challenged_at: self.receiver.challenged_at,
        })
    }

    /// Rebuilds a connection in SYN-RECEIVED. The connection received `syn` at `heard_at`, sent a SYN-ACK
    /// with sequence number `iss`, and had made `progress` in its handshake. `config` and `seed` must be
    /// those of the original connection.
    pub(crate) fn half_open(
        config: Arc<Config>,
        seed: u64,
        iss: SeqNum,
        (heard_at, syn): (Instant, &Segment),
        progress: HandshakeProgress,
    ) -> Self {
        let HandshakeProgress { retries, transmissions, opened_at, known_rtt, timer, challenged_at } =
            progress;
        let mut connection = Self::server_with(config, seed);
        connection.start_at(iss);
        connection.handle_segment(heard_at, syn);
        // Building the SYN-ACK once more restores the window that it advertised.
        let _ = connection.poll_transmit(opened_at);
        connection.handshake.retries = retries;
        connection.handshake.transmissions = transmissions;
        connection.handshake.opened_at = opened_at;
        connection.handshake.known_rtt = known_rtt;
        connection.sender.timer = timer;
        connection.receiver.challenged_at = challenged_at;
        connection
    }
}
