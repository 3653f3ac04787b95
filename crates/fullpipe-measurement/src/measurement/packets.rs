//! Packets of a captured connection.

use std::net::SocketAddr;

use fullpipe_units::{Bytes, Duration, Instant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The diagnosed connection of a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct Packets {
    /// Properties of the connection as a whole.
    pub connection: Connection,
    /// Samples over time; each covers a few milliseconds.
    pub samples: Vec<Sample>,
}

/// Point on the path at which a capture was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// On or close to the host that sent the data.
    Sender,
    /// On or close to the host that received the data.
    Receiver,
    /// Between the two hosts.
    Between,
    /// Unknown.
    Unknown,
}

/// Counts of the data segments in one direction, and of their ACKs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Segments with payload. A super-segment, as captured on the sending host, counts as the segments that
    /// it contains.
    pub data_segments: u64,
    /// Payload bytes in these segments.
    pub data_bytes: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Retransmissions of data that was already acknowledged.
    pub needless: u64,
    /// Segments that were reordered before the capture point.
    pub out_of_order: u64,
    /// Keep-alives and window probes.
    pub probes: u64,
    /// Bytes that were acknowledged but are missing from the capture, because the capturing tool dropped
    /// them.
    pub missed_bytes: u64,
    /// ACKs that repeat the previous one while data is outstanding.
    pub duplicate_acks: u64,
    /// Number of times the receiver closed its window.
    pub zero_windows: u64,
    /// Number of times the sender filled the receive window.
    pub window_full: u64,
}

/// Summary of a flow's packets in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// End of the span.
    pub at: Instant,
    /// Maximum amount of data in flight (sent but not acknowledged), as known to the sender.
    pub flight_size: Bytes,
    /// Data in flight that the receiver has not reported by SACK.
    pub inflight: Bytes,
    /// Receive window; `None` if its scale is unknown.
    pub rwnd: Option<Bytes>,
    /// Mean RTT of the sent data; `None` if it is not observable.
    pub rtt: Option<Duration>,
    /// Minimum RTT of the sent data; `None` if it is not observable.
    pub least_rtt: Option<Duration>,
    /// Total number of bytes that have arrived.
    pub delivered: Bytes,
    /// Total number of retransmitted segments.
    pub retransmits: u64,
    /// Total number of segments that the receiver reported as duplicates (D-SACK).
    pub dsack_dups: u64,
    /// Number of packets with new data.
    pub sent: u32,
    /// Number of packets after which less than one segment fits into the window.
    pub full: u32,
    /// Number of packets that were shorter than a segment although the window had room: the sender had no
    /// more data.
    pub short: u32,
    /// Number of packets that an ACK released: they left immediately after the ACK, or continued a burst that
    /// did.
    pub prompt: u32,
    /// Number of ACKs that passed.
    pub acks: u32,
    /// Whether this is a gap in the capture: data moved, but no packet was captured.
    pub unseen: bool,
}

/// Connection in a capture, described as a transfer from the endpoint that sent more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Address and port of the endpoint that sent the data.
    pub from: SocketAddr,
    /// Address and port of the endpoint that received the data.
    pub to: SocketAddr,
    /// Point on the path at which the connection was captured.
    pub side: Side,
    /// Counts of the connection's segments and ACKs.
    pub counts: Counts,
    /// Payload in the opposite direction, in bytes.
    #[serde(rename = "opposite_bytes", with = "crate::json::ByteCount")]
    pub opposite_bytes: Bytes,
    /// Whether both SYNs were captured.
    pub handshake: bool,
    /// Whether both endpoints agreed on window scaling.
    pub scaled: bool,
    /// Payload length of a full-sized segment, in bytes.
    #[serde(rename = "mss_bytes", with = "crate::json::ByteCount")]
    pub mss: Bytes,
    /// Whether some packets hold several segments, as on a host whose network card segments or merges them.
    pub super_segments: bool,
    /// Smallest RTT.
    #[serde(rename = "least_rtt_ms", with = "crate::json::OptionalMillis")]
    pub least_rtt: Option<Duration>,
    /// Time from the first packet to the last ACK of new data.
    #[serde(rename = "length_s", with = "crate::json::Seconds")]
    pub length: Duration,
    /// Maximum amount of data in flight, in bytes; unknown if no ACK was captured.
    #[serde(rename = "most_in_flight_bytes", with = "crate::json::OptionalByteCount")]
    pub most_in_flight: Option<Bytes>,
    /// Whether ACKs of the data were captured; a capture of one direction contains none.
    pub acknowledged: bool,
    /// Last window that the receiver advertised.
    #[serde(rename = "last_window_bytes", with = "crate::json::OptionalByteCount")]
    pub last_window: Option<Bytes>,
    /// Number of copies: packets that were captured more than once, for example on a mirror port or on
    /// several devices of a bridge. No other count includes copies.
    #[serde(default)]
    pub copies: u64,
}
