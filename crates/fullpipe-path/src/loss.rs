//! Random loss: independent, and in bursts.

use fullpipe_units::Probability;

use crate::chance::Streams;
use crate::packet::PacketInfo;

/// Loses each packet with the same probability, whatever happened to the others.
#[derive(Clone, Debug)]
pub struct IidLoss {
    probability: Probability,
    unit: LossUnit,
    /// The fate of the last super-packet.
    streams: Streams<bool>,
}

/// What one decision of [`IidLoss`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossUnit {
    /// Each packet on the wire.
    Packet,
    /// All packets that were cut from one super-packet: what `netem` does on the sender's own host, where
    /// it sees a transmission before it is cut.
    SuperPacket,
}

impl IidLoss {
    /// Loss with `probability`; `element` tells this element's draws from those of others.
    pub fn new(probability: Probability, unit: LossUnit, seed: u64, element: u64) -> Self {
        Self { probability, unit, streams: Streams::new(seed, element) }
    }

    /// Whether this packet is lost.
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

/// Loses packets in bursts: the Gilbert-Elliott model in its simplest form.
///
/// ```text
///            p
///   Good ─────────► Bad        every packet in Bad is lost, none in Good
///        ◄─────────            mean burst 1/r packets, mean loss p / (p + r)
///            r
/// ```
///
/// Each flow has its own state, moved by its own packets: a burst is a number of packets, not a time.
#[derive(Clone, Debug)]
pub struct BurstLoss {
    begin: Probability,
    end: Probability,
    streams: Streams<bool>,
}

impl BurstLoss {
    /// Loss with a mean of `rate` in bursts of `burst` packets on average (at least one).
    pub fn new(rate: Probability, burst: f64, seed: u64, element: u64) -> Self {
        let end = 1.0 / burst.max(1.0);
        let mean = rate.as_f64();
        // p = r L / (1 - L); a mean of one leaves no good state.
        let begin = if mean < 1.0 { end * mean / (1.0 - mean) } else { 1.0 };
        let end = if mean < 1.0 { Probability::from_f64(end) } else { Probability::ZERO };
        Self { begin: Probability::from_f64(begin), end, streams: Streams::new(seed, element) }
    }

    /// Whether this packet is lost.
    pub fn loses(&mut self, packet: PacketInfo) -> bool {
        let (begin, end) = (self.begin, self.end);
        let (draw, bad) = self.streams.next(packet);
        *bad = if *bad { !end.hits(draw) } else { begin.hits(draw) };
        *bad
    }
}
