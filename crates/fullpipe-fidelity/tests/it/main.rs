//! The comparison as far as it needs no kernel of its own.
#![cfg(target_os = "linux")]

#[path = "../../../fullpipe-cli/tests/process/mod.rs"]
mod process;

mod kept;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe-fidelity");
