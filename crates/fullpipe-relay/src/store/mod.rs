//! Files at the receiver, written in an order that survives a crash at any point.
//!
//! ```text
//!   record in the journal ─► temporary file in the target's folder ─► write ─► fdatasync
//!     ─► fsync of the folder ─► journal: these blocks are durable ─► the sender is informed
//!   ... all blocks ─► size, mode, mtime, fsync ─► journal: placing ─► rename ─► fsync of the folder
//!     ─► journal: record removed ─► the sender is informed
//! ```
//!
//! Everything that the journal claims is therefore on disk, and a target has either its complete old content or its
//! complete new content. [`whole`] describes the order for files of at most one block. After a failed `fdatasync`, the
//! kernel regards the lost pages as clean, so a second call would succeed without writing them. The temporary file is
//! therefore abandoned after such an error, and never synced again.

mod disk;
mod journal;
mod pipe;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) use disk::{Attributes, Disk, FileKind, Permission, RootDisk, nanos};
pub(crate) use journal::{Journal, PipeRecord, Record, RedbJournal};
pub(crate) use whole::{Announced, READ_BACK, Whole};

use crate::engine::{BLOCK, MOST_SIZE, block_range, runs};
use crate::error::{Error, Outlook};
use crate::frame::{PlacedPipe, Source};
use crate::hex::Hex;
use crate::locked;
use crate::name::{JOURNAL_FOLDER, RelativePath, TEMPORARY, folder_of};

/// File store in a folder of this host.
pub(crate) type FileStore = Store<RootDisk, RedbJournal>;

/// Targets that transfers are writing at the moment.
type Busy = Arc<Mutex<BTreeSet<RelativePath>>>;

/// Size in bytes of the parts of a block that are written or left as holes: one page, and one block of most file
/// systems.
const PAGE: usize = 4096;
/// Maximum number of folders that the store remembers. A folder that it has forgotten is synced once more.
const MOST_FOLDERS: usize = 4096;

/// Files below a root, with the journal of the unfinished files.
#[derive(Debug)]
pub(crate) struct Store<D, J> {
    disk: D,
    journal: J,
    busy: Busy,
    /// Folders whose names are known to survive a crash. An existing folder may have been created by a process that
    /// crashed before it synced the name.
    durable_folders: Mutex<BTreeSet<PathBuf>>,
    /// Folders in which all renames are known to survive a crash of the host, including those of a crashed process.
    settled_folders: Mutex<BTreeSet<PathBuf>>,
}

/// Exclusive right to write a target.
#[derive(Debug)]
pub(crate) struct Lease {
    busy: Busy,
    target: RelativePath,
}

impl Lease {
    /// Returns the target.
    pub(crate) fn target(&self) -> &RelativePath {
        &self.target
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        locked(&self.busy).remove(&self.target);
    }
}

/// An unfinished file.
#[derive(Debug)]
pub(crate) struct Unfinished<F> {
    file: Arc<F>,
    temporary: PathBuf,
    record: Record,
    /// Whether the name of the temporary file survives a crash.
    has_durable_name: bool,
    lease: Lease,
}

impl<F> Unfinished<F> {
    /// Returns the open temporary file.
    pub(crate) fn file(&self) -> Arc<F> {
        Arc::clone(&self.file)
    }

    /// Sets the size and the hash of a pipe, which are known at its end.
    pub(crate) fn end(&mut self, placed: PlacedPipe) {
        self.record.source.size = placed.size;
        if let Some(pipe) = &mut self.record.pipe {
            pipe.placed = Some(placed);
        }
    }

    /// Returns the ranges of the blocks that are durable.
    pub(crate) fn durable(&self) -> &[(u64, u64)] {
        &self.record.durable
    }
}

/// Comparison of an existing target with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The target has the size and the modification time of the source.
    Same,
    /// The target does not exist, or differs from the source.
    Other,
}

