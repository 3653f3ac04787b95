//! Compares fullpipe's simulator, ladder and classifier with real kernels.
//!
//! | module | comparison |
//! |---|---|
//! | [`cells`] | runs of the simulator with runs of the kernel, cell by cell |
//! | [`ladder_validation`] | the prediction of each rung with kernel runs of the same state |
//! | [`rung_runs`] | the kernel runs that correspond to the rungs of a ladder |
//! | [`iperf3_log`] | the iperf3 log of a run whose sockets were sampled |
//! | [`drawn`], [`drawn_situations`] | cells and situations that a seed draws |
//! | [`classifier_validation`] | the limit that the classifier names with the designed limit of the run |
//! | [`recorded`], [`answers`] | what the diagnosis says about each kind of input of such a run |
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod answers;
pub mod cells;
pub mod classifier_validation;
pub mod drawn;
pub mod drawn_situations;
#[cfg(target_os = "linux")]
pub mod iperf3_log;
pub mod ladder_validation;
#[cfg(target_os = "linux")]
pub mod recorded;
pub mod rung_runs;
