//! The highest rate of a socket.

use std::io;
use std::os::fd::BorrowedFd;

use fullpipe_units::Rate;

use crate::sys::set_socket_option;

/// Lets the kernel send at most at `rate` on a TCP socket (`SO_MAX_PACING_RATE`), rounded down to byte/s.
///
/// TCP then paces by its own timer, whatever the queueing discipline is, except the first ten segments. It
/// counts the payload of TCP; `fq` counts headers, too. A rate below 1 byte/s switches pacing off.
///
/// # Errors
/// Returns the error of the kernel, for example if `socket` is not a socket.
pub fn limit(socket: BorrowedFd<'_>, rate: Rate) -> io::Result<()> {
    set_socket_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate.as_bytes_per_sec())
}
