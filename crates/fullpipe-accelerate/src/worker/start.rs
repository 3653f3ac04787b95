//! Start of the worker: receives descriptors and settings from the keeper, gives up privileges, and creates
//! the stack.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use fullpipe_lab::profile::Profile;
use fullpipe_linux::stack_loop::{Port, serve};
use fullpipe_linux::{Clock, Datapath, Error, Stop, Tun};
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::{Algorithm, INITIAL_SEGMENTS};
use fullpipe_tcp::memory::{Memory, MemoryLimits};
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{Admission, IsnClock, Policy, Stack, StackConfig};
use fullpipe_tcp::{Bursts, Config, KeepAlive, Tunables};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use socket2::Socket;

use super::{Worker, WorkerSettings};
use crate::config::{ClientAddress, Upstream};
use crate::policies::{Senders, applied};
use crate::probes::SharedTable;
use crate::{handover, refused, sandbox, system};

/// Maximum number of half-open connections, and maximum number of connections that wait to be accepted.
const BACKLOG: usize = 4_096;
/// Amount of unsent data at which the worker stops reading from the server, so that the server is subject to
/// back-pressure. The worker reads again in the round in which half of this data has been sent, so the limit costs no
/// rate: a connection transfers as many bytes at 12 Gbit/s as without it (`a_limit_on_unsent_data_costs_no_rate` in the
/// tests of the lab). If the server itself is late, the data in its socket on this host bridges the delay.
const UNSENT: Bytes = Bytes::new(128 << 10);
const SEND_BUFFER: Bytes = Bytes::from_mib(16);
const RECEIVE_BUFFER: Bytes = Bytes::from_mib(6);
/// Duration of a burst at the pacing rate. Longer bursts would fill the queues of routers with shallow
/// buffers.
const BURST: Duration = Duration::from_micros(250);
/// Maximum delay of the worker for which a connection makes up after the worker has woken up late.
const MISSED: Duration = Duration::from_millis(1);
/// Memory and number of connections of the service of one run.
const RUN_MEMORY: Bytes = Bytes::from_mib(256);
const RUN_CONNECTIONS: usize = 64;
/// Speed of the device that the launch budget assumes if the actual speed is not known.
const ASSUMED_SPEED: Rate = Rate::from_bps(1_000_000_000);

/// Runs the worker until the keeper ends it. Standard input must be the socket to the keeper, and standard
/// output the TUN device.
///
/// # Errors
/// Returns an error if the process was not started by a keeper, if it cannot give up its privileges, or if a
/// system call fails.
pub fn work() -> Result<(), Error> {
    let inherited = |fd: io::Result<OwnedFd>| fd.map_err(|error| system("take over a descriptor", error));
    let control = UnixStream::from(inherited(io::stdin().as_fd().try_clone_to_owned())?);
    let tun = inherited(io::stdout().as_fd().try_clone_to_owned())?;
    let (settings, raw) = read_settings(&control)?;
    give_up_privileges(&settings)?;
    control.set_nonblocking(true).map_err(|error| system("prepare the socket to the keeper", error))?;
    let port = Port::from(Tun::inherited(tun, Datapath::Offload));
    let (clock, stop) = (Clock::starting_in(Duration::ZERO), Stop::new()?);
    let (stack, mut worker) = prepare(&port, settings, control, raw, &stop)?;
    sandbox::restrict()?;
    serve(&port, &stack, clock, &mut worker, &stop).map(drop)
}

/// Relays the connections of a port until the keeper at the other end of `control` ends it, with the settings that the
/// keeper sends. Unlike [`work`], this function leaves the privileges of the process as they are.
///
/// # Errors
/// Returns an error if the settings are not valid, or if a system call fails.
pub fn relay(port: &Port, control: UnixStream, stop: &Stop) -> Result<(), Error> {
    let (settings, raw) = read_settings(&control)?;
    control.set_nonblocking(true).map_err(|error| system("prepare the socket to the keeper", error))?;
    let (stack, mut worker) = prepare(port, settings, control, raw, stop)?;
    serve(port, &stack, Clock::starting_in(Duration::ZERO), &mut worker, stop).map(drop)
}

