//! Sets the maximum rate of a socket.

use std::io;
use std::os::fd::BorrowedFd;

use fullpipe_units::{Duration, Rate};

use crate::sys::set_socket_option;
use crate::tcp_info;

/// Limits the kernel's sending rate on a TCP socket to `rate` (`SO_MAX_PACING_RATE`), rounded down to byte/s.
///
/// TCP then paces with its own timer, whatever the queueing discipline, except for the first ten segments.
/// TCP counts only the payload, whereas `fq` also counts headers. A rate below 1 byte/s switches pacing off.
///
/// # Errors
/// Returns the error of the kernel, for example if `socket` is not a socket.
pub fn limit(socket: BorrowedFd<'_>, rate: Rate) -> io::Result<()> {
    set_socket_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate.as_bytes_per_sec())
}

/// Returns the smoothed RTT of a connected TCP socket, or zero if the kernel has not measured it yet.
///
/// # Errors
/// Returns the error of the kernel, for example if `socket` is not a TCP socket.
pub fn rtt(socket: BorrowedFd<'_>) -> io::Result<Duration> {
    tcp_info::sender(socket, false).map(|info| info.srtt.unwrap_or_default())
}
