//! System calls for which no library has a safe wrapper, one per function.

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

/// Moves the calling thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: unshare is unsafe because it can separate file descriptor tables; this flag does not
    // affect them.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// Moves the process, which must be single-threaded, into a new user namespace.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(Into::into)
}

/// Attaches `fd`, an open `/dev/net/tun`, to the device `name`; the kernel creates the device if
/// necessary.
pub(crate) fn tun_set_interface(fd: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: an ifreq of zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
}

/// Sets the offloads that the reader of the TUN device supports (`TUN_F_*`).
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, features: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(features)) })
}

/// Sets the length of the header that precedes each packet, in bytes.
pub(crate) fn tun_set_header_len(fd: BorrowedFd<'_>, len: libc::c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &len) })
}

/// Gives the calling thread priority over all ordinary threads (SCHED_RR, lowest real-time
/// priority).
pub(crate) fn run_in_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure outlives the call; pid 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &parameters) })
}

/// Makes the calling thread's next child the first process of a new PID namespace, to which all
/// later children also belong.
pub(crate) fn unshare_processes() -> io::Result<()> {
    // SAFETY: unshare is unsafe because it can separate file descriptor tables; this flag does not
    // affect them.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.map_err(Into::into)
}

/// Mounts a `/proc` for the calling process's PID namespace, in a new mount namespace and invisible
/// outside it.
pub(crate) fn own_proc() -> io::Result<()> {
    const NOTHING: *const libc::c_void = std::ptr::null();
    // SAFETY: as above; the process has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let down = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the strings are NUL-terminated, and the kernel ignores the null pointers for these
    // flags.
    check(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), down, NOTHING) })?;
    let plain = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let name = c"proc".as_ptr();
    // SAFETY: as above.
    check(unsafe { libc::mount(name, c"/proc".as_ptr(), name, plain, NOTHING) })
}

/// Runs `work` in the child process of `command`, before exec.
///
/// # Safety
/// As for [`CommandExt::pre_exec`]: `work` may only perform operations that are permitted between
/// fork and exec in a multi-threaded program.
pub(crate) unsafe fn before_exec(
    command: &mut Command,
    work: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { command.pre_exec(work) };
}

/// Forks; returns the child's process ID in the parent and `None` in the child.
///
/// # Safety
/// As for [`before_exec`].
pub(crate) unsafe fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: guaranteed by the caller.
    let pid = unsafe { libc::fork() };
    check(pid)?;
    Ok(Pid::from_raw(pid))
}

/// Ends the process without running exit handlers, because those belong to the parent's program.
pub(crate) fn exit_at_once(status: libc::c_int) -> ! {
    // SAFETY: it has no preconditions and does not return.
    unsafe { libc::_exit(status) }
}

/// Closes every file descriptor except the first three.
pub(crate) fn close_all_but_standard() {
    // SAFETY: the calling process is between fork and exec, and no longer uses any of these
    // descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9 lack close_range.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20) as libc::c_int;
    for fd in 3..most {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Blocks all signals and returns the previous signal mask.
pub(crate) fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = no_signals();
    let mut before = no_signals();
    // SAFETY: both sets outlive the calls.
    check(unsafe { libc::sigfillset(&mut all) })?;
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before) })?;
    Ok(before)
}

/// Sets the signal mask.
pub(crate) fn set_signal_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set outlives the call, and a null pointer skips the old mask.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) })
}

/// Waits for a signal. Returns its number if it came from a process in another PID namespace, and
/// `None` if it came from this namespace or the kernel.
pub(crate) fn next_signal_from_outside() -> Option<libc::c_int> {
    let mut all = no_signals();
    // SAFETY: the set outlives the call.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: a siginfo of zeros is valid: integers, and pointers that are not dereferenced.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    let signal = unsafe { libc::sigwaitinfo(&all, &mut info) };
    // SAFETY: with SI_USER the sender's process ID is set; it is zero if the sender has no ID in
    // this namespace.
    let from_outside = signal > 0 && info.si_code == libc::SI_USER && unsafe { info.si_pid() } == 0;
    from_outside.then_some(signal)
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a signal set consists of plain bits; on Linux, the empty set is all zeros.
    unsafe { std::mem::zeroed() }
}

/// Reads a plain-data socket option into `value`; returns the number of bytes that the kernel
/// wrote.
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
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the caller guarantees that they are
    // a valid `T`.
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

/// Returns the CPU time that the process has used so far, in user mode and in kernel mode.
pub(crate) fn process_times() -> io::Result<[Duration; 2]> {
    // SAFETY: a rusage consists of integers, so zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage, which outlives the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) })?;
    let span = |time: libc::timeval| {
        Duration::from_micros((time.tv_sec.max(0) as u64) * 1_000_000 + time.tv_usec.max(0) as u64)
    };
    Ok([span(usage.ru_utime), span(usage.ru_stime)])
}

/// Returns the number of bytes that have arrived and are not read yet (`SIOCINQ`).
pub(crate) fn unread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued(fd, libc::FIONREAD)
}

/// Returns the number of bytes that are written and not acknowledged yet (`SIOCOUTQ`).
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued(fd, libc::TIOCOUTQ)
}

fn queued(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// Maximum number of messages per receive call.
pub(crate) const MOST_MESSAGES: usize = 32;

/// Waits for a message, and receives all messages that have arrived, up to `lengths.len()` and at
/// most [`MOST_MESSAGES`]. Each message gets an equal part of `room`, and `lengths` gets the length
/// of each message. Returns the number of messages.
pub(crate) fn receive_several(
    fd: BorrowedFd<'_>,
    room: &mut [u8],
    lengths: &mut [usize],
) -> io::Result<usize> {
    let wanted = lengths.len().clamp(1, MOST_MESSAGES);
    // SAFETY: both consist of integers and pointers, which may be null for unused entries.
    let (mut headers, mut pieces): ([libc::mmsghdr; MOST_MESSAGES], [libc::iovec; MOST_MESSAGES]) =
        unsafe { std::mem::zeroed() };
    let length = room.len() / wanted;
    let each = headers.iter_mut().zip(&mut pieces).zip(room.chunks_exact_mut(length.max(1)));
    for ((header, piece), room) in each.take(wanted) {
        *piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (std::ptr::from_mut(piece), 1);
    }
    let (count, waits) = (wanted as libc::c_uint, libc::MSG_WAITFORONE);
    // SAFETY: there are `count` headers, each with one part of a buffer that outlives the call and is
    // not aliased.
    let came =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, waits, std::ptr::null_mut()) };
    check(came)?;
    for (header, length) in headers.iter().zip(lengths).take(came as usize) {
        *length = header.msg_len as usize;
    }
    Ok(came as usize)
}

/// Reads from a TCP socket without copying the data, which counts as read. Returns the number of
/// bytes.
pub(crate) fn discard(fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket copies nothing, so no buffer is needed.
    let taken = unsafe {
        libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
    };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}
