//! Compares fullpipe with kernels: the simulator, the ladder and the classifier.
//!
//! | module | what it compares |
//! |---|---|
//! | [`cells`] | the simulator's runs with the kernel's, cell by cell |
//! | [`ladder_validation`] | what each rung predicts with what the kernel makes of the same run |
//! | [`classifier_validation`] | the limit that the classifier names with the one that a run was built to have |
#![forbid(unsafe_code)]

pub mod cells;
pub mod classifier_validation;
pub mod ladder_validation;
