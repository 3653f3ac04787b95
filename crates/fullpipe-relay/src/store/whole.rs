//! Files of at most one block, which arrive as a whole.
//!
//! ```text
//!   temporary file ─► write ─► size, mode, mtime, fsync ─► rename ─► fsync of the folder ─► the sender is informed
//! ```
//!
//! There is nothing to continue, so the journal has no record. The folder is synced once for all files that
//! have been renamed in it meanwhile.

use std::io;
use std::path::Path;

use super::{Attributes, Disk, Journal, Lease, Store, Target, temporary};
use crate::error::Error;
use crate::frame::Source;
use crate::name::RelativePath;

/// A target that waits for its content.
#[derive(Debug)]
pub(crate) struct Announced {
    lease: Lease,
    source: Source,
    mode: u32,
}

impl Announced {
    /// Returns the size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.source.size
    }

    /// Returns the target.
    pub(crate) fn target(&self) -> &RelativePath {
        &self.lease.target
    }
}

impl<D: Disk, J: Journal> Store<D, J> {
    /// Takes the target of a small file; returns `None` if it has the size and the modification time of the
    /// source already.
    pub(crate) fn announce(
        &self,
        target: &RelativePath,
        source: Source,
        mode: u32,
    ) -> Result<Option<Announced>, Error> {
        let lease = self.lease(target)?;
        match self.target(&lease, source) {
            Ok(Target::Same) => Ok(None),
            Ok(Target::Other) => Ok(Some(Announced { lease, source, mode })),
            Err(error) => Err(Error::system(format_args!("write {target}"), &error)),
        }
    }

    /// Gives a target its content. The new name survives a crash when [`Store::settle_renames`] has returned.
    pub(crate) fn place_whole(&self, file: &Announced, content: &[u8]) -> io::Result<()> {
        let target = &file.lease.target;
        if self.journal.get(target)?.is_some() {
            self.journal.remove(target)?;
        }
        let temporary = temporary(target);
        let created = match self.disk.create(&temporary, file.source.size) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_folders(target.folder())?;
                self.disk.create(&temporary, file.source.size)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.remove(&temporary)?;
                self.disk.create(&temporary, file.source.size)
            }
            created => created,
        };
        let attributes = Attributes { mode: file.mode, mtime_ns: file.source.mtime_ns };
        let placed = created.and_then(|created| {
            self.disk.write_at(&created, content, 0)?;
            self.disk.finish(&created, attributes)?;
            self.durable_folder(target.folder())?;
            self.disk.rename(&temporary, target.as_path())
        });
        if placed.is_err() {
            // The error that is reported is the first one.
            let _ = self.disk.remove(&temporary);
        }
        placed
    }

    /// Makes the renames in a folder durable.
    pub(crate) fn settle_renames(&self, folder: &Path) -> io::Result<()> {
        let synced = self.disk.sync_folder(folder);
        if synced.is_err() {
            super::locked(&self.settled_folders).remove(folder);
        }
        synced
    }
}
