//! The packet properties that elements may use, and the results that they may return.

use fullpipe_units::{Ecn, Instant};

/// The packet properties that elements may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length in bytes, IP header included.
    pub len: u32,
    /// Number of its flow, from zero.
    pub flow: u32,
    /// Kind of content.
    pub kind: PacketKind,
    /// Whether it was cut from the same super-packet as the previous packet of its flow.
    pub continues: bool,
    /// ECN field: whether the packet may be marked, or is marked.
    pub ecn: Ecn,
}

/// Kind of a packet's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Packet with payload.
    Data,
    /// Pure ACK: no payload, SYN, FIN or RST. ACK decimation may drop it, because the next ACK repeats its
    /// content.
    Ack,
    /// SYN, FIN or RST, and every packet that is not TCP.
    Control,
}

/// Result of offering a packet to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted, and on its way.
    Accepted,
    /// Dropped by a loss element.
    Lost,
    /// Dropped by a policer.
    Policed,
    /// Dropped because a queue was full.
    QueueFull,
    /// Dropped by an AQM although the queue had room.
    Managed,
    /// Dropped by ACK decimation.
    Thinned,
}

/// A packet that has left the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit<T> {
    /// Time at which it left.
    pub at: Instant,
    /// Properties of the packet, with the ECN mark that it may have received.
    pub packet: PacketInfo,
    /// Payload of the packet.
    pub payload: T,
}

/// An event inside the path that no returned [`Verdict`] reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<T> {
    /// A packet was dropped after it had been accepted.
    Dropped {
        /// Properties of the packet.
        packet: PacketInfo,
        /// Payload of the packet.
        payload: T,
        /// Reason of the drop.
        verdict: Verdict,
    },
    /// A packet was duplicated.
    Duplicated {
        /// Properties of the packet.
        packet: PacketInfo,
        /// Payload of both packets.
        payload: T,
    },
}
