//! Small verdict elements: duplication and ACK decimation.

use fullpipe_units::Probability;

use crate::chance::Streams;
use crate::packet::{PacketInfo, PacketKind};

/// An element that duplicates packets randomly; the copy directly follows the original.
#[derive(Clone, Debug)]
pub struct Duplication {
    probability: Probability,
    chance: Streams<()>,
}

impl Duplication {
    /// Creates a duplication element with `probability`; `element` selects its random stream.
    pub fn new(probability: Probability, seed: u64, element: u64) -> Self {
        Self { probability, chance: Streams::new(seed, element) }
    }

    /// Returns whether this packet is to be duplicated.
    pub fn doubles(&mut self, packet: PacketInfo) -> bool {
        self.probability.hits(self.chance.next(packet).0)
    }
}

/// ACK decimation: passes only every n-th pure ACK of a flow, as some devices on slow return channels do.
///
/// All other packets pass. No ACK is delayed, so the last ACKs of a burst may be dropped. The sender's tail
/// loss probe then elicits another ACK.
#[derive(Clone, Debug)]
pub struct AckDecimation {
    keep_one_in: u32,
    /// For each flow, the number of pure ACKs dropped since the last one that passed.
    left_out: Vec<u32>,
}

impl AckDecimation {
    /// Creates an ACK decimation element that passes one of every `keep_one_in` pure ACKs. The values 0 and 1
    /// pass all ACKs.
    pub fn new(keep_one_in: u32) -> Self {
        Self { keep_one_in: keep_one_in.max(1), left_out: Vec::new() }
    }

    /// Returns whether this packet is dropped.
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
