//! Journal of unfinished files: for each target, the state that survives a crash.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{PoisonError, RwLock};

use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
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
    /// Opens the database.
    open: Box<dyn Fn() -> io::Result<Database> + Send + Sync>,
    /// The open database; absent if it could not be opened again after an error.
    database: RwLock<Option<Database>>,
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
        Self::new(move || {
            // redb takes this lock too. The lock belongs to the open file, so redb can take it a second time.
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(busy()),
                result => result?,
            }
            if file.metadata()?.nlink() == 0 {
                return Err(busy());
            }
            discard_incomplete(&file)?;
            let backend = FileBackend::new(file.try_clone()?).map_err(other)?;
            builder().create_with_backend(backend).map_err(failed)
        })
    }

    /// Opens the journal in the database that `open` returns.
    fn new(open: impl Fn() -> io::Result<Database> + Send + Sync + 'static) -> io::Result<Self> {
        let database = open()?;
        let journal = Self { open: Box::new(open), database: RwLock::new(Some(database)) };
        journal.write(|_| Ok(()))?;
        Ok(journal)
    }

    /// Calls `work` with the database. After an error of the file, such as a full disk, redb refuses all further work, so
    /// the database is then opened anew.
    fn with<T>(&self, work: impl Fn(&Database) -> Result<T, redb::Error>) -> io::Result<T> {
        if let Some(database) = &*self.database.read().unwrap_or_else(PoisonError::into_inner)
            && let Some(done) = unless_refused(work(database))
        {
            return done;
        }
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have opened it in the meantime.
        if let Some(database) = &*database
            && let Some(done) = unless_refused(work(database))
        {
            return done;
        }
        // The earlier database has the locks of the file until it is dropped.
        drop(database.take());
        work(database.insert((self.open)()?)).map_err(failed)
    }

    /// Changes the records. The change is durable when this method returns.
    fn write(
        &self,
        change: impl Fn(&mut Table<'_, &str, &[u8]>) -> Result<(), redb::Error>,
    ) -> io::Result<()> {
        self.with(|database| {
            let write = database.begin_write()?;
            change(&mut write.open_table(RECORDS)?)?;
            Ok(write.commit()?)
        })
    }
}

/// Returns the result of work on a database; `None` if the database refuses all work because of an earlier error.
fn unless_refused<T>(done: Result<T, redb::Error>) -> Option<io::Result<T>> {
    match done {
        Err(redb::Error::PreviousIo) => None,
        done => Some(done.map_err(failed)),
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

/// Converts an error of the database. The kind of an error of its file is kept, because the user's remedy depends on it.
fn failed(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(error) => io::Error::new(error.kind(), format!("the journal: {error}")),
        error => other(error),
    }
}

impl Journal for RedbJournal {
    fn get(&self, target: &RelativePath) -> io::Result<Option<Record>> {
        let key = target.to_string();
        let value = self.with(|database| {
            let table = database.begin_read()?.open_table(RECORDS)?;
            Ok(table.get(key.as_str())?.map(|value| value.value().to_vec()))
        })?;
        value.map(|value| serde_json::from_slice(&value).map_err(other)).transpose()
    }

    fn put(&self, target: &RelativePath, record: &Record) -> io::Result<()> {
        let (key, value) = (target.to_string(), serde_json::to_vec(record).map_err(other)?);
        self.write(|table| Ok(table.insert(key.as_str(), value.as_slice()).map(drop)?))
    }

    fn remove(&self, target: &RelativePath) -> io::Result<()> {
        let key = target.to_string();
        self.write(|table| Ok(table.remove(key.as_str()).map(drop)?))
    }

    fn all(&self) -> io::Result<Vec<(RelativePath, Record)>> {
        let records = self.with(|database| {
            let table = database.begin_read()?.open_table(RECORDS)?;
            let entries = table.iter()?.map(|entry| {
                let (key, value) = entry?;
                Ok((key.value().to_owned(), value.value().to_vec()))
            });
            entries.collect::<Result<Vec<_>, redb::Error>>()
        })?;
        let record = |(key, value): (String, Vec<u8>)| {
            let target = RelativePath::try_from(key).map_err(other)?;
            Ok((target, serde_json::from_slice(&value).map_err(other)?))
        };
        records.into_iter().map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
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

    /// A file that records its changes, and accepts none while its disk is full.
    #[derive(Debug)]
    struct Recorder {
        file: File,
        changes: Arc<Mutex<Vec<Change>>>,
        is_full: Arc<AtomicBool>,
    }

    impl Recorder {
        fn change(&self, change: Change) -> io::Result<()> {
            if self.is_full.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
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
        let all = Arc::clone(&changes);
        let journal = RedbJournal::new(move || {
            let recorder =
                Recorder { file: file.try_clone()?, changes: Arc::clone(&all), is_full: Arc::default() };
            builder().create_with_backend(recorder).map_err(failed)
        })
        .expect("a journal");
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

    /// A relay that runs for months outlives a full disk: once there is room, the journal works as before, with its earlier
    /// records.
    #[test]
    fn the_journal_works_again_after_a_full_disk() {
        let (file, is_full) = (tempfile::tempfile().expect("a file"), Arc::<AtomicBool>::default());
        let full = Arc::clone(&is_full);
        let journal = RedbJournal::new(move || {
            let (file, is_full) = (file.try_clone()?, Arc::clone(&full));
            let recorder = Recorder { file, changes: Arc::default(), is_full };
            builder().create_with_backend(recorder).map_err(failed)
        })
        .expect("a journal");
        let source = Source { size: 5, mtime_ns: -3, inode: 9 };
        let record = Record { source, inode: None, durable: vec![], placing: false, pipe: None };
        let target = |text: &str| RelativePath::new(Path::new(text)).expect("a path");
        journal.put(&target("before"), &record).expect("committed");
        is_full.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            let error = journal.put(&target("during"), &record).expect_err("no space");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        }
        is_full.store(false, Ordering::Relaxed);
        journal.put(&target("after"), &record).expect("committed");
        let names: Vec<String> =
            journal.all().expect("readable").iter().map(|(target, _)| target.to_string()).collect();
        assert_eq!(names, ["after", "before"]);
        assert_eq!(journal.get(&target("before")).expect("readable"), Some(record));
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
