//! Files that are there whole or not at all, also after a crash of the machine, and the lock under which they change.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::Builder;

use super::place::Place;

/// Files under way have this in front; who finds one while holding the lock finds a dead process's.
const UNDER_WAY: &str = ".fullpipe-";

/// Writes `path` by way of another name beside it, and waits for the disk.
pub(super) fn write(path: &Path, content: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir)?;
    let mode = Permissions::from_mode(0o644);
    let mut file = Builder::new().prefix(UNDER_WAY).permissions(mode).tempfile_in(dir)?;
    file.write_all(content.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Removes `path`, if it is there, and waits for the disk.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => path.parent().map_or(Ok(()), |dir| match File::open(dir) {
            Ok(dir) => dir.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }),
    }
}

/// What a file holds, if it is there.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Held while the state of a place is changed: by one process at a time, and no longer than it lives.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock; what dead processes have left half-written is gone afterwards.
    pub(super) fn take(place: &Place) -> io::Result<Self> {
        fs::create_dir_all(place.state())?;
        let path = place.state().join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        for dir in [Some(place.state()), place.owned().parent()].into_iter().flatten() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(UNDER_WAY) {
                    // Who may not remove it leaves it as it was.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        Ok(Self { _file: file })
    }
}
