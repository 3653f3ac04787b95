//! The packet properties that elements read, and the verdicts that they return.

use fullpipe_units::{Ecn, Instant};

/// The packet properties that elements read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Packet length in bytes, including the IP header.
    pub len: u32,
    /// Number of the flow to which the packet belongs, from zero.
    pub flow: u32,
    /// Packet kind: data, pure ACK or control.
    pub kind: PacketKind,
    /// Whether the packet was cut from the same super-packet as the previous packet of its flow.
    pub continues: bool,
    /// ECN field of the IP header: whether the packet is ECN-capable, and whether it is marked.
    pub ecn: Ecn,
}

/// Packet kind, derived from the packet's protocol, flags and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Packet with payload.
    Data,
    /// Pure ACK: a packet without payload and without a SYN, FIN or RST flag. ACK decimation may drop such a
    /// packet, because the next ACK carries the same information.
    Ack,
    /// Packet with a SYN, FIN or RST flag, or a packet of a protocol other than TCP.
    Control,
}

/// Result of offering a packet to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet was accepted and is in transit.
    Accepted,
    /// The packet was dropped by a loss element.
    Lost,
    /// The packet was dropped by a policer.
    Policed,
    /// The packet was dropped because a queue was full.
    QueueFull,
    /// The packet was dropped by an AQM although the queue had room.
    Managed,
    /// The packet was dropped by ACK decimation.
    Thinned,
}

/// A packet that has left the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit<T> {
    /// Time at which the packet left the path.
    pub at: Instant,
    /// Properties of the packet, including any ECN mark that the path set.
    pub packet: PacketInfo,
    /// Payload of the packet.
    pub payload: T,
}

/// An event inside the path that was not reported by a returned [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<T> {
    /// A packet was dropped after it had been accepted.
    Dropped {
        /// Properties of the dropped packet.
        packet: PacketInfo,
        /// Payload of the dropped packet.
        payload: T,
        /// Reason for the drop.
        verdict: Verdict,
    },
    /// A packet was duplicated.
    Duplicated {
        /// Properties of the duplicated packet.
        packet: PacketInfo,
        /// Payload of both the original and the copy.
        payload: T,
    },
}
