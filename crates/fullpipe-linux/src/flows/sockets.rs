//! Creates kernel sockets with the settings of a scenario.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;

use fullpipe_lab::algorithm::FlowAlgorithm;
use fullpipe_lab::scenario::{FlowSpec, HostSpec, Stack};
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::{Algorithm, SlowStart};
use fullpipe_units::{Bytes, Rate};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Flow, LISTEN_PORT, Opener};
use crate::error::{Doing, Error};
use crate::namespace::set_sysctl;
use crate::sys;
use crate::tcp_info::NO_LIMIT;
use crate::wan::{RECEIVER, SENDER};

/// Listen backlog, which is long enough for all flows to connect at the same time.
const BACKLOG: i32 = 10_000;
/// First values (`LEAST`) and second values of `tcp_wmem` and `tcp_rmem` in bytes, which have the same
/// defaults in every kernel.
const LEAST: u64 = 4_096;
const WMEM_DEFAULT: u64 = 16_384;
const RMEM_DEFAULT: u64 = 131_072;

/// Sets TCP sysctls, including the limits of buffer autotuning, in the network namespace of the calling
/// thread.
pub(crate) fn impose(host: &HostSpec) -> Result<(), Error> {
    let limit = |name: &str, buffer: Buffer, default: u64| match buffer {
        Buffer::Auto { max } => {
            let max = max.get().clamp(1, i32::MAX as u64);
            set_sysctl(name, &format!("{} {} {max}", LEAST.min(max), default.min(max)))
        }
        Buffer::Fixed(_) => Ok(()),
    };
    // The value 1 requests ECN; 2, the kernel's default, does not. With either value, the kernel accepts ECN
    // if the peer requests it.
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

/// Returns the kernel's name for a congestion control.
pub fn kernel_name(cc: FlowAlgorithm) -> &'static str {
    if cc == Algorithm::Bbr1 { "bbr" } else { cc.name() }
}

/// Creates the sending kernel socket of a flow, bound and ready to connect.
pub(crate) fn connecting(host: &HostSpec, flow: &FlowSpec, port: u16) -> Result<Socket, Error> {
    let socket = tcp()?;
    set_sender(&socket, host, flow)?;
    bind(&socket, SENDER, port)?;
    Ok(socket)
}

/// Creates the receiving kernel socket of a flow with a request, bound and ready to connect.
pub(crate) fn requesting(host: &HostSpec, flow: &FlowSpec, port: u16) -> Result<Socket, Error> {
    let socket = tcp()?;
    set_receiver(&socket, host)?;
    if flow.cc.needs_receiver() {
        set_congestion_control(&socket, flow.cc)?;
    }
    bind(&socket, RECEIVER, port)?;
    Ok(socket)
}

/// Creates the listening kernel socket of all flows without a request; accepted sockets inherit its options.
///
/// If the receiver of a flow needs the algorithm of its sender, the listener gets this algorithm, because ECN
/// is negotiated during the handshake. [`set_receiver_algorithm`] replaces it on the sockets of the other
/// flows.
pub(crate) fn listening(host: &HostSpec, flows: &[FlowSpec]) -> Result<Socket, Error> {
    let socket = tcp()?;
    set_receiver(&socket, host)?;
    if let Some(flow) = flows.iter().find(|flow| flow.cc.needs_receiver()) {
        set_congestion_control(&socket, flow.cc)?;
    }
    listen(socket, RECEIVER, LISTEN_PORT)
}

/// Listening kernel sockets at the sending hosts, for the flows with a request.
///
/// An accepted socket inherits the options of its listener; a server sets its congestion control on the
/// listening socket in the same way. Flows with different settings therefore have different listeners.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    listeners: Vec<Socket>,
    /// Flows whose connections a relay opens instead of their receivers. If there are any, the last listener is theirs.
    relayed: Vec<usize>,
}

impl Servers {
    /// Creates the listeners of all flows with a request. The function must be called inside the sender's
    /// network namespace.
    pub(crate) fn all(host: &HostSpec, flows: &[FlowSpec]) -> Result<Self, Error> {
        let listeners = Self::settings(flows).into_iter().enumerate().map(|(which, flow)| {
            let socket = tcp()?;
            set_sender(&socket, host, flow)?;
            listen(socket, SENDER, LISTEN_PORT + which as u16)
        });
        Ok(Self { listeners: listeners.collect::<Result<_, _>>()?, relayed: Vec::new() })
    }

