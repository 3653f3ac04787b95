//! What packets show of a connection over time.

use fullpipe_units::{Bytes, Duration, Instant};

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
    /// Segments sent again so far.
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
    /// Nothing was captured though data moved: whoever captured was away.
    pub unseen: bool,
}
