//! Packet log of a link; the link can be replayed from it without a kernel.

use fullpipe_lab::scenario::{DirectionSpec, FlowSpec};
use fullpipe_lab::sim::direction;
use fullpipe_path::{Ecn, PacketInfo, Verdict};
use fullpipe_units::Instant;

/// A packet that entered the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time at which the packet entered the path.
    pub at: Instant,
    /// Properties of the packet that determine how the path treats it.
    pub packet: PacketInfo,
    /// Verdict of the path: accepted, or the reason for dropping the packet.
    pub verdict: Verdict,
}

/// A packet that left the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Time at which the packet was due; the packet was written at this time or later.
    pub due: Instant,
    /// Index of the packet in the list of arrivals, starting from zero.
    pub arrival: u64,
    /// ECN field of the packet, which the path may have set to CE.
    pub ecn: Ecn,
}

/// All packet arrivals and departures of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Packet arrivals in chronological order.
    pub arrivals: Vec<Arrival>,
    /// Packet departures in chronological order.
    pub departures: Vec<Departure>,
}

impl Log {
    /// Replays the arrivals on a new path in virtual time. The result contains every packet that leaves the
    /// new path, including packets that were still in flight when the link stopped.
    #[must_use]
    pub fn replayed(&self, spec: &DirectionSpec, flows: &[FlowSpec], seed: u64, number: u64) -> Self {
        let mut path = direction::<u64>(spec, flows, seed, number);
        let mut log = Self::default();
        for (i, arrival) in self.arrivals.iter().enumerate() {
            let verdict = path.push(arrival.at, arrival.packet, i as u64);
            log.arrivals.push(Arrival { verdict, ..*arrival });
        }
        while let Some(exit) = path.pop(Instant::FAR_FUTURE) {
            log.departures.push(Departure { due: exit.at, arrival: exit.payload, ecn: exit.packet.ecn });
        }
        log
    }
}
