//! The keeper creates the device and the table, starts the worker, and steers connections to the worker as long as the
//! worker sends reports. No client's packet passes through the keeper.
//!
//! ```text
//!   start ─► worker reports ─► learning ─► steady ◄──── a report ─────┐
//!              ▲                             │ 1 s without a report   │
//!              │ back-off                    └───────────► aside ─────┤
//!              └──────────── table removed ◄── 5 s without a report, or the worker has ended
//! ```
//!
//! The phase `aside` also applies while the worker reports that it has reached a limit, or does not read a flood of
//! SYNs in time. While the kernel may accept connections, the keeper finds them among the kernel's sockets.
//!
//! The keeper counts silence in its own ticks, so a pause of the whole machine, which also stops the keeper, does not
//! count against the worker.

mod running;
mod speed;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fullpipe_linux::device::{self, Drops};
use fullpipe_linux::namespace::this_namespace;
use fullpipe_linux::return_path::ReturnPath;
use fullpipe_linux::routing::{Routing, RoutingChanges};
use fullpipe_linux::sock_diag::SockDiag;
use fullpipe_linux::{Clock, Datapath, Error, Kind, Stop, Tun};
use fullpipe_units::{Duration, Instant, Rate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use socket2::Socket;

use crate::config::{ClientAddress, Settings, Upstream};
use crate::handover::Order;
use crate::nft::Nft;
use crate::overload::Overload;
use crate::preflight::{self, Permissions, Plan};
use crate::probes::{self, Probes};
use crate::routes::{NoWay, WayOut, way_out};
use crate::status::{self, FOLDER, Rates, Status, StatusFile};
use crate::steering::{LEFT_SECONDS, Phase, Steering};
use crate::users::user;
use crate::worker::{BEAT, Beat, PathLimits, WorkerSettings};
use crate::{forwarding, handover, ports, stranded, system};

use running::{Heard, RunningWorker};

/// Number of ticks without a report after which new connections are left to the kernel (1 s).
const SILENT: u32 = 10;
/// Number of ticks without a report after which the worker is killed (5 s).
const DEAD: u32 = 50;
/// Pause between a routing change and the examination of the routing, because changes come in groups.
const ROUTING_PAUSE: Duration = Duration::from_millis(20);
/// Longest time between two examinations of the routing. If an update of the steering has failed, the next examination
/// tries again.
const ROUTING_INTERVAL: Duration = Duration::from_millis(500);
/// Number of ticks between two examinations of the kernel's connections.
const SOCKET_TICKS: u64 = 10;
/// Number of failures within [`FAILURE_WINDOW`] after which the worker is not restarted.
const MOST_FAILURES: usize = 5;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Pause before the first restart; each further failure doubles it, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time that the worker has to reset its connections before it is killed.
const FAREWELL: Duration = Duration::from_secs(1);
/// Transmit queue length of the TUN device, in packets.
const TUN_QUEUE: u32 = 4_096;

/// Command that calls [`work`](crate::worker::work).
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// Path of the program. The worker's user must be permitted to execute it.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
}

/// Runs the service until `stop` is set. `note` receives events as lines of text.
///
/// # Errors
/// Returns an error if the preflight check has objections, if the process is not root, or if the worker fails
/// repeatedly. In every case, the device and the table are removed.
pub fn run(
    settings: &Settings,
    permissions: Permissions,
    program: &WorkerProgram,
    note: &dyn Fn(&str),
    stop: &Stop,
) -> Result<(), Error> {
    if !geteuid().is_root() {
        return Err(Error {
            kind: Kind::Rights,
            message: "steering requires root".into(),
            hint: "--check and --dry-run do not require root".into(),
        });
    }
    let starting = status::lock_starts()?;
    status::remove_stale();
    let kept: Vec<u32> = status::tables_here()?.iter().map(|table| number_of(table)).collect();
    ReturnPath::remove_all_but(&kept)?;
    let report = preflight::examine(settings, permissions)?;
    report.notes.iter().for_each(|line| note(&format!("note: {line}")));
    let plan = report.into_plan()?;
    let mut keeper = Keeper::new(settings, permissions, plan, program, note)?;
    keeper.write_status();
    drop(starting);
    let result = keeper.keep(stop);
    keeper.end();
    result
}

