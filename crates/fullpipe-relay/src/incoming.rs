//! One file of more than one block that a session receives.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use crate::engine::{Arrivals, BLOCK, block_range};
use crate::frame::{DataHeader, Storage};
use crate::hash::{BlockValues, block_value};
use crate::hex::Hex;
use crate::locked;
use crate::store::{FileStore, READ_BACK, Unfinished};

/// Message for a content whose hash is not that of the sender.
pub(crate) const DIFFERS: &str = "its content differs from that of the source";

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) stream: u64,
    /// Name of the target, for messages.
    pub(crate) name: String,
    pub(crate) size: u64,
    mode: u32,
    /// The content is read back from the disk.
    verify: bool,
    file: Arc<File>,
    progress: Mutex<Progress>,
    /// Held while the file is synced or placed, and `None` afterwards.
    stored: Mutex<Option<Unfinished<File>>>,
}

/// What is known of the content.
#[derive(Debug)]
struct Progress {
    arrivals: Arrivals,
    values: BlockValues,
    /// Hash that the sender states.
    expected: Option<Hex<32>>,
    /// The decision has been taken to place or to discard the file.
    is_decided: bool,
}

/// Decision on a file of which every block is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The content is that of the source.
    Place,
    /// The content differs from that of the source.
    Discard,
}

impl Incoming {
    pub(crate) fn new(
        stream: u64,
        name: String,
        size: u64,
        (mode, verify): (u32, bool),
        stored: Unfinished<File>,
    ) -> Self {
        let progress = Progress {
            arrivals: Arrivals::new(size, stored.durable()),
            values: BlockValues::new(size),
            expected: None,
            is_decided: false,
        };
        let file = stored.file();
        Self {
            stream,
            name,
            size,
            mode,
            verify,
            file,
            progress: Mutex::new(progress),
            stored: Mutex::new(Some(stored)),
        }
    }

    /// Claims a block; returns whether it has to be written.
    pub(crate) fn claim(&self, index: u64) -> bool {
        locked(&self.progress).arrivals.claim(index)
    }

    /// Writes a claimed block. That of a hole is not written: the file was created as one.
    pub(crate) fn write(&self, store: &FileStore, data: DataHeader, bytes: &[u8]) -> io::Result<()> {
        let DataHeader { offset, length, storage, .. } = data;
        let value = match storage {
            Storage::Full => {
                store.write(&self.file, bytes, offset)?;
                block_value(self.size, offset, bytes)
            }
            Storage::Sparse => {
                store.write_sparse(&self.file, bytes, offset)?;
                block_value(self.size, offset, bytes)
            }
            Storage::Hole => block_value(self.size, offset, &vec![0; length]),
        };
        let index = offset / BLOCK;
        let mut progress = locked(&self.progress);
        progress.values.set(index, value);
        progress.arrivals.written(index);
        Ok(())
    }

    /// Reads the blocks that an earlier transfer wrote, and adds them to the hash, until `is_ended`.
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
            let value = block_value(self.size, offset, &buffer);
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
            (progress.arrivals.begin_sync(), progress.arrivals.after_sync())
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

    /// Sets the hash that the sender states.
    pub(crate) fn expect(&self, hash: Hex<32>) {
        locked(&self.progress).expected = Some(hash);
    }

    /// Returns the decision on the file as soon as every block and the sender's hash are known. Only one
    /// caller receives it.
    pub(crate) fn decide(&self) -> Option<Decision> {
        let mut progress = locked(&self.progress);
        let expected = progress.expected?;
        if progress.is_decided || !progress.arrivals.is_complete() {
            return None;
        }
        let found = progress.values.root()?;
        progress.is_decided = true;
        Some(if found == expected { Decision::Place } else { Decision::Discard })
    }

    /// Carries out a decision.
    pub(crate) fn conclude(&self, store: &FileStore, decision: Decision) -> io::Result<()> {
        let mut stored = locked(&self.stored);
        let placed = match (decision, stored.as_mut()) {
            (Decision::Place, Some(file)) => {
                self.read_back(store).and_then(|()| store.place(file, self.mode))
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

    /// Compares the content of the disk with that which was written, if the sender asked for it.
    fn read_back(&self, store: &FileStore) -> io::Result<()> {
        if !self.verify {
            return Ok(());
        }
        store.drop_cache(&self.file)?;
        let mut found = BlockValues::new(self.size);
        let mut buffer = Vec::new();
        for index in 0.. {
            let Some((offset, length)) = block_range(self.size, index) else { break };
            buffer.resize(length, 0);
            store.read(&self.file, &mut buffer, offset)?;
            found.set(index, block_value(self.size, offset, &buffer));
        }
        if found.root() == locked(&self.progress).expected {
            Ok(())
        } else {
            Err(io::Error::other(READ_BACK))
        }
    }

    /// Discards the temporary file. A failure is not reported, because it follows one that is.
    fn discard(stored: &mut Option<Unfinished<File>>, store: &FileStore) {
        if let Some(file) = stored.take() {
            let _ = store.abandon(&file);
        }
    }
}
