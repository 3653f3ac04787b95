//! Files that are there whole or not at all.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// Writes `dir/name` so that it is there whole or not at all.
///
/// # Errors
/// It cannot be written; what was there before stays.
pub fn write_atomically(dir: &Path, name: &str, content: impl Display) -> Result<(), Error> {
    let target = dir.join(name);
    let write = || -> io::Result<()> {
        let mut file = AtomicFile::create(&target)?;
        write!(file, "{content}")?;
        file.commit()
    };
    write().map_err(|e| cannot_write(&target, &e, "give a place you may write to"))
}

/// Writes `text` to `out`, which errors call `name`. A reader that has seen enough (`| head`) is no failure.
///
/// # Errors
/// It cannot be written for another reason.
pub fn write_to(out: &mut impl Write, name: &str, text: &str) -> Result<(), Error> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(cannot_write(Path::new(name), &e, "give it somewhere to write to"))
        }
        _ => Ok(()),
    }
}

/// A file that cannot be written; `otherwise` is what to do unless it is for want of room.
pub fn cannot_write(target: &Path, error: &io::Error, otherwise: &str) -> Error {
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    let hint =
        if full.contains(&error.kind()) { "make room there, or give another place" } else { otherwise };
    Error::new(format!("cannot write {}: {error}", target.display()), hint)
}

/// A file that is in its place whole or not at all: written beside it under another name, and gone unless committed.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
}

impl AtomicFile {
    /// Begins `target`, making its folder where there is none.
    ///
    /// # Errors
    /// There may be no such file, or it is none.
    pub fn create(target: &Path) -> io::Result<Self> {
        let no_file = || io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
        let name = target.file_name().ok_or_else(no_file)?;
        // A device or a pipe would be replaced.
        if fs::metadata(target).is_ok_and(|found| !found.is_file()) {
            return Err(no_file());
        }
        let dir = target.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(dir)?;
        let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        remove_abandoned(dir, name);
        let file = BufWriter::new(File::create(&temporary)?);
        Ok(Self { file, temporary, target: target.to_owned() })
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// It cannot be written to the end.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)
    }
}

/// Removes what processes that were killed have left of `name`: who wrote it is not there any more. Where processes cannot
/// be looked up nothing is removed.
fn remove_abandoned(dir: &Path, name: &OsStr) {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return;
    }
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let writer = file.to_str().and_then(|file| file.strip_prefix(&prefix)?.strip_suffix(".tmp"));
        let writer = writer.filter(|writer| writer.bytes().all(|digit| digit.is_ascii_digit()));
        if writer.is_some_and(|writer| !processes.join(writer).exists()) {
            // Who may not remove it leaves it as it was.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // A committed one is not there any more under this name; nothing can be done about one that cannot be removed.
        let _ = fs::remove_file(&self.temporary);
    }
}
