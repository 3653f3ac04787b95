//! Packets of a connection, as a capture shows them.

use std::net::SocketAddr;

use fullpipe_units::{Bytes, Duration, Instant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connection of a capture that is explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Packets {
    /// Properties of the connection as a whole.
    pub connection: Connection,
    /// Samples over time, each a span of some milliseconds.
    pub samples: Vec<Sample>,
}

/// Place where a capture was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// On the host that sent the data, or close to it.
    Sender,
    /// On the host that received it, or close to it.
    Receiver,
    /// Between the two hosts.
    Between,
    /// Unknown place.
    Unknown,
}

/// Counts of one direction's data segments, and of the ACKs for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Segments with payload. A super-segment, as in a capture on the sending host, counts as the segments
    /// that it contains.
    pub data_segments: u64,
    /// Payload bytes in these segments.
    pub data_bytes: u64,
    /// Segments that were retransmitted.
    pub retransmits: u64,
    /// Retransmissions of data that had been acknowledged already.
    pub needless: u64,
    /// Segments that were overtaken on their way to the capture point.
    pub out_of_order: u64,
    /// Keep-alives and window probes.
    pub probes: u64,
    /// Bytes that were acknowledged and are missing from the capture, because the capturing tool dropped
    /// them.
    pub missed_bytes: u64,
    /// ACKs that repeat the previous one while data is outstanding.
    pub duplicate_acks: u64,
    /// Number of times that the receiver closed its window.
    pub zero_windows: u64,
    /// Number of times that the sender filled the receiver's window.
    pub window_full: u64,
}

/// Summary of a flow's packets in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// End of the span.
    pub at: Instant,
    /// Largest amount of data in flight: sent and not acknowledged, as the sender knew it.
    pub flight_size: Bytes,
    /// Part of the data in flight that the receiver had not reported by SACK.
    pub inflight: Bytes,
    /// Receiver's window; `None` if its scale is not known.
    pub rwnd: Option<Bytes>,
    /// Mean RTT of the data sent; `None` where it is not observable.
    pub rtt: Option<Duration>,
    /// Bytes that have arrived so far.
    pub delivered: Bytes,
    /// Retransmitted segments so far.
    pub retransmits: u64,
    /// Number of packets with new data.
    pub sent: u32,
    /// Packets after which less than a segment fits into the window.
    pub full: u32,
    /// Packets shorter than a segment although the window had room: the sender had no more data.
    pub short: u32,
    /// Packets that left at once after an ACK.
    pub prompt: u32,
    /// Number of ACKs that passed.
    pub acks: u32,
    /// Whether the capture has a hole here: data moved, but no packet was captured.
    pub unseen: bool,
}

/// Connection of a capture, as the transfer of the end that sent more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Socket that sent the data.
    pub from: SocketAddr,
    /// Socket that received it.
    pub to: SocketAddr,
    /// Place where it was captured.
    pub side: Side,
    /// Counts of its segments and ACKs.
    pub counts: Counts,
    /// Payload of the other direction, in bytes.
    #[serde(rename = "opposite_bytes", with = "crate::json::ByteCount")]
    pub opposite_bytes: Bytes,
    /// Whether both SYNs were captured.
    pub handshake: bool,
    /// Whether window scaling was agreed.
    pub scaled: bool,
    /// Payload of a full segment, in bytes.
    #[serde(rename = "mss_bytes", with = "crate::json::ByteCount")]
    pub mss: Bytes,
    /// Whether some packets hold several segments, as on a host that segments or merges them in the network
    /// card.
    pub super_segments: bool,
    /// Smallest RTT.
    #[serde(rename = "least_rtt_ms", with = "crate::json::OptionalMillis")]
    pub least_rtt: Option<Duration>,
    /// Time from its first packet to the last ACK of new data.
    #[serde(rename = "length_s", with = "crate::json::Seconds")]
    pub length: Duration,
    /// Largest amount of data in flight at any time, in bytes; unknown if no ACK was captured.
    #[serde(rename = "most_in_flight_bytes", with = "crate::json::OptionalByteCount")]
    pub most_in_flight: Option<Bytes>,
    /// Whether ACKs of its data were captured; a capture of one direction has none.
    pub acknowledged: bool,
    /// Window that the receiver offered last.
    #[serde(rename = "last_window_bytes", with = "crate::json::OptionalByteCount")]
    pub last_window: Option<Bytes>,
}
