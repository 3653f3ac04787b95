//! Tasks of a connection: one task sends blocks, files and, on connection 0, requests; the other reads
//! replies.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fullpipe_units::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::connect::{Reached, Relay};
use super::links::{Sampler, SocketSample};
use super::outgoing::{Outgoing, push_whole};
use crate::engine::{Block, Dispatcher, Next};
use crate::error::Error;
use crate::frame::{HASH, HEADER, Reply, Request};
use crate::hex::Hex;
use crate::locked;
use crate::socket::Direction;
use crate::sources::SourceFile;
use crate::wire::{self, Readiness};

/// Time to wait for the relay to report the reason for a failure after a connection has failed.
pub(super) const REASON: std::time::Duration = std::time::Duration::from_secs(1);
/// Time that a relay needs at most for the keys of a few connections. If the next handshakes began earlier, they could reach
/// a near relay before it has accepted these keys, and displace their connections. A reply of a distant relay takes longer,
/// and its handshakes do, too.
const KEYS: std::time::Duration = std::time::Duration::from_millis(50);
/// A group of requests that reaches this size in bytes is written, even if more requests are pending.
const REQUESTS: usize = 64 << 10;
/// Size of the first group. A TLS record that does not fit into the initial congestion window, 14 KiB with the handshake's
/// last messages, would reach the relay a round trip later.
const FIRST_REQUESTS: usize = 8 << 10;
/// Size in bytes of the buffer for replies.
const REPLIES: usize = 64 << 10;

/// State that the tasks of the connections share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) dispatcher: Mutex<Dispatcher>,
    /// Files that are sent in blocks.
    pub(super) files: Mutex<BTreeMap<u64, Arc<Outgoing>>>,
    /// Files that are sent whole.
    pub(super) whole: Mutex<BTreeMap<u64, Arc<SourceFile>>>,
    /// State that changes when there may be data to send, or when the copy ends.
    pub(super) work: watch::Sender<Work>,
    /// Payload in bytes that each connection has sent.
    pub(super) sent: Mutex<Vec<u64>>,
    pub(super) first_byte: Mutex<Option<Instant>>,
    /// Total size in bytes of the files that have been found so far, whether or not they have been announced.
    pub(super) found: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Changed(u64),
    Ended,
}

impl Default for Work {
    fn default() -> Self {
        Self::Changed(0)
    }
}

impl Shared {
    /// Returns the size of the copy, as far as its files have been found; `None` if none has been found, or if the source is a
    /// pipe.
    pub(super) fn found_size(&self) -> Option<Bytes> {
        let size = self.found.load(Ordering::Relaxed);
        (size > 0).then(|| Bytes::new(size))
    }

    /// Wakes the connections that wait for data to send.
    pub(super) fn wake(&self) {
        self.work.send_modify(|work| {
            if let Work::Changed(count) = work {
                *count += 1;
            }
        });
    }
}

/// What is known once the relay has accepted connection 0. A relay that sends does not need it.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    /// Notes of the relay for the user.
    pub(super) notes: Vec<String>,
    pub(super) reached: Option<Reached>,
}

/// What the tasks report to the driver.
#[derive(Debug)]
pub(super) enum Event {
    /// The relay has accepted connection 0, or refused it.
    Accepted(Result<Accepted, Error>),
    /// The relay has accepted another connection.
    Joined(u32),
    Reply(Reply),
    /// A block of the stream, or all of its durable blocks, have been added to the hash.
    Hashed(u64),
    /// A whole file with this hash has been read.
    Whole(Hex<HASH>),
    /// Whether a source has the same hash as its target, whose size and modification time are the same.
    Compared(u64, bool),
    /// A source cannot be read.
    Unreadable(u64, io::Error),
    /// Whether the pipe of a stream that is already complete is at its end.
    Rest(u64, io::Result<bool>),
    /// Samples of the sockets of this process for an interval.
    Sampled(Vec<SocketSample>),
    /// A connection has failed.
    Lost(u32, io::Error),
    /// An event that may interest the user.
    Note(String),
}

pub(super) type Events = mpsc::UnboundedSender<Event>;

