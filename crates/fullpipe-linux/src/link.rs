//! The real-time loop that carries packets from one TUN device through a path to another.
//!
//! ```text
//!   epoll ─► read until nothing is left ─► path.push(arrival)
//!        ─► path.pop(now) until nothing is due ─► write, lateness = now - due
//!        ─► timer at path.next_event(), absolute
//! ```
//!
//! Each direction is a thread with a separate path. Departures follow from arrivals alone: a loop that
//! wakes late writes late, but the next packet's due time does not move. The lateness of each packet is
//! measured and judged afterwards ([`fullpipe_lab::validity`]).

mod log;
mod run;
mod tap;

pub use log::{Arrival, Departure, Log};
pub(crate) use run::{Link, LinkConfig};
pub(crate) use tap::{PacketNote, Tap, WAITING};

use std::collections::BTreeMap;

use fullpipe_lab::trace::PathState;
use fullpipe_lab::validity::Lateness;
use fullpipe_path::{Counters, Verdict};
use fullpipe_units::{Duration, Instant};

use crate::packet::FlowKey;

/// Method of assigning flow numbers to packets.
#[derive(Clone, Debug)]
pub(crate) enum FlowNumbers {
    /// By port: flow `n` has port `first + n` as its source (`which` 0) or destination (`which` 1)
    /// port.
    ByPort { which: usize, first: u16 },
    /// Numbered in order of first appearance.
    ByAppearance(BTreeMap<FlowKey, u32>),
}

impl FlowNumbers {
    pub(crate) fn by_appearance() -> Self {
        Self::ByAppearance(BTreeMap::new())
    }

    fn number(&mut self, key: &FlowKey) -> u32 {
        match self {
            Self::ByPort { which, first } => key.ports[*which].wrapping_sub(*first).into(),
            Self::ByAppearance(numbers) => {
                let next = numbers.len() as u32;
                *numbers.entry(*key).or_insert(next)
            }
        }
    }
}

/// Grid on which the loop samples the state of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) every: Duration,
    pub(crate) until: Instant,
    pub(crate) flows: u32,
}

/// State of a path at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// State as seen by each flow, in order of flow number.
    pub states: Vec<PathState>,
    /// Packet counters up to this time.
    pub counters: Counters,
}

/// Counters and measurements of one direction.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Packets by fate.
    pub counters: Counters,
    /// Dropped data packets.
    pub data_drops: u64,
    /// Distribution of lateness: write time minus due time.
    pub lateness: Lateness,
    /// Writes that the kernel refused: packets lost without a reason in the path.
    pub write_errors: u64,
    /// Number of writes; with offload one may carry several packets.
    pub writes: u64,
    /// Number of packets written.
    pub packets: u64,
    /// Processor time of the loop.
    pub cpu: Duration,
    /// Whether the loop had real-time priority.
    pub real_time: bool,
    /// State of the path at the sampling times, empty if no sampling was requested.
    pub samples: Vec<PathSample>,
    /// Every arrival and departure, if requested.
    pub log: Option<Log>,
}

fn is_drop(verdict: Verdict) -> bool {
    verdict != Verdict::Accepted
}
