//! Tests that need a kernel: the path between two namespaces, sockets on it, settings of a host.
#![cfg(target_os = "linux")]

mod command;
mod emu;
mod exchange;
mod peers;
mod rights;
mod stack;
mod tune;
