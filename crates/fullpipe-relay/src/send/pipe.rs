//! A pipe as the source of a copy: its bytes are kept until they are durable at the relay.
//!
//! ```text
//!   pipe ──read──► memory or spool ──frame──► connections ──► relay
//!                    ▲                                          │
//!                    └──── removed, room for more ◄─────────────┴── durable
//! ```
//!
//! The memory is an anonymous file, so blocks of a pipe are read like blocks of files. Durable blocks become
//! holes in it. While the memory is full, the pipe is not read, and its producer waits. If the connection to
//! the relay is lost, the next attempt sends the bytes that are kept.
//!
//! *Accepted* is the offset up to which the producer may discard its data, because the bytes before it are
//! durable at the relay or, with a spool, on this host.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fullpipe_units::{Bytes, Rate};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, fallocate, memfd_create};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::CopyObserver;
use super::outgoing::Outgoing;
use super::spool::{BASE, Spool};
use crate::engine::{BLOCK, MOST_SIZE, Prefix, block_range};
use crate::error::Error;
use crate::frame::{PipeSource, Source};
use crate::hex::Hex;
use crate::name::{RelativePath, StreamName};
use crate::report::PipeReport;
use crate::sources::{SourceFile, Tree, source_of};
use crate::store::Permission;
use crate::{locked, span};

/// Smallest memory for a pipe: the relay makes groups of a quarter of the memory durable, and a group
/// contains at least one block.
const LEAST: Bytes = Bytes::from_mib(4);
/// Largest memory for a pipe.
const MOST: Bytes = Bytes::from_mib(4096);
/// Largest size of a spool.
const MOST_SPOOL: Bytes = Bytes::new(MOST_SIZE);
/// Number of bytes that are read at once.
const PART: usize = 256 << 10;
/// Longest time that bytes wait in the spool before they are synced.
const AGE: Duration = Duration::from_millis(250);
/// Permission bits of the file that a pipe becomes.
const MODE: u32 = 0o600;

/// How the bytes of a pipe are kept.
#[derive(Clone, Debug)]
pub struct PipeOptions {
    /// Maximum number of bytes that are kept until they are durable at the relay: from 4 MiB to 4 GiB, or to
    /// 4 TiB with a spool.
    pub memory: Bytes,
    /// Name of the stream, 1 to 255 bytes. A later copy with the same name and target continues the stream.
    pub stream: Option<String>,
    /// Folder for a file that keeps the bytes, instead of memory. A spool requires a stream name.
    pub spool: Option<PathBuf>,
}

/// A pipe and its options.
#[derive(Clone, Debug)]
pub struct Pipe {
    file: Arc<File>,
    memory: Bytes,
    stream: Option<StreamName>,
    spool: Option<PathBuf>,
}

impl Pipe {
    /// Creates the source for a pipe.
    ///
    /// # Errors
    /// Returns an error if the memory is outside the limits, if the stream name is not valid, or if a spool
    /// is used without a stream name.
    pub fn new(file: File, options: PipeOptions) -> Result<Self, Error> {
        let PipeOptions { memory, stream, spool } = options;
        let most = if spool.is_some() { MOST_SPOOL } else { MOST };
        if !(LEAST..=most).contains(&memory) {
            return Err(Error::usage(
                format!("{memory} of memory for a pipe is out of range"),
                format!("allowed: {LEAST} to {most}"),
            ));
        }
        if spool.is_some() && stream.is_none() {
            return Err(Error::usage("a spool requires the name of a stream", "add --stream NAME"));
        }
        let stream = stream.map(|name| {
            StreamName::try_from(name)
                .map_err(|error| Error::usage(error.to_string(), "choose another --stream"))
        });
        Ok(Self { file: Arc::new(file), memory, stream: stream.transpose()?, spool })
    }

    /// Returns whether a later copy can continue the stream.
    pub fn is_named(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the number of bytes that the relay makes durable together.
    fn group(&self) -> u64 {
        self.memory.mul_div(1, 4).get()
    }
}

/// Opens the file descriptor `number` of this process for writing the accepted offset of a pipe. A write that
/// would block fails instead, because the next offset supersedes this one.
///
/// # Errors
/// Returns the error of the kernel if the descriptor is not open for writing.
pub fn open_progress(number: u32) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).custom_flags(flags).open(format!("/proc/self/fd/{number}"))
}

/// Storage that keeps the bytes of a pipe.
#[derive(Debug)]
enum Storage {
    Memory(Arc<File>),
    Spool(Spool),
}

