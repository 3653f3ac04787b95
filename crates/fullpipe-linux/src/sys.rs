//! System calls for which no library has a safe wrapper, with one call per function.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;

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
    // SAFETY: unshare is unsafe because it can separate file descriptor tables; this flag does not affect
    // them.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(Into::into)
}

/// Attaches `fd`, an open `/dev/net/tun`, to the device `name`; the kernel creates the device if
/// necessary.
pub(crate) fn tun_set_interface(fd: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: an ifreq that consists of zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
}

/// Tells the kernel which offloads the reader of the TUN device supports (`TUN_F_*`).
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, features: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(features)) })
}

/// Sets the length in bytes of the header that precedes each packet on a TUN device.
pub(crate) fn tun_set_header_len(fd: BorrowedFd<'_>, len: libc::c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &len) })
}

/// Maps the first `len` bytes of a file into memory that is shared with other processes.
pub(crate) fn map_shared(fd: BorrowedFd<'_>, len: usize) -> io::Result<NonNull<libc::c_void>> {
    let (any, rights) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the kernel chooses an unused address, so the mapping affects no other memory.
    let start = unsafe { libc::mmap(any, len, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start).ok_or_else(|| io::ErrorKind::Other.into())
}

/// Removes a mapping.
///
/// # Safety
/// `start` and `len` must be those of a mapping from [`map_shared`], which is not used afterwards.
pub(crate) unsafe fn unmap(start: NonNull<libc::c_void>, len: usize) {
    // SAFETY: the caller guarantees that this is a whole mapping that is no longer used.
    unsafe { libc::munmap(start.as_ptr(), len) };
}

/// Flag of [`device_flags`]: the device merges received packets (`ETH_FLAG_LRO`).
pub(crate) const LARGE_RECEIVE_OFFLOAD: u32 = 1 << 15;
/// ethtool command: whether the kernel merges the packets that the device receives (GRO).
const ETHTOOL_SGRO: u32 = 0x2c;
/// ethtool command: whether the device gets super-packets that the kernel then segments (GSO).
const ETHTOOL_SGSO: u32 = 0x24;

/// Reads the flags of a network device (`ETHTOOL_GFLAGS`) through any socket.
pub(crate) fn device_flags(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    ethtool(fd, name, ETHTOOL_GFLAGS, 0)
}

/// Disables GRO and GSO of a network device, so that it sends and receives single packets.
pub(crate) fn disable_device_merging(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    ethtool(fd, name, ETHTOOL_SGRO, 0)?;
    ethtool(fd, name, ETHTOOL_SGSO, 0).map(drop)
}

/// Executes an ethtool command that reads or sets one number, through any socket, and returns the number.
fn ethtool(fd: BorrowedFd<'_>, name: &str, command: u32, data: u32) -> io::Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data };
    // SAFETY: an ifreq that consists of zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    // SAFETY: SIOCETHTOOL reads the ifreq and reads and writes the value, both of which outlive the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) })?;
    Ok(value.data)
}

/// Mounts a file system without a device.
pub(crate) fn mount(kind: &CStr, target: &CStr, options: &CStr) -> io::Result<()> {
    // SAFETY: all strings are NUL-terminated and outlive the call.
    check(unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) })
}

/// Duplicates a file descriptor as descriptor number `number`, which the program after exec inherits.
pub(crate) fn copy_descriptor(fd: BorrowedFd<'_>, number: libc::c_int) -> io::Result<()> {
    // SAFETY: the caller is between fork and exec, and uses no descriptor with this number.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) })
}

/// Disables address space layout randomisation for the calling process and the programs that it executes.
pub(crate) fn fixed_addresses() -> io::Result<()> {
    // SAFETY: the call affects only later mappings.
    check(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) })
}

/// Gives the calling thread priority over all ordinary threads (SCHED_RR with the lowest real-time priority).
pub(crate) fn run_in_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter structure outlives the call; pid 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &parameters) })
}

/// Creates a PID namespace for the later children of the calling thread; the next child becomes its first
/// process.
pub(crate) fn unshare_processes() -> io::Result<()> {
    // SAFETY: unshare is unsafe because it can separate file descriptor tables; this flag does not
    // affect them.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.map_err(Into::into)
}

/// Mounts a `/proc` for the PID namespace of the calling process, in a new mount namespace, so that it is
/// invisible elsewhere.
pub(crate) fn own_proc() -> io::Result<()> {
    const NOTHING: *const libc::c_void = std::ptr::null();
    // SAFETY: this flag does not affect the file descriptor table, and the process has only one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let down = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the strings are NUL-terminated, and the kernel ignores the null pointers for these
    // flags.
    check(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), down, NOTHING) })?;
    let plain = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let name = c"proc".as_ptr();
    // SAFETY: the strings are NUL-terminated, and the kernel ignores the null pointers for these flags.
    check(unsafe { libc::mount(name, c"/proc".as_ptr(), name, plain, NOTHING) })
}

/// Runs `work` in the child process of `command`, before exec.
///
/// # Safety
/// The requirements are those of [`CommandExt::pre_exec`]: `work` may only perform operations that are
/// permitted between fork and exec in a multi-threaded program.
pub(crate) unsafe fn before_exec(
    command: &mut Command,
    work: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the caller fulfils the requirements of `pre_exec`.
    unsafe { command.pre_exec(work) };
}

