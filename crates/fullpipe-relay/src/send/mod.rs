//! `copy` to a relay: opens the connections, announces the files, and sends their blocks.
//!
//! ```text
//!   Walk ─► Driver ── requests ──► connection 0 ─┐                      ┌─► replies, lost connections ──► Driver
//!             │                                  ├─► TLS, TCP ─► relay ─┘
//!             └─► Dispatcher ◄────── next ── connections 0 to N-1
//! ```

pub(crate) mod connect;
mod connection;
mod deliver;
mod driver;
mod links;
mod outgoing;
mod pacing;
mod pipe;
mod spool;
mod tasks;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullpipe_units::{Bytes, Rate};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

pub use self::connect::Reached;
use self::connect::{Opened, Relay};
use self::connection::{SharedSampler, receive_first, receive_joined, sample};
pub(crate) use self::deliver::{Delivery, Joined, deliver};
use self::driver::Driver;
use self::links::Links;
pub use self::links::{Connections, Sampler, SocketSample};
pub(crate) use self::pacing::LEAST_LIMIT;
use self::pacing::Pacing;
pub use self::pacing::{Kernel, Pacer, RateLimit};
use self::pipe::Held;
pub use self::pipe::{Pipe, PipeOptions, open_progress};
use self::tasks::{Farewell, Tasks, ended, find};
use crate::attempts::{Attempts, Earlier, FIRST_PAUSE, Failure, until_complete};
use crate::engine::{Budget, Remembered};
use crate::error::Error;
use crate::fetch;
use crate::keys::{Fingerprint, Identity};
use crate::peers::{Peer, Peers};
use crate::report::CopyReport;
use crate::runtime;
use crate::socket::{Direction, SocketOptions, fixed_buffer};
use crate::sources::{Walk, checked};
use crate::ssh::{self, Remote};
use crate::target::End;

/// Hint for a relay that cannot be reached.
pub(crate) const START: &str = "start fullpipe relay serve on that host, and permit the port in the firewall";
/// Hint for a relay that ssh has started and that cannot be reached.
pub(crate) const PERMIT: &str = "permit TCP connections from this host in the firewall of the other host, \
                      or start fullpipe relay serve there on a permitted port, and copy to \
                      relay://HOST:PORT/PATH";
/// Time within which the relay must close the connections after the last file.
const FAREWELL: Duration = Duration::from_secs(5);
/// Memory budget of the process and its sockets, in addition to the bytes of a pipe that are kept.
const BESIDE_A_PIPE: Bytes = Bytes::from_mib(48);
/// Maximum number of files that are found before they are announced. Their sizes tell how many connections are worth
/// opening; each needs about 300 bytes.
const AHEAD: usize = 16_384;
/// Maximum number of events that are handled before the connections are woken.
const EVENTS: usize = 256;

/// Sources of a copy.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Files and folders of this host.
    Files(Vec<PathBuf>),
    /// Files and folders of a relay, or of a host that is reached with ssh. The target is on this host.
    Remote(Vec<End>),
    /// A pipe, whose content becomes one file.
    Pipe(Pipe),
}

/// A connection that the relay has not accepted yet, and its permit for the handshake.
type Joining = (Opened, Option<OwnedSemaphorePermit>);

/// Sources that an attempt announces to the relay.
enum Announced {
    Files(Walk),
    Pipe(Arc<Held>),
}

/// Settings of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Sources of the copy: files and folders of this or another host, or a pipe.
    pub sources: Sources,
    /// Target of the copy: on a relay, on a host that is reached with ssh or, if the sources are remote, on
    /// this host.
    pub target: End,
    /// Number of connections.
    pub connections: Connections,
    /// Key of this host.
    pub identity: Identity,
    /// Fingerprint of the relay's key.
    pub peer: Option<Fingerprint>,
    /// Whether to compare the hashes of files whose size and modification time are the same, and to read
    /// written files back from the disk.
    pub verify: bool,
    /// Highest rate of the payload over all connections, which `pacer` enforces. For a copy from another host, that
    /// host enforces the limit.
    pub limit: Option<RateLimit>,
    /// Maximum memory of this process and of its sockets for a copy of files. [`PipeOptions::memory`] limits
    /// the memory of a pipe.
    pub memory: Option<Bytes>,
    /// Congestion control of the connections, by its name in the kernel.
    pub cc: Option<String>,
    /// Paces the connections on which this host sends, so that they do not send bursts.
    pub pacer: Option<Arc<dyn Pacer>>,
    /// Rate of the slowest link of the path, if it is known. If the copy chooses the number of connections,
    /// it computes how many fill the link.
    pub link: Option<Rate>,
    /// State file with what the last copy to each peer has seen. A copy to another host that chooses the number of
    /// connections starts with the number of the last copy to the same peer. The file is created if it does not exist.
    pub peers: Option<PathBuf>,
    /// Time for which a copy that has lost its relay tries to reconnect.
    pub retry: fullpipe_units::Duration,
}

