//! Standard output as the target of a copy: the file is received in a temporary folder, and its blocks are written to
//! the pipe in order while later blocks arrive.
//!
//! ```text
//!   blocks in any order ─► temporary file ─► blocks without a gap ─► pipe
//! ```
//!
//! A block that arrives before an earlier one waits on the disk, so a slow reader neither slows the connections down
//! nor needs memory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FlockOperation, flock};

use crate::engine::{block_count, block_range};
use crate::error::Error;
use crate::hex::Hex;
use crate::incoming::Incoming;
use crate::locked;
use crate::store::FileStore;

/// Beginning of the name of the temporary folder of a copy to a pipe.
const PREFIX: &str = ".fullpipe-copy-";

/// File whose content goes to the pipe.
#[derive(Clone, Debug)]
enum Content {
    /// A file of at most one block.
    Whole(Arc<Vec<u8>>),
    /// A file that arrives in blocks. Each attempt at the copy has its own [`Incoming`] for it.
    Blocks(Arc<Incoming>),
}

#[derive(Debug, Default)]
struct State {
    content: Option<Content>,
    /// Whether no more data will arrive.
    is_ended: bool,
    /// Number of blocks that have been written to the pipe.
    written: u64,
    is_complete: bool,
}

/// Pipe that receives the content of one file.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    state: Mutex<State>,
    changed: Condvar,
}

impl Outlet {
    /// Records that a file of at most one block has arrived.
    pub(crate) fn whole(&self, content: &[u8]) {
        let mut state = locked(&self.state);
        state.content.get_or_insert_with(|| Content::Whole(Arc::new(content.to_vec())));
        self.changed.notify_all();
    }

    /// Sets the file whose blocks arrive. Returns `false` if bytes of another or changed file have already been written
    /// to the pipe.
    pub(crate) fn begin(&self, file: Arc<Incoming>, is_restarted: bool) -> bool {
        let mut state = locked(&self.state);
        let is_other = match &state.content {
            Some(Content::Blocks(earlier)) => earlier.size != file.size,
            Some(Content::Whole(_)) => true,
            None => false,
        };
        if state.written > 0 && (is_restarted || is_other) {
            return false;
        }
        state.content = Some(Content::Blocks(file));
        self.changed.notify_all();
        true
    }

    /// Records that a block has arrived.
    pub(crate) fn arrived(&self) {
        let _state = locked(&self.state);
        self.changed.notify_all();
    }

    /// Records that no more data will arrive.
    pub(crate) fn end(&self) {
        locked(&self.state).is_ended = true;
        self.changed.notify_all();
    }

    /// Writes the file to `output` until it is complete, or until no more data will arrive; returns whether it is
    /// complete.
    pub(crate) fn run(&self, store: &FileStore, output: &mut impl Write) -> io::Result<bool> {
        let mut buffer = Vec::new();
        loop {
            let (content, blocks) = {
                let mut state = locked(&self.state);
                loop {
                    if state.is_complete {
                        return Ok(true);
                    }
                    let ready = match &state.content {
                        None => 0,
                        Some(Content::Whole(_)) => 1,
                        Some(Content::Blocks(file)) => file.arrived_from(state.written),
                    };
                    if let Some(content) = state.content.clone().filter(|_| ready > state.written) {
                        break (content, state.written..ready);
                    }
                    if state.is_ended {
                        return Ok(false);
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let (end, all) = (
                blocks.end,
                match &content {
                    Content::Whole(_) => 1,
                    Content::Blocks(file) => block_count(file.size),
                },
            );
            match content {
                Content::Whole(content) => output.write_all(&content)?,
                Content::Blocks(file) => {
                    for (offset, length) in blocks.filter_map(|index| block_range(file.size, index)) {
                        buffer.resize(length, 0);
                        file.read(store, &mut buffer, offset)?;
                        output.write_all(&buffer)?;
                    }
                }
            }
            output.flush()?;
            let mut state = locked(&self.state);
            (state.written, state.is_complete) = (end, end == all);
        }
    }
}

/// Temporary folder of a copy to a pipe, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Locked while the copy runs.
    _lock: File,
}

impl Scratch {
    /// Creates a folder in `parent`, and removes the folders of killed copies.
    pub(crate) fn new(parent: &Path) -> Result<Self, Error> {
        let failed = |error: &io::Error| {
            let mut error = Error::system(format_args!("create a folder in {}", parent.display()), error);
            error.hint = "set TMPDIR to a folder with enough space for the file".into();
            error
        };
        for entry in fs::read_dir(parent).map_err(|error| failed(&error))?.flatten() {
            let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            // The folder of a running copy is locked, and that of another user cannot be removed.
            if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) && lock(&entry.path()).is_ok() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let mut name = [0; 8];
        SystemRandom::new()
            .fill(&mut name)
            .map_err(|_| Error::runtime("the system's random number generator failed", ""))?;
        let path = parent.join(format!("{PREFIX}{}", Hex(name)));
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| failed(&error))?;
        let lock = lock(&path).map_err(|error| failed(&error))?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next copy to a pipe removes a leftover folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_killed_copies_are_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let (one, two) = (Scratch::new(parent.path()), Scratch::new(parent.path()));
        let (one, two) = (one.expect("a folder"), two.expect("a folder"));
        fs::write(one.path().join("content"), "data").expect("written");
        // A killed process loses its lock, but not its folder.
        let killed = parent.path().join(format!("{PREFIX}0011223344556677"));
        fs::create_dir(&killed).expect("a folder");
        drop(Scratch::new(parent.path()).expect("a folder"));
        assert!(one.path().exists() && two.path().exists(), "running copies keep their folders");
        assert!(!killed.exists());
        drop((one, two));
        assert_eq!(fs::read_dir(parent.path()).expect("a folder").count(), 0);
    }
}
