//! The packet properties that elements read, and the verdicts that they return.

use fullpipe_units::{Ecn, Instant};

/// The packet properties that elements read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length in bytes, IP header included.
    pub len: u32,
    /// Number of the packet's flow, from zero.
    pub flow: u32,
    /// Kind of the packet's content.
    pub kind: PacketKind,
    /// Whether the packet was cut from the same super-packet as the previous packet of its flow.
    pub continues: bool,
    /// ECN field: whether the packet may be marked, or is marked.
    pub ecn: Ecn,
}

/// Kind of a packet's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Packet with payload.
    Data,
    /// Pure ACK: a packet without payload, SYN, FIN or RST. ACK decimation may drop it, because the next ACK
    /// repeats its content.
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
