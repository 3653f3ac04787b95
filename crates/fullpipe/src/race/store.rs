//! File to which a race appends each result, so that a later run of the same race continues from there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fullpipe_lab::campaign::{Progress, RunResult, Watch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::cannot_write;
use crate::{Error, Observer, json};

/// Version of this program and, in a build from the repository, hash of the sources that determine the result of a run.
/// A race does not mix results of different programs.
const PROGRAM: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("FULLPIPE_SOURCES"));

/// A result as a line of the file.
#[derive(Serialize)]
struct Line<'a, R> {
    program: &'a str,
    #[serde(flatten)]
    result: &'a R,
}

/// A line of the file, in an earlier version possibly without the program.
#[derive(Deserialize)]
struct StoredLine<R> {
    #[serde(default)]
    program: String,
    #[serde(flatten)]
    result: R,
}

/// File with one JSON line per result. If the process is killed, only runs in progress are lost.
pub(crate) struct Store<R> {
    path: PathBuf,
    /// Results of this program that the file contained when it was opened.
    kept: Vec<R>,
    /// Results of other programs that the file contained when it was opened.
    foreign: Vec<R>,
    /// The open file, or the first error that occurred.
    file: Mutex<Result<File, Error>>,
}

impl<R: Serialize + DeserializeOwned> Store<R> {
    /// Opens the file `name` in the folder `dir`, which is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a line is not a result.
    pub(super) fn open(dir: &Path, name: &str) -> Result<Self, Error> {
        let path = dir.join(name);
        let refused = |e: &io::Error| cannot_write(&path, e, "choose a writable folder");
        fs::create_dir_all(dir).map_err(|e| refused(&e))?;
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(|e| unreadable(&path, &e))?,
        };
        // If the process was killed, the last line may be incomplete.
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        let (mut kept, mut foreign) = (Vec::new(), Vec::new());
        for (number, line) in text[..complete].lines().enumerate() {
            let StoredLine { program, result } = serde_json::from_str(line)
                .map_err(|e| unreadable(&path, &format_args!("line {}: {e}", number + 1)))?;
            if program == PROGRAM { &mut kept } else { &mut foreign }.push(result);
        }
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(|e| refused(&e))?;
        file.set_len(complete as u64).map_err(|e| refused(&e))?;
        Ok(Self { path, kept, foreign, file: Mutex::new(Ok(file)) })
    }

    /// Tells `observer` if the file contains results of the present race that another program made. `is_missing` returns
    /// whether a result belongs to the race and has to be made again.
    pub(super) fn note_foreign(&self, observer: &impl Observer, is_missing: impl Fn(&R) -> bool) {
        let count = self.foreign.iter().filter(|result| is_missing(result)).count();
        if count > 0 {
            let path = self.path.display();
            observer.note(&format!(
                "another version of fullpipe made {count} results in {path}; they are not used, because versions may \
                 differ"
            ));
        }
    }

    /// Returns the results of this program that the file contained when it was opened.
    pub(super) fn kept(&self) -> &[R] {
        &self.kept
    }

    /// Appends a result. After an error, further results are ignored.
    pub(super) fn add(&self, result: &R) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(open) = &mut *file else { return };
        let written = json::line(&Line { program: PROGRAM, result }).and_then(|line| {
            let written = open.write_all(line.as_bytes());
            written.map_err(|e| cannot_write(&self.path, &e, "choose a writable folder"))
        });
        if let Err(error) = written {
            *file = Err(error);
        }
    }

    /// Returns whether every result so far has been written.
    pub(super) fn is_writable(&self) -> bool {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).is_ok()
    }

    /// Returns the first error that occurred.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.file.into_inner().unwrap_or_else(PoisonError::into_inner).map(drop)
    }
}

fn unreadable(path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::new(
        format!("cannot read {}: {problem}", path.display()),
        "remove this file, or choose another folder with --out",
    )
}

/// Forwards the progress of a race to an [`Observer`], and stores its results.
pub(crate) struct Relay<'a, O, R> {
    pub(crate) observer: &'a O,
    store: Option<&'a Store<R>>,
    /// Number of results that are complete.
    done: AtomicUsize,
    /// Number of results of the race.
    total: usize,
}

impl<'a, O: Observer, R: Serialize + DeserializeOwned> Relay<'a, O, R> {
    /// Begins with `done` of `total` results, and reports this progress.
    pub(super) fn new(observer: &'a O, store: Option<&'a Store<R>>, done: usize, total: usize) -> Self {
        observer.progress(Progress { done, total });
        Self { observer, store, done: AtomicUsize::new(done), total }
    }

    /// Returns whether another run should start.
    pub(crate) fn goes_on(&self) -> bool {
        // If the results cannot be stored, the results of further runs would be lost.
        self.observer.goes_on() && self.store.is_none_or(Store::is_writable)
    }

    /// Stores a complete result, and reports the progress.
    pub(crate) fn finished(&self, result: &R) {
        if let Some(store) = self.store {
            store.add(result);
        }
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.observer.progress(Progress { done, total: self.total });
    }
}

impl<O: Observer, R: Serialize + DeserializeOwned + Sync> Watch<R> for &Relay<'_, O, R> {
    fn goes_on(&self) -> bool {
        Relay::goes_on(self)
    }

    fn abandons(&self) -> bool {
        self.observer.abandons()
    }

    fn finished(&self, _: Progress, run: &RunResult<R>) {
        Relay::finished(self, &run.value);
    }
}
