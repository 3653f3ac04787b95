//! Announces files to the relay, and tracks their state.

mod piped;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use fullpipe_units::{Bytes, Duration, Rate};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::piped::OpenPipe;
use super::connection::{Accepted, Event, Events, REASON, Shared, Work};
use super::links::{Links, SocketSample};
use super::outgoing::{Outgoing, hash_file, unreadable};
use super::pacing::Pacing;
use super::{Carried, CopyObserver};
use crate::engine::{BLOCK, Buffers, MOST_SIZE, Remembered, Room, block_count, block_range};
use crate::error::Error;
use crate::frame::{PipeSource, Reply, Request};
use crate::hex::Hex;
use crate::memory;
use crate::report::{CopyReport, MemoryReport, advice};
use crate::sources::{Found, SourceFile};
use crate::store::Permission;
use crate::tls::SAME_VERSION;
use crate::wire::Readiness;
use crate::{locked, span};

/// Maximum number of files of more than one block that are announced but not yet placed. Each of them keeps a file
/// open.
const OPEN: usize = 128;
/// Maximum number of files and folders that are announced but not yet placed. The next file is announced
/// without waiting for a reply, so one round trip carries many small files. A file takes three round trips:
/// at an RTT of 210 ms, 16 384 files in transit allow 26 000 files per second. Each file needs about 500
/// bytes of memory at each end.
const ANNOUNCED: usize = 16_384;
/// Number of files and folders that are announced before the first reply. Each reply permits two more, so the
/// announcements grow like the congestion window of a connection in slow start. If all were announced at once, the
/// content of the first files would wait for many round trips behind them.
const FIRST_ANNOUNCED: u64 = 128;
/// Name of the limit of a socket that sends at its pacing rate, as samples report it.
const PACING: &str = "pacing";

/// Announces files to the relay, and tracks their state.
pub(super) struct Driver<'a> {
    peer: String,
    observer: &'a dyn CopyObserver,
    shared: Arc<Shared>,
    requests: mpsc::UnboundedSender<Request>,
    events: Events,
    /// Whether the relay has accepted connection 0.
    is_accepted: bool,
    /// Whether the other connections may open before the relay has accepted connection 0.
    opens_early: bool,
    /// Whether every file has been found.
    is_listed: bool,
    /// A file that must wait because it would exceed the limits.
    waiting: Option<Waiting>,
    /// Files whose target has a different hash, although its size and modification time are the same.
    differing: Vec<SourceFile>,
    verify: bool,
    next_stream: u64,
    /// Number of announcements to which the relay has replied.
    answered: u64,
    /// Announced files and folders that have been neither placed nor found unchanged.
    open: BTreeMap<u64, OpenFile>,
    /// Number and total size of the open files that have more than one block.
    large: Large,
    /// The pipe, if the source is a pipe.
    pipe: Option<OpenPipe>,
    links: Links,
    /// Whether the copy has started with the number of connections of an earlier copy.
    is_resumed: bool,
    /// Paces the connections; absent if the copy has no pacer.
    pacing: Option<Pacing>,
    /// Whether the sockets could be sampled.
    is_sampled: bool,
    started: Instant,
    total: Totals,
    durable_bytes: u64,
    last_hash: Option<Hex<32>>,
    /// Whether there may be new data to send.
    has_work: bool,
    /// Connections to close and open anew.
    closing: Vec<u32>,
    /// Whether the memory of this process counts towards the budget.
    counts_process: bool,
    /// Fixed size of the send buffers, if the memory budget requires one.
    fixed_buffer: Option<Bytes>,
}

/// A file that is about to be announced.
#[derive(Debug)]
struct Waiting {
    source: SourceFile,
    /// Whether to replace the target even if its size and modification time are the same.
    replace: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Large {
    count: usize,
    bytes: u64,
}

/// A file or folder that the relay has not placed yet.
#[derive(Debug)]
struct OpenFile {
    size: u64,
    /// Number of durable bytes, sent by this transfer or an earlier one.
    durable: u64,
    is_finished: bool,
    /// Whether this is a file or a link, and not a folder.
    is_file: bool,
    /// Whether the relay has replied to the announcement.
    is_answered: bool,
}

impl OpenFile {
    /// Describes a file of `size` bytes whose blocks or content follow its announcement.
    fn file(size: u64) -> Self {
        Self { size, durable: 0, is_finished: false, is_file: true, is_answered: false }
    }