/// Result of opening a target.
#[derive(Debug)]
pub(crate) enum Opened<F> {
    /// The target has the size and the modification time of the source.
    Same,
    /// An earlier transfer has already placed the pipe.
    Complete(PlacedPipe),
    /// The file must be received.
    Unfinished {
        file: Unfinished<F>,
        /// Whether an earlier copy of another source was discarded.
        restarted: bool,
    },
}

impl FileStore {
    /// Opens the store in the folder `root`, and completes renames that a crash interrupted.
    pub(crate) fn open_root(root: &Path) -> Result<Self, Error> {
        let failed =
            |error: io::Error| Error::system(format_args!("open the folder {}", root.display()), &error);
        let disk = RootDisk::open(root).map_err(failed)?;
        let file = disk.journal(Path::new(JOURNAL_FOLDER)).map_err(failed)?;
        let journal = RedbJournal::open(file).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::ResourceBusy => {
                    "only one relay can serve a folder at a time: stop the other relay, or choose another --root"
                        .to_owned()
                }
                _ => format!(
                    "remove {}; interrupted copies then start from the beginning",
                    root.join(JOURNAL_FOLDER).join("journal").display()
                ),
            };
            let outlook = match error.kind() {
                io::ErrorKind::ResourceBusy => Outlook::Temporary,
                _ => Outlook::Open,
            };
            Error { hint, outlook, ..failed(error) }
        })?;
        Self::new(disk, journal)
    }

    /// Removes the journal in the folder `root`, unless it contains an unfinished copy that can be continued. A failure
    /// is not reported; it leaves the journal in place.
    pub(crate) fn clean(root: &Path) {
        let Ok(store) = Self::open_root(root) else { return };
        if store.journal.all().is_ok_and(|records| records.is_empty()) {
            let folder = root.join(JOURNAL_FOLDER);
            let removed = std::fs::remove_file(folder.join("journal"));
            let _ = removed.and_then(|()| std::fs::remove_dir(folder));
        }
    }
}

impl<D: Disk, J: Journal> Store<D, J> {
    /// Creates a store, and completes renames that a crash interrupted.
    pub(crate) fn new(disk: D, journal: J) -> Result<Self, Error> {
        let store = Self {
            disk,
            journal,
            busy: Busy::default(),
            durable_folders: Mutex::default(),
            settled_folders: Mutex::default(),
        };
        store.recover().map_err(|error| Error::system("complete interrupted copies", &error))?;
        Ok(store)
    }

    /// Completes the renames that the journal has recorded as decided.
    fn recover(&self) -> io::Result<()> {
        for (target, record) in self.journal.all()? {
            if !record.placing {
                // If another program has since replaced the file of a complete pipe, the record is no longer
                // valid.
                if record.pipe.as_ref().is_some_and(|pipe| pipe.placed.is_some())
                    && self.inode_of(target.as_path())? != record.inode
                    && self.inode_of(&temporary(&target))?.is_none()
                {
                    self.journal.remove(&target)?;
                }
                continue;
            }
            let temporary = temporary(&target);
            if record.inode.is_some() && self.inode_of(&temporary)? == record.inode {
                self.disk.rename(&temporary, target.as_path())?;
            }
            match self.disk.sync_folder(target.folder()) {
                // The folder has since been removed, together with the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                synced => synced?,
            }
            self.placed(&target, &record)?;
        }
        Ok(())
    }

    /// Records that a target has been placed.
    fn placed(&self, target: &RelativePath, record: &Record) -> io::Result<()> {
        match &record.pipe {
            None => self.journal.remove(target),
            Some(_) => {
                let record = Record { durable: Vec::new(), placing: false, ..record.clone() };
                self.journal.put(target, &record)
            }
        }
    }

    /// Returns the inode number of the file with this name; `None` if the name does not exist.
    fn inode_of(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(self.disk.status(path)?.map(|status| status.inode))
    }

