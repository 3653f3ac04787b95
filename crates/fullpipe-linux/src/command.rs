//! Runs an arbitrary command behind an emulated path.
//!
//! The command runs in the sender's network namespace, and an optional server in the receiver's. The command
//! and the server each have a separate PID namespace. When the command, the server or this process ends, its
//! descendants end too. The network namespaces and devices disappear with the last process.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;

use fullpipe_lab::scenario::PathSpec;
use fullpipe_lab::validity::Validity;
use fullpipe_units::{Duration, Instant};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::Datapath;
use crate::clock::Clock;
use crate::error::{Doing, Error, Kind};
use crate::namespace::Namespace;
use crate::pid_namespace::contain;
use crate::rights::Caller;
use crate::wan::{RECEIVER, SENDER, Wan, WanConfig, WanReport};

/// Timeout for the server to start listening. If the timeout expires, the server keeps running, because some
/// programs never listen, for example the client of another service.
const READY: Duration = Duration::from_secs(3);
/// Timeout for the server to exit after fullpipe has sent it SIGTERM.
const FAREWELL: Duration = Duration::from_secs(1);
/// Polling interval while fullpipe waits for the server to listen or to exit.
const LOOK: Duration = Duration::from_millis(5);

/// Configuration of the emulated path between the command and its peer.
#[derive(Clone, Copy, Debug)]
pub struct Behind<'a> {
    /// Emulated path; data flows from the command to the peer.
    pub path: &'a PathSpec,
    /// Seed of all random numbers of the path.
    pub seed: u64,
    /// Form in which packets enter and leave the kernel: single packets or super-packets.
    pub datapath: Datapath,
}

/// Result of running a command behind an emulated path.
#[derive(Clone, Debug)]
pub struct CommandResult {
    /// Exit code of the command; if a signal ended the command, 128 plus the number of the signal.
    pub status: u8,
    /// Packet counters of the path in both directions.
    pub report: WanReport,
    /// Measurements that show whether the emulated path was on time.
    pub validity: Validity,
}

/// Runs `command` (program and arguments) behind an emulated path, and `serve` in a shell at the far end of
/// the path.
///
/// # Errors
/// Returns an error if the path cannot be built, or if the command or the server does not start.
pub fn run(behind: &Behind<'_>, command: &[OsString], serve: Option<&str>) -> Result<CommandResult, Error> {
    let Behind { path, seed, datapath } = *behind;
    let wan = Wan::new(&WanConfig {
        path,
        // Any program's packets may cross the path, and all of them have the same RTT.
        flows: &[],
        seed,
        datapath,
        lead: Duration::ZERO,
        logged: false,
        ends: Default::default(),
    })?;
    let clock = wan.clock;
    let server = serve.map(|text| Server::start(&wan.receiver, text, clock)).transpose()?;
    let status = in_front(&wan.sender, command);
    if let Some(server) = server {
        server.end(clock);
    }
    let status = status?;
    let elapsed = clock.now().saturating_since(Instant::ZERO);
    let report = wan.finish()?;
    let cpu = report.forward.cpu + report.backward.cpu;
    let validity = Validity {
        rtt: path.rtt(),
        lateness: report.forward.lateness.clone().with(&report.backward.lateness).quantiles(),
        tun_drops: report.tun_drops,
        retransmits: None,
        drops: report.forward.data_drops,
        duplicates: 0,
        cpu: cpu.as_secs_f64() / elapsed.as_secs_f64(),
        stalls: report.stalls,
    };
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(CommandResult { status: code.unwrap_or(1) as u8, report, validity })
}

/// Makes SIGINT and SIGTERM terminate this process immediately. A process that continues after [`run`] needs
/// this call, because the signal handlers of [`run`] stay installed and would otherwise ignore these signals.
/// A command that is still running ends with the process.
///
/// # Errors
/// Returns an error if a signal handler cannot be installed.
pub fn end_at_signals() -> Result<(), Error> {
    static ALWAYS: AtomicBool = AtomicBool::new(true);
    for signal in [SIGINT, SIGTERM] {
        register_conditional_default(signal, &ALWAYS).doing("install the signal handlers")?;
    }
    Ok(())
}

/// Starts the command, waits for it to end, and forwards the signals that this process receives in the
/// meantime.
fn in_front(namespace: &Namespace, command: &[OsString]) -> Result<ExitStatus, Error> {
    let [program, arguments @ ..] = command else {
        return Err(Error::settings("the command is missing", "pass the command after --"));
    };
    let mut signals = SignalsInfo::<WithRawSiginfo>::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        .doing("install the signal handlers")?;
    let handle = signals.handle();
    let (started, pid) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let Ok(pid) = pid.recv() else { return };
            for received in &mut signals {
                forward(pid, &received);
            }
        });
        let status = namespace.run(|| {
            let mut command = child(program, SENDER, RECEIVER)?;
            let mut child = command.args(arguments).spawn().map_err(|error| cannot_run(program, error))?;
            // Sending can fail only if the signal thread has ended, but that thread is still running.
            let _ = started.send(pid_of(&child));
            child.wait().doing("wait for the command")
        });
        handle.close();
        drop(started);
        status
    })
}