    /// Describes a link or a folder, which its announcement describes completely.
    fn without_content(is_file: bool) -> Self {
        Self { size: 0, durable: 0, is_finished: true, is_file, is_answered: false }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    files: u64,
    same: u64,
    /// Files and links that this attempt has placed.
    placed: u64,
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
            opens_early: false,
            is_listed: false,
            waiting: None,
            differing: Vec::new(),
            verify,
            next_stream: 1,
            answered: 0,
            open: BTreeMap::new(),
            large: Large::default(),
            pipe: None,
            links,
            is_resumed: false,
            pacing,
            is_sampled: false,
            started,
            total: Totals::default(),
            durable_bytes: 0,
            last_hash: None,
            has_work: false,
            closing: Vec::new(),
            counts_process: true,
            fixed_buffer: None,
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
        let is_permitted = self.next_stream <= FIRST_ANNOUNCED + 2 * self.answered;
        !self.is_listed && self.waiting.is_none() && self.open.len() < ANNOUNCED && is_permitted
    }

    /// Announces a file that has been found; `None` means that there are no more.
    pub(super) fn found(&mut self, found: Option<Result<Found, Error>>) -> Result<(), Error> {
        match found.transpose()? {
            None => self.is_listed = true,
            Some(Found::Folder { target, permission: Permission { mode, owner } }) => {
                let stream = self.add(OpenFile::without_content(false));
                self.request(Request::Folder { stream, target, mode: Some(mode), owner });
            }
            Some(Found::File(source)) => {
                self.total.files += 1;
                self.total.bytes += source.source.size;
                self.waiting = Some(Waiting { source, replace: false });
                self.announce()?;
            }
            Some(Found::Link { target, to }) => {
                self.total.files += 1;
                let stream = self.add(OpenFile::without_content(true));
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

    fn broken(&self) -> Error {
        Error::network(format!("{} violates the protocol", self.peer), SAME_VERSION)
    }

    /// Announces the waiting file, if it fits into the limits.
    fn announce(&mut self) -> Result<(), Error> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let size = waiting.source.source.size;
        if size > BLOCK && (self.large.count >= OPEN || self.large.bytes + size > MOST_SIZE) {
            self.waiting = Some(waiting);
            return Ok(());
        }
        let Waiting { source, replace } = waiting;
        let stream = self.add(OpenFile::file(size));
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

    /// Returns the request that announces a file or a pipe.
    fn opening(&self, stream: u64, source: &SourceFile, replace: bool, pipe: Option<PipeSource>) -> Request {
        Request::Open {
            stream,
            target: source.target.clone(),
            source: source.source,
            mode: source.permission.mode,
            owner: source.permission.owner,
            verify: self.verify,
            replace,
            pipe,
        }
    }

    /// Adds a file or folder that is being announced, and returns its stream.
    fn add(&mut self, file: OpenFile) -> u64 {
        let stream = self.next_stream;
        self.next_stream += 1;
        self.open.insert(stream, file);
        stream
    }

    /// Sends a request on connection 0. If the connection is lost, an event reports the loss.
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
                let Accepted { notes, reached } = accepted?;
                notes.iter().for_each(|note| self.observer.note(note));
                self.is_accepted = true;
                if let Some(reached) = reached {
                    self.observer.connected(&reached);
                    if !self.is_resumed {
                        // The receive buffers of the relay are known now.
                        self.links.forecast(reached.rtt, reached.buffers, self.shared.found_size());
                    }
                }
            }
            Event::Joined(connection) => self.links.joined(connection),
            Event::Note(note) => self.observer.note(&note),
            Event::Reply(reply) => self.reply(reply)?,
            Event::Hashed(stream) => self.finish(stream)?,
            Event::Whole(hash) => self.last_hash = Some(hash),
            Event::Rest(stream, is_at_end) => self.rest(stream, is_at_end)?,
            Event::Sampled(samples) => self.sampled(samples)?,
            Event::Compared(stream, is_same) => self.compared(stream, is_same)?,
            Event::Unreadable(stream, error) => {
                let path = self.source(stream).map(|source| source.path);
                return Err(unreadable(&path.unwrap_or_default(), &error));
            }
            // The connection may have been closed by this end in the meantime.
            Event::Lost(connection, _) if !self.links.is_open(connection) => {}
            Event::Lost(connection, _) if connection != 0 && self.links.is_tried_again(connection) => {
                self.reopen(connection);
            }
            Event::Lost(connection, error) => self.lose(connection, &error)?,
        }
        Ok(())
    }