/// Waits until the relay has accepted connection 0, drops `accepting`, and then reads the relay's messages.
pub(super) async fn receive_first(
    relay: Arc<Relay>,
    reader: impl AsyncRead + Unpin,
    (events, accepting): (Events, mpsc::Sender<()>),
) {
    let mut reader = BufReader::with_capacity(REPLIES, reader);
    let accepted = relay.accepted(&mut reader).await;
    drop(accepting);
    let accepted =
        accepted.map(|()| Accepted { notes: relay.take_notes(), reached: relay.reached(Direction::Sends) });
    let is_accepted = accepted.is_ok();
    if events.send(Event::Accepted(accepted)).is_ok() && is_accepted {
        receive(0, reader, events).await;
    }
}

/// The same for another connection. Its permit for the handshake ends when the relay has accepted it, or after [`KEYS`].
pub(super) async fn receive_joined(
    relay: Arc<Relay>,
    number: u32,
    mut reader: impl AsyncRead + Unpin,
    (events, accepting): (Events, mpsc::Sender<()>),
    handshake: Option<OwnedSemaphorePermit>,
) {
    let accepted = {
        let mut accepted = std::pin::pin!(relay.accepted(&mut reader));
        let soon = timeout(KEYS, &mut accepted).await;
        drop(handshake);
        match soon {
            Ok(accepted) => accepted,
            Err(_) => accepted.await,
        }
    };
    drop(accepting);
    let event = match accepted {
        Ok(()) => Event::Joined(number),
        Err(error) => Event::Lost(number, io::Error::other(error.message)),
    };
    let is_joined = matches!(event, Event::Joined(_));
    if events.send(event).is_ok() && is_joined {
        receive(number, reader, events).await;
    }
}

