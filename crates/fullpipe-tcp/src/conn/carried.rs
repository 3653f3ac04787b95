//! Interface for drivers that carry real bytes: payload positions and explicit sequence numbers.

use core::ops::Range;
use std::sync::Arc;

use fullpipe_units::{Bytes, Instant};

use super::{Config, Connection, State};
use crate::wire::{Segment, SeqNum};

/// Stream position of the payload of an accepted segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Stream offset of the segment's first octet. The offset is below `range` if the segment repeats octets
    /// already received in order.
    pub start: u64,
    /// Range of stream offsets accepted from the segment. Part of the range may already have been received
    /// above a hole.
    pub range: Range<u64>,
}

impl Connection {
    /// Sets the initial sequence number; must be called before anything is sent. The default is drawn from
    /// [`Config::seed`].
    pub fn start_at(&mut self, iss: SeqNum) {
        debug_assert!(
            matches!(self.lifecycle.state, State::Closed | State::Listen),
            "the number has been sent"
        );
        self.sender.iss = iss;
    }

    /// Restores a passive connection from a SYN cookie: the host kept no state while the SYN-ACK with
    /// sequence number `iss` was in flight, since `earliest` or later. `syn` is the peer's reconstructed SYN. The next
    /// segment that the caller handles must be the one that acknowledges the SYN-ACK.
    pub(crate) fn resumed(
        config: Arc<Config>,
        seed: u64,
        [earliest, now]: [Instant; 2],
        iss: SeqNum,
        syn: &Segment,
    ) -> Self {
        let mut connection = Self::server_with(config, seed);
        connection.start_at(iss);
        connection.handle_segment(now, syn);
        // The SYN-ACK has already been sent. Building it once more restores the window that it advertised.
        let _ = connection.poll_transmit(now);
        // The time at which the SYN-ACK left is unknown, so the SYN-ACK gives no RTT sample (as under Karn's
        // rule).
        connection.handshake.retries = 1;
        // The peer echoes the timestamp that the SYN-ACK carried then.
        connection.handshake.opened_at = earliest;
        connection
    }

    /// Returns the stream position of the last handled segment's payload. Returns `None` if no payload was
    /// accepted, or on a second call for the same segment.
    pub fn take_accepted(&mut self) -> Option<Accepted> {
        self.receiver.take_accepted()
    }

    /// Returns the offset of the next byte that the application reads.
    pub fn read_offset(&self) -> u64 {
        self.receiver.copied
    }

    /// Returns the right edge of the advertised window: the offset after the last byte that the peer may
    /// send.
    pub fn window_edge(&self) -> u64 {
        self.receiver.window.edge()
    }

    /// Returns the stream offset of a transmission's first payload byte.
    pub fn offset_of(&self, segment: &Segment) -> Option<u64> {
        segment.seq.offset_near(self.sender.iss.plus(1).plus(self.sender.snd_una), self.sender.snd_una)
    }

    /// Returns the stream offset of the first payload byte of a segment that has arrived.
    pub fn arrived_at(&self, segment: &Segment) -> Option<u64> {
        segment.seq.offset_near(self.receiver.rcv_nxt_on_wire(), self.receiver.rcv_nxt())
    }

    /// Returns the initial sequence number (ISS) of this side.
    pub fn iss(&self) -> SeqNum {
        self.sender.iss
    }

    /// Returns the memory limits of the send buffer and of the receive buffer, in this order.
    pub fn buffer_limits(&self) -> (Bytes, Bytes) {
        (self.config.sndbuf.limit(), self.config.rcvbuf.limit())
    }
}