    /// Records the loss of a connection; returns an error for connection 0, because no message reaches the
    /// relay without it.
    pub(super) fn lose(&mut self, connection: u32, error: &io::Error) -> Result<(), Error> {
        if !self.links.lose(connection) {
            return Ok(());
        }
        let error = closed(error);
        if connection == 0 {
            let hint = match &self.pipe {
                None => "run the same command again to continue the copy",
                Some(pipe) if pipe.held.is_named() => {
                    "run the same command again; its first progress line is the offset at which the \
                     producer has to resume"
                }
                Some(_) => {
                    "run the same command again; without --stream, it copies the pipe from the beginning"
                }
            };
            return Err(Error::network(format!("lost the connection to {}: {error}", self.peer), hint));
        }
        let returned = self.give_back(connection);
        self.share()?;
        // A relay that ends the transfer closes all connections, and its reason may arrive last. The loss is therefore
        // reported only if the copy goes on.
        let (events, note) = (
            self.events.clone(),
            format!(
                "lost connection {connection} ({error}); the other connections retransmit {returned} blocks"
            ),
        );
        tokio::spawn(async move {
            tokio::time::sleep(REASON).await;
            let _ = events.send(Event::Note(note));
        });
        Ok(())
    }

    /// Gives the blocks of a closed connection to the others; returns their number.
    fn give_back(&mut self, connection: u32) -> u64 {
        if let Some(pacing) = &mut self.pacing {
            pacing.lost(connection);
        }
        let mut dispatcher = locked(&self.shared.dispatcher);
        dispatcher.rest(self.links.resting());
        let returned = dispatcher.lost(connection);
        drop(dispatcher);
        self.shared.wake();
        returned
    }

    /// Records that a connection could not be opened. Before the relay has accepted connection 0, the reason may be one
    /// that connection 0 will report. The connection is therefore opened again once connection 0 has been accepted.
    pub(super) fn not_opened(&mut self, connection: u32, error: &io::Error) -> Result<(), Error> {
        if self.is_accepted {
            return self.lose(connection, error);
        }
        self.opens_early = false;
        self.links.close(connection);
        Ok(())
    }

    /// Closes a connection that is to be opened anew.
    fn reopen(&mut self, connection: u32) {
        self.opens_early &= self.is_accepted;
        self.links.close(connection);
        self.give_back(connection);
        self.closing.push(connection);
    }

    /// Returns the connections that must be closed before they are opened anew; a second call returns none.
    pub(super) fn take_closing(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.closing)
    }

    /// Sets whether the memory of this process counts towards the budget, and the fixed size of the send buffers.
    pub(super) fn with_memory(self, counts_process: bool, fixed_buffer: Option<Bytes>) -> Self {
        Self { counts_process, fixed_buffer, ..self }
    }

    /// Compares the memory of the process and its sockets with the budget, and updates which connections get
    /// blocks.
    fn remember(&mut self, at: fullpipe_units::Instant, samples: &[SocketSample]) {
        let held = self.pipe.as_ref().map_or(Bytes::ZERO, |pipe| pipe.held.in_memory());
        let process = if self.counts_process { memory::resident() + held } else { Bytes::ZERO };
        self.links.remember(at, process, samples);
        let limited = match &self.pacing {
            Some(pacing) if pacing.is_limiting() => self.links.limited_by(PACING, samples),
            _ => BTreeSet::new(),
        };
        let mut dispatcher = locked(&self.shared.dispatcher);
        dispatcher.hold(self.links.budget.is_exceeded());
        dispatcher.rescue(self.links.numbers(), &limited);
        dispatcher.rest(self.links.resting());
        self.has_work = true;
    }

