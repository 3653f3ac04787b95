//! System calls that no library wraps safely, one function each.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use fullpipe_units::Duration;
use rustix::process::{Pid, Resource, getrlimit};
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

/// The next children of the calling thread begin a PID namespace: the first of them is its first process.
pub(crate) fn unshare_processes() -> io::Result<()> {
    // SAFETY: unshare is unsafe where it parts file descriptors; this flag does not touch them.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.map_err(Into::into)
}

/// Gives the calling process a `/proc` of its own PID namespace, which nobody outside sees.
pub(crate) fn own_proc() -> io::Result<()> {
    const NOTHING: *const libc::c_void = std::ptr::null();
    // SAFETY: as above, for a process with one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let down = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the kernel reads strings that end in zero, and looks at no others with these flags.
    check(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), down, NOTHING) })?;
    let plain = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let name = c"proc".as_ptr();
    // SAFETY: as above.
    check(unsafe { libc::mount(name, c"/proc".as_ptr(), name, plain, NOTHING) })
}

/// Does `work` in the child that `command` makes, before it becomes the command.
///
/// # Safety
/// As for [`CommandExt::pre_exec`]: only what may be done between fork and exec of a program with threads.
pub(crate) unsafe fn before_exec(
    command: &mut Command,
    work: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the caller's.
    unsafe { command.pre_exec(work) };
}

/// A second process that goes on from here; `None` in it.
///
/// # Safety
/// As for [`before_exec`].
pub(crate) unsafe fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller's.
    let pid = unsafe { libc::fork() };
    check(pid)?;
    Ok(Pid::from_raw(pid))
}

/// Ends the process without what a program does at its end, which is its parent's.
pub(crate) fn exit_at_once(status: libc::c_int) -> ! {
    // SAFETY: it has no preconditions and does not come back.
    unsafe { libc::_exit(status) }
}

/// Closes every file descriptor but the first three.
pub(crate) fn close_all_but_standard() {
    // SAFETY: the calling process, between fork and exec, uses none of them any more.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20) as libc::c_int;
    for fd in 3..most {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Has all signals wait from now on; returns those that waited before.
pub(crate) fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = no_signals();
    let mut before = no_signals();
    // SAFETY: both sets outlive the calls.
    check(unsafe { libc::sigfillset(&mut all) })?;
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before) })?;
    Ok(before)
}

/// Has those signals wait and no others.
pub(crate) fn set_signal_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set outlives the call, and nobody asks for the old one.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) })
}

/// Waits for a signal; its number if a process of another PID namespace has sent it, and nothing if it was one of this
/// namespace or the kernel.
pub(crate) fn next_signal_from_outside() -> Option<libc::c_int> {
    let mut all = no_signals();
    // SAFETY: the set outlives the call.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: integers and pointers that nobody follows.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    let signal = unsafe { libc::sigwaitinfo(&all, &mut info) };
    // SAFETY: what a process sends has its number, which is zero from where it has none in here.
    let from_outside = signal > 0 && info.si_code == libc::SI_USER && unsafe { info.si_pid() } == 0;
    from_outside.then_some(signal)
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a set is plain bits; the empty one is all zero on Linux.
    unsafe { std::mem::zeroed() }
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

/// Processor time that the process has taken so far: in its own code, and in the kernel.
pub(crate) fn process_times() -> io::Result<[Duration; 2]> {
    // SAFETY: a rusage is integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage, which outlives the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) })?;
    let span = |time: libc::timeval| {
        Duration::from_micros((time.tv_sec.max(0) as u64) * 1_000_000 + time.tv_usec.max(0) as u64)
    };
    Ok([span(usage.ru_utime), span(usage.ru_stime)])
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

/// Messages that a socket can be asked for at once.
pub(crate) const MOST_MESSAGES: usize = 32;

/// Waits for a message, and takes those with it that have come: each into its piece of `room`, which is cut evenly, with the length
/// that it has there into `lengths`, of which there are [`MOST_MESSAGES`] at most. Returns how many came.
pub(crate) fn receive_several(
    fd: BorrowedFd<'_>,
    room: &mut [u8],
    lengths: &mut [usize],
) -> io::Result<usize> {
    let wanted = lengths.len().clamp(1, MOST_MESSAGES);
    // SAFETY: both are integers and pointers, which may be null where nothing is asked for.
    let (mut headers, mut pieces): ([libc::mmsghdr; MOST_MESSAGES], [libc::iovec; MOST_MESSAGES]) =
        unsafe { std::mem::zeroed() };
    let length = room.len() / wanted;
    let each = headers.iter_mut().zip(&mut pieces).zip(room.chunks_exact_mut(length.max(1)));
    for ((header, piece), room) in each.take(wanted) {
        *piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (std::ptr::from_mut(piece), 1);
    }
    let (count, waits) = (wanted as libc::c_uint, libc::MSG_WAITFORONE);
    // SAFETY: there are so many headers, each with one piece of a room that outlives the call and is nobody else's.
    let came =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, waits, std::ptr::null_mut()) };
    check(came)?;
    for (header, length) in headers.iter().zip(lengths).take(came as usize) {
        *length = header.msg_len as usize;
    }
    Ok(came as usize)
}

/// Reads from a TCP socket without copying anything: what arrived counts as taken.
pub(crate) fn discard(fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket copies nothing, so no buffer is needed.
    let taken = unsafe {
        libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
    };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}
