//! Tests of the `fullpipe` command as users and scripts see it: text, JSON, hints, exit codes.

#[path = "../process/mod.rs"]
mod process;

mod capture;
#[cfg(target_os = "linux")]
mod corpus;
mod cross_border;
#[cfg(feature = "tables")]
mod dataset;
mod diagnose;
mod manual;
mod pages;
mod pcapng;
mod pictures;
mod predictions;
mod race;
mod run;
mod schemas;
mod snapshots;
mod trace;
#[cfg(target_os = "linux")]
mod uml;
mod whatif;

/// Path of the `fullpipe` program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");