    /// Records an open connection; returns the time that the connection must wait before it sends.
    pub(super) fn opened_connection(
        &mut self,
        number: u32,
        socket: &Arc<Readiness>,
    ) -> Result<Duration, Error> {
        self.links.opened(number, socket.ends());
        let mut dispatcher = locked(&self.shared.dispatcher);
        dispatcher.reopened(number);
        dispatcher.rest(self.links.resting());
        drop(dispatcher);
        let at = self.now();
        let Some(pacing) = &mut self.pacing else { return Ok(Duration::ZERO) };
        let wait = pacing.opened(at, number, socket)?;
        self.share()?;
        Ok(wait)
    }

    /// Shares the rate limit among the connections, if there is one.
    fn share(&mut self) -> Result<(), Error> {
        let Some(pacing) = self.pacing.as_mut().filter(|pacing| pacing.is_limiting()) else { return Ok(()) };
        // More blocks may follow while files are being found or announced, and from a pipe.
        let is_last = self.is_listed && self.waiting.is_none() && self.pipe.is_none();
        let finished = match is_last && self.answered == self.next_stream - 1 {
            true => locked(&self.shared.dispatcher).finished(self.links.numbers()),
            false => BTreeSet::new(),
        };
        pacing.share(&self.links.demands(&finished))
    }

    /// Returns the time since the beginning of the copy.
    fn now(&self) -> fullpipe_units::Instant {
        fullpipe_units::Instant::ZERO + span(self.started.elapsed())
    }

    /// Returns the number of a connection to open, if more connections are needed.
    pub(super) fn next_to_open(&mut self) -> Option<u32> {
        if self.is_accepted || self.opens_early { self.links.next_to_open() } else { None }
    }

    /// Lets the other connections open before the relay has accepted connection 0.
    pub(super) fn open_early(self) -> Self {
        Self { opens_early: true, ..self }
    }

    /// Starts with the number of connections of the copy `earlier`, if the path has the same RTT of `rtt`; otherwise with
    /// as many as fill the link with these buffers, if its rate is known. A short copy starts with more if this makes it
    /// shorter. Has no effect if the number is fixed.
    pub(super) fn forecast(&mut self, rtt: Duration, buffers: Buffers, earlier: Option<Remembered>) {
        let size = self.shared.found_size();
        if let Some(earlier) = earlier
            && let Some(count) = self.links.resume(earlier, rtt, size)
        {
            if count > 1 {
                let Remembered { connections, rate, .. } = earlier;
                self.observer.note(&format!(
                    "starting with {count} connections; {connections} reached {rate} to this peer before"
                ));
            }
            self.is_resumed = true;
        } else {
            self.links.forecast(rtt, buffers, size);
        }
    }

    /// Asks the client to open more connections if they are needed, when a relay sends.
    pub(super) fn ask_for_connections(&mut self) {
        while self.links.are_chosen()
            && let Some(connection) = self.next_to_open()
        {
            self.request(Request::Connect { connection });
        }
    }

    /// Reports the main limit of the connections to the client, when a relay sends.
    pub(super) fn tell_limit(&self) {
        if let Some((limit, share)) = self.links.limit() {
            self.request(Request::Limited { limit, percent: (share * 100.0) as u32 });
        }
    }

    /// Adapts the number of connections to the limits in `samples`.
    fn sampled(&mut self, mut samples: Vec<SocketSample>) -> Result<(), Error> {
        self.is_sampled = true;
        let at = self.now();
        if let Some(pacing) = &mut self.pacing {
            pacing.correct(at, self.links.sent(&samples));
            // The rate limit, which paces this connection, is shared by all connections.
            let is_paced = |sample: &SocketSample| sample.limit.as_deref() == Some(PACING);
            for sample in samples.iter_mut().filter(|sample| pacing.is_limiting() && is_paced(sample)) {
                sample.room = Room::Shared;
            }
        }
        self.remember(at, &samples);
        if let Some(laggard) = self.links.laggard(at, &samples) {
            self.observer.note(&format!(
                "connection {laggard} was far slower than the others for 5 s, so it is opened anew from another port"
            ));
            self.reopen(laggard);
        }
        if let Some(count) = self.links.sampled(at, &samples) {
            locked(&self.shared.dispatcher).rest(self.links.resting());
            self.has_work = true;
            let limit = self.links.limit();
            self.observer.connections(count, limit.as_ref().map(|(limit, _)| limit.as_str()));
        }
        self.share()
    }

