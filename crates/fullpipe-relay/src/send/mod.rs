//! `copy` to a relay: opens the connections, announces the files, and sends their blocks.
//!
//! ```text
//!   Walk ─► Driver ── requests ──► connection 0 ─┐                      ┌─► replies, lost connections ──► Driver
//!             │                                  ├─► TLS, TCP ─► relay ─┘
//!             └─► Dispatcher ◄────── next ── connections 0 to N-1
//! ```

mod connect;
mod connection;
mod driver;
mod links;
mod outgoing;
mod pacing;
mod pipe;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullpipe_units::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use self::connect::{Opened, Relay};
use self::connection::{Sender, Shared, receive, receive_first, sample};
use self::driver::Driver;
use self::links::Links;
pub use self::links::{Connections, Sampler, SocketSample};
use self::pacing::Pacing;
pub use self::pacing::{Pacer, RateLimit};
pub use self::pipe::Pipe;
use crate::error::Error;
use crate::frame::MOST_CONNECTIONS;
use crate::keys::{Fingerprint, Identity};
use crate::name::RelativePath;
use crate::report::CopyReport;
use crate::runtime;
use crate::sources::{Walk, checked};
use crate::ssh::{self, Remote};
use crate::target::End;

/// Hint if a relay cannot be reached.
const START: &str = "start fullpipe relay serve there, and permit the port in the firewall";
/// Hint if a relay that ssh has started cannot be reached.
const PERMIT: &str = "permit TCP connections from here in the firewall of the host, or start fullpipe relay \
                      serve there on a port that is permitted, and copy to relay://HOST:PORT/PATH";
/// Time in which the relay has to close the connections after the last file.
const FAREWELL: Duration = Duration::from_secs(5);
/// Number of files that are found ahead of their announcement.
const AHEAD: usize = 1024;
/// Number of events that are handled before the connections are woken.
const EVENTS: usize = 256;

/// What a copy reads.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Files and folders of this host.
    Files(Vec<PathBuf>),
    /// A pipe, which becomes one file.
    Pipe(Pipe),
}

/// What is announced to the relay.
enum Announced {
    Files(Walk),
    Pipe(Pipe, RelativePath),
}

impl Sources {
    fn announce(&self, target: &Path, into: bool) -> Result<Announced, Error> {
        match self {
            Self::Files(sources) => Walk::new(sources, target, into).map(Announced::Files),
            Self::Pipe(_) if into => {
                Err(Error::usage("a pipe has no name", "write the name of the file at the end of the target"))
            }
            Self::Pipe(pipe) => Ok(Announced::Pipe(pipe.clone(), checked(target)?)),
        }
    }
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
    /// Highest rate of the payload over all connections.
    pub limit: Option<RateLimit>,
}

/// Receives what a copy reports while it runs.
pub trait CopyObserver {
    /// `done` of `total` bytes are durable at the relay, or were there before. The total grows while files are
    /// found.
    fn progress(&self, _done: Bytes, _total: Bytes) {}
    /// From now on, the copy uses `count` connections; `limit` has held them back for most of the time.
    fn connections(&self, _count: u32, _limit: Option<&str>) {}
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
    match &options.target {
        End::Relay { host, port, path, is_folder } => {
            let announced = options.sources.announce(path, *is_folder)?;
            let relay = Relay::new((host, *port), &options.identity, options.peer, START)?;
            copy_to(relay, announced, options, sampler, observer)
        }
        End::Ssh { host, path, is_folder } => {
            let is_several = matches!(&options.sources, Sources::Files(sources) if sources.len() > 1);
            let into = *is_folder || is_several;
            let (folder, name) = ssh::split(path, into)?;
            let announced = options.sources.announce(&name, into)?;
            let remote = Remote::start(host, &folder, options.identity.fingerprint())?;
            let address = (remote.host.as_str(), remote.port);
            let relay = Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?;
            let copied = copy_to(relay, announced, options, sampler, observer);
            remote.end();
            copied
        }
        End::Pipe => Err(Error::usage(
            "copy does not write to a pipe",
            "write the target as HOST:PATH or relay://HOST/PATH",
        )),
        End::Local(_) => Err(Error::usage(
            "both ends are on this host, and copy needs a network between them",
            "use cp -a, or write the target as HOST:PATH or relay://HOST/PATH",
        )),
    }
}

