//! Atomic file writes that survive a crash of the machine.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tempfile::Builder;

use super::lock::Lock;

/// Prefix of temporary files. If the process that holds the lock finds such a file, the process that wrote
/// the file has died.
pub(super) const UNDER_WAY: &str = ".fullpipe-";
/// File mode of the private files, which are the journal and the lock.
pub(super) const PRIVATE: u32 = 0o600;
/// File mode of files that other programs read, for example in `/etc/sysctl.d`.
const PUBLIC: u32 = 0o644;
/// Mode of system folders that fullpipe creates. The mode is set explicitly, because with a umask of 0 the
/// default mode would allow everyone to write to these folders.
const PUBLIC_FOLDER: u32 = 0o755;

/// Creates a system folder, and its parent folders if they are missing.
pub(super) fn create_folder(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PUBLIC_FOLDER).create(dir)
}

/// Writes the file `path` through a temporary file in the same folder, and syncs it to disk.
///
/// # Errors
/// Returns an error if the file cannot be written, or if this process has lost the lock in the meantime. A
/// process without the lock does not replace `path`. The process that takes over the lock removes temporary
/// files before it reads the journal. If a write began before the takeover, it has therefore either
/// completed, so that the process that takes over reads its result, or its temporary file is removed. A
/// write that began after the takeover never replaces `path`.
pub(super) fn write(lock: &Lock, path: &Path, content: &str) -> io::Result<()> {
    write_bytes(lock, path, content.as_bytes())
}

/// Writes the file `path` like [`write`], with contents that need not be text.
pub(super) fn write_bytes(lock: &Lock, path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    create_folder(dir)?;
    let mode = if lock.covers(path) { PRIVATE } else { PUBLIC };
    let mut file =
        Builder::new().prefix(UNDER_WAY).permissions(Permissions::from_mode(mode)).tempfile_in(dir)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    lock.ensure_held()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Removes the file `path` if it exists, and syncs the removal to disk.
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

/// Returns at most the first `most` bytes of a file; returns `None` if the file does not exist.
pub(super) fn read_bytes(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Returns the contents of a file; returns `None` if the file does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