/// Forwards a signal that another process has sent to this process. Signals from the terminal reach the
/// command directly.
fn forward(to: Pid, received: &libc::siginfo_t) {
    if received.si_code != libc::SI_KERNEL
        && let Some(signal) = Signal::from_named_raw(received.si_signo)
    {
        // Sending the signal fails if the command has already ended.
        let _ = kill_process(to, signal);
    }
}

fn cannot_run(program: &OsString, error: io::Error) -> Error {
    let what = format_args!("run '{}'", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => Error {
            kind: Kind::NoCommand,
            hint:
                "give a command after --, for example fullpipe emu --rate 10mbit --rtt 50ms -- ping -c 3 198.18.0.2"
                    .into(),
            ..Error::system(what, error)
        },
        _ => Error { kind: Kind::System, hint: String::new(), ..Error::system(what, error) },
    }
}

/// Creates the command with both addresses in its environment; it runs with the caller's user ID in a new PID
/// namespace.
fn child(program: impl AsRef<std::ffi::OsStr>, own: Ipv4Addr, peer: Ipv4Addr) -> Result<Command, Error> {
    let mut command = Command::new(program);
    command.env("FULLPIPE_ADDR", own.to_string()).env("FULLPIPE_PEER", peer.to_string());
    contain(&mut command, Caller::behind_privileges()).doing("create a PID namespace")?;
    Ok(command)
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Server process at the far end of the path: a shell command with its child processes.
struct Server {
    child: Child,
    /// Dropping this channel ends the thread that started the server. The thread must live as long as the
    /// server, because the kernel sends `PR_SET_PDEATHSIG` when the thread that forked a child ends.
    release: mpsc::Sender<()>,
    thread: thread::JoinHandle<Result<(), Error>>,
}

impl Server {
    fn start(namespace: &Namespace, text: &str, clock: Clock) -> Result<Self, Error> {
        let namespace = namespace.try_clone()?;
        let text = text.to_owned();
        let (release, released) = mpsc::channel::<()>();
        let (report, reported) = mpsc::channel();
        let thread = thread::spawn(move || {
            namespace.enter()?;
            let started = serving(&text, clock);
            let _ = report.send(started);
            let _ = released.recv();
            Ok(())
        });
        match reported.recv() {
            Ok(child) => Ok(Self { child: child?, release, thread }),
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) => unreachable!("it reports before it ends"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }

    /// Ends the server with SIGTERM, and with SIGKILL if it is still running after `FAREWELL`.
    fn end(mut self, clock: Clock) {
        let group = pid_of(&self.child);
        let deadline = clock.now() + FAREWELL;
        // An error means that the server process group no longer exists.
        let _ = kill_process_group(group, Signal::TERM);
        while clock.now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            clock.sleep_until(clock.now() + LOOK);
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        drop(self.release);
        let _ = self.thread.join();
    }
}

/// Starts a server in the network namespace of the calling thread, and waits until the server listens, but at
/// most for `READY`.
fn serving(text: &str, clock: Clock) -> Result<Child, Error> {
    let shell = OsString::from("sh");
    let mut command = child(&shell, RECEIVER, SENDER)?;
    // Only the command may write to standard output. The server runs in a separate process group, because
    // signals from the terminal would otherwise end the server before the command ends.
    command.arg("-c").arg(text).process_group(0).stdin(Stdio::null()).stdout(io::stderr());
    let mut child = command.spawn().map_err(|error| cannot_run(&shell, error))?;
    let deadline = clock.now() + READY;
    while clock.now() < deadline && !somebody_listens() {
        if let Some(status) = child.try_wait().doing("wait for the server")? {
            return Err(Error::settings(
                format!("the server '{text}' ended before it listened on a port: {status}"),
                "run the server without fullpipe to see its error",
            ));
        }
        clock.sleep_until(clock.now() + LOOK);
    }
    Ok(child)
}

/// Returns whether the network namespace of the calling thread has a listening TCP socket, or a UDP socket
/// that is bound but not connected. (A resolver's UDP socket is connected, so it does not count.)
fn somebody_listens() -> bool {
    const TABLES: [(&str, &str); 4] = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];
    TABLES.iter().any(|(table, state)| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().nth(3) == Some(*state))
    })
}