struct Keeper<'a> {
    settings: &'a Settings,
    permissions: Permissions,
    program: &'a WorkerProgram,
    note: &'a dyn Fn(&str),
    user: (u32, u32),
    clock: Clock,
    tun: Tun,
    steering: Steering,
    way: WayOut,
    /// Maximum number of connections: the configured number, unless there are fewer local ports.
    connections: usize,
    /// Maximum rate of all connections together; `None` if the speed of the device is not known.
    limit: Option<Rate>,
    /// Return path for the server's answers to sockets with clients' addresses, if the server sees these addresses.
    return_path: Option<ReturnPath>,
    nft: Nft,
    /// Phase of the table; `None` if there is no table.
    phase: Option<Phase>,
    worker: Option<RunningWorker>,
    /// Clients whose connections are handled by the kernel.
    theirs: Vec<SocketAddr>,
    /// Tick until which the keeper looks for new connections of the kernel.
    watched_until: u64,
    /// SYN counts of the worker at the last two examinations of the kernel's connections.
    syns: [u64; 2],
    changes: RoutingChanges,
    /// Time of the next examination of the routing.
    next_examination: Instant,
    /// Whether a table has already been installed.
    has_steered: bool,
    /// Reason why there is no path to the clients at the moment; `None` if there is one.
    no_way: Option<NoWay>,
    /// Whether the server has accepted or refused the worker's most recent connection; `None` before the first one.
    server_answers: Option<bool>,
    starts: u64,
    /// Times of the latest failures of the worker.
    failures: VecDeque<Instant>,
    next_start: Instant,
    /// Drop counters of the TUN device and of the devices to the clients, at the start of the service and when they
    /// were last read.
    drops: [Drops; 2],
    overload: Overload,
    probes: Probes,
    /// Raw socket that sends the probes.
    raw: Socket,
    file: StatusFile,
    beat: Beat,
    /// Report from which the rates were last computed, and the time of this computation.
    rated: (Beat, Instant),
    rates: Rates,
    /// Longest delay of the worker's loop since the rates were last computed, in seconds.
    delay: f64,
}

