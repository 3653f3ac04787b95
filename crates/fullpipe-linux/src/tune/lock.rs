//! The lock on the state folder of a target. One process at a time holds the lock, and the lock is released
//! when that process ends.
//!
//! The lock is an flock(2) on the file `lock` in the state folder. Since flock requires only an open
//! descriptor, any process that can read the file could hold the lock indefinitely. Therefore only root can
//! access the folder and the file (0700, 0600), and every wait for the lock has a timeout.
//!
//! Restricting the mode of an existing file does not revoke open descriptors. If other users could open the
//! lock file, it is therefore replaced by a new file. After flock, every process checks that the path still
//! refers to the file that it locked. A second lock, `lock.replace`, serialises processes that replace the
//! file at the same time; it exists only during a replacement:
//!
//! ```text
//!   flock(lock.replace) ── lock is still the same file? ── unlink(lock) ── unlink(lock.replace)
//! ```
//!
//! If another process holds the lock, an overdue trial is reverted in the same way: the lock file is
//! replaced, and the former holder detects this before its next write (`Lock::ensure_held`).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fullpipe_units::Duration;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::geteuid;

use super::apply::no_rights;
use super::files::{PRIVATE, UNDER_WAY, create_folder};
use super::holder::{Holder, holders};
use super::place::Target;
use crate::clock::Clock;
use crate::error::{Error, Kind};

/// Name of the lock file in the state folder.
const LOCK: &str = "lock";
/// Name of the file that serialises replacements of the lock file.
const REPLACE: &str = "lock.replace";
/// Mode of the state folder.
const PRIVATE_FOLDER: u32 = 0o700;
/// Mode bits that give access to users other than the owner.
const OTHERS: u32 = 0o077;
/// Permission bits of a file mode, including set-user-ID, set-group-ID and sticky.
const PERMISSIONS: u32 = 0o7777;
/// Time for which a command waits for the lock. The lock is normally held for milliseconds; it is held longer
/// only if a guard fails to start (`guard::START`, 10 s).
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Time for which a process that reverts an overdue trial waits for the lock, long enough for a running
/// `confirm` on a slow disk to finish.
pub(super) const OVERDUE_WAIT: Duration = Duration::from_secs(2);
/// Interval between attempts to take the lock; polling is required because flock has no timeout.
const POLL: Duration = Duration::from_millis(20);

/// Error message of a process that has lost the lock.
const LOST: &str = "another process replaced the lock to revert an expired trial";

/// The lock of the state folder, held by this process.
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    /// Path of the state folder.
    folder: PathBuf,
    /// The lock file that this process has replaced. Processes of earlier versions wait for that file, so
    /// holding it still excludes them.
    _former: Option<File>,
}

/// Reason why this process could not take the lock.
pub(super) enum LockError {
    /// Another process holds the lock of the state folder.
    Busy(Busy),
    /// A system call on the lock file failed.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for LockError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl LockError {
    pub(super) fn into_error(self, place: &Target) -> Error {
        let state = place.state().display();
        match self {
            Self::Busy(busy) => busy.into_error(),
            Self::Io(error) => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    no_rights(format!("no permission to write {state}: {error}"))
                }
                _ => Error::system(format_args!("write {state}"), error),
            },
        }
    }
}

/// Error for a lock that another process holds.
pub(super) struct Busy {
    file: File,
    path: PathBuf,
    waited: Duration,
    /// Processes that hold the lock; empty if this process cannot see them.
    holders: Vec<Holder>,
}

impl Busy {
    /// Describes the process that holds the lock.
    pub(super) fn holder(&self) -> String {
        match &self.holders[..] {
            [] => "a process that is not visible from this namespace".into(),
            [one] => format!("process {one}"),
            several => {
                let several: Vec<String> = several.iter().map(ToString::to_string).collect();
                format!("one of the processes {}", several.join(", "))
            }
        }
    }

    fn into_error(self) -> Error {
        let (holder, path) = (self.holder(), self.path.display());
        let hint = if self.holders.is_empty() {
            format!("find that process with fuser -v {path} on the host, outside of containers, and end it")
        } else {
            let pids: Vec<String> = self.holders.iter().map(|holder| holder.pid.to_string()).collect();
            format!(
                "wait until that process ends, or end it with kill {}, then run the command again",
                pids.join(" ")
            )
        };
        Error {
            kind: Kind::System,
            message: format!("{holder} holds the lock {path}; fullpipe waited {} for it", self.waited),
            hint,
        }
    }

