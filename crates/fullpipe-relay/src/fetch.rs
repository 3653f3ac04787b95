//! Copies from a relay: the client asks for files, and then receives them as a relay does.
//!
//! ```text
//!   hello with fetch ──connection 0──► relay: Walk ─► Driver
//!   Session ◄── open, blocks ────────── connections 0 to N-1
//!   Session ─── opened, durable, placed ──────────────────► Driver
//! ```
//!
//! This host writes files, keeps a journal and continues interrupted copies as a relay does. The relay can
//! neither choose the names of the targets nor redirect them through symbolic links: every target is one that
//! the client asked for, or is below it, and links are created after the files.

use std::env;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;

use fullpipe_units::{Bytes, Rate};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, interval, timeout};

use crate::attempts::{Attempts, Earlier, Failure, until_complete};
use crate::error::Error;
use crate::frame::{ChooseConnections, Fetch, MOST_CONNECTIONS};
use crate::memory;
use crate::name::PathText;
use crate::outlet::{Outlet, Scratch};
use crate::report::{ConnectionReport, CopyFacts, CopyReport, MemoryReport, advice};
use crate::send::connect::Relay;
use crate::send::{CopyObserver, CopyOptions, PERMIT, Reached, START, Sampler, probed};
use crate::session::{MOST_REPLIES, Session, Totals};
use crate::socket::{Direction, SocketOptions};
use crate::ssh::Remote;
use crate::store::FileStore;
use crate::target::End;
use crate::{runtime, span};

/// Name of the file whose content goes to a pipe, in a temporary folder.
const CONTENT: &str = "content";
/// Time between two progress reports.
const SHOWN: Duration = Duration::from_millis(100);
/// Time within which the last replies must be sent.
const FAREWELL: Duration = Duration::from_secs(5);
/// Maximum number of connections that are open or being opened, including those that are about to be
/// replaced.
const MOST_JOINING: usize = 2 * MOST_CONNECTIONS as usize;
/// Maximum number of sources; a single message of at most 64 KiB names all of them.
const MOST_SOURCES: usize = 256;

/// Copies files from another host to this one.
pub(crate) fn fetch(
    options: &CopyOptions,
    sources: &[End],
    sampler: Option<Box<dyn Sampler>>,
    observer: &dyn CopyObserver,
) -> Result<CopyReport, Error> {
    let scratch = match options.target {
        End::Pipe if sources.len() > 1 => {
            return Err(Error::usage(
                "several sources cannot be copied to standard output",
                "copy each source with a separate command",
            ));
        }
        End::Pipe => Some(Scratch::new(&env::temp_dir())?),
        _ => None,
    };
    let target = match (&options.target, &scratch) {
        (End::Local(target), _) => target.clone(),
        (_, Some(scratch)) => scratch.path().join(CONTENT),
        _ => {
            return Err(Error::usage(
                "neither the source nor the target is on this host",
                "run fullpipe copy on one of the two hosts",
            ));
        }
    };
    let mut plan = Plan::new(sources, &target, options.verify)?;
    let (least, most) = options.connections.range();
    plan.fetch.choose = (least < most).then_some(ChooseConnections { least, most });
    plan.fetch.link_bps = options.link.map(Rate::as_bps);
    plan.fetch.limit_bps = options.limit.map(|limit| limit.rate().as_bps());
    plan.fetch.memory_bytes = options.memory.map(Bytes::get);
    let mut sockets = options.sockets(Direction::Receives)?;
    if let Err(error) = sockets.check() {
        // Only the congestion control of the sending host matters.
        observer.note(&format!("{error}; only the other host uses it"));
        sockets.cc = None;
    }
    plan.fetch.rcvbuf_bytes = sockets.receive_buffer().map(Bytes::get);
    let most_kernel = Bytes::ZERO;
    let outlet = scratch.is_some().then(Arc::<Outlet>::default);
    let mut fetching = Fetching { options, plan: &plan, sockets, sampler, most_kernel, outlet, observer };
    match sources.first() {
        Some(End::Relay { host, port, .. }) => {
            let relay = Relay::new((host, *port), &options.identity, options.peer, START)?;
            let relay = relay.with_sockets(fetching.sockets.clone(), options.cc.clone());
            let relay = Arc::new(relay.fetching(plan.fetch.clone()));
            fetching.run(|| Ok(Arc::clone(&relay)))
        }
        Some(End::Ssh { host, .. }) => {
            let (mut started, sockets) = (None, fetching.sockets.clone());
            let fetched = fetching.run(|| {
                // End an earlier relay before starting the next one.
                drop(started.take());
                let remote = Remote::start_reading(host, options.identity.fingerprint())?;
                let address = (remote.host.as_str(), remote.port);
                let relay = Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?;
                let relay = relay.with_sockets(sockets.clone(), options.cc.clone()).with_dial(remote.dial());
                started = Some(remote);
                Ok(Arc::new(relay.fetching(plan.fetch.clone())))
            });
            if let Some(remote) = started {
                remote.end();
            }
            fetched
        }
        _ => Err(local_sources()),
    }
}

