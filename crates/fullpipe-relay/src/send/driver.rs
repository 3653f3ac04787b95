//! Announces the files, and follows what becomes of them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fullpipe_units::{Bytes, Duration, Rate};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::CopyObserver;
use super::connection::{Event, Events, Shared, Work};
use super::links::{Links, SocketSample};
use super::outgoing::{Changed, Outgoing, hash_file};
use super::pacing::Pacing;
use super::pipe::{Held, Pipe, Piped};
use crate::engine::{BLOCK, MOST_SIZE, Room, block_count, block_range};
use crate::error::Error;
use crate::frame::{Reply, Request};
use crate::hex::Hex;
use crate::name::RelativePath;
use crate::report::{CopyReport, advice};
use crate::sources::{Found, SourceFile};
use crate::wire::Readiness;
use crate::{locked, span};

/// Number of files of more than one block that are announced and not yet placed. Each has an open file.
const OPEN: usize = 128;
/// Number of files and folders that are announced and not yet placed. Announcements need no answer, so that
/// many small files are on their way in one round trip. At an RTT of 210 ms, 16 384 files that take three
/// round trips each are 26 000 files per second. Each needs about 500 bytes of memory at each end.
const ANNOUNCED: usize = 16_384;
/// Permission bits of a file that was a pipe.
const PIPE_MODE: u32 = 0o600;
/// Time for which a producer has waited when the user is informed.
const NOTED: std::time::Duration = std::time::Duration::from_secs(1);
/// Name of the limit of a socket that sends at its pacing rate.
const PACING: &str = "pacing";

/// Announces the files, and follows what becomes of them.
pub(super) struct Driver<'a> {
    peer: String,
    observer: &'a dyn CopyObserver,
    shared: Arc<Shared>,
    requests: mpsc::UnboundedSender<Request>,
    events: Events,
    /// The relay has accepted connection 0.
    is_accepted: bool,
    /// Every file has been found.
    is_listed: bool,
    /// A file that does not fit into the limits at present.
    waiting: Option<Waiting>,
    /// Files whose target has another hash, although its size and modification time are the same.
    differing: Vec<SourceFile>,
    verify: bool,
    next_stream: u64,
    /// Announced files and folders that are neither placed nor the same already.
    open: BTreeMap<u64, OpenFile>,
    /// Number and size of the files among them that have more than one block.
    large: Large,
    /// The pipe that is the source.
    pipe: Option<OpenPipe>,
    links: Links,
    /// Absent without a rate limit.
    pacing: Option<Pacing>,
    /// What the sockets did could be sampled.
    is_sampled: bool,
    started: Instant,
    total: Totals,
    durable_bytes: u64,
    last_hash: Option<Hex<32>>,
    /// There may be something new to send.
    has_work: bool,
}

