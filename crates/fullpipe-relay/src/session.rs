//! One transfer at the receiver: the files that its connections deliver.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use fullpipe_units::{Bytes, Duration, Instant};
use tokio::io::AsyncRead;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;

use crate::engine::{BLOCK, Groups, MOST_SIZE, block_range};
use crate::error::Error;
use crate::frame::{DataHeader, Header, Reply, Request};
use crate::incoming::{Decision, Incoming};
use crate::name::RelativePath;
use crate::store::{FileStore, Opened};
use crate::{locked, wire};

/// Maximum number of files of a transfer that are open at the same time.
pub(crate) const MOST_OPEN: usize = 256;
/// Maximum number of ranges of blocks in a message, so that the message is shorter than its limit.
const MOST_RANGES: usize = 2000;
/// Maximum number of replies that wait to be sent. A client that does not read them ends its transfer.
pub(crate) const MOST_REPLIES: usize = 4096;
/// Number of files that are placed at the same time. Each waits for several writes to the disk, which a disk
/// and its file system combine.
const PLACING: usize = 16;

/// A transfer, shared by the tasks of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    store: Arc<FileStore>,
    streams: Mutex<BTreeMap<u64, Arc<Incoming>>>,
    groups: Mutex<Groups>,
    /// Numbers of the connections besides connection 0.
    connections: Mutex<BTreeSet<u32>>,
    replies: mpsc::Sender<Reply>,
    written: Notify,
    placing: Semaphore,
    closed: watch::Sender<bool>,
    started: tokio::time::Instant,
    totals: Mutex<Totals>,
}

/// Amounts of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) received: Bytes,
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl Session {
    pub(crate) fn new(store: Arc<FileStore>, replies: mpsc::Sender<Reply>) -> Self {
        Self {
            store,
            streams: Mutex::default(),
            groups: Mutex::default(),
            connections: Mutex::default(),
            replies,
            written: Notify::new(),
            placing: Semaphore::new(PLACING),
            closed: watch::Sender::new(false),
            started: tokio::time::Instant::now(),
            totals: Mutex::default(),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        *locked(&self.totals)
    }

    /// Sends a reply on connection 0. A client that has gone is noticed by the task that reads.
    pub(crate) fn reply(&self, reply: Reply) {
        if let Err(TrySendError::Full(_)) = self.replies.try_send(reply) {
            self.close();
        }
    }

    /// Adds a connection; returns whether its number is free.
    pub(crate) fn enter(&self, connection: u32) -> bool {
        locked(&self.connections).insert(connection)
    }

    /// Removes a connection that has ended.
    pub(crate) fn leave(&self, connection: u32) {
        locked(&self.connections).remove(&connection);
    }

    /// Reports a failure to the client, and ends the transfer.
    pub(crate) fn fail(&self, error: Error) {
        self.reply(Reply::Failed { message: error.message, hint: error.hint });
        self.close();
    }

    /// Ends the tasks of all connections.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Handles the frames of a connection until the connection or the transfer ends.
    pub(crate) async fn read(self: &Arc<Self>, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        let mut closed = self.closed.subscribe();
        loop {
            if *closed.borrow() {
                return Ok(());
            }
            let header = tokio::select! {
                header = wire::read_header(reader) => header?,
                _ = closed.changed() => continue,
            };
            match header {
                None => return Ok(()),
                Some(Header::Data(data)) => {
                    let bytes = wire::read_content(reader, data.length).await?;
                    self.block(data, bytes).await?;
                }
                Some(Header::Control { length }) => {
                    match wire::read_message::<Request>(reader, length).await? {
                        Request::Bye => return Ok(()),
                        Request::Hello { .. } => return Err(invalid("a second hello on a connection")),
                        Request::Finish { stream, blake3 } => {
                            let incoming = locked(&self.streams).get(&stream).cloned();
                            let incoming =
                                incoming.ok_or_else(|| invalid("the end of a file that is not open"))?;
                            incoming.expect(blake3);
                            self.conclude(incoming);
                        }
                        Request::Folder { stream, target } => self.folder(stream, target).await?,
                        request @ Request::Open { .. } => self.open(request).await?,
                    }
                }
            }
        }
    }

    async fn open(self: &Arc<Self>, request: Request) -> io::Result<()> {
        let Request::Open { stream, target, source, mode } = request else { return Ok(()) };
        let (is_open, count, size) = {
            let streams = locked(&self.streams);
            let size = streams.values().fold(source.size, |sum, incoming| sum.saturating_add(incoming.size));
            (streams.contains_key(&stream), streams.len(), size)
        };
        if is_open || count >= MOST_OPEN || size > MOST_SIZE {
            return Err(invalid("a stream that is open already, or too many or too large streams"));
        }
        let (store, name) = (Arc::clone(&self.store), target.to_string());
        let opened = spawn_blocking(move || store.open(&target, source)).await?;
        let (file, restarted) = match opened {
            Err(error) => {
                self.fail(error);
                return Ok(());
            }
            Ok(Opened::Same) => {
                self.reply(Reply::Same { stream });
                return Ok(());
            }
            Ok(Opened::Unfinished { file, restarted }) => (file, restarted),
        };
        let durable = file.durable().to_vec();
        let incoming = Arc::new(Incoming::new(stream, name, source.size, mode, file));
        locked(&self.streams).insert(stream, Arc::clone(&incoming));
        // Of ranges that are not reported, the blocks are retransmitted and dropped.
        let reported = durable.iter().take(MOST_RANGES).copied().collect();
        self.reply(Reply::Opened { stream, durable: reported, restarted });
        if !durable.is_empty() {
            let session = Arc::clone(self);
            tokio::spawn(async move { session.hash_durable(incoming, durable).await });
        }
        Ok(())
    }

    async fn folder(&self, stream: u64, target: RelativePath) -> io::Result<()> {
        let store = Arc::clone(&self.store);
        match spawn_blocking(move || store.create(&target)).await? {
            Ok(()) => self.reply(Reply::Placed { stream }),
            Err(error) => self.fail(error),
        }
        Ok(())
    }

    /// Hashes what an earlier transfer wrote, while the connections carry the rest.
    async fn hash_durable(self: Arc<Self>, incoming: Arc<Incoming>, durable: Vec<(u64, u64)>) {
        let (store, file, closed) = (Arc::clone(&self.store), Arc::clone(&incoming), self.closed.subscribe());
        let hashed = spawn_blocking(move || file.hash_durable(&store, &durable, || *closed.borrow())).await;
        match flat(hashed) {
            Ok(()) => self.conclude(incoming),
            Err(error) => self.fail(Error::system(format_args!("read {}", incoming.name), &error)),
        }
    }

    async fn block(self: &Arc<Self>, data: DataHeader, bytes: Vec<u8>) -> io::Result<()> {
        // A copy of a block may arrive after the file has been placed.
        let Some(incoming) = locked(&self.streams).get(&data.stream).cloned() else { return Ok(()) };
        let index = data.offset / BLOCK;
        if block_range(incoming.size, index) != Some((data.offset, data.length)) {
            return Err(invalid("a block that is not part of its file"));
        }
        if !incoming.claim(index) {
            return Ok(());
        }
        let (store, file) = (Arc::clone(&self.store), Arc::clone(&incoming));
        let written = spawn_blocking(move || file.write(&store, index, data.offset, &bytes)).await;
        if let Err(error) = flat(written) {
            self.fail(Error::system(format_args!("write {}", incoming.name), &error));
            return Ok(());
        }
        let length = Bytes::new(data.length as u64);
        locked(&self.totals).received += length;
        locked(&self.groups).written(self.now(), length);
        self.written.notify_one();
        self.conclude(incoming);
        Ok(())
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
                    locked(&session.totals).files += 1;
                    session.reply(Reply::Placed { stream: incoming.stream });
                }
                Err(error) => {
                    let mut failure = Error::system(format_args!("place {}", incoming.name), &error);
                    if decision == Decision::Discard {
                        failure.hint =
                            "run the same command again; if it fails again, test the memory of both hosts"
                                .into();
                    }
                    session.fail(failure);
                }
            }
        });
    }

    /// Makes what has arrived durable, group by group, until the transfer ends.
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

    /// Makes what has arrived durable, and reports it.
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
    }

    /// Ends the transfer: keeps what has arrived, and releases the targets.
    pub(crate) async fn end(&self) {
        self.close();
        self.sync().await;
        let streams = std::mem::take(&mut *locked(&self.streams));
        let store = Arc::clone(&self.store);
        let released = spawn_blocking(move || streams.values().for_each(|incoming| incoming.release(&store)));
        // An error would be a panic, which the task has reported.
        let _ = released.await;
    }
}

