//! The library that `fullpipe run --world uml` preloads into a User-Mode Linux kernel.
//!
//! The kernel is an ordinary program, and the functions of this library replace those of libc with the same names. The
//! functions use a [`Machine`], which represents the host of the guest:
//!
//! | the kernel calls | the library returns or does |
//! |---|---|
//! | `clock_gettime`, `gettimeofday` | the machine's clock, which stands still while the kernel runs |
//! | `timer_create`, `timer_settime`, `timer_gettime` | the machine's only timer |
//! | `sigsuspend`, to sleep | moves the clock to the next event, and raises `SIGIO` or `SIGALRM` |
//! | `sigprocmask` of `SIGALRM`, around `sigsuspend` | records whether the signal is blocked, because only this library raises it |
//! | `epoll_ctl`, `epoll_wait` | the device at which a frame has arrived; as libc for other descriptors |
//! | `readv` on the descriptor of a device | copies the frame |
//! | `writev` on the descriptor of a device | passes a frame to the path |
//! | `getrandom` | random numbers that derive from the seed of the run |
//! | `mkstemp64` for the guest's memory | memory without a file system, whose size no mount limits |
//! | `clone`, `ptrace` | as libc, but the guest's processes are killed when the kernel exits, and use the host's processor state |
//!
//! When a function of this library raises a signal, the guest's interrupt handler runs before the function returns. The
//! handler may call any function of this library again, so no reference to the machine is held during a system call.
//! The descriptors of the devices are sockets through which no data is sent. For each frame, the kernel makes three
//! system calls in addition to those of the guest's processes: one to raise the signal, one to return from the handler,
//! and one `epoll_wait`.
//!
//! If the launcher gives no order, the library leaves the clock, the timer, the devices and the random numbers to the
//! host, so the guest runs in real time. The guest's processes are still killed when the kernel exits, and still use
//! the host's processor state.
//!
//! A panic in one of these functions aborts the process, because it cannot unwind into C.
#![cfg(target_os = "linux")]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::mem::{transmute, zeroed};
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicI32, Ordering};

#[cfg(target_arch = "x86_64")]
use fullpipe_linux::uml::ProcessorState;
use fullpipe_linux::uml::{Due, Machine};
use libc::{
    c_char, c_int, c_long, c_uint, c_void, epoll_event, iovec, itimerspec, sigset_t, ssize_t, timespec,
    timeval,
};

/// The machine of this process.
///
/// User-Mode Linux calls libc from one thread. Its signal handlers run in that thread too, so a reference to
/// the machine must not exist during a system call that can raise a signal.
struct Shared(UnsafeCell<Option<Machine>>);

// SAFETY: only one thread of the process uses the machine.
unsafe impl Sync for Shared {}

static MACHINE: Shared = Shared(UnsafeCell::new(None));

/// ID of this process. The library sends signals to this process.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Runs `work` on the machine. `work` makes no system calls.
fn machine<T>(work: impl FnOnce(&mut Machine) -> T) -> T {
    // SAFETY: one thread uses the machine, and `work` ends before a signal handler can run.
    let machine = unsafe { &mut *MACHINE.0.get() };
    match machine {
        Some(machine) => work(machine),
        None => fail("the library was not initialised"),
    }
}

/// Returns whether there is a machine: without one, the host answers.
fn is_virtual() -> bool {
    // SAFETY: one thread uses the machine, and only `begin` replaces it.
    unsafe { (*MACHINE.0.get()).is_some() }
}

/// Size of a signal set in the host's kernel.
const SIGNAL_SET: usize = 8;

/// Ends the process with a message on the guest's console.
fn fail(message: &str) -> ! {
    eprintln!("fullpipe: {message}");
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(1) }
}

