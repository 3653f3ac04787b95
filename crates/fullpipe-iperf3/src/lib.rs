//! The iperf3 protocol without I/O: the messages between client and server, as Rust values and as bytes.
//!
//! ```text
//!   client                        server
//!   cookie ─────────────────────►            the control connection: TCP, default port 5201
//!          ◄───── PARAM_EXCHANGE             or ACCESS_DENIED at once, from a server that is full
//!   Params ─────────────────────►            or SERVER_ERROR from here on
//!          ◄────── CREATE_STREAMS
//!   cookie ═════════════════════►            on each data connection, to the same port; over UDP a hello and its reply
//!          ◄─ TEST_START, TEST_RUNNING
//!          ◄════════ data ═════►
//!   TEST_END ───────────────────►            the client ends every test
//!          ◄──── EXCHANGE_RESULTS
//!   Results ────────────────────►
//!          ◄───────────── Results
//!          ◄───── DISPLAY_RESULTS
//!   IPERF_DONE ─────────────────►
//! ```
//!
//! The caller transfers the bytes and supplies the time. All input from a peer is untrusted: lengths are
//! limited before anything is stored, the type and the range of each value are checked, and no input causes a
//! panic.
//!
//! | module | concept |
//! |---|---|
//! | [`state`] | the byte that signals the state of a test |
//! | [`cookie`] | the cookie of a test, which identifies its connections |
//! | [`frame`] | JSON messages with a length prefix |
//! | [`params`] | test parameters that the client requests |
//! | [`results`] | counters that client and server exchange after a test |
//! | [`streams`] | the numbers and the directions of streams |
//! | [`refusal`] | the errors that a server reports |
//! | [`datagram`] | the header of each UDP datagram, and the hello that precedes the datagrams |
//! | [`arrivals`] | loss, reordering and jitter, computed from the datagram headers |
//! | [`document`] | the report of a test: the structure of `-J` and `--json-stream` |
//! | [`mod@report`] | the report of one stream, with iperf3's keys: the form in which documents are written and read |
//! | [`log`] | reader for a document of any iperf3 version |
//! | [`text`] | the report of a test as text lines, in iperf3's columns |
//! | [`mod@unit`] | amounts and rates in iperf3's notation |
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod cookie;
pub mod datagram;
pub mod document;
pub mod frame;
mod json;
mod lenient;
pub mod log;
pub mod params;
pub mod refusal;
pub mod report;
pub mod results;
pub mod state;
pub mod streams;
pub mod text;
pub mod unit;

pub use arrivals::Arrivals;
pub use cookie::Cookie;
pub use params::{Mode, Params, Protocol};
pub use refusal::Refusal;
pub use results::{Results, StreamResult};
pub use state::State;

use std::fmt;

/// Default TCP and UDP port of an iperf3 server.
pub const PORT: u16 = 5201;

/// Error for an invalid message from a peer; the text is one line without a final period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError(pub(crate) String);

impl WireError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}
