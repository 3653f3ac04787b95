//! Fuzz targets: functions of bytes that panic when something is wrong.
//!
//! `crates/fullpipe-tcp/tests/it/corpus.rs` compiles the same files on a stable toolchain and runs the
//! committed corpus of TCP's targets; `crates/fullpipe-cli/tests/it/corpus.rs` does so for the others.

#[cfg(target_os = "linux")]
pub mod copy;
pub mod operations;
pub mod options;
pub mod protocols;
pub mod readers;
pub mod wire;
