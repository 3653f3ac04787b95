//! Journal of unfinished files: for each target, the state that survives a crash.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::frame::{PlacedPipe, Source};
use crate::name::{RelativePath, StreamName};

/// Memory in bytes that the database may use as a cache.
const CACHE: usize = 4 << 20;

/// Size in bytes of the magic number, with which a file of redb begins.
const MAGIC_SIZE: usize = 9;

const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");

/// State of an unfinished file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The source, as the sender described it.
    pub(crate) source: Source,
    /// Inode of the temporary file; `None` before any of its blocks is durable.
    pub(crate) inode: Option<u64>,
    /// Half-open ranges of the durable blocks.
    pub(crate) durable: Vec<(u64, u64)>,
    /// Whether the content is complete and verified, so that the file is being renamed.
    pub(crate) placing: bool,
    /// Record of the pipe, if the file is the content of a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pipe: Option<PipeRecord>,
}

/// Facts about a pipe that the journal records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PipeRecord {
    /// Name of the stream.
    pub(crate) name: StreamName,
    /// Size and hash of the pipe, once it has ended. The record of a pipe is kept after its file has been placed, so
    /// that a sender that did not receive the last reply does not start again.
    pub(crate) placed: Option<PlacedPipe>,
}

/// A durable map from targets to records. Each change is durable when the method returns.
pub(crate) trait Journal: Send + Sync + 'static {
    /// Returns the record of a target.
    fn get(&self, target: &RelativePath) -> io::Result<Option<Record>>;
    /// Adds or replaces the record of a target.
    fn put(&self, target: &RelativePath, record: &Record) -> io::Result<()>;
    /// Removes the record of a target, if there is one.
    fn remove(&self, target: &RelativePath) -> io::Result<()>;
    /// Returns all records.
    fn all(&self) -> io::Result<Vec<(RelativePath, Record)>>;
}

/// Journal in a file of redb.
pub(crate) struct RedbJournal {
    database: Database,
}

impl fmt::Debug for RedbJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbJournal").finish_non_exhaustive()
    }
}

impl RedbJournal {
    /// Opens the journal in `file`, which may be empty. The file is locked until the journal is dropped.
    ///
    /// # Errors
    ///
    /// The kind is [`io::ErrorKind::ResourceBusy`] if another process uses the journal or has just removed it.
    pub(crate) fn open(file: File) -> io::Result<Self> {
        let busy =
            || io::Error::new(io::ErrorKind::ResourceBusy, "another process uses the journal of this folder");
        // redb takes this lock too. The lock belongs to the open file, so redb can take it a second time.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            result => result?,
        }
        if file.metadata()?.nlink() == 0 {
            return Err(busy());
        }
        discard_incomplete(&file)?;
        let backend = FileBackend::new(file).map_err(other)?;
        Self::new(builder().create_with_backend(backend).map_err(other)?)
    }

    fn new(database: Database) -> io::Result<Self> {
        let write = database.begin_write().map_err(other)?;
        write.open_table(RECORDS).map_err(other)?;
        write.commit().map_err(other)?;
        Ok(Self { database })
    }
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder
}

/// Empties the file if a crash interrupted the creation of its database. redb writes the magic number last and
/// refuses a file without it, so such a file contains no record and would stay unusable.
fn discard_incomplete(file: &File) -> io::Result<()> {
    let mut start = [0; MAGIC_SIZE];
    match file.read_exact_at(&mut start, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => file.set_len(0),
        Err(error) => Err(error),
        Ok(()) if start == [0; MAGIC_SIZE] => file.set_len(0),
        Ok(()) => Ok(()),
    }
}

fn other(error: impl fmt::Display) -> io::Error {
    io::Error::other(format!("the journal: {error}"))
}

impl Journal for RedbJournal {
    fn get(&self, target: &RelativePath) -> io::Result<Option<Record>> {
        let read = self.database.begin_read().map_err(other)?;
        let table = read.open_table(RECORDS).map_err(other)?;
        let key = target.to_string();
        let Some(value) = table.get(key.as_str()).map_err(other)? else { return Ok(None) };
        serde_json::from_slice(value.value()).map(Some).map_err(other)
    }

    fn put(&self, target: &RelativePath, record: &Record) -> io::Result<()> {
        let (key, value) = (target.to_string(), serde_json::to_vec(record).map_err(other)?);
        let write = self.database.begin_write().map_err(other)?;
        {
            let mut table = write.open_table(RECORDS).map_err(other)?;
            table.insert(key.as_str(), value.as_slice()).map_err(other)?;
        }
        write.commit().map_err(other)
    }

    fn remove(&self, target: &RelativePath) -> io::Result<()> {
        let key = target.to_string();
        let write = self.database.begin_write().map_err(other)?;
        {
            let mut table = write.open_table(RECORDS).map_err(other)?;
            table.remove(key.as_str()).map_err(other)?;
        }
        write.commit().map_err(other)
    }

