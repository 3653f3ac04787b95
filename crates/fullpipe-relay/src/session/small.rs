//! Small files of a transfer, which arrive whole.
//!
//! ```text
//!   connections ─► arrived files ─► up to 16 threads: temporary file, write, fsync, rename ─► renamed files
//!     ─► one fsync of each folder ─► replies
//! ```
//!
//! A thread places files until none waits. With a thread for each file, passing it to the thread took 18 futex calls, and
//! a third of the CPU time that a relay needed for 10 000 files of 10 KiB.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullpipe_units::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

use super::{PLACING, Session, invalid};
use crate::engine::BLOCK;
use crate::error::Error;
use crate::frame::{HASH, Reply};
use crate::hex::Hex;
use crate::incoming::DIFFERS;
use crate::locked;
use crate::store::Announced;

/// Memory in KiB that a file needs besides its content: its hash, its name and its attributes.
const BESIDES: u32 = 2;
/// Memory of the small files that wait to be placed, in KiB: 16 files of the largest size.
pub(super) const ROOM: u32 = 16 * ((BLOCK >> 10) as u32 + BESIDES);

/// A small file whose content has arrived.
#[derive(Debug)]
struct Small {
    stream: u64,
    file: Announced,
    /// Hash and content.
    bytes: Vec<u8>,
    sparse: bool,
    _room: OwnedSemaphorePermit,
}

/// Small files that have arrived, and the number of threads that place them.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    files: VecDeque<Small>,
    threads: usize,
}

impl Arrived {
    /// Adds a file; returns whether another thread is to place files. Where files are placed as fast as they arrive, few
    /// threads are enough.
    fn push(&mut self, file: Small) -> bool {
        self.files.push_back(file);
        let starts = self.threads < PLACING as usize && self.files.len() > self.threads;
        self.threads += usize::from(starts);
        starts
    }

    /// Returns the next file; if there is none, the calling thread counts as ended.
    fn take(&mut self) -> Option<Small> {
        let file = self.files.pop_front();
        self.threads -= usize::from(file.is_none());
        file
    }
}

impl Session {
    /// Places a small file whose content has arrived. While there is no room for it, its connection is not read, which
    /// bounds the memory that these files need.
    pub(super) async fn whole(self: &Arc<Self>, stream: u64, bytes: Vec<u8>, sparse: bool) -> io::Result<()> {
        // A second copy of the file may arrive after the loss of a connection.
        let Some(file) = locked(&self.announced).remove(&stream) else { return Ok(()) };
        let content = file.size();
        if bytes.len() as u64 != HASH as u64 + content {
            return Err(invalid("the size of a file differs from the announced size"));
        }
        // The content has at most 1 MiB, and the semaphore is never closed.
        let needed = (content as u32).div_ceil(1 << 10) + BESIDES;
        let room = Arc::clone(&self.room).acquire_many_owned(needed).await.map_err(io::Error::other)?;
        if locked(&self.arrived).push(Small { stream, file, bytes, sparse, _room: room }) {
            let session = Arc::clone(self);
            spawn_blocking(move || session.place_arrived());
        }
        Ok(())
    }

    /// Places small files until none waits.
    fn place_arrived(&self) {
        loop {
            let small = locked(&self.arrived).take();
            let Some(small) = small else { return };
            // After a failure, the sender no longer waits for this file.
            if locked(&self.failure).is_none() {
                self.place(small);
            }
        }
    }

    fn place(&self, small: Small) {
        let Small { stream, file, bytes, sparse, _room } = small;
        let (hash, content) = bytes.split_at(HASH);
        let is_intact = hash == blake3::hash(content).as_bytes();
        let placed = match is_intact {
            true => self.store.place_whole(&file, content, sparse),
            false => Err(io::Error::other(DIFFERS)),
        };
        if let Err(error) = placed {
            return self.not_placed(&file.target().to_string(), &error, is_intact);
        }
        if let Some(outlet) = &self.outlet {
            outlet.whole(content);
        }
        let mut totals = locked(&self.totals);
        totals.received += Bytes::new(file.size());
        totals.hash = hash.first_chunk().map(|hash| Hex(*hash));
        drop(totals);
        locked(&self.renamed).push((stream, file.into_lease()));
        self.has_renamed.notify_one();
    }

    /// Until the transfer ends, makes the names of small files durable. Each sync covers all files that have
    /// arrived since the previous sync.
    pub(crate) async fn keep_settled(self: Arc<Self>) {
        let mut closed = self.closed.subscribe();
        while !*closed.borrow() {
            tokio::select! {
                () = self.has_renamed.notified() => {}
                _ = closed.changed() => {}
            }
            self.settle().await;
        }
    }

    pub(super) async fn settle(&self) {
        let files = std::mem::take(&mut *locked(&self.renamed));
        if files.is_empty() {
            return;
        }
        let store = Arc::clone(&self.store);
        let settled = spawn_blocking(move || {
            let folders: BTreeSet<&Path> = files.iter().map(|(_, file)| file.target().folder()).collect();
            for folder in folders {
                store.settle_renames(folder).map_err(|error| (folder.to_path_buf(), error))?;
            }
            Ok(files.iter().map(|(stream, _)| *stream).collect::<Vec<_>>())
        });
        match settled.await.unwrap_or_else(|error| Err((PathBuf::new(), io::Error::other(error)))) {
            Ok(streams) => {
                locked(&self.totals).files += streams.len() as u64;
                for stream in streams {
                    self.reply(Reply::Placed { stream, pipe: None });
                }
            }
            Err((folder, error)) => {
                self.fail(Error::system(format_args!("sync the folder {}", folder.display()), &error));
            }
        }
    }
}
