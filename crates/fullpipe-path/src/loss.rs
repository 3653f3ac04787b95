//! Random packet loss: independent or in bursts.

use fullpipe_units::Probability;

use crate::chance::Streams;
use crate::packet::PacketInfo;

/// Independent loss: drops each packet with the same probability.
#[derive(Clone, Debug)]
pub struct IidLoss {
    probability: Probability,
    unit: LossUnit,
    /// Whether the last super-packet of each flow was lost.
    streams: Streams<bool>,
}

/// Unit to which one decision of [`IidLoss`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossUnit {
    /// Each packet on the wire is lost or passed independently.
    Packet,
    /// All packets of one super-packet are lost or passed together. `netem` on the sending host causes such
    /// losses, because it drops a super-packet before segmentation.
    SuperPacket,
}

impl IidLoss {
    /// Creates an independent loss element with loss probability `probability`; `element` selects its random
    /// stream.
    pub fn new(probability: Probability, unit: LossUnit, seed: u64, element: u64) -> Self {
        Self { probability, unit, streams: Streams::new(seed, element) }
    }

    /// Returns whether this packet is lost.
    pub fn loses(&mut self, packet: PacketInfo) -> bool {
        if self.probability.is_zero() {
            return false;
        }
        let (draw, fate) = self.streams.next(packet);
        if self.unit == LossUnit::Packet || !packet.continues {
            *fate = self.probability.hits(draw);
        }
        *fate
    }
}

/// Loss in bursts: the Gilbert model, the simplest form of the Gilbert-Elliott model.
///
/// ```text
///            p
///   Good ─────────► Bad        every packet in Bad is lost, none in Good
///        ◄─────────            mean burst 1/r packets, mean loss p / (p + r)
///            r
/// ```
///
/// Each flow has its own state, and only packets of that flow advance it. A burst is therefore a number of
/// packets, not a time.
#[derive(Clone, Debug)]
pub struct BurstLoss {
    begin: Probability,
    end: Probability,
    streams: Streams<bool>,
}

impl BurstLoss {
    /// Creates a burst loss element with a mean loss probability of `rate` and a mean burst length of `burst`
    /// packets (at least one).
    pub fn new(rate: Probability, burst: f64, seed: u64, element: u64) -> Self {
        let end = 1.0 / burst.max(1.0);
        let mean = rate.as_f64();
        // Probability of entering the loss state: p = r L / (1 - L). With a mean loss probability of 1, the
        // chain has no good state.
        let begin = if mean < 1.0 { end * mean / (1.0 - mean) } else { 1.0 };
        let end = if mean < 1.0 { Probability::from_f64(end) } else { Probability::ZERO };
        Self { begin: Probability::from_f64(begin), end, streams: Streams::new(seed, element) }
    }

    /// Returns whether this packet is lost.
    pub fn loses(&mut self, packet: PacketInfo) -> bool {
        let (begin, end) = (self.begin, self.end);
        let (draw, bad) = self.streams.next(packet);
        *bad = if *bad { !end.hits(draw) } else { begin.hits(draw) };
        *bad
    }
}
