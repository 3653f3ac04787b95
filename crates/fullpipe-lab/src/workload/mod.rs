//! Workloads: the behaviour of the two applications of a flow, modelled without I/O.
//!
//! ```text
//!   Writer ──offers(now)──► bytes ──► send buffer          receive buffer ──► takes(now) ──► Reader
//!      └── wakes_at() ──► timer                                   timer ◄── wakes_at() ──┘
//! ```
//!
//! The applications of a workload do not access sockets. The driver asks an application for the number of
//! bytes that it wants now, transfers as many of them as possible, and reports the number transferred. The
//! driver asks the application again when the socket becomes ready or at `wakes_at`. Simulated connections
//! and kernel sockets can therefore run the same workloads.
//!
//! With a request, the connection is opened from the other end, as in a download from a web server:
//!
//! ```text
//!   receiver ──SYN──► sender    ──SYN-ACK──►    ──request──►    ──data, FIN──► receiver
//! ```

mod delays;
mod reader;
mod writer;

use fullpipe_units::{Bytes, Duration, Rate};

pub use delays::Delays;
pub use reader::{CURL_BUFFER, CURL_PERIOD, Reader, curl_buffer};
pub use writer::{WRITE_BLOCK, WRITE_TIME, Writer};

/// Behaviour of the sending and the receiving application of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Behaviour of the sending application.
    pub writing: Writing,
    /// Behaviour of the receiving application.
    pub reading: Reading,
    /// Size of the request in bytes, above zero. The receiver opens the connection and sends a request of
    /// this size, and the sender writes only after it has read the whole request. `None` if the sender opens
    /// the connection and writes at once.
    pub request: Option<Bytes>,
}

/// Behaviour of a sending application: greedy, paced, or controlled by its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writing {
    /// The application always has more data: it writes as much as the send buffer accepts.
    #[default]
    Greedy,
    /// The application produces data at a fixed rate, `chunk` bytes at a time. Data that does not fit into
    /// the send buffer waits in the application, and is written as soon as the buffer has room.
    Paced {
        /// Rate at which the application produces payload; above zero.
        rate: Rate,
        /// Number of bytes per write; above zero.
        chunk: Bytes,
    },
    /// The application writes what its program grants, in the simulator ([`run_team`](crate::sim::run_team)).
    Granted,
}

/// Amounts that the applications of a program's flows may write and read until the next trace row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Number of flows that send; these are the first flows of the scenario. All other flows pause.
    pub sending: usize,
    /// Number of bytes that the sending flows may write together, in addition to earlier grants that they
    /// have not used.
    pub writes: Bytes,
    /// Number of bytes that the receiving applications of all flows may read together; `None` if they read
    /// everything.
    pub reads: Option<Bytes>,
}

/// Behaviour of a receiving application: greedy, paced, like curl, a loop, or controlled by its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// The application reads all available data at once.
    #[default]
    Greedy,
    /// The application processes data at a fixed rate: after a read of n bytes, it is busy for n / `rate`;
    /// then it reads again. It reads at most `chunk` bytes at once. The application does not catch up after
    /// it has waited for data.
    Paced {
        /// Rate at which the application processes payload; above zero.
        rate: Rate,
        /// Maximum number of bytes per read; above zero.
        chunk: Bytes,
    },
    /// The application reads like `curl --limit-rate`: up to [`curl_buffer`] bytes at once, followed by a
    /// sleep while the average rate is above the limit. The average is computed from a reference point. At
    /// intervals of at least [`CURL_PERIOD`], the reference point moves to the current time. After a shorter
    /// stall, curl therefore catches up without limit.
    CurlLimit {
        /// Limit on the average rate at which the application reads; above zero.
        rate: Rate,
    },
    /// The application fills a small buffer, sleeps, and repeats: it reads at most `buffer` bytes every
    /// `every`.
    Loop {
        /// Number of bytes to read before each sleep; above zero.
        buffer: Bytes,
        /// Time for which the application sleeps between two reads.
        every: Duration,
    },
    /// The application reads what its program grants, in the simulator ([`run_team`](crate::sim::run_team)).
    Granted,
}

/// Interval between the writes or reads of a smooth application: the resolution of a millisecond timer.
const SMOOTH_TICK: Duration = Duration::from_millis(1);
/// Minimum chunk of a smooth application: the payload of one full segment on Ethernet.
const SMOOTH_LEAST: Bytes = Bytes::new(1_448);

/// Returns the chunk of a smooth application at `rate`: the data of one millisecond, but at least one
/// segment.
pub fn smooth_chunk(rate: Rate) -> Bytes {
    (rate * SMOOTH_TICK).max(SMOOTH_LEAST)
}

impl Writing {
    /// Returns whether the data of the application has a production time, from which its delay is measured.
    pub const fn is_paced(self) -> bool {
        matches!(self, Self::Paced { .. })
    }

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
