//! Tests of the `fullpipe` command in real time: sockets, namespaces, signals, terminals.
#![cfg(target_os = "linux")]

#[path = "../../../fullpipe-lab/tests/it/counting.rs"]
mod counting;
#[path = "../process/mod.rs"]
mod process;

mod accelerate;
#[cfg(all(target_os = "linux", feature = "copy"))]
mod copy;
mod emu;
mod exporter;
mod iperf3_client;
mod iperf3_server;
mod left_behind;
mod pages;
mod sockets;
mod tcpdump;
mod tui;
mod tune;
mod watch_cost;

/// Path of the `fullpipe` program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");
