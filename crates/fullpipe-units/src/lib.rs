//! Integer types with units.
//!
//! Every rate, time, size and probability in fullpipe has one of these types, so the compiler rejects an
//! addition of bits to bytes, or a comparison of a size with a time. All types are plain integers: results
//! are the same on every machine, and no value can be NaN.
//!
//! | type | unit | range |
//! |---|---|---|
//! | [`Instant`] | nanoseconds since the start of the run | 0 to 584 years |
//! | [`Duration`] | nanoseconds | 0 to 584 years |
//! | [`Rate`] | bit/s | 0 to 18 Ebit/s |
//! | [`Bytes`] | bytes | 0 to 16 EiB |
//! | [`Probability`] | multiples of 2^-63 | 0 to 1, both inclusive |
//!
//! All types except [`Instant`] parse common spellings (`"340mbit"`, `"140ms"`, `"4MiB"`, `"20ppm"`) and
//! print with such units. Ambiguous spellings (`mbps`) are rejected with a hint. [`Ecn`] is in this crate
//! because it is the only packet field that the path and TCP crates share.
//!
//! Functions that divide are marked `#[inline]`. Without this attribute, the compiler inlines a function into
//! other crates only if the function cannot panic. Several of these functions are called for each packet.
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
