//! iperf3's protocol without I/O: what its client and server say to each other, as values and bytes.
//!
//! ```text
//!   client                        server
//!   cookie ─────────────────────►            the control connection: TCP, default port 5201
//!          ◄───── PARAM_EXCHANGE             or ACCESS_DENIED at once, from a server that is full
//!   Params ─────────────────────►            or SERVER_ERROR from here on
//!          ◄────── CREATE_STREAMS
//!   cookie ═════════════════════►            on each data connection, to the same port; over UDP a hello and its answer
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
//! Whoever uses this moves the bytes and knows the time. All that a peer sends is taken as hostile: lengths are bounded before
//! anything is kept, each value is checked for its type and range, and nothing here panics.
//!
//! | module | concept |
//! |---|---|
//! | [`state`] | the byte that says where a test is |
//! | [`cookie`] | the name of a test, which joins its connections |
//! | [`frame`] | a length and JSON |
//! | [`params`] | what the client asks for |
//! | [`results`] | what each side has counted |
//! | [`streams`] | the numbers of streams, and who sends on which |
//! | [`refusal`] | the errors that a server tells |
//! | [`datagram`] | the header of each UDP datagram, and the hello before them |
//! | [`arrivals`] | loss, order and jitter from these headers |
//! | [`document`] | what a test has shown: the shape of `-J` and `--json-stream` |
//! | [`text`] | the same as lines for people, in iperf3's columns |
//! | [`mod@unit`] | amounts and rates as iperf3 reads and prints them |
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod cookie;
pub mod datagram;
pub mod document;
pub mod frame;
mod json;
pub mod params;
pub mod refusal;
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

/// The port of a server that was told none.
pub const PORT: u16 = 5201;

/// What a peer sent that cannot be used, in a line without a final period.
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
