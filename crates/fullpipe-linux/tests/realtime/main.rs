//! Tests that need a kernel: paths between two network namespaces, sockets on these paths, and settings of a
//! host.
#![cfg(target_os = "linux")]

mod command;
mod emu;
mod exchange;
mod peers;
mod rights;
mod stack;
mod tune;
