//! A file that keeps the bytes of a pipe, so that they survive a crash of this host.
//!
//! ```text
//!   0        4 KiB     8 KiB    1 MiB
//!   | slot 0 | slot 1 | unused | bytes of the stream, with a hole where they are durable at the relay ...
//! ```
//!
//! The two slots are written alternately, so at least one of them is intact after a crash. A slot states the
//! number of accepted bytes, which are synced before the slot is written. It also states the number of
//! released blocks, which are durable at the relay.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

use crate::engine::BLOCK;
use crate::error::Error;
use crate::locked;
use crate::name::StreamName;

/// Offset of the stream in the file, a multiple of the block size, so that blocks of the stream are blocks of
/// the file.
pub(super) const BASE: u64 = BLOCK;
/// Distance between the slots in bytes: one page, which a disk writes at once.
const SLOT: u64 = 4096;
/// Length of a slot in bytes: a magic number, three numbers, and a hash of these.
const SLOT_LENGTH: usize = 64;
const MARK: &[u8; 8] = b"fpspool1";
/// Permission bits of the file.
const PRIVATE: u32 = 0o600;

/// State recorded in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    sequence: u64,
    accepted: u64,
    released: u64,
}

impl State {
    fn encode(self) -> [u8; SLOT_LENGTH] {
        let mut bytes = [0; SLOT_LENGTH];
        bytes[..8].copy_from_slice(MARK);
        for (field, value) in
            bytes[8..32].chunks_exact_mut(8).zip([self.sequence, self.accepted, self.released])
        {
            field.copy_from_slice(&value.to_be_bytes());
        }
        let hash = blake3::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(hash.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SLOT_LENGTH]) -> Option<Self> {
        let number =
            |at: usize| bytes[at..at + 8].iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
        let state = Self { sequence: number(8), accepted: number(16), released: number(24) };
        (state.encode() == *bytes).then_some(state)
    }
}

/// A spool file, which one process uses at a time.
#[derive(Debug)]
pub(super) struct Spool {
    pub(super) file: Arc<File>,
    path: PathBuf,
    /// Number of bytes that have been written.
    written: AtomicU64,
    /// Number of bytes that survive a crash.
    accepted: AtomicU64,
    /// Number of blocks that are durable at the relay.
    released: AtomicU64,
    recorded: Mutex<State>,
}

impl Spool {
    /// Opens the spool of the stream `name` in `folder`, or creates it.
    pub(super) fn open(folder: &Path, name: &StreamName) -> Result<Self, Error> {
        let hash = blake3::hash(name.as_str().as_bytes()).to_hex();
        let path = folder.join(format!("fullpipe-{}.spool", &hash[..16]));
        let failed = |error: io::Error| Error::system(format_args!("open {}", path.display()), &error);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(&path);
        let file = file.map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Error::runtime(
                format!("another copy uses the spool {}", path.display()),
                "wait until that copy ends, or choose another --stream",
            )
            .temporary()
        })?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        let mut recorded = State::default();
        for slot in [0, 1] {
            let mut bytes = [0; SLOT_LENGTH];
            // A new file has no slots yet.
            if file.read_exact_at(&mut bytes, slot * SLOT).is_ok()
                && let Some(state) = State::decode(&bytes)
                && state.sequence > recorded.sequence
            {
                recorded = state;
            }
        }
        Ok(Self {
            file: Arc::new(file),
            path,
            written: AtomicU64::new(recorded.accepted),
            accepted: AtomicU64::new(recorded.accepted),
            released: AtomicU64::new(recorded.released),
            recorded: Mutex::new(recorded),
        })
    }

    /// Returns the number of bytes that survive a crash.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// Returns the number of blocks that are no longer in the file.
    pub(super) fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// Skips to `offset`, because an earlier process has sent all bytes before it.
    pub(super) fn skip(&self, offset: u64) {
        self.written.fetch_max(offset, Ordering::AcqRel);
        self.accepted.fetch_max(offset, Ordering::AcqRel);
    }

    /// Appends bytes at `offset`; returns the number of bytes that are not synced yet.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<u64> {
        self.file.write_all_at(bytes, BASE + offset)?;
        let end = offset + bytes.len() as u64;
        self.written.store(end, Ordering::Release);
        Ok(end - self.accepted().min(end))
    }

    /// Records that the blocks below `end` are durable at the relay. The next sync removes them from the
    /// file.
    pub(super) fn release(&self, end: u64) {
        self.released.fetch_max(end, Ordering::AcqRel);
    }

    /// Syncs the written bytes; returns whether anything has changed.
    pub(super) fn sync(&self) -> io::Result<bool> {
        let mut recorded = locked(&self.recorded);
        let (accepted, released) = (self.written.load(Ordering::Acquire), self.released());
        if (accepted, released) == (recorded.accepted, recorded.released) {
            return Ok(false);
        }
        self.file.sync_data()?;
        let state = State { sequence: recorded.sequence + 1, accepted, released };
        self.file.write_all_at(&state.encode(), state.sequence % 2 * SLOT)?;
        self.file.sync_data()?;
        self.accepted.fetch_max(accepted, Ordering::AcqRel);
        if released > recorded.released {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (begin, length) = (recorded.released * BLOCK, (released - recorded.released) * BLOCK);
            fallocate(&*self.file, flags, BASE + begin, length)?;
        }
        *recorded = state;
        Ok(true)
    }

    /// Removes the file, because the relay has placed the stream.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_is_there_after_a_crash() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = StreamName::try_from("feed".to_owned()).expect("a name");
        let open = || Spool::open(folder.path(), &name).expect("a spool");
        let spool = open();
        assert_eq!((spool.accepted(), spool.sync().expect("nothing to do")), (0, false));
        let bytes = vec![7; BLOCK as usize + 5];
        assert_eq!(spool.write(&bytes, 0).expect("written"), BLOCK + 5);
        assert_eq!(spool.accepted(), 0, "written, and not synced");
        assert!(spool.sync().expect("synced"));
        assert_eq!(spool.write(b"more", BLOCK + 5).expect("written"), 4);
        let busy = Spool::open(folder.path(), &name).expect_err("another process has it");
        assert!(busy.message.starts_with("another copy uses the spool"), "{busy}");
        drop(spool);
        let spool = open();
        assert_eq!((spool.accepted(), spool.released()), (BLOCK + 5, 0));
        spool.release(1);
        assert!(spool.sync().expect("synced"));
        drop(spool);
        let spool = open();
        assert_eq!((spool.accepted(), spool.released()), (BLOCK + 5, 1));
        let mut found = [0; 5];
        spool.file.read_exact_at(&mut found, BASE + BLOCK).expect("readable");
        assert_eq!(found, [7; 5]);
        spool.file.read_exact_at(&mut found, BASE).expect("readable");
        assert_eq!(found, [0; 5], "block 0 is a hole");
        spool.remove().expect("removed");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_damaged_slot_leaves_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = StreamName::try_from("feed".to_owned()).expect("a name");
        let spool = Spool::open(folder.path(), &name).expect("a spool");
        for (bytes, offset) in [(b"one", 0), (b"two", 3)] {
            spool.write(bytes, offset).expect("written");
            assert!(spool.sync().expect("synced"));
        }
        let last = *locked(&spool.recorded);
        spool.file.write_all_at(&[9; 7], last.sequence % 2 * SLOT + 20).expect("written");
        drop(spool);
        let spool = Spool::open(folder.path(), &name).expect("a spool");
        assert_eq!((last.accepted, spool.accepted()), (6, 3));
    }
}
