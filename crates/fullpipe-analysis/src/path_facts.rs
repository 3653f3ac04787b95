//! What is known of a path besides what was measured on it.

use fullpipe_units::{Bytes, Duration, Probability, Rate};

/// What the user or an earlier measurement says of a path; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathFacts {
    /// Rate of the link, in bits of IP packets per second.
    pub link: Option<Rate>,
    /// Round-trip time of the idle path, as `ping` prints it.
    pub rtt: Option<Duration>,
    /// Probability that a packet is lost at random.
    pub loss: Option<Probability>,
    /// Parallel flows of one transfer.
    pub flows: Option<u64>,
    /// Bytes that the queue at the bottleneck holds.
    pub queue: Option<Bytes>,
}
