//! The files to copy, and the names of their targets.
//!
//! The target never depends on what exists at the receiver: the same command always means the same files, so
//! it can be repeated after a crash. Folders are read while the copy runs, so that the memory that a copy
//! needs does not grow with the number of files.

use std::fs::{self, Metadata, ReadDir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::vec;

use crate::engine::MOST_SIZE;
use crate::error::Error;
use crate::frame::Source;
use crate::name::{LinkContent, RelativePath};
use crate::store::nanos;

/// Depth below which folders are kept open while those in them are read. A folder that is deeper is read as a
/// whole first, so that the number of open files is bounded.
const MOST_LEVELS: usize = 100;

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) target: RelativePath,
    pub(crate) source: Source,
    pub(crate) mode: u32,
}

/// What a copy creates below the root of the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A file.
    File(SourceFile),
    /// An empty folder. Other folders are created with their files.
    Folder(RelativePath),
    /// A symbolic link, which is copied as a link.
    Link { target: RelativePath, to: LinkContent },
    /// Neither a file nor a folder nor a link.
    Special(PathBuf),
}

/// Returns the facts by which a receiver recognises a file.
pub(crate) fn source_of(metadata: &Metadata) -> Source {
    Source {
        size: metadata.size(),
        mtime_ns: nanos(metadata.mtime(), metadata.mtime_nsec()),
        inode: metadata.ino(),
    }
}

/// Entries of a folder.
#[derive(Debug)]
enum Entries {
    Open(ReadDir),
    Listed(vec::IntoIter<fs::DirEntry>),
}

/// A folder whose entries are being read.
#[derive(Debug)]
struct Level {
    path: PathBuf,
    target: PathBuf,
    entries: Entries,
    is_empty: bool,
}

/// The files of the sources, one after another. Ends after an error.
#[derive(Debug)]
pub(crate) struct Walk {
    sources: vec::IntoIter<(PathBuf, PathBuf)>,
    levels: Vec<Level>,
}

impl Walk {
    /// Lists the files of `sources`. With several sources, or if `into` is set, their names are added to
    /// `target`; otherwise `target` is the name of the only source.
    ///
    /// # Errors
    /// Returns an error if a source does not exist, or if two sources have the same target.
    pub(crate) fn new(sources: &[PathBuf], target: &Path, into: bool) -> Result<Self, Error> {
        let into = into || sources.len() > 1;
        let mut pairs = Vec::new();
        for source in sources {
            let target = if into { target.join(name(source)?) } else { target.to_path_buf() };
            let metadata = fs::metadata(source).map_err(|error| unreadable(source, &error))?;
            if !metadata.is_dir() && !metadata.is_file() {
                return Err(Error::usage(
                    format!("{} is neither a file nor a folder", source.display()),
                    "copy reads files, folders and links",
                ));
            }
            if metadata.is_file() || !target.as_os_str().is_empty() {
                checked(&target)?;
            }
            pairs.push((source.clone(), target));
        }
        // Each source has one name below the target, so that different names have different files below them.
        let mut targets: Vec<&PathBuf> = pairs.iter().map(|(_, target)| target).collect();
        targets.sort_unstable();
        if let Some(pair) = targets.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(
                format!("two sources have the target {}", pair[0].display()),
                "copy them with two commands, to different folders",
            ));
        }
        Ok(Self { sources: pairs.into_iter(), levels: Vec::new() })
    }

    /// Returns what is next; `None` at the end.
    fn advance(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else {
                let Some((path, target)) = self.sources.next() else { return Ok(None) };
                // A link that the user names is followed, as by scp.
                let metadata = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?;
                if let Some(found) = self.enter(path, target, &metadata)? {
                    return Ok(Some(found));
                }
                continue;
            };
            let entry = match &mut level.entries {
                Entries::Open(entries) => entries.next().transpose(),
                Entries::Listed(entries) => Ok(entries.next()),
            };
            let Some(entry) = entry.map_err(|error| unreadable(&level.path, &error))? else {
                let level = self.levels.pop();
                // The target of an empty folder may be the root of the relay, which exists.
                let empty = level.filter(|level| level.is_empty && !level.target.as_os_str().is_empty());
                match empty {
                    Some(level) => return checked(&level.target).map(Found::Folder).map(Some),
                    None => continue,
                }
            };
            level.is_empty = false;
            if depth > MOST_LEVELS
                && let Entries::Open(entries) = &mut level.entries
            {
                let rest = entries.collect::<io::Result<Vec<_>>>();
                let rest = rest.map_err(|error| unreadable(&level.path, &error))?;
                level.entries = Entries::Listed(rest.into_iter());
            }
            let (path, target) = (entry.path(), level.target.join(entry.file_name()));
            // Symbolic links are not followed here, because a link may lead out of the folder, or in a
            // circle.
            let metadata = entry.metadata().map_err(|error| unreadable(&path, &error))?;
            if let Some(found) = self.enter(path, target, &metadata)? {
                return Ok(Some(found));
            }
        }
    }

    /// Returns the file at `path`, or begins to read the folder there.
    fn enter(&mut self, path: PathBuf, target: PathBuf, metadata: &Metadata) -> Result<Option<Found>, Error> {
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).map_err(|error| unreadable(&path, &error))?;
            self.levels.push(Level { path, target, entries: Entries::Open(entries), is_empty: true });
            return Ok(None);
        }
        if metadata.is_symlink() {
            let to = fs::read_link(&path).map_err(|error| unreadable(&path, &error))?;
            let to = LinkContent::new(to.as_os_str())
                .map_err(|error| Error::usage(format!("{}: {error}", path.display()), ""))?;
            return Ok(Some(Found::Link { target: checked(&target)?, to }));
        }
        if !metadata.is_file() {
            return Ok(Some(Found::Special(path)));
        }
        if metadata.len() > MOST_SIZE {
            return Err(Error::usage(
                format!("{} has {} bytes; the limit is {MOST_SIZE}", path.display(), metadata.len()),
                "copy it in parts",
            ));
        }
        let (target, source, mode) = (checked(&target)?, source_of(metadata), metadata.mode());
        Ok(Some(Found::File(SourceFile { path, target, source, mode })))
    }
}

