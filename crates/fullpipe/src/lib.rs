//! Finds out why a TCP path is slow.
//!
//! ```text
//! iperf3 log ───► input ──► explain ──► Findings ──► Rungs ──► Diagnosis ──► report
//! sysctl dump ──► input ──────┘                 advice ──┘
//! ```
//!
//! Reading, explaining and reporting are pure functions of text and values: no I/O, no clock.
#![forbid(unsafe_code)]

pub mod advice;
pub mod explain;
pub mod input;
pub mod report;
pub mod stats;

pub use advice::Command;
pub use explain::{Facts, Finding, Findings, Limit, explain};
pub use input::iperf3_text::Iperf3Log;
pub use input::sysctl::HostSettings;
pub use input::{InputError, Kind};
pub use report::{Diagnosis, Rung, render_text};
pub use stats::LossEstimate;
