//! RED (Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993), with the
//! gentle slope that Floyd has recommended since 2000.
//!
//! ```text
//!   probability
//!      1 ┤                         ╱──── beyond 2 max: every packet
//!        │                      ╱
//!     p  ┤                ╱──╱   gentle: from p to 1 between max and 2 max
//!        │            ╱─╱        (without: 1 from max on)
//!      0 ┼────────┴──────┴─────────┴──── average queue
//!                min    max      2 max
//! ```
//!
//! RED makes its decision when a packet arrives, based on an average queue size that ignores short bursts.

use fullpipe_units::{Bytes, Duration, Instant, Probability};

use super::Decision;
use crate::chance::Streams;
use crate::packet::PacketInfo;

/// The parameters of RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedConfig {
    /// Average queue size below which no packet is dropped.
    pub min: Bytes,
    /// Average queue size at which the drop probability reaches `probability`; must be larger than `min`.
    pub max: Bytes,
    /// Drop probability at an average queue size of `max`.
    pub probability: Probability,
    /// Whether the drop probability rises linearly to 1 at twice `max`, instead of jumping to 1 at `max`.
    pub gentle: bool,
    /// Whether RED marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

/// Weight of the moving average of the queue size, as a negative power of two: 2^-9 = 1/512, close to the
/// value of 0.002 in Floyd and Jacobson (section 6).
const WEIGHT: u32 = 9;
/// Packet length, in bytes, used to convert an idle period into a number of packets (`avpkt` of `tc-red`).
const TYPICAL_PACKET: u32 = 1_000;
/// Number of fractional bits of the average queue size.
const FRACTION: u32 = 20;
/// Fixed-point representation of a probability of 1.
const ONE: u64 = 1 << 32;

#[derive(Clone, Debug)]
pub(super) struct Red {
    config: RedConfig,
    /// Drop probability at an average queue size of `max`, in units of 1/[`ONE`].
    most: u64,
    /// Average queue size in bytes, as a fixed-point number.
    average: u64,
    /// Number of packets since the last drop or mark.
    count: u64,
    chance: Streams<()>,
}

impl Red {
    pub(super) fn new(config: RedConfig, seed: u64, element: u64) -> Self {
        // Every machine rounds a single floating-point multiplication identically.
        let most = ((config.probability.as_f64() * ONE as f64) as u64).min(ONE);
        Self { config, most, average: 0, count: 0, chance: Streams::new(seed, element) }
    }

    /// Updates the average queue size for an arrival at `now`. `idle` contains the start of the link's idle
    /// period and the transmission time of a typical packet.
    pub(super) fn on_arrival(&mut self, now: Instant, queue: u64, idle: Option<(Instant, Duration)>) {
        if let Some((since, packet)) = idle {
            let missed = now.saturating_since(since).as_nanos() / packet.as_nanos().max(1);
            self.average = decayed(self.average, missed);
            return;
        }
        let queue = queue.min(u64::MAX >> (FRACTION + 1)) << FRACTION;
        self.average = if queue >= self.average {
            self.average + ((queue - self.average) >> WEIGHT)
        } else {
            self.average - ((self.average - queue) >> WEIGHT)
        };
    }

    /// Returns the packet length, in bytes, used to convert an idle period into a number of packets.
    pub(super) const fn typical_packet() -> u32 {
        TYPICAL_PACKET
    }

    pub(super) fn decide(&mut self, packet: PacketInfo) -> Decision {
        let (draw, ()) = self.chance.next(packet);
        let probability = self.probability();
        if probability == 0 {
            self.count = 0;
            return Decision::Pass;
        }
        self.count += 1;
        if probability >= ONE {
            self.count = 0;
            // RFC 3168 section 7: at this queue size, packets are dropped rather than marked.
            return Decision::Drop;
        }
        // Space the drops evenly: the probability p / (1 - count p) reaches 1 after 1/p packets.
        let rest = ONE.saturating_sub((self.count - 1).saturating_mul(probability));
        if !Probability::from_ratio(probability, rest.max(1)).hits(draw) {
            return Decision::Pass;
        }
        self.count = 0;
        if self.config.ecn && packet.ecn.is_capable() { Decision::Mark } else { Decision::Drop }
    }

    /// Returns the drop probability for the average queue size, in units of 1/[`ONE`]. The correction that
    /// spaces drops evenly is not included.
    fn probability(&self) -> u64 {
        let (average, min, max) = (self.average >> FRACTION, self.config.min.get(), self.config.max.get());
        let slope = |above: u64, over: u64, rise: u64| {
            (u128::from(above) * u128::from(rise) / u128::from(over.max(1))) as u64
        };
        match average {
            _ if average < min => 0,
            _ if average < max => slope(average - min, max - min, self.most),
            _ if self.config.gentle && average < max.saturating_mul(2) => {
                self.most + slope(average - max, max, ONE - self.most)
            }
            _ => ONE,
        }
    }
}

/// Returns `average (1 - weight)^missed`: the average queue size after `missed` arrivals at an empty queue.
fn decayed(average: u64, missed: u64) -> u64 {
    let mut rest = missed;
    let mut base = ONE - (ONE >> WEIGHT);
    let mut factor = ONE;
    while rest > 0 && factor > 0 {
        if rest & 1 == 1 {
            factor = ((u128::from(factor) * u128::from(base)) >> 32) as u64;
        }
        base = ((u128::from(base) * u128::from(base)) >> 32) as u64;
        rest >>= 1;
    }
    ((u128::from(average) * u128::from(factor)) >> 32) as u64
}

#[cfg(test)]
mod tests;