/// Receives the events of a running copy.
pub trait CopyObserver {
    /// Reports that the other host has accepted the first connection, and what this connection has shown. A copy that
    /// reconnects reports this again.
    fn connected(&self, _reached: &Reached) {}
    /// Reports that `done` of `total` bytes are durable at the relay. The total grows while files are found.
    fn progress(&self, _done: Bytes, _total: Bytes) {}
    /// Reports that the copy now uses `count` connections; `limit` applied for the longest time.
    fn connections(&self, _count: u32, _limit: Option<&str>) {}
    /// Reports that the producer of the pipe may discard its data up to `offset`. The first call states the
    /// offset at which the producer must continue.
    fn accepted(&self, _offset: Bytes) {}
    /// Reports that `held` bytes of the pipe are kept, of at most `memory`.
    fn queue(&self, _held: Bytes, _memory: Bytes) {}
    /// Reports an event that may interest the user and does not end the copy.
    fn note(&self, _text: &str) {}
}

impl CopyObserver for () {}

impl CopyOptions {
    /// Returns the options of sockets that carry the payload in this direction.
    ///
    /// # Errors
    /// Returns an error if the memory is too small.
    pub(crate) fn sockets(&self, direction: Direction) -> Result<SocketOptions, Error> {
        let memory = self.memory;
        if let Some(memory) = memory.filter(|memory| *memory < Budget::least()) {
            return Err(Error::usage(
                format!("{memory} of memory is too little for a copy of files"),
                format!("choose at least {}", Budget::least()),
            ));
        }
        let (_, most) = self.connections.range();
        let fixed = memory.and_then(|memory| fixed_buffer(memory, most, direction));
        let of = |of| fixed.filter(|_| direction == of);
        Ok(SocketOptions {
            cc: self.cc.clone(),
            sndbuf: of(Direction::Sends),
            rcvbuf: of(Direction::Receives),
        })
    }

    fn pacing(&self) -> Result<Option<Pacing>, Error> {
        match &self.pacer {
            Some(pacer) => Ok(Some(Pacing::new(pacer, self.limit))),
            None if self.limit.is_some() => {
                Err(Error::usage("a rate limit needs a pacer", "set CopyOptions::pacer"))
            }
            None => Ok(None),
        }
    }
}

/// Copies files to another host. The same call continues an interrupted copy. `sampler` reports what limits
/// the connections; without a sampler, the copy uses the minimum number of connections in the options.
///
/// # Errors
/// Returns an error if a source cannot be read, the relay is unreachable or has another key, or a file cannot
/// be written there. Data that is durable at the relay by then is kept.
pub fn copy(
    options: &CopyOptions,
    sampler: Option<Box<dyn Sampler>>,
    observer: &dyn CopyObserver,
) -> Result<CopyReport, Error> {
    if let Sources::Remote(sources) = &options.sources {
        return fetch::fetch(options, sources, sampler, observer);
    }
    match &options.target {
        End::Relay { host, port, path, is_folder } => {
            let copy = Copy::new(options, path, *is_folder, sampler, observer)?;
            let relay = Relay::new((host, *port), &options.identity, options.peer, START)?;
            let relay = Arc::new(relay.with_sockets(copy.sockets.clone(), options.cc.clone()));
            copy.run(|| Ok(Arc::clone(&relay)))
        }
        End::Ssh { host, path, is_folder } => {
            let is_several = matches!(&options.sources, Sources::Files(sources) if sources.len() > 1);
            let into = *is_folder || is_several;
            let (folder, name) = ssh::split(path, into)?;
            let copy = Copy::new(options, &name, into, sampler, observer)?;
            let mut started = None;
            let copied = copy.run(|| {
                // An earlier relay ends first, because it holds the lock of the folder.
                drop(started.take());
                let remote = Remote::start(host, &folder, options.identity.fingerprint())?;
                let address = (remote.host.as_str(), remote.port);
                let relay = Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?;
                let relay =
                    relay.with_sockets(copy.sockets.clone(), options.cc.clone()).with_dial(remote.dial());
                started = Some(remote);
                Ok(Arc::new(relay))
            });
            if let Some(remote) = started {
                remote.end();
            }
            copied
        }
        End::Pipe | End::Local(_) => Err(nowhere(&options.target)),
    }
}

