//! The worker: relays the connections of one port between fullpipe's TCP and the server. It runs in a process
//! without privileges, which the keeper starts.
//!
//! ```text
//!   client ⇄ TUN ⇄ Stack ⇄ Half up, Half down ⇄ kernel socket ⇄ server
//!                    ▲
//!   admission ◄── health ◄── connections and probes
//! ```
//!
//! The worker never waits for one connection: every socket is non-blocking, and one epoll watches all of
//! them. Standard input is the socket to the keeper, and standard output is the TUN device.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;

use fullpipe_linux::stack_loop::{Port, Service, Sockets, serve};
use fullpipe_linux::{Clock, Datapath, Error, Stop, Tun, WaitCondition};
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::memory::{Memory, MemoryLimits, MemorySummary};
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{Admission, ConnId, IsnClock, Stack, StackConfig};
use fullpipe_tcp::{Config, Event, KeepAlive, SendLimit};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};
use socket2::Socket;

use crate::config::{ClientAddress, Upstream};
use crate::handover::Order;
use crate::health::Health;
use crate::memory::Pressure;
use crate::probes::{self, ProbeFile};
use crate::proxy;
use crate::relay::{End, Half, Input, Output, Progress};
use crate::upstream::{Server, Sources, is_temporary};
use crate::{handover, refused, sandbox, system};

/// Interval between two reports to the keeper, which counts their absence as silence.
pub(crate) const BEAT: Duration = Duration::from_millis(100);
/// Maximum number of half-open connections, and of connections that are not accepted yet.
const BACKLOG: usize = 4_096;
/// Unsent data at which the server is no longer read, so that the server's own back-pressure takes effect.
const UNSENT: Bytes = Bytes::new(128 << 10);
const SEND_BUFFER: Bytes = Bytes::from_mib(16);
const RECEIVE_BUFFER: Bytes = Bytes::from_mib(6);
/// Speed of the device for the budget of launches, if it is not known.
const ASSUMED_SPEED: Rate = Rate::from_bps(1_000_000_000);
/// Number of reports between two observations of all connections by the kill switch.
const OBSERVATION_BEATS: u64 = 10;
/// Maximum number of bytes that one connection moves per direction and round of the loop.
const BURST: usize = 256 << 10;
/// Size of one read, about that of a super-packet.
const READ: usize = 64 << 10;
/// Longest time for which bytes are delivered that the server has sent before a reset.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Time in which the resets of all connections are sent before the worker ends.
const FAREWELL: Duration = Duration::from_millis(100);
/// Time after the death of the keeper in which the table disappears. The answers to probes then reach the
/// kernel.
const TABLE_GONE: Duration = Duration::from_millis(300);
/// Number of reports between two updates of the probes of many connections.
const PROBE_BEATS: u64 = 10;
/// Time by which the timestamps of probes are ahead. A client ignores an ACK that is older than the last segment
/// (RFC 7323 section 5; Linux answers none since 6.14), and the worker may send segments after it has written a
/// probe.
const PROBE_AHEAD: Duration = Duration::from_secs(10);
/// Maximum number of connections whose limits are included in a report, and whose probes are updated with
/// each report.
const SAMPLED: usize = 1_000;

const CONTROL: u64 = 0;
const PROBE: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// Settings that the keeper sends to the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) client_address: ClientAddress,
    /// Name of the congestion control.
    pub(crate) cc: String,
    /// MTU of the way out, in bytes.
    pub(crate) mtu: u32,
    /// Memory budget in bytes.
    pub(crate) memory: u64,
    pub(crate) connections: usize,
    /// File for the probes that the keeper sends if the worker dies.
    pub(crate) probes: PathBuf,
    /// User ID and group ID to which the worker changes; `None` if the keeper has started it with them.
    pub(crate) identity: Option<(u32, u32)>,
    /// Maximum rate of all connections together, in bit/s; `None` without a limit.
    pub(crate) limit: Option<u64>,
    /// Limits of the path memory; `None` without one.
    pub(crate) paths: Option<PathLimits>,
}

/// Limits of the path memory, as the keeper sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathLimits {
    prefixes: usize,
    client: u64,
    prefix: u64,
    device_permille: u32,
}

