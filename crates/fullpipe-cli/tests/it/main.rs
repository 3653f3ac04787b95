//! The command, as a person or a script sees it: text, JSON, hints, exit codes.

#[path = "../process/mod.rs"]
mod process;

mod capture;
mod diagnose;
mod manual;
mod pcapng;
mod predictions;
mod run;
mod schemas;
mod snapshots;
mod trace;
mod whatif;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");
