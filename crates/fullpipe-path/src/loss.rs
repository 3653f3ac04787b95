//! Independent random loss.

use fullpipe_units::{Draws, Probability};

use crate::path::{PacketInfo, PacketKind};

/// Loses each packet with the same probability, whatever happened to the others.
///
/// The decision is `draw(seed, element and flow, ordinal)`, the ordinal counting the packets of that
/// flow and kind at this element: adding a flow, or changing a congestion control, moves nobody
/// else's losses, so that two runs can be compared in pairs.
#[derive(Clone, Debug)]
pub struct IidLoss {
    probability: Probability,
    seed: u64,
    element: u64,
    flows: Vec<[Stream; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    draws: Draws,
    next: u64,
}

impl IidLoss {
    /// Loss with `probability`; `element` tells this element's draws from those of others.
    pub fn new(probability: Probability, seed: u64, element: u64) -> Self {
        Self { probability, seed, element, flows: Vec::new() }
    }

    /// Whether this packet is lost.
    pub fn loses(&mut self, packet: PacketInfo) -> bool {
        if self.probability.is_zero() {
            return false;
        }
        let flow = packet.flow as usize;
        while self.flows.len() <= flow {
            let number = self.flows.len() as u64;
            let stream = |kind: u64| Stream {
                draws: Draws::new(self.seed, (self.element << 40) ^ (number << 1) ^ kind),
                next: 0,
            };
            self.flows.push([stream(0), stream(1)]);
        }
        let stream = &mut self.flows[flow][usize::from(packet.kind == PacketKind::Control)];
        let draw = stream.draws.at(stream.next);
        stream.next += 1;
        self.probability.hits(draw)
    }
}