impl From<MemoryLimits> for PathLimits {
    fn from(limits: MemoryLimits) -> Self {
        let MemoryLimits { prefixes, client, prefix, device_permille } = limits;
        Self { prefixes, client: client.get(), prefix: prefix.get(), device_permille }
    }
}

impl From<PathLimits> for MemoryLimits {
    fn from(limits: PathLimits) -> Self {
        let PathLimits { prefixes, client, prefix, device_permille } = limits;
        Self { prefixes, client: Bytes::new(client), prefix: Bytes::new(prefix), device_permille }
    }
}

/// Report of the worker to the keeper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Number of connections between a client and the server.
    pub connections: usize,
    /// Number of connections that were accepted since the start.
    pub accepted: u64,
    /// Number of connections whose server could not be reached.
    pub unreachable: u64,
    /// Number of connections that ended with a reset.
    pub resets: u64,
    /// State of the server: up, unknown or down.
    pub health: String,
    /// Whether the limit of connections or of memory is reached, so that new connections are left to the
    /// kernel.
    pub full: bool,
    /// Bytes from clients that the server has accepted.
    pub bytes_up: u64,
    /// Bytes from the server that the stack has accepted for the clients.
    pub bytes_down: u64,
    /// Bytes in the buffers of all connections.
    pub held: u64,
    /// Number of packets from clients.
    pub packets_in: u64,
    /// Number of packets to clients.
    pub packets_out: u64,
    /// Number of SYNs from clients, retransmitted ones included.
    pub syns: u64,
    /// Number of packets that were neither valid nor for this port.
    pub refused: u64,
    /// Number of ICMP messages about the path MTU that made the segments of a connection smaller.
    pub too_big: u64,
    /// Seconds for which each limit has blocked the connections that are open, for at most 1000 of them.
    pub limits: BTreeMap<String, f64>,
    /// State of the path memory; null without one.
    pub paths: Option<PathReport>,
}

/// State of the path memory of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// Number of prefixes that are remembered.
    pub prefixes: usize,
    /// Number of connections that launched more than ten segments.
    pub launches: u64,
    /// Number of connections that launched fewer segments because a budget was used up.
    pub over_budget: u64,
    /// Reason for which the kill switch has acted; null if larger launches are permitted.
    pub stopped: Option<String>,
}

impl From<MemorySummary> for PathReport {
    fn from(summary: MemorySummary) -> Self {
        let MemorySummary { prefixes, launches, over_budget, tripped } = summary;
        Self { prefixes, launches, over_budget, stopped: tripped.map(|reason| reason.to_string()) }
    }
}

/// A connection of a client, and its connection to the server.
#[derive(Debug)]
struct Relayed {
    id: ConnId,
    server: Server,
    up: Half,
    down: Half,
    watched: WaitCondition,
    /// Whether the client has ended its direction.
    client_ended: bool,
    /// Time at which the connection is reset, if the server has reset its side.
    reset_by: Option<Instant>,
    /// Whether the connection may not read from its server, because of the memory budget.
    held_back: bool,
    /// Bytes in both directions at the last report.
    reported: u64,
    /// Whether the connection is in the list of those that can continue.
    queued: bool,
}

/// The client's end of a connection.
struct Client<'a> {
    stack: &'a mut Stack,
    id: ConnId,
    now: Instant,
    ended: bool,
}