    /// Returns whether one of the folders that contain a target is a symbolic link.
    pub(crate) fn passes_link(&self, target: &RelativePath) -> io::Result<bool> {
        for folder in target.as_path().ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()) {
            if self.disk.status(folder)?.is_some_and(|status| status.kind == FileKind::Link) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the exclusive right to write a target.
    fn lease(&self, target: &RelativePath) -> Result<Lease, Error> {
        if !locked(&self.busy).insert(target.clone()) {
            return Err(Error::runtime(
                format!("another transfer is writing {target}"),
                "wait until that transfer ends; if its client is gone, the relay ends the transfer after 30 s",
            )
            .temporary());
        }
        Ok(Lease { busy: Arc::clone(&self.busy), target: target.clone() })
    }

    /// Compares an existing target with its source.
    fn target(&self, lease: &Lease, source: Source) -> io::Result<Target> {
        let target = &lease.target;
        let Some(status) = self.disk.status(target.as_path())? else { return Ok(Target::Other) };
        match status.kind {
            FileKind::Regular => {}
            FileKind::Link => return Ok(Target::Other),
            FileKind::Other => return Err(io::Error::other("the target exists and is not a regular file")),
        }
        if (status.size, status.mtime_ns) != (source.size, source.mtime_ns) {
            return Ok(Target::Other);
        }
        self.forget(target)?;
        self.settle(target.folder())?;
        Ok(Target::Same)
    }

    /// Opens the temporary file of a target of more than one block, and continues an earlier copy of the same source.
    /// With `replace`, the file is received even if the target has the size and the modification time of the source.
    pub(crate) fn open(
        &self,
        target: &RelativePath,
        source: Source,
        replace: bool,
    ) -> Result<Opened<D::File>, Error> {
        if source.size > MOST_SIZE {
            let message = format!("{target} has {} bytes; the limit is {MOST_SIZE}", source.size);
            return Err(Error::usage(message, "copy the file in parts"));
        }
        let lease = self.lease(target)?;
        self.open_leased(lease, source, replace)
            .map_err(|error| Error::system(format_args!("write {target}"), &error))
    }

    fn open_leased(&self, lease: Lease, source: Source, replace: bool) -> io::Result<Opened<D::File>> {
        if self.target(&lease, source)? == Target::Same && !replace {
            return Ok(Opened::Same);
        }
        let target = &lease.target;
        let temporary = temporary(target);
        let earlier = self.journal.get(target)?;
        if let Some(record) = &earlier
            && record.source == source
            && record.pipe.is_none()
            && record.inode.is_some()
            && let Some(file) = self.open_existing(&temporary)?
            && Some(self.disk.inode(&file)?) == record.inode
        {
            let record = Record { placing: false, ..record.clone() };
            let file = Arc::new(file);
            let file = Unfinished { file, temporary, record, has_durable_name: true, lease };
            return Ok(Opened::Unfinished { file, restarted: false });
        }
        let restarted = earlier.as_ref().is_some_and(|record| record.source != source);
        let record = Record { source, inode: None, durable: Vec::new(), placing: false, pipe: None };
        let file = self.begin(lease, record)?;
        Ok(Opened::Unfinished { file, restarted })
    }

    /// Creates a new temporary file.
    fn begin(&self, lease: Lease, record: Record) -> io::Result<Unfinished<D::File>> {
        let target = &lease.target;
        let temporary = temporary(target);
        self.create_folders(target.folder())?;
        // The record is written first, so that a crash never leaves a large temporary file without a record.
        self.journal.put(target, &record)?;
        if self.disk.status(&temporary)?.is_some() {
            self.disk.remove(&temporary)?;
        }
        let file = Arc::new(self.disk.create(&temporary, record.source.size)?);
        Ok(Unfinished { file, temporary, record, has_durable_name: false, lease })
    }

    /// Removes the record and the temporary file of an unfinished copy.
    fn forget(&self, target: &RelativePath) -> io::Result<()> {
        let temporary = temporary(target);
        if self.disk.status(&temporary)?.is_some() {
            self.disk.remove(&temporary)?;
        }
        if self.journal.get(target)?.is_some() { self.journal.remove(target) } else { Ok(()) }
    }

    /// Makes renames in a folder durable that a crashed process may have left unsynced.
    fn settle(&self, folder: &Path) -> io::Result<()> {
        if locked(&self.settled_folders).contains(folder) {
            return Ok(());
        }
        self.disk.sync_folder(folder)?;
        remember(&self.settled_folders, folder);
        Ok(())
    }

    fn open_existing(&self, path: &Path) -> io::Result<Option<D::File>> {
        match self.disk.open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a folder and its missing parent folders, unless it exists. The name survives a crash once
    /// [`Store::settle_folder`] has returned.
    pub(crate) fn create(&self, target: &RelativePath, permission: Option<Permission>) -> Result<(), Error> {
        let path = target.as_path();
        let create = || {
            self.disk.create_folder(path, permission)?;
            // An earlier folder of this name may have been durable.
            locked(&self.durable_folders).remove(path);
            Ok::<(), io::Error>(())
        };
        let created = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_folders(target.folder()).and_then(|()| create())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        };
        match created.and_then(|()| self.disk.is_folder(path)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::runtime(
                format!("cannot create the folder {target}: a file has this name"),
                "remove the file, or choose another target",
            )),
            Err(error) => Err(Error::system(format_args!("create the folder {target}"), &error)),
        }
    }

