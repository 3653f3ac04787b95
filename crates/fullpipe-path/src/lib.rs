//! A network path without I/O: packets go in with a time, verdicts and departures come out.
//!
//! Elements are of two kinds. *Verdicts* (loss, policer) answer at once. *Holders* (a hop: queue, rate and
//! delay fused; a shaper) keep packets in a FIFO and know each departure the moment a packet enters.
//!
//! ```text
//!   push(t) ─► loss ─► hop: [ queue | rate | delay ] ─► … ─► pop(t)
//!                │            │
//!                ▼            ▼
//!              Lost       QueueFull       (a policer's drops: Policed)
//! ```
//!
//! [`Path`] carries a payload and never looks at it: verdicts depend on time, length, flow and ordinal
//! alone. `push` and `pop` first run every internal event that is due, at its due time, so results
//! depend on arrivals only, never on when somebody looked: the simulator in virtual time and an
//! emulator in real time get the same departures, to the nanosecond.
#![forbid(unsafe_code)]

mod bucket;
mod hop;
mod loss;
mod path;
mod policer;
mod shaper;

pub use hop::{Hop, HopConfig};
pub use loss::{BurstLoss, IidLoss, LossUnit};
pub use path::{Busy, Counters, Element, PacketInfo, PacketKind, Path, Verdict};
pub use policer::{Policer, Scope};
pub use shaper::{Shaper, ShaperConfig};
