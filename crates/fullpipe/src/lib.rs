//! Finds out why a TCP path is slow.
//!
//! ```text
//! iperf3 log ──► input ──► explain ──► Findings ──► ladder ──► Diagnosis ──► report
//! sysctl dump ──► input ──────┘          (advice: what to change, on which host)
//! ```
//!
//! Reading, explaining and reporting are pure functions of text and values: no I/O, no clock.
#![forbid(unsafe_code)]

pub mod input;
pub mod stats;

pub use input::iperf3_text::Iperf3Log;
pub use input::sysctl::HostSettings;
pub use input::{InputError, Kind};
pub use stats::LossEstimate;