/// Asks the host of `sources` to send no file, and returns what the connection has shown.
pub(crate) fn probe(options: &CopyOptions, sources: &[End]) -> Result<Reached, Error> {
    let sockets = options.sockets(Direction::Receives)?;
    let reach = |relay: Relay| {
        let sockets = SocketOptions { cc: None, ..sockets.clone() };
        probed(relay.with_sockets(sockets, options.cc.clone()).fetching(Fetch::default()))
    };
    match sources.first() {
        Some(End::Relay { host, port, .. }) => {
            reach(Relay::new((host, *port), &options.identity, options.peer, START)?)
        }
        Some(End::Ssh { host, .. }) => {
            let remote = Remote::start_reading(host, options.identity.fingerprint())?;
            let address = (remote.host.as_str(), remote.port);
            let relay = Relay::new(address, &options.identity, Some(remote.fingerprint), PERMIT)?;
            let reached = reach(relay.with_dial(remote.dial()));
            remote.end();
            reached
        }
        _ => Err(local_sources()),
    }
}

/// Returns the error for a copy whose files are on this host.
fn local_sources() -> Error {
    Error::usage("the files are on this host", "use cp -a")
}

/// Sources and targets of a copy from another host.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Folder of this host that receives the files. The folder is created if it does not exist.
    folder: PathBuf,
    fetch: Fetch,
    /// Targets below the folder.
    expected: Vec<PathBuf>,
}

impl Plan {
    fn new(sources: &[End], target: &Path, verify: bool) -> Result<Self, Error> {
        if sources.len() > MOST_SOURCES {
            let message = format!("{} sources are too many; the limit is {MOST_SOURCES}", sources.len());
            return Err(Error::usage(
                message,
                "copy the folder that contains the sources, or use several commands",
            ));
        }
        let first = sources.first().and_then(place);
        if sources.iter().any(|source| place(source) != first) {
            return Err(Error::usage(
                "the sources are on different hosts",
                "copy from each host with a separate command",
            ));
        }
        let is_folder = target.as_os_str().as_bytes().ends_with(b"/") || target.file_name().is_none();
        let into = is_folder || sources.len() > 1;
        let (folder, name) = match (into, target.parent(), target.file_name()) {
            (false, Some(folder), Some(name)) if folder.as_os_str().is_empty() => {
                (Path::new("."), Some(name))
            }
            (false, Some(folder), Some(name)) => (folder, Some(name)),
            _ => (target, None),
        };
        let mut pairs = Vec::new();
        let mut expected: Vec<PathBuf> = Vec::new();
        for source in sources {
            let (End::Relay { path, .. } | End::Ssh { path, .. }) = source else { continue };
            // No shell expands the tilde here.
            let path = path.strip_prefix("~").unwrap_or(path);
            let own = path.components().next_back().and_then(|part| match part {
                Component::Normal(name) => Some(name),
                _ => None,
            });
            let target = PathBuf::from(name.or(own).ok_or_else(|| {
                Error::usage(
                    "the source has no name",
                    "write a name at the end of the target, without a slash",
                )
            })?);
            if expected.contains(&target) {
                return Err(Error::usage(
                    format!("two sources have the target {}", target.display()),
                    "copy the two sources with separate commands, to different folders",
                ));
            }
            pairs.push((PathText::from(path), PathText::from(target.as_path())));
            expected.push(target);
        }
        Ok(Self {
            folder: folder.into(),
            fetch: Fetch { sources: pairs, verify, ..Fetch::default() },
            expected,
        })
    }
}

