//! Finds out why a TCP path is slow, and what to do about it.
#![forbid(unsafe_code)]

pub use fullpipe_analysis::*;
pub use fullpipe_lab as lab;
pub use fullpipe_tcp as tcp;
pub use fullpipe_units as units;
