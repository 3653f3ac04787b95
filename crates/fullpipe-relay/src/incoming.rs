//! A file of more than one block that a session receives.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use crate::engine::{Arrivals, BLOCK, MOST_SIZE, block_count, block_range, runs};
use crate::frame::{DataHeader, PlacedPipe, Storage};
use crate::hash::{BlockValues, OPEN_END, block_value};
use crate::hex::Hex;
use crate::locked;
use crate::store::{FileStore, Permission, READ_BACK, Unfinished};

/// Error message for a file whose hash differs from the sender's hash.
pub(crate) const DIFFERS: &str = "the received content differs from that of the source";

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) stream: u64,
    /// Name of the target, for messages.
    pub(crate) name: String,
    /// Size in bytes; [`MOST_SIZE`] for a pipe.
    pub(crate) size: u64,
    is_pipe: bool,
    permission: Permission,
    /// Whether the content is read back from the disk.
    verify: bool,
    file: Arc<File>,
    progress: Mutex<Progress>,
    /// Temporary file, locked while it is synced or placed; `None` afterwards.
    stored: Mutex<Option<Unfinished<File>>>,
}

/// Received parts of the file, and facts about its content.
#[derive(Debug)]
struct Progress {
    arrivals: Arrivals,
    values: BlockValues,
    /// Hash that the sender states, and the first block that it covers.
    expected: Option<(Hex<32>, u64)>,
    /// Hash of the whole content.
    root: Option<Hex<32>>,
    /// Size of a pipe, once the pipe has ended.
    end: Option<u64>,
    /// Short blocks of a pipe with their lengths; only the last block may be short.
    short: Vec<(u64, usize)>,
    /// Whether the decision to place or to discard the file has been made.
    is_decided: bool,
}

/// Decision about a file all of whose blocks are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Place the file: its content equals that of the source.
    Place,
    /// Discard the file: its content differs from that of the source.
    Discard,
}

impl Incoming {
    /// Creates the state of a file of `size` bytes; a file without a size is a pipe.
    pub(crate) fn new(
        stream: u64,
        name: String,
        size: Option<u64>,
        (permission, verify): (Permission, bool),
        stored: Unfinished<File>,
    ) -> Self {
        // For a pipe, only the blocks that an earlier transfer made durable are known.
        let known = size.unwrap_or_else(|| stored.durable().last().map_or(0, |(_, end)| *end * BLOCK));
        let progress = Progress {
            arrivals: Arrivals::new(known, stored.durable()),
            values: BlockValues::new(size.unwrap_or(OPEN_END)),
            expected: None,
            root: None,
            end: None,
            short: Vec::new(),
            is_decided: false,
        };
        let file = stored.file();
        Self {
            stream,
            name,
            size: size.unwrap_or(MOST_SIZE),
            is_pipe: size.is_none(),
            permission,
            verify,
            file,
            progress: Mutex::new(progress),
            stored: Mutex::new(Some(stored)),
        }
    }

    /// Returns whether the file may contain a block. The last block of a pipe may be short, but the end of
    /// the pipe must be known to tell which block is the last.
    pub(crate) fn has(&self, data: DataHeader) -> bool {
        let end = locked(&self.progress).end;
        // The file of a pipe is not created with its full size, so a hole at its end would be missing.
        if self.is_pipe && data.storage != Storage::Full {
            return false;
        }
        let length = block_range(end.unwrap_or(self.size), data.offset / BLOCK).map(|(_, length)| length);
        length == Some(data.length) || (length.is_some() && self.is_pipe && end.is_none())
    }

    /// Returns the number of the first block from `from` on that has not arrived.
    pub(crate) fn arrived_from(&self, from: u64) -> u64 {
        locked(&self.progress).arrivals.first_missing(from)
    }

    /// Reads a part of the file that has arrived.
    pub(crate) fn read(&self, store: &FileStore, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        store.read(&self.file, buffer, offset)
    }

    /// Claims a block; returns whether it must be written.
    pub(crate) fn claim(&self, index: u64) -> bool {
        let mut progress = locked(&self.progress);
        if self.is_pipe && progress.end.is_none() {
            progress.arrivals.grow(index + 1);
        }
        progress.arrivals.claim(index)
    }

    /// Returns the file size to use for hashing blocks.
    fn hashed_size(&self) -> u64 {
        if self.is_pipe { OPEN_END } else { self.size }
    }

    /// Writes a claimed block. A block that is a hole is not written, because the file was created as a hole.
    pub(crate) fn write(&self, store: &FileStore, data: DataHeader, bytes: &[u8]) -> io::Result<()> {
        let DataHeader { offset, length, storage, .. } = data;
        let value = match storage {
            Storage::Full => {
                store.write(&self.file, bytes, offset)?;
                block_value(self.hashed_size(), offset, bytes)
            }
            Storage::Sparse => {
                store.write_sparse(&self.file, bytes, offset)?;
                block_value(self.hashed_size(), offset, bytes)
            }
            Storage::Hole => block_value(self.hashed_size(), offset, &vec![0; length]),
        };
        let index = offset / BLOCK;
        let mut progress = locked(&self.progress);
        progress.values.set(index, value);
        progress.arrivals.written(index);
        if self.is_pipe && (length as u64) < BLOCK {
            progress.short.push((index, length));
        }
        Ok(())
    }

