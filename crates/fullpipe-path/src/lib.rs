//! A network path without I/O: each packet enters at a given time, and the path returns verdicts and
//! departures.
//!
//! There are two kinds of elements. *Verdict elements* (loss, policer, duplication, ACK decimation) decide
//! immediately. *Holders* (hop, shaper, aggregator, detour, jitter, access links) keep packets and release
//! them later. A hop combines queue, link and delay.
//!
//! ```text
//!   push(t) ─► loss ─► policer ─► hop: [ queue | link | delay ] ─► … ─► pop(t)
//!                │        │              │
//!                ▼        ▼              ▼
//!              Lost    Policed    QueueFull, Managed, or a mark
//! ```
//!
//! [`Path`] carries a payload and never reads it. Of a packet, the elements use only the arrival time and the
//! properties in [`PacketInfo`]. `push` and `pop` first run every internal event that is due, at its due
//! time. Results therefore depend only on the arrivals, not on when the path is queried: the simulator in
//! virtual time and an emulator in real time get identical departures, to the nanosecond.
#![forbid(unsafe_code)]

mod access;
mod aggregate;
mod aqm;
mod bucket;
mod chance;
mod detour;
mod element;
mod hop;
mod jitter;
mod ledger;
mod link;
mod loss;
mod managed;
mod packet;
mod path;
mod policer;
mod shaper;
mod verdicts;
mod waiting;

pub use access::AccessLinks;
pub use aggregate::{Aggregator, AggregatorConfig};
pub use aqm::{CodelConfig, Discipline, FqCodelConfig, PieConfig, RedConfig};
pub use detour::{Detour, DetourConfig};
pub use element::Element;
pub use fullpipe_units::Ecn;
pub use hop::{Hop, HopConfig};
pub use jitter::{Jitter, JitterConfig, Spread};
pub use ledger::Counters;
pub use link::Opportunities;
pub use loss::{BurstLoss, IidLoss, LossUnit};
pub use managed::{ManagedHop, ManagedHopConfig, Service};
pub use packet::{Exit, Note, PacketInfo, PacketKind, Verdict};
pub use path::{Busy, Path};
pub use policer::{Policer, Scope};
pub use shaper::{Shaper, ShaperConfig};
pub use verdicts::{AckDecimation, Duplication};
