//! TCP without I/O.
//!
//! Segments, times and offsets go in; transmissions, timers and events come out. Nothing here reads a
//! clock, opens a socket or touches payload: the code that a simulator runs in virtual time is the
//! code that can carry traffic.
//!
//! | folder | concept |
//! |---|---|
//! | [`conn`] | one connection: the parts put together |
//! | [`wire`] | sequence numbers and segment headers |
//! | `tx` | packet building, send queue, pacing |
//! | `rx` | reassembly, ACK policy, receive window |
//! | [`recovery`] | what arrived, what is lost, how fast to repair |
//! | [`cc`] | congestion control: facts in, decision out |
//! | [`estimate`] | round-trip time and delivery rate |
//! | [`stack`] | many connections behind addresses: packets in, packets out |
//! | [`buffers`] | how a kernel turns buffer bytes into window and back |
//!
//! The profile is that of Linux 6.18 where RFCs leave room; deviations are named where they are made.
#![forbid(unsafe_code)]

// Unit tests share their driver with the integration tests, which know the crate by its name.
#[cfg(test)]
extern crate self as fullpipe_tcp;

pub mod buffers;
pub mod cc;
pub mod conn;
pub mod estimate;
mod limit;
pub mod ranges;
pub mod recovery;
mod rx;
pub mod stack;
mod tunables;
mod tx;
pub mod wire;

pub use conn::{
    Accepted, Config, Connection, Event, IpVersion, KeepAlive, ReceiverSnapshot, Snapshot, State, Stats,
    reset_for,
};
pub use limit::SendLimit;
pub use tunables::{RtoRule, Tunables};
pub use tx::{Piece, Segments, Transmit};