/// Called by the dynamic linker, before the kernel's `main`.
extern "C" fn begin() {
    // SAFETY: `getpid` has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    match Machine::from_order() {
        // SAFETY: no other code of the process runs yet.
        Ok(machine) => unsafe { *MACHINE.0.get() = machine },
        Err(message) => fail(message),
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

const SECOND: u64 = 1_000_000_000;

/// Reads the machine's clock.
fn now(calendar: bool) -> u64 {
    let (now, expired) = machine(|machine| machine.read_clock(calendar));
    if expired {
        raise_alarm();
    }
    now
}

/// Raises `SIGALRM`, or keeps it pending if the kernel has blocked it.
fn raise_alarm() {
    if machine(Machine::alarm) {
        raise(libc::SIGALRM);
    }
}

/// Raises a signal for which the kernel has installed a handler. `raise(3)` would make two more system calls.
fn raise(signal: c_int) {
    let process = PROCESS.load(Ordering::Relaxed);
    // SAFETY: the system call has the arguments that it requires. The kernel calls libc from its first thread,
    // whose thread ID equals the process ID.
    unsafe { libc::syscall(libc::SYS_tgkill, process, process, signal) };
}

fn set_errno(error: c_int) {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = error };
}

/// Returns the number of the device with the descriptor `fd`.
fn device_of(fd: c_int) -> Option<usize> {
    if is_virtual() { machine(|machine| machine.device(fd)) } else { None }
}

fn timespec_of(nanos: u64) -> timespec {
    timespec { tv_sec: (nanos / SECOND) as i64, tv_nsec: (nanos % SECOND) as i64 }
}

fn nanos_of(time: &timespec) -> u64 {
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// `clock_gettime(2)`.
///
/// # Safety
/// `time` points to a `timespec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    if !is_virtual() {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int };
    }
    let calendar = clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_REALTIME_COARSE;
    // SAFETY: the caller passes a valid pointer.
    unsafe { *time = timespec_of(now(calendar)) };
    0
}

/// `gettimeofday(2)`.
///
/// # Safety
/// `time` points to a `timeval`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    if !is_virtual() {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_gettimeofday, time, zone) as c_int };
    }
    let now = now(true);
    // SAFETY: the caller passes a valid pointer.
    unsafe { *time = timeval { tv_sec: (now / SECOND) as i64, tv_usec: (now % SECOND / 1_000) as i64 } };
    0
}

/// `timer_create(2)`: the machine has only one timer, which already exists.
///
/// # Safety
/// `timer` points to a `timer_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(clock: c_int, event: *mut c_void, timer: *mut *mut c_void) -> c_int {
    if !is_virtual() {
        let mut number: c_int = 0;
        // SAFETY: the kernel writes a number, and the other arguments are those of the caller. libc represents such a
        // timer by this number, too.
        unsafe {
            let created = libc::syscall(libc::SYS_timer_create, clock, event, &raw mut number) as c_int;
            *timer = number as usize as *mut c_void;
            return created;
        }
    }
    // SAFETY: the caller passes a valid pointer.
    unsafe { *timer = null_mut() };
    0
}

/// `timer_settime(2)` with a relative time.
///
/// # Safety
/// `new` points to an `itimerspec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_settime(
    timer: *mut c_void,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    if !is_virtual() {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_timer_settime, timer as c_int, flags, new, old) as c_int };
    }
    // SAFETY: the caller passes a valid pointer.
    let new = unsafe { &*new };
    machine(|machine| machine.set_timer(nanos_of(&new.it_value), nanos_of(&new.it_interval)));
    0
}

/// `timer_gettime(2)`.
///
/// # Safety
/// `current` points to an `itimerspec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_gettime(timer: *mut c_void, current: *mut itimerspec) -> c_int {
    if !is_virtual() {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_timer_gettime, timer as c_int, current) as c_int };
    }
    let (left, interval) = machine(|machine| machine.timer());
    // SAFETY: the caller passes a valid pointer.
    unsafe { *current = itimerspec { it_value: timespec_of(left), it_interval: timespec_of(interval) } };
    0
}

