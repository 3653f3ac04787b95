//! System calls that no library wraps safely, one function each.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the calling thread a network namespace of its own.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: unshare is unsafe where it parts file descriptors; this flag does not touch them.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// Gives the process a user namespace of its own; it must have one thread only.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(Into::into)
}

/// Attaches `fd`, an open `/dev/net/tun`, to a new device; returns the name that the kernel gave it.
pub(crate) fn tun_set_interface(fd: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: an ifreq of zeros is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
}

/// Says which offloads the reader of the TUN device can take (`TUN_F_*`).
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, features: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(features)) })
}

/// Says how many bytes stand before each packet.
pub(crate) fn tun_set_header_len(fd: BorrowedFd<'_>, len: libc::c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &len) })
}

/// Lets the calling thread run before all ordinary ones (round robin, lowest real-time priority).
pub(crate) fn run_in_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure outlives the call; pid 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &parameters) })
}

/// The kernel kills the child that `command` makes when the thread that makes it ends.
pub(crate) fn die_with_parent(command: &mut Command) {
    let ask = || set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    // SAFETY: between fork and exec only a system call is made; no memory is allocated and no lock taken.
    unsafe { command.pre_exec(ask) };
}

/// Reads a plain-data socket option into `value`; returns how many bytes the kernel knew.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
pub(crate) unsafe fn socket_option<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the caller vouches for what they mean.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(value).cast(), &mut len)
    })?;
    Ok(len as usize)
}

/// Writes a plain-data socket option.
pub(crate) fn set_socket_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), len) })
}

/// Bytes that have arrived and were not read (`SIOCINQ`).
pub(crate) fn unread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued(fd, libc::FIONREAD)
}

/// Bytes that were written and are not acknowledged (`SIOCOUTQ`).
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued(fd, libc::TIOCOUTQ)
}

fn queued(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// Reads from a TCP socket without copying anything: what arrived counts as taken.
pub(crate) fn discard(fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket copies nothing, so no buffer is needed.
    let taken = unsafe {
        libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
    };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}
