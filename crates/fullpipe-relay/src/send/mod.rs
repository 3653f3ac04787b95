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

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullpipe_units::{Bytes, Rate};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use self::connect::{Opened, Relay};
use self::connection::{SharedSampler, receive_first, sample};
pub(crate) use self::deliver::{Delivery, Joined, deliver};
use self::driver::Driver;
use self::links::Links;
pub use self::links::{Connections, Sampler, SocketSample};
use self::pacing::Pacing;
pub use self::pacing::{Kernel, Pacer, RateLimit};
use self::pipe::Held;
pub use self::pipe::{Pipe, PipeOptions};
use self::tasks::{Tasks, find};
use crate::error::{Error, Kind};
use crate::fetch::fetch;
use crate::keys::{Fingerprint, Identity};
use crate::report::CopyReport;
use crate::runtime;
use crate::sources::{Walk, checked};
use crate::ssh::{self, Remote};
use crate::target::End;

/// Hint if a relay cannot be reached.
pub(crate) const START: &str = "start fullpipe relay serve on that host, and permit the port in the firewall";
/// Hint if a relay that ssh has started cannot be reached.
pub(crate) const PERMIT: &str = "permit TCP connections from this host in the firewall of the other host, \
                      or start fullpipe relay serve there on a permitted port, and copy to \
                      relay://HOST:PORT/PATH";
/// Time in which the relay has to close the connections after the last file.
const FAREWELL: Duration = Duration::from_secs(5);
/// Time between the first two attempts at a copy that has lost its relay; it doubles with each.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest time between two attempts.
pub(crate) const MOST_PAUSE: Duration = Duration::from_secs(2);
/// Number of files that are found ahead of their announcement.
const AHEAD: usize = 1024;
/// Number of events that are handled before the connections are woken.
const EVENTS: usize = 256;

/// What a copy reads.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Files and folders of this host.
    Files(Vec<PathBuf>),
    /// Files and folders of a relay, or of a host that ssh reaches. The target is on this host.
    Remote(Vec<End>),
    /// A pipe, which becomes one file.
    Pipe(Pipe),
}

/// What an attempt announces to the relay.
enum Announced {
    Files(Walk),
    Pipe(Arc<Held>),
}

/// Settings of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Files and folders of this host, or a pipe.
    pub sources: Sources,
    /// The target, on a relay or a host that ssh reaches.
    pub target: End,
    /// Number of connections.
    pub connections: Connections,
    /// Key of this host.
    pub identity: Identity,
    /// Fingerprint of the relay's key.
    pub peer: Option<Fingerprint>,
    /// Compare the hashes of files whose size and modification time are the same, and read what was written
    /// back from the disk.
    pub verify: bool,
    /// Highest rate of the payload over all connections. A copy from another host asks the other end to keep it.
    pub limit: Option<RateLimit>,
    /// Rate of the slowest link on the way, if it is known. Where the copy chooses the number of connections, it
    /// computes how many fill the link.
    pub link: Option<Rate>,
    /// Time for which a copy that has lost its relay tries to continue.
    pub retry: fullpipe_units::Duration,
}

/// Receives what a copy reports while it runs.
pub trait CopyObserver {
    /// The first connection is open; `rtt` is the round-trip time of its handshake.
    fn connected(&self, _rtt: fullpipe_units::Duration) {}
    /// `done` of `total` bytes are durable at the relay, or were there before. The total grows while files are
    /// found.
    fn progress(&self, _done: Bytes, _total: Bytes) {}
    /// From now on, the copy uses `count` connections; `limit` has held them back for most of the time.
    fn connections(&self, _count: u32, _limit: Option<&str>) {}
    /// The producer of the pipe may forget its bytes up to `offset`. The first call is where it has to go on.
    fn accepted(&self, _offset: Bytes) {}
    /// `held` bytes of the pipe are kept, of at most `memory`.
    fn queue(&self, _held: Bytes, _memory: Bytes) {}
    /// Something that the user may want to know, and that does not end the copy.
    fn note(&self, _text: &str) {}
}

impl CopyObserver for () {}