/// `sigsuspend(2)`: the guest's kernel is idle, so the clock moves to the next event, and the event takes place.
///
/// # Safety
/// `mask` points to a signal set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(mask: *const sigset_t) -> c_int {
    if !is_virtual() {
        // SAFETY: the caller passes a signal set.
        return unsafe { libc::syscall(libc::SYS_rt_sigsuspend, mask, SIGNAL_SET) as c_int };
    }
    if !machine(Machine::sleep) {
        fail("the guest hangs: its kernel sleeps without a timer, and no packet is on the path");
    }
    // If the interrupt handler does not read the frame, no further event is due until the kernel has run.
    while let Some(due) = machine(Machine::due) {
        match due {
            Due::Frame => raise(libc::SIGIO),
            Due::Tick => raise_alarm(),
        }
    }
    set_errno(libc::EINTR);
    -1
}

/// `sigprocmask(2)`: the kernel blocks only `SIGALRM` while it decides whether to sleep.
///
/// # Safety
/// `set` and `old` each point to a signal set, or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the caller passes valid pointers or null.
    if is_virtual() && unsafe { set.as_ref() }.is_some_and(is_alarm) {
        if how == libc::SIG_BLOCK {
            machine(Machine::block_alarm);
            // SAFETY: the caller passes a valid pointer or null.
            if let Some(old) = unsafe { old.as_mut() } {
                // The kernel only passes this set to `sigsuspend`, which ignores it. SAFETY: a signal set of zeros is
                // valid, and empty.
                *old = unsafe { zeroed() };
            }
            return 0;
        }
        if how == libc::SIG_UNBLOCK
            && let Some(raised) = machine(Machine::unblock_alarm)
        {
            if raised {
                raise(libc::SIGALRM);
            }
            return 0;
        }
    }
    // SAFETY: the arguments are those of the caller, and the size is that of the set in the host's kernel.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, SIGNAL_SET) as c_int }
}

/// Returns whether `set` consists of `SIGALRM`.
fn is_alarm(set: &sigset_t) -> bool {
    // SAFETY: the set is valid, and so are the numbers of the signals.
    (1..=64).all(|signal| (unsafe { libc::sigismember(set, signal) } == 1) == (signal == libc::SIGALRM))
}

/// `epoll_ctl(2)`: the kernel registers its devices, to wait for their frames.
///
/// # Safety
/// The requirements are those of `epoll_ctl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(epoll: c_int, action: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    if let Some(device) = device_of(fd) {
        // SAFETY: the caller passes a valid pointer or null.
        let wanted = unsafe { event.as_ref() }.map(|event| (event.events, event.u64));
        let wanted = wanted.filter(|_| action != libc::EPOLL_CTL_DEL);
        machine(|machine| machine.watch(device, wanted));
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, action, fd, event) as c_int }
}

/// `epoll_wait(2)`: reports the device at which a frame has arrived.
///
/// # Safety
/// `events` points to room for `most` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    if is_virtual()
        && most > 0
        && let Some(data) = machine(Machine::readable)
    {
        // SAFETY: the caller passes memory for an event.
        unsafe { events.write_unaligned(epoll_event { events: libc::EPOLLIN as u32, u64: data }) };
        return 1;
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { libc::syscall(libc::SYS_epoll_wait, epoll, events, most, timeout) as c_int }
}

/// Returns the buffers that a caller of `readv` or `writev` passes.
///
/// # Safety
/// `pieces` points to `count` buffers.
unsafe fn slice_of<'p>(pieces: *const iovec, count: usize) -> &'p [iovec] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller passes `count` pieces.
    unsafe { slice::from_raw_parts(pieces, count) }
}

/// `readv(2)`: the kernel reads the frame that has arrived at a device.
///
/// # Safety
/// `pieces` points to `count` buffers of writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    let Some(device) = device_of(fd) else {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_readv, fd, pieces, count) as ssize_t };
    };
    // SAFETY: the caller passes `count` valid pieces.
    let pieces = unsafe { slice_of(pieces, count.max(0) as usize) };
    let copied = machine(|machine| {
        let frame = machine.receive(device)?;
        let mut rest = frame;
        for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
            let (part, left) = rest.split_at(rest.len().min(piece.iov_len));
            // SAFETY: the piece has room for at least as many bytes, and the frame lies elsewhere.
            unsafe { part.as_ptr().copy_to_nonoverlapping(piece.iov_base.cast(), part.len()) };
            rest = left;
        }
        Some(frame.len() - rest.len())
    });
    match copied {
        Some(len) => len as ssize_t,
        None => {
            set_errno(libc::EAGAIN);
            -1
        }
    }
}