    /// Removes the lock file, so that a new one can be created. The process that holds the lock detects this
    /// before its next write.
    pub(super) fn discard(&self, place: &Target) -> io::Result<()> {
        discard(place, &self.file)
    }
}

impl Lock {
    /// Takes the lock, waiting for at most `wait`, and removes the temporary files of processes that died.
    pub(super) fn take(place: &Target, wait: Duration) -> Result<Self, LockError> {
        let owner = close_folders(place)?;
        let trusted = [0, geteuid().as_raw(), owner];
        let path = place.state().join(LOCK);
        let clock = Clock::starting_in(Duration::ZERO);
        let until = clock.now() + wait;
        let mut former = None;
        let mut inspected = false;
        loop {
            let file = open(&path)?;
            // Another user may have the lock file open, and may lock it at any time.
            let is_exposed = || {
                let found = file.metadata()?;
                io::Result::Ok(found.mode() & OTHERS != 0 || !trusted.contains(&found.uid()))
            };
            if try_lock(&file)? {
                if !is_named(&path, &file)? {
                    continue;
                }
                // The mode is checked under the lock, because the former holder of the lock may have changed
                // it.
                if is_exposed()? {
                    discard(place, &file)?;
                    former = Some(file);
                    continue;
                }
                clean(place);
                return Ok(Self { file, path, folder: place.state().into(), _former: former });
            }
            let over = clock.now() >= until;
            let exposed = is_exposed()?;
            if over || (exposed && !inspected) {
                inspected = true;
                let holders = holders(&file);
                // fullpipe's own processes lock the file exclusively, and they do not pass its descriptor to
                // other processes.
                if exposed && holders.iter().any(|holder| !holder.is_only(&trusted)) {
                    discard(place, &file)?;
                    continue;
                }
                if over {
                    return Err(LockError::Busy(Busy { file, path, waited: wait, holders }));
                }
            }
            clock.sleep_until(clock.now() + POLL);
        }
    }

    /// Checks that the lock has not been replaced. The check must precede every change.
    pub(super) fn ensure_held(&self) -> io::Result<()> {
        if is_named(&self.path, &self.file)? { Ok(()) } else { Err(io::Error::other(LOST)) }
    }

    /// Returns an error about the lost lock if the lock was lost, and otherwise returns `error`.
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.ensure_held() {
            Ok(()) => error,
            Err(lost) => Error::settings(lost.to_string(), "fullpipe tune status shows the applied changes"),
        }
    }

    /// Returns whether `path` belongs to the private state that the lock protects.
    pub(super) fn covers(&self, path: &Path) -> bool {
        path.starts_with(&self.folder)
    }
}

/// Creates the state folder and fullpipe's folders above it, and makes existing ones private.
/// Returns the owner of the state folder.
pub(super) fn close_folders(place: &Target) -> io::Result<u32> {
    let folders = place.state_folders();
    if let Some(above) = folders.first().and_then(|outermost| outermost.parent()) {
        create_folder(above)?;
    }
    let mut owner = 0;
    for folder in &folders {
        match DirBuilder::new().mode(PRIVATE_FOLDER).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => owner = close_folder(folder)?,
        }
    }
    Ok(owner)
}

/// Makes a folder private to its owner, and returns the owner.
pub(super) fn close_folder(folder: &Path) -> io::Result<u32> {
    // Following a symbolic link would change the mode of a different folder.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = File::from(rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => {
            io::Error::other(format!("{} is not a folder, or is a symbolic link", folder.display()))
        }
        error => error.into(),
    })?);
    let found = open.metadata()?;
    if found.mode() & PERMISSIONS != PRIVATE_FOLDER {
        open.set_permissions(Permissions::from_mode(PRIVATE_FOLDER))?;
    }
    Ok(found.uid())
}

