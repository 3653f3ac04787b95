//! Small verdicts: duplication, and the thinning of ACKs.

use fullpipe_units::Probability;

use crate::chance::Streams;
use crate::packet::{PacketInfo, PacketKind};

/// Makes a copy of a packet now and then, which follows right behind it.
#[derive(Clone, Debug)]
pub struct Duplication {
    probability: Probability,
    chance: Streams<()>,
}

impl Duplication {
    /// Duplication with `probability`; `element` tells this element's draws from those of others.
    pub fn new(probability: Probability, seed: u64, element: u64) -> Self {
        Self { probability, chance: Streams::new(seed, element) }
    }

    /// Whether there shall be two of this packet.
    pub fn doubles(&mut self, packet: PacketInfo) -> bool {
        self.probability.hits(self.chance.next(packet).0)
    }
}

/// Keeps every n-th ACK of a flow, as boxes on slow return channels do. Everything else passes, and nothing is kept
/// back: the last ACKs of a burst may be missing, and the sender's probe asks for them.
#[derive(Clone, Debug)]
pub struct AckThinning {
    keep_one_in: u32,
    /// ACKs of each flow since the last that passed.
    left_out: Vec<u32>,
}

impl AckThinning {
    /// Keeps one of so many ACKs; all, for one or none.
    pub fn new(keep_one_in: u32) -> Self {
        Self { keep_one_in: keep_one_in.max(1), left_out: Vec::new() }
    }

    /// Whether this packet is left out.
    pub fn leaves_out(&mut self, packet: PacketInfo) -> bool {
        if packet.kind != PacketKind::Ack {
            return false;
        }
        let flow = packet.flow as usize;
        if self.left_out.len() <= flow {
            self.left_out.resize(flow + 1, 0);
        }
        let left_out = &mut self.left_out[flow];
        *left_out = (*left_out + 1) % self.keep_one_in;
        *left_out != 0
    }
}