/// Copies files to another host. The same call continues an interrupted copy. `sampler` reports what limits
/// the connections; without it, the number of connections stays the least that the options permit.
///
/// # Errors
/// Returns an error if a source cannot be read, the relay is unreachable or has another key, or a file cannot
/// be written there. What is durable at the relay by then is kept.
pub fn copy(
    options: &CopyOptions,
    sampler: Option<Box<dyn Sampler>>,
    observer: &dyn CopyObserver,
) -> Result<CopyReport, Error> {
    if let Sources::Remote(sources) = &options.sources {
        return fetch(options, sources, observer);
    }
    match &options.target {
        End::Relay { host, port, path, is_folder } => {
            let copy = Copy::new(options, path, *is_folder, sampler, observer)?;
            let relay = Relay::new((host, *port), &options.identity, options.peer, START)?;
            let relay = Arc::new(relay);
            copy.run(|| Ok(Arc::clone(&relay)))
        }
        End::Ssh { host, path, is_folder } => {
            let is_several = matches!(&options.sources, Sources::Files(sources) if sources.len() > 1);
            let into = *is_folder || is_several;
            let (folder, name) = ssh::split(path, into)?;
            let copy = Copy::new(options, &name, into, sampler, observer)?;
            let mut started = None;
            let copied = copy.run(|| {
                // An earlier one ends, because it has the folder.
                drop(started.take());
                let remote = Remote::start(host, &folder, options.identity.fingerprint())?;
                let address = (remote.host.as_str(), remote.port);
                let relay = Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?;
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

/// Measures the round-trip time to the other host of a copy, with a connection that both keys permit and that
/// carries no file.
///
/// # Errors
/// Returns an error if the files are not on this host, or if the relay is unreachable or has another key.
pub fn probe(options: &CopyOptions) -> Result<fullpipe_units::Duration, Error> {
    if let Sources::Remote(_) = options.sources {
        return Err(Error::usage(
            "a forecast needs the buffers and the congestion control of the sending host, which are not \
             known on this host",
            "run the command with --plan on the sending host",
        ));
    }
    let probe = |relay: Relay| {
        let runtime = runtime()?;
        let rtt = runtime.block_on(relay.probe());
        runtime.shutdown_background();
        rtt
    };
    match &options.target {
        End::Relay { host, port, .. } => {
            probe(Relay::new((host, *port), &options.identity, options.peer, START)?)
        }
        End::Ssh { host, path, is_folder } => {
            let is_several = matches!(&options.sources, Sources::Files(sources) if sources.len() > 1);
            let (folder, _) = ssh::split(path, *is_folder || is_several)?;
            let remote = Remote::start(host, &folder, options.identity.fingerprint())?;
            let address = (remote.host.as_str(), remote.port);
            let rtt = probe(Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?);
            remote.end();
            rtt
        }
        End::Pipe | End::Local(_) => Err(nowhere(&options.target)),
    }
}

/// Returns the error for a target to which nothing is copied.
fn nowhere(target: &End) -> Error {
    match target {
        End::Pipe => Error::usage(
            "fullpipe copy cannot write to a pipe",
            "write the target as HOST:PATH or relay://HOST/PATH",
        ),
        _ => Error::usage(
            "both the source and the target are on this host, but fullpipe copy needs a network between them",
            "use cp -a, or write the target as HOST:PATH or relay://HOST/PATH",
        ),
    }
}

/// What the earlier attempts at a copy have done.
#[derive(Debug, Default)]
struct Carried {
    /// A relay has accepted the first connection.
    was_accepted: bool,
    reconnects: u64,
    /// Payload in bytes.
    sent: u64,
    first_byte: Option<Instant>,
    /// Number of files that were placed.
    placed: u64,
    /// Largest number of bytes that were durable at the end of an attempt, and of those from another copy.
    durable: u64,
    resumed: u64,
}

/// When a copy that has failed is attempted again.
pub(crate) struct Retry {
    total: fullpipe_units::Duration,
    since: Option<Instant>,
    pause: Duration,
    /// Number of times that a relay was lost.
    pub(crate) losses: u64,
}

impl Retry {
    /// Tries again for `total` without success.
    pub(crate) fn new(total: fullpipe_units::Duration) -> Self {
        Self { total, since: None, pause: FIRST_PAUSE, losses: 0 }
    }

    /// Returns the time to wait before the next attempt after `error`, or the error if there is none. Only a
    /// relay that has accepted a connection before is tried again.
    pub(crate) fn pause(
        &mut self,
        error: Error,
        (was_accepted, has_progressed): (bool, bool),
        observer: &dyn CopyObserver,
    ) -> Result<Duration, Error> {
        if has_progressed {
            (self.since, self.pause) = (None, FIRST_PAUSE);
        }
        let is_lost = error.kind == Kind::Network && was_accepted;
        let is_new = self.since.is_none();
        let since = *self.since.get_or_insert_with(Instant::now);
        let pause = self.pause;
        let most = Duration::from_nanos(self.total.as_nanos());
        if (!is_lost && !error.is_temporary) || since.elapsed() + pause > most {
            return Err(error);
        }
        if is_new {
            observer.note(&format!("{error}; trying to reconnect for {}", self.total));
            self.losses += u64::from(is_lost);
        }
        self.pause = (pause * 2).min(MOST_PAUSE);
        Ok(pause)
    }
}

/// A copy that continues when it has lost its relay.
struct Copy<'a> {
    options: &'a CopyOptions,
    target: &'a Path,
    into: bool,
    /// The pipe that is the source.
    held: Option<Arc<Held>>,
    sampler: Option<SharedSampler>,
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
        Ok(Self { options, target, into, held, sampler, observer })
    }

    /// Copies to the relay that `reach` returns.
    fn run(&self, reach: impl FnMut() -> Result<Arc<Relay>, Error>) -> Result<CopyReport, Error> {
        let runtime = runtime()?;
        let copied = runtime.block_on(self.attempts(reach));
        if let Some(held) = &self.held {
            held.end();
        }
        // After a failure, threads may still read large files or a pipe, and nothing needs the result.
        runtime.shutdown_background();
        copied
    }

    async fn attempts(
        &self,
        mut reach: impl FnMut() -> Result<Arc<Relay>, Error>,
    ) -> Result<CopyReport, Error> {
        let started = Instant::now();
        let mut carried = Carried::default();
        let mut retry = Retry::new(self.options.retry);
        loop {
            let before = (carried.placed, carried.durable);
            let attempted = match reach() {
                Ok(relay) => self.attempt(&relay, started, &mut carried).await,
                Err(error) => Err(error),
            };
            let error = match attempted {
                Ok(report) => return Ok(report),
                Err(error) => error,
            };
            let has_progressed = (carried.placed, carried.durable) != before;
            let pause = retry.pause(error, (carried.was_accepted, has_progressed), self.observer)?;
            self.meanwhile(tokio::time::sleep(pause)).await;
            carried.reconnects = retry.losses;
        }
    }

    /// Reports what becomes of the pipe while nothing is sent.
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
    ) -> Result<CopyReport, Error> {
        let options = self.options;
        let announced = self.announced()?;
        let (events, mut reported) = mpsc::unbounded_channel();
        let (requests, outgoing) = mpsc::unbounded_channel();
        let mut tasks = Tasks::new(events.clone());
        let begin = |tasks: &mut Tasks, driver: &mut Driver<'_>, number, opened: Opened, requests| {
            let reader = tasks.send(driver, number, opened, requests)?;
            match number {
                0 => tasks.spawn(receive_first(Arc::clone(relay), reader, tasks.events.clone())),
                _ => tasks.receive(number, reader),
            }
            Ok::<(), Error>(())
        };
        let mut links = Links::new(options.connections, options.link);
        links.next_to_open();
        let mut driver = Driver::new(
            relay.name.clone(),
            Arc::clone(&tasks.shared),
            requests,
            events.clone(),
            (started, links, options.limit.as_ref().map(Pacing::new)),
            options.verify,
            self.observer,
        );
        let (found, mut sources) = mpsc::channel(AHEAD);
        let mut piped = None;
        match announced {
            Announced::Files(walk) => find(walk, found),
            // Nothing else is found.
            Announced::Pipe(held) => {
                piped = Some(held.changes());
                driver.pipe(&held)?;
                drop(found);
            }
        }
        // The other connections are opened while the first one carries messages and blocks, so that one that
        // cannot be opened delays nothing.
        let mut opening = JoinSet::new();
        // Dropped, and with it its task, when the attempt ends.
        let mut sampling = JoinSet::new();
        if let Some(sampler) = &self.sampler {
            sampling.spawn(sample(Arc::clone(sampler), events.clone()));
        }
        let mut batch = Vec::new();
        let ended: Result<(), Error> = async {
            // Connection 0 carries the messages. The files are announced before the relay has accepted it,
            // which saves a round trip.
            let first = self.meanwhile(relay.open(0)).await?;
            if let Some(rtt) = relay.rtt() {
                self.observer.connected(rtt);
            }
            begin(&mut tasks, &mut driver, 0, first, Some(outgoing))?;
            while !driver.is_complete() {
                while let Some(number) = driver.next_to_open() {
                    let relay = Arc::clone(relay);
                    opening.spawn(async move { (number, relay.connect(number).await) });
                }
                tokio::select! {
                    // The driver holds a sender, so the channel cannot end.
                    _ = reported.recv_many(&mut batch, EVENTS) => driver.handle(batch.drain(..))?,
                    found = sources.recv(), if driver.has_room() => driver.found(found)?,
                    () = changed(&mut piped) => driver.piped()?,
                    Some(Ok((number, opened))) = opening.join_next() => match opened {
                        Ok(opened) => begin(&mut tasks, &mut driver, number, opened, None)?,
                        Err(error) => driver.lose(number, &io::Error::other(error.message))?,
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
        // A small copy is complete before they are open. A connection that is cut in its handshake would be an
        // error to the relay, and one that hangs is not worth more time.
        let _ = timeout(FAREWELL, async {
            while let Some(opened) = opening.join_next().await {
                if let Ok((number, Ok(opened))) = opened {
                    // The files are complete, so a connection that cannot be used is no failure.
                    let _ = begin(&mut tasks, &mut driver, number, opened, None);
                }
            }
        })
        .await;
        driver.end();
        tasks.end().await;
        Ok(driver.report(carried))
    }
}

/// Waits until more of the pipe has been read; without a pipe, for ever.
async fn changed(piped: &mut Option<watch::Receiver<pipe::Reading>>) {
    if let Some(piped) = piped
        && piped.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