impl Iterator for Walk {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.advance();
        if found.is_err() {
            *self = Self { sources: Vec::new().into_iter(), levels: Vec::new() };
        }
        found.transpose()
    }
}

/// Returns the last name in the path of a source, also for `.` and `..`.
fn name(source: &Path) -> Result<PathBuf, Error> {
    if let Some(name) = source.file_name() {
        return Ok(name.into());
    }
    let whole = source.canonicalize().map_err(|error| unreadable(source, &error))?;
    whole.file_name().map(PathBuf::from).ok_or_else(|| {
        Error::usage("the folder / has no name", "name the target, for example relay://HOST/backup")
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("read {}", path.display()), error)
}

/// Checks a target that follows from the arguments.
pub(crate) fn checked(target: &Path) -> Result<RelativePath, Error> {
    RelativePath::new(target)
        .map_err(|error| Error::usage(format!("{}: {error}", target.display()), "choose another target"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn targets(sources: &[PathBuf], target: &str, into: bool) -> Result<Vec<String>, Error> {
        let mut targets = Vec::new();
        for found in Walk::new(sources, Path::new(target), into)? {
            targets.push(match found? {
                Found::File(file) => file.target.to_string(),
                Found::Folder(folder) => format!("{folder}/"),
                Found::Link { target, to } => format!("{target} -> {}", to.as_path().display()),
                Found::Special(path) => format!("special {}", path.display()),
            });
        }
        targets.sort();
        Ok(targets)
    }

    #[test]
    fn targets_follow_from_the_command_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("dir/inner")).expect("a folder");
        for name in ["a", "b", "dir/z", "dir/inner/y"] {
            fs::write(path(name), name).expect("written");
        }
        let named = |names: &[&str]| names.iter().map(|name| path(name)).collect::<Vec<_>>();
        assert_eq!(targets(&named(&["a"]), "in/x", false), Ok(vec!["in/x".into()]));
        assert_eq!(targets(&named(&["a"]), "in/", true), Ok(vec!["in/a".into()]));
        assert_eq!(targets(&named(&["a", "b"]), "in", false), Ok(vec!["in/a".into(), "in/b".into()]));
        let (inner, z) = ("in/inner/y".to_owned(), "in/z".to_owned());
        assert_eq!(targets(&named(&["dir"]), "in", false), Ok(vec![inner, z]));
        assert_eq!(targets(&named(&["dir"]), "", true), Ok(vec!["dir/inner/y".into(), "dir/z".into()]));
        assert_eq!(targets(&named(&["dir/inner/.."]), "", true).map(|targets| targets.len()), Ok(2));
        fs::create_dir_all(path("empty/inner")).expect("a folder");
        assert_eq!(targets(&named(&["empty"]), "in", false), Ok(vec!["in/inner/".into()]));
        assert_eq!(targets(&named(&["empty/inner"]), "", false), Ok(vec![]));
        fs::create_dir_all(path("other/a")).expect("a folder");
        let both = targets(&named(&["a", "other/a"]), "in", false).expect_err("a file and a folder");
        assert_eq!(both.message, "two sources have the target in/a");
        let twice = targets(&named(&["a", "dir/../a"]), "in", false).expect_err("the same name");
        assert_eq!(twice.message, "two sources have the target in/a");
        for outside in [targets(&named(&["a"]), "../x", false), targets(&named(&["dir"]), "../x", false)] {
            assert!(outside.is_err());
        }
    }

    /// Every file of a tree that is deeper than the number of folders that are kept open is found.
    #[test]
    fn a_deep_tree_is_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut path = folder.path().to_path_buf();
        let depth = MOST_LEVELS + 20;
        for _ in 0..depth {
            path.push("d");
            fs::create_dir(&path).expect("a folder");
            for name in ["a", "z"] {
                fs::write(path.join(name), name).expect("written");
            }
        }
        let found = targets(&[folder.path().into()], "in", false).expect("readable");
        assert_eq!(found.len(), 2 * depth);
    }

    #[test]
    fn what_is_no_file_is_a_link_or_is_skipped() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), "a").expect("written");
        symlink("../a", folder.path().join("link")).expect("a link");
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let special = format!("special {}", socket.display());
        let found = targets(&[folder.path().into()], "in", false);
        assert_eq!(found, Ok(vec!["in/a".into(), "in/link -> ../a".into(), special]));
        let error = targets(&[socket], "in", false).expect_err("named by the user");
        assert!(error.message.ends_with("is neither a file nor a folder"), "{error}");
        fs::remove_file(folder.path().join("link")).expect("removed");
        symlink("a", folder.path().join("link")).expect("a link");
        assert!(targets(&[folder.path().join("absent")], "in", false).is_err());
        let huge = fs::File::create(folder.path().join("huge")).expect("a file");
        huge.set_len(MOST_SIZE + 1).expect("sparse");
        let error = targets(&[folder.path().join("huge")], "in", false).expect_err("too large");
        assert!(error.message.contains("the limit is"), "{error}");
        let followed = targets(&[folder.path().join("link")], "in", false);
        assert_eq!(followed, Ok(vec!["in".into()]), "a link that the user names is followed, as by scp");
    }
}
