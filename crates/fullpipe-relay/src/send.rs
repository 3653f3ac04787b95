//! `copy` to a relay: opens the connections, announces the files, and sends their blocks.
//!
//! ```text
//!   Driver ── requests ──► connection 0 ─┐                      ┌─► replies, lost connections ──► Driver
//!     │                                  ├─► TLS, TCP ─► relay ─┘
//!     └─► Dispatcher ◄── next block ── connections 0 to N-1
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fullpipe_units::{Bytes, Duration, Rate};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::engine::{Block, Dispatcher, MOST_SIZE, block_count, block_range};
use crate::error::Error;
use crate::frame::{HEADER, MOST_CONNECTIONS, Reply, Request, VERSION};
use crate::hash::{BlockValues, block_value};
use crate::hex::Hex;
use crate::keys::{Fingerprint, Identity};
use crate::name::RelativePath;
use crate::report::{ConnectionReport, CopyReport};
use crate::sources::{SourceFile, Sources, list, source_of};
use crate::target::End;
use crate::tls::{self, SeenKey};
use crate::wire::{self, Readiness};
use crate::{locked, runtime};

/// Number of files that are announced and not yet placed. Announcements need no answer, so that many small
/// files are on their way in one round trip.
const OPEN: usize = 128;
/// Time in which a relay has to accept a connection: several round trips of the longest paths, and lost SYNs.
const GREETING: std::time::Duration = std::time::Duration::from_secs(15);
/// Time in which the relay has to close the connections after the last file.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(5);
/// Time that the reason of a failure may take to arrive after connection 0 has failed.
const REASON: std::time::Duration = std::time::Duration::from_secs(1);

/// Settings of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Files and folders of this host.
    pub sources: Vec<PathBuf>,
    /// The relay, and the target below its root.
    pub target: End,
    /// Number of connections, 1 to 16.
    pub connections: u32,
    /// Key of this host.
    pub identity: Identity,
    /// Fingerprint of the relay's key.
    pub peer: Option<Fingerprint>,
}

/// Receives what a copy reports while it runs.
pub trait CopyObserver {
    /// `done` of `total` bytes are durable at the relay, or were there before.
    fn progress(&self, _done: Bytes, _total: Bytes) {}
    /// Something that the user may want to know, and that does not end the copy.
    fn note(&self, _text: &str) {}
}

impl CopyObserver for () {}

/// Copies files to a relay. The same call continues an interrupted copy.
///
/// # Errors
/// Returns an error if a source cannot be read, the relay is unreachable or has another key, or a file cannot
/// be written there. What is durable at the relay by then is kept.
pub fn copy(options: &CopyOptions, observer: &dyn CopyObserver) -> Result<CopyReport, Error> {
    let End::Relay { host, port, path, is_folder } = &options.target else {
        return Err(Error::usage(
            "the target has to be on a relay; copy writes no local files yet",
            "write the target as relay://HOST/PATH",
        ));
    };
    if !(1..=MOST_CONNECTIONS).contains(&options.connections) {
        return Err(Error::usage(
            format!("{} connections are not possible", options.connections),
            format!("pass --connections with a number from 1 to {MOST_CONNECTIONS}"),
        ));
    }
    let sources = list(&options.sources, path, *is_folder)?;
    let relay = Relay::new(host, *port, options)?;
    let runtime = runtime()?;
    let copied = runtime.block_on(run(&Arc::new(relay), sources, options.connections, observer));
    // After a failure, threads may still read large files, and nothing needs the result.
    runtime.shutdown_background();
    copied
}

/// The relay as a client sees it.
struct Relay {
    host: String,
    port: u16,
    name: String,
    config: Arc<ClientConfig>,
    transfer: Hex<16>,
    own: Fingerprint,
    expected: Option<Fingerprint>,
    seen: SeenKey,
}

impl Relay {
    fn new(host: &str, port: u16, options: &CopyOptions) -> Result<Self, Error> {
        let seen = SeenKey::default();
        let config = tls::client(&options.identity, options.peer, Arc::clone(&seen))?;
        let mut transfer = [0; 16];
        SystemRandom::new()
            .fill(&mut transfer)
            .map_err(|_| Error::runtime("the system's random number generator failed", ""))?;
        Ok(Self {
            host: host.to_owned(),
            port,
            name: format!("{host} port {port}"),
            config,
            transfer: Hex(transfer),
            own: options.identity.fingerprint(),
            expected: options.peer,
            seen,
        })
    }