/// Service of one run on an emulated path.
#[derive(Clone, Copy, Debug)]
pub struct RunService {
    /// Address at which clients connect.
    pub listen: SocketAddr,
    /// Address of the server.
    pub server: SocketAddr,
    /// Congestion control of the connections to the clients.
    pub cc: Algorithm,
    /// Initial window in segments; `None` for that of the congestion control or the profile.
    pub initcwnd: Option<u32>,
    /// Profile of the connections, which may have the wider ranges of the lab.
    pub profile: Option<Profile>,
    /// MTU of the path to the clients, in bytes.
    pub mtu: u32,
}

/// Relays the connections of a port until `stop`, like the worker of a service, but without a keeper. The path memory
/// is empty at first.
///
/// # Errors
/// Returns an error if the settings are not valid, or if a system call fails.
pub fn relay_run(port: &Port, service: &RunService, stop: &Stop) -> Result<(), Error> {
    let settings = WorkerSettings {
        listen: service.listen,
        upstream: Upstream::Tcp(service.server),
        client_address: ClientAddress::Hidden,
        cc: service.cc.name().into(),
        mtu: service.mtu,
        memory: RUN_MEMORY.get(),
        connections: RUN_CONNECTIONS,
        table: PathBuf::new(),
        identity: None,
        limit: None,
        paths: Some(MemoryLimits::DEFAULT.into()),
        senders: Senders::default(),
    };
    let (config, policies) = configs(&settings)?;
    let config = Config { initcwnd: service.initcwnd.or(config.initcwnd), ..config };
    let config = service.profile.map_or_else(|| config.clone(), |profile| applied(&profile, &config));
    let stack = Mutex::new(stack_with(&settings, port, config, policies)?);
    let (control, reports) = UnixStream::pair().map_err(|error| system("create a socket pair", error))?;
    control.set_nonblocking(true).map_err(|error| system("prepare a socket", error))?;
    let mut worker = Worker::new(settings, control, None, stop.clone());
    thread::scope(|scope| {
        // Nobody needs the reports, but the worker must not run out of room for them. The thread ends when the worker
        // is dropped.
        scope.spawn(move || io::copy(&mut &reports, &mut io::sink()));
        let served = serve(port, &stack, Clock::starting_in(Duration::ZERO), &mut worker, stop).map(drop);
        drop(worker);
        served
    })
}

/// Creates the stack and the worker for a port, and opens all files that they need.
pub(super) fn prepare(
    port: &Port,
    settings: WorkerSettings,
    control: UnixStream,
    raw: Option<Socket>,
    stop: &Stop,
) -> Result<(Mutex<Stack>, Worker), Error> {
    let mut stack = stack(&settings, port)?;
    stack.set_live_table(Some(Box::new(SharedTable::open(&settings.table)?)));
    Ok((Mutex::new(stack), Worker::new(settings, control, raw, stop.clone())))
}

/// Drops all capabilities that the process does not need, for itself and its children. The process must be
/// single-threaded, because users and capabilities belong to threads.
fn give_up_privileges(settings: &WorkerSettings) -> Result<(), Error> {
    let none = CapabilitySet::empty();
    // Sockets with a client's address require the capability `CAP_NET_RAW`. The restriction of system calls
    // still forbids raw sockets.
    let transparent = settings.client_address == ClientAddress::Transparent;
    let kept = if transparent { CapabilitySet::NET_RAW } else { none };
    if let Some(identity) = settings.identity {
        change_user(identity).map_err(|error| system("change the user of the worker", error))?;
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    set_capabilities(None, sets).map_err(|error| system("give up the capabilities of the worker", error))?;
    set_no_new_privs(true).map_err(|error| system("set no_new_privs", error))
}

/// Changes the user and the group of the process, but keeps its permitted capabilities.
fn change_user((user, group): (u32, u32)) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(set_keep_capabilities(false)?)
}

