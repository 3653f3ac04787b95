//! Measurements of TCP transfers, and what limits each of them over time.
//!
//! ```text
//! iperf3 log, trace, capture, ss ───► input ──► Measurement ──► classify ──► Limit, Finding
//! sysctl dump ──────────────────────► input ──► HostSettings
//! ```
//!
//! Everything is a pure function of text and values: no I/O, no clock. The upper layers, which explain a
//! measurement and build its ladder, are in `fullpipe-analysis`.
//!
//! - [`input`] reads documents of all formats.
//! - [`measurement`] contains the values that they describe.
//! - [`classify`] determines the limit of each interval.
//!
//! `input` and the smaller modules form the lower layer, `classify` the upper one.
#![forbid(unsafe_code)]

pub mod classify;
pub mod input;
pub mod json;
pub mod loss_estimate;
pub mod measurement;
mod path_facts;
pub mod segment;
pub mod thresholds;
pub mod throughput_models;

pub use classify::{Finding, Limit};
pub use input::sysctl::HostSettings;
pub use input::{InputError, Kind};
pub use loss_estimate::LossEstimate;
pub use measurement::Measurement;
pub use path_facts::PathFacts;