/// Returns the host and the port of a source.
fn place(source: &End) -> Option<(&str, u16)> {
    match source {
        End::Relay { host, port, .. } => Some((host, *port)),
        End::Ssh { host, .. } => Some((host, 0)),
        End::Local(_) | End::Pipe => None,
    }
}

struct Fetching<'a> {
    options: &'a CopyOptions,
    plan: &'a Plan,
    /// Options of the sockets.
    sockets: SocketOptions,
    sampler: Option<Box<dyn Sampler>>,
    /// Largest memory of the sockets so far.
    most_kernel: Bytes,
    /// Standard output, if it is the target.
    outlet: Option<Arc<Outlet>>,
    observer: &'a dyn CopyObserver,
}

impl Fetching<'_> {
    fn run(&mut self, reach: impl FnMut() -> Result<Arc<Relay>, Error>) -> Result<CopyReport, Error> {
        let folder = &self.plan.folder;
        fs::create_dir_all(folder)
            .map_err(|error| Error::system(format_args!("create the folder {}", folder.display()), &error))?;
        let store = Arc::new(FileStore::open_root(folder)?);
        let runtime = runtime()?;
        let failed = Arc::new(Notify::new());
        let output = self.outlet.clone().map(|outlet| {
            let (store, failed) = (Arc::clone(&store), Arc::clone(&failed));
            thread::spawn(move || {
                let written = outlet.run(&store, &mut io::stdout());
                if written.is_err() {
                    failed.notify_one();
                }
                written
            })
        });
        let fetched = runtime.block_on(async {
            let started = Instant::now();
            let store = Arc::clone(&store);
            let mut attempts =
                FetchAttempts { fetching: self, reach, store, failed, started, sums: Sums::default() };
            let (retry, observer) = (attempts.fetching.options.retry, attempts.fetching.observer);
            until_complete(&mut attempts, retry, observer).await
        });
        // Threads of a failed attempt may still be writing.
        drop(runtime);
        if let (Some(outlet), Some(output)) = (&self.outlet, output) {
            outlet.end();
            let hint = "read the pipe to its end, or check the program that reads it";
            let failed =
                |reason: String| Error::runtime(format!("cannot write to standard output: {reason}"), hint);
            match output.join() {
                Ok(Ok(is_complete)) if is_complete || fetched.is_err() => {}
                Ok(Ok(_)) => return Err(failed("the file is incomplete".into())),
                Ok(Err(error)) => return Err(failed(error.to_string())),
                // The panic has been reported.
                Err(_) => return Err(failed("the thread that writes to it has failed".into())),
            }
        }
        drop(store);
        FileStore::clean(folder);
        fetched
    }

    async fn attempt(
        &mut self,
        relay: &Arc<Relay>,
        store: &Arc<FileStore>,
        sums: &mut Sums,
        opens_early: bool,
    ) -> Result<(Totals, Option<(String, u32)>), Error> {
        let (replies, outgoing) = mpsc::channel(MOST_REPLIES);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let session = Session::new(Arc::clone(store), replies).expecting(self.plan.expected.clone(), asks);
        let session = Arc::new(session.with_outlet(self.outlet.clone()));
        // When the attempt ends, this set is dropped, and its tasks end.
        let mut joining = JoinSet::new();
        let mut join = |number: u32| {
            while joining.try_join_next().is_some() {}
            // A relay that repeatedly asks for the same connections must not start an unlimited number of
            // tasks.
            if joining.len() >= MOST_JOINING {
                return;
            }
            let entry = session.enter(number);
            let (relay, session) = (Arc::clone(relay), Arc::clone(&session));
            joining.spawn(async move {
                // If this connection fails, the others deliver its blocks.
                match relay.join(number).await {
                    Ok((mut tls, _)) => drop(session.serve(entry, &mut tls).await),
                    Err(_) => session.leave(entry),
                }
            });
        };
        let (least, most) = self.options.connections.range();
        // With a range, the relay asks for further connections.
        let are_fixed = least == most;
        let are_early = are_fixed && opens_early;
        if are_early {
            (1..most).for_each(&mut join);
        }
        let (tls, _) = relay.connect(0).await?;
        relay.take_notes().iter().for_each(|note| self.observer.note(note));
        if let Some(reached) = relay.reached(Direction::Receives) {
            self.observer.connected(&reached);
        }
        sums.was_accepted = true;
        if are_fixed && !are_early {
            (1..most).for_each(&mut join);
        }
        let mut ticks = interval(SHOWN);
        let (read, sending) = {
            let received = session.receive(tokio::io::split(tls), outgoing);
            let mut received = std::pin::pin!(received);
            loop {
                tokio::select! {
                    ended = &mut received => break ended,
                    Some(number) = asked.recv() => {
                        if (1..most).contains(&number) {
                            join(number);
                        }
                    }
                    _ = ticks.tick() => {
                        let totals = session.totals();
                        if let Some(sampler) = &mut self.sampler {
                            let samples = sampler.sample();
                            let kernel = samples.iter().fold(Bytes::ZERO, |sum, sample| sum + sample.memory);
                            self.most_kernel = self.most_kernel.max(kernel);
                        }
                        self.observer.progress(totals.received + totals.resumed, totals.bytes);
                    }
                }
            }
        };
        let (totals, failure) = (session.totals(), session.failure());
        let limited = session.limited();
        joining.shutdown().await;
        drop(session);
        let _ = timeout(FAREWELL, sending).await;
        if let Some(error) = failure {
            sums.add(&totals);
            return Err(error);
        }
        match read {
            Ok(()) if totals.is_complete => Ok((totals, limited)),
            read => {
                sums.add(&totals);
                let error = read.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                Err(Error::network(
                    format!("lost the connection to {}: {error}", relay.name),
                    "run the same command again to continue the copy",
                ))
            }
        }
    }
}