    /// Reads the blocks that an earlier transfer wrote, and adds them to the hash; stops when `is_ended`
    /// returns true.
    pub(crate) fn hash_durable(
        &self,
        store: &FileStore,
        durable: &[(u64, u64)],
        is_ended: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut buffer = Vec::new();
        for index in durable.iter().flat_map(|(start, end)| *start..*end) {
            if is_ended() {
                break;
            }
            let Some((offset, length)) = block_range(self.size, index) else { break };
            buffer.resize(length, 0);
            store.read(&self.file, &mut buffer, offset)?;
            let value = block_value(self.hashed_size(), offset, &buffer);
            locked(&self.progress).values.set(index, value);
        }
        Ok(())
    }

    /// Makes the written blocks durable, and returns their ranges.
    pub(crate) fn sync(&self, store: &FileStore) -> io::Result<Vec<(u64, u64)>> {
        let mut stored = locked(&self.stored);
        let Some(file) = stored.as_mut() else { return Ok(Vec::new()) };
        let (begun, after) = {
            let mut progress = locked(&self.progress);
            let ranges = (progress.arrivals.begin_sync(), progress.arrivals.after_sync());
            // The journal cannot record the length of a short block of a pipe.
            let is_whole = |index: &u64| progress.short.iter().all(|(short, _)| short != index);
            let whole = |ranges: Vec<(u64, u64)>| match progress.short.is_empty() {
                true => ranges,
                false => runs(ranges.iter().flat_map(|(start, end)| *start..*end).filter(is_whole)),
            };
            (whole(ranges.0), whole(ranges.1))
        };
        if begun.is_empty() {
            return Ok(begun);
        }
        match store.sync(file, after) {
            Ok(()) => {
                locked(&self.progress).arrivals.synced();
                Ok(begun)
            }
            Err(error) => {
                Self::discard(&mut stored, store);
                Err(error)
            }
        }
    }

    /// Sets the size of a pipe, and the sender's hash of the blocks from number `from` on. Returns whether
    /// this size is possible.
    pub(crate) fn expect(&self, hash: Hex<32>, size: Option<u64>, from: u64) -> bool {
        let mut progress = locked(&self.progress);
        match size {
            Some(size) if self.is_pipe && progress.end.is_none() && size <= MOST_SIZE => {
                if !progress.values.end(size) {
                    return false;
                }
                progress.arrivals.grow(block_count(size));
                progress.end = Some(size);
            }
            None if !self.is_pipe && from == 0 => {}
            _ => return false,
        }
        progress.expected = Some((hash, from));
        true
    }

    /// Returns the decision about the file as soon as every block and the sender's hash are known. Only one
    /// caller receives the decision.
    pub(crate) fn decide(&self) -> Option<Decision> {
        let mut progress = locked(&self.progress);
        let (expected, from) = progress.expected?;
        if progress.is_decided || !progress.arrivals.is_complete() {
            return None;
        }
        let root = progress.values.root()?;
        let found = if from == 0 { Some(root) } else { progress.values.suffix(from) };
        (progress.is_decided, progress.root) = (true, Some(root));
        let is_whole = progress.end.is_none_or(|size| {
            let last =
                block_count(size).checked_sub(1).and_then(|index| Some((index, block_range(size, index)?.1)));
            progress.short.iter().copied().eq(last.filter(|(_, length)| (*length as u64) < BLOCK))
        });
        Some(if found == Some(expected) && is_whole { Decision::Place } else { Decision::Discard })
    }

    /// Carries out a decision.
    pub(crate) fn conclude(&self, store: &FileStore, decision: Decision) -> io::Result<()> {
        let mut stored = locked(&self.stored);
        let placed = match (decision, stored.as_mut()) {
            (Decision::Place, Some(file)) => {
                if let Some(placed) = self.placed_pipe() {
                    file.end(placed);
                }
                self.read_back(store).and_then(|()| store.place(file, self.permission))
            }
            (Decision::Discard, _) => Err(io::Error::other(DIFFERS)),
            (Decision::Place, None) => Err(io::Error::other("an earlier write failed")),
        };
        if placed.is_err() {
            Self::discard(&mut stored, store);
        }
        *stored = None;
        placed
    }

    /// Returns the hash of the whole content.
    pub(crate) fn root(&self) -> Option<Hex<32>> {
        locked(&self.progress).root
    }

    /// Returns size and hash of a complete pipe.
    pub(crate) fn placed_pipe(&self) -> Option<PlacedPipe> {
        let progress = locked(&self.progress);
        Some(PlacedPipe { size: progress.end?, blake3: progress.root? })
    }

    /// Reads the file back from the disk and compares it with the received content, if the sender asked for
    /// this.
    fn read_back(&self, store: &FileStore) -> io::Result<()> {
        if !self.verify {
            return Ok(());
        }
        store.drop_cache(&self.file)?;
        let size = locked(&self.progress).end.unwrap_or(self.size);
        let mut found = BlockValues::new(size);
        let mut buffer = Vec::new();
        for index in 0.. {
            let Some((offset, length)) = block_range(size, index) else { break };
            buffer.resize(length, 0);
            store.read(&self.file, &mut buffer, offset)?;
            found.set(index, block_value(size, offset, &buffer));
        }
        if found.root() == locked(&self.progress).root { Ok(()) } else { Err(io::Error::other(READ_BACK)) }
    }

    /// Discards the temporary file. An error is not reported, because another failure is already being
    /// reported.
    fn discard(stored: &mut Option<Unfinished<File>>, store: &FileStore) {
        if let Some(file) = stored.take() {
            let _ = store.abandon(&file);
        }
    }
}