/// Receives the settings and the raw socket from the keeper.
fn read_settings(control: &UnixStream) -> Result<(WorkerSettings, Option<Socket>), Error> {
    let (line, raw) = handover::receive(control).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => refused(
            "the keeper has ended",
            "start fullpipe accelerate, which \
            starts the worker",
        ),
        _ => system("read from the keeper", error),
    })?;
    let settings = serde_json::from_slice(&line)
        .map_err(|error| refused(format!("the settings of the worker are not valid: {error}"), ""))?;
    Ok((settings, raw.map(Socket::from)))
}

/// Returns a stack that listens on the address and port of the service.
pub(super) fn stack(settings: &WorkerSettings, port: &Port) -> Result<Stack, Error> {
    let (config, policies) = configs(settings)?;
    stack_with(settings, port, config, policies)
}

/// Returns a stack whose connections have the configuration `config`, unless a policy applies.
fn stack_with(
    settings: &WorkerSettings,
    port: &Port,
    config: Config,
    policies: Vec<Policy>,
) -> Result<Stack, Error> {
    let (mut key, mut path_key) = ([0; 16], [0; 8]);
    let mut random = File::open("/dev/urandom").map_err(|error| system("open /dev/urandom", error))?;
    let read = random.read_exact(&mut key).and_then(|()| random.read_exact(&mut path_key));
    read.map_err(|error| system("read random bytes", error))?;
    let mut stack = Stack::new(StackConfig {
        key: Key::new(key),
        isn_clock: IsnClock::Linux,
        max_connections: settings.connections,
        cut: port.cut(),
    });
    if let Some(limits) = settings.paths {
        let device = settings.limit.map_or(ASSUMED_SPEED, Rate::from_bps);
        let memory = Memory::with_limits(u64::from_le_bytes(path_key), device, limits.into());
        stack.set_path_memory(Box::new(memory));
    }
    stack.add_address(settings.listen.ip());
    stack
        .listen(settings.listen, config, BACKLOG)
        .map_err(|error| refused(format!("cannot listen on {}: {error}", settings.listen), ""))?;
    stack.set_policies(settings.listen, policies);
    // The loop starts reading packets before the worker has sent its first probe to the server, so SYNs must
    // wait.
    stack.set_admission(Instant::ZERO, settings.listen, Admission::Held);
    Ok(stack)
}

/// Returns the configuration of connections to which no policy applies, and the policies.
pub(super) fn configs(settings: &WorkerSettings) -> Result<(Config, Vec<Policy>), Error> {
    let cc: Algorithm = settings
        .cc
        .parse()
        .map_err(|error: fullpipe_tcp::cc::UnknownAlgorithm| refused(error.to_string(), ""))?;
    let config = Config {
        mtu: settings.mtu.into(),
        cc,
        // Some routers drop large packets without an ICMP message. After timeouts, the stack then reduces the
        // segment size.
        mtu_probing: true,
        notsent_lowat: Some(UNSENT),
        sndbuf: Buffer::Auto { max: SEND_BUFFER },
        rcvbuf: Buffer::Auto { max: RECEIVE_BUFFER },
        // The server has already decided which data it sends together.
        nodelay: true,
        keep_alive: Some(KeepAlive::default()),
        tunables: Tunables { bursts: Bursts::Limited { length: BURST, missed: MISSED }, ..Tunables::LINUX },
        ..Config::default()
    };
    let (config, policies) =
        settings.senders.configs(&config).map_err(|error| refused(error.message, error.hint))?;
    // Only the path memory limits launches, so without it, first flights have ten segments.
    let permitted = |config: Config| match settings.paths {
        Some(_) => config,
        None => Config { launch: None, initcwnd: Some(INITIAL_SEGMENTS as u32), ..config },
    };
    let policy = |(clients, config)| Policy { clients, config: permitted(config) };
    Ok((permitted(config), policies.into_iter().map(policy).collect()))
}
