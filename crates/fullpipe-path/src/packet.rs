//! What elements may know of a packet, and what they may answer.

use fullpipe_units::{Ecn, Instant};

/// What elements may know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length in bytes, as the link counts it (IP header included).
    pub len: u32,
    /// Number of its flow, from zero.
    pub flow: u32,
    /// What it carries.
    pub kind: PacketKind,
    /// It was cut from the same super-packet as the packet of its flow before it.
    pub continues: bool,
    /// Whether it may be marked, or has been.
    pub ecn: Ecn,
}

/// Data or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Carries payload.
    Data,
    /// Neither payload nor SYN, FIN or RST: one of many that say nearly the same.
    Ack,
    /// SYN, FIN, RST, and whatever is not TCP.
    Control,
}

/// What became of a pushed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is on its way.
    Accepted,
    /// A loss element took it.
    Lost,
    /// A policer took it.
    Policed,
    /// A queue had no room.
    QueueFull,
    /// The management of a queue dropped it, although there was room.
    Managed,
    /// An element that thins ACKs took it.
    Thinned,
}

/// A packet that has left the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit<T> {
    /// When.
    pub at: Instant,
    /// What the path was told of it, with the mark that it may have got.
    pub packet: PacketInfo,
    /// What it carries.
    pub payload: T,
}

/// What happened to a packet inside the path, and no [`Verdict`] told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<T> {
    /// It had been accepted and was dropped later.
    Dropped {
        /// What the path was told of it.
        packet: PacketInfo,
        /// What it carried.
        payload: T,
        /// By whom.
        verdict: Verdict,
    },
    /// There is one more of it now.
    Duplicated {
        /// What the path was told of it.
        packet: PacketInfo,
        /// What both carry.
        payload: T,
    },
}
