//! Atomic writes of result files.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// Writes the file `dir/name` atomically: afterwards the file is either complete or unchanged.
///
/// # Errors
/// Returns an error if the file cannot be written; an existing file then remains unchanged.
pub fn write_atomically(dir: &Path, name: &str, content: impl Display) -> Result<(), Error> {
    let target = dir.join(name);
    let write = || -> io::Result<()> {
        let mut file = AtomicFile::create(&target)?;
        write!(file, "{content}")?;
        file.commit()
    };
    write().map_err(|e| cannot_write(&target, &e, "choose a writable folder"))
}

/// Writes `text` to `out`; error messages call it `name`. If the reader of a pipe closes the pipe early (`|
/// head`), the function returns no error.
///
/// # Errors
/// Returns an error if writing fails for any other reason.
pub fn write_to(out: &mut impl Write, name: &str, text: &str) -> Result<(), Error> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(cannot_write(Path::new(name), &e, "redirect the output to a file or device with free space"))
        }
        _ => Ok(()),
    }
}

/// Creates the error for a file that cannot be written. If the disk is full, the hint suggests freeing disk
/// space; otherwise the hint is `otherwise`.
pub fn cannot_write(target: &Path, error: &io::Error, otherwise: &str) -> Error {
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    let hint = if full.contains(&error.kind()) {
        "free some disk space, or write to another disk"
    } else {
        otherwise
    };
    Error::new(format!("cannot write {}: {error}", target.display()), hint)
}

/// A file that is written under a temporary name in the folder of its target. Committing the file replaces
/// the target.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
}

impl AtomicFile {
    /// Creates a temporary file for `target`, and creates the folder if it is missing.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created, or if `target` exists and is not a regular file.
    pub fn create(target: &Path) -> io::Result<Self> {
        let no_file = || io::Error::new(ErrorKind::InvalidInput, "not a regular file");
        let name = target.file_name().ok_or_else(no_file)?;
        // Renaming the temporary file would replace a device or pipe with a regular file.
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

    /// Renames the temporary file to the name of its target.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written completely.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)
    }
}

/// Removes the temporary files for `name` that killed processes have left behind. If the running processes
/// cannot be listed, no file is removed.
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
            // If the process lacks the permission to remove the file, the file stays.
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
        // After a commit, no file has the temporary name. If the file cannot be removed, there is no remedy.
        let _ = fs::remove_file(&self.temporary);
    }
}
