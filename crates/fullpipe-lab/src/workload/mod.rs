//! What the two applications of a flow do: a workload, without I/O.
//!
//! ```text
//!   Writer ──offers(now)──► bytes ──► send buffer          receive buffer ──► takes(now) ──► Reader
//!      └── wakes_at() ──► timer                                   timer ◄── wakes_at() ──┘
//! ```
//!
//! Neither touches a socket. Whoever drives one asks how much it wants now, gives it what there is, says
//! how much that was, and asks again when the socket becomes ready or when `wakes_at` has come. So the
//! simulator's connections and kernel sockets run the same workloads.

mod reader;
mod writer;

use fullpipe_units::{Bytes, Duration, Rate};

pub use reader::{CURL_BUFFER, CURL_PERIOD, Reader, curl_buffer};
pub use writer::{WRITE_BLOCK, WRITE_TIME, Writer};

/// What both applications of a flow do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The sending application.
    pub writing: Writing,
    /// The receiving application.
    pub reading: Reading,
}

/// What a sending application does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writing {
    /// Always has more: writes as much as the send buffer takes.
    #[default]
    Greedy,
    /// Produces data at a rate whatever becomes of it, `chunk` bytes at a time. What the send buffer has no
    /// room for waits in the application and is written as soon as there is room.
    Paced {
        /// Payload per second; above zero.
        rate: Rate,
        /// Bytes that are written together; above zero.
        chunk: Bytes,
    },
}

/// What a receiving application does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Reads whatever there is, at once.
    #[default]
    Greedy,
    /// Needs its time for each byte: after a read of n bytes it is busy for n / `rate`, and then reads the
    /// next, at most `chunk` at a time. Time spent waiting for data is not made up for.
    Paced {
        /// Payload per second; above zero.
        rate: Rate,
        /// Most bytes that one read takes; above zero.
        chunk: Bytes,
    },
    /// `curl --limit-rate`: reads up to [`curl_buffer`] bytes as fast as they come, and sleeps whenever its
    /// average is above the limit, until it is not. The average is that since a starting point, which is
    /// moved to the present no sooner than [`CURL_PERIOD`] after the last time: a stall shorter than this is
    /// made up for without limit.
    CurlLimit {
        /// Payload per second; above zero.
        rate: Rate,
    },
    /// Fills a small buffer, sleeps, and begins again: at most `buffer` bytes every `every`.
    Loop {
        /// Bytes it reads before it sleeps; above zero.
        buffer: Bytes,
        /// How long it sleeps.
        every: Duration,
    },
}

/// Time between the writes or reads of an application that is as smooth as a timer of a millisecond lets
/// it be.
const SMOOTH_TICK: Duration = Duration::from_millis(1);
/// A full segment on an Ethernet: a smooth application handles no less at a time.
const SMOOTH_LEAST: Bytes = Bytes::new(1_448);

/// What a smooth application of `rate` handles at a time: what a millisecond brings, at least a segment.
pub fn smooth_chunk(rate: Rate) -> Bytes {
    (rate * SMOOTH_TICK).max(SMOOTH_LEAST)
}

impl Writing {
    /// At `rate`, a millisecond's worth at a time.
    pub fn smooth(rate: Rate) -> Self {
        Self::Paced { rate, chunk: smooth_chunk(rate) }
    }
}

impl Reading {
    /// At `rate`, a millisecond's worth at a time.
    pub fn smooth(rate: Rate) -> Self {
        Self::Paced { rate, chunk: smooth_chunk(rate) }
    }
}
