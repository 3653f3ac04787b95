//! What an experiment is, and the loop that runs it in virtual time.
#![forbid(unsafe_code)]

pub mod outcome;
pub mod scenario;
