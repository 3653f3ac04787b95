//! Random draws, keyed by flow and packet number.

use fullpipe_units::Draws;

use crate::packet::{PacketInfo, PacketKind};

/// One random stream and one state per flow, separate for data packets and other packets.
///
/// A decision is `draw(seed, element and flow, ordinal)`, where the ordinal counts the packets of that flow
/// and kind at this element. Adding a flow or changing the congestion control therefore does not change the
/// losses of other flows, so runs can be compared in pairs.
#[derive(Clone, Debug)]
pub(crate) struct Streams<S> {
    seed: u64,
    element: u64,
    flows: Vec<[Stream<S>; 2]>,
}

#[derive(Clone, Debug)]
struct Stream<S> {
    draws: Draws,
    next: u64,
    state: S,
}

impl<S: Default> Streams<S> {
    pub(crate) fn new(seed: u64, element: u64) -> Self {
        Self { seed, element, flows: Vec::new() }
    }

    /// Returns the random draw for this packet, and the state of its flow.
    pub(crate) fn next(&mut self, packet: PacketInfo) -> (u64, &mut S) {
        let flow = packet.flow as usize;
        while self.flows.len() <= flow {
            let number = self.flows.len() as u64;
            let stream = |kind: u64| Stream {
                draws: Draws::new(self.seed, (self.element << 40) ^ (number << 1) ^ kind),
                next: 0,
                state: S::default(),
            };
            self.flows.push([stream(0), stream(1)]);
        }
        let stream = &mut self.flows[flow][usize::from(packet.kind != PacketKind::Data)];
        let draw = stream.draws.at(stream.next);
        stream.next += 1;
        (draw, &mut stream.state)
    }
}