/// Opens a connection that carries no file to the other host of a copy, and returns what it has shown.
///
/// # Errors
/// Returns an error if both ends are on this host, or if the relay is unreachable or has another key.
pub fn probe(options: &CopyOptions) -> Result<Reached, Error> {
    if let Sources::Remote(sources) = &options.sources {
        return fetch::probe(options, sources);
    }
    let sockets = options.sockets(Direction::Sends)?;
    sockets.check()?;
    let probe = |relay: Relay| probed(relay.with_sockets(sockets, options.cc.clone()));
    match &options.target {
        End::Relay { host, port, .. } => {
            probe(Relay::new((host, *port), &options.identity, options.peer, START)?)
        }
        End::Ssh { host, path, is_folder } => {
            let is_several = matches!(&options.sources, Sources::Files(sources) if sources.len() > 1);
            let (folder, _) = ssh::split(path, *is_folder || is_several)?;
            let remote = Remote::start(host, &folder, options.identity.fingerprint())?;
            let address = (remote.host.as_str(), remote.port);
            let relay = Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?;
            let reached = probe(relay.with_dial(remote.dial()));
            remote.end();
            reached
        }
        End::Pipe | End::Local(_) => Err(nowhere(&options.target)),
    }
}

/// Opens a connection that carries no file to `relay`.
pub(crate) fn probed(relay: Relay) -> Result<Reached, Error> {
    let runtime = runtime()?;
    let reached = runtime.block_on(relay.probe());
    runtime.shutdown_background();
    reached
}

/// Returns the error for a copy from this host to a target on this host.
fn nowhere(target: &End) -> Error {
    match target {
        End::Pipe => Error::usage(
            "the target is standard output, but the source is on this host",
            "write the target as HOST:PATH or relay://HOST/PATH",
        ),
        _ => Error::usage(
            "both the source and the target are on this host, but fullpipe copy needs a network between them",
            "use cp -a, or write the target as HOST:PATH or relay://HOST/PATH",
        ),
    }
}

/// Results of the earlier attempts at a copy.
#[derive(Debug, Default)]
struct Carried {
    /// Whether a relay has accepted the first connection.
    was_accepted: bool,
    reconnects: u64,
    /// Payload that was sent, in bytes.
    sent: u64,
    first_byte: Option<Instant>,
    /// Number of files that were placed.
    placed: u64,
    /// Largest number of durable bytes at the end of an attempt, and how many of them an earlier copy had
    /// sent.
    durable: u64,
    resumed: u64,
    /// What the last attempt, or the last copy to this peer, has seen of the path.
    path: Option<Remembered>,
}

/// A copy that continues after it has lost its relay.
struct Copy<'a> {
    options: &'a CopyOptions,
    target: &'a Path,
    into: bool,
    /// The pipe, if the source is a pipe.
    held: Option<Arc<Held>>,
    sampler: Option<SharedSampler>,
    /// Options of the sockets.
    sockets: SocketOptions,
    observer: &'a dyn CopyObserver,
}

impl<'a> Copy<'a> {
    /// Checks the sources.
    fn new(
        options: &'a CopyOptions,
        target: &'a Path,
        into: bool,
        sampler: Option<Box<dyn Sampler>>,
        observer: &'a dyn CopyObserver,
    ) -> Result<Self, Error> {
        let held = match &options.sources {
            Sources::Files(sources) => {
                Walk::new(sources, target, into)?;
                None
            }
            Sources::Remote(_) => return Err(Error::usage("the files are not on this host", "")),
            Sources::Pipe(_) if into => {
                let hint = "write the name of the file at the end of the target";
                return Err(Error::usage("the target is a folder, but a pipe has no file name", hint));
            }
            Sources::Pipe(pipe) => Some(Arc::new(Held::new(pipe, checked(target)?)?)),
        };
        let sampler = sampler.map(|sampler| Arc::new(Mutex::new(sampler)));
        let sockets = options.sockets(Direction::Sends)?;
        sockets.check()?;
        Ok(Self { options, target, into, held, sampler, sockets, observer })
    }

