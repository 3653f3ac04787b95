//! Starts a guest, waits for its end, and reads its reports.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::SystemTime;

use fullpipe_lab::capture::Capture;
use fullpipe_lab::scenario::Scenario;
use fullpipe_units::{Bytes, Duration};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    PidfdFlags, Resource, Rlimit, Signal, pidfd_open, set_parent_process_death_signal, setrlimit,
};

use super::capture::replay;
use super::exchange::{
    self, GUEST_FAILURE, GUEST_REPORT, GuestReport, ORDER, Order, PATH_REPORT, PathReport,
};
use super::guest::{GUEST_ARGUMENT, MODULES};
use super::kernel::Kernel;
use crate::clock::{since_boot, timespec};
use crate::error::{Doing, Error, Kind};
use crate::sys;

/// Prefix of the names of run folders. The folder of a run is locked while the run lasts.
const FOLDER: &str = "fullpipe-uml-";
/// Prefix of the names of run folders that are not locked yet.
const UNLOCKED_FOLDER: &str = "fullpipe-new-uml-";
/// Descriptor of the first device in the guest's process; the descriptors of the other devices follow.
/// The value is constant, because the guest's random numbers depend on the kernel's command line.
pub(super) const FIRST_DEVICE: i32 = 100;
/// Maximum number of host pairs of a guest. Each device takes about 60 of the 4096 bytes of the kernel's
/// command line.
pub(super) const MOST_PAIRS: usize = 16;
/// Lowest number for the descriptors from which the devices' descriptors are copied.
const ABOVE: i32 = 200;
/// Interval at which the launcher asks whether the run should continue.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Memory size of a guest without socket buffers, and maximum memory size of a guest. Only memory that the
/// guest uses is allocated.
const MEMORY: Bytes = Bytes::from_mib(256);
const MOST_MEMORY: Bytes = Bytes::from_mib(8_192);
/// Address of all devices. Because the addresses are equal, the frames of a device arrive at the
/// other device of its pair without ARP.
const MAC: &str = "02:00:00:00:00:01";
/// Age in seconds at which a folder that is not locked yet is removed.
const ABANDONED: u64 = 60;

/// Reports on a completed run, from the guest's init and from the preloaded library.
pub(super) struct Reports {
    pub(super) guest: GuestReport,
    pub(super) path: PathReport,
}

/// Runs a guest to its end, for at most `limit` of real time. Captured packets are passed to `capture`.
pub(super) fn launch(
    kernel: &Kernel,
    order: &Order,
    limit: Duration,
    goes_on: &dyn Fn() -> bool,
    capture: Option<&mut impl Capture>,
) -> Result<Reports, Error> {
    remove_abandoned();
    let folder = RunFolder::new(kernel, order)?;
    let dir = folder.path.as_path();
    let console = dir.join("console");
    let mut child = start(dir, &console, &order.scenario)?;
    let ended = wait(&mut child, limit, goes_on);
    if ended.is_err() {
        // An error means that the guest has already ended.
        let _ = child.kill();
    }
    let status = child.wait().doing("wait for the guest")?;
    ended?;
    if let Ok(failure) = fs::read_to_string(dir.join(GUEST_FAILURE)) {
        // The message is followed by a line with the hint.
        let (message, hint) = failure.split_once('\n').unwrap_or((&failure, ""));
        return Err(Error::settings(format!("the guest failed: {message}"), hint));
    }
    match (exchange::read(dir, GUEST_REPORT), exchange::read(dir, PATH_REPORT)) {
        (Some(guest), Some(path)) => {
            if let Some(capture) = capture {
                replay(dir, capture).doing("read the captured packets")?;
            }
            Ok(Reports { guest, path })
        }
        _ => Err(explain(status, &last_lines(&console))),
    }
}

