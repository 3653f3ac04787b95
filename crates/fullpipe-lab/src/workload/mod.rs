//! Workloads: the behaviour of the two applications of a flow, without I/O.
//!
//! ```text
//!   Writer ──offers(now)──► bytes ──► send buffer          receive buffer ──► takes(now) ──► Reader
//!      └── wakes_at() ──► timer                                   timer ◄── wakes_at() ──┘
//! ```
//!
//! Neither application touches a socket. The driver asks for the number of bytes that the application wants
//! now, transfers as many as possible, reports the number, and asks again when the socket becomes ready or at
//! `wakes_at`. The simulator's connections and kernel sockets can therefore run the same workloads.

mod reader;
mod writer;

use fullpipe_units::{Bytes, Duration, Rate};

pub use reader::{CURL_BUFFER, CURL_PERIOD, Reader, curl_buffer};
pub use writer::{WRITE_BLOCK, WRITE_TIME, Writer};

/// Behaviour of both applications of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The sending application.
    pub writing: Writing,
    /// The receiving application.
    pub reading: Reading,
}

/// Behaviour of a sending application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writing {
    /// Always has more data: writes as much as the send buffer accepts.
    #[default]
    Greedy,
    /// Produces data at a fixed rate, `chunk` bytes at a time. Data that does not fit into the send buffer
    /// waits in the application and is written as soon as there is room.
    Paced {
        /// Payload rate; above zero.
        rate: Rate,
        /// Bytes per write; above zero.
        chunk: Bytes,
    },
}

/// Behaviour of a receiving application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Reads all available data at once.
    #[default]
    Greedy,
    /// Processes data at a fixed rate: after a read of n bytes it is busy for n / `rate`, then reads again,
    /// at most `chunk` bytes. It does not catch up after waiting for data.
    Paced {
        /// Payload rate; above zero.
        rate: Rate,
        /// Maximum bytes per read; above zero.
        chunk: Bytes,
    },
    /// Reads like `curl --limit-rate`: up to [`curl_buffer`] bytes at once, then a sleep while the average is
    /// above the limit. The average starts at a reference point, which moves to the current time at intervals
    /// of at least [`CURL_PERIOD`]. After a shorter stall, curl therefore catches up without limit.
    CurlLimit {
        /// Payload rate; above zero.
        rate: Rate,
    },
    /// Fills a small buffer, sleeps, and repeats: at most `buffer` bytes every `every`.
    Loop {
        /// Bytes to read before each sleep; above zero.
        buffer: Bytes,
        /// Duration of each sleep.
        every: Duration,
    },
}

/// Interval between writes or reads of a smooth application: the resolution of a millisecond timer.
const SMOOTH_TICK: Duration = Duration::from_millis(1);
/// Minimum chunk of a smooth application: one full segment on Ethernet.
const SMOOTH_LEAST: Bytes = Bytes::new(1_448);

/// Returns the chunk of a smooth application at `rate`: one millisecond of data, at least one segment.
pub fn smooth_chunk(rate: Rate) -> Bytes {
    (rate * SMOOTH_TICK).max(SMOOTH_LEAST)
}

impl Writing {
    /// Creates a paced writer at `rate` that writes one millisecond of data at a time.
    pub fn smooth(rate: Rate) -> Self {
        Self::Paced { rate, chunk: smooth_chunk(rate) }
    }
}

impl Reading {
    /// Creates a paced reader at `rate` that reads one millisecond of data at a time.
    pub fn smooth(rate: Rate) -> Self {
        Self::Paced { rate, chunk: smooth_chunk(rate) }
    }
}