/// Progress of reading the pipe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Number of bytes that can be sent: whole blocks, or all bytes once the pipe has ended.
    pub(super) size: u64,
    /// Whether the pipe has ended.
    pub(super) is_last: bool,
    /// Number of bytes of the stream that have been read.
    read: u64,
    /// Time for which the pipe was not read because the memory was full.
    blocked: Duration,
    /// Time since which the pipe has not been read because the memory is full.
    blocked_since: Option<Instant>,
    begun: Option<Instant>,
    ended: Option<Instant>,
    has_failed: bool,
}

impl Reading {
    /// Returns the time for which the producer has waited.
    pub(super) fn blocked(&self) -> Duration {
        self.blocked + self.blocked_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Data that the relay has made durable.
#[derive(Debug, Default)]
struct Durable {
    prefix: Prefix,
    /// Number of durable bytes that this process has read.
    bytes: u64,
    /// Size of the stream, once the relay has placed it.
    placed: Option<u64>,
    /// Accepted offset in the last report.
    reported: Option<u64>,
    /// Largest number of bytes that were kept at one time.
    most_held: u64,
}

/// A pipe that is being copied. It outlives the connections to the relay.
#[derive(Debug)]
pub(super) struct Held {
    pipe: Pipe,
    name: StreamName,
    pub(super) outgoing: Arc<Outgoing>,
    storage: Storage,
    /// Number of blocks for which there is room.
    room: Semaphore,
    reading: watch::Sender<Reading>,
    durable: Mutex<Durable>,
    failure: Mutex<Option<io::Error>>,
    /// First block that this process reads, once it has started to read.
    from: OnceLock<u64>,
}

impl Held {
    /// Prepares the memory or the spool of a pipe whose target is `target`.
    pub(super) fn new(pipe: &Pipe, target: RelativePath) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::system("keep the pipe in memory", &error);
        let name = match &pipe.stream {
            Some(name) => name.clone(),
            None => random_name()?,
        };
        let (storage, file, base) = match &pipe.spool {
            None => {
                let memory = memfd_create("fullpipe-pipe", MemfdFlags::CLOEXEC);
                let memory: Arc<File> = Arc::new(memory.map_err(|error| failed(error.into()))?.into());
                (Storage::Memory(Arc::clone(&memory)), memory, 0)
            }
            Some(folder) => {
                let spool = Spool::open(folder, &name)?;
                let file = Arc::clone(&spool.file);
                (Storage::Spool(spool), file, BASE)
            }
        };
        // A pipe has no size, and its modification time and inode do not identify its content.
        let source = Source { size: 0, ..source_of(&file.metadata().map_err(failed)?) };
        let permission = Permission { mode: MODE, owner: None };
        let source = SourceFile { tree: Tree::Host, path: "-".into(), target, source, permission };
        Ok(Self {
            pipe: pipe.clone(),
            name,
            outgoing: Arc::new(Outgoing::pipe(source, file, base)),
            storage,
            room: Semaphore::new(0),
            reading: watch::Sender::new(Reading::default()),
            durable: Mutex::default(),
            failure: Mutex::default(),
            from: OnceLock::new(),
        })
    }

    /// Returns whether a later copy may continue the stream.
    pub(super) fn is_named(&self) -> bool {
        self.pipe.stream.is_some()
    }

    /// Returns the announcement of the pipe.
    pub(super) fn announcement(&self) -> PipeSource {
        PipeSource {
            name: self.name.clone(),
            group: self.pipe.group(),
            holds: self.from.get().is_some(),
            remember: self.is_named(),
        }
    }

    /// Returns the first block that this process has read.
    pub(super) fn from(&self) -> Option<u64> {
        self.from.get().copied()
    }

    /// Returns the progress of reading the pipe.
    pub(super) fn reading(&self) -> Reading {
        *self.reading.borrow()
    }

    /// Returns a receiver of changes to the progress of reading.
    pub(super) fn changes(&self) -> watch::Receiver<Reading> {
        self.reading.subscribe()
    }

    /// Returns the error of the pipe or the spool, if there was one; a second call returns `None`.
    pub(super) fn failure(&self) -> Option<io::Error> {
        locked(&self.failure).take()
    }

    /// Starts to read at the first gap between the blocks in `durable`. If reading has already started,
    /// checks that `durable` contains all blocks that are no longer kept.
    pub(super) fn begin(self: &Arc<Self>, durable: &[(u64, u64)]) -> Result<(), Error> {
        let lost = || {
            Error::runtime(
                format!(
                    "the relay has lost data of {} that was already durable",
                    self.outgoing.source.target
                ),
                "choose another --stream, and restart the producer from the beginning",
            )
        };
        let failed = |error: io::Error| Error::system("keep the pipe", &error);
        if self.from.get().is_some() {
            if !locked(&self.durable).prefix.is_within(durable) {
                return Err(lost());
            }
            return self.release(durable).map_err(failed);
        }
        let prefix = durable.iter().find(|(start, _)| *start == 0).map_or(0, |(_, end)| *end);
        let begin = prefix * BLOCK;
        let offset = match &self.storage {
            Storage::Memory(_) => begin,
            Storage::Spool(spool) => {
                if spool.released() > prefix {
                    return Err(lost());
                }
                spool.release(prefix);
                spool.skip(begin);
                spool.accepted()
            }
        };
        // Only the driver calls this function, so the value is not set yet.
        let _ = self.from.set(prefix);
        locked(&self.durable).prefix = Prefix::begin(prefix);
        let capacity = self.pipe.memory.get() / BLOCK;
        let room = capacity.saturating_sub(offset.div_ceil(BLOCK) - prefix);
        // The number is at most 4 TiB divided by the block size of 1 MiB.
        self.room.add_permits(room as usize);
        self.reading.send_modify(|reading| {
            (reading.size, reading.read) = (offset / BLOCK * BLOCK, offset);
            reading.begun = Some(Instant::now());
        });
        let (held, runtime) = (Arc::clone(self), Handle::current());
        spawn_blocking(move || {
            let read = held.read(&runtime);
            held.check(read);
        });
        if matches!(self.storage, Storage::Spool(_)) {
            let held = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(AGE).await;
                    let Some(held) = held.upgrade() else { break };
                    // Syncing fails here only if the task panics, and the panic has been reported.
                    let _ = spawn_blocking(move || held.sync()).await;
                }
            });
        }
        Ok(())
    }

    /// Records a failure, which the driver reports.
    fn check(&self, result: io::Result<()>) {
        if let Err(error) = result {
            *locked(&self.failure) = Some(error);
            self.reading.send_modify(|reading| reading.has_failed = true);
        }
    }

    /// Makes the spool durable.
    fn sync(&self) {
        let Storage::Spool(spool) = &self.storage else { return };
        let synced = spool.sync();
        if matches!(synced, Ok(true)) {
            // Nothing was read, but the accepted offset has changed.
            self.reading.send_modify(|_| {});
        }
        self.check(synced.map(|_| ()));
    }

    /// Removes blocks that are durable at the relay, which makes room for new ones.
    pub(super) fn release(&self, blocks: &[(u64, u64)]) -> io::Result<()> {
        let size = self.reading().size;
        let mut durable = locked(&self.durable);
        let before = durable.prefix.end();
        for index in blocks.iter().flat_map(|(start, end)| *start..*end) {
            let Some((offset, length)) = block_range(size, index) else { break };
            if !durable.prefix.insert(index) {
                continue;
            }
            durable.bytes += length as u64;
            if let Storage::Memory(file) = &self.storage {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&**file, flags, offset, length as u64)?;
                self.room.add_permits(1);
            }
        }
        // After a crash, the relay continues at the first gap, so the spool must keep all blocks from there
        // on.
        if let Storage::Spool(spool) = &self.storage {
            let end = durable.prefix.end();
            spool.release(end);
            self.room.add_permits((end - before) as usize);
        }
        Ok(())
    }

    /// Records that the relay has placed the stream of `size` bytes, so that data no longer has to be kept.
    pub(super) fn complete(&self, size: u64) -> io::Result<()> {
        locked(&self.durable).placed = Some(size);
        match &self.storage {
            Storage::Memory(_) => Ok(()),
            Storage::Spool(spool) => spool.remove(),
        }
    }

    /// Ends the thread that waits for room.
    pub(super) fn end(&self) {
        self.room.close();
    }

    /// Returns whether the pipe is at its end. Blocks the thread until the producer writes or ends.
    pub(super) fn is_at_end(&self) -> io::Result<bool> {
        loop {
            match (&*self.pipe.file).read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map(|read| read == 0),
            }
        }
    }

    /// Returns the offset up to which the producer may discard its data, once it is known.
    fn accepted(&self, durable: &Durable) -> Option<u64> {
        if durable.placed.is_some() {
            return durable.placed;
        }
        self.from.get()?;
        Some(match &self.storage {
            Storage::Memory(_) => durable.prefix.end() * BLOCK,
            Storage::Spool(spool) => spool.accepted(),
        })
    }

    /// Reports the accepted offset if it has changed, and the number of bytes that are kept.
    pub(super) fn report(&self, observer: &dyn CopyObserver) {
        let reading = self.reading();
        let mut durable = locked(&self.durable);
        let Some(accepted) = self.accepted(&durable) else { return };
        if durable.reported != Some(accepted) {
            durable.reported = Some(accepted);
            observer.accepted(Bytes::new(accepted));
        }
        observer.queue(Bytes::new(self.held(&durable, reading.read)), self.pipe.memory);
    }

    /// Returns the number of bytes that are kept once `read` bytes of the stream have been read.
    fn held(&self, durable: &Durable, read: u64) -> u64 {
        let begin = self.from().unwrap_or(0) * BLOCK;
        match durable.placed {
            Some(_) => 0,
            None => read.saturating_sub(begin).saturating_sub(durable.bytes),
        }
    }

    /// Returns the number of bytes that are kept in memory.
    pub(super) fn in_memory(&self) -> Bytes {
        match self.storage {
            Storage::Memory(_) => Bytes::new(self.held(&locked(&self.durable), self.reading().read)),
            Storage::Spool(_) => Bytes::ZERO,
        }
    }

    /// Returns the maximum number of bytes that are kept in memory.
    pub(super) fn most_in_memory(&self) -> Bytes {
        match self.storage {
            Storage::Memory(_) => self.pipe.memory,
            Storage::Spool(_) => Bytes::ZERO,
        }
    }

    /// Returns the results of the pipe until `now`.
    pub(super) fn summary(&self, now: Instant) -> PipeReport {
        let reading = self.reading();
        let durable = locked(&self.durable);
        let begin = self.from().map_or(durable.placed.unwrap_or(0), |from| from * BLOCK);
        let bytes = Bytes::new(reading.read.saturating_sub(begin));
        let since = |end: Option<Instant>| {
            reading.begun.map_or(Duration::ZERO, |begun| end.unwrap_or(now).saturating_duration_since(begun))
        };
        let blocked = reading.blocked();
        let offered = since(reading.ended).saturating_sub(blocked);
        PipeReport {
            stream: self.pipe.stream.as_ref().map(|name| name.as_str().to_owned()),
            begin_bytes: begin,
            accepted_bytes: self.accepted(&durable).unwrap_or(0),
            most_held_bytes: durable.most_held,
            blocked_s: blocked.as_secs_f64(),
            offered_bps: Rate::mean(bytes, span(offered)).as_bps(),
            carried_bps: Rate::mean(bytes, span(since(None))).as_bps(),
        }
    }

    /// Reads the pipe to its end. Blocks the thread.
    fn read(&self, runtime: &Handle) -> io::Result<()> {
        let mut buffer = vec![0; PART];
        let mut offset = self.reading().read;
        loop {
            if offset.is_multiple_of(BLOCK) {
                self.wait_for_room(runtime)?;
            }
            let rest = (BLOCK - offset % BLOCK).min(PART as u64) as usize;
            let read = loop {
                match (&*self.pipe.file).read(&mut buffer[..rest]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => break read?,
                }
            };
            self.keep(&buffer[..read], offset)?;
            offset += read as u64;
            let is_last = read == 0;
            self.reading.send_if_modified(|reading| {
                reading.read = offset;
                let is_new = is_last || offset.is_multiple_of(BLOCK);
                if is_new {
                    (reading.size, reading.is_last) = (offset, is_last);
                    reading.ended = is_last.then(Instant::now);
                }
                is_new
            });
            if is_last {
                return Ok(());
            }
        }
    }

    fn keep(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.storage {
            Storage::Memory(file) => file.write_all_at(bytes, offset)?,
            Storage::Spool(spool) => {
                if spool.write(bytes, offset)? >= self.pipe.group() {
                    self.sync();
                }
            }
        }
        let mut durable = locked(&self.durable);
        let held = self.held(&durable, offset + bytes.len() as u64);
        durable.most_held = durable.most_held.max(held);
        Ok(())
    }

    /// Waits until there is room for another block.
    fn wait_for_room(&self, runtime: &Handle) -> io::Result<()> {
        if let Ok(permit) = self.room.try_acquire() {
            permit.forget();
            return Ok(());
        }
        let begun = Instant::now();
        self.reading.send_modify(|reading| reading.blocked_since = Some(begun));
        // The semaphore is closed once the copy has ended.
        runtime.block_on(self.room.acquire()).map_err(io::Error::other)?.forget();
        self.reading.send_modify(|reading| {
            reading.blocked += begun.elapsed();
            reading.blocked_since = None;
        });
        Ok(())
    }
}

/// Returns a random, and therefore unique, name for a stream.
fn random_name() -> Result<StreamName, Error> {
    let failed = || Error::runtime("the system's random number generator failed", "");
    let mut name = [0; 16];
    SystemRandom::new().fill(&mut name).map_err(|_| failed())?;
    StreamName::try_from(Hex(name).to_string()).map_err(|_| failed())
}
