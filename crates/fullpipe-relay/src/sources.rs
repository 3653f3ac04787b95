//! Lists the files to copy, and the names of their targets.
//!
//! The target never depends on what exists at the receiver, so the same command always means the same files,
//! and can be repeated after a crash. Folders are read while the copy runs, so the memory that a copy needs
//! does not grow with the number of files.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::vec;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};

use crate::engine::MOST_SIZE;
use crate::error::Error;
use crate::frame::Source;
use crate::name::{JOURNAL_FOLDER, LinkContent, RelativePath, TEMPORARY};
use crate::store::{Permission, nanos};

/// Depth up to which folders stay open while their subfolders are read. A deeper folder is read completely
/// and closed before its subfolders are read, so the number of open files is bounded.
const MOST_LEVELS: usize = 100;

/// Part of the file system to which the paths of sources may lead.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// The paths may lead anywhere on this host.
    Host,
    /// The paths stay in this folder, even through symbolic links.
    Below(Arc<Dir>),
}

/// Kind of a file that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
    Special,
}

/// Attributes of a path.
#[derive(Clone, Copy, Debug)]
struct Status {
    kind: Kind,
    source: Source,
    mode: u32,
    owner: (u32, u32),
}

impl From<Metadata> for Status {
    fn from(found: Metadata) -> Self {
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Special,
        };
        let owner = (MetadataExt::uid(&found), MetadataExt::gid(&found));
        Self { kind, source: source_of(&found), mode: MetadataExt::mode(&found), owner }
    }
}

impl From<cap_std::fs::Metadata> for Status {
    fn from(found: cap_std::fs::Metadata) -> Self {
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Special,
        };
        let mtime_ns = nanos(found.mtime(), found.mtime_nsec());
        let source = Source { size: found.len(), mtime_ns, inode: found.ino() };
        Self { kind, source, mode: found.mode(), owner: (found.uid(), found.gid()) }
    }
}

/// Name and attributes of an entry of a folder.
type Entry = Result<(OsString, Status), Error>;
/// Entries of a folder.
type Entries = Box<dyn Iterator<Item = Entry> + Send>;

/// Returns whether a file or folder belongs to the relay itself, judged by its name.
fn is_relays_own(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let (begin, end) = (TEMPORARY.0.as_bytes(), TEMPORARY.1.as_bytes());
    name == JOURNAL_FOLDER.as_bytes() || (name.starts_with(begin) && name.ends_with(end))
}

impl Tree {
    /// Opens a folder such that no path leads out of it.
    pub(crate) fn below(folder: &Path) -> io::Result<Self> {
        Ok(Self::Below(Arc::new(Dir::open_ambient_dir(folder, ambient_authority())?)))
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        match self {
            Self::Host => File::open(path),
            Self::Below(folder) => Ok(folder.open(path)?.into_std()),
        }
    }

    /// Returns the attributes of the file that a path leads to; symbolic links are followed.
    fn status(&self, path: &Path) -> io::Result<Status> {
        match self {
            Self::Host => fs::metadata(path).map(Status::from),
            Self::Below(folder) => folder.metadata(path).map(Status::from),
        }
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Self::Host => fs::read_link(path),
            Self::Below(folder) => folder.read_link_contents(path),
        }
    }

    /// Returns the entries of the folder at `path`. Entries that are symbolic links are not followed.
    fn entries(&self, path: &Path) -> io::Result<Entries> {
        let path = path.to_path_buf();
        match self {
            Self::Host => {
                let entries = fs::read_dir(&path)?;
                Ok(Box::new(entries.map(move |entry| -> Entry {
                    let entry = entry.map_err(|error| unreadable(&path, &error))?;
                    let metadata = entry.metadata().map_err(|error| unreadable(&entry.path(), &error))?;
                    Ok((entry.file_name(), Status::from(metadata)))
                })))
            }
            Self::Below(folder) => {
                let entries = folder.read_dir(&path)?;
                let entries = entries.map(move |entry| -> Entry {
                    let entry = entry.map_err(|error| unreadable(&path, &error))?;
                    let name = entry.file_name();
                    let metadata = entry.metadata().map_err(|error| unreadable(&path.join(&name), &error))?;
                    Ok((name, Status::from(metadata)))
                });
                let is_own = |entry: &Entry| entry.as_ref().is_ok_and(|(name, _)| is_relays_own(name));
                Ok(Box::new(entries.filter(move |entry| !is_own(entry))))
            }
        }
    }
}

