//! What an experiment is, and the loop that runs it in virtual time.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod check;
pub mod experiment;
pub mod outcome;
pub mod results;
pub mod scenario;
pub mod sim;
pub mod trace;
