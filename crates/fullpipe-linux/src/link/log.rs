//! What a link saw and did, packet by packet: enough to repeat it without a kernel.

use fullpipe_lab::scenario::DirectionSpec;
use fullpipe_lab::sim::direction;
use fullpipe_path::{Ecn, PacketInfo, Verdict};
use fullpipe_units::Instant;

/// A packet that was offered to the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// What the path was told of it.
    pub packet: PacketInfo,
    /// What the path made of it.
    pub verdict: Verdict,
}

/// A packet that left the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When it was due; it was written then or later.
    pub due: Instant,
    /// Number of its arrival, from zero.
    pub arrival: u64,
    /// Its ECN field: the path may have marked it.
    pub ecn: Ecn,
}

/// All of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// In the order of arrival.
    pub arrivals: Vec<Arrival>,
    /// In the order of departure.
    pub departures: Vec<Departure>,
}

impl Log {
    /// What a fresh path makes of the same arrivals in virtual time: everything that leaves it, including what was
    /// still on its way when the link stopped.
    #[must_use]
    pub fn replayed(&self, spec: &DirectionSpec, seed: u64, number: u64) -> Self {
        let mut path = direction::<u64>(spec, seed, number);
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
