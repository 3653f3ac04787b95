//! What a capture shows of a connection.

use std::net::SocketAddr;

use fullpipe_units::{Bytes, Duration, Instant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The explained connection of a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct Packets {
    /// What the capture shows of the connection as a whole.
    pub connection: Connection,
    /// What it shows over time, in spans of some milliseconds.
    pub samples: Vec<Sample>,
}

/// Where a capture was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// On the host that sent the data, or close to it.
    Sender,
    /// On the host that received it, or close to it.
    Receiver,
    /// In between.
    Between,
    /// Nothing tells.
    Unknown,
}

/// Counts of one direction's data segments and of the ACKs of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Segments with payload. A super-segment, as a sender's own capture shows it, counts as the segments in it.
    pub data_segments: u64,
    /// Payload octets in them.
    pub data_bytes: u64,
    /// Segments that were retransmitted.
    pub retransmits: u64,
    /// Of these, those whose octets had been acknowledged already.
    pub needless: u64,
    /// Segments that were overtaken on their way to the tap.
    pub out_of_order: u64,
    /// Keep-alives and window probes.
    pub probes: u64,
    /// Octets that were acknowledged and are not in the capture: the capturing tool dropped them.
    pub missed_bytes: u64,
    /// ACKs that repeat the one before while data is outstanding.
    pub duplicate_acks: u64,
    /// Times that the receiver closed its window.
    pub zero_windows: u64,
    /// Times that the sender filled the receiver's window.
    pub window_full: u64,
}

/// What the packets of a span of time show of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The end of the span.
    pub at: Instant,
    /// Most octets in flight: sent and not acknowledged, by what the sender knew.
    pub flight_size: Bytes,
    /// Of these, those that the receiver had not said to have (SACK).
    pub inflight: Bytes,
    /// The receiver's window; `None` without its scale.
    pub rwnd: Option<Bytes>,
    /// Mean round trip of what was sent; `None` where nothing tells it.
    pub rtt: Option<Duration>,
    /// Octets that arrived so far.
    pub delivered: Bytes,
    /// Retransmitted segments so far.
    pub retransmits: u64,
    /// Packets with new data.
    pub sent: u32,
    /// Of these, those after which less than a segment fits into the window.
    pub full: u32,
    /// Of these, those that are not whole segments and yet not what the window cut off: the sender had no more data.
    pub short: u32,
    /// Of these, those that left at once after an ACK.
    pub prompt: u32,
    /// ACKs that passed.
    pub acks: u32,
    /// The capture has a hole here: data moved and no packet was captured.
    pub unseen: bool,
}

/// A connection of a capture, seen as the transfer of the end that sent more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// The socket that sent the data.
    pub from: SocketAddr,
    /// The socket that received it.
    pub to: SocketAddr,
    /// Where it was captured.
    pub side: Side,
    /// What its segments were.
    pub counts: Counts,
    /// Payload of the other direction.
    #[serde(rename = "opposite_bytes", with = "crate::json::ByteCount")]
    pub opposite_bytes: Bytes,
    /// Both SYNs were captured.
    pub handshake: bool,
    /// Window scaling was agreed.
    pub scaled: bool,
    /// Payload of a full segment.
    #[serde(rename = "mss_bytes", with = "crate::json::ByteCount")]
    pub mss: Bytes,
    /// Some packets hold several segments, as they do on the host that sends or merges them.
    pub super_segments: bool,
    /// Least round trip.
    #[serde(rename = "least_rtt_ms", with = "crate::json::OptionalMillis")]
    pub least_rtt: Option<Duration>,
    /// From its first packet to the last ACK that was new.
    #[serde(rename = "length_s", with = "crate::json::Seconds")]
    pub length: Duration,
    /// Most octets in flight at once; unknown where no ACK was captured.
    #[serde(rename = "most_in_flight_bytes", with = "crate::json::OptionalByteCount")]
    pub most_in_flight: Option<Bytes>,
    /// ACKs of its data were captured: of one direction alone they were not.
    pub acknowledged: bool,
    /// The window that the receiver offered last.
    #[serde(rename = "last_window_bytes", with = "crate::json::OptionalByteCount")]
    pub last_window: Option<Bytes>,
}
