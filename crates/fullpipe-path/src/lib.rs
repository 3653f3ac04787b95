//! A network path without I/O: packets go in with a time, verdicts and departures come out.
//!
//! Elements are of two kinds. *Verdicts* (loss, policer, duplication, thinning of ACKs) answer at once. *Holders* (a
//! hop: queue, link and delay fused; a shaper, an aggregator, jitter) keep packets and let them go.
//!
//! ```text
//!   push(t) ─► loss ─► policer ─► hop: [ queue | link | delay ] ─► … ─► pop(t)
//!                │        │              │
//!                ▼        ▼              ▼
//!              Lost    Policed    QueueFull, Managed, or a mark
//! ```
//!
//! [`Path`] carries a payload and never looks at it: verdicts depend on time, length, flow, ECN field and ordinal
//! alone. `push` and `pop` first run every internal event that is due, at its due time, so results
//! depend on arrivals only, never on when somebody looked: the simulator in virtual time and an
//! emulator in real time get the same departures, to the nanosecond.
#![forbid(unsafe_code)]

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
pub use verdicts::{AckThinning, Duplication};
