//! Files of pipes, which a later transfer of the same stream can continue.
//!
//! A pipe has neither a size nor a modification time, so a later transfer recognises it by the name of its
//! stream. Only whole blocks are recorded as durable, because the journal has no length for a shorter one.
//! The record of a complete pipe stays in the journal; otherwise, a sender that did not receive the last
//! reply would start again, although its producer was told that all bytes are durable.

use std::io;
use std::sync::Arc;

use super::{Disk, FileKind, Journal, Lease, Opened, PipeRecord, Record, Store, Unfinished, temporary};
use crate::engine::BLOCK;
use crate::error::Error;
use crate::frame::{PipeSource, Source};
use crate::name::{RelativePath, StreamName};

impl<D: Disk, J: Journal> Store<D, J> {
    /// Opens the temporary file of a pipe, and continues an earlier transfer of the same stream.
    pub(crate) fn open_pipe(
        &self,
        target: &RelativePath,
        source: Source,
        pipe: &PipeSource,
    ) -> Result<Opened<D::File>, Error> {
        let lease = self.lease(target)?;
        self.open_pipe_leased(lease, source, pipe)
            .map_err(|error| Error::system(format_args!("write {target}"), &error))
    }

    fn open_pipe_leased(
        &self,
        lease: Lease,
        source: Source,
        pipe: &PipeSource,
    ) -> io::Result<Opened<D::File>> {
        let target = &lease.target;
        let status = self.disk.status(target.as_path())?;
        if status.is_some_and(|status| status.kind == FileKind::Other) {
            return Err(io::Error::other("the target exists and is not a regular file"));
        }
        let temporary = temporary(target);
        let is_same = |record: &Record| record.pipe.as_ref().is_some_and(|known| known.name == pipe.name);
        if let Some(record) = self.journal.get(target)?.filter(is_same) {
            let placed = record.pipe.as_ref().and_then(|pipe| pipe.placed);
            if let (Some(placed), Some(status)) = (placed, status)
                && Some(status.inode) == record.inode
            {
                return Ok(Opened::Complete(placed));
            }
            if record.inode.is_some()
                && !record.placing
                && let Some(file) = self.open_existing(&temporary)?
                && Some(self.disk.inode(&file)?) == record.inode
            {
                let known = PipeRecord { name: pipe.name.clone(), placed: None };
                let mut record = Record { pipe: Some(known), ..record };
                if !pipe.holds {
                    // The sender may write blocks that differ from those of an earlier sender.
                    record.durable.retain(|(start, _)| *start == 0);
                }
                // The journal is written first, because it must not claim blocks that are about to be cut
                // off.
                self.journal.put(target, &record)?;
                let end = record.durable.last().map_or(0, |(_, end)| *end * BLOCK);
                self.disk.resize(&file, end)?;
                let file = Arc::new(file);
                let file = Unfinished { file, temporary, record, has_durable_name: true, lease };
                return Ok(Opened::Unfinished { file, restarted: false });
            }
        }
        let known = PipeRecord { name: pipe.name.clone(), placed: None };
        let record = Record { source, inode: None, durable: Vec::new(), placing: false, pipe: Some(known) };
        let file = self.begin(lease, record)?;
        Ok(Opened::Unfinished { file, restarted: false })
    }

    /// Removes the record that a pipe is complete. A failure is not reported; it leaves the record in place.
    pub(crate) fn forget_pipe(&self, target: &RelativePath, name: &StreamName) {
        let Ok(_lease) = self.lease(target) else { return };
        let Ok(Some(Record { pipe: Some(pipe), .. })) = self.journal.get(target) else { return };
        if pipe.name == *name && pipe.placed.is_some() {
            let _ = self.journal.remove(target);
        }
    }
}