    fn all(&self) -> io::Result<Vec<(RelativePath, Record)>> {
        let read = self.database.begin_read().map_err(other)?;
        let table = read.open_table(RECORDS).map_err(other)?;
        let mut records = Vec::new();
        for entry in table.iter().map_err(other)? {
            let (key, value) = entry.map_err(other)?;
            let target = RelativePath::try_from(key.value().to_owned()).map_err(other)?;
            records.push((target, serde_json::from_slice(value.value()).map_err(other)?));
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use redb::StorageBackend;

    use super::*;

    #[test]
    fn records_survive_and_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || {
            let mut options = File::options();
            let path = folder.path().join("journal");
            let file =
                options.read(true).write(true).create(true).truncate(false).open(path).expect("a file");
            RedbJournal::open(file)
        };
        let source = Source { size: 5, mtime_ns: -3, inode: 9 };
        let record =
            Record { source, inode: Some(4), durable: vec![(0, 2), (7, 9)], placing: false, pipe: None };
        let (one, two) = ("a/b", "c%0a");
        let target = |text: &str| RelativePath::new(Path::new(text)).expect("a path");
        let journal = open().expect("a journal");
        journal.put(&target(one), &record).expect("committed");
        journal.put(&target(two), &Record { placing: true, ..record.clone() }).expect("committed");
        assert!(open().is_err(), "another process has the journal");
        drop(journal);
        let journal = open().expect("a journal");
        assert_eq!(journal.get(&target(one)).expect("readable"), Some(record.clone()));
        assert_eq!(journal.all().expect("readable").len(), 2);
        journal.remove(&target(one)).expect("committed");
        journal.remove(&target(one)).expect("there is nothing to remove");
        assert_eq!(journal.get(&target(one)).expect("readable"), None);
        let left = journal.all().expect("readable");
        assert_eq!(left, [(target(two), Record { placing: true, ..record })]);
    }

    /// One change of the journal's file.
    #[derive(Clone, Debug)]
    enum Change {
        Length(u64),
        Write(u64, Vec<u8>),
    }

    impl Change {
        fn apply(&self, file: &File) {
            match self {
                Self::Length(length) => file.set_len(*length).expect("resized"),
                Self::Write(offset, bytes) => file.write_all_at(bytes, *offset).expect("written"),
            }
        }
    }

    /// A file that records its changes.
    #[derive(Debug)]
    struct Recorder {
        file: File,
        changes: Arc<Mutex<Vec<Change>>>,
    }

    impl Recorder {
        fn change(&self, change: Change) -> io::Result<()> {
            change.apply(&self.file);
            self.changes.lock().expect("no panic").push(change);
            Ok(())
        }
    }

    impl StorageBackend for Recorder {
        fn len(&self) -> io::Result<u64> {
            Ok(self.file.metadata()?.len())
        }

        fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            self.file.read_exact_at(bytes, offset)
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.change(Change::Length(length))
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.change(Change::Write(offset, bytes.to_vec()))
        }
    }

    /// A kill is simulated after each change of the file, and after the first page of a longer write. The
    /// next process opens the journal and finds each record that was committed before.
    #[test]
    fn a_kill_at_any_moment_leaves_a_journal_that_opens() {
        let changes = Arc::<Mutex<Vec<Change>>>::default();
        let file = tempfile::tempfile().expect("a file");
        let recorder = Recorder { file, changes: Arc::clone(&changes) };
        let database = builder().create_with_backend(recorder).expect("a database");
        let journal = RedbJournal::new(database).expect("a journal");
        let source = Source { size: 5, mtime_ns: -3, inode: 9 };
        let record = Record { source, inode: None, durable: vec![], placing: false, pipe: None };
        let target = RelativePath::new(Path::new("a")).expect("a path");
        journal.put(&target, &record).expect("committed");
        let committed = changes.lock().expect("no panic").len();
        drop(journal);
        let changes = changes.lock().expect("no panic").clone();
        for kept in 0..=changes.len() {
            let next = changes.get(kept).and_then(|change| match change {
                Change::Write(offset, bytes) if bytes.len() > 4096 => {
                    Some(Change::Write(*offset, bytes[..4096].to_vec()))
                }
                Change::Write(..) | Change::Length(_) => None,
            });
            for torn in [None, next] {
                let file = tempfile::NamedTempFile::new().expect("a file");
                changes[..kept].iter().chain(&torn).for_each(|change| change.apply(file.as_file()));
                let journal = RedbJournal::open(file.reopen().expect("opened"))
                    .unwrap_or_else(|error| panic!("after {kept} of {} changes: {error}", changes.len()));
                let found = journal.get(&target).expect("readable");
                assert!(kept < committed || found.as_ref() == Some(&record), "after {kept} changes");
            }
        }
    }

    /// A process that has opened the file just before another process removed it must not use it: the records would be
    /// lost when the process ends.
    #[test]
    fn a_removed_journal_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        let error = RedbJournal::open(file).expect_err("the file has no name");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    }
}
