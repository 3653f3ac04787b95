//! Experiments, and the event loop that runs them in virtual time.
//!
//! ```text
//!   TOML ─► experiment ─► points ─► scenarios ─► campaign ─► sim ─► outcomes ─► check ─► results
//!                                   (x seeds)    (all cores)  │
//!                                                             └─► trace rows, if requested
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`experiment`] | the experiment file: defaults, sweeps, multiples of the BDP, expectations |
//! | [`scenario`] | the specification of one run, with every value resolved |
//! | [`workload`] | behaviour of the applications at both ends, without I/O |
//! | [`profile`] | named settings of a sender, with a range for each key |
//! | [`arm`], [`race`] | senders that are compared, and the plan, the pairs and the results of a comparison |
//! | [`victim`] | flows that other flows harm, and the metric of each |
//! | [`bootstrap`] | the ratio of two means, with its confidence interval |
//! | [`campaign`] | runs every point with every seed, in parallel; each run stays on one thread |
//! | [`cost`] | the expected work of a run, computed before the run starts |
//! | [`sim`] | the event loop: two TCP connections per flow, one path per direction, a virtual clock |
//! | [`trace`], [`history`], [`outcome`] | the states of a run over time, and its totals |
//! | [`columns`] | tables of columns, from which writers, readers and reference pages come |
//! | [`host`] | TCP settings, devices and route of a host, and changes to them, as plain values |
//! | [`capture`] | the packets of a run, as a capture at the sending host would contain them |
//! | [`pair`] | the packets of two runs of one scenario, and the first packet that differs |
//! | [`validity`] | whether a run in real time can be trusted |
//! | [`metric`] | figures of a run, under the names that experiment files use |
//! | [`check`], [`results`] | metrics compared with expectations, and the result document |
//! | [`stats`] | means, medians and quantiles, and the confidence interval of a count |
//! | [`nearest`] | the known name that a misspelt name probably means |
//!
//! This crate connects the TCP engine to the path simulator: segments of `fullpipe-tcp` become packets on a
//! path of `fullpipe-path`. The crate does no I/O and reads no clock. The outcome of a simulated run is a
//! function of its scenario.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod arm;
pub mod bootstrap;
pub mod campaign;
pub mod capture;
pub mod check;
pub mod columns;
pub mod cost;
pub mod experiment;
pub mod history;
pub mod host;
pub mod metric;
pub mod nearest;
pub mod outcome;
pub mod pair;
pub mod profile;
pub mod race;
pub mod results;
pub mod scenario;
pub mod sim;
pub mod stats;
pub mod trace;
pub mod validity;
pub mod victim;
pub mod workload;
