//! Types with units.
//!
//! Every rate, time, size and probability in fullpipe is one of these types, so that a bit is never
//! added to a byte and a millisecond never compared with a second. All are plain integers: results
//! are the same on every machine, and nothing here can be NaN.
//!
//! | type | unit | range |
//! |---|---|---|
//! | [`Instant`] | nanoseconds since the start of the run | 0 to 584 years |
//! | [`Duration`] | nanoseconds | 0 to 584 years |
//! | [`Rate`] | bit/s | 0 to 18 Ebit/s |
//! | [`Bytes`] | bytes | 0 to 16 EiB |
//! | [`Probability`] | multiples of 2^-63 | 0 to 1, both reachable |
//!
//! Each parses from the text that people write (`"340mbit"`, `"140ms"`, `"4MiB"`, `"20ppm"`), prints
//! in the same words, and refuses what is ambiguous (`mbps`) with a hint. [`Ecn`] is here too: path and TCP share
//! that field of a packet, and nothing else.
#![forbid(unsafe_code)]

mod draw;
mod ecn;
mod parse;
mod probability;
mod rate;
mod size;
mod time;

pub use draw::{Draws, draw};
pub use ecn::Ecn;
pub use parse::ParseUnitError;
pub use probability::Probability;
pub use rate::Rate;
pub use size::Bytes;
pub use time::{Duration, Instant};
