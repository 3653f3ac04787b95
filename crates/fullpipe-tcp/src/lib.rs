//! TCP without I/O.
#![forbid(unsafe_code)]

pub mod buffers;
pub mod cc;
mod limit;

pub use limit::SendLimit;
