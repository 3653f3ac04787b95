//! A transfer at the receiver: the files that arrive on its connections.

mod folders;
mod small;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fullpipe_units::{Bytes, Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use self::small::Arrived;
use crate::engine::{BLOCK, Groups, MOST_SIZE, block_range};
use crate::error::{Error, Outlook};
use crate::frame::{DataHeader, HASH, Header, MOST_CONNECTIONS, PipeSource, Reply, Request, Source};
use crate::hex::Hex;
use crate::incoming::{Decision, Incoming};
use crate::name::{LinkContent, RelativePath, StreamName};
use crate::outlet::Outlet;
use crate::store::{Announced, FileStore, Lease, Opened, Permission, Whole};
use crate::{locked, span, wire};

/// Maximum number of files of more than one block that a transfer may have open at the same time.
const MOST_OPEN: usize = 256;
/// Maximum number of files of at most one block that are announced but have not arrived.
const MOST_ANNOUNCED: usize = 32_768;
/// Maximum number of block ranges in a message, which keeps the message below its maximum length.
const MOST_RANGES: usize = 2000;
/// Maximum number of replies that wait to be sent. A transfer ends if its client does not read them.
pub(crate) const MOST_REPLIES: usize = 2 * MOST_ANNOUNCED;
/// Maximum number of replies that are written at once.
const MOST_TOGETHER: usize = 256;
/// Number of small files that are placed at the same time, and number of large ones. Each waits for several disk writes,
/// which the disk and its file system can combine.
const PLACING: u32 = 16;
/// Size in bytes of a connection's receive buffer, which holds several messages.
const BUFFER: usize = 64 << 10;

/// A transfer, shared by the tasks of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    store: Arc<FileStore>,
    streams: Mutex<BTreeMap<u64, Arc<Incoming>>>,
    /// Small files that have been announced but have not arrived.
    announced: Mutex<BTreeMap<u64, Announced>>,
    /// Small files that have arrived and wait to be placed.
    arrived: Mutex<Arrived>,
    /// Room for such files.
    room: Arc<Semaphore>,
    /// Small files and links that have been renamed, but whose new names would not survive a crash yet.
    renamed: Mutex<Vec<(u64, Lease)>>,
    /// Complete pipes whose records can be removed after the end of the transfer.
    forgettable: Mutex<Vec<(RelativePath, StreamName)>>,
    groups: Mutex<Groups>,
    /// Open connections other than connection 0, by number.
    connections: Mutex<BTreeMap<u32, Arc<Notify>>>,
    replies: mpsc::Sender<Reply>,
    written: Notify,
    /// Notified when a group of data has become durable.
    synced: Notify,
    has_renamed: Notify,
    placing: Arc<Semaphore>,
    closed: watch::Sender<bool>,
    started: tokio::time::Instant,
    totals: Mutex<Totals>,
    /// Targets to which the relay may write, if this host is a client that asked for files.
    expected: Option<Vec<PathBuf>>,
    /// Pipe to which the content of the only file of the transfer is written, if the target is a pipe.
    outlet: Option<Arc<Outlet>>,
    /// Passes on the connection numbers that the relay asks for, if this host is a client that asked for
    /// files.
    asked: Option<mpsc::UnboundedSender<u32>>,
    /// Main limit of the sending relay, and the percentage of the time in which it applied.
    limited: Mutex<Option<(String, u32)>>,
    /// Symbolic links to create at the end of the transfer.
    links: Mutex<Vec<(RelativePath, LinkContent)>>,
    failure: Mutex<Option<Error>>,
}

