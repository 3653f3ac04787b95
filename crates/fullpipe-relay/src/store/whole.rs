//! Files of at most one block, which arrive as whole files.
//!
//! ```text
//!   temporary file ─► write ─► size, mode, mtime, fsync ─► rename ─► fsync of the folder ─► the sender is informed
//! ```
//!
//! A copy of such a file cannot be continued, so the journal has no record of it. One sync of a folder covers all files
//! that have been renamed in it since the previous sync.

use std::io;
use std::path::Path;

use super::{Attributes, Disk, Journal, Lease, Permission, Store, Target, temporary};
use crate::error::Error;
use crate::frame::Source;
use crate::name::RelativePath;

/// Error message for content that the disk does not return as it was written.
pub(crate) const READ_BACK: &str = "the disk does not contain the data that was written";

/// A small file that is announced but whose content has not arrived.
#[derive(Debug)]
pub(crate) struct Announced {
    lease: Lease,
    source: Source,
    permission: Permission,
    /// Whether the content is read back from the disk.
    verify: bool,
}

/// Result of announcing a small file.
#[derive(Debug)]
pub(crate) enum Whole {
    /// The target already has the size and the modification time of the source.
    Same,
    /// The content must be received.
    Announced(Announced),
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

    /// Returns the right to write the target.
    pub(crate) fn into_lease(self) -> Lease {
        self.lease
    }
}

impl<D: Disk, J: Journal> Store<D, J> {
    /// Announces a small file and takes the right to write its target. With `replace`, the size and the modification
    /// time of an existing target are ignored; with `verify`, the content will be read back from the disk.
    pub(crate) fn announce(
        &self,
        target: &RelativePath,
        source: Source,
        permission: Permission,
        (verify, replace): (bool, bool),
    ) -> Result<Whole, Error> {
        let lease = self.lease(target)?;
        match self.target(&lease, source) {
            Ok(Target::Same) if !replace => Ok(Whole::Same),
            Ok(_) => Ok(Whole::Announced(Announced { lease, source, permission, verify })),
            Err(error) => Err(Error::system(format_args!("write {target}"), &error)),
        }
    }

    /// Writes the content of a small file under its target name; with `sparse`, pages that contain only zeros become
    /// holes. The new name survives a crash once [`Store::settle_renames`] has returned.
    pub(crate) fn place_whole(&self, file: &Announced, content: &[u8], sparse: bool) -> io::Result<()> {
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
        let attributes = Attributes { permission: file.permission, mtime_ns: file.source.mtime_ns };
        let placed = created.and_then(|created| {
            match sparse {
                true => self.write_sparse(&created, content, 0)?,
                false => self.disk.write_at(&created, content, 0)?,
            }
            self.disk.finish(&created, attributes)?;
            if file.verify {
                self.disk.drop_cache(&created)?;
                let mut found = vec![0; content.len()];
                self.disk.read_at(&created, &mut found, 0)?;
                if found != content {
                    return Err(io::Error::other(READ_BACK));
                }
            }
            self.durable_folder(target.folder())?;
            self.disk.rename(&temporary, target.as_path())
        });
        if placed.is_err() {
            // The first error is reported.
            let _ = self.disk.remove(&temporary);
        }
        placed
    }

    /// Makes the renames in a folder durable (`fsync` of the folder).
    pub(crate) fn settle_renames(&self, folder: &Path) -> io::Result<()> {
        let synced = self.disk.sync_folder(folder);
        if synced.is_err() {
            super::locked(&self.settled_folders).remove(folder);
        }
        synced
    }
}
