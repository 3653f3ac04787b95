//! What an experiment is, and the loop that runs it in virtual time.
//!
//! ```text
//!   TOML ─► experiment ─► points ─► scenarios ─► campaign ─► sim ─► outcomes ─► check ─► results
//!                                   (x seeds)    (all cores)  │
//!                                                             └─► trace rows, for those who want them
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`experiment`] | the file: defaults, sweeps, multiples of the BDP, expectations |
//! | [`scenario`] | one run with every value known |
//! | [`workload`] | what the applications at both ends do, without I/O |
//! | [`campaign`] | every point with every seed, in parallel; a run itself is on one thread |
//! | [`sim`] | the loop: two TCP connections a flow, a path each way, a clock that jumps |
//! | [`trace`], [`history`], [`outcome`] | what a run shows over time, and in sum |
//! | [`host`] | a host's settings, devices and route, and changes to them, as values |
//! | [`capture`] | the packets of a run, as the sending host's wire shows them |
//! | [`validity`] | whether a run in real time is to be believed |
//! | [`metric`] | figures of a run, by the names that a file gives them |
//! | [`check`], [`results`] | metrics against expectations, and the document that comes of it |
//!
//! Here the engines meet: segments of `fullpipe-tcp` become packets on a path of `fullpipe-path`. Nothing
//! here does I/O or reads a clock; an outcome is a function of its scenario.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod capture;
pub mod check;
pub mod experiment;
pub mod history;
pub mod host;
pub mod metric;
pub mod outcome;
pub mod results;
pub mod scenario;
pub mod sim;
pub mod trace;
pub mod validity;
pub mod workload;
