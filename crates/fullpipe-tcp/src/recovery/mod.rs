//! Loss recovery: the only place where data is marked lost.
//!
//! ```text
//!   ACK ─► scoreboard ─► rack ─► marks ─► prr ─► window        (recovery marks and sizes;
//!            │                     │                             without SACK newreno for rack)
//!            └── probe, rto ───────┘        conn/output sends what is marked
//! ```

pub mod newreno;
pub mod probe;
pub mod prr;
pub mod rack;
pub mod rto;
pub mod scoreboard;
pub mod undo;
