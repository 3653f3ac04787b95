//! Socket options of an iperf3 test.

use std::os::fd::AsFd;

use fullpipe_iperf3::Params;
use fullpipe_units::Bytes;
use socket2::{Domain, Socket};

use crate::error::{Doing, Error};
use crate::sys;

/// Sets the socket options that affect the handshake: buffer sizes and MSS. These options must be set before
/// the socket connects or listens.
pub(crate) fn before_handshake(socket: &Socket, domain: Domain, params: &Params) -> Result<(), Error> {
    if let Some(mss) = params.mss {
        let mss = u32::try_from(mss.get()).unwrap_or(u32::MAX);
        socket.set_tcp_mss(mss).map_err(|error| {
            Error::settings(
                format!("cannot use a segment size of {mss} bytes: {error}"),
                "give -M from 88 to 32767",
            )
        })?;
    }
    buffers(socket, params)?;
    type_of_service(socket, domain, params)
}

/// Sets fixed buffer sizes (`-w`), which disables the kernel's buffer autotuning.
pub(crate) fn buffers(socket: &Socket, params: &Params) -> Result<(), Error> {
    let Some(window) = params.window else { return Ok(()) };
    let asked = window.get() as usize;
    socket.set_send_buffer_size(asked).doing("set SO_SNDBUF")?;
    socket.set_recv_buffer_size(asked).doing("set SO_RCVBUF")?;
    // The kernel silently reduces a request that exceeds its limit, and doubles the granted size.
    let (sndbuf, rcvbuf) = (socket.send_buffer_size().doing("read SO_SNDBUF")?, socket.recv_buffer_size());
    let granted = sndbuf.min(rcvbuf.doing("read SO_RCVBUF")?);
    if granted < asked {
        return Err(Error::settings(
            format!("the kernel limits socket buffers to {}", Bytes::new(granted as u64)),
            "raise net.core.wmem_max and net.core.rmem_max, or remove -w to use the limits in tcp_wmem and tcp_rmem",
        ));
    }
    Ok(())
}

/// Sets the type-of-service byte (`-S`), which is the traffic class in IPv6.
pub(crate) fn type_of_service(socket: &Socket, domain: Domain, params: &Params) -> Result<(), Error> {
    let Some(tos) = params.tos else { return Ok(()) };
    let set =
        if domain == Domain::IPV6 { socket.set_tclass_v6(tos.into()) } else { socket.set_tos_v4(tos.into()) };
    set.doing("set the type of service")
}

/// Sets the options of a data connection on which this host sends.
pub(crate) fn of_sender(socket: &Socket, params: &Params) -> Result<(), Error> {
    if params.nodelay {
        socket.set_tcp_nodelay(true).doing("set TCP_NODELAY")?;
    }
    if let Some(name) = &params.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|_| {
            Error::settings(
                format!("the kernel does not permit the congestion control '{name}'"),
                "choose a congestion control in net.ipv4.tcp_allowed_congestion_control, or load the module as root",
            )
        })?;
    }
    max_pacing_rate(socket, params)
}

/// Enables pacing inside the kernel's TCP (`--fq-rate`), which does not require the fq queueing discipline.
pub(crate) fn max_pacing_rate(socket: &Socket, params: &Params) -> Result<(), Error> {
    let Some(rate) = params.fq_rate else { return Ok(()) };
    let rate = rate.as_bytes_per_sec();
    sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
        .doing("set SO_MAX_PACING_RATE")
}
