//! Trace rows of finished runs, which wait in a file until all runs are finished.
//!
//! `trace.csv` has the rows in the order of the runs, but the runs finish in another order. In memory, the
//! rows of a thousand runs would take gigabytes. The file has no name, so it disappears with the process,
//! however the process ends.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fullpipe_lab::results::TraceText;

/// Number of attempts to find an unused name.
const ATTEMPTS: u32 = 10_000;

/// File with the trace rows of finished runs, in the order in which they finished. It is created when the first run
/// has finished.
#[derive(Debug)]
pub(crate) struct TraceSpool {
    dir: PathBuf,
    file: Mutex<Option<File>>,
}

/// Trace rows of one run, as lines of CSV.
#[derive(Clone, Debug)]
pub(crate) enum RunTrace {
    /// Rows in memory.
    Text(String),
    /// Rows in a file: position and length in bytes.
    Spooled { spool: Arc<TraceSpool>, at: u64, length: usize },
}

impl TraceSpool {
    /// Creates a spool in the folder `dir`, which need not exist yet.
    pub(crate) fn new(dir: &Path) -> Arc<Self> {
        Arc::new(Self { dir: dir.into(), file: Mutex::new(None) })
    }

    /// Stores the rows of a run. If that is not possible, for example because the disk is full, the rows stay in
    /// memory; the error then appears when the table is written.
    pub(crate) fn store(self: &Arc<Self>, text: String) -> RunTrace {
        match self.append(text.as_bytes()) {
            Ok(at) => RunTrace::Spooled { spool: Arc::clone(self), at, length: text.len() },
            Err(_) => RunTrace::Text(text),
        }
    }

    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = Some(nameless(&self.dir)?);
        }
        let Some(file) = &mut *file else { unreachable!("created above") };
        let at = file.seek(SeekFrom::End(0))?;
        match file.write_all(bytes) {
            Ok(()) => Ok(at),
            Err(error) => {
                // Incomplete rows are removed, so that they take up no space.
                let _ = file.set_len(at);
                Err(error)
            }
        }
    }

    fn read(&self, at: u64, length: usize) -> io::Result<String> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file.as_mut().ok_or(ErrorKind::NotFound)?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())
    }
}

impl TraceText for RunTrace {
    fn text(&self) -> Result<Cow<'_, str>, fmt::Error> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Spooled { spool, at, length } => {
                spool.read(*at, *length).map(Cow::Owned).map_err(|_| fmt::Error)
            }
        }
    }
}

/// Creates a file and removes its name.
pub(crate) fn nameless(dir: &Path) -> io::Result<File> {
    fs::create_dir_all(dir)?;
    let process = std::process::id();
    for attempt in 0..ATTEMPTS {
        let path = dir.join(format!(".trace.csv.{process}-{attempt}.tmp"));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come back in any order, and no file is left that has a name.
    #[test]
    fn rows_come_back() {
        let dir = std::env::temp_dir().join(format!("fullpipe-spool-{}", std::process::id()));
        let spool = TraceSpool::new(&dir);
        assert!(!dir.exists(), "nothing is written before the first run has finished");
        let texts = ["a,b\n1,2\n", "", "a,b\n3,µ\n"].map(str::to_owned);
        let kept = texts.clone().map(|text| spool.store(text));
        assert!(kept.iter().all(|trace| matches!(trace, RunTrace::Spooled { .. })));
        for (trace, text) in kept.iter().zip(&texts).rev() {
            assert_eq!(trace.text().as_deref(), Ok(text.as_str()));
        }
        assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 0);
        // If the folder cannot be created, the rows stay in memory.
        let file = dir.join("file");
        fs::write(&file, "").expect("written");
        let trace = TraceSpool::new(&file).store("a".into());
        assert!(matches!(&trace, RunTrace::Text(text) if text == "a"));
        let _ = fs::remove_dir_all(dir);
    }
}