    /// Makes the name of a folder durable.
    pub(crate) fn settle_folder(&self, target: &RelativePath) -> io::Result<()> {
        self.durable_folder(target.as_path())
    }

    /// Creates a folder and makes its name durable, unless the name is known to survive a crash.
    fn durable_folder(&self, folder: &Path) -> io::Result<()> {
        let is_durable = folder == Path::new(".") || locked(&self.durable_folders).contains(folder);
        if is_durable { Ok(()) } else { self.create_folders(folder) }
    }

    fn create_folders(&self, folder: &Path) -> io::Result<()> {
        if folder == Path::new(".") {
            return Ok(());
        }
        let mut path = PathBuf::new();
        for name in folder.components() {
            path.push(name);
            match self.disk.create_folder(&path, None) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if locked(&self.durable_folders).contains(&path) {
                        continue;
                    }
                }
                created => created?,
            }
            self.disk.sync_folder(folder_of(&path))?;
            remember(&self.durable_folders, &path);
        }
        Ok(())
    }

    /// Writes a block.
    pub(crate) fn write(&self, file: &D::File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(file, bytes, offset)
    }

    /// Writes a block with holes: pages that contain only zeros are not written.
    pub(crate) fn write_sparse(&self, file: &D::File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let is_stored = |page: usize| {
            let bytes = &bytes[page * PAGE..bytes.len().min((page + 1) * PAGE)];
            bytes.iter().any(|byte| *byte != 0)
        };
        let pages = (0..bytes.len().div_ceil(PAGE)).filter(|page| is_stored(*page));
        for (start, end) in runs(pages.map(|page| page as u64)) {
            let (start, end) = (start as usize * PAGE, (end as usize * PAGE).min(bytes.len()));
            self.disk.write_at(file, &bytes[start..end], offset + start as u64)?;
        }
        Ok(())
    }

    /// Makes the written content durable, and drops it from the page cache, so that later reads come from the disk.
    pub(crate) fn drop_cache(&self, file: &D::File) -> io::Result<()> {
        self.disk.sync_data(file)?;
        self.disk.drop_cache(file)
    }

    /// Returns the hash of an existing target.
    pub(crate) fn hash(&self, target: &RelativePath, size: u64) -> io::Result<Hex<32>> {
        let file = self.disk.open_to_read(target.as_path())?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::new();
        for (offset, length) in (0..).map_while(|index| block_range(size, index)) {
            buffer.resize(length, 0);
            self.disk.read_at(&file, &mut buffer, offset)?;
            hasher.update(&buffer);
        }
        Ok(Hex(*hasher.finalize().as_bytes()))
    }

    /// Creates a symbolic link, which may replace a file or another link; returns `None` if the same link already
    /// exists. The new name survives a crash once [`Store::settle_renames`] has returned.
    pub(crate) fn link(&self, target: &RelativePath, to: &Path) -> Result<Option<Lease>, Error> {
        let lease = self.lease(target)?;
        let linked = self.link_leased(target, to);
        let linked =
            linked.map_err(|error| Error::system(format_args!("create the link {target}"), &error))?;
        Ok(linked.then_some(lease))
    }

    fn link_leased(&self, target: &RelativePath, to: &Path) -> io::Result<bool> {
        match self.disk.status(target.as_path())?.map(|status| status.kind) {
            Some(FileKind::Link) if self.disk.read_link(target.as_path())? == to => {
                self.settle(target.folder())?;
                return Ok(false);
            }
            Some(FileKind::Other) => {
                return Err(io::Error::other("the target exists and is not a regular file"));
            }
            _ => self.forget(target)?,
        }
        self.create_folders(target.folder())?;
        let temporary = temporary(target);
        self.disk.link(to, &temporary)?;
        self.disk.rename(&temporary, target.as_path())?;
        Ok(true)
    }

    /// Reads a block that an earlier transfer wrote.
    pub(crate) fn read(&self, file: &D::File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(file, buffer, offset)
    }

    /// Makes the written blocks durable, and records the ranges `durable`. The ranges must not contain blocks that are
    /// still being written.
    pub(crate) fn sync(&self, file: &mut Unfinished<D::File>, durable: Vec<(u64, u64)>) -> io::Result<()> {
        self.disk.sync_data(&file.file)?;
        if !file.has_durable_name {
            self.disk.sync_folder(file.lease.target.folder())?;
            file.has_durable_name = true;
        }
        file.record.inode = Some(self.disk.inode(&file.file)?);
        file.record.durable = durable;
        self.journal.put(&file.lease.target, &file.record)
    }

    /// Renames a complete and verified file to its target.
    pub(crate) fn place(&self, file: &mut Unfinished<D::File>, permission: Permission) -> io::Result<()> {
        let Source { size, mtime_ns, .. } = file.record.source;
        self.disk.finish(&file.file, Attributes { permission, mtime_ns })?;
        file.record.inode = Some(self.disk.inode(&file.file)?);
        // Another process may have replaced the temporary file.
        if self.inode_of(&file.temporary)? != file.record.inode {
            return Err(io::Error::other("another copy has replaced the temporary file"));
        }
        if !file.has_durable_name {
            // Until now, the name of the temporary file did not have to be durable, but once the journal records the
            // rename, recovery must find the file.
            self.disk.sync_folder(file.lease.target.folder())?;
            file.has_durable_name = true;
        }
        file.record.durable = vec![(0, size.div_ceil(BLOCK))];
        file.record.placing = true;
        self.journal.put(&file.lease.target, &file.record)?;
        self.rename(file)?;
        self.placed(&file.lease.target, &file.record)
    }

    /// Renames a file to its target, such that the new name survives a crash.
    fn rename(&self, file: &Unfinished<D::File>) -> io::Result<()> {
        let target = &file.lease.target;
        self.disk.rename(&file.temporary, target.as_path())?;
        self.settle_renames(target.folder())
    }

    /// Discards an unfinished file whose content cannot be trusted.
    pub(crate) fn abandon(&self, file: &Unfinished<D::File>) -> io::Result<()> {
        if self.inode_of(&file.temporary)? == Some(self.disk.inode(&file.file)?) {
            self.disk.remove(&file.temporary)?;
        }
        self.journal.remove(&file.lease.target)
    }
}

/// Adds a folder to a set of limited size.
fn remember(folders: &Mutex<BTreeSet<PathBuf>>, folder: &Path) {
    let mut folders = locked(folders);
    if folders.len() >= MOST_FOLDERS {
        folders.clear();
    }
    folders.insert(folder.into());
}

/// Returns the path of a target's temporary file, in the same folder. The name is a hash, because a suffix could make
/// the target's name too long. It is the hash of the whole path, because symbolic links can give one folder several
/// paths.
fn temporary(target: &RelativePath) -> PathBuf {
    let hash = blake3::hash(target.as_path().as_os_str().as_encoded_bytes()).to_hex();
    target.folder().join(format!("{}{}{}", TEMPORARY.0, &hash[..16], TEMPORARY.1))
}
