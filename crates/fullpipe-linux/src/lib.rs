//! The part of fullpipe that uses the Linux kernel: it runs scenarios of the lab and fullpipe's TCP stack in
//! real time.
//!
//! ```text
//!   namespace "sender"                this process                 namespace "receiver"
//!   kernel TCP ── TUN ──read──► path (fullpipe-path) ──write──► TUN ── kernel TCP
//!                  ▲                                              │
//!                  └──write── path of the other direction ◄─read──┘
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`rights`] | privileges that the process needs, and how it acquires them |
//! | [`namespace`] | network namespaces that exist no longer than this process |
//! | `netlink`, [`Tun`] | addresses and devices, in a network namespace or on the host |
//! | [`bind`] | when the kernel chooses the local port of a socket |
//! | [`device`] | speed of devices, and drops of their queues |
//! | [`routing`] | devices, addresses, routes and rules of a network namespace, as data |
//! | [`ipsec`] | whether a network namespace has IPsec policies |
//! | [`link`] | the real-time loop: one thread per direction, the simulator's path, the kernel's clock |
//! | `hosts` | measurements of whether applications and kernels at the ends kept up |
//! | [`wan`] | two namespaces and a path between them |
//! | `flows` | kernel sockets at both ends, and their `TCP_INFO` |
//! | [`emu`] | a scenario with kernel flows; its outcome has the same form as in the simulator |
//! | [`uml`] | a scenario on an unmodified Linux kernel in virtual time, without privileges |
//! | [`stack_loop`] | fullpipe's own TCP on a TUN device of the lab or the host, or at an end of the path |
//! | [`iperf3`] | iperf3 tests on real networks: streams, client, server |
//! | [`pacing`] | the highest rate of a socket |
//! | [`sock_diag`] | state of all TCP sockets of this host, over netlink |
//! | [`watch`] | periodic samples of the TCP sockets of this host |
//! | [`return_path`] | replies of a server to clients whose addresses this host has borrowed |
//! | [`process`] | command lines of running processes |
//! | [`command`] | any command behind an emulated path |
//! | [`tune`] | TCP settings and routes of a host: read, change on trial, confirm, restore |
//! | [`shared`] | a file that is written through memory, for a reader that outlives this process |
//! | `pid_namespace` | a PID namespace for a command and all its descendants |
//!
//! This crate does not require `netem`, `fq`, a kernel module or a system command. Unsafe code is limited to
//! `sys.rs`, which contains one system call per function, and to its callers `tcp_info.rs`,
//! `shared.rs`, `pid_namespace.rs` and `uml/launch.rs`.
#![cfg(target_os = "linux")]

mod arena;
pub mod bind;
mod clock;
pub mod command;
pub mod device;
pub mod emu;
mod error;
mod flows;
#[doc(hidden)]
pub mod foreign;
mod hosts;
pub mod iperf3;
pub mod ipsec;
pub mod link;
pub mod namespace;
mod netlink;
mod outcome;
pub mod pacing;
mod packet;
mod pid_namespace;
mod poll;
pub mod process;
pub mod return_path;
pub mod rights;
pub mod routing;
pub mod shared;
pub mod sock_diag;
pub mod stack_loop;
mod sys;
mod tcp_info;
mod tun;
pub mod tune;
pub mod uml;
pub mod wan;
pub mod watch;

pub use clock::Clock;
pub use error::{Error, Kind};
pub use flows::kernel_name;
pub use poll::{Readiness, Stop, WaitCondition};
pub use tun::{Datapath, Tun, TunConfig};
