//! Tests of `fullpipe-fidelity` that need no kernel runs.
#![cfg(target_os = "linux")]

#[path = "../../../fullpipe-cli/tests/process/mod.rs"]
mod process;

mod inputs;
mod kept;

/// Path of the `fullpipe-fidelity` program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe-fidelity");
