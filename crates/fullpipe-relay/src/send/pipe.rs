//! A pipe as the source: its bytes stay in memory until they are durable at the relay.
//!
//! ```text
//!   pipe ──read──► memory ──frame──► connections ──► relay
//!                    ▲                                 │
//!                    └──── removed, room for more ◄────┴── durable
//! ```
//!
//! The memory is an anonymous file, so that the connections read blocks as they read those of files. What is
//! durable becomes a hole in it. When the memory is full, the pipe is not read, and its producer waits.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_units::Bytes;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::connection::{Event, Events};
use crate::engine::{BLOCK, block_range};
use crate::error::Error;
use crate::frame::Source;
use crate::sources::source_of;

/// Smallest memory for a pipe: the groups that the relay makes durable are a quarter of it, and at least a
/// block.
const LEAST: Bytes = Bytes::from_mib(4);
/// Largest memory: the relay's groups have at most a quarter of it.
const MOST: Bytes = Bytes::from_mib(4096);

/// A pipe, and the memory for its bytes that are not durable at the relay.
#[derive(Clone, Debug)]
pub struct Pipe {
    file: Arc<File>,
    memory: Bytes,
}

impl Pipe {
    /// Describes a pipe. Its bytes take at most `memory`.
    ///
    /// # Errors
    /// Returns an error for a memory below 4 MiB or above 4 GiB.
    pub fn new(file: File, memory: Bytes) -> Result<Self, Error> {
        if !(LEAST..=MOST).contains(&memory) {
            return Err(Error::usage(
                format!("{memory} is not a size of the memory for a pipe"),
                format!("choose from {LEAST} to {MOST}"),
            ));
        }
        Ok(Self { file: Arc::new(file), memory })
    }

    /// Returns the amount that the relay makes durable at once.
    pub(super) fn group(&self) -> Bytes {
        self.memory.mul_div(1, 4)
    }
}

/// Memory for the bytes of a pipe.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) file: Arc<File>,
    /// Number of blocks that there is room for.
    room: Arc<Semaphore>,
}

impl Held {
    pub(super) fn new(pipe: &Pipe) -> Result<Self, Error> {
        let memory = memfd_create("fullpipe-pipe", MemfdFlags::CLOEXEC);
        let memory = memory.map_err(|error| Error::system("hold the pipe in memory", &error.into()))?;
        let blocks = (pipe.memory.get() / BLOCK) as usize;
        Ok(Self { file: Arc::new(memory.into()), room: Arc::new(Semaphore::new(blocks)) })
    }

    /// Returns the facts by which the relay tells this pipe from others.
    pub(super) fn source(&self) -> Result<Source, Error> {
        let metadata = self.file.metadata();
        metadata
            .map(|found| source_of(&found))
            .map_err(|error| Error::system("hold the pipe in memory", &error))
    }

    /// Removes blocks that are durable, which makes room for others.
    pub(super) fn remove(&self, size: u64, blocks: &[(u64, u64)]) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for index in blocks.iter().flat_map(|(start, end)| *start..*end) {
            let Some((offset, length)) = block_range(size, index) else { break };
            fallocate(&*self.file, flags, offset, length as u64)?;
            self.room.add_permits(1);
        }
        Ok(())
    }

    /// Reads `pipe` to its end, and reports each block. Blocks the thread.
    pub(super) fn fill(&self, pipe: &Pipe, runtime: &Handle, events: &Events) {
        if let Err(error) = self.read(&pipe.file, runtime, events) {
            let _ = events.send(Event::Piped(Piped::Failed(error)));
        }
    }

    fn read(&self, mut pipe: &File, runtime: &Handle, events: &Events) -> io::Result<()> {
        let (mut buffer, mut offset, mut blocked) = (vec![0; BLOCK as usize], 0, Duration::ZERO);
        loop {
            if let Ok(permit) = self.room.try_acquire() {
                permit.forget();
            } else {
                let begun = Instant::now();
                // The semaphore is never closed.
                runtime.block_on(self.room.acquire()).map_err(io::Error::other)?.forget();
                blocked += begun.elapsed();
            }
            let mut filled = 0;
            while filled < buffer.len() {
                match pipe.read(&mut buffer[filled..]) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.file.write_all_at(&buffer[..filled], offset)?;
            offset += filled as u64;
            let is_last = filled < buffer.len();
            if events.send(Event::Piped(Piped::Read { size: offset, is_last, blocked })).is_err() || is_last {
                return Ok(());
            }
        }
    }
}

/// What was read from a pipe.
#[derive(Debug)]
pub(super) enum Piped {
    /// The pipe has had `size` bytes so far, and was not read for `blocked` because the memory was full.
    Read { size: u64, is_last: bool, blocked: Duration },
    /// The pipe or the memory failed.
    Failed(io::Error),
}
