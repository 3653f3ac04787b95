//! Compares the files of a data set with its manifest.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::files::part_name;
use super::manifest::hash;
use super::part::{Condition, examine};
use super::read_manifest;
use crate::Error;

/// Result of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of parts that the manifest lists.
    pub parts: usize,
    /// Number of rows in all parts of `runs`.
    pub rows: u64,
    /// Files that are missing, damaged or foreign, sorted by name.
    pub problems: Vec<Problem>,
}

/// A file of a data set that is missing, damaged or foreign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Name of the file, relative to the folder of the data set.
    pub file: String,
}

/// Kind of a problem with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file does not exist.
    Missing,
    /// The file was truncated or changed, or cannot be read.
    Damaged,
    /// The file belongs to another data set, or to no data set.
    Foreign,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ProblemKind::Missing => "missing",
            ProblemKind::Damaged => "damaged",
            ProblemKind::Foreign => "foreign",
        };
        write!(f, "{kind}: {}", self.file)
    }
}

/// Compares every file in the folder `dir` with the manifest. The function reads all bytes of the files.
///
/// # Errors
/// Returns an error if the manifest cannot be read.
pub fn check(dir: &Path) -> Result<CheckReport, Error> {
    let manifest = read_manifest(dir)?;
    // Parts carry the hash of the manifest file, whose text is a function of its content.
    let identity = hash(manifest.to_text()?.as_bytes());
    let mut problems = Vec::new();
    let mut note = |kind, file| problems.push(Problem { kind, file });
    let hashes = manifest.inputs.iter().map(|file| &file.blake3).chain(&manifest.points_blake3);
    for blake3 in hashes.collect::<BTreeSet<_>>() {
        let file = format!("inputs/{blake3}");
        match fs::read(dir.join(&file)) {
            Ok(bytes) if hash(&bytes) == *blake3 => {}
            Err(e) if e.kind() == ErrorKind::NotFound => note(ProblemKind::Missing, file),
            _ => note(ProblemKind::Damaged, file),
        }
    }
    let tables = if manifest.trace_ns.is_some() { &["runs", "trace"][..] } else { &["runs"] };
    for table in tables {
        let folder = dir.join(table);
        for number in 0..manifest.parts.len() {
            let name = part_name(number);
            let file = format!("{table}/{name}");
            match fs::read(folder.join(name)) {
                Ok(bytes) => match examine(bytes, &identity, table, number) {
                    Condition::Good => {}
                    Condition::Damaged => note(ProblemKind::Damaged, file),
                    Condition::Foreign => note(ProblemKind::Foreign, file),
                },
                Err(e) if e.kind() == ErrorKind::NotFound => note(ProblemKind::Missing, file),
                Err(_) => note(ProblemKind::Damaged, file),
            }
        }
        // Temporary files begin with a dot; they belong to processes that are still running or were killed.
        let names = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let known: BTreeSet<_> = (0..manifest.parts.len()).map(part_name).collect();
        let foreign: BTreeSet<_> =
            names.filter(|name| !name.starts_with('.') && !known.contains(name)).collect();
        foreign.into_iter().for_each(|name| note(ProblemKind::Foreign, format!("{table}/{name}")));
    }
    Ok(CheckReport { parts: manifest.parts.len(), rows: manifest.rows, problems })
}