/// Reads the relay's messages on an accepted connection.
pub(super) async fn receive(number: u32, mut reader: impl AsyncRead + Unpin, events: Events) {
    loop {
        let event = match wire::next_message::<Reply>(&mut reader).await {
            Ok(Some(reply)) => Event::Reply(reply),
            Ok(None) => Event::Lost(number, io::Error::other("the relay closed the connection")),
            Err(error) => Event::Lost(number, error),
        };
        let is_last = matches!(event, Event::Lost(..));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Time between two samples of the sockets.
const SAMPLING: std::time::Duration = std::time::Duration::from_millis(100);

/// Samples the sockets of all attempts at a copy.
pub(super) type SharedSampler = Arc<Mutex<Box<dyn Sampler>>>;

/// Samples the sockets until the copy ends.
pub(super) async fn sample(sampler: SharedSampler, events: Events) {
    let mut ticks = tokio::time::interval(SAMPLING);
    loop {
        ticks.tick().await;
        let sampler = Arc::clone(&sampler);
        // Sampling fails only if its task panics, and the panic has been reported.
        let Ok(samples) = spawn_blocking(move || locked(&sampler).sample()).await else { return };
        if !samples.is_empty() && events.send(Event::Sampled(samples)).is_err() {
            return;
        }
    }
}

/// Task that sends on a connection.
pub(super) struct Sender {
    pub(super) number: u32,
    pub(super) readiness: Arc<Readiness>,
    /// Time before which this task sends nothing.
    pub(super) start: Instant,
    pub(super) shared: Arc<Shared>,
    pub(super) events: Events,
}

impl Sender {
    pub(super) async fn run(
        self,
        mut writer: impl AsyncWrite + Unpin,
        mut requests: Option<mpsc::UnboundedReceiver<Request>>,
    ) {
        if let Err(error) = self.send(&mut writer, &mut requests).await {
            // The relay may have stated the reason, which the reading task reports.
            if self.number == 0 {
                tokio::time::sleep(REASON).await;
            }
            // After the end of the copy, the driver no longer receives events.
            let _ = self.events.send(Event::Lost(self.number, error));
        }
    }

    async fn send(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        requests: &mut Option<mpsc::UnboundedReceiver<Request>>,
    ) -> io::Result<()> {
        let mut work = self.shared.work.subscribe();
        let mut first = None;
        // One buffer serves all blocks: if many threads allocated a buffer per block, the allocator would retain much
        // of the freed memory.
        let mut buffer = Vec::new();
        let mut group = FIRST_REQUESTS;
        tokio::select! {
            () = tokio::time::sleep_until(self.start) => {}
            // The copy has ended during the wait.
            _ = work.wait_for(|work| *work == Work::Ended) => {}
        }
        loop {
            if let Some(requests) = requests {
                write_requests(writer, first.take(), requests, &mut group).await?;
            }
            // Work that becomes available after this call changes the value again, so it is not missed.
            if *work.borrow_and_update() == Work::Ended {
                return writer.shutdown().await;
            }
            self.readiness.writable().await?;
            let next = locked(&self.shared.dispatcher).next(self.number);
            match (next, &mut *requests) {
                (Some(Next::Block(block)), _) => self.block(writer, block, &mut buffer).await?,
                (Some(Next::Files(streams)), _) => self.files(writer, &streams).await?,
                (None, None) => {
                    let _ = work.changed().await;
                }
                (None, Some(requests)) => {
                    tokio::select! {
                        request = requests.recv() => first = request,
                        _ = work.changed() => {}
                    }
                }
            }
        }
    }

    async fn block(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        block: Block,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let stream = block.stream;
        let Some(file) = locked(&self.shared.files).get(&stream).cloned() else { return Ok(()) };
        let mut frame = std::mem::take(buffer);
        let framed = spawn_blocking(move || file.frame(block, &mut frame).map(|()| frame));
        match framed.await? {
            Ok(frame) => *buffer = frame,
            Err(error) => {
                let _ = self.events.send(Event::Unreadable(stream, error));
                return Ok(());
            }
        }
        // The hash of the file may be complete with this block; the request with the hash may then overtake
        // the block on another connection.
        let _ = self.events.send(Event::Hashed(stream));
        let carried = buffer.len().saturating_sub(HEADER) as u64;
        self.write(writer, buffer, carried).await
    }

    /// Sends whole files.
    async fn files(&self, writer: &mut (impl AsyncWrite + Unpin), streams: &[u64]) -> io::Result<()> {
        let files: Vec<(u64, Arc<SourceFile>)> = {
            let whole = locked(&self.shared.whole);
            streams.iter().filter_map(|stream| Some((*stream, Arc::clone(whole.get(stream)?)))).collect()
        };
        let events = self.events.clone();
        let read = spawn_blocking(move || {
            let (mut buffer, mut sent) = (Vec::new(), 0);
            for (stream, file) in files {
                let event = match push_whole(&mut buffer, stream, &file) {
                    Ok(hash) => Event::Whole(hash),
                    Err(error) => Event::Unreadable(stream, error),
                };
                sent += file.source.size;
                let _ = events.send(event);
            }
            (buffer, sent)
        });
        let (buffer, sent) = read.await?;
        self.write(writer, &buffer, sent).await
    }

    async fn write(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        buffer: &[u8],
        payload: u64,
    ) -> io::Result<()> {
        // The kernel takes the first bytes at once, and the rest of a block within the next round trips.
        locked(&self.shared.first_byte).get_or_insert_with(Instant::now);
        writer.write_all(buffer).await?;
        writer.flush().await?;
        if let Some(sent) = locked(&self.shared.sent).get_mut(self.number as usize) {
            *sent += payload;
        }
        Ok(())
    }
}

/// Writes the pending requests in groups of `group` bytes. Several small messages share a TLS record and a packet.
async fn write_requests(
    writer: &mut (impl AsyncWrite + Unpin),
    first: Option<Request>,
    requests: &mut mpsc::UnboundedReceiver<Request>,
    group: &mut usize,
) -> io::Result<()> {
    let mut next = first.or_else(|| requests.try_recv().ok());
    while next.is_some() {
        let mut buffer = Vec::new();
        while let Some(request) = next.take() {
            wire::push_message(&mut buffer, &request)?;
            if buffer.len() < *group {
                next = requests.try_recv().ok();
            }
        }
        writer.write_all(&buffer).await?;
        writer.flush().await?;
        *group = REQUESTS;
        next = requests.try_recv().ok();
    }
    Ok(())
}
