//! A policer: drops packets that exceed a rate and a burst size.
//!
//! A policer has no queue and adds no delay: the sender sees packet loss above a constant rate, and no
//! increase of the RTT.

use fullpipe_units::{Bytes, Instant, Rate};

use crate::bucket::TokenBucket;
use crate::packet::PacketInfo;

/// Whether a limit applies to all flows together or to each flow separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All flows share one token bucket.
    Aggregate,
    /// Each flow has its own token bucket.
    PerFlow,
}

/// A policer with one token bucket, or one per flow.
#[derive(Clone, Debug)]
pub struct Policer {
    rate: Rate,
    burst: Bytes,
    scope: Scope,
    buckets: Vec<TokenBucket>,
}

impl Policer {
    /// Creates a policer of `rate` with buckets of `burst` bytes. A packet larger than the bucket is always
    /// dropped.
    pub fn new(rate: Rate, burst: Bytes, scope: Scope) -> Self {
        Self { rate, burst, scope, buckets: Vec::new() }
    }

    /// Returns whether this packet is dropped at `now`.
    pub fn drops(&mut self, now: Instant, packet: PacketInfo) -> bool {
        let index = match self.scope {
            Scope::Aggregate => 0,
            Scope::PerFlow => packet.flow as usize,
        };
        while self.buckets.len() <= index {
            self.buckets.push(TokenBucket::new(self.rate, self.burst));
        }
        !self.buckets[index].take(now, Bytes::new(packet.len.into()))
    }
}
