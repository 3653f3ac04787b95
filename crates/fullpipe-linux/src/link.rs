//! The real-time loop that carries packets from one TUN device through a path to another.
//!
//! ```text
//!   epoll ─► read until nothing is left ─► path.push(arrival)
//!        ─► path.pop(now) until nothing is due ─► write, lateness = now - due
//!        ─► timer at path.next_event(), absolute
//! ```
//!
//! Each direction has a thread and a separate path. Departure times depend only on arrivals: if the
//! loop wakes up late, it writes a packet late, but the due time of the next packet does not move.
//! The lateness of each packet is measured, and judged afterwards ([`fullpipe_lab::validity`]).

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

/// Scheme by which packets are assigned flow numbers.
#[derive(Clone, Debug)]
pub(crate) enum FlowNumbers {
    /// By port: flow `n` has port `first + n`, which is its source port (`which` 0) or destination
    /// port (`which` 1).
    ByPort { which: usize, first: u16 },
    /// By order of first appearance.
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

/// Grid of times at which the loop samples the state of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) every: Duration,
    pub(crate) until: Instant,
    pub(crate) flows: u32,
}

/// State of a path at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// State of the path as each flow experiences it, in order of flow number.
    pub states: Vec<PathState>,
    /// Packet counters since the start.
    pub counters: Counters,
}

/// Counters and measurements of one direction.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Number of packets by fate.
    pub counters: Counters,
    /// Number of dropped data packets.
    pub data_drops: u64,
    /// Distribution of lateness: write time minus due time.
    pub lateness: Lateness,
    /// Number of writes that the kernel refused; the path has no record of these losses.
    pub write_errors: u64,
    /// Number of writes; with offload, one write may contain several packets.
    pub writes: u64,
    /// Number of packets written.
    pub packets: u64,
    /// CPU time of the loop.
    pub cpu: Duration,
    /// Whether the loop had real-time priority.
    pub real_time: bool,
    /// Samples of the path state; empty if no sampling was requested.
    pub samples: Vec<PathSample>,
    /// Log of all arrivals and departures, if requested.
    pub log: Option<Log>,
}

fn is_drop(verdict: Verdict) -> bool {
    verdict != Verdict::Accepted
}