    /// Adds the listener of a server behind a relay on the same host, at [`Servers::RELAYED`], which sends the data of
    /// the flows `relayed`. It has the kernel's settings, because the relay sends to the client. The function must be called
    /// inside the sender's network namespace.
    pub(crate) fn with_relayed(mut self, relayed: Vec<usize>) -> Result<Self, Error> {
        let socket = tcp()?;
        // A relay may check whether the server accepts connections. Such a connection is accepted only when it has ended,
        // so that it differs from one with a request.
        sys::set_socket_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1)
            .doing("set TCP_DEFER_ACCEPT")?;
        self.listeners.push(listen(socket, *Self::RELAYED.ip(), Self::RELAYED.port())?);
        self.relayed = relayed;
        Ok(self)
    }

    /// Address of the server behind a relay.
    pub(crate) const RELAYED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, LISTEN_PORT);

    /// Returns the number of the flow to which the next connection at the listener `which` belongs, if a relay connects:
    /// the port of the relay shows no flow, but all relayed flows are equal. If all of them are connected, the number is
    /// larger than any flow number.
    pub(crate) fn next_relayed(&self, which: usize, flows: &[Flow]) -> Option<usize> {
        let is_relayed = !self.relayed.is_empty() && which + 1 == self.listeners.len();
        let waits = |number: &&usize| flows[**number].sender.socket().is_none();
        is_relayed.then(|| self.relayed.iter().find(waits).copied().unwrap_or(flows.len()))
    }

    /// Adds the listeners of another sending host.
    pub(crate) fn extend(&mut self, other: Self) {
        self.listeners.extend(other.listeners);
    }

    /// Returns the listening sockets.
    pub(crate) fn sockets(&self) -> &[Socket] {
        &self.listeners
    }

    /// Returns, for each flow with a request, the port to which its receiver connects. Each sender on fullpipe's stack
    /// has a separate listener.
    pub(crate) fn ports(flows: &[FlowSpec]) -> Vec<u16> {
        let distinct = Self::settings(flows);
        let listener = |(number, flow): (usize, &FlowSpec)| match flow.stack {
            Some(Stack::Fullpipe) => number,
            _ => {
                distinct.iter().position(|other| sender_settings(other) == sender_settings(flow)).unwrap_or(0)
            }
        };
        flows.iter().enumerate().map(|flow| LISTEN_PORT + listener(flow) as u16).collect()
    }

    /// Returns the first flow with a request for each combination of settings, without those on fullpipe's stack.
    fn settings(flows: &[FlowSpec]) -> Vec<&FlowSpec> {
        let mut distinct: Vec<&FlowSpec> = Vec::new();
        let is_served =
            |flow: &&FlowSpec| Opener::of(flow) == Opener::Receiver && flow.stack != Some(Stack::Fullpipe);
        for flow in flows.iter().filter(is_served) {
            if distinct.iter().all(|other| sender_settings(other) != sender_settings(flow)) {
                distinct.push(flow);
            }
        }
        distinct
    }
}

/// Returns the settings of a flow that [`set_sender`] applies to a socket.
fn sender_settings(flow: &FlowSpec) -> (FlowAlgorithm, Option<SlowStart>, Option<Rate>) {
    (flow.cc, flow.slow_start, flow.max_pacing_rate)
}

/// Applies the settings of the sending end of `flow` to a socket.
fn set_sender(socket: &Socket, host: &HostSpec, flow: &FlowSpec) -> Result<(), Error> {
    if let Some(wanted) = flow.slow_start.filter(|wanted| Some(*wanted) != flow.cc.slow_start()) {
        return Err(Error::settings(
            format!("the kernel's {} does not support slow_start = \"{}\"", flow.cc, wanted.name()),
            "remove slow_start, or use the simulator: --world sim",
        ));
    }
    set_congestion_control(socket, flow.cc)?;
    if let Buffer::Fixed(size) = host.sndbuf {
        force(socket, libc::SO_SNDBUFFORCE, size).doing("set SO_SNDBUF")?;
    }
    // Any rate limit below the maximum value makes TCP pace internally, as it does under the fq queueing
    // discipline.
    let pace = match flow.max_pacing_rate {
        Some(rate) => Some(rate.as_bytes_per_sec()),
        None => host.fair_queue.then_some(NO_LIMIT),
    };
    if let Some(pace) = pace {
        sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, pace)
            .doing("set SO_MAX_PACING_RATE")?;
    }
    Ok(())
}