/// Opens a lock file. If the file is missing, creates it with access only for its owner.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(PRIVATE))?.into())
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether `path` still refers to the open `file`.
fn is_named(path: &Path, file: &File) -> io::Result<bool> {
    let file = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (file.dev(), file.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the lock file if it is still the same as `file`. The next process that takes the lock creates a
/// new file.
fn discard(place: &Target, file: &File) -> io::Result<()> {
    let path = place.state().join(REPLACE);
    let clock = Clock::starting_in(Duration::ZERO);
    let until = clock.now() + OVERDUE_WAIT;
    // The second lock is held until the function returns; its file is removed earlier, while the lock is
    // still held. A process that waited for this lock then detects that the path no longer refers to the
    // locked file.
    let _replacing = loop {
        let replacing = open(&path)?;
        if try_lock(&replacing)? {
            if is_named(&path, &replacing)? {
                break replacing;
            }
        } else if clock.now() >= until {
            let text = format!("another process holds {}", path.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        } else {
            clock.sleep_until(clock.now() + POLL);
        }
    };
    let lock = place.state().join(LOCK);
    let removed = is_named(&lock, file).and_then(|same| if same { fs::remove_file(&lock) } else { Ok(()) });
    fs::remove_file(&path)?;
    removed
}

/// Removes the temporary files of processes that died, and makes the files of the state private. Without the
/// privileges, the function leaves them unchanged. The function does not change the mode of the lock file: a
/// lock file that other users could open must be replaced, and the next process recognises it by its mode.
fn clean(place: &Target) {
    for dir in [Some(place.state()), place.owned().parent()].into_iter().flatten() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNDER_WAY) {
                let _ = fs::remove_file(entry.path());
            } else if dir == place.state()
                && entry.file_name() != LOCK
                && entry
                    .metadata()
                    .is_ok_and(|found| found.is_file() && found.mode() & PERMISSIONS != PRIVATE)
            {
                let _ = fs::set_permissions(entry.path(), Permissions::from_mode(PRIVATE));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::thread;

    use super::*;

    fn place(root: &Path) -> Target {
        Target::inherited(Some(root), None).unwrap()
    }

    fn take(place: &Target) -> Lock {
        Lock::take(place, Duration::from_secs(60))
            .unwrap_or_else(|error| panic!("{}", error.into_error(place)))
    }

    /// Only one process at a time holds the lock, even while processes repeatedly replace a lock file that
    /// other users can open.
    #[test]
    fn one_at_a_time_holds_the_lock_while_it_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let (held, replaced) = (AtomicBool::new(false), AtomicU32::new(0));
        let path = root.path().join("var/lib/fullpipe/lock");
        let work = || {
            let place = place(root.path());
            for round in 0..20 {
                let lock = take(&place);
                assert!(!held.swap(true, SeqCst), "two hold the lock");
                lock.ensure_held().unwrap();
                if lock._former.is_some() {
                    replaced.fetch_add(1, SeqCst);
                }
                assert_eq!(fs::metadata(&path).unwrap().mode() & PERMISSIONS, PRIVATE);
                if round % 3 == 0 {
                    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
                }
                held.store(false, SeqCst);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert!(replaced.load(SeqCst) > 0);
        let mut left: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [LOCK]);
    }

    /// A write that is in progress when the lock is lost leaves no file behind.
    #[test]
    fn who_has_lost_the_lock_writes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let place = place(root.path());
        let first = take(&place);
        let file = place.state().join("0001.json");
        crate::tune::files::write(&first, &file, "first").unwrap();
        let Err(LockError::Busy(busy)) = Lock::take(&place, Duration::ZERO) else { panic!("it is held") };
        busy.discard(&place).unwrap();
        // The second discard has no effect, because the path refers to a different lock file by then.
        let second = take(&place);
        busy.discard(&place).unwrap();
        second.ensure_held().unwrap();
        assert!(crate::tune::files::write(&first, &file, "late").unwrap_err().to_string().contains(LOST));
        assert!(crate::tune::files::remove(&first, &file).is_err());
        crate::tune::files::write(&second, &file, "second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
    }

    /// The process that takes the new lock removes temporary files that were created before.
    #[test]
    fn what_is_under_way_is_gone_with_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let place = place(root.path());
        let _first = take(&place);
        let begun = tempfile::Builder::new().prefix(UNDER_WAY).tempfile_in(place.state()).unwrap();
        let Err(LockError::Busy(busy)) = Lock::take(&place, Duration::ZERO) else { panic!("it is held") };
        busy.discard(&place).unwrap();
        let _second = take(&place);
        assert!(begun.persist(place.state().join("0001.json")).is_err());
    }
}