/// A file that is about to be announced.
#[derive(Debug)]
struct Waiting {
    source: SourceFile,
    /// Its target is replaced, even if size and modification time are the same.
    replace: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Large {
    count: usize,
    bytes: u64,
}

/// A pipe that is being read.
#[derive(Debug)]
struct OpenPipe {
    stream: u64,
    held: Held,
    /// Time for which it was not read, because the memory was full.
    blocked: std::time::Duration,
    /// The user knows that its producer waits.
    is_noted: bool,
}

/// A file or folder that the relay has not placed yet.
#[derive(Debug)]
struct OpenFile {
    size: u64,
    /// Bytes that are durable, of this transfer and of earlier ones.
    durable: u64,
    is_finished: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    files: u64,
    same: u64,
    skipped: u64,
    bytes: u64,
    resumed: u64,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        peer: String,
        shared: Arc<Shared>,
        requests: mpsc::UnboundedSender<Request>,
        events: Events,
        (started, links, pacing): (Instant, Links, Option<Pacing>),
        verify: bool,
        observer: &'a dyn CopyObserver,
    ) -> Self {
        Self {
            peer,
            observer,
            shared,
            requests,
            events,
            is_accepted: false,
            is_listed: false,
            waiting: None,
            differing: Vec::new(),
            verify,
            next_stream: 1,
            open: BTreeMap::new(),
            large: Large::default(),
            pipe: None,
            links,
            pacing,
            is_sampled: false,
            started,
            total: Totals::default(),
            durable_bytes: 0,
            last_hash: None,
            has_work: false,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_accepted
            && self.is_listed
            && self.waiting.is_none()
            && self.differing.is_empty()
            && self.open.is_empty()
    }

    /// Returns whether another file may be announced.
    pub(super) fn has_room(&self) -> bool {
        !self.is_listed && self.waiting.is_none() && self.open.len() < ANNOUNCED
    }

    /// Announces what has been found; `None` at the end.
    pub(super) fn found(&mut self, found: Option<Result<Found, Error>>) -> Result<(), Error> {
        match found.transpose()? {
            None => self.is_listed = true,
            Some(Found::Folder(target)) => {
                let stream = self.add(OpenFile { size: 0, durable: 0, is_finished: true });
                self.request(Request::Folder { stream, target });
            }
            Some(Found::File(source)) => {
                self.total.files += 1;
                self.total.bytes += source.source.size;
                self.waiting = Some(Waiting { source, replace: false });
                self.announce()?;
            }
            Some(Found::Link { target, to }) => {
                self.total.files += 1;
                let stream = self.add(OpenFile { size: 0, durable: 0, is_finished: true });
                self.request(Request::Link { stream, target, to });
            }
            Some(Found::Special(path)) => {
                self.total.skipped += 1;
                let note = format!("skipping {}, which is neither a file nor a folder", path.display());
                self.observer.note(&note);
            }
        }
        Ok(())
    }

    /// Announces a pipe, and begins to read it.
    pub(super) fn pipe(&mut self, pipe: Pipe, target: RelativePath) -> Result<(), Error> {
        let held = Held::new(&pipe)?;
        let source = SourceFile { path: "-".into(), target, source: held.source()?, mode: PIPE_MODE };
        self.total.files += 1;
        self.large.count += 1;
        let stream = self.add(OpenFile { size: 0, durable: 0, is_finished: false });
        self.request(self.opening(stream, &source, true, Some(pipe.group())));
        let outgoing = Outgoing::pipe(source, Arc::clone(&held.file));
        locked(&self.shared.files).insert(stream, Arc::new(outgoing));
        let (reader, runtime, events) = (held.clone(), Handle::current(), self.events.clone());
        spawn_blocking(move || reader.fill(&pipe, &runtime, &events));
        self.pipe = Some(OpenPipe { stream, held, blocked: std::time::Duration::ZERO, is_noted: false });
        Ok(())
    }

    /// Adds what has been read from the pipe.
    fn piped(&mut self, piped: Piped) -> Result<(), Error> {
        let (size, is_last, blocked) = match piped {
            Piped::Read { size, is_last, blocked } => (size, is_last, blocked),
            Piped::Failed(error) => return Err(Error::system("read the pipe", &error)),
        };
        if size > MOST_SIZE {
            let message = format!("the pipe has more than {MOST_SIZE} bytes");
            return Err(Error::usage(message, "copy it in parts"));
        }
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let stream = pipe.stream;
        pipe.blocked = blocked;
        if blocked >= NOTED && !std::mem::replace(&mut pipe.is_noted, true) {
            self.observer.note("the pipe delivers more than the copy carries, and its producer waits");
        }
        if let Some(open) = self.open.get_mut(&stream) {
            let added = size - open.size;
            open.size = size;
            self.total.bytes += added;
            self.large.bytes += added;
        }
        locked(&self.shared.dispatcher).grow(stream, size);
        self.has_work = true;
        if is_last && let Some(file) = self.outgoing(stream) {
            locked(&file.values).end(size);
            self.finish(stream)?;
        }
        Ok(())
    }

    /// Returns whether a stream is the pipe.
    fn is_pipe(&self, stream: u64) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.stream == stream)
    }

    /// Announces the file that waits, if it fits into the limits.
    fn announce(&mut self) -> Result<(), Error> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let size = waiting.source.source.size;
        if size > BLOCK && (self.large.count >= OPEN || self.large.bytes + size > MOST_SIZE) {
            self.waiting = Some(waiting);
            return Ok(());
        }
        let Waiting { source, replace } = waiting;
        let stream = self.add(OpenFile { size, durable: 0, is_finished: false });
        let request = self.opening(stream, &source, replace, None);
        if size > BLOCK {
            self.large.count += 1;
            self.large.bytes += size;
            let file = Outgoing::open(source).map_err(|(source, error)| unreadable(&source.path, &error))?;
            locked(&self.shared.files).insert(stream, Arc::new(file));
        } else {
            locked(&self.shared.whole).insert(stream, Arc::new(source));
        }
        self.request(request);
        Ok(())
    }

    /// Returns the request that announces a file. `pipe` is the amount that the relay makes durable at once, if
    /// the source is a pipe.
    fn opening(&self, stream: u64, source: &SourceFile, replace: bool, pipe: Option<Bytes>) -> Request {
        Request::Open {
            stream,
            target: source.target.clone(),
            source: source.source,
            mode: source.mode,
            verify: self.verify,
            replace,
            pipe: pipe.map(Bytes::get),
        }
    }

    /// Adds a file or folder that is being announced, and returns its stream.
    fn add(&mut self, file: OpenFile) -> u64 {
        let stream = self.next_stream;
        self.next_stream += 1;
        self.open.insert(stream, file);
        stream
    }

    /// Sends a request on connection 0. If the connection is lost, an event says so.
    fn request(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    fn outgoing(&self, stream: u64) -> Option<Arc<Outgoing>> {
        locked(&self.shared.files).get(&stream).cloned()
    }

    /// Handles events, and then wakes the connections once.
    pub(super) fn handle(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), Error> {
        for event in events {
            self.event(event)?;
        }
        if std::mem::take(&mut self.has_work) {
            self.shared.wake();
        }
        self.observer.progress(Bytes::new(self.durable_bytes), Bytes::new(self.total.bytes));
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Accepted(accepted) => {
                accepted?;
                self.is_accepted = true;
            }
            Event::Reply(reply) => self.reply(reply)?,
            Event::Hashed(stream) => self.finish(stream)?,
            Event::Whole(hash) => self.last_hash = Some(hash),
            Event::Piped(piped) => self.piped(piped)?,
            Event::Sampled(samples) => self.sampled(samples)?,
            Event::Compared(stream, is_same) => self.compared(stream, is_same)?,
            Event::Unreadable(stream, error) => {
                let path = self.source(stream).map(|source| source.path);
                return Err(unreadable(&path.unwrap_or_default(), &error));
            }
            Event::Lost(connection, error) => self.lose(connection, &error)?,
        }
        Ok(())
    }

    /// Records the loss of a connection; without connection 0, no message reaches the relay.
    pub(super) fn lose(&mut self, connection: u32, error: &io::Error) -> Result<(), Error> {
        if !self.links.lose(connection) {
            return Ok(());
        }
        if connection == 0 {
            let hint = match self.pipe {
                None => "run the same command again to continue the copy",
                Some(_) => "run the same command again; a pipe is copied from its beginning",
            };
            return Err(Error::network(format!("lost the connection to {}: {error}", self.peer), hint));
        }
        let returned = {
            let mut dispatcher = locked(&self.shared.dispatcher);
            dispatcher.rest(self.links.resting());
            dispatcher.lost(connection)
        };
        if let Some(pacing) = &mut self.pacing {
            pacing.lost(connection);
        }
        self.share()?;
        self.shared.wake();
        self.observer.note(&format!(
            "lost connection {connection} ({error}); the others retransmit {returned} blocks"
        ));
        Ok(())
    }

    /// Records an open connection; returns the time that it has to wait before it sends.
    pub(super) fn opened_connection(
        &mut self,
        number: u32,
        socket: &Arc<Readiness>,
    ) -> Result<Duration, Error> {
        self.links.opened(number, socket.port());
        locked(&self.shared.dispatcher).rest(self.links.resting());
        let at = self.now();
        let Some(pacing) = &mut self.pacing else { return Ok(Duration::ZERO) };
        let wait = pacing.opened(at, number, socket)?;
        self.share()?;
        Ok(wait)
    }

    /// Shares the rate limit among the connections, if there is one.
    fn share(&mut self) -> Result<(), Error> {
        match &mut self.pacing {
            Some(pacing) => pacing.share(&self.links.demands()),
            None => Ok(()),
        }
    }

    /// Returns the time since the beginning of the copy.
    fn now(&self) -> fullpipe_units::Instant {
        fullpipe_units::Instant::ZERO + span(self.started.elapsed())
    }

    /// Returns the number of a connection to open, if there are too few. The relay has to know the transfer
    /// before another connection joins it.
    pub(super) fn next_to_open(&mut self) -> Option<u32> {
        if self.is_accepted { self.links.next_to_open() } else { None }
    }

    /// Adapts the number of connections to what limits them.
    fn sampled(&mut self, mut samples: Vec<SocketSample>) -> Result<(), Error> {
        self.is_sampled = true;
        if self.pacing.is_some() {
            // All connections share the limit that holds this one back.
            for sample in samples.iter_mut().filter(|sample| sample.limit.as_deref() == Some(PACING)) {
                sample.room = Room::Shared;
            }
        }
        if let Some(count) = self.links.sampled(self.now(), &samples) {
            locked(&self.shared.dispatcher).rest(self.links.resting());
            self.has_work = true;
            let limit = self.links.limit();
            self.observer.connections(count, limit.as_ref().map(|(limit, _)| limit.as_str()));
        }
        self.share()
    }

    fn reply(&mut self, reply: Reply) -> Result<(), Error> {
        match reply {
            Reply::Opened { stream, durable, restarted } => self.opened(stream, &durable, restarted)?,
            Reply::Same { stream } => {
                self.total.same += 1;
                self.close(stream)?;
            }
            Reply::Exists { stream, blake3 } => self.compare(stream, blake3)?,
            Reply::Durable { stream, blocks } => {
                locked(&self.shared.dispatcher).durable(stream, &blocks);
                self.count(stream, &blocks);
                if let (Some(pipe), Some(open)) = (&self.pipe, self.open.get(&stream))
                    && pipe.stream == stream
                {
                    let removed = pipe.held.remove(open.size, &blocks);
                    removed.map_err(|error| Error::system("free the memory of the pipe", &error))?;
                }
            }
            Reply::Placed { stream } => self.close(stream)?,
            Reply::Failed { message, hint } => {
                return Err(Error::runtime(format!("{}: {message}", self.peer), hint));
            }
            Reply::Welcome { .. } => {}
        }
        Ok(())
    }

    /// Hashes a source whose target has the hash `found`.
    fn compare(&mut self, stream: u64, found: Hex<32>) -> Result<(), Error> {
        let Some(source) = self.source(stream) else { return Ok(()) };
        let events = self.events.clone();
        spawn_blocking(move || {
            let event = match hash_file(&source) {
                Ok(hash) => Event::Compared(stream, hash == found),
                Err(error) => Event::Unreadable(stream, error),
            };
            let _ = events.send(event);
        });
        Ok(())
    }

    /// Forgets a file whose target has the same hash, or announces it again.
    fn compared(&mut self, stream: u64, is_same: bool) -> Result<(), Error> {
        if is_same {
            self.total.same += 1;
        } else if let Some(source) = self.source(stream) {
            self.observer.note(&format!(
                "{} has the size and time of its source, and another content; it is replaced",
                source.target
            ));
            self.differing.push(source);
        }
        self.close(stream)
    }

    fn source(&self, stream: u64) -> Option<SourceFile> {
        let whole = locked(&self.shared.whole).get(&stream).map(|file| SourceFile::clone(file));
        whole.or_else(|| Some(self.outgoing(stream)?.source.clone()))
    }

    fn opened(&mut self, stream: u64, durable: &[(u64, u64)], restarted: bool) -> Result<(), Error> {
        let Some(size) = self.open.get(&stream).map(|open| open.size) else { return Ok(()) };
        self.has_work = true;
        let Some(file) = self.outgoing(stream) else {
            locked(&self.shared.dispatcher).add_whole(stream, size);
            return Ok(());
        };
        if restarted && !self.is_pipe(stream) {
            let path = file.source.path.display();
            self.observer.note(&format!("{path} has changed since the interrupted copy, and is sent anew"));
        }
        let count = block_count(size);
        if durable.iter().any(|(start, end)| start >= end || *end > count) {
            return Err(Error::network(format!("{} breaks the protocol", self.peer), ""));
        }
        locked(&self.shared.dispatcher).add(stream, size, durable);
        let resumed = self.count(stream, durable);
        self.total.resumed += resumed;
        if resumed > 0 {
            // While the connections carry the rest, what they do not carry is hashed.
            let (events, durable) = (self.events.clone(), durable.to_vec());
            spawn_blocking(move || {
                let event = match file.hash(&durable) {
                    Ok(()) => Event::Hashed(stream),
                    Err(error) => Event::Unreadable(stream, error),
                };
                let _ = events.send(event);
            });
        }
        Ok(())
    }

    /// Adds durable blocks to the progress; returns their bytes.
    fn count(&mut self, stream: u64, blocks: &[(u64, u64)]) -> u64 {
        let Some(open) = self.open.get_mut(&stream) else { return 0 };
        let numbers = blocks.iter().flat_map(|(start, end)| *start..(*end).min(block_count(open.size)));
        let bytes: u64 =
            numbers.filter_map(|index| block_range(open.size, index)).map(|(_, n)| n as u64).sum();
        open.durable += bytes;
        self.durable_bytes += bytes;
        bytes
    }

    /// States the hash of a file when every block of it has been read.
    fn finish(&mut self, stream: u64) -> Result<(), Error> {
        let (Some(file), Some(open)) = (self.outgoing(stream), self.open.get_mut(&stream)) else {
            return Ok(());
        };
        let Some(hash) = locked(&file.values).root() else { return Ok(()) };
        if std::mem::replace(&mut open.is_finished, true) {
            return Ok(());
        }
        let size = open.size;
        let size = self.is_pipe(stream).then_some(size);
        file.check().map_err(|error| unreadable(&file.source.path, &error))?;
        self.last_hash = Some(hash);
        self.request(Request::Finish { stream, blake3: hash, size });
        Ok(())
    }

    /// Forgets a file that the relay has placed, or had already.
    fn close(&mut self, stream: u64) -> Result<(), Error> {
        let Some(open) = self.open.remove(&stream) else { return Ok(()) };
        if locked(&self.shared.files).remove(&stream).is_some() {
            self.large.count -= 1;
            self.large.bytes -= open.size;
        }
        locked(&self.shared.whole).remove(&stream);
        locked(&self.shared.dispatcher).remove(stream);
        self.durable_bytes += open.size - open.durable.min(open.size);
        self.announce()?;
        if self.waiting.is_none()
            && let Some(source) = self.differing.pop()
        {
            self.durable_bytes -= source.source.size;
            self.waiting = Some(Waiting { source, replace: true });
            self.announce()?;
        }
        Ok(())
    }

    /// Ends the connections.
    pub(super) fn end(&self) {
        self.request(Request::Bye);
        self.shared.work.send_replace(Work::Ended);
    }

    pub(super) fn report(&self, started: Instant) -> CopyReport {
        let wall = span(started.elapsed());
        let sent = locked(&self.shared.sent).clone();
        let rate = |bytes: u64| Rate::mean(Bytes::new(bytes), wall).as_bps();
        let limit = self.links.limit().filter(|_| self.is_sampled);
        let sent_bytes = sent.iter().sum();
        let first_byte = *locked(&self.shared.first_byte);
        let only_hash = self.last_hash.filter(|_| self.total.files == 1);
        CopyReport {
            schema: CopyReport::SCHEMA,
            files: self.total.files,
            same_files: self.total.same,
            skipped_files: self.total.skipped,
            bytes: self.total.bytes,
            sent_bytes,
            resumed_bytes: self.total.resumed,
            wall_s: wall.as_secs_f64(),
            first_byte_s: first_byte.map(|at| span(at - started).as_secs_f64()),
            goodput_bps: rate(sent_bytes),
            blake3: only_hash.map(|hash| hash.to_string()),
            connections: self.links.reports(&sent, wall),
            most_connections: self.links.most_open(),
            advice: limit.iter().filter_map(|(limit, _)| advice(limit)).map(str::to_owned).collect(),
            limit: limit.as_ref().map(|(limit, _)| limit.clone()),
            limit_share: limit.map(|(_, share)| share),
            blocked_s: self.pipe.as_ref().map(|pipe| pipe.blocked.as_secs_f64()),
        }
    }
}

/// Creates the error for a source that cannot be read, or has changed.
fn unreadable(path: &Path, error: &io::Error) -> Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Changed>()) {
        return Error::runtime(
            format!("{} has changed while it was copied", path.display()),
            "run the same command again when nothing writes to it",
        );
    }
    Error::system(format_args!("read {}", path.display()), error)
}
