//! Copies files over several TLS connections, and keeps the copied data if either end crashes.
//!
//! ```text
//!   copy: sources ─► send ─► Dispatcher ─► connections 0 to N-1 ─► serve ─► session ─► incoming ─► store
//!                              engine            wire, tls            pending     Arrivals, Groups   │
//!         replies: durable, placed ◄──────────────────────────────────────────────── journal, rename ┘
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `engine` | decisions without I/O and clock: blocks for connections, rate limit, arrived and durable blocks |
//! | [`frame`] | frames and messages of the protocol, with their limits |
//! | `hash` | BLAKE3 hash of a file from its blocks |
//! | `keys`, `tls` | ed25519 raw public keys, fingerprints, allow files; TLS 1.3 |
//! | `store` | temporary files, journal, and the order of writes that survives a crash |
//! | `send`, `sources` | the client: files to copy, connections |
//! | `attempts` | which errors of a copy are followed by another attempt |
//! | `socket` | options of the sockets |
//! | `paced` | rate limit that a relay applies to a client |
//! | `serve`, `pending`, `session`, `incoming` | the relay: connections, transfers, files |
//! | `fetch`, `outlet` | a client that receives files from a relay, or a file for a pipe |
//! | `peers` | what the last copy to each peer has seen |
//! | `ssh` | a relay for one copy, started over ssh |
//! | `target`, `name` | ends on the command line, names below a root |
//! | `report` | the result as text and JSON |
//!
//! This is the only crate of fullpipe with an async runtime.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod attempts;
mod engine;
mod error;
mod fetch;
pub mod frame;
mod hash;
mod hex;
mod incoming;
mod keys;
mod memory;
mod name;
mod outlet;
mod paced;
mod peers;
mod pending;
mod report;
mod send;
mod serve;
mod session;
mod socket;
mod sources;
mod ssh;
mod store;
mod target;
mod tls;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe_units::Duration;

pub use engine::{Buffers, Choice, Interval, Remembered, Room};
pub use error::{Error, Kind};
pub use hex::{Hex, NotHex};
pub use keys::{Access, AllowList, Fingerprint, Identity, Rights};
pub use name::{LinkContent, NameError, PathText, RelativePath, StreamName};
pub use report::{ConnectionReport, CopyReport, ForecastReport, PipeReport};
pub use send::{
    Connections, CopyObserver, CopyOptions, Kernel, Pacer, Pipe, PipeOptions, RateLimit, Reached, Sampler,
    SocketSample, Sources, copy, open_progress, probe,
};
pub use serve::{ServeObserver, ServeOptions, serve};
pub use ssh::serve_once;
pub use target::{End, PORT};

/// Locks `mutex`. Poisoning is ignored: the values that this crate locks are valid after each statement, so
/// even a task that panics leaves a valid value.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts a duration of the system clock; longer durations become the maximum of the type.
fn span(since: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Creates the async runtime of a client or a relay.
fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Error::system("start the runtime", &error))
}