/// The attempts at a copy from another host.
struct FetchAttempts<'f, 'a, R> {
    fetching: &'f mut Fetching<'a>,
    /// Returns the relay, and starts it if necessary.
    reach: R,
    store: Arc<FileStore>,
    /// Notified when standard output cannot be written to.
    failed: Arc<Notify>,
    started: Instant,
    sums: Sums,
}

impl<R: FnMut() -> Result<Arc<Relay>, Error>> Attempts for FetchAttempts<'_, '_, R> {
    type Done = CopyReport;

    async fn attempt(&mut self, earlier: Earlier) -> Result<CopyReport, Failure> {
        let before = self.sums;
        let relay = (self.reach)()?;
        let attempted = self.fetching.attempt(&relay, &self.store, &mut self.sums, earlier.opens_early);
        let attempted = tokio::select! {
            attempted = attempted => attempted,
            () = self.failed.notified() => Err(Error::runtime("cannot write to standard output", "")),
        };
        let rtt = relay.rtt();
        let (totals, limited) = attempted.map_err(|error| Failure { error, is_reached: rtt.is_some() })?;
        let mut report = report(&totals, before, (self.started, earlier.losses));
        let fetching = &*self.fetching;
        report.memory.kernel_bytes = fetching.sampler.is_some().then_some(fetching.most_kernel.get());
        report.memory.fixed_buffer_bytes = fetching.sockets.rcvbuf.map(Bytes::get);
        if let Some((limit, percent)) = limited {
            let facts = CopyFacts {
                link: fetching.options.link,
                rtt,
                rate: Rate::from_bps(report.goodput_bps),
                connections: report.most_connections,
            };
            report.advice = advice(&limit, facts).into_iter().collect();
            report.limit_share = Some(f64::from(percent) / 100.0);
            report.limit = Some(limit);
        }
        Ok(report)
    }