    /// Copies to the relay that `reach` returns.
    fn run(&self, reach: impl FnMut() -> Result<Arc<Relay>, Error>) -> Result<CopyReport, Error> {
        let runtime = runtime()?;
        let copied = runtime.block_on(self.attempts(reach));
        if let Some(held) = &self.held {
            held.end();
        }
        // After a failure, threads may still be reading large files or a pipe, but their results are no
        // longer needed.
        runtime.shutdown_background();
        copied
    }

    async fn attempts(&self, reach: impl FnMut() -> Result<Arc<Relay>, Error>) -> Result<CopyReport, Error> {
        let CopyOptions { target, peer, cc, limit, .. } = self.options;
        // The rate of a limited copy says nothing about the path.
        let peers = self.options.peers.as_deref().filter(|_| limit.is_none()).map(Peers::new);
        let peers = peers.zip(Peer::of(target, *peer, cc.as_deref()));
        let path = peers.as_ref().and_then(|(peers, peer)| peers.get(peer));
        let carried = Carried { path, ..Carried::default() };
        let mut sending = Sending { copy: self, reach, started: Instant::now(), carried };
        let copied = until_complete(&mut sending, self.options.retry, self.observer).await;
        if let (Some((peers, peer)), Some(seen)) =
            (&peers, sending.carried.path.filter(|seen| Some(*seen) != path))
        {
            peers.put(peer, seen);
        }
        copied
    }