    /// Opens a connection, and waits until the relay has accepted it.
    async fn connect(&self, connection: u32) -> Result<(TlsStream<TcpStream>, Readiness), Error> {
        let opened = timeout(GREETING, self.greet(connection)).await;
        opened.unwrap_or_else(|_| {
            Err(Error::network(
                format!("{} did not answer within {} s", self.name, GREETING.as_secs()),
                "check that fullpipe relay serve listens on this port",
            ))
        })
    }

    async fn greet(&self, connection: u32) -> Result<(TlsStream<TcpStream>, Readiness), Error> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| {
            Error::network(
                format!("cannot connect to {}: {error}", self.name),
                "start fullpipe relay serve there, and permit the port in the firewall",
            )
        })?;
        let failed =
            |error: io::Error| tls::handshake_error(&self.name, &error, self.own, self.expected, &self.seen);
        wire::prepare(&tcp).map_err(failed)?;
        let (tcp, readiness) = Readiness::of(tcp).map_err(failed)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let mut tls = connector.connect(tls::no_name()?, tcp).await.map_err(failed)?;
        let hello = Request::Hello { versions: vec![VERSION], transfer: self.transfer, connection };
        // A relay that does not accept the key ends the connection, because the client ends its handshake
        // first. The reason is then there to read, even if the message can no longer be written.
        let written = wire::write_message(&mut tls, &hello).await;
        let answer = wire::next_message::<Reply>(&mut tls).await.map_err(failed)?;
        written.map_err(failed)?;
        match answer {
            Some(Reply::Welcome { version: VERSION }) => Ok((tls, readiness)),
            Some(Reply::Failed { message, hint }) => Err(Error::network(message, hint)),
            Some(_) => Err(Error::network(format!("{} breaks the protocol", self.name), "")),
            None => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// A file that is being sent.
#[derive(Debug)]
struct Outgoing {
    file: File,
    source: SourceFile,
    values: Mutex<BlockValues>,
}

impl Outgoing {
    /// Reads a block into the content of `buffer`, and adds it to the hash.
    fn read(&self, index: u64, offset: u64, content: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(content, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("it has become shorter"),
            _ => error,
        })?;
        let value = block_value(self.source.source.size, offset, content);
        if locked(&self.values).set(index, value) {
            return Ok(());
        }
        // A block of a lost connection is read a second time.
        Err(io::Error::other("it has changed while it was copied"))
    }

    /// Hashes the blocks that are not sent.
    fn hash(&self, durable: &[(u64, u64)]) -> io::Result<()> {
        let mut content = Vec::new();
        for index in durable.iter().flat_map(|(start, end)| *start..*end) {
            let Some((offset, length)) = block_range(self.source.source.size, index) else { break };
            content.resize(length, 0);
            self.read(index, offset, &mut content)?;
        }
        Ok(())
    }
}

/// State that the tasks of the connections share.
#[derive(Debug)]
struct Shared {
    dispatcher: Mutex<Dispatcher>,
    files: Mutex<BTreeMap<u64, Arc<Outgoing>>>,
    /// Changes when there may be new blocks to send, or when the copy ends.
    work: watch::Sender<Work>,
    sent: Vec<AtomicU64>,
    first_byte: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Changed(u64),
    Ended,
}

impl Shared {
    /// Wakes the connections that wait for a block.
    fn wake(&self) {
        self.work.send_modify(|work| {
            if let Work::Changed(count) = work {
                *count += 1;
            }
        });
    }
}

/// What the tasks report to the driver.
#[derive(Debug)]
enum Event {
    Reply(Reply),
    /// A block of the stream, or its durable part, has been added to the hash.
    Hashed(u64),
    /// A source cannot be read.
    Unreadable(u64, io::Error),
    /// A connection has failed.
    Lost(u32, io::Error),
}

type Events = mpsc::UnboundedSender<Event>;

