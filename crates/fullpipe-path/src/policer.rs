//! A policer: what exceeds a rate and a burst is dropped at once. It has no queue, so it adds no delay:
//! the sender sees loss at a constant rate and a flat RTT.

use fullpipe_units::{Bytes, Instant, Rate};

use crate::bucket::TokenBucket;
use crate::packet::PacketInfo;

/// Whether a limit counts all traffic together or each flow by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All flows share one bucket.
    Aggregate,
    /// Each flow has its own.
    PerFlow,
}

/// Drops what a token bucket does not let pass.
#[derive(Clone, Debug)]
pub struct Policer {
    rate: Rate,
    burst: Bytes,
    scope: Scope,
    buckets: Vec<TokenBucket>,
}

impl Policer {
    /// A policer of `rate` with a bucket of `burst` bytes, at least one packet's worth to be of any use.
    pub fn new(rate: Rate, burst: Bytes, scope: Scope) -> Self {
        Self { rate, burst, scope, buckets: Vec::new() }
    }

    /// Whether this packet is dropped at `now`.
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