impl End for Client<'_> {
    fn read(&mut self, room: &mut [u8]) -> Input {
        match self.stack.read(self.now, self.id, room) {
            0 if self.ended => Input::End,
            0 if self.stack.connection(self.id).is_none() => Input::Reset,
            0 => Input::Wait,
            len => Input::Bytes(len),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Output {
        if self.stack.connection(self.id).is_none() {
            return Output::Reset;
        }
        Output::Accepted(self.stack.write(self.id, bytes))
    }

    fn shutdown(&mut self) {
        self.stack.shutdown(self.id);
    }
}

/// An attempt to connect to the server in order to learn whether it lives.
struct Probe {
    server: Server,
}

struct Worker {
    settings: WorkerSettings,
    control: UnixStream,
    stop: Stop,
    relayed: BTreeMap<u64, Relayed>,
    numbers: BTreeMap<ConnId, u64>,
    next_number: u64,
    /// Connections that can continue without another event, each once.
    again: Vec<u64>,
    /// Those of them that are being served. Both lists keep their memory, so that a round allocates nothing.
    serving: Vec<u64>,
    /// Connections whose server has sent a reset.
    resetting: BTreeSet<u64>,
    sources: Sources,
    health: Health,
    probe: Option<Probe>,
    pressure: Pressure,
    probes: ProbeFile,
    /// Raw socket for the probes of this worker's clients if the keeper dies, and for ICMP messages about
    /// connections of the kernel.
    raw: Option<Socket>,
    /// Probes that are sent before the worker ends, and those of one report interval.
    last_probes: VecDeque<Vec<(IpAddr, Vec<u8>)>>,
    beat: Beat,
    beats: u64,
    next_beat: Instant,
    /// Time at which the worker ends, once the keeper has asked for it or has ended itself.
    ends_at: Option<Instant>,
    started: bool,
    scratch: Vec<u8>,
}

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
    let limit = settings.limit.map(Rate::from_bps);
    let (stack, mut worker) = prepare(&port, settings, control, raw, &stop)?;
    sandbox::restrict()?;
    serve(&port, &stack, clock, &mut worker, limit, &stop).map(drop)
}

/// Creates the stack and the worker for a port, and opens all files.
fn prepare(
    port: &Port,
    settings: WorkerSettings,
    control: UnixStream,
    raw: Option<Socket>,
    stop: &Stop,
) -> Result<(Mutex<Stack>, Worker), Error> {
    let stack = Mutex::new(stack(&settings, port)?);
    let probes = ProbeFile::open(&settings.probes)?;
    Ok((stack, Worker::new(settings, control, raw, stop.clone(), probes)))
}

/// Gives up all capabilities of the process that it does not need, for itself and for its children. The
/// process must be single-threaded, because users and capabilities belong to threads.
fn give_up_privileges(settings: &WorkerSettings) -> Result<(), Error> {
    let none = CapabilitySet::empty();
    // Sockets with a client's address require this capability. The restriction of the system calls still
    // forbids raw sockets.
    let transparent = settings.client_address == ClientAddress::Transparent;
    let kept = if transparent { CapabilitySet::NET_RAW } else { none };
    if let Some(identity) = settings.identity {
        change_user(identity).map_err(|error| system("change the user of the worker", error))?;
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    set_capabilities(None, sets).map_err(|error| system("give up the capabilities of the worker", error))?;
    set_no_new_privs(true).map_err(|error| system("set no_new_privs", error))
}

/// Changes the user and the group of the process, and keeps its permitted capabilities.
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
        io::ErrorKind::UnexpectedEof => refused("the keeper has ended", "start fullpipe accelerate instead"),
        _ => system("read from the keeper", error),
    })?;
    let settings = serde_json::from_slice(&line)
        .map_err(|error| refused(format!("the settings of the worker are not valid: {error}"), ""))?;
    Ok((settings, raw.map(Socket::from)))
}

/// Returns a stack that listens on the address and port of the service.
fn stack(settings: &WorkerSettings, port: &Port) -> Result<Stack, Error> {
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
    let cc: Algorithm = settings
        .cc
        .parse()
        .map_err(|error: fullpipe_tcp::cc::UnknownAlgorithm| refused(error.to_string(), ""))?;
    let config = Config {
        mtu: settings.mtu.into(),
        cc,
        // Some routers drop large packets without an ICMP message. The segment size then shrinks after
        // timeouts.
        mtu_probing: true,
        notsent_lowat: Some(UNSENT),
        sndbuf: Buffer::Auto { max: SEND_BUFFER },
        rcvbuf: Buffer::Auto { max: RECEIVE_BUFFER },
        // The server has decided which segments it wants to send at once.
        nodelay: true,
        keep_alive: Some(KeepAlive::default()),
        ..Config::default()
    };
    if let Some(limits) = settings.paths {
        let device = settings.limit.map_or(ASSUMED_SPEED, Rate::from_bps);
        let memory = Memory::with_limits(u64::from_le_bytes(path_key), device, limits.into());
        stack.set_path_memory(Box::new(memory));
    }
    stack.add_address(settings.listen.ip());
    stack
        .listen(settings.listen, config, BACKLOG)
        .map_err(|error| refused(format!("cannot listen on {}: {error}", settings.listen), ""))?;
    // The loop reads packets before the worker has asked the server for the first time.
    stack.set_admission(Instant::ZERO, settings.listen, Admission::Held);
    Ok(stack)
}

