//! Sockets as a scenario wants them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;

use fullpipe_lab::scenario::{FlowSpec, HostSpec};
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Bytes;
use socket2::{Domain, Protocol, Socket, Type};

use super::LISTEN_PORT;
use crate::error::{Doing, Error};
use crate::namespace::set_sysctl;
use crate::sys;
use crate::tcp_info::NO_LIMIT;
use crate::wan::{RECEIVER, SENDER};

/// Connections that may wait to be accepted: all flows may start at once.
const BACKLOG: i32 = 10_000;
/// First and second value of `tcp_wmem` and `tcp_rmem`, as every kernel has them.
const LEAST: u64 = 4_096;
const WMEM_DEFAULT: u64 = 16_384;
const RMEM_DEFAULT: u64 = 131_072;

/// Sets the limits of autotuning for the namespace of the calling thread.
pub(crate) fn impose(host: &HostSpec) -> Result<(), Error> {
    let limit = |name: &str, buffer: Buffer, default: u64| match buffer {
        Buffer::Auto { max } => {
            let max = max.get().clamp(1, i32::MAX as u64);
            set_sysctl(name, &format!("{} {} {max}", LEAST.min(max), default.min(max)))
        }
        Buffer::Fixed(_) => Ok(()),
    };
    // Asked for or not; agreed to in either case, as is the kernel's own default.
    set_sysctl("net/ipv4/tcp_ecn", if host.ecn { "1" } else { "2" })?;
    set_sysctl("net/ipv4/tcp_sack", if host.sack { "1" } else { "0" })?;
    let after_idle = if host.slow_start_after_idle { "1" } else { "0" };
    set_sysctl("net/ipv4/tcp_slow_start_after_idle", after_idle)?;
    if let Some(lowat) = host.notsent_lowat {
        set_sysctl("net/ipv4/tcp_notsent_lowat", &lowat.get().to_string())?;
    }
    limit("net/ipv4/tcp_wmem", host.sndbuf, WMEM_DEFAULT)?;
    limit("net/ipv4/tcp_rmem", host.rcvbuf, RMEM_DEFAULT)
}

/// The kernel's name of a congestion control.
pub fn kernel_name(cc: Algorithm) -> &'static str {
    match cc {
        Algorithm::Bbr1 => "bbr",
        other => other.name(),
    }
}

/// A socket that is about to connect.
pub(crate) fn connecting(host: &HostSpec, flow: &FlowSpec, port: u16) -> Result<Socket, Error> {
    if flow.slow_start.is_some() && flow.slow_start != flow.cc.slow_start() {
        return Err(Error::settings(
            format!("the kernel's {} has a slow start of its own", flow.cc),
            "leave slow_start out, or use the simulator: --world sim",
        ));
    }
    let socket = tcp()?;
    let name = kernel_name(flow.cc);
    socket.set_tcp_congestion(name.as_bytes()).map_err(|_| {
        let load = match flow.cc {
            Algorithm::Bbr3 => "mainline Linux has version 1 only, bbr1".into(),
            _ => format!("load the module tcp_{name}"),
        };
        Error::settings(
            format!("this kernel has no congestion control '{name}'"),
            format!("{load}; or use the simulator: --world sim"),
        )
    })?;
    if let Buffer::Fixed(size) = host.sndbuf {
        force(&socket, libc::SO_SNDBUFFORCE, size).doing("set SO_SNDBUF")?;
    }
    // Any limit but the largest makes TCP pace by itself, as it would under the fq queueing discipline.
    let pace = match flow.max_pacing_rate {
        Some(rate) => Some(rate.as_bytes_per_sec()),
        None => host.fair_queue.then_some(NO_LIMIT),
    };
    if let Some(pace) = pace {
        sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, pace)
            .doing("set SO_MAX_PACING_RATE")?;
    }
    bind(&socket, SENDER, port)?;
    Ok(socket)
}

/// The socket on which all flows arrive; what it is set to, they inherit.
pub(crate) fn listening(host: &HostSpec) -> Result<Socket, Error> {
    let socket = tcp()?;
    if let Buffer::Fixed(size) = host.rcvbuf {
        force(&socket, libc::SO_RCVBUFFORCE, size).doing("set SO_RCVBUF")?;
    }
    if let Some(window) = host.window_clamp {
        clamp(&socket, window).doing("set TCP_WINDOW_CLAMP")?;
    }
    bind(&socket, RECEIVER, LISTEN_PORT)?;
    socket.listen(BACKLOG).doing("listen")?;
    Ok(socket)
}

/// Bounds the window that a socket offers.
pub(crate) fn clamp(socket: &Socket, window: Bytes) -> std::io::Result<()> {
    let window = window.get().min(i32::MAX as u64) as libc::c_int;
    sys::set_socket_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
}

fn tcp() -> Result<Socket, Error> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).doing("make a socket")?;
    socket.set_nonblocking(true).doing("make a socket non-blocking")?;
    Ok(socket)
}

fn bind(socket: &Socket, address: Ipv4Addr, port: u16) -> Result<(), Error> {
    socket.bind(&SocketAddrV4::new(address, port).into()).doing(format_args!("bind to {address}:{port}"))
}

/// Sets a buffer to so many bytes of memory. The kernel doubles what it is told, to make room for overhead; `FORCE` goes
/// beyond `wmem_max` and `rmem_max`, which are the machine's and not the namespace's.
fn force(socket: &Socket, option: libc::c_int, memory: Bytes) -> std::io::Result<()> {
    let half = (memory.get() / 2).min(i32::MAX as u64 / 2) as libc::c_int;
    sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, option, half)
}