impl<'a> Keeper<'a> {
    fn new(
        settings: &'a Settings,
        permissions: Permissions,
        plan: Plan,
        program: &'a WorkerProgram,
        note: &'a dyn Fn(&str),
    ) -> Result<Self, Error> {
        let Plan { steering, way } = plan;
        let clock = Clock::starting_in(Duration::ZERO);
        // Each connection needs a file descriptor. If the limit cannot be raised, the worker refuses connections
        // earlier.
        let connections = ports::most_connections(settings)
            .map_or(settings.connections, |most| most.min(settings.connections));
        let files = connections as u64 + 1_000;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: Some(files) });
        let user = user(settings.user.as_deref())?;
        let tun = Tun::without_address(&steering.tun, Datapath::Offload, way.mtu, TUN_QUEUE)?;
        if way.is_routed() {
            forwarding::permit(&steering.tun, settings.listen.is_ipv6())?;
        }
        let drops = Drops::read(&steering.tun, &way.outgoing())?;
        let nft = Nft::start(clock)?;
        let file = StatusFile::new(Path::new(FOLDER), &steering.table)?;
        let probes = Probes::new(Path::new(FOLDER), settings.listen, user, connections, clock.now())?;
        let raw = probes::raw_socket(settings.listen)?;
        let changes = RoutingChanges::new()?;
        let return_path = match (settings.client_address, &settings.upstream) {
            (ClientAddress::Transparent, Upstream::Tcp(server)) => {
                Some(ReturnPath::new(*server, number_of(&steering.table))?)
            }
            _ => None,
        };
        let limit = speed::limit(settings, &way).unwrap_or_default();
        Ok(Self {
            connections,
            limit,
            settings,
            permissions,
            program,
            note,
            user,
            clock,
            tun,
            steering,
            way,
            return_path,
            nft,
            phase: None,
            worker: None,
            theirs: Vec::new(),
            watched_until: 0,
            syns: [0; 2],
            changes,
            next_examination: clock.now() + ROUTING_INTERVAL,
            has_steered: false,
            no_way: None,
            server_answers: None,
            starts: 0,
            failures: VecDeque::new(),
            next_start: Instant::ZERO,
            drops: [drops; 2],
            overload: Overload::new(drops.unread),
            probes,
            raw,
            file,
            beat: Beat::default(),
            rated: (Beat::default(), clock.now()),
            rates: Rates::default(),
            delay: 0.0,
        })
    }

    fn say(&self, line: &str) {
        (self.note)(line);
    }

    /// Keeps the service running until `stop` is set.
    fn keep(&mut self, stop: &Stop) -> Result<(), Error> {
        let (mut ticks, mut next_tick) = (0u64, self.clock.now() + BEAT);
        loop {
            if self.worker.is_none() && self.clock.now() >= self.next_start {
                self.start_worker()?;
            }
            if self.wait(stop, next_tick.min(self.next_examination))? {
                return Ok(());
            }
            if !self.nft.is_alive() {
                self.nft_ended()?;
            }
            self.hear().or_else(|error| self.outlive_nft(error))?;
            let now = self.clock.now();
            self.probes.reset(now, &self.raw);
            if self.changes.take() {
                self.next_examination = self.next_examination.min(now + ROUTING_PAUSE);
            }
            if now >= self.next_examination {
                self.next_examination = now + ROUTING_INTERVAL;
                self.examine_routing().or_else(|error| self.outlive_nft(error))?;
            }
            if now >= next_tick {
                // A late tick counts once, however many intervals have passed.
                next_tick = now + BEAT;
                ticks += 1;
                self.tick(ticks).or_else(|error| self.outlive_nft(error))?;
            }
        }
    }

    /// Waits for a report, a routing change, or `stop`, but not longer than `until`. Returns whether `stop` is set.
    fn wait(&self, stop: &Stop, until: Instant) -> Result<bool, Error> {
        let left = until.saturating_since(self.clock.now());
        let timeout = Timespec { tv_sec: 0, tv_nsec: (left.as_nanos() % 1_000_000_000) as i64 };
        let watched = [stop.as_fd(), self.changes.as_fd()];
        let mut fds: Vec<_> = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into();
        // `poll` always reports when nft has ended, even if no events are requested.
        fds.push(PollFd::from_borrowed_fd(self.nft.as_fd(), PollFlags::empty()));
        fds.extend(self.probes.answers().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if let Some(worker) = &self.worker {
            fds.push(PollFd::from_borrowed_fd(worker.control.as_fd(), PollFlags::IN));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => Ok(fds[0].revents().contains(PollFlags::IN)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(system("wait for the worker", error)),
        }
    }

    fn start_worker(&mut self) -> Result<(), Error> {
        let failed = |error: io::Error| {
            let hint = "give all users permission to execute the program fullpipe";
            Error { hint: hint.into(), ..system("start the worker", error) }
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let tun = self.tun.as_fd().try_clone_to_owned().map_err(failed)?;
        let (user, group) = self.user;
        let mut command = Command::new(&self.program.program);
        // A process loses all capabilities if it changes its user at the start. If its sockets use clients' addresses,
        // the worker therefore changes its user itself and keeps one capability.
        let changes_user = self.return_path.is_some();
        if !changes_user {
            command.uid(user).gid(group);
        }
        let child = command
            .args(&self.program.arguments)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(tun))
            // In its own process group, the worker does not receive Ctrl-C; the keeper ends it in an orderly way.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let Settings { listen, upstream, client_address, cc, memory, paths, senders, .. } = self.settings;
        // A congestion control without a launch cannot use a path memory.
        let remembers = paths.remember && (cc.launch().is_some() || senders.have_profiles());
        let settings = WorkerSettings {
            listen: *listen,
            upstream: upstream.clone(),
            client_address: *client_address,
            cc: cc.name().into(),
            mtu: self.way.mtu,
            memory: memory.get(),
            connections: self.connections,
            table: self.probes.path().to_owned(),
            identity: changes_user.then_some(self.user),
            limit: self.limit.map(Rate::as_bps),
            paths: remembers.then(|| PathLimits::from(paths.limits)),
            senders: senders.clone(),
        };
        let line = serde_json::to_vec(&settings).map_err(|error| failed(error.into()))?;
        let sent = handover::send(&ours, &line, self.raw.as_fd()).and_then(|()| ours.set_nonblocking(true));
        self.starts += 1;
        self.server_answers = None;
        self.worker = Some(RunningWorker { child, control: ours, line: Vec::new(), silent: 0 });
        self.write_status();
        // Sending fails if the worker ended before it read the settings.
        if sent.is_err() { self.worker_ended() } else { Ok(()) }
    }

    /// Handles the reports that have arrived.
    fn hear(&mut self) -> Result<(), Error> {
        loop {
            let heard = self.worker.as_mut().map_or(Heard::Nothing, RunningWorker::read);
            match heard {
                Heard::Nothing => return Ok(()),
                Heard::End => return self.worker_ended(),
                Heard::Beat(beat) => {
                    let before = std::mem::replace(&mut self.beat, *beat);
                    self.note_kill_switch(&before);
                    self.delay = self.delay.max(self.beat.loop_delay);
                    // The counters of a new worker start at zero.
                    let since = |now: u64, before: u64| now.saturating_sub(before);
                    self.overload.heard(
                        since(self.beat.syns, before.syns),
                        since(self.beat.packets_in, before.packets_in),
                    );
                    if let Some(worker) = &mut self.worker {
                        worker.silent = 0;
                    }
                    self.note_health();
                    let why_aside = self.why_aside();
                    match (self.phase, why_aside) {
                        // While the server is down, no client is taken from the kernel.
                        (None, _) if self.server_answers == Some(true) && self.no_way.is_none() => {
                            self.steer()?;
                        }
                        (Some(Phase::Steady), Some(why)) => self.set_aside(why)?,
                        (Some(Phase::Aside), None) => self.resume()?,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Returns the reason why new connections are left to the kernel at the moment; `None` if they are not.
    fn why_aside(&self) -> Option<&'static str> {
        if self.beat.full {
            return Some("the limit on connections or memory has been reached");
        }
        // If the kernel has no listener, it would refuse the clients.
        let behind = !self.permissions.no_fallback && self.overload.lasts(self.clock.now());
        behind.then_some("the worker does not keep up with its packets, most of which are SYNs")
    }

    /// Reports that the kill switch of the path memory was activated after the report `before`.
    fn note_kill_switch(&self, before: &Beat) {
        let reason = |beat: &Beat| beat.paths.as_ref().and_then(|paths| paths.stopped.clone());
        if let (None, Some(reason)) = (reason(before), reason(&self.beat)) {
            self.say(&format!("new connections start with bbr1 and ten segments, because {reason}"));
        }
    }

    /// Records whether the server answers, and reports a change. The state is unknown while no client connects; the
    /// last known state then stays valid.
    fn note_health(&mut self) {
        let answers = match self.beat.health.as_str() {
            "up" => true,
            "down" => false,
            _ => return,
        };
        let before = self.server_answers.replace(answers);
        let Settings { listen, upstream, .. } = self.settings;
        match (before, answers) {
            (Some(false), true) => self.say(&format!("the server at {upstream} answers again")),
            (None | Some(true), false) if self.phase.is_none() => {
                self.say(&format!("the server at {upstream} does not answer; the kernel serves {listen}"));
            }
            (None | Some(true), false) => {
                self.say(&format!("the server at {upstream} does not answer; new connections are refused"));
            }
            _ => {}
        }
    }

    /// Steers new connections to the worker, while existing connections of the kernel stay with it.
    fn steer(&mut self) -> Result<(), Error> {
        let before = self.kernels_connections()?;
        if let Err(error) = self.nft.apply(&self.steering.install(Phase::Learning, &before)) {
            // A device may have disappeared. fullpipe tries again at the next examination of the routing.
            if !self.has_steered || !self.nft.is_alive() {
                return Err(error);
            }
            self.no_way = Some(NoWay::Absent(error.message));
            return Ok(());
        }
        self.has_steered = true;
        self.phase = Some(Phase::Learning);
        self.leave_to_kernel()?;
        let left = self.theirs.len();
        self.say(&format!(
            "new connections to {} are accelerated; {left} connections stay with the kernel",
            self.settings.listen
        ));
        self.write_status();
        Ok(())
    }

    /// Steers all packets of the port to the worker, except those of the kernel's connections. The list of the kernel's
    /// connections is complete only if the kernel accepts no new connections at the time of this call.
    fn leave_to_kernel(&mut self) -> Result<(), Error> {
        self.theirs = self.kernels_connections()?;
        self.nft.apply(&self.steering.switch(Phase::Steady, Some(self.theirs.as_slice())))?;
        self.phase = Some(Phase::Steady);
        Ok(())
    }

    /// Leaves new connections to the kernel, while the worker keeps its connections.
    fn set_aside(&mut self, why: &str) -> Result<(), Error> {
        self.nft.apply(&self.steering.switch(Phase::Aside, None))?;
        self.phase = Some(Phase::Aside);
        self.say(&format!("{why}; the kernel serves new connections"));
        Ok(())
    }

    /// Steers new connections to the worker again.
    fn resume(&mut self) -> Result<(), Error> {
        // The first transaction keeps the set, which contains connections that the kernel has accepted in the meantime,
        // and clients that have only sent a SYN.
        self.nft.apply(&self.steering.switch(Phase::Steady, None))?;
        self.leave_to_kernel()?;
        self.say("new connections are accelerated again");
        Ok(())
    }

    /// Handles an error of nft: restarts nft if it has ended, and otherwise returns the error.
    fn outlive_nft(&mut self, error: Error) -> Result<(), Error> {
        if self.nft.is_alive() { Err(error) } else { self.nft_ended() }
    }

    fn nft_ended(&mut self) -> Result<(), Error> {
        self.nft = Nft::start(self.clock)?;
        if self.phase.take().is_none() {
            return Ok(());
        }
        // The kernel has removed the table together with its owner, so packets of live connections have reached the
        // kernel.
        self.say("nft has ended, so the worker is restarted");
        self.worker_ended()
    }

    fn tick(&mut self, ticks: u64) -> Result<(), Error> {
        let now = self.clock.now();
        self.probes.send(now, &self.raw);
        if let Ok(unread) = Drops::unread(&self.steering.tun) {
            self.overload.observe(now, unread);
        }
        if let Some(worker) = &mut self.worker {
            worker.silent += 1;
            let silent = worker.silent;
            if silent == SILENT && self.phase == Some(Phase::Steady) {
                self.set_aside("the worker does not respond")?;
            } else if silent >= DEAD {
                self.say("the worker has not responded for 5 s and is restarted");
                return self.worker_ended();
            }
        }
        if ticks.is_multiple_of(SOCKET_TICKS) {
            self.follow_sockets(ticks)?;
            self.follow_speed();
            // The counters of a device that has just disappeared cannot be read.
            if let Ok(drops) = Drops::read(&self.steering.tun, &self.way.outgoing()) {
                self.drops[1] = drops;
            }
            let (before, since) = std::mem::replace(&mut self.rated, (self.beat.clone(), now));
            let delay = std::mem::take(&mut self.delay);
            self.rates = Rates::between(&before, &self.beat, now.saturating_since(since), delay);
            self.write_status();
        }
        Ok(())
    }

    /// Returns all packets to the kernel, and kills the worker if it is still running.
    fn end_worker(&mut self) -> Result<(), Error> {
        let steered = self.phase.take().is_some();
        self.theirs.clear();
        if steered {
            self.nft.kill();
        }
        let ended = self.worker.take().map(|mut worker| {
            let _ = worker.child.kill();
            worker.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
        });
        stranded::answer_all(&self.tun, self.settings.listen, &self.raw);
        if steered {
            self.nft = Nft::start(self.clock)?;
        }
        if let Some(ended) = ended {
            // The clients' answers will reach the kernel, because the table is gone.
            let probes = self.probes.collect(self.clock.now())?;
            self.say(&format!("the worker has ended: {ended}; fullpipe probes {probes} clients"));
        }
        Ok(())
    }

    /// Stops the worker after a failure, and schedules a restart.
    fn worker_ended(&mut self) -> Result<(), Error> {
        self.end_worker()?;
        let now = self.clock.now();
        self.failures.push_back(now);
        self.failures.retain(|at| now.saturating_since(*at) <= FAILURE_WINDOW);
        if self.failures.len() >= MOST_FAILURES {
            return Err(Error {
                kind: Kind::System,
                message: format!("the worker has ended {MOST_FAILURES} times within a minute"),
                hint: "the kernel serves all connections; see the messages above".into(),
            });
        }
        self.next_start = now + pause(self.failures.len());
        Ok(())
    }

    /// Handles the loss of the path to the clients. If only devices or routes are missing, the connections wait until
    /// these are back, as the kernel's connections do.
    fn lose_way(&mut self, no_way: NoWay) -> Result<(), Error> {
        if self.no_way.as_ref() == Some(&no_way) {
            return Ok(());
        }
        let unsupported = matches!(no_way, NoWay::Unsupported(_));
        self.no_way = Some(no_way.clone());
        self.say(&format!("there is no route to the clients: {}", no_way.reasons().join("; ")));
        // The kernel now receives the packets of live connections, and resets these connections.
        if unsupported { self.end_worker() } else { Ok(()) }
    }

    /// Adapts the steering to changes of devices and routes.
    fn examine_routing(&mut self) -> Result<(), Error> {
        let routing = Routing::read()?;
        if let Some(path) = self.return_path.as_ref().filter(|path| !path.is_complete(&routing)) {
            path.complete()?;
            self.say("the policy rule for packets from the server was missing and has been restored");
        }
        let way = match way_out(&routing, self.settings.listen.ip(), &self.steering.tun) {
            Ok(way) => way,
            Err(no_way) => return self.lose_way(no_way),
        };
        if way.is_routed() && !self.way.is_routed() {
            let tun = &self.steering.tun;
            let obstacles = preflight::obstacles_to_forwarding(self.settings, self.permissions, tun)?;
            if !obstacles.is_empty() {
                return self.lose_way(NoWay::Unsupported(obstacles));
            }
            forwarding::permit(tun, self.settings.listen.is_ipv6())?;
        }
        if self.no_way.take().is_some() {
            self.say("there is a route to the clients again");
        }
        if way == self.way {
            return Ok(());
        }
        let steering = preflight::steering(self.settings, &self.steering.tun, &way);
        // A device that was replaced by one of the same name has a different index, and its chains are gone.
        let moved = WayOut { mtu: self.way.mtu, ..way.clone() } != self.way;
        if let Some(phase) = self.phase.filter(|_| moved) {
            let theirs = self.kernels_connections()?;
            if let Err(error) = self.nft.apply(&steering.replace(&self.steering, phase, &theirs)) {
                // A device may have disappeared again; fullpipe tries again at the next examination.
                self.say(&format!("cannot update the steering after a route change: {error}"));
                return Ok(());
            }
            self.theirs = theirs;
            self.say("the steering was updated after a change of devices or routes");
        }
        let mtu = (way.mtu != self.way.mtu).then_some(way.mtu);
        (self.steering, self.way) = (steering, way);
        self.follow_speed();
        if let Some(mtu) = mtu { self.follow_mtu(mtu) } else { Ok(()) }
    }

    /// Passes a changed MTU of the path to the clients to the worker and its device.
    fn follow_mtu(&mut self, mtu: u32) -> Result<(), Error> {
        device::set_mtu(&self.steering.tun, mtu)?;
        self.order(Order::Mtu(mtu));
        self.say(&format!("the MTU of the path to the clients is now {mtu} bytes"));
        Ok(())
    }

    /// Gives an order to the worker.
    fn order(&mut self, order: Order) {
        if let Some(worker) = &mut self.worker {
            // If the order cannot be written, the worker is silent or dead, and the next worker gets the new value when
            // it starts.
            let _ = worker.control.write_all(order.to_string().as_bytes());
        }
    }

    /// Updates the set of the kernel's connections: removes those that have ended, and adds new ones.
    fn follow_sockets(&mut self, ticks: u64) -> Result<(), Error> {
        let Some(phase) = self.phase.filter(|phase| *phase != Phase::Learning) else { return Ok(()) };
        // SYNs are left to the kernel only after the worker has received a whole burst of SYNs. The count covers two
        // intervals, so that it includes a whole burst even if an examination falls into the burst.
        let received = self.beat.syns.saturating_sub(self.syns[0]);
        self.syns = [self.syns[1], self.beat.syns];
        if phase == Phase::Aside || 2 * received >= self.steering.syn_burst() as u64 {
            self.watched_until = ticks + u64::from(LEFT_SECONDS) * SOCKET_TICKS;
        }
        if self.theirs.is_empty() && ticks > self.watched_until {
            return Ok(());
        }
        let open = self.kernels_connections()?;
        let gone: Vec<SocketAddr> =
            self.theirs.iter().filter(|client| open.binary_search(client).is_err()).copied().collect();
        let new: Vec<SocketAddr> =
            open.iter().filter(|client| self.theirs.binary_search(client).is_err()).copied().collect();
        let Some(transaction) = self.steering.update(&gone, &new) else { return Ok(()) };
        if self.nft.apply(&transaction).is_err() {
            // The kernel's set differs from the keeper's list, so the table is replaced.
            self.nft.apply(&self.steering.replace(&self.steering, phase, &open))?;
        }
        self.theirs = open;
        Ok(())
    }

    /// Returns the clients whose connections to the port are kernel sockets, including half-open connections.
    fn kernels_connections(&self) -> Result<Vec<SocketAddr>, Error> {
        let listen = self.settings.listen;
        let mut clients: Vec<SocketAddr> = SockDiag::open()?
            .at_port(listen.port())?
            .into_iter()
            .filter(|socket| !socket.listens && socket.local.ip() == listen.ip())
            .map(|socket| socket.remote)
            .collect();
        // A client can have a socket in TIME-WAIT and a new connection at the same time.
        clients.sort_unstable();
        clients.dedup();
        Ok(clients)
    }

    fn write_status(&self) {
        let status = Status {
            keeper: std::process::id(),
            namespace: this_namespace(),
            worker: self.worker.as_ref().map(|worker| worker.child.id()),
            listen: self.settings.listen,
            upstream: self.settings.upstream.to_string(),
            table: self.steering.table.clone(),
            phase: Status::phase_name(self.phase),
            steered: None,
            starts: self.starts,
            kernels: self.theirs.len(),
            drops: self.drops[1].since(self.drops[0]).into(),
            limit: self.limit.map(Rate::as_bps),
            rates: self.rates,
            report: self.beat.clone(),
        };
        // Without this file, the service still works, but `status` does not list it.
        let _ = self.file.write(&status);
    }

    /// Ends the worker, which resets its connections, and then removes the table.
    fn end(&mut self) {
        if self.phase == Some(Phase::Steady) {
            let _ = self.nft.apply(&self.steering.switch(Phase::Aside, None));
        }
        if let Some(mut worker) = self.worker.take() {
            // Without this order, the worker would interpret the closed socket as the death of the keeper.
            let _ = worker.control.write_all(Order::End.to_string().as_bytes());
            let _ = worker.control.shutdown(std::net::Shutdown::Write);
            let until = self.clock.now() + FAREWELL;
            while matches!(worker.child.try_wait(), Ok(None)) && self.clock.now() < until {
                self.clock.sleep_until(self.clock.now() + Duration::from_millis(10));
            }
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        if self.phase.take().is_some() {
            // If nft rejects the command, the table disappears when nft ends.
            let _ = self.nft.apply(&self.steering.remove());
            self.say(&format!("the kernel serves new connections to {} again", self.settings.listen));
        }
        while self.probes.are_waiting() {
            self.probes.send(self.clock.now(), &self.raw);
            self.clock.sleep_until(self.clock.now() + BEAT);
        }
    }
}

/// Returns the number in the name of a service's table, for example 3 for `fullpipe_fp3`.
fn number_of(table: &str) -> u32 {
    table.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_default()
}

/// Returns the pause before a restart of the worker after `failures` recent failures.
fn pause(failures: usize) -> Duration {
    let doublings = failures.saturating_sub(1).min(10) as u32;
    Duration::from_nanos(PAUSE.as_nanos() << doublings).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_number_of_its_device() {
        assert_eq!([number_of("fullpipe_fp0"), number_of("fullpipe_fp17")], [0, 17]);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let pauses: Vec<u64> = (1..=8).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }
}
