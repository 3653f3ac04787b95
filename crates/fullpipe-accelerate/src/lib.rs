//! Puts fullpipe's TCP in front of an unmodified server on the same host, for unmodified clients.
//!
//! ```text
//!   client ⇄ network card ─ nftables ingress hook ─► new connections of our port ─► TUN ─► worker ⇄ server
//!                                   └─ everything else: the kernel                 │
//!   keeper (root; sees no packet): device, nftables table, worker, status   ◄──────┘ report every 100 ms
//! ```
//!
//! The service takes over only new connections: connections that exist when it starts stay with the kernel.
//! If the worker dies, the keeper removes the table. If the keeper dies, the kernel removes the table
//! together with its owner. In both cases, the next SYN reaches the kernel's own listener.
//!
//! | module | concept |
//! |---|---|
//! | [`config`] | TOML file and command line |
//! | [`preflight`] | changes that the service would make to this host, and obstacles |
//! | [`firewall`] | check of the host's firewall rules |
//! | [`routes`] | path to the clients |
//! | `forwarding` | device settings with which the kernel routes the worker's packets |
//! | [`steering`] | text of the nftables table, in phases |
//! | `nft` | the nftables process that owns the table |
//! | `policies` | profiles of the senders, for all clients and for some clients |
//! | `ports` | number of local ports for connections to the server |
//! | `handover` | settings and a raw socket for the worker |
//! | [`keeper`] | device, table and worker; restart and removal |
//! | `users` | user of the worker |
//! | [`worker`] | the relay: one stack, one epoll |
//! | `sandbox` | system calls that the worker is permitted |
//! | [`relay`] | one direction of a connection, without I/O |
//! | `upstream` | kernel sockets to the server |
//! | [`health`] | whether the server accepts connections |
//! | [`memory`] | which connections stop reading when the budget is spent |
//! | `overload` | whether the worker reads its packets in time |
//! | `probes` | table of live connections, and packets that tell the clients of a dead worker |
//! | `answers` | resets for the clients that answer these packets |
//! | `stranded` | packets that a dead worker has not read |
//! | [`proxy`] | PROXY protocol, version 2 |
//! | [`status`] | the state of running services |
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io;

use fullpipe_linux::{Error, Kind};

mod answers;
pub mod config;
pub mod firewall;
mod forwarding;
mod handover;
pub mod health;
pub mod keeper;
pub mod memory;
mod nft;
mod overload;
pub mod policies;
mod ports;
pub mod preflight;
mod probes;
pub mod proxy;
pub mod relay;
pub mod routes;
mod sandbox;
pub mod status;
pub mod steering;
mod stranded;
#[cfg(test)]
mod test_packets;
mod upstream;
mod users;
pub mod worker;

/// Creates the error for settings or a host with which the service cannot run.
fn refused(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error { kind: Kind::Settings, message: message.into(), hint: hint.into() }
}

/// Creates the error for the failed operation `what`, caused by `error`.
fn system(what: impl Display, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let message = format!("cannot {what}: {error}");
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Error { kind: Kind::Rights, message, hint: "run fullpipe accelerate as root".into() }
        }
        _ => Error { kind: Kind::System, message, hint: String::new() },
    }
}

impl From<config::ConfigError> for Error {
    fn from(error: config::ConfigError) -> Self {
        refused(error.message, error.hint)
    }
}