/// A file to copy.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) tree: Tree,
    pub(crate) path: PathBuf,
    pub(crate) target: RelativePath,
    pub(crate) source: Source,
    pub(crate) permission: Permission,
}

/// A file, folder or link that a copy creates at the receiver.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// A file.
    File(SourceFile),
    /// A folder, which is found before its entries.
    Folder { target: RelativePath, permission: Permission },
    /// A symbolic link, which is copied as a link.
    Link { target: RelativePath, to: LinkContent },
    /// Neither a file, nor a folder, nor a symbolic link.
    Special(PathBuf),
}

/// Returns the facts by which a receiver recognises a source file after a crash.
pub(crate) fn source_of(metadata: &Metadata) -> Source {
    Source {
        size: metadata.size(),
        mtime_ns: nanos(metadata.mtime(), metadata.mtime_nsec()),
        inode: metadata.ino(),
    }
}

/// A folder whose entries are being read.
struct Level {
    path: PathBuf,
    target: PathBuf,
    entries: Entries,
    /// Whether the entries are in memory, so that the folder need not stay open.
    is_listed: bool,
}

/// Iterator over the files of all sources. The iterator ends after an error.
pub(crate) struct Walk {
    tree: Tree,
    sources: vec::IntoIter<(PathBuf, PathBuf)>,
    levels: Vec<Level>,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl Walk {
    /// Lists the files of `sources`. With several sources, or if `into` is set, each source is copied into
    /// `target` under its own name; otherwise, the only source is copied as `target`.
    ///
    /// # Errors
    /// Returns an error if a source does not exist, or if two sources have the same target.
    pub(crate) fn new(sources: &[PathBuf], target: &Path, into: bool) -> Result<Self, Error> {
        let into = into || sources.len() > 1;
        let mut pairs = Vec::new();
        for source in sources {
            let target = if into { target.join(name(source)?) } else { target.to_path_buf() };
            pairs.push((source.clone(), target));
        }
        Self::of(Tree::Host, pairs)
    }

    /// Lists the files of `sources`: pairs of a path in `tree`, which a client may read, and a target.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Walk::new`].
    pub(crate) fn below(tree: Tree, sources: Vec<(PathBuf, PathBuf)>) -> Result<Self, Error> {
        for (source, _) in &sources {
            let own = |part: Component<'_>| part.as_os_str() == JOURNAL_FOLDER;
            if matches!(tree, Tree::Below(_)) && source.components().any(own) {
                return Err(unreadable(source, &io::ErrorKind::NotFound.into()));
            }
        }
        let root = |path: PathBuf| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        Self::of(tree, sources.into_iter().map(|(source, target)| (root(source), target)).collect())
    }

    fn of(tree: Tree, pairs: Vec<(PathBuf, PathBuf)>) -> Result<Self, Error> {
        for (source, target) in &pairs {
            let status = tree.status(source).map_err(|error| unreadable(source, &error))?;
            if !matches!(status.kind, Kind::Folder | Kind::File) {
                return Err(Error::usage(
                    format!("{} is neither a file nor a folder", source.display()),
                    "fullpipe copy reads only files, folders and links",
                ));
            }
            if status.kind == Kind::File || !target.as_os_str().is_empty() {
                checked(target)?;
            }
        }
        // If all sources have different targets, files below them have different targets, too.
        let mut targets: Vec<&PathBuf> = pairs.iter().map(|(_, target)| target).collect();
        targets.sort_unstable();
        if let Some(pair) = targets.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(
                format!("two sources have the target {}", pair[0].display()),
                "copy the two sources with separate commands, to different folders",
            ));
        }
        Ok(Self { tree, sources: pairs.into_iter(), levels: Vec::new() })
    }

    /// Returns the next file, folder or link; `None` at the end.
    fn advance(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else {
                let Some((path, target)) = self.sources.next() else { return Ok(None) };
                // Follow a symbolic link that the user names, as scp does.
                let status = self.tree.status(&path).map_err(|error| unreadable(&path, &error))?;
                if let Some(found) = self.enter(path, target, status)? {
                    return Ok(Some(found));
                }
                continue;
            };
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            let (name, status) = entry?;
            if depth > MOST_LEVELS && !std::mem::replace(&mut level.is_listed, true) {
                let rest: Vec<_> = level.entries.by_ref().collect();
                level.entries = Box::new(rest.into_iter());
            }
            let (path, target) = (level.path.join(&name), level.target.join(&name));
            // Symbolic links are not followed here, because they may lead out of the folder or form a loop.
            if let Some(found) = self.enter(path, target, status)? {
                return Ok(Some(found));
            }
        }
    }

    /// Returns the file or folder at `path`, and starts to read a folder.
    fn enter(&mut self, path: PathBuf, target: PathBuf, status: Status) -> Result<Option<Found>, Error> {
        let Status { kind, source, mode, owner } = status;
        match kind {
            Kind::Folder => {
                let entries = self.tree.entries(&path).map_err(|error| unreadable(&path, &error))?;
                // The target may be the root of the relay, which already exists.
                let folder = match target.as_os_str().is_empty() {
                    true => None,
                    false => Some(Found::Folder {
                        target: checked(&target)?,
                        permission: Permission { mode, owner: Some(owner) },
                    }),
                };
                self.levels.push(Level { path, target, entries, is_listed: false });
                Ok(folder)
            }
            Kind::Link => {
                let to = self.tree.read_link(&path).map_err(|error| unreadable(&path, &error))?;
                let to = LinkContent::new(to.as_os_str())
                    .map_err(|error| Error::usage(format!("{}: {error}", path.display()), ""))?;
                Ok(Some(Found::Link { target: checked(&target)?, to }))
            }
            Kind::Special => Ok(Some(Found::Special(path))),
            Kind::File if source.size > MOST_SIZE => Err(Error::usage(
                format!("{} has {} bytes; the limit is {MOST_SIZE}", path.display(), source.size),
                "copy the file in parts",
            )),
            Kind::File => {
                let (tree, target) = (self.tree.clone(), checked(&target)?);
                let permission = Permission { mode, owner: Some(owner) };
                Ok(Some(Found::File(SourceFile { tree, path, target, source, permission })))
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.advance();
        if found.is_err() {
            *self = Self { tree: Tree::Host, sources: Vec::new().into_iter(), levels: Vec::new() };
        }
        found.transpose()
    }
}

/// Returns the last name in the path of a source; `.` and `..` are resolved first.
fn name(source: &Path) -> Result<PathBuf, Error> {
    if let Some(name) = source.file_name() {
        return Ok(name.into());
    }
    let whole = source.canonicalize().map_err(|error| unreadable(source, &error))?;
    whole.file_name().map(PathBuf::from).ok_or_else(|| {
        Error::usage("the folder / has no name", "add a name to the target, for example relay://HOST/backup")
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("read {}", path.display()), error)
}

/// Checks a target that results from the arguments.
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
                Found::Folder { target, .. } => format!("{target}/"),
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
        let all = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(targets(&named(&["dir"]), "in", false), all(&["in/", "in/inner/", "in/inner/y", "in/z"]));
        assert_eq!(targets(&named(&["dir"]), "", true), all(&["dir/", "dir/inner/", "dir/inner/y", "dir/z"]));
        assert_eq!(targets(&named(&["dir"]), "", false), all(&["inner/", "inner/y", "z"]));
        assert_eq!(targets(&named(&["dir/inner/.."]), "", true).map(|targets| targets.len()), Ok(4));
        fs::create_dir_all(path("empty/inner")).expect("a folder");
        assert_eq!(targets(&named(&["empty"]), "in", false), all(&["in/", "in/inner/"]));
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

    /// The listing finds every file of a tree that is deeper than the maximum number of open folders.
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
        assert_eq!(found.len(), 3 * depth + 1);
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
        assert_eq!(found, Ok(vec!["in/".into(), "in/a".into(), "in/link -> ../a".into(), special]));
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