async fn run(
    relay: &Arc<Relay>,
    sources: Sources,
    connections: u32,
    observer: &dyn CopyObserver,
) -> Result<CopyReport, Error> {
    let started = Instant::now();
    let shared = Arc::new(Shared {
        dispatcher: Mutex::default(),
        files: Mutex::default(),
        work: watch::Sender::new(Work::Changed(0)),
        sent: (0..connections).map(|_| AtomicU64::new(0)).collect(),
        first_byte: Mutex::default(),
    });
    let (events, mut reported) = mpsc::unbounded_channel();
    let (requests, outgoing) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let begin = |tasks: &mut JoinSet<()>, number, opened: (TlsStream<TcpStream>, Readiness), requests| {
        let (tls, readiness) = opened;
        let (reader, writer) = tokio::io::split(tls);
        let sender = Sender { number, readiness, shared: Arc::clone(&shared), events: events.clone() };
        tasks.spawn(sender.run(writer, requests));
        tasks.spawn(receive(number, reader, events.clone()));
    };
    begin(&mut tasks, 0, relay.connect(0).await?, Some(outgoing));
    let mut driver =
        Driver::new(relay, sources, Arc::clone(&shared), requests, events.clone(), connections, observer);
    driver.announce()?;
    // The other connections are opened while the first one carries messages and blocks, so that one that
    // cannot be opened delays nothing.
    let mut opening = JoinSet::new();
    for number in 1..connections {
        let relay = Arc::clone(relay);
        opening.spawn(async move { (number, relay.connect(number).await) });
    }
    while !driver.is_complete() {
        tokio::select! {
            // The driver holds a sender, so the channel cannot end.
            Some(event) = reported.recv() => driver.handle(event)?,
            Some(Ok((number, opened))) = opening.join_next() => match opened {
                Ok(opened) => begin(&mut tasks, number, opened, None),
                Err(error) => driver.lose(number, &io::Error::other(error.message))?,
            },
        }
    }
    // A small copy is complete before they are open. A connection that is cut in its handshake would be an
    // error to the relay, and one that hangs is not worth more time.
    let _ = timeout(FAREWELL, async {
        while let Some(opened) = opening.join_next().await {
            if let Ok((number, Ok(opened))) = opened {
                begin(&mut tasks, number, opened, None);
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

/// Reads the relay's messages on a connection.
async fn receive(number: u32, mut reader: impl AsyncRead + Unpin, events: Events) {
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

/// Task that sends blocks on a connection, and on connection 0 also the requests.
struct Sender {
    number: u32,
    readiness: Readiness,
    shared: Arc<Shared>,
    events: Events,
}

impl Sender {
    async fn run(
        self,
        mut writer: impl AsyncWrite + Unpin,
        mut requests: Option<mpsc::UnboundedReceiver<Request>>,
    ) {
        if let Err(error) = self.send(&mut writer, &mut requests).await {
            // The relay may have stated the reason, which the task that reads reports.
            if self.number == 0 {
                tokio::time::sleep(REASON).await;
            }
            // After the end of the copy, nobody listens.
            let _ = self.events.send(Event::Lost(self.number, error));
        }
    }

    async fn send(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        requests: &mut Option<mpsc::UnboundedReceiver<Request>>,
    ) -> io::Result<()> {
        let mut work = self.shared.work.subscribe();
        loop {
            if let Some(requests) = requests {
                while let Ok(request) = requests.try_recv() {
                    wire::write_message(writer, &request).await?;
                }
            }
            // Blocks that become available from here on change the value again.
            if *work.borrow_and_update() == Work::Ended {
                return writer.shutdown().await;
            }
            self.readiness.writable().await?;
            let block = locked(&self.shared.dispatcher).next(self.number);
            if let Some(block) = block {
                self.block(writer, block).await?;
                continue;
            }
            match requests {
                None => {
                    let _ = work.changed().await;
                }
                Some(requests) => {
                    tokio::select! {
                        request = requests.recv() => {
                            if let Some(request) = request {
                                wire::write_message(writer, &request).await?;
                            }
                        }
                        _ = work.changed() => {}
                    }
                }
            }
        }
    }

    async fn block(&self, writer: &mut (impl AsyncWrite + Unpin), block: Block) -> io::Result<()> {
        let Block { stream, index, offset, length } = block;
        let Some(file) = locked(&self.shared.files).get(&stream).cloned() else { return Ok(()) };
        let read = spawn_blocking(move || {
            let mut buffer = wire::block_buffer(stream, offset, length);
            file.read(index, offset, &mut buffer[HEADER..]).map(|()| buffer)
        });
        let buffer = match read.await? {
            Ok(buffer) => buffer,
            Err(error) => {
                let _ = self.events.send(Event::Unreadable(stream, error));
                return Ok(());
            }
        };
        // The hash may be complete with this block. Its request may overtake the block on another connection.
        let _ = self.events.send(Event::Hashed(stream));
        writer.write_all(&buffer).await?;
        writer.flush().await?;
        locked(&self.shared.first_byte).get_or_insert_with(Instant::now);
        if let Some(sent) = self.shared.sent.get(self.number as usize) {
            sent.fetch_add(length as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Announces the files, and follows what becomes of them.
struct Driver<'a> {
    relay: &'a Relay,
    observer: &'a dyn CopyObserver,
    shared: Arc<Shared>,
    requests: mpsc::UnboundedSender<Request>,
    events: Events,
    waiting: VecDeque<SourceFile>,
    folders: VecDeque<RelativePath>,
    next_stream: u64,
    /// Announced files and folders that are neither placed nor the same already.
    open: BTreeMap<u64, OpenFile>,
    lost: Vec<bool>,
    total: Totals,
    durable_bytes: u64,
    only_hash: Option<Hex<32>>,
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
    bytes: u64,
    resumed: u64,
}

impl<'a> Driver<'a> {
    fn new(
        relay: &'a Relay,
        sources: Sources,
        shared: Arc<Shared>,
        requests: mpsc::UnboundedSender<Request>,
        events: Events,
        connections: u32,
        observer: &'a dyn CopyObserver,
    ) -> Self {
        let Sources { files, folders } = sources;
        let bytes = files.iter().map(|file| file.source.size).sum();
        Self {
            relay,
            observer,
            shared,
            requests,
            events,
            total: Totals { files: files.len() as u64, bytes, ..Totals::default() },
            waiting: files.into(),
            folders: folders.into(),
            next_stream: 1,
            open: BTreeMap::new(),
            lost: vec![false; connections as usize],
            durable_bytes: 0,
            only_hash: None,
        }
    }

    fn is_complete(&self) -> bool {
        self.waiting.is_empty() && self.folders.is_empty() && self.open.is_empty()
    }

    /// Announces as many files and folders as may be open.
    fn announce(&mut self) -> Result<(), Error> {
        while self.open.len() < OPEN {
            if let Some(target) = self.folders.pop_front() {
                let stream = self.add(OpenFile { size: 0, durable: 0, is_finished: true });
                self.request(Request::Folder { stream, target });
                continue;
            }
            let open: u64 = self.open.values().map(|file| file.size).sum();
            if self.waiting.front().is_some_and(|next| open + next.source.size > MOST_SIZE) {
                break;
            }
            let Some(source) = self.waiting.pop_front() else { break };
            let unreadable =
                |error: io::Error| Error::system(format_args!("read {}", source.path.display()), &error);
            let file = File::open(&source.path).map_err(unreadable)?;
            if source_of(&file.metadata().map_err(unreadable)?) != source.source {
                return Err(changed(&source));
            }
            let size = source.source.size;
            let stream = self.add(OpenFile { size, durable: 0, is_finished: false });
            let request = Request::Open {
                stream,
                target: source.target.clone(),
                source: source.source,
                mode: source.mode,
            };
            let values = Mutex::new(BlockValues::new(size));
            locked(&self.shared.files).insert(stream, Arc::new(Outgoing { file, source, values }));
            self.request(request);
        }
        Ok(())
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
        self.shared.wake();
    }

    fn outgoing(&self, stream: u64) -> Option<Arc<Outgoing>> {
        locked(&self.shared.files).get(&stream).cloned()
    }

    fn handle(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Reply(reply) => self.reply(reply)?,
            Event::Hashed(stream) => self.finish(stream)?,
            Event::Unreadable(stream, error) => {
                let path = self.outgoing(stream).map(|file| file.source.path.clone()).unwrap_or_default();
                return Err(Error::system(format_args!("read {}", path.display()), &error));
            }
            Event::Lost(connection, error) => self.lose(connection, &error)?,
        }
        Ok(())
    }

    fn lose(&mut self, connection: u32, error: &io::Error) -> Result<(), Error> {
        let Some(lost) = self.lost.get_mut(connection as usize) else { return Ok(()) };
        if std::mem::replace(lost, true) {
            return Ok(());
        }
        // Without connection 0, no message reaches the relay.
        if connection == 0 {
            return Err(Error::network(
                format!("lost the connection to {}: {error}", self.relay.name),
                "run the same command again to continue the copy",
            ));
        }
        let returned = locked(&self.shared.dispatcher).lost(connection);
        self.shared.wake();
        self.observer.note(&format!(
            "lost connection {connection} ({error}); the others retransmit {returned} blocks"
        ));
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<(), Error> {
        match reply {
            Reply::Opened { stream, durable, restarted } => self.opened(stream, &durable, restarted)?,
            Reply::Same { stream } => {
                self.total.same += 1;
                self.close(stream)?;
            }
            Reply::Durable { stream, blocks } => {
                locked(&self.shared.dispatcher).durable(stream, &blocks);
                self.count(stream, &blocks);
            }
            Reply::Placed { stream } => self.close(stream)?,
            Reply::Failed { message, hint } => {
                return Err(Error::runtime(format!("{}: {message}", self.relay.name), hint));
            }
            Reply::Welcome { .. } => {}
        }
        Ok(())
    }

    fn opened(&mut self, stream: u64, durable: &[(u64, u64)], restarted: bool) -> Result<(), Error> {
        let (Some(file), Some(open)) = (self.outgoing(stream), self.open.get(&stream)) else { return Ok(()) };
        if restarted {
            let path = file.source.path.display();
            self.observer.note(&format!("{path} has changed since the interrupted copy, and is sent anew"));
        }
        let size = open.size;
        let count = block_count(size);
        if durable.iter().any(|(start, end)| start >= end || *end > count) {
            return Err(Error::network(format!("{} breaks the protocol", self.relay.name), ""));
        }
        locked(&self.shared.dispatcher).add(stream, size, durable);
        self.shared.wake();
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
        // An empty file has no block after which its hash is known.
        self.finish(stream)
    }

    /// Adds durable blocks to the progress; returns their bytes.
    fn count(&mut self, stream: u64, blocks: &[(u64, u64)]) -> u64 {
        let Some(open) = self.open.get_mut(&stream) else { return 0 };
        let numbers = blocks.iter().flat_map(|(start, end)| *start..(*end).min(block_count(open.size)));
        let bytes: u64 =
            numbers.filter_map(|index| block_range(open.size, index)).map(|(_, n)| n as u64).sum();
        open.durable += bytes;
        self.durable_bytes += bytes;
        self.observer.progress(Bytes::new(self.durable_bytes), Bytes::new(self.total.bytes));
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
        let metadata = file.file.metadata();
        let metadata = metadata
            .map_err(|error| Error::system(format_args!("read {}", file.source.path.display()), &error))?;
        if source_of(&metadata) != file.source.source {
            return Err(changed(&file.source));
        }
        self.only_hash = (self.total.files == 1).then_some(hash);
        self.request(Request::Finish { stream, blake3: hash });
        Ok(())
    }

    /// Forgets a file that the relay has placed, or had already.
    fn close(&mut self, stream: u64) -> Result<(), Error> {
        let Some(open) = self.open.remove(&stream) else { return Ok(()) };
        locked(&self.shared.files).remove(&stream);
        locked(&self.shared.dispatcher).remove(stream);
        self.durable_bytes += open.size - open.durable.min(open.size);
        self.observer.progress(Bytes::new(self.durable_bytes), Bytes::new(self.total.bytes));
        self.announce()
    }

    /// Ends the connections.
    fn end(&self) {
        self.request(Request::Bye);
        self.shared.work.send_replace(Work::Ended);
    }

    fn report(&self, started: Instant) -> CopyReport {
        let span = |since: std::time::Duration| {
            Duration::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        };
        let wall = span(started.elapsed());
        let sent: Vec<u64> = self.shared.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).collect();
        let rate = |bytes: u64| Rate::mean(Bytes::new(bytes), wall).as_bps();
        let connections = sent.iter().zip(&self.lost).map(|(bytes, lost)| ConnectionReport {
            bytes: *bytes,
            goodput_bps: rate(*bytes),
            lost: *lost,
        });
        let sent_bytes = sent.iter().sum();
        let first_byte = *locked(&self.shared.first_byte);
        CopyReport {
            schema: CopyReport::SCHEMA,
            files: self.total.files,
            same_files: self.total.same,
            bytes: self.total.bytes,
            sent_bytes,
            resumed_bytes: self.total.resumed,
            wall_s: wall.as_secs_f64(),
            first_byte_s: first_byte.map(|at| span(at - started).as_secs_f64()),
            goodput_bps: rate(sent_bytes),
            blake3: self.only_hash.map(|hash| hash.to_string()),
            connections: connections.collect(),
            most_connections: sent.len() as u64,
        }
    }
}

fn changed(source: &SourceFile) -> Error {
    Error::runtime(
        format!("{} has changed while it was copied", source.path.display()),
        "run the same command again when nothing writes to it",
    )
}
