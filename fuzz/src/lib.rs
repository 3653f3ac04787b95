//! Fuzz targets: functions of bytes that panic when something is wrong.
//!
//! `crates/fullpipe-tcp/tests/it/corpus.rs` compiles the same files on a stable toolchain and runs the
//! committed corpus.

pub mod operations;
pub mod options;
pub mod wire;
