//! Tests of the comparison without kernel runs.
#![cfg(target_os = "linux")]

#[path = "../../../fullpipe-cli/tests/process/mod.rs"]
mod process;

mod kept;

/// Path of the program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe-fidelity");
