//! Compares fullpipe with kernels: the simulator, the ladder and the classifier.
//!
//! | module | comparison |
//! |---|---|
//! | [`cells`] | runs of the simulator with runs of the kernel, cell by cell |
//! | [`ladder_validation`] | the prediction of each rung with a kernel run of the same scenario |
//! | [`classifier_validation`] | the limit that the classifier names with the designed limit of the run |
#![forbid(unsafe_code)]

pub mod cells;
pub mod classifier_validation;
pub mod ladder_validation;
