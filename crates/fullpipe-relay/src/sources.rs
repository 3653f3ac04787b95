//! The files to copy, and the names of their targets.
//!
//! The target never depends on what exists at the receiver: the same command always means the same files, so
//! it can be repeated after a crash.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::engine::MOST_SIZE;
use crate::error::Error;
use crate::frame::Source;
use crate::name::RelativePath;
use crate::store::nanos;

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) target: RelativePath,
    pub(crate) source: Source,
    pub(crate) mode: u32,
}

/// What a copy creates below the root of the relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    pub(crate) files: Vec<SourceFile>,
    /// Targets of the empty folders. Other folders are created with their files.
    pub(crate) folders: Vec<RelativePath>,
}

/// Returns the facts by which a receiver recognises a file.
pub(crate) fn source_of(metadata: &Metadata) -> Source {
    Source {
        size: metadata.size(),
        mtime_ns: nanos(metadata.mtime(), metadata.mtime_nsec()),
        inode: metadata.ino(),
    }
}

/// Lists the files of `sources`. With several sources, or if `into` is set, their names are added to
/// `target`; otherwise `target` is the name of the only source.
pub(crate) fn list(sources: &[PathBuf], target: &Path, into: bool) -> Result<Sources, Error> {
    let into = into || sources.len() > 1;
    let mut found = Sources::default();
    for source in sources {
        let target = if into { target.join(name(source)?) } else { target.to_path_buf() };
        let metadata = fs::metadata(source).map_err(|error| unreadable(source, &error))?;
        found.add(source, &target, &metadata)?;
    }
    let mut targets: Vec<&RelativePath> =
        found.files.iter().map(|file| &file.target).chain(&found.folders).collect();
    targets.sort_unstable();
    if let Some(pair) = targets.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::usage(
            format!("two sources have the target {}", pair[0]),
            "copy them with two commands, to different folders",
        ));
    }
    Ok(found)
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
fn checked(target: &Path) -> Result<RelativePath, Error> {
    RelativePath::new(target)
        .map_err(|error| Error::usage(format!("{}: {error}", target.display()), "choose another target"))
}

impl Sources {
    fn add(&mut self, path: &Path, target: &Path, metadata: &Metadata) -> Result<(), Error> {
        if metadata.is_dir() {
            return self.add_folder(path, target);
        }
        if !metadata.is_file() {
            let kind = if metadata.is_symlink() { "a symbolic link" } else { "neither a file nor a folder" };
            return Err(Error::usage(
                format!("{} is {kind}, which copy does not support yet", path.display()),
                "copy the files by their names",
            ));
        }
        if metadata.len() > MOST_SIZE {
            return Err(Error::usage(
                format!("{} has {} bytes; the limit is {MOST_SIZE}", path.display(), metadata.len()),
                "copy it in parts",
            ));
        }
        let (target, source, mode) = (checked(target)?, source_of(metadata), metadata.mode());
        self.files.push(SourceFile { path: path.into(), target, source, mode });
        Ok(())
    }

    fn add_folder(&mut self, path: &Path, target: &Path) -> Result<(), Error> {
        let mut entries = fs::read_dir(path)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| unreadable(path, &error))?;
        // The target of an empty folder may be the root of the relay, which exists.
        if entries.is_empty() && !target.as_os_str().is_empty() {
            self.folders.push(checked(target)?);
        }
        // The order of a folder differs between file systems; that of names is always the same.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            // Symbolic links are not followed here, because a link may lead out of the folder, or in a
            // circle.
            let metadata = entry.metadata().map_err(|error| unreadable(&entry.path(), &error))?;
            self.add(&entry.path(), &target.join(entry.file_name()), &metadata)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn targets(sources: &[PathBuf], target: &str, into: bool) -> Result<Vec<String>, Error> {
        let found = list(sources, Path::new(target), into)?;
        let folders = found.folders.iter().map(|folder| format!("{folder}/"));
        Ok(found.files.iter().map(|file| file.target.to_string()).chain(folders).collect())
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
        assert!(targets(&named(&["a"]), "../x", false).is_err());
    }

    #[test]
    fn what_cannot_be_copied_yet_is_refused_before_anything_is_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), "a").expect("written");
        symlink("a", folder.path().join("link")).expect("a link");
        let error = targets(&[folder.path().into()], "in", false).expect_err("a link");
        assert!(
            error.message.ends_with("link is a symbolic link, which copy does not support yet"),
            "{error}"
        );
        assert!(targets(&[folder.path().join("absent")], "in", false).is_err());
        let huge = fs::File::create(folder.path().join("huge")).expect("a file");
        huge.set_len(MOST_SIZE + 1).expect("sparse");
        let error = targets(&[folder.path().join("huge")], "in", false).expect_err("too large");
        assert!(error.message.contains("the limit is"), "{error}");
        let followed = targets(&[folder.path().join("link")], "in", false);
        assert_eq!(followed, Ok(vec!["in".into()]), "a link that the user names is followed, as by scp");
    }
}