    fn was_accepted(&self) -> bool {
        self.sums.was_accepted
    }

    fn progress(&self) -> (u64, u64) {
        (self.sums.received, self.sums.files)
    }
}

/// Totals of the attempts that failed.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    was_accepted: bool,
    received: u64,
    files: u64,
}

impl Sums {
    fn add(&mut self, totals: &Totals) {
        self.received += totals.connections.iter().sum::<u64>();
        self.files += totals.files;
    }
}

fn report(totals: &Totals, earlier: Sums, (started, reconnects): (Instant, u64)) -> CopyReport {
    let wall = span(started.elapsed());
    let rate = |bytes: u64| Rate::mean(Bytes::new(bytes), wall).as_bps();
    let received = earlier.received + totals.connections.iter().sum::<u64>();
    let files = totals.files + totals.same;
    let used = totals.connections.iter().filter(|bytes| **bytes > 0);
    let connections: Vec<ConnectionReport> = used
        .map(|bytes| ConnectionReport {
            bytes: *bytes,
            goodput_bps: rate(*bytes),
            rtt_ms: None,
            retransmits: None,
            limit: Default::default(),
            lost: false,
            reopened: 0,
        })
        .collect();
    CopyReport {
        schema: CopyReport::SCHEMA,
        files,
        // Files that an earlier attempt has placed count as unchanged in this attempt.
        same_files: totals.same.saturating_sub(earlier.files),
        skipped_files: 0,
        bytes: totals.bytes.get(),
        sent_bytes: received,
        resumed_bytes: totals.resumed.get().saturating_sub(earlier.received),
        wall_s: wall.as_secs_f64(),
        first_byte_s: totals.first_byte.map(|at| span(at - started).as_secs_f64()),
        goodput_bps: rate(received),
        blake3: totals.hash.filter(|_| files == 1).map(|hash| hash.to_string()),
        most_connections: connections.len() as u64,
        connections,
        memory: MemoryReport { rss_bytes: memory::most_resident().get(), ..MemoryReport::default() },
        forecast: None,
        limit: None,
        limit_share: None,
        pipe: None,
        reconnects,
        advice: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn plan(sources: &[&str], target: &str) -> Result<(PathBuf, Vec<PathBuf>), Error> {
        let sources: Vec<End> =
            sources.iter().map(|text| End::parse(OsStr::new(text)).expect("an end")).collect();
        Plan::new(&sources, Path::new(target), false).map(|plan| (plan.folder, plan.expected))
    }

    #[test]
    fn targets_follow_from_the_command_alone() {
        let expected =
            |folder: &str, names: &[&str]| Ok((folder.into(), names.iter().map(PathBuf::from).collect()));
        assert_eq!(plan(&["relay://h/dir/a"], "x"), expected(".", &["x"]));
        assert_eq!(plan(&["relay://h/dir/a"], "in/x"), expected("in", &["x"]));
        assert_eq!(plan(&["relay://h/dir/a"], "in/"), expected("in/", &["a"]));
        assert_eq!(plan(&["h:dir/a", "h:b"], "in"), expected("in", &["a", "b"]));
        assert_eq!(plan(&["h:~/a"], "."), expected(".", &["a"]));
        assert_eq!(plan(&["relay://h/"], "/backup"), expected("/", &["backup"]));
        for (sources, target) in [
            (&["relay://h/"][..], "in/"),
            (&["h:.."], "in/"),
            (&["h:a", "g:b"], "in"),
            (&["h:a", "relay://h/b"], "in"),
            (&["h:a", "h:b/a"], "in"),
        ] {
            assert!(plan(sources, target).is_err(), "{sources:?}");
        }
    }
}