    fn reply(&mut self, reply: Reply) -> Result<(), Error> {
        self.answered(&reply);
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
                if let Some(pipe) = self.pipe.as_ref().filter(|pipe| pipe.stream == stream) {
                    let released = pipe.held.release(&blocks);
                    released.map_err(|error| Error::system("free the memory of the pipe", &error))?;
                    pipe.held.report(self.observer);
                }
            }
            Reply::Placed { stream, pipe: Some(placed) } if self.is_pipe(stream) => {
                self.placed_pipe(stream, placed)?;
            }
            Reply::Placed { stream, .. } => {
                let is_file = self.open.get(&stream).is_some_and(|open| open.is_file);
                self.total.placed += u64::from(is_file);
                self.close(stream)?;
            }
            Reply::Failed { message, hint, temporary } => {
                let error = Error::runtime(format!("{}: {message}", self.peer), hint);
                return Err(if temporary { error.temporary() } else { error });
            }
            Reply::Welcome { .. } => {}
        }
        Ok(())
    }

    /// Counts the announcement that `reply` concerns, if this is the first reply to it.
    fn answered(&mut self, reply: &Reply) {
        if let Reply::Opened { stream, .. }
        | Reply::Same { stream }
        | Reply::Exists { stream, .. }
        | Reply::Placed { stream, .. } = reply
            && let Some(open) = self.open.get_mut(stream)
        {
            self.answered += u64::from(!std::mem::replace(&mut open.is_answered, true));
        }
    }

    /// Hashes a source, to compare it with its target's hash `found`.
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

    /// Closes a file whose target has the same hash, or announces the file again.
    fn compared(&mut self, stream: u64, is_same: bool) -> Result<(), Error> {
        if is_same {
            self.total.same += 1;
        } else if let Some(source) = self.source(stream) {
            self.observer.note(&format!(
                "replacing {}, which has the size and the modification time of its source, but different content",
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
        if self.is_pipe(stream) {
            return self.opened_pipe(stream, durable);
        }
        let Some(file) = self.outgoing(stream) else {
            locked(&self.shared.dispatcher).add_whole(stream, size);
            return Ok(());
        };
        if restarted {
            let path = file.source.path.display();
            self.observer.note(&format!(
                "{path} has changed since the interrupted copy, so the copy starts \
                                         from the beginning"
            ));
        }
        let count = block_count(size);
        if durable.iter().any(|(start, end)| start >= end || *end > count) {
            return Err(self.broken());
        }
        locked(&self.shared.dispatcher).add(stream, size, durable);
        let resumed = self.count(stream, durable);
        self.total.resumed += resumed;
        if resumed > 0 {
            // While the connections send the remaining blocks, hash the blocks that are not sent.
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

    /// Adds durable blocks to the progress; returns their total length in bytes.
    fn count(&mut self, stream: u64, blocks: &[(u64, u64)]) -> u64 {
        let Some(open) = self.open.get_mut(&stream) else { return 0 };
        let numbers = blocks.iter().flat_map(|(start, end)| *start..(*end).min(block_count(open.size)));
        let bytes: u64 =
            numbers.filter_map(|index| block_range(open.size, index)).map(|(_, n)| n as u64).sum();
        open.durable += bytes;
        self.durable_bytes += bytes;
        bytes
    }

    /// Sends the hash of a file once every block of the file has been read.
    fn finish(&mut self, stream: u64) -> Result<(), Error> {
        let (Some(file), Some(open)) = (self.outgoing(stream), self.open.get_mut(&stream)) else {
            return Ok(());
        };
        let pipe = self.pipe.as_ref().filter(|pipe| pipe.stream == stream);
        if pipe.is_some_and(|pipe| !pipe.is_opened) {
            return Ok(());
        }
        let from = pipe.and_then(|pipe| pipe.held.from()).unwrap_or(0);
        let values = locked(&file.values);
        let hash = if from == 0 { values.root() } else { values.suffix(from) };
        drop(values);
        let Some(hash) = hash else { return Ok(()) };
        if std::mem::replace(&mut open.is_finished, true) {
            return Ok(());
        }
        let size = pipe.is_some().then_some(open.size);
        file.check().map_err(|error| unreadable(&file.source.path, &error))?;
        self.last_hash = Some(hash);
        self.request(Request::Finish { stream, blake3: hash, size, from });
        Ok(())
    }

    /// Closes a file that the relay has placed, or already had.
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

    /// Reports a failure to the peer, and ends the connections.
    pub(super) fn fail(&self, error: &Error) {
        let Error { message, hint, .. } = error.clone();
        self.request(Request::Failed { message, hint });
        self.shared.work.send_replace(Work::Ended);
    }

    /// Ends the connections.
    pub(super) fn end(&self) {
        self.request(Request::Bye);
        self.shared.work.send_replace(Work::Ended);
    }

    /// Adds the results of this attempt to the totals for the next attempt.
    pub(super) fn carry(&self, carried: &mut Carried) {
        carried.was_accepted |= self.is_accepted;
        carried.sent += locked(&self.shared.sent).iter().sum::<u64>();
        carried.first_byte = carried.first_byte.or(*locked(&self.shared.first_byte));
        carried.placed += self.total.placed;
        carried.resumed = carried.resumed.max(self.total.resumed.saturating_sub(carried.durable));
        carried.durable = carried.durable.max(self.durable_bytes);
        self.remember_path(carried);
    }

    /// Keeps what this attempt has seen of the path.
    pub(super) fn remember_path(&self, carried: &mut Carried) {
        carried.path = self.links.outcome().or(carried.path);
    }

    /// Returns the result of the last attempt; `carried` contains the totals of the earlier attempts.
    pub(super) fn report(&self, carried: &Carried) -> CopyReport {
        let wall = span(self.started.elapsed());
        let sent = locked(&self.shared.sent).clone();
        let rate = |bytes: u64| Rate::mean(Bytes::new(bytes), wall).as_bps();
        let limit = self.links.limit().filter(|_| self.is_sampled);
        let sent_bytes = carried.sent + sent.iter().sum::<u64>();
        let facts = self.links.facts(Rate::from_bps(rate(sent_bytes)));
        let first_byte = carried.first_byte.or(*locked(&self.shared.first_byte));
        let pipe = self.pipe.as_ref().map(|pipe| pipe.held.summary(Instant::now()));
        let resumed = self.total.resumed.saturating_sub(carried.durable).max(carried.resumed);
        let only_hash = self.last_hash.filter(|_| self.total.files == 1);
        CopyReport {
            schema: CopyReport::SCHEMA,
            files: self.total.files,
            // Files that an earlier attempt has placed count as unchanged in this attempt.
            same_files: self.total.same.saturating_sub(carried.placed),
            skipped_files: self.total.skipped,
            bytes: self.total.bytes,
            sent_bytes,
            resumed_bytes: pipe.as_ref().map_or(resumed, |pipe| pipe.begin_bytes),
            wall_s: wall.as_secs_f64(),
            first_byte_s: first_byte.map(|at| span(at - self.started).as_secs_f64()),
            goodput_bps: rate(sent_bytes),
            blake3: only_hash.map(|hash| hash.to_string()),
            connections: self.links.reports(&sent, wall),
            most_connections: self.links.most_open(),
            memory: MemoryReport {
                rss_bytes: memory::most_resident().get(),
                kernel_bytes: self.is_sampled.then_some(self.links.budget.most_kernel().get()),
                fixed_buffer_bytes: self.fixed_buffer.map(Bytes::get),
                held_to: self.links.held_to(),
            },
            forecast: None,
            advice: match &limit {
                Some((limit, _)) if limit == "sndbuf" && self.fixed_buffer.is_some() => {
                    vec!["a larger --memory".into()]
                }
                limit => limit.iter().filter_map(|(limit, _)| advice(limit, facts)).collect(),
            },
            limit: limit.as_ref().map(|(limit, _)| limit.clone()),
            limit_share: limit.map(|(_, share)| share),
            pipe,
            reconnects: carried.reconnects,
        }
    }
}

/// Returns the reason for the loss of a connection. The message that the TLS library returns for a killed peer is
/// replaced, because it refers to a manual.
fn closed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the other end closed the connection".into(),
        _ => error.to_string(),
    }
}