    /// Waits for `future`, and reports the state of the pipe in the meantime.
    async fn meanwhile<T>(&self, future: impl Future<Output = T>) -> T {
        let Some(held) = &self.held else { return future.await };
        let mut changes = held.changes();
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                value = &mut future => return value,
                Ok(()) = changes.changed() => held.report(self.observer),
            }
        }
    }

    fn announced(&self) -> Result<Announced, Error> {
        match (&self.options.sources, &self.held) {
            (_, Some(held)) => Ok(Announced::Pipe(Arc::clone(held))),
            (Sources::Files(sources), None) => {
                Walk::new(sources, self.target, self.into).map(Announced::Files)
            }
            (Sources::Pipe(_) | Sources::Remote(_), None) => Err(Error::usage("the source has no files", "")),
        }
    }

    async fn attempt(
        &self,
        relay: &Arc<Relay>,
        started: Instant,
        carried: &mut Carried,
        opens_early: bool,
    ) -> Result<CopyReport, Error> {
        let options = self.options;
        let announced = self.announced()?;
        let (events, mut reported) = mpsc::unbounded_channel();
        let (requests, outgoing) = mpsc::unbounded_channel();
        let mut tasks = Tasks::new(events.clone());
        let begin =
            |tasks: &mut Tasks, driver: &mut Driver<'_>, number, (opened, handshake): Joining, requests| {
                let reader = tasks.send(driver, number, opened, requests)?;
                let (relay, reports) = (Arc::clone(relay), (tasks.events.clone(), tasks.accepting()));
                match number {
                    0 => tasks.spawn(receive_first(relay, reader, reports)),
                    _ => tasks.spawn_for(number, receive_joined(relay, number, reader, reports, handshake)),
                }
                Ok::<(), Error>(())
            };
        // A pipe has its own limit. The process and its sockets may need some memory in addition.
        let memory = self.held.as_ref().map(|held| held.most_in_memory() + BESIDE_A_PIPE).or(options.memory);
        let mut links = Links::new(options.connections, options.link, memory);
        links.next_to_open();
        let mut driver = Driver::new(
            relay.name.clone(),
            Arc::clone(&tasks.shared),
            requests,
            events.clone(),
            (started, links, options.pacing()?),
            options.verify,
            self.observer,
        )
        .with_memory(true, self.sockets.sndbuf);
        if opens_early {
            driver = driver.open_early();
        }
        let (found, mut sources) = mpsc::channel(AHEAD);
        let mut piped = None;
        match announced {
            Announced::Files(walk) => find(walk, found, &tasks.shared),
            // A pipe is the only source.
            Announced::Pipe(held) => {
                piped = Some(held.changes());
                driver.pipe(&held)?;
                drop(found);
            }
        }
        // The connections are opened at the same time, so a connection that cannot be opened delays nothing. Connection
        // 0 carries the messages; announcing the files before the relay has accepted it saves a round trip.
        let mut opening = JoinSet::new();
        let (first, mut outgoing) = (Arc::clone(relay), Some(outgoing));
        opening.spawn(async move { (0, first.open(0).await.map(|opened| (opened, None))) });
        let mut measuring = std::pin::pin!(relay.first_rtt());
        let mut is_measured = false;
        // When the attempt ends, this set is dropped, and its task ends.
        let mut sampling = JoinSet::new();
        if let Some(sampler) = &self.sampler {
            sampling.spawn(sample(Arc::clone(sampler), events.clone()));
        }
        let mut batch = Vec::new();
        let ended: Result<(), Error> = async {
            while !driver.is_complete() {
                let mut closing: BTreeMap<u32, _> =
                    driver.take_closing().into_iter().map(|number| (number, tasks.close(number))).collect();
                while let Some(number) = driver.next_to_open() {
                    let relay = Arc::clone(relay);
                    let closed = closing.remove(&number).unwrap_or_default();
                    opening.spawn(async move {
                        if !closed.is_empty() {
                            ended(closed).await;
                            tokio::time::sleep(FIRST_PAUSE).await;
                        }
                        (number, relay.join_early(number).await)
                    });
                }
                tokio::select! {
                    // The driver holds a sender of this channel, so the channel cannot close.
                    _ = reported.recv_many(&mut batch, EVENTS) => driver.handle(batch.drain(..))?,
                    found = sources.recv(), if driver.has_room() => driver.found(found)?,
                    () = changed(&mut piped) => driver.piped()?,
                    rtt = &mut measuring, if !is_measured => {
                        is_measured = true;
                        driver.forecast(rtt, relay.buffers(Direction::Sends), carried.path);
                    }
                    Some(Ok((number, opened))) = opening.join_next() => match opened {
                        Ok(opened) => {
                            let requests = outgoing.take_if(|_| number == 0);
                            begin(&mut tasks, &mut driver, number, opened, requests)?;
                        }
                        Err(error) if number == 0 => return Err(error),
                        Err(error) => driver.not_opened(number, &io::Error::other(error.message))?,
                    },
                }
            }
            Ok(())
        }
        .await;
        if let Err(error) = ended {
            driver.carry(carried);
            return Err(error);
        }
        // A small copy is complete before these connections are open. To the relay, a connection that is closed
        // during its handshake looks like an error, so the copy waits for the handshakes, but not for a
        // connection that hangs.
        let _ = timeout(FAREWELL, async {
            while let Some(opened) = opening.join_next().await {
                if let Ok((number, Ok(opened))) = opened {
                    // The files are complete, so the failure of a connection does not matter.
                    let _ = begin(&mut tasks, &mut driver, number, opened, None);
                }
            }
        })
        .await;
        driver.remember_path(carried);
        driver.end();
        // The relay keeps the name of a complete pipe until it has read the last message. Files are complete without it,
        // so the copy does not wait a round trip for the relay's answer.
        tasks.end(if self.held.is_some() { Farewell::Read } else { Farewell::Sent }).await;
        Ok(driver.report(carried))
    }
}

/// The attempts at a copy.
struct Sending<'a, R> {
    copy: &'a Copy<'a>,
    /// Returns the relay, and starts it if necessary.
    reach: R,
    started: Instant,
    carried: Carried,
}

impl<R: FnMut() -> Result<Arc<Relay>, Error>> Attempts for Sending<'_, R> {
    type Done = CopyReport;

    async fn attempt(&mut self, earlier: Earlier) -> Result<CopyReport, Failure> {
        self.carried.reconnects = earlier.losses;
        let relay = (self.reach)()?;
        let attempted = self.copy.attempt(&relay, self.started, &mut self.carried, earlier.opens_early).await;
        attempted.map_err(|error| Failure { error, is_reached: relay.rtt().is_some() })
    }

    fn was_accepted(&self) -> bool {
        self.carried.was_accepted
    }

    fn progress(&self) -> (u64, u64) {
        (self.carried.placed, self.carried.durable)
    }

    async fn wait(&mut self, pause: Duration) {
        self.copy.meanwhile(tokio::time::sleep(pause)).await;
    }
}

/// Waits until more of the pipe has been read; without a pipe, waits for ever.
async fn changed(piped: &mut Option<watch::Receiver<pipe::Reading>>) {
    if let Some(piped) = piped
        && piped.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
