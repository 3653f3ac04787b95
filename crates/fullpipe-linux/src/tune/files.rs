//! Files that are there whole or not at all, also after a crash of the machine.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tempfile::Builder;

use super::lock::Lock;

/// Files under way have this in front; who finds one while holding the lock finds a dead process's.
pub(super) const UNDER_WAY: &str = ".fullpipe-";
/// Mode of files that other users have no business with: the journal and the lock.
pub(super) const PRIVATE: u32 = 0o600;
/// Mode of files that other programs read, as those of `/etc/sysctl.d`.
const PUBLIC: u32 = 0o644;
/// Mode of folders that are the system's and not ours, where they are missing. With a umask of 0 they would be open to all.
const PUBLIC_FOLDER: u32 = 0o755;

/// Creates a folder of the system and those above it, where they are missing.
pub(super) fn create_folder(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PUBLIC_FOLDER).create(dir)
}

/// Writes `path` by way of another name beside it, and waits for the disk.
///
/// # Errors
/// A process that has lost the lock in the meantime does not replace `path`. Whoever replaces the lock removes what is under way
/// before it reads the journal: a file that was begun before is gone, and one that was begun after is not renamed.
pub(super) fn write(lock: &Lock, path: &Path, content: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    create_folder(dir)?;
    let mode = if lock.covers(path) { PRIVATE } else { PUBLIC };
    let mut file =
        Builder::new().prefix(UNDER_WAY).permissions(Permissions::from_mode(mode)).tempfile_in(dir)?;
    file.write_all(content.as_bytes())?;
    file.as_file().sync_all()?;
    lock.ensure_held()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Removes `path`, if it is there, and waits for the disk.
pub(super) fn remove(lock: &Lock, path: &Path) -> io::Result<()> {
    lock.ensure_held()?;
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
