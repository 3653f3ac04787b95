//! The real-time loop that carries packets from one TUN device through a path to another.
//!
//! ```text
//!   epoll ─► read until nothing is left ─► path.push(arrival)
//!        ─► path.pop(now) until nothing is due ─► write, lateness = now - due
//!        ─► timer at path.next_event(), absolute
//! ```
//!
//! Each direction of the link has a thread and a separate path. Departure times depend only on arrivals: if
//! the loop wakes up late, it writes a packet late, but the due time of the next packet does not change. The
//! lateness of each packet is measured, and evaluated after the run ([`fullpipe_lab::validity`]).

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

/// Rule by which the link assigns flow numbers to packets.
#[derive(Clone, Debug)]
pub(crate) enum FlowNumbers {
    /// Flow numbers follow the TCP port of the end that opened the connection: flow `n` has port `first + n`.
    /// The port of the other end is lower than `first`.
    ByPort { first: u16 },
    /// Flows are numbered in the order in which they first appear.
    ByAppearance(BTreeMap<FlowKey, u32>),
}

impl FlowNumbers {
    pub(crate) fn by_appearance() -> Self {
        Self::ByAppearance(BTreeMap::new())
    }

    pub(crate) fn number(&mut self, key: &FlowKey) -> u32 {
        match self {
            Self::ByPort { first } => key.ports[0].max(key.ports[1]).wrapping_sub(*first).into(),
            Self::ByAppearance(numbers) => {
                let next = numbers.len() as u32;
                *numbers.entry(*key).or_insert(next)
            }
        }
    }
}

/// Times at which the loop samples the state of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) every: Duration,
    pub(crate) until: Instant,
    pub(crate) flows: u32,
}

/// State of a path at one sampling time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// State of the path as it affects each flow, in the order of flow numbers.
    pub states: Vec<PathState>,
    /// Packet counters since the start of the run.
    pub counters: Counters,
}

/// Packet counters and timing measurements of one direction of the link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Numbers of packets that were delivered, dropped, marked and so on.
    pub counters: Counters,
    /// Number of data packets that the path dropped.
    pub data_drops: u64,
    /// Distribution of the packets' lateness: write time minus due time.
    pub lateness: Lateness,
    /// Number of writes that the kernel refused. The counters of the path do not include these losses.
    pub write_errors: u64,
    /// Number of writes to the device; with offload, one write may contain several packets.
    pub writes: u64,
    /// Number of packets written to the device.
    pub packets: u64,
    /// CPU time that the loop has used.
    pub cpu: Duration,
    /// Whether the loop ran with real-time priority.
    pub real_time: bool,
    /// Samples of the path's state; empty if no sampling was requested.
    pub samples: Vec<PathSample>,
    /// Log of all packet arrivals and departures, if requested.
    pub log: Option<Log>,
}

fn is_drop(verdict: Verdict) -> bool {
    verdict != Verdict::Accepted
}
