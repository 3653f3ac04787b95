//! What only those need who carry real bytes: where payload belongs, and sequence numbers that are given.

use core::ops::Range;

use fullpipe_units::{Bytes, Instant};

use super::{Config, Connection, State};
use crate::wire::{Segment, SeqNum};

/// Where the payload of a segment belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Offset of the segment's first octet; below `range` if it repeats what has been received in order.
    pub start: u64,
    /// Offsets that were taken. Some of them may have been held already, above a hole.
    pub range: Range<u64>,
}

impl Connection {
    /// Begins at `iss`, before anything has been sent. Without it the number is drawn from the seed.
    pub fn start_at(&mut self, iss: SeqNum) {
        debug_assert!(
            matches!(self.lifecycle.state, State::Closed | State::Listen),
            "the number has been sent"
        );
        self.sender.iss = iss;
    }

    /// A server's connection of which nothing was kept while its SYN-ACK, with `iss`, was under way: `syn` is what
    /// the peer's SYN must have been. The next segment to handle is the one that answered.
    pub fn resumed(config: Config, now: Instant, iss: SeqNum, syn: &Segment) -> Self {
        let mut connection = Self::server(config);
        connection.start_at(iss);
        connection.handle_segment(now, syn);
        // Sent long ago; made again for what it promised of the window.
        let _ = connection.poll_transmit(now);
        // When is not known, so it gives no round-trip time (Karn's rule).
        connection.handshake.retries = 1;
        connection
    }

    /// Where the payload of the segment handled last belongs; `None` if nothing of it was taken, or it was asked before.
    pub fn take_accepted(&mut self) -> Option<Accepted> {
        self.receiver.take_accepted()
    }

    /// Offset of the next byte that the application reads.
    pub fn read_offset(&self) -> u64 {
        self.receiver.copied
    }

    /// Offset behind the last byte that the peer may send: what was offered, whether or not it was used.
    pub fn window_edge(&self) -> u64 {
        self.receiver.window.edge()
    }

    /// Offset of a transmission's first byte of payload.
    pub fn offset_of(&self, segment: &Segment) -> Option<u64> {
        segment.seq.offset_near(self.sender.iss.plus(1).plus(self.sender.snd_una), self.sender.snd_una)
    }

    /// Its initial sequence number.
    pub fn iss(&self) -> SeqNum {
        self.sender.iss
    }

    /// The most memory that its send and its receive buffer ever take.
    pub fn buffer_limits(&self) -> (Bytes, Bytes) {
        (self.config.sndbuf.limit(), self.config.rcvbuf.limit())
    }
}