/// `writev(2)`: frames of the guest's devices enter the path.
///
/// # Safety
/// `pieces` points to `count` buffers of readable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    let Some(device) = device_of(fd) else {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_writev, fd, pieces, count) as ssize_t };
    };
    // SAFETY: the caller passes `count` valid pieces.
    let pieces = unsafe { slice_of(pieces, count.max(0) as usize) };
    let pieces = pieces.iter().filter(|piece| piece.iov_len > 0).map(|piece| {
        // SAFETY: the caller passes readable memory.
        unsafe { slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
    });
    machine(|machine| machine.transmit(device, pieces)) as ssize_t
}

/// `getrandom(2)`.
///
/// # Safety
/// `bytes` points to `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut c_void, len: usize, flags: c_uint) -> ssize_t {
    if !is_virtual() {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_getrandom, bytes, len, flags) as ssize_t };
    }
    // SAFETY: the caller passes writable memory.
    let bytes = unsafe { slice::from_raw_parts_mut(bytes.cast::<u8>(), len) };
    machine(|machine| machine.random(bytes));
    len as ssize_t
}

/// `mkstemp(3)`: the file for the guest's memory is kept in memory. The kernel unlinks the name of the file, so this
/// function also creates a file with that name.
///
/// # Safety
/// `template` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkstemp64(template: *mut c_char) -> c_int {
    type Mkstemp = unsafe extern "C" fn(*mut c_char) -> c_int;
    if !is_virtual() {
        // SAFETY: the pointer is libc's function of this type, and the argument is that of the caller.
        return unsafe { transmute::<*mut c_void, Mkstemp>(of_libc(c"mkstemp64"))(template) };
    }
    // SAFETY: the caller passes a string; the calls have the arguments that they require.
    unsafe {
        let named = libc::open(template, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600);
        if named < 0 || !CStr::from_ptr(template).to_bytes().windows(7).any(|part| part == b"vm_file") {
            return named;
        }
        libc::close(named);
        libc::syscall(libc::SYS_memfd_create, c"guest".as_ptr(), 0) as c_int
    }
}

/// Returns the function of libc that a function of this library replaces.
fn of_libc(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        fail("libc lacks a function");
    }
    found
}

/// libc's `ptrace(2)`.
type Ptrace = unsafe extern "C" fn(c_uint, ...) -> c_long;

/// `ptrace(2)`: when the kernel exits, the processes that it traces are killed. Their processor state may be larger
/// than the state that the kernel knows.
///
/// # Safety
/// The requirements are those of `ptrace`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(
    request: c_uint,
    pid: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    /// Request number that `PTRACE_SETOPTIONS` had before Linux 2.4.6; User-Mode Linux still uses it.
    const OLD_SET_OPTIONS: c_uint = 21;
    static FUNCTION: Shared2 = Shared2(UnsafeCell::new(null_mut()));
    // SAFETY: one thread of the process traces others; the pointer is libc's function of this type, and the
    // arguments are those of the caller.
    unsafe {
        let function = FUNCTION.0.get();
        if (*function).is_null() {
            *function = of_libc(c"ptrace");
        }
        let real: Ptrace = transmute(*function);
        if request == OLD_SET_OPTIONS || request == libc::PTRACE_SETOPTIONS {
            let options = data as usize | libc::PTRACE_O_EXITKILL as usize;
            return real(request, pid, address, options);
        }
        #[cfg(target_arch = "x86_64")]
        if request == libc::PTRACE_SETREGSET && address as usize == NT_X86_XSTATE {
            return set_processor_state(real, pid, &*data.cast::<iovec>());
        }
        real(request, pid, address, data)
    }
}

/// Number of the register set that contains the processor state.
#[cfg(target_arch = "x86_64")]
const NT_X86_XSTATE: usize = 0x202;

