//! Writes the files of a data set atomically, while any number of processes on any host may write the same
//! files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::files::cannot_write;

/// Number of attempts to find an unused name for a temporary file.
const ATTEMPTS: u32 = 10_000;

/// Returns the file name of a part.
pub(super) fn part_name(number: usize) -> String {
    format!("part-{number:05}.parquet")
}

/// Returns the number of the part whose file has this name.
pub(super) fn part_number(name: &str) -> Option<usize> {
    let number = name.strip_prefix("part-")?.strip_suffix(".parquet")?.parse().ok()?;
    (part_name(number) == name).then_some(number)
}

/// Writes the file `dir/name`, and creates the folder if it is missing. Another process may write the same
/// content at the same time; one of the two files then remains.
pub(super) fn write_whole(dir: &Path, name: &str, content: &[u8]) -> Result<(), Error> {
    let target = dir.join(name);
    let result = write(dir, name, &target, content);
    result.map_err(|e| cannot_write(&target, &e, "choose a writable folder, on a file system with rename"))
}

fn write(dir: &Path, name: &str, target: &Path, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let (temporary, mut file) = temporary(dir, name)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    drop(file);
    let renamed = written.and_then(|()| fs::rename(&temporary, target));
    match renamed {
        // Another process has removed the temporary file, because it had already written the same file.
        Err(e) if e.kind() == ErrorKind::NotFound && target.is_file() => {}
        Err(e) => {
            // If the removal also fails, the first error is more informative.
            let _ = fs::remove_file(&temporary);
            return Err(e);
        }
        Ok(()) => {}
    }
    // The name becomes durable together with the folder. Some file systems cannot synchronise folders.
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
    Ok(())
}

/// Creates a temporary file. The name contains the process ID, and a number if a process with the same ID, on
/// this host or another, has already used the name.
fn temporary(dir: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut attempt = 0;
    loop {
        let path = dir.join(format!(".{name}.{process}-{attempt}.tmp"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && attempt < ATTEMPTS => attempt += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Removes temporary files in `dir` whose final file exists; they belong to killed processes, or to processes
/// that write the same content again.
pub(super) fn remove_temporary(dir: &Path) {
    for (entry, target) in temporary_files(dir) {
        if dir.join(target).is_file() {
            // Another process may have removed the file already.
            let _ = fs::remove_file(entry);
        }
    }
}

/// Returns the temporary files in `dir`, each with the name of its final file.
fn temporary_files(dir: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (target, process) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
        let is_ours = process.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        is_ours.then(|| (entry.path(), target.to_owned()))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("fullpipe-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    /// Temporary files of killed processes do not disturb later writers, and are removed once the final file
    /// exists; the temporary file of a missing file remains.
    #[test]
    fn left_files_are_removed_once_the_file_is_there() {
        let dir = folder("left");
        fs::create_dir_all(&dir).expect("a folder");
        for name in [&format!(".a.{}-0.tmp", std::process::id()), ".a.1-0.tmp", ".b.1-0.tmp", ".c.tmp"] {
            fs::write(dir.join(name), "half").expect("a file");
        }
        write_whole(&dir, "a", b"whole").expect("it is written");
        remove_temporary(&dir);
        let mut names: Vec<_> =
            fs::read_dir(&dir).expect("a folder").flatten().map(|e| e.file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, [".b.1-0.tmp", ".c.tmp", "a"]);
        assert_eq!(fs::read(dir.join("a")).expect("a file"), b"whole");
        let _ = fs::remove_dir_all(&dir);
    }
}