/// Joins the error of a blocking task with that of its work.
fn flat<T>(result: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    result.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::frame::Source;

    /// Returns a session with room for `replies`, in a new folder.
    fn session(replies: usize) -> (tempfile::TempDir, Arc<Session>, mpsc::Receiver<Reply>) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileStore::open_root(folder.path()).expect("empty");
        let (sender, receiver) = mpsc::channel(replies);
        (folder, Arc::new(Session::new(Arc::new(store), sender)), receiver)
    }

    #[test]
    fn a_client_that_does_not_read_its_replies_ends_its_transfer() {
        let (_folder, session, mut receiver) = session(2);
        for stream in 1..=2 {
            session.reply(Reply::Placed { stream });
        }
        assert!(!*session.closed.borrow(), "there was room");
        session.reply(Reply::Placed { stream: 3 });
        assert!(*session.closed.borrow());
        assert_eq!(receiver.try_recv(), Ok(Reply::Placed { stream: 1 }));
    }

    #[test]
    fn a_transfer_has_one_connection_of_each_number() {
        let (_folder, session, _receiver) = session(1);
        assert!(session.enter(1) && session.enter(2) && !session.enter(1));
        session.leave(1);
        assert!(session.enter(1));
    }

    #[test]
    fn a_client_cannot_open_more_than_the_limits() {
        let (folder, session, mut receiver) = session(MOST_REPLIES);
        let open = |stream: u64, size: u64| {
            let target = RelativePath::new(Path::new(&stream.to_string())).expect("a path");
            let source = Source { size, mtime_ns: 0, inode: stream };
            Request::Open { stream, target, source, mode: 0o600 }
        };
        crate::runtime().expect("a runtime").block_on(async {
            session.open(open(1, 5)).await.expect("opened");
            assert!(session.open(open(1, 5)).await.is_err(), "the same stream");
            assert!(session.open(open(2, MOST_SIZE)).await.is_err(), "too large together with the first");
            assert!(session.open(open(2, u64::MAX)).await.is_err(), "the sum overflows");
            for stream in 2..=MOST_OPEN as u64 {
                session.open(open(stream, 5)).await.expect("opened");
            }
            assert!(session.open(open(1000, 5)).await.is_err(), "too many streams");
            session.end().await;
        });
        let opened = Reply::Opened { stream: 1, durable: Vec::new(), restarted: false };
        assert_eq!(receiver.try_recv(), Ok(opened));
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1, "the end removes what no later copy can continue: the journal's folder is left");
    }
}
