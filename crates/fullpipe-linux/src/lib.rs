//! Everything that touches a kernel: the lab's world with the real clock.
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
//! | [`rights`] | what the process must be allowed, and how it asks for it |
//! | [`namespace`] | network namespaces that live as long as this process and no longer |
//! | `netlink`, [`Tun`] | addresses and devices, in them or on the host |
//! | [`link`] | the loop: one thread a direction, the same path as the simulator, the kernel's clock |
//! | `hosts` | whether applications and kernels at the ends kept up |
//! | [`wan`] | two namespaces and a link between them |
//! | `flows` | kernel sockets at both ends, and what they tell of themselves |
//! | [`emu`] | a scenario with kernel flows: the same outcome as the simulator's |
//! | [`stack_loop`] | fullpipe's own TCP on a TUN device, the lab's or a host's, or at an end of the path |
//! | [`iperf3`] | iperf3's tests on real networks: streams, client, server |
//! | [`sock_diag`] | what the TCP sockets of this host tell of themselves, whosever they are |
//! | [`watch`] | samples of them, again and again |
//! | [`command`] | any command behind a path |
//! | [`tune`] | settings and routes of a host: read, changed for a time, confirmed, taken back |
//! | `pid_namespace` | that command, with all that descends from it |
//!
//! Nothing needs `netem`, `fq`, a kernel module or a command of the system. Unsafe code is in `sys.rs` and
//! `tcp_info.rs`, a call each, and in `pid_namespace.rs`, which forks.
#![cfg(target_os = "linux")]

mod arena;
mod clock;
pub mod command;
pub mod emu;
mod error;
mod flows;
mod hosts;
pub mod iperf3;
pub mod link;
pub mod namespace;
mod netlink;
mod packet;
mod pid_namespace;
mod poll;
pub mod rights;
pub mod sock_diag;
pub mod stack_loop;
mod sys;
mod tcp_info;
mod tun;
pub mod tune;
pub mod wan;
pub mod watch;

pub use clock::Clock;
pub use error::{Error, Kind};
pub use flows::kernel_name;
pub use poll::Stop;
pub use tun::{Datapath, Tun, TunConfig};