fn copy_to(
    relay: Relay,
    announced: Announced,
    options: &CopyOptions,
    sampler: Option<Box<dyn Sampler>>,
    observer: &dyn CopyObserver,
) -> Result<CopyReport, Error> {
    let runtime = runtime()?;
    let copied = runtime.block_on(run(&Arc::new(relay), announced, options, sampler, observer));
    // After a failure, threads may still read large files, and nothing needs the result.
    runtime.shutdown_background();
    copied
}

async fn run(
    relay: &Arc<Relay>,
    announced: Announced,
    options: &CopyOptions,
    sampler: Option<Box<dyn Sampler>>,
    observer: &dyn CopyObserver,
) -> Result<CopyReport, Error> {
    let started = Instant::now();
    let shared = Arc::new(Shared::default());
    *crate::locked(&shared.sent) = vec![0; MOST_CONNECTIONS as usize];
    let (events, mut reported) = mpsc::unbounded_channel();
    let (requests, outgoing) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let begin = |tasks: &mut JoinSet<()>, driver: &mut Driver<'_>, number, opened, requests| {
        let (tls, readiness): Opened = opened;
        let (reader, writer) = tokio::io::split(tls);
        let readiness = Arc::new(readiness);
        let wait = driver.opened_connection(number, &readiness)?;
        let start = Instant::now() + Duration::from_nanos(wait.as_nanos());
        let sender = Sender { number, readiness, start, shared: Arc::clone(&shared), events: events.clone() };
        tasks.spawn(sender.run(writer, requests));
        match number {
            0 => tasks.spawn(receive_first(Arc::clone(relay), reader, events.clone())),
            _ => tasks.spawn(receive(number, reader, events.clone())),
        };
        Ok::<(), Error>(())
    };
    let peer = relay.name.clone();
    let pacing = options.limit.as_ref().map(Pacing::new);
    let mut links = Links::new(options.connections);
    links.next_to_open();
    let mut driver = Driver::new(
        peer,
        Arc::clone(&shared),
        requests,
        events.clone(),
        (started, links, pacing),
        options.verify,
        observer,
    );
    let (found, mut sources) = mpsc::channel(AHEAD);
    match announced {
        Announced::Files(walk) => {
            spawn_blocking(move || {
                for source in walk {
                    if found.blocking_send(source).is_err() {
                        break;
                    }
                }
            });
        }
        // Nothing else is found.
        Announced::Pipe(pipe, target) => {
            driver.pipe(pipe, target)?;
            drop(found);
        }
    }
    // Connection 0 carries the messages. The files are announced before the relay has accepted it, which saves
    // a round trip.
    begin(&mut tasks, &mut driver, 0, relay.open(0).await?, Some(outgoing))?;
    // The other connections are opened while the first one carries messages and blocks, so that one that
    // cannot be opened delays nothing.
    let mut opening = JoinSet::new();
    // Dropped, and with it its task, when the copy ends.
    let mut sampling = JoinSet::new();
    if let Some(sampler) = sampler {
        sampling.spawn(sample(sampler, events.clone()));
    }
    let mut batch = Vec::new();
    while !driver.is_complete() {
        while let Some(number) = driver.next_to_open() {
            let relay = Arc::clone(relay);
            opening.spawn(async move { (number, relay.connect(number).await) });
        }
        tokio::select! {
            // The driver holds a sender, so the channel cannot end.
            _ = reported.recv_many(&mut batch, EVENTS) => driver.handle(batch.drain(..))?,
            found = sources.recv(), if driver.has_room() => driver.found(found)?,
            Some(Ok((number, opened))) = opening.join_next() => match opened {
                Ok(opened) => begin(&mut tasks, &mut driver, number, opened, None)?,
                Err(error) => driver.lose(number, &io::Error::other(error.message))?,
            },
        }
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
    // The connections end when the relay has read the last message. One that hangs is not waited for, because
    // every file has been placed.
    let ending = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(FAREWELL, ending).await;
    Ok(driver.report(started))
}