/// The folder of a run, which is removed with this value. If the process is killed, the next run of any
/// process removes the folder.
struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// Creates the folder of a run. The kernel's command line and environment contain only constant names in
    /// this folder, because the guest's random numbers depend on them.
    fn new(kernel: &Kernel, order: &Order) -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix(UNLOCKED_FOLDER)
            .tempdir()
            .doing("create a folder for the run")?;
        let lock = File::open(folder.path()).doing("open the folder of the run")?;
        flock(&lock, FlockOperation::LockShared).doing("lock the folder of the run")?;
        // The folder gets its final name only once it is locked, so that no other process mistakes
        // it for an abandoned folder.
        let unlocked = folder.keep();
        let name = unlocked.file_name().unwrap_or_default().to_string_lossy();
        let path = unlocked.with_file_name(name.replacen(UNLOCKED_FOLDER, FOLDER, 1));
        if let Err(error) = fs::rename(&unlocked, &path) {
            let _ = fs::remove_dir(&unlocked);
            return Err(Error::system("rename the folder of the run", error));
        }
        let folder = Self { path, _lock: lock };
        folder.fill(kernel, order).doing("write the folder of the run")?;
        Ok(folder)
    }

    fn fill(&self, kernel: &Kernel, order: &Order) -> io::Result<()> {
        let dir = &self.path;
        symlink(&kernel.path, dir.join("kernel"))?;
        symlink(&kernel.library, dir.join("library.so"))?;
        symlink(&kernel.init, dir.join("init"))?;
        if let Some(modules) = &kernel.modules {
            symlink(modules, dir.join(MODULES))?;
        }
        exchange::write(dir, ORDER, order)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes folders of runs whose process was killed.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let named = |prefix: &str| name.to_string_lossy().starts_with(prefix);
        let old = || {
            let age = entry.metadata().ok().and_then(|found| {
                let changed = found.ctime().max(found.mtime()) as u64;
                now_1970().checked_sub(changed)
            });
            age.is_some_and(|age| age > ABANDONED)
        };
        let unused = || {
            let folder = File::open(entry.path())?;
            flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
            io::Result::Ok(())
        };
        if (named(FOLDER) || named(UNLOCKED_FOLDER) && old()) && unused().is_ok() {
            // Another user's folder cannot be removed, and another process may remove this one first.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the age of a folder is no part of a result")]
fn now_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

fn start(dir: &Path, console: &Path, scenario: &Scenario) -> Result<Child, Error> {
    let console = File::create(console).doing("create the guest's console")?;
    // The kernel requires sockets, but nothing is sent through them: the library handles all calls
    // on them.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The descriptors are first copied to high numbers, so that none of them is overwritten.
    let high = |fd: OwnedFd| fcntl_dupfd_cloexec(fd, ABOVE).doing("copy a file descriptor");
    let mut sockets = Vec::new();
    for _ in 0..devices(scenario) / 2 {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (sending, receiving) = pair.doing("create a socket pair")?;
        sockets.extend([high(sending)?, high(receiving)?]);
    }

    let output = |file: &File| file.try_clone().map(Stdio::from).doing("copy a file descriptor");
    let mut command = Command::new("/proc/self/cwd/kernel");
    command
        .arg0("linux")
        .args(arguments(scenario))
        .current_dir(dir)
        .env_clear()
        .env("LD_PRELOAD", "/proc/self/cwd/library.so")
        .env("TMPDIR", "/proc/self/cwd")
        .env("HOME", "/proc/self/cwd")
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(output(&console)?)
        .stderr(output(&console)?)
        .process_group(0);
    let prepare = move || {
        // The kernel kills the guest when its launcher exits, even if the launcher itself was killed.
        // The library sets the same signal for the processes that the guest's kernel creates.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        for (socket, number) in sockets.iter().zip(FIRST_DEVICE..) {
            sys::copy_descriptor(socket.as_fd(), number)?;
        }
        sys::fixed_addresses()
    };
    // SAFETY: `prepare` makes only system calls.
    unsafe { sys::before_exec(&mut command, prepare) };
    command.spawn().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => forbidden("the guest's addresses cannot be fixed (personality)"),
        _ => Error::system("start the guest's kernel", error),
    })
}

/// Returns the command line of the guest's kernel. It must be the same for all runs of a scenario.
fn arguments(scenario: &Scenario) -> Vec<String> {
    let device = |number: usize| {
        let fd = FIRST_DEVICE + number as i32;
        format!("vec{number}:transport=fd,fd={fd},vec=0,mac={MAC}")
    };
    let devices = (0..devices(scenario)).map(device);
    let fixed = [
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "init=/proc/self/cwd/init",
        "umid=fullpipe",
        "uml_dir=/proc/self/cwd/",
        "con=null",
        "con0=null,fd:1",
        "quiet",
        "panic=-1",
        // These initcalls measure speeds in a loop, or read the host's random numbers.
        "initcall_blacklist=rng_init,raid6_select_algo,calibrate_xor_blocks",
        "lpj=1000000",
        "ipv6.disable=1",
    ];
    let memory = format!("mem={}M", memory(scenario).get() >> 20);
    let words = fixed.into_iter().map(str::to_owned);
    words.chain([memory]).chain(devices).chain(["--".into(), GUEST_ARGUMENT.into()]).collect()
}

/// Returns the number of devices: two for each pair of hosts.
pub(super) fn devices(scenario: &Scenario) -> usize {
    2 * scenario.host_pairs().into_iter().max().map_or(1, |last| last + 1)
}

/// Returns the memory size that a guest needs if all socket buffers are full.
fn memory(scenario: &Scenario) -> Bytes {
    let buffers = scenario.host.sndbuf.limit().get().saturating_add(scenario.host.rcvbuf.limit().get());
    let all = buffers.saturating_mul(scenario.flows.len() as u64);
    Bytes::new(MEMORY.get().saturating_add(all.saturating_mul(5) / 4)).min(MOST_MEMORY)
}

