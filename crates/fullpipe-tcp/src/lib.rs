//! TCP engine without I/O.
//!
//! The engine takes segments, times and offsets as input, and returns transmissions, timers and events. The
//! crate reads no clock and opens no socket, and only [`stack`] and [`wire`] access payload. The code that a
//! simulator runs in virtual time can therefore also carry real traffic.
//!
//! | folder | concept |
//! |---|---|
//! | [`conn`] | one connection, assembled from the parts below |
//! | [`wire`] | sequence numbers and segment headers |
//! | `tx` | packet building, send queue, pacing |
//! | `rx` | reassembly, ACK policy, receive window |
//! | [`recovery`] | delivered and lost records, repair of losses |
//! | [`cc`] | congestion control |
//! | [`estimate`] | round-trip time and delivery rate |
//! | [`stack`] | many connections behind addresses; packets in, packets out |
//! | [`memory`] | measurements that earlier connections made on paths, and limits of larger first flights |
//! | [`buffers`] | conversion between socket buffer sizes and windows |
//!
//! Where the RFCs leave a choice, the crate follows Linux 6.18. Comments name each deviation.
//! `docs/evidence/conformance.md` lists the check labels, such as RK-2 or DR-13.
#![forbid(unsafe_code)]

// The unit tests use the driver of the integration tests, which refers to this crate by its external name.
#[cfg(test)]
extern crate self as fullpipe_tcp;

pub mod buffers;
pub mod cc;
pub mod conn;
pub mod estimate;
mod limit;
pub mod memory;
pub mod ranges;
pub mod recovery;
mod rx;
pub mod stack;
mod tunables;
mod tx;
pub mod wire;

pub use conn::{
    Accepted, Config, Connection, Event, IpVersion, KeepAlive, Probe, ReceiverSnapshot, Snapshot, State,
    Stats, reset_for,
};
pub use limit::SendLimit;
pub use tunables::{Bursts, ProbeTimeout, ReoWnd, Retries, RtoRule, TunableError, Tunables};
pub use tx::{Piece, Segments, Transmit};
