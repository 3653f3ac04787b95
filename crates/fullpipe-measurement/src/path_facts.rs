//! Facts about a path that the measurement does not contain.

use fullpipe_units::{Bytes, Duration, Probability, Rate};

/// Facts about a path, from the user or from an earlier measurement; `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// Link rate, in bits of IP packets per second.
    pub link: Option<Rate>,
    /// Round-trip time of the idle path, as `ping` prints it.
    pub rtt: Option<Duration>,
    /// Probability that a packet is lost at random.
    pub loss: Option<Probability>,
    /// Number of parallel flows in one transfer.
    pub flows: Option<u64>,
    /// Capacity of the queue at the bottleneck, in bytes.
    pub queue: Option<Bytes>,
    /// Payload length of a full-sized segment, in bytes.
    pub mss: Option<Bytes>,
    /// Maximum rate that a policer or shaper allows one flow, in bits of payload per second.
    pub cap: Option<Rate>,
}

impl PathFacts {
    /// Returns these facts, and takes unknown ones from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            link: self.link.or(other.link),
            rtt: self.rtt.or(other.rtt),
            loss: self.loss.or(other.loss),
            flows: self.flows.or(other.flows),
            queue: self.queue.or(other.queue),
            mss: self.mss.or(other.mss),
            cap: self.cap.or(other.cap),
        }
    }
}