impl Worker {
    fn new(
        settings: WorkerSettings,
        control: UnixStream,
        raw: Option<Socket>,
        stop: Stop,
        probes: ProbeFile,
    ) -> Self {
        Self {
            settings,
            control,
            stop,
            relayed: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: FIRST_CONNECTION,
            again: Vec::new(),
            serving: Vec::new(),
            resetting: BTreeSet::new(),
            sources: Sources::default(),
            health: Health::default(),
            probe: None,
            pressure: Pressure::NONE,
            probes,
            raw,
            last_probes: VecDeque::new(),
            beat: Beat::default(),
            beats: 0,
            next_beat: Instant::ZERO,
            ends_at: None,
            started: false,
            scratch: vec![0; READ],
        }
    }

    /// Starts the connection to the server for each client whose handshake has completed.
    fn accept(&mut self, now: Instant, stack: &mut Stack) {
        while let Some(id) = stack.accept(self.settings.listen) {
            self.beat.accepted += 1;
            let Some(tuple) = stack.tuple(id) else { continue };
            if self.ends_at.is_some() {
                stack.abort(now, id);
                continue;
            }
            let client = match self.settings.client_address {
                ClientAddress::Transparent => Some(tuple.remote),
                ClientAddress::ProxyV2 | ClientAddress::Hidden => None,
            };
            let Ok(server) = Server::open(&self.settings.upstream, &mut self.sources, client) else {
                self.unreachable();
                stack.abort(now, id);
                continue;
            };
            let first = match self.settings.client_address {
                ClientAddress::ProxyV2 => proxy::header(tuple.remote, tuple.local),
                ClientAddress::Transparent | ClientAddress::Hidden => Vec::new(),
            };
            if !server.is_connecting() {
                self.health.succeeded(now);
            }
            let number = self.next_number;
            self.next_number += 1;
            let relayed = Relayed {
                id,
                server,
                up: Half::starting_with(first),
                down: Half::default(),
                watched: WaitCondition::Nothing,
                client_ended: false,
                reset_by: None,
                held_back: false,
                reported: 0,
                queued: false,
            };
            if let Some(headers) = stack.probe_packet(now + PROBE_AHEAD, id) {
                // Without the file, the clients of a dead worker learn late that their connections are lost.
                let _ = self.probes.append(headers.as_bytes());
            }
            self.relayed.insert(number, relayed);
            self.numbers.insert(id, number);
            self.go_on(number);
        }
    }

    fn unreachable(&mut self) {
        self.beat.unreachable += 1;
        self.health.failed();
    }

    /// Handles the events of the stack.
    fn events(&mut self, now: Instant, stack: &mut Stack) {
        while let Some((id, event)) = stack.poll_event() {
            let Some(&number) = self.numbers.get(&id) else {
                // The connection has no server any more; its last bytes are on their way.
                if matches!(event, Event::Aborted | Event::Closed) {
                    stack.release(now, id);
                }
                continue;
            };
            match event {
                Event::Readable | Event::Writable => self.go_on(number),
                Event::PeerClosed | Event::Closed => {
                    if let Some(relayed) = self.relayed.get_mut(&number) {
                        relayed.client_ended = true;
                    }
                    self.go_on(number);
                }
                Event::Aborted => {
                    self.beat.resets += 1;
                    // The socket has zero linger, so the server sees a reset.
                    self.remove(number);
                    stack.release(now, id);
                }
                Event::Connected | Event::Finished | Event::SoftError => {}
            }
        }
    }

