//! The loop with the real clock: packets from one TUN device through a path to another.
//!
//! ```text
//!   epoll ─► read until there is nothing ─► path.push(arrival)
//!        ─► path.pop(now) until nothing is due ─► write, lateness = now - due
//!        ─► timer at path.next_event(), absolute
//! ```
//!
//! Each direction is a thread with a path of its own. Departures follow from arrivals alone: a loop that wakes late
//! writes late, and the next packet is still due when it was. How late is measured for each packet and judged
//! afterwards ([`fullpipe_lab::validity`]).

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

/// How packets get the number of their flow.
#[derive(Clone, Debug)]
pub(crate) enum FlowNumbers {
    /// By a port: flow `n` has port `first + n`, as its source (0) or its destination (1).
    ByPort { which: usize, first: u16 },
    /// In the order in which they appear.
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

/// When the loop notes the state of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) every: Duration,
    pub(crate) until: Instant,
    pub(crate) flows: u32,
}

/// The state of a path at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// As each flow meets it.
    pub states: Vec<PathState>,
    /// What it has counted so far.
    pub counters: Counters,
}

/// What one direction did.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Packets by fate.
    pub counters: Counters,
    /// Data packets among those that were dropped.
    pub data_drops: u64,
    /// How much later than due packets were written.
    pub lateness: Lateness,
    /// Writes that the kernel refused: packets lost without a reason in the path.
    pub write_errors: u64,
    /// Writes; with offload one may carry several packets.
    pub writes: u64,
    /// Packets written.
    pub packets: u64,
    /// Processor time of the loop.
    pub cpu: Duration,
    /// Whether the loop ran before ordinary threads.
    pub real_time: bool,
    /// The state of the path on the grid that was asked for.
    pub samples: Vec<PathSample>,
    /// Every arrival and departure, if asked for.
    pub log: Option<Log>,
}

fn is_drop(verdict: Verdict) -> bool {
    verdict != Verdict::Accepted
}