/// Waits until the guest has ended; returns an error if the guest exceeds `limit`, or if `goes_on` returns
/// false.
fn wait(child: &mut Child, limit: Duration, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
    let pid = rustix::process::Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty()).doing("watch the guest")?;
    let until = since_boot() + limit;
    loop {
        let mut watched = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut watched, Some(&timespec(ASK_EVERY))) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Error::system("wait for the guest", error)),
        }
        if !goes_on() {
            return Err(Error::settings("the run was ended early", ""));
        }
        if since_boot() >= until {
            return Err(Error::settings(
                format!("the guest did not end within {limit} of real time, and was killed"),
                "allow more time with --time-limit; if the guest still does not end, report this defect \
                 with the experiment",
            ));
        }
    }
}

/// Returns the error for a guest that ended without reports, from the last lines of its console.
fn explain(status: ExitStatus, console: &str) -> Error {
    // perror(3) prints this word with a colon before its message. Other lines of the console
    // contain the word without a colon.
    if console.contains("ptrace: ") {
        return forbidden("the guest's kernel is not permitted to trace its processes (ptrace)");
    }
    let last = last_words(console).map_or_else(String::new, |line| format!(": {line}"));
    Error::settings(format!("the guest ended without a result ({status}){last}"), "")
}

/// Returns the last informative line of a console: the line before a panic, because this line states the
/// cause, or else the last line. A panic ends with a list of addresses.
fn last_words(console: &str) -> Option<&str> {
    let words = console.split("Kernel panic").next().unwrap_or(console);
    words.lines().rev().map(str::trim).find(|line| !line.is_empty())
}

fn forbidden(message: &str) -> Error {
    Error {
        kind: Kind::Rights,
        message: message.into(),
        hint:
            "allow ptrace and personality in the container (--security-opt seccomp=unconfined), or use the \
               simulator: --world sim"
                .into(),
    }
}

/// Returns the end of the guest's console.
fn last_lines(console: &Path) -> String {
    const MOST: u64 = 4_096;
    let read = || {
        let mut file = File::open(console)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(MOST)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::experiment::Experiment;

    use super::*;

    struct NoCapture;

    impl Capture for NoCapture {
        fn packet(&mut self, _: &fullpipe_lab::capture::CapturedPacket<'_>) {}
    }

    /// The kernel names ptrace on its console whenever it starts. Only a failed check means that a permission
    /// is missing.
    #[test]
    fn a_guest_that_panics_is_reported_with_the_cause() {
        const PANIC: &str = "Checking that ptrace can change system call numbers...OK\n\
            userspace - ptrace set fp regs failed, errno = 14\n\
            Kernel panic - not syncing: Attempted to kill init!\nCall Trace:\n [<6002c0dd>] new_thread\n";
        let error = explain(ExitStatus::default(), PANIC);
        assert!(error.message.ends_with(": userspace - ptrace set fp regs failed, errno = 14"), "{error:?}");
        assert_eq!(error.kind, Kind::Settings);
        let error = explain(ExitStatus::default(), "Checking ...ptrace: Operation not permitted\n");
        assert_eq!(error.kind, Kind::Rights);
    }

    /// Makes `call` fail with EPERM in this thread and in the processes that it starts, as the filter of a
    /// container does. The thread cannot undo it.
    fn forbid(call: libc::c_long) {
        let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let filter = [
            // The number of the system call is the first word.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter {
                jf: 1,
                ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32)
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the program is valid during the calls, and the kernel copies it.
        let forbidden = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        assert!(forbidden, "{}", io::Error::last_os_error());
    }

    /// The kernel ends before it reads the library or starts init, so the test needs neither.
    #[test]
    fn a_container_that_forbids_a_system_call_is_reported() {
        let Some(path) = super::super::kernel::in_path() else {
            eprintln!("skipped: there is no User-Mode Linux kernel");
            return;
        };
        let nothing = || PathBuf::from("/nonexistent");
        let kernel =
            Kernel { path, release: "6.1".into(), modules: None, library: nothing(), init: nothing() };
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '1mbit'\nrtt = '20ms'\n[[flow]]\ncc = 'reno'";
        let scenario = Experiment::from_toml(text).expect("valid").points()[0].scenario.clone();
        let order = Order { scenario, logged: false, captured: false };
        let refusal = |call| {
            forbid(call);
            let refused = launch(&kernel, &order, Duration::from_secs(60), &|| true, None::<&mut NoCapture>);
            refused.err().map(|error| (error.kind, error.message))
        };
        for (call, word) in [(libc::SYS_ptrace, "(ptrace)"), (libc::SYS_personality, "(personality)")] {
            let refused = std::thread::scope(|scope| scope.spawn(|| refusal(call)).join().expect("no panic"));
            let (kind, message) = refused.expect("an error");
            assert!(kind == Kind::Rights && message.ends_with(word), "{message}");
        }
    }
}