/// Applies the settings of the receiving host to a socket.
fn set_receiver(socket: &Socket, host: &HostSpec) -> Result<(), Error> {
    if let Buffer::Fixed(size) = host.rcvbuf {
        force(socket, libc::SO_RCVBUFFORCE, size).doing("set SO_RCVBUF")?;
    }
    if let Some(window) = host.window_clamp {
        clamp(socket, window).doing("set TCP_WINDOW_CLAMP")?;
    }
    Ok(())
}

/// Replaces the algorithm that an accepted receiving socket has inherited from its listener, if only other
/// flows of the run need that algorithm.
pub(crate) fn set_receiver_algorithm(
    socket: &Socket,
    flow: &FlowSpec,
    flows: &[FlowSpec],
) -> Result<(), Error> {
    if flow.cc.needs_receiver() || !flows.iter().any(|other| other.cc.needs_receiver()) {
        return Ok(());
    }
    // Every kernel has Reno. A receiver sends no data, so any algorithm that does not affect ACKs
    // is suitable.
    set_congestion_control(socket, Algorithm::Reno.into())
}

/// Checks whether the kernel offers the congestion control `cc` in the network namespace of the calling
/// thread.
pub(crate) fn check_congestion_control(cc: FlowAlgorithm) -> Result<(), Error> {
    set_congestion_control(&tcp()?, cc)
}

fn set_congestion_control(socket: &Socket, cc: FlowAlgorithm) -> Result<(), Error> {
    let name = kernel_name(cc);
    socket.set_tcp_congestion(name.as_bytes()).map_err(|_| {
        const SIM: &str = "or use the simulator: --world sim";
        let hint = match cc {
            FlowAlgorithm::Fullpipe(Algorithm::Bbr3) => {
                format!("mainline Linux has version 1 only, bbr1; {SIM}")
            }
            FlowAlgorithm::Fullpipe(Algorithm::Surge) => {
                format!("surge is part of fullpipe's own TCP; {SIM}")
            }
            FlowAlgorithm::Fullpipe(_) => format!("load the module tcp_{name}; {SIM}"),
            FlowAlgorithm::Linux(_) => {
                format!("load the module tcp_{name} or build it into the kernel, or choose another congestion control")
            }
        };
        Error::settings(format!("this kernel does not have the congestion control '{name}'"), hint)
    })
}

/// Limits the receive window that a kernel socket advertises.
pub(crate) fn clamp(socket: &Socket, window: Bytes) -> std::io::Result<()> {
    let window = window.get().min(i32::MAX as u64) as libc::c_int;
    sys::set_socket_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
}

fn tcp() -> Result<Socket, Error> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).doing("create a socket")?;
    socket.set_nonblocking(true).doing("make a socket non-blocking")?;
    // Closing a socket during a transfer resets the connection; otherwise, the kernel would continue to send
    // its data during the next run of the same hosts. The applications use shutdown to end a complete
    // transfer.
    socket.set_linger(Some(std::time::Duration::ZERO)).doing("set SO_LINGER")?;
    Ok(socket)
}

fn listen(socket: Socket, address: Ipv4Addr, port: u16) -> Result<Socket, Error> {
    // Connections of an earlier run of the same hosts may still hold the port (TIME_WAIT).
    socket.set_reuse_address(true).doing("set SO_REUSEADDR")?;
    bind(&socket, address, port)?;
    socket.listen(BACKLOG).doing("listen")?;
    Ok(socket)
}

fn bind(socket: &Socket, address: Ipv4Addr, port: u16) -> Result<(), Error> {
    socket.bind(&SocketAddrV4::new(address, port).into()).doing(format_args!("bind to {address}:{port}"))
}

/// Sets the buffer of a socket to `memory` bytes. The kernel doubles the requested value to make room for
/// overhead. The `FORCE` options override `wmem_max` and `rmem_max`, which apply to the whole host instead of
/// a network namespace.
fn force(socket: &Socket, option: libc::c_int, memory: Bytes) -> std::io::Result<()> {
    let half = (memory.get() / 2).min(i32::MAX as u64 / 2) as libc::c_int;
    sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, option, half)
}