/// Totals of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) received: Bytes,
    /// Number of files that were unchanged at the target.
    pub(crate) same: u64,
    /// Total size of all files.
    pub(crate) bytes: Bytes,
    /// Payload that an earlier transfer made durable.
    pub(crate) resumed: Bytes,
    /// Payload that was received on each connection.
    pub(crate) connections: [u64; MOST_CONNECTIONS as usize],
    pub(crate) first_byte: Option<tokio::time::Instant>,
    /// Hash of the most recently placed file.
    pub(crate) hash: Option<Hex<HASH>>,
    /// Whether the sender has ended the transfer.
    pub(crate) is_complete: bool,
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl Session {
    pub(crate) fn new(store: Arc<FileStore>, replies: mpsc::Sender<Reply>) -> Self {
        Self {
            store,
            streams: Mutex::default(),
            announced: Mutex::default(),
            arrived: Mutex::default(),
            room: Arc::new(Semaphore::new(small::ROOM as usize)),
            renamed: Mutex::default(),
            forgettable: Mutex::default(),
            groups: Mutex::default(),
            connections: Mutex::default(),
            replies,
            written: Notify::new(),
            synced: Notify::new(),
            has_renamed: Notify::new(),
            placing: Arc::new(Semaphore::new(PLACING as usize)),
            closed: watch::Sender::new(false),
            started: tokio::time::Instant::now(),
            totals: Mutex::default(),
            expected: None,
            outlet: None,
            asked: None,
            limited: Mutex::default(),
            links: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Restricts the sender to the targets `expected` and paths below them that do not pass through symbolic
    /// links. A client that fetches files does not trust the relay with any other path.
    ///
    /// `asked` receives the numbers of the connections that the relay asks for.
    pub(crate) fn expecting(self, expected: Vec<PathBuf>, asked: mpsc::UnboundedSender<u32>) -> Self {
        Self { expected: Some(expected), asked: Some(asked), ..self }
    }

    /// Sets the pipe to which the content of the only file is written, if the target is a pipe.
    pub(crate) fn with_outlet(self, outlet: Option<Arc<Outlet>>) -> Self {
        Self { outlet, ..self }
    }

    /// Returns the main limit of the sending relay, and the percentage of the time in which it applied.
    pub(crate) fn limited(&self) -> Option<(String, u32)> {
        locked(&self.limited).clone()
    }

    /// Returns the error that ended the transfer, if there was one; a second call returns `None`.
    pub(crate) fn failure(&self) -> Option<Error> {
        locked(&self.failure).take()
    }

    /// Returns an error if a target was not asked for, or if its path passes through a symbolic link.
    fn check_target(&self, target: &RelativePath) -> Result<(), Error> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let path = target.as_path();
        if !expected.iter().any(|expected| path.starts_with(expected)) {
            return Err(Error::network(
                format!("the relay sends {target}, which this host did not request"),
                "",
            ));
        }
        let passes = self.store.passes_link(target);
        if passes.map_err(|error| Error::system(format_args!("write {target}"), &error))? {
            return Err(Error::runtime(
                format!("{target} leads through a symbolic link"),
                "remove the link, or choose another target",
            ));
        }
        Ok(())
    }

    /// Receives a transfer on connection 0 until it ends. Returns the task that writes the last replies; it
    /// ends when the session is dropped.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        (mut reader, mut writer): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
        mut outgoing: mpsc::Receiver<Reply>,
    ) -> (io::Result<()>, JoinHandle<io::Result<()>>) {
        let sending = tokio::spawn(async move {
            let mut replies = Vec::new();
            // Several replies share a TLS record and a packet.
            while outgoing.recv_many(&mut replies, MOST_TOGETHER).await > 0 {
                let mut buffer = Vec::new();
                for reply in replies.drain(..) {
                    wire::push_message(&mut buffer, &reply)?;
                }
                writer.write_all(&buffer).await?;
                writer.flush().await?;
            }
            writer.shutdown().await
        });
        let keeping = tokio::spawn(Arc::clone(self).keep_durable());
        let settling = tokio::spawn(Arc::clone(self).keep_settled());
        let served = self.read(0, &mut reader).await;
        self.end().await;
        // The tasks fail only if they panic, and the panic has been reported.
        let _ = (keeping.await, settling.await);
        (served, sending)
    }

    pub(crate) fn totals(&self) -> Totals {
        *locked(&self.totals)
    }

    /// Sends a reply on connection 0. If too many replies are waiting, the transfer ends. Other errors are
    /// ignored, because the reading task notices if the client has disconnected.
    pub(crate) fn reply(&self, reply: Reply) {
        if let Err(TrySendError::Full(_)) = self.replies.try_send(reply) {
            self.close();
        }
    }

    /// Adds a connection. A connection that its sender opens anew replaces the earlier one of the same number.
    pub(crate) fn enter(&self, connection: u32) -> Entry {
        let replaced = Arc::new(Notify::new());
        if let Some(earlier) = locked(&self.connections).insert(connection, Arc::clone(&replaced)) {
            earlier.notify_one();
        }
        Entry { connection, replaced }
    }

    /// Handles the frames of a connection until it or the transfer ends, or until it is replaced.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        entry: Entry,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<()> {
        let served = tokio::select! {
            served = self.read(entry.connection, reader) => served,
            () = entry.replaced.notified() => Ok(()),
        };
        self.leave(entry);
        served
    }

    /// Removes a connection that has ended.
    pub(crate) fn leave(&self, entry: Entry) {
        let mut connections = locked(&self.connections);
        if connections.get(&entry.connection).is_some_and(|present| Arc::ptr_eq(present, &entry.replaced)) {
            connections.remove(&entry.connection);
        }
    }

    /// Reports a failure to the client, and ends the transfer.
    pub(crate) fn fail(&self, error: Error) {
        locked(&self.failure).get_or_insert_with(|| error.clone());
        let Error { message, hint, outlook, .. } = error;
        let temporary = outlook == Outlook::Temporary;
        self.reply(Reply::Failed { message, hint, temporary });
        self.close();
    }

    /// Ends the tasks of all connections.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    fn now(&self) -> Instant {
        Instant::ZERO + span(self.started.elapsed())
    }

    /// Handles the frames of a connection until the connection or the transfer ends.
    pub(crate) async fn read(
        self: &Arc<Self>,
        connection: u32,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        let mut closed = self.closed.subscribe();
        // One buffer serves all blocks: if many threads allocated a buffer per block, the allocator would retain much
        // of the freed memory.
        let mut block = Vec::new();
        loop {
            if *closed.borrow() {
                return Ok(());
            }
            let header = tokio::select! {
                header = wire::read_header(&mut reader) => header?,
                _ = closed.changed() => continue,
            };
            match header {
                None => return Ok(()),
                Some(Header::Data(data)) => {
                    block.resize(data.carried(), 0);
                    reader.read_exact(&mut block).await?;
                    self.count(connection, block.len());
                    self.block(data, &mut block).await?;
                }
                Some(Header::Whole { stream, length, sparse }) => {
                    let bytes = wire::read_content(&mut reader, length).await?;
                    self.count(connection, length - HASH);
                    self.whole(stream, bytes, sparse).await?;
                }
                Some(Header::Control { length }) => {
                    let mut requests = vec![wire::read_message::<Request>(&mut reader, length).await?];
                    while wire::has_message(reader.buffer()) {
                        requests.extend(wire::next_message::<Request>(&mut reader).await?);
                    }
                    if self.requests(requests).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Adds the payload of a frame to the totals.
    fn count(&self, connection: u32, length: usize) {
        let mut totals = locked(&self.totals);
        totals.first_byte.get_or_insert_with(tokio::time::Instant::now);
        if let Some(received) = totals.connections.get_mut(connection as usize) {
            *received += length as u64;
        }
    }

    /// Handles messages that arrived together; returns whether the transfer has ended.
    async fn requests(self: &Arc<Self>, requests: Vec<Request>) -> io::Result<bool> {
        let mut files = Vec::new();
        for request in requests {
            if let Request::Open { stream, target, source, mode, owner, verify, replace, pipe } = request {
                let permission = Permission { mode, owner };
                files.push(OpenedFile { stream, target, source, permission, verify, replace, pipe });
                continue;
            }
            self.open(std::mem::take(&mut files)).await?;
            match request {
                Request::Failed { message, hint } => {
                    locked(&self.failure).get_or_insert(Error::runtime(message, hint));
                    return Ok(true);
                }
                Request::Bye => {
                    self.forget_pipes().await?;
                    self.create_links().await?;
                    locked(&self.totals).is_complete = true;
                    return Ok(true);
                }
                Request::Hello { .. } => return Err(invalid("the connection has sent a second hello")),
                Request::Finish { stream, blake3, size, from } => {
                    let incoming = locked(&self.streams).get(&stream).cloned();
                    let incoming =
                        incoming.ok_or_else(|| invalid("the peer ended a file that is not open"))?;
                    if !incoming.expect(blake3, size, from) {
                        return Err(invalid("the peer sent a file size that is not possible"));
                    }
                    self.conclude(incoming);
                }
                Request::Folder { stream, target, mode, owner } => {
                    let permission = mode.map(|mode| Permission { mode, owner });
                    self.folder(stream, target, permission).await?;
                }
                Request::Link { stream, target, to } => self.link(stream, target, to).await?,
                Request::Connect { connection } => {
                    let asked = self.asked.as_ref();
                    // After the end of the transfer, the connection is not opened.
                    let asked = asked.map(|asked| asked.send(connection).is_ok());
                    asked.ok_or_else(|| {
                        invalid("the peer requested a connection, although it opens the connections itself")
                    })?;
                }
                Request::Limited { limit, percent } => {
                    *locked(&self.limited) = Some((limit, percent.min(100)));
                }
                Request::Open { .. } => {}
            }
        }
        self.open(files).await?;
        Ok(false)
    }

    /// Opens files, and replies to each announcement.
    async fn open(self: &Arc<Self>, files: Vec<OpenedFile>) -> io::Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        self.check_limits(&files)?;
        let session = Arc::clone(self);
        let opened = spawn_blocking(move || {
            for file in files {
                if let Err(error) = session.open_one(file) {
                    session.fail(error);
                    break;
                }
            }
        });
        opened.await.map_err(io::Error::other)
    }

    fn check_limits(&self, files: &[OpenedFile]) -> io::Result<()> {
        let (streams, announced) = (locked(&self.streams), locked(&self.announced));
        let (mut large, mut small) = (streams.len(), announced.len());
        let mut size = streams.values().map(|incoming| incoming.size).sum::<u64>();
        for file in files {
            if streams.contains_key(&file.stream) || announced.contains_key(&file.stream) {
                return Err(invalid("the peer opened a stream that is already open"));
            }
            // The size of a pipe is not known, so a pipe may not be open at the same time as other files.
            let announced = if file.pipe.is_some() { MOST_SIZE } else { file.source.size };
            if announced > BLOCK {
                large += 1;
                size = size.saturating_add(announced);
            } else {
                small += 1;
            }
        }
        if large > MOST_OPEN || small > MOST_ANNOUNCED || size > MOST_SIZE {
            return Err(invalid("the peer opened too many streams, or streams that are too large"));
        }
        Ok(())
    }

    fn open_one(self: &Arc<Self>, file: OpenedFile) -> Result<(), Error> {
        let OpenedFile { stream, target, source, permission, verify, replace, pipe } = file;
        self.check_target(&target)?;
        if !replace {
            // A file whose hash differs is announced a second time, with `replace`; its size counts only
            // once.
            locked(&self.totals).bytes += Bytes::new(source.size);
        }
        if source.size <= BLOCK && pipe.is_none() {
            match self.store.announce(&target, source, permission, (verify, replace))? {
                Whole::Same => self.same(stream, &target, source.size, verify)?,
                Whole::Announced(announced) => {
                    locked(&self.announced).insert(stream, announced);
                    self.reply(Reply::Opened { stream, durable: Vec::new(), restarted: false });
                }
            }
            return Ok(());
        }
        let opened = match &pipe {
            None => self.store.open(&target, source, replace)?,
            Some(pipe) => {
                locked(&self.groups).set_pipe(Bytes::new(pipe.group));
                if !pipe.remember {
                    locked(&self.forgettable).push((target.clone(), pipe.name.clone()));
                }
                self.store.open_pipe(&target, source, pipe)?
            }
        };
        let (file, restarted) = match opened {
            Opened::Same => return self.same(stream, &target, source.size, verify),
            Opened::Complete(placed) => {
                self.reply(Reply::Placed { stream, pipe: Some(placed) });
                return Ok(());
            }
            Opened::Unfinished { file, restarted } => (file, restarted),
        };
        let durable = file.durable().to_vec();
        let ranges = durable.iter().flat_map(|(start, end)| *start..*end);
        let resumed: u64 =
            ranges.filter_map(|index| block_range(source.size, index)).map(|(_, n)| n as u64).sum();
        locked(&self.totals).resumed += Bytes::new(resumed);
        let name = target.to_string();
        let size = pipe.is_none().then_some(source.size);
        let incoming = Arc::new(Incoming::new(stream, name, size, (permission, verify), file));
        if let Some(outlet) = &self.outlet
            && !outlet.begin(Arc::clone(&incoming), restarted)
        {
            return Err(Error::runtime(
                "the source changed during the copy",
                "run the same command again when no program writes to the file",
            ));
        }
        locked(&self.streams).insert(stream, Arc::clone(&incoming));
        // The sender retransmits blocks in ranges beyond this number, and the receiver drops them.
        let reported = durable.iter().take(MOST_RANGES).copied().collect();
        self.reply(Reply::Opened { stream, durable: reported, restarted });
        if !durable.is_empty() {
            let session = Arc::clone(self);
            tokio::spawn(async move { session.hash_durable(incoming, durable).await });
        }
        Ok(())
    }

    /// Removes the records of pipes whose completion the client knows.
    async fn forget_pipes(&self) -> io::Result<()> {
        let pipes = std::mem::take(&mut *locked(&self.forgettable));
        if pipes.is_empty() {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let forgotten = spawn_blocking(move || {
            for (target, name) in pipes {
                store.forget_pipe(&target, &name);
            }
        });
        forgotten.await.map_err(io::Error::other)
    }

    /// Reports a target that has the size and the modification time of its source.
    fn same(&self, stream: u64, target: &RelativePath, size: u64, verify: bool) -> Result<(), Error> {
        let reply = match verify {
            false => {
                locked(&self.totals).same += 1;
                Reply::Same { stream }
            }
            true => {
                let hash = self.store.hash(target, size);
                let blake3 = hash.map_err(|error| Error::system(format_args!("read {target}"), &error))?;
                Reply::Exists { stream, blake3 }
            }
        };
        self.reply(reply);
        Ok(())
    }

    /// Creates a symbolic link.
    async fn link(self: &Arc<Self>, stream: u64, target: RelativePath, to: LinkContent) -> io::Result<()> {
        if self.expected.is_some() {
            // Links are created after all files, because an earlier link could redirect later files.
            locked(&self.links).push((target, to));
            self.reply(Reply::Placed { stream, pipe: None });
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        match spawn_blocking(move || store.link(&target, to.as_path())).await? {
            Ok(None) => self.reply(Reply::Same { stream }),
            Ok(Some(lease)) => {
                locked(&self.renamed).push((stream, lease));
                self.has_renamed.notify_one();
            }
            Err(error) => self.fail(error),
        }
        Ok(())
    }

    /// Creates the links that were announced, after all files.
    async fn create_links(self: &Arc<Self>) -> io::Result<()> {
        let links = std::mem::take(&mut *locked(&self.links));
        let session = Arc::clone(self);
        let created = spawn_blocking(move || {
            for (target, to) in links {
                session.check_target(&target)?;
                let created = session.store.link(&target, to.as_path())?;
                let mut totals = locked(&session.totals);
                match created {
                    None => totals.same += 1,
                    Some(_) => totals.files += 1,
                }
                drop(totals);
                let settled = session.store.settle_renames(target.folder());
                settled.map_err(|error| Error::system(format_args!("create the link {target}"), &error))?;
            }
            Ok(())
        });
        if let Err(error) = created.await.map_err(io::Error::other)? {
            self.fail(error);
        }
        Ok(())
    }

    /// Reports a file that could not be placed.
    fn not_placed(&self, name: &str, error: &io::Error, is_intact: bool) {
        let mut failure = Error::system(format_args!("place {name}"), error);
        if !is_intact {
            failure.hint =
                "run the same command again; if it fails again, test the memory of both hosts".into();
        }
        self.fail(failure);
    }

    /// Hashes the blocks that an earlier transfer wrote, while the connections deliver the rest.
    async fn hash_durable(self: Arc<Self>, incoming: Arc<Incoming>, durable: Vec<(u64, u64)>) {
        let (store, file, closed) = (Arc::clone(&self.store), Arc::clone(&incoming), self.closed.subscribe());
        let hashed = spawn_blocking(move || file.hash_durable(&store, &durable, || *closed.borrow())).await;
        match flat(hashed) {
            Ok(()) => self.conclude(incoming),
            Err(error) => self.fail(Error::system(format_args!("read {}", incoming.name), &error)),
        }
    }

    async fn block(self: &Arc<Self>, data: DataHeader, bytes: &mut Vec<u8>) -> io::Result<()> {
        // A second copy of a block may arrive after the file has been placed.
        let Some(incoming) = locked(&self.streams).get(&data.stream).cloned() else { return Ok(()) };
        if !incoming.has(data) {
            return Err(invalid("the peer sent a block that is not part of its file"));
        }
        self.wait_for_disk().await;
        if *self.closed.borrow() || !incoming.claim(data.offset / BLOCK) {
            return Ok(());
        }
        let (store, file) = (Arc::clone(&self.store), Arc::clone(&incoming));
        let content = std::mem::take(bytes);
        let written = spawn_blocking(move || file.write(&store, data, &content).map(|()| content)).await;
        match flat(written) {
            Ok(content) => *bytes = content,
            Err(error) => {
                self.fail(Error::system(format_args!("write {}", incoming.name), &error));
                return Ok(());
            }
        }
        if let Some(outlet) = &self.outlet {
            outlet.arrived();
        }
        let length = Bytes::new(data.carried() as u64);
        locked(&self.totals).received += length;
        locked(&self.groups).written(self.now(), length);
        self.written.notify_one();
        self.conclude(incoming);
        Ok(())
    }

    /// Waits while two groups of data are not durable, or until the transfer ends.
    async fn wait_for_disk(&self) {
        let mut closed = self.closed.subscribe();
        loop {
            let mut synced = std::pin::pin!(self.synced.notified());
            // From here on, the notification is not missed.
            synced.as_mut().enable();
            if *closed.borrow() || locked(&self.groups).has_room() {
                return;
            }
            tokio::select! {
                () = synced => {}
                _ = closed.changed() => {}
            }
        }
    }

    /// Places a file whose last block or hash has arrived.
    fn conclude(self: &Arc<Self>, incoming: Arc<Incoming>) {
        let Some(decision) = incoming.decide() else { return };
        let session = Arc::clone(self);
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _permit = session.placing.acquire().await;
            let (store, file) = (Arc::clone(&session.store), Arc::clone(&incoming));
            let placed = flat(spawn_blocking(move || file.conclude(&store, decision)).await);
            locked(&session.streams).remove(&incoming.stream);
            match placed {
                Ok(()) => {
                    let mut totals = locked(&session.totals);
                    totals.files += 1;
                    totals.hash = incoming.root().or(totals.hash);
                    drop(totals);
                    let pipe = incoming.placed_pipe();
                    session.reply(Reply::Placed { stream: incoming.stream, pipe });
                }
                Err(error) => session.not_placed(&incoming.name, &error, decision == Decision::Place),
            }
        });
    }

    /// Until the transfer ends, makes received data durable, group by group.
    pub(crate) async fn keep_durable(self: Arc<Self>) {
        let mut closed = self.closed.subscribe();
        while !*closed.borrow() {
            let due = locked(&self.groups).due();
            let wait = due.map_or(Duration::ZERO, |due| due.saturating_since(self.now()));
            let wait = std::time::Duration::from_nanos(wait.as_nanos());
            tokio::select! {
                () = self.written.notified() => {}
                _ = closed.changed() => {}
                () = tokio::time::sleep(wait), if due.is_some() => {}
            }
            let due = locked(&self.groups).due();
            if due.is_some_and(|due| due <= self.now()) {
                self.sync().await;
            }
        }
    }

    /// Makes received data durable, and reports this to the sender.
    async fn sync(&self) {
        locked(&self.groups).take();
        let streams: Vec<Arc<Incoming>> = locked(&self.streams).values().cloned().collect();
        for incoming in streams {
            let (store, file) = (Arc::clone(&self.store), Arc::clone(&incoming));
            match flat(spawn_blocking(move || file.sync(&store)).await) {
                Ok(blocks) => {
                    for blocks in blocks.chunks(MOST_RANGES) {
                        self.reply(Reply::Durable { stream: incoming.stream, blocks: blocks.to_vec() });
                    }
                }
                Err(error) => self.fail(Error::system(format_args!("write {}", incoming.name), &error)),
            }
        }
        locked(&self.groups).synced();
        self.synced.notify_waiters();
    }

    /// Ends the transfer: makes received data durable, and releases the targets.
    pub(crate) async fn end(&self) {
        self.close();
        // All permits are free once no file is being placed. The semaphores are never closed.
        let _room = self.room.acquire_many(small::ROOM).await;
        let _permits = self.placing.acquire_many(PLACING).await;
        self.settle().await;
        self.sync().await;
        locked(&self.streams).clear();
        locked(&self.announced).clear();
    }
}

/// A connection of a transfer, other than connection 0.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    connection: u32,
    replaced: Arc<Notify>,
}

/// A file that the client announces.
#[derive(Debug)]
struct OpenedFile {
    stream: u64,
    target: RelativePath,
    source: Source,
    permission: Permission,
    verify: bool,
    replace: bool,
    pipe: Option<PipeSource>,
}

/// Returns the error for a source that cannot be copied to a pipe.
fn not_a_file() -> Error {
    Error::usage(
        "the source is not a single file, so it cannot be copied to standard output",
        "copy it to a folder, or name one file",
    )
}

/// Merges the error of a blocking task with the error of the work that it did.
fn flat<T>(result: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    result.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