/// Forks the process; returns the child's process ID in the parent, and `None` in the child.
///
/// # Safety
/// The requirements are those of [`before_exec`].
pub(crate) unsafe fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller fulfils the requirements of `before_exec`.
    let pid = unsafe { libc::fork() };
    check(pid)?;
    Ok(Pid::from_raw(pid))
}

/// Ends the process without running exit handlers, because these belong to the parent's program.
pub(crate) fn exit_at_once(status: libc::c_int) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(status) }
}

/// Closes every file descriptor except standard input, standard output and standard error.
pub(crate) fn close_all_but_standard() {
    // SAFETY: the calling process is between fork and exec, and no longer uses any of the closed descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9 do not have the system call close_range.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20) as libc::c_int;
    for fd in 3..most {
        // SAFETY: the calling process is between fork and exec, and no longer uses any of the closed
        // descriptors.
        unsafe { libc::close(fd) };
    }
}

/// Blocks all signals of the calling thread, and returns the previous signal mask.
pub(crate) fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = no_signals();
    let mut before = no_signals();
    // SAFETY: both signal sets outlive the calls.
    check(unsafe { libc::sigfillset(&mut all) })?;
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before) })?;
    Ok(before)
}

/// Sets the signal mask of the calling thread.
pub(crate) fn set_signal_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the signal set outlives the call, and with a null pointer the kernel does not return the old
    // mask.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) })
}

/// Waits for a signal. Returns the number of the signal if a process in another PID namespace sent it;
/// returns `None` if the signal came from this namespace or from the kernel.
pub(crate) fn next_signal_from_outside() -> Option<libc::c_int> {
    let mut all = no_signals();
    // SAFETY: the signal set outlives the call.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: a siginfo that consists of zeros is valid: it contains integers, and pointers that are not
    // dereferenced.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the signal set and the siginfo outlive the call.
    let signal = unsafe { libc::sigwaitinfo(&all, &mut info) };
    // SAFETY: with SI_USER, the kernel has set the process ID of the sender; the ID is zero if the sender has
    // no ID in this namespace.
    let from_outside = signal > 0 && info.si_code == libc::SI_USER && unsafe { info.si_pid() } == 0;
    from_outside.then_some(signal)
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a signal set consists of plain bits; on Linux, the empty set is all zeros.
    unsafe { std::mem::zeroed() }
}

/// Reads a socket option that consists of plain data into `value`, and returns the number of bytes that the
/// kernel wrote.
///
/// # Safety
/// Every bit pattern of the size of `T` must be a valid `T`.
pub(crate) unsafe fn socket_option<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the caller guarantees that any bytes are
    // a valid `T`.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(value).cast(), &mut len)
    })?;
    Ok(len as usize)
}

/// Sets a socket option that consists of plain data.
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
    // SAFETY: a rusage contains only integers, so zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage, which outlives the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) })?;
    let span = |time: libc::timeval| {
        Duration::from_micros((time.tv_sec.max(0) as u64) * 1_000_000 + time.tv_usec.max(0) as u64)
    };
    Ok([span(usage.ru_utime), span(usage.ru_stime)])
}

/// Returns the number of bytes that have arrived at a socket but have not been read yet (`SIOCINQ`).
pub(crate) fn unread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued(fd, libc::FIONREAD)
}

/// Returns the number of bytes that were written to a socket but have not been acknowledged yet (`SIOCOUTQ`).
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued(fd, libc::TIOCOUTQ)
}

fn queued(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// Maximum number of netlink messages that one call receives.
pub(crate) const MOST_MESSAGES: usize = 32;

/// Waits for a message, and receives all messages that have arrived, at most `lengths.len()` and at most
/// [`MOST_MESSAGES`]. Each message gets an equal part of `room`, and the lengths of the messages are written
/// to `lengths`. Returns the number of messages.
pub(crate) fn receive_several(
    fd: BorrowedFd<'_>,
    room: &mut [u8],
    lengths: &mut [usize],
) -> io::Result<usize> {
    let wanted = lengths.len().clamp(1, MOST_MESSAGES);
    // SAFETY: both structures contain only integers and pointers, and the pointers of unused entries may be
    // null.
    let (mut headers, mut pieces): ([libc::mmsghdr; MOST_MESSAGES], [libc::iovec; MOST_MESSAGES]) =
        unsafe { std::mem::zeroed() };
    let length = room.len() / wanted;
    let each = headers.iter_mut().zip(&mut pieces).zip(room.chunks_exact_mut(length.max(1)));
    for ((header, piece), room) in each.take(wanted) {
        *piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (std::ptr::from_mut(piece), 1);
    }
    let (count, waits) = (wanted as libc::c_uint, libc::MSG_WAITFORONE);
    // SAFETY: there are `count` headers; each refers to a separate part of a buffer that outlives the call.
    let came =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, waits, std::ptr::null_mut()) };
    check(came)?;
    for (header, length) in headers.iter().zip(lengths).take(came as usize) {
        *length = header.msg_len as usize;
    }
    Ok(came as usize)
}

/// Discards received data of a TCP socket inside the kernel, without copying it, and returns the number of
/// bytes. The data counts as read.
pub(crate) fn discard(fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket copies nothing, so no buffer is needed.
    let taken = unsafe {
        libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
    };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}

/// Like [`discard`], but waits inside the kernel until `most` bytes have been read or the peer sends no more.
/// The kernel reads each segment as soon as it arrives.
pub(crate) fn discard_all(fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket copies nothing, so no buffer is needed.
    let taken = unsafe {
        libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_WAITALL)
    };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}