/// Sets the processor state of the process `pid`; `part` may be only the first part of the state.
///
/// # Safety
/// `real` is libc's `ptrace`, and `part` is readable memory.
#[cfg(target_arch = "x86_64")]
unsafe fn set_processor_state(real: Ptrace, pid: c_int, part: &iovec) -> c_long {
    /// Upper bound on the size of the processor state, for any host.
    const MOST: usize = 1 << 16;
    struct Kept(UnsafeCell<Option<ProcessorState>>);
    // SAFETY: one thread of the process traces others.
    unsafe impl Sync for Kept {}
    static STATE: Kept = Kept(UnsafeCell::new(None));
    // SAFETY: as above, and no signal handler sets a processor state while this function runs.
    let kept = unsafe { &mut *STATE.0.get() };
    let state = match kept {
        Some(state) => state,
        None => {
            let mut room = vec![0_u8; MOST];
            let mut whole = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: MOST };
            // SAFETY: the host writes at most `iov_len` bytes, and sets `iov_len` to their number.
            let read = unsafe { real(libc::PTRACE_GETREGSET, pid, NT_X86_XSTATE, &raw mut whole) };
            if read < 0 {
                return read;
            }
            kept.insert(ProcessorState::new(whole.iov_len))
        }
    };
    let bytes = if part.iov_len < state.size() {
        // SAFETY: the caller passes readable memory.
        state.complete(unsafe { slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) })
    } else {
        // SAFETY: the caller passes readable memory.
        unsafe { slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len) }
    };
    let mut whole = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the host reads at most `iov_len` bytes.
    unsafe { real(libc::PTRACE_SETREGSET, pid, NT_X86_XSTATE, &raw mut whole) }
}

/// A pointer to a function of libc.
struct Shared2(UnsafeCell<*mut c_void>);

// SAFETY: only one thread of the process uses the pointer.
unsafe impl Sync for Shared2 {}

/// Function that a cloned process runs, its argument, and the process that created it.
struct Start {
    kernel: libc::pid_t,
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Arranges for the calling process to be killed when its parent, the process `kernel`, exits.
fn end_with(kernel: libc::pid_t) {
    // SAFETY: prctl has the arguments that it requires; the other functions have no requirements.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // If the kernel exited before the call above, no signal is sent. This process would then ask its new parent
        // to trace it, and stop forever.
        if libc::getppid() != kernel {
            libc::_exit(1);
        }
    }
}

/// Start function of a process that the kernel has created.
extern "C" fn ends_with_kernel(start: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a `Start` that is never freed.
    let start = unsafe { &*start.cast::<Start>() };
    end_with(start.kernel);
    (start.function)(start.argument)
}

/// `fork(2)`: the new process is killed when the kernel exits. At startup, the kernel forks to check whether it may
/// trace processes.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> libc::pid_t {
    type Fork = unsafe extern "C" fn() -> libc::pid_t;
    // SAFETY: the pointer is libc's function of this type, and the process has one thread.
    let (kernel, child) = unsafe {
        let real: Fork = transmute(of_libc(c"fork"));
        (libc::getpid(), real())
    };
    if child == 0 {
        end_with(kernel);
    }
    child
}

/// `clone(2)`: the new process is killed when the kernel exits.
///
/// # Safety
/// The requirements are those of `clone`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
) -> c_int {
    type Clone = unsafe extern "C" fn(
        extern "C" fn(*mut c_void) -> c_int,
        *mut c_void,
        c_int,
        *mut c_void,
        ...
    ) -> c_int;
    // SAFETY: getpid has no requirements.
    let kernel = unsafe { libc::getpid() };
    // The process may share its memory with the kernel, so `Start` is never freed. Guests create few processes in this
    // way.
    let start = Box::into_raw(Box::new(Start { kernel, function, argument }));
    // SAFETY: the pointer is libc's function of this type, and the other arguments are those of the caller.
    unsafe {
        let real: Clone = transmute(of_libc(c"clone"));
        real(ends_with_kernel, stack, flags, start.cast())
    }
}