    /// Serves a connection in this round, or in the next one if this round has begun.
    fn go_on(&mut self, number: u64) {
        if let Some(relayed) = self.relayed.get_mut(&number)
            && !std::mem::replace(&mut relayed.queued, true)
        {
            self.again.push(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Relayed> {
        self.resetting.remove(&number);
        let relayed = self.relayed.remove(&number)?;
        self.numbers.remove(&relayed.id);
        self.beat.bytes_up += relayed.up.carried();
        self.beat.bytes_down += relayed.down.carried();
        Some(relayed)
    }

    /// Resets a connection at both ends.
    fn reset(&mut self, now: Instant, stack: &mut Stack, number: u64) {
        if let Some(relayed) = self.remove(number) {
            self.beat.resets += 1;
            stack.abort(now, relayed.id);
        }
    }

    /// Moves the bytes of one connection in both directions, and sets what its socket waits for.
    fn pump(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        sockets: &Sockets<'_>,
        number: u64,
    ) -> Result<(), Error> {
        let Some(relayed) = self.relayed.get_mut(&number) else { return Ok(()) };
        if relayed.server.is_connecting() {
            let connecting = WaitCondition::Room;
            sockets.change(relayed.server.as_fd(), number, relayed.watched, connecting)?;
            relayed.watched = connecting;
            return Ok(());
        }
        let id = relayed.id;
        let held = || stack.connection(id).map_or(0, |connection| connection.snapshot().queued);
        let may_read = self.pressure.level.is_none() || self.pressure.admits(held());
        let mut client = Client { stack: &mut *stack, id, now, ended: relayed.client_ended };
        let Relayed { server, up, down, .. } = relayed;
        let up_now = up.pump(&mut client, server, &mut self.scratch, BURST, true);
        let down_now = down.pump(server, &mut client, &mut self.scratch, BURST, may_read);
        relayed.held_back = !may_read;
        match (up_now, down_now) {
            (Progress::Done, Progress::Done) => {
                if let Some(relayed) = self.remove(number) {
                    relayed.server.close();
                    stack.release(now, id);
                }
                return Ok(());
            }
            // The client's connection is gone, or the server takes nothing and has nothing more to say.
            (Progress::SourceReset, _) | (_, Progress::SinkReset) | (Progress::SinkReset, Progress::Done) => {
                self.reset(now, stack, number);
                return Ok(());
            }
            (_, Progress::SourceReset) => {
                relayed.reset_by.get_or_insert(now + LAST_BYTES);
                self.resetting.insert(number);
            }
            _ => {}
        }
        // A write that the stack has cut short although it has room gets no event.
        let has_room = || stack.connection(id).is_some_and(|connection| !connection.is_full());
        let goes_on = up_now == Progress::GoesOn
            || down_now == Progress::GoesOn
            || (down_now == Progress::WaitsForRoom && may_read && has_room());
        let data = down_now == Progress::WaitsForData;
        let room = up_now == Progress::WaitsForRoom;
        let wanted = match (data, room) {
            (false, false) => WaitCondition::Nothing,
            (true, false) => WaitCondition::Data,
            (false, true) => WaitCondition::Room,
            (true, true) => WaitCondition::DataAndRoom,
        };
        sockets.change(relayed.server.as_fd(), number, relayed.watched, wanted)?;
        relayed.watched = wanted;
        if goes_on {
            self.go_on(number);
        }
        Ok(())
    }

    /// Handles the sockets that are ready.
    fn ready(&mut self, now: Instant, stack: &mut Stack, sockets: &Sockets<'_>) -> Result<(), Error> {
        for number in sockets.ready() {
            match number {
                CONTROL => self.listen_to_keeper(now, stack, sockets)?,
                PROBE => {
                    if let Some(mut probe) = self.probe.take() {
                        let accepted = probe.server.finish_connecting().is_ok();
                        self.end_probe(now, probe, accepted);
                    }
                }
                number => {
                    let Some(relayed) = self.relayed.get_mut(&number) else { continue };
                    if relayed.server.is_connecting() {
                        if relayed.server.finish_connecting().is_err() {
                            self.unreachable();
                            self.reset(now, stack, number);
                            continue;
                        }
                        self.health.succeeded(now);
                    }
                    self.go_on(number);
                }
            }
        }
        Ok(())
    }

    /// Follows the orders of the keeper, and resets all connections if it has ended.
    fn listen_to_keeper(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        sockets: &Sockets<'_>,
    ) -> Result<(), Error> {
        let mut said = [0; 256];
        let heard = self.control.read(&mut said);
        let wait = match heard {
            Err(error) if is_temporary(&error) => return Ok(()),
            Ok(len @ 1..) => {
                let mut ends = false;
                for order in Order::read(&said[..len]) {
                    match order {
                        Order::Mtu(mtu) => stack.set_mtu(now, self.settings.listen, mtu.into()),
                        Order::End => ends = true,
                    }
                }
                if !ends {
                    return Ok(());
                }
                FAREWELL
            }
            _ => {
                // The keeper is dead, and the table goes with it, so the resets of the stack may be lost.
                let packets = self.relayed.values().filter_map(|relayed| {
                    let to = stack.tuple(relayed.id)?.remote.ip();
                    Some((to, stack.probe_packet(now + PROBE_AHEAD, relayed.id)?.as_bytes().to_vec()))
                });
                let packets: Vec<_> = packets.collect();
                // Nobody learns which probes are lost, so each is sent twice.
                let rounds = [&packets, &packets].into_iter().flat_map(|round| round.chunks(probes::AT_ONCE));
                self.last_probes = rounds.map(<[_]>::to_vec).collect();
                TABLE_GONE
            }
        };
        self.ends_at = Some(now + wait);
        let numbers: Vec<u64> = self.relayed.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.reset(now, stack, number));
        // A reset would keep the client from trying again, and the kernel's listener answers it soon.
        stack.set_admission(now, self.settings.listen, Admission::Held);
        // The end of the socket would be reported again in every round.
        sockets.change(self.control.as_fd(), CONTROL, WaitCondition::Data, WaitCondition::Nothing)
    }

    /// Sends the last probes, and ends the worker after them.
    fn end(&mut self, now: Instant) {
        match (&self.raw, self.last_probes.pop_front()) {
            (Some(raw), Some(probes)) => {
                probes.iter().for_each(|(to, packet)| probes::send(raw, *to, packet));
                self.ends_at = Some(now + BEAT);
            }
            _ => self.stop.stop(),
        }
    }

    fn end_probe(&mut self, now: Instant, probe: Probe, accepted: bool) {
        self.health.probe_ended(now, accepted);
        if !accepted {
            return;
        }
        let mut server = probe.server;
        if self.settings.client_address == ClientAddress::ProxyV2 {
            // Without a header, the server would report a broken connection.
            server.write(&proxy::local());
        }
        server.close();
    }

    /// Starts and ends probes, and applies the state of the server to new connections.
    fn examine_server(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        sockets: &Sockets<'_>,
    ) -> Result<(), Error> {
        if self.health.probe_is_late(now) {
            self.probe = None;
            self.health.probe_ended(now, false);
        }
        let listen = self.settings.listen;
        if self.health.wants_probe(now, !self.started || stack.held_syns(listen) > 0) {
            self.started = true;
            self.health.probe_started(now);
            match Server::open(&self.settings.upstream, &mut self.sources, None) {
                Err(_) => self.health.probe_ended(now, false),
                Ok(server) if server.is_connecting() => {
                    sockets.change(server.as_fd(), PROBE, WaitCondition::Nothing, WaitCondition::Room)?;
                    self.probe = Some(Probe { server });
                }
                Ok(server) => self.end_probe(now, Probe { server }, true),
            }
        }
        stack.set_admission(now, listen, self.health.state(now).admission());
        Ok(())
    }

    /// Resets the connections whose server has sent a reset, once the client has acknowledged all bytes.
    fn finish_resets(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        let mut next = Instant::FAR_FUTURE;
        let mut due = Vec::new();
        for number in &self.resetting {
            let Some(relayed) = self.relayed.get(number) else { continue };
            let by = relayed.reset_by.unwrap_or(now);
            let delivered = stack
                .connection(relayed.id)
                .is_none_or(|connection| connection.acknowledged() >= relayed.down.carried());
            if delivered || by <= now {
                due.push(*number);
            } else {
                next = next.min(by);
            }
        }
        due.into_iter().for_each(|number| self.reset(now, stack, number));
        next
    }

    /// Samples all connections, and reports to the keeper.
    fn report(&mut self, now: Instant, stack: &mut Stack) {
        let mut held = Vec::with_capacity(self.relayed.len());
        let mut limits = [Duration::ZERO; SendLimit::ALL.len()];
        let (mut up, mut down) = (0, 0);
        for (sampled, relayed) in self.relayed.values_mut().enumerate() {
            up += relayed.up.carried();
            down += relayed.down.carried();
            let moved = relayed.up.carried() + relayed.down.carried();
            if moved == relayed.reported {
                // A connection that waits for its next request needs no buffer.
                stack.free_idle_memory(relayed.id);
                relayed.up.free_idle_memory();
                relayed.down.free_idle_memory();
            }
            relayed.reported = moved;
            let Some(connection) = stack.connection(relayed.id) else { continue };
            let pending = relayed.up.pending() + relayed.down.pending();
            held.push(connection.snapshot().queued + connection.readable() + pending as u64);
            if sampled < SAMPLED {
                let spent = connection.limit_times(now);
                limits.iter_mut().zip(spent).for_each(|(total, spent)| *total += spent);
            }
        }
        self.pressure = Pressure::of(Bytes::new(self.settings.memory), &mut held);
        // Connections that were held back try again: the level may have risen.
        for (number, relayed) in &mut self.relayed {
            if relayed.held_back && !std::mem::replace(&mut relayed.queued, true) {
                self.again.push(*number);
            }
        }
        // Between 80 % and 90 % of the connections, the state is kept, so that the steering does not flap.
        let share = if self.beat.full { 8 } else { 9 };
        self.beat.full =
            self.pressure.level.is_some() || 10 * stack.connections() >= share * self.settings.connections;
        if self.beats.is_multiple_of(OBSERVATION_BEATS) {
            self.beat.paths = stack.observe_senders(now).map(PathReport::from);
        }
        let counters = stack.counters();
        let beat = Beat {
            connections: self.relayed.len(),
            health: self.health.state(now).name().into(),
            bytes_up: self.beat.bytes_up + up,
            bytes_down: self.beat.bytes_down + down,
            held: self.pressure.held.get(),
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            syns: counters.syns_in,
            refused: counters.refused,
            too_big: counters.complaints,
            limits: SendLimit::ALL
                .into_iter()
                .zip(limits)
                .map(|(limit, spent)| (limit.name().to_owned(), spent.as_secs_f64()))
                .collect(),
            ..self.beat.clone()
        };
        self.beats += 1;
        if self.relayed.len() <= SAMPLED || self.beats.is_multiple_of(PROBE_BEATS) {
            let probes =
                self.relayed.values().filter_map(|relayed| stack.probe_packet(now + PROBE_AHEAD, relayed.id));
            let _ = self.probes.write(probes.map(|headers| headers.as_bytes().to_vec()));
        }
        if let Ok(mut line) = serde_json::to_vec(&beat) {
            line.push(b'\n');
            // A keeper that does not read misses a report. It ignores a line that was cut short.
            let _ = self.control.write_all(&line);
        }
    }
}

impl Service for Worker {
    fn attend(&mut self, now: Instant, stack: &mut Stack, sockets: &Sockets<'_>) -> Result<Instant, Error> {
        if !self.started {
            let (before, after) = (WaitCondition::Nothing, WaitCondition::Data);
            sockets.change(self.control.as_fd(), CONTROL, before, after)?;
        }
        self.ready(now, stack, sockets)?;
        self.accept(now, stack);
        self.events(now, stack);
        while let Some(message) = stack.poll_unclaimed() {
            // A packet to an own address passes the loopback device, and arrives at the kernel.
            if let Some(raw) = &self.raw {
                probes::send(raw, self.settings.listen.ip(), &message);
            }
        }
        // A connection that can go on is served again in the next round, after the packets.
        std::mem::swap(&mut self.again, &mut self.serving);
        for place in 0..self.serving.len() {
            let number = self.serving[place];
            if let Some(relayed) = self.relayed.get_mut(&number) {
                relayed.queued = false;
                self.pump(now, stack, sockets, number)?;
            }
        }
        self.serving.clear();
        let resets = self.finish_resets(now, stack);
        if self.ends_at.is_none() {
            self.examine_server(now, stack, sockets)?;
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.end(now);
        }
        if now >= self.next_beat {
            self.report(now, stack);
            self.next_beat = now + BEAT;
        }
        if !self.again.is_empty() {
            return Ok(now);
        }
        Ok(self.next_beat.min(resets).min(self.health.next(now)))
    }
}

#[cfg(test)]
mod tests;
