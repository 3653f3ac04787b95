//! The library that `fullpipe run --world uml` preloads into a User-Mode Linux kernel.
//!
//! The kernel is an ordinary program, and the functions of this library replace those of libc with the same
//! names. They answer from a [`Machine`], which stands for the host of the guest:
//!
//! | the kernel calls | the library answers |
//! |---|---|
//! | `clock_gettime`, `gettimeofday` | the machine's clock, which stands still while the kernel runs |
//! | `timer_create`, `timer_settime`, `timer_gettime` | the machine's only timer |
//! | `sigsuspend`, to sleep | moves the clock to the next event; delivers frames, or raises `SIGALRM` |
//! | `writev` on the descriptor of a device | passes a frame to the path |
//! | `getrandom` | random numbers from the seed of the run |
//! | `mkstemp64` for the guest's memory | memory without a file system, whose size no mount limits |
//! | `clone`, `ptrace` | as libc, but the guest's processes end with the kernel |
//!
//! Frames reach the guest through sockets: writing to one makes the host's kernel raise `SIGIO`, whose handler
//! runs the guest's interrupt before `write` returns. The handler may call any function of this library again,
//! so no reference to the machine is held during a system call.
//!
//! A panic in one of these functions aborts the process, because it cannot unwind into C.
#![cfg(target_os = "linux")]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;

use fullpipe_linux::uml::{DELIVERIES, DEVICES, Due, Machine};
use libc::{c_char, c_int, c_long, c_uint, c_void, itimerspec, sigset_t, ssize_t, timespec, timeval};

/// The machine of this process.
///
/// User-Mode Linux calls libc from one thread. Its signal handlers run in that thread too, so a reference to
/// the machine must not exist during a system call that can raise a signal.
struct Shared(UnsafeCell<Option<Machine>>);

// SAFETY: only one thread of the process uses the machine.
unsafe impl Sync for Shared {}

static MACHINE: Shared = Shared(UnsafeCell::new(None));

/// Runs `work` on the machine. `work` makes no system calls.
fn machine<T>(work: impl FnOnce(&mut Machine) -> T) -> T {
    // SAFETY: one thread uses the machine, and `work` ends before a signal handler can run.
    let machine = unsafe { &mut *MACHINE.0.get() };
    match machine {
        Some(machine) => work(machine),
        None => fail("the library was not initialised"),
    }
}

/// Ends the process with a message on the guest's console.
fn fail(message: &str) -> ! {
    eprintln!("fullpipe: {message}");
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(1) }
}

/// Called by the dynamic linker, before the kernel's `main`.
extern "C" fn begin() {
    match Machine::from_order() {
        // SAFETY: no other code of the process runs yet.
        Ok(machine) => unsafe { *MACHINE.0.get() = Some(machine) },
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

fn raise_alarm() {
    // SAFETY: the kernel has installed a handler for SIGALRM.
    unsafe { libc::raise(libc::SIGALRM) };
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
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = now(true);
    // SAFETY: the caller passes a valid pointer.
    unsafe { *time = timeval { tv_sec: (now / SECOND) as i64, tv_usec: (now % SECOND / 1_000) as i64 } };
    0
}

/// `timer_create(2)`: the machine has one timer, which exists already.
///
/// # Safety
/// `timer` points to a `timer_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(_clock: c_int, _event: *mut c_void, timer: *mut *mut c_void) -> c_int {
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
    _timer: *mut c_void,
    _flags: c_int,
    new: *const itimerspec,
    _old: *mut itimerspec,
) -> c_int {
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
pub unsafe extern "C" fn timer_gettime(_timer: *mut c_void, current: *mut itimerspec) -> c_int {
    let (left, interval) = machine(|machine| machine.timer());
    // SAFETY: the caller passes a valid pointer.
    unsafe { *current = itimerspec { it_value: timespec_of(left), it_interval: timespec_of(interval) } };
    0
}

/// `sigsuspend(2)`: the guest's kernel is idle. The clock moves to the next event, which then happens.
#[unsafe(no_mangle)]
pub extern "C" fn sigsuspend(_mask: *const sigset_t) -> c_int {
    if !machine(Machine::sleep) {
        fail("the guest hangs: its kernel sleeps without a timer, and no packet is on the path");
    }
    while let Some(due) = machine(Machine::due) {
        match due {
            Due::Frame { device, len } => {
                if !deliver(device, len) {
                    machine(|machine| machine.refuse(device, len));
                    break;
                }
            }
            // The caller has blocked SIGALRM, and unblocks it after this call.
            Due::Tick => raise_alarm(),
        }
    }
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = libc::EINTR };
    -1
}

/// Writes a frame to the socket of a device, whose handler may run before this function returns. Returns false
/// if the socket has no room.
fn deliver(device: usize, len: usize) -> bool {
    let frame = machine(|machine| machine.frame(len).as_ptr());
    // SAFETY: `frame` points to `len` bytes that only change with the next call of `due`, after the write has
    // copied them.
    let written = unsafe { libc::syscall(libc::SYS_write, DELIVERIES[device], frame, len) };
    written >= 0
}

/// `writev(2)`: frames of the guest's devices enter the path.
///
/// # Safety
/// `pieces` points to `count` pieces of readable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const libc::iovec, count: c_int) -> ssize_t {
    let Some(device) = DEVICES.iter().position(|&device| device == fd) else {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_writev, fd, pieces, count) as ssize_t };
    };
    // SAFETY: the caller passes `count` valid pieces.
    let pieces = unsafe { std::slice::from_raw_parts(pieces, count.max(0) as usize) };
    let mut frame = Vec::with_capacity(2_048);
    for piece in pieces {
        // SAFETY: the caller passes readable memory.
        frame.extend(unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) });
    }
    machine(|machine| machine.transmit(device, &frame));
    frame.len() as ssize_t
}

/// `getrandom(2)`.
///
/// # Safety
/// `bytes` points to `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut c_void, len: usize, _flags: c_uint) -> ssize_t {
    // SAFETY: the caller passes writable memory.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), len) };
    machine(|machine| machine.random(bytes));
    len as ssize_t
}

/// `mkstemp(3)`: the file of the guest's memory lies in memory. The kernel unlinks the name, so a file of that
/// name is created too.
///
/// # Safety
/// `template` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkstemp64(template: *mut c_char) -> c_int {
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

/// `ptrace(2)`: the processes of the guest are killed if the kernel that traces them ends.
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
    /// Number of `PTRACE_SETOPTIONS` before Linux 2.4.6, which User-Mode Linux uses.
    const OLD_SET_OPTIONS: c_uint = 21;
    static FUNCTION: Shared2 = Shared2(UnsafeCell::new(null_mut()));
    type Ptrace = unsafe extern "C" fn(c_uint, ...) -> c_long;
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
        real(request, pid, address, data)
    }
}

/// A pointer to a function of libc.
struct Shared2(UnsafeCell<*mut c_void>);

// SAFETY: only one thread of the process uses the pointer.
unsafe impl Sync for Shared2 {}

/// Function that a cloned process runs, and its argument.
struct Start {
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Runs in a process that the kernel has created.
extern "C" fn ends_with_kernel(start: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a `Start` that is never freed; prctl has the arguments that it requires.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let start = &*start.cast::<Start>();
        (start.function)(start.argument)
    }
}

/// `clone(2)`: the new process is killed if the kernel ends.
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
    // The process may share its memory with the kernel, so the start is never freed. Guests create few.
    let start = Box::into_raw(Box::new(Start { function, argument }));
    // SAFETY: the pointer is libc's function of this type, and the other arguments are those of the caller.
    unsafe {
        let real: Clone = transmute(of_libc(c"clone"));
        real(ends_with_kernel, stack, flags, start.cast())
    }
}
