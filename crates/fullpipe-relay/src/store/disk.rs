//! File-system operations that the store needs, and their implementation for a folder.
//!
//! The operations are a trait, so that a test can run the store on a disk that loses unsynced data.

use std::fs::{FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt as _, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, MetadataExt as _, OpenOptions, OpenOptionsExt};

/// Permission bits that a copied file may have. The set-user-ID, set-group-ID and sticky bits are removed,
/// because a client must not be able to create a program that runs with the rights of the relay.
const PERMISSIONS: u32 = 0o777;
/// Permission bits of the owner of a folder.
const OWNER: u32 = 0o700;
/// Permission bits of a temporary file.
const PRIVATE: u32 = 0o600;

const NANOS: i64 = 1_000_000_000;

/// Kind of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Regular,
    Link,
    /// A folder or a special file.
    Other,
}

/// Attributes of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) kind: FileKind,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) inode: u64,
}

/// Permission bits and owner of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) mode: u32,
    /// User ID and group ID; `None` if the target belongs to the user of this process.
    pub(crate) owner: Option<(u32, u32)>,
}

/// Attributes of a file that is being placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) permission: Permission,
    pub(crate) mtime_ns: i64,
}

/// A file system. Paths are relative to its root, `.`.
pub(crate) trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: Send + Sync + 'static;

    /// Creates a file of `size` bytes that consists of one hole; fails if the name exists.
    fn create(&self, path: &Path, size: u64) -> io::Result<Self::File>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Opens a file for reading.
    fn open_to_read(&self, path: &Path) -> io::Result<Self::File>;
    /// Writes `bytes` at `offset`.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Fills `buffer` from `offset`.
    fn read_at(&self, file: &Self::File, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Sets the size of a file.
    fn resize(&self, file: &Self::File, size: u64) -> io::Result<()>;
    /// Drops durable content from the page cache, so that later reads come from the disk.
    fn drop_cache(&self, file: &Self::File) -> io::Result<()>;
    /// Makes the written content durable (`fdatasync`).
    fn sync_data(&self, file: &Self::File) -> io::Result<()>;
    /// Sets the attributes, and makes them durable together with the content (`fsync`).
    fn finish(&self, file: &Self::File, attributes: Attributes) -> io::Result<()>;
    /// Returns the inode number of the file.
    fn inode(&self, file: &Self::File) -> io::Result<u64>;
    /// Returns the attributes of the file with this name, without following a symbolic link; `None` if the
    /// name does not exist.
    fn status(&self, path: &Path) -> io::Result<Option<Status>>;
    /// Returns whether a path leads to a folder; symbolic links are followed.
    fn is_folder(&self, path: &Path) -> io::Result<bool>;
    /// Creates a symbolic link with the content `to`; fails if the name exists.
    fn link(&self, to: &Path, path: &Path) -> io::Result<()>;
    /// Returns the target of a symbolic link, as stored in the link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Renames a file within its folder, and replaces an existing file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder; fails if the name exists. The owner always gets all rights, because files are created in the
    /// folder. Without `permission`, the system chooses the rights of other users.
    fn create_folder(&self, path: &Path, permission: Option<Permission>) -> io::Result<()>;
    /// Makes the names in a folder durable (`fsync` of the folder).
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A folder of the host. No path leads out of it, not even through symbolic links.
#[derive(Debug)]
pub(crate) struct RootDisk {
    root: Dir,
}

impl RootDisk {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: Dir::open_ambient_dir(root, ambient_authority())? })
    }

    /// Opens the journal file in `folder`; creates the file and the folder if they do not exist.
    pub(crate) fn journal(&self, folder: &Path) -> io::Result<std::fs::File> {
        match self.create_folder(folder, None) {
            Ok(()) => self.sync_folder(Path::new("."))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(PRIVATE);
        let file = self.root.open_with(folder.join("journal"), &options)?.into_std();
        self.sync_folder(folder)?;
        Ok(file)
    }
}

impl Disk for RootDisk {
    type File = std::fs::File;

    fn create(&self, path: &Path, size: u64) -> io::Result<Self::File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(PRIVATE);
        let file = self.root.open_with(path, &options)?.into_std();
        file.set_len(size)?;
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Self::File> {
        Ok(self.root.open_with(path, OpenOptions::new().read(true).write(true))?.into_std())
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Self::File> {
        Ok(self.root.open_with(path, OpenOptions::new().read(true))?.into_std())
    }

    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn read_at(&self, file: &Self::File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(buffer, offset)
    }

    fn resize(&self, file: &Self::File, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn drop_cache(&self, file: &Self::File) -> io::Result<()> {
        Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    fn sync_data(&self, file: &Self::File) -> io::Result<()> {
        file.sync_data()
    }

    fn finish(&self, file: &Self::File, attributes: Attributes) -> io::Result<()> {
        give(file, attributes.permission)?;
        file.set_times(FileTimes::new().set_modified(time(attributes.mtime_ns)))?;
        file.sync_all()
    }

    fn inode(&self, file: &Self::File) -> io::Result<u64> {
        Ok(file.metadata()?.ino())
    }

    fn status(&self, path: &Path) -> io::Result<Option<Status>> {
        match self.root.symlink_metadata(path) {
            Ok(found) => Ok(Some(Status {
                kind: match found.file_type() {
                    kind if kind.is_file() => FileKind::Regular,
                    kind if kind.is_symlink() => FileKind::Link,
                    _ => FileKind::Other,
                },
                size: found.len(),
                mtime_ns: nanos(found.mtime(), found.mtime_nsec()),
                inode: found.ino(),
            })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn is_folder(&self, path: &Path) -> io::Result<bool> {
        Ok(self.root.metadata(path)?.is_dir())
    }

    fn link(&self, to: &Path, path: &Path) -> io::Result<()> {
        // The link is not followed here, so it may lead anywhere.
        self.root.symlink_contents(to, path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.root.read_link_contents(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.root.rename(from, &self.root, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.root.remove_file(path)
    }

    fn create_folder(&self, path: &Path, permission: Option<Permission>) -> io::Result<()> {
        let Some(Permission { mode, owner }) = permission else { return self.root.create_dir(path) };
        // Until the owner is known, no other user has rights.
        self.root.create_dir_with(path, DirBuilder::new().mode(OWNER))?;
        let folder = self.root.open_with(path, OpenOptions::new().read(true))?.into_std();
        give(&folder, Permission { mode: mode | OWNER, owner })
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // A `Dir` is opened with O_PATH, and fsync does not accept such a descriptor.
        self.root.open_with(path, OpenOptions::new().read(true))?.into_std().sync_all()
    }
}

/// Sets the permission bits of a file or folder and, for root, its owner.
fn give(file: &std::fs::File, Permission { mode, owner }: Permission) -> io::Result<()> {
    if let Some((user, group)) = owner.filter(|_| rustix::process::geteuid().is_root()) {
        match fchown(file, Some(user), Some(group)) {
            // In some containers, root may not change the owner of a file.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            given => given?,
        }
    }
    file.set_permissions(Permissions::from_mode(mode & PERMISSIONS))
}

/// Converts the seconds and nanoseconds that `stat` reports into nanoseconds since 1970.
pub(crate) fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(NANOS).saturating_add(nanos)
}

fn time(nanos: i64) -> SystemTime {
    let span = Duration::from_nanos(nanos.unsigned_abs());
    let time = if nanos < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    // Every `i64` of nanoseconds is within 292 years of 1970, which the `timespec` of every file system can
    // represent.
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_placed_file_has_its_attributes_without_the_set_user_id_bit() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = RootDisk::open(folder.path()).expect("a folder");
        let path = Path::new("file");
        let file = disk.create(path, 8).expect("created");
        disk.write_at(&file, b"12345", 3).expect("written");
        for mtime_ns in [-1, 0, 1_234_567_890_123_456_789] {
            let permission = Permission { mode: 0o104_755, owner: None };
            disk.finish(&file, Attributes { permission, mtime_ns }).expect("set");
            let status = disk.status(path).expect("readable").expect("a file");
            assert_eq!((status.kind, status.size, status.mtime_ns), (FileKind::Regular, 8, mtime_ns));
            assert_eq!(Some(status.inode), disk.inode(&file).ok());
        }
        let mode = file.metadata().expect("attributes").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
        disk.sync_folder(Path::new(".")).expect("synced");
    }

    #[test]
    fn a_new_folder_has_its_mode_and_the_rights_of_the_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = RootDisk::open(folder.path()).expect("a folder");
        for (name, mode, expected) in [("a", 0o40_777, 0o777), ("b", 0o40_700, 0o700), ("c", 0o42_550, 0o750)]
        {
            let permission = Permission { mode, owner: None };
            disk.create_folder(Path::new(name), Some(permission)).expect("created");
            let found = std::fs::metadata(folder.path().join(name)).expect("attributes").permissions();
            assert_eq!(found.mode() & 0o7777, expected, "{name}");
            let again = disk.create_folder(Path::new(name), Some(permission)).expect_err("it exists");
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        }
    }

    /// Only root may give files to other users, so other users skip the main part of this test.
    #[test]
    fn the_owner_is_kept_for_root_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = RootDisk::open(folder.path()).expect("a folder");
        let file = disk.create(Path::new("file"), 0).expect("created");
        let before = file.metadata().expect("attributes").uid();
        let permission = Permission { mode: 0o106_755, owner: Some((4711, 4712)) };
        disk.finish(&file, Attributes { permission, mtime_ns: 0 }).expect("set");
        let found = file.metadata().expect("attributes");
        match rustix::process::geteuid().is_root() {
            true => assert_eq!((found.uid(), found.gid()), (4711, 4712)),
            false => assert_eq!(found.uid(), before),
        }
        assert_eq!(found.permissions().mode() & 0o7777, 0o755, "set-user-ID and set-group-ID are dropped");
    }

    #[test]
    fn symbolic_links_do_not_lead_out_of_the_root() {
        let outside = tempfile::tempdir().expect("a folder");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(outside.path().join("secret"), "kept").expect("written");
        symlink(outside.path(), folder.path().join("out")).expect("a link");
        symlink(outside.path().join("secret"), folder.path().join("link")).expect("a link");
        let disk = RootDisk::open(folder.path()).expect("a folder");
        for path in ["out/new", "out/secret", "link", "../escape", "/tmp/escape"] {
            assert!(disk.create(Path::new(path), 0).is_err(), "{path}");
            assert!(disk.open(Path::new(path)).is_err(), "{path}");
        }
        let permission = Some(Permission { mode: 0o755, owner: None });
        assert!(disk.create_folder(Path::new("out/folder"), permission).is_err());
        let status = disk.status(Path::new("link")).expect("readable").expect("a link");
        assert_eq!(status.kind, FileKind::Link);
        // A link that leads to a folder below the root is one.
        disk.create_folder(Path::new("folder"), None).expect("created");
        symlink("folder", folder.path().join("inside")).expect("a link");
        let is_folder = |path: &str| disk.is_folder(Path::new(path)).is_ok_and(|is_folder| is_folder);
        assert!(is_folder("inside") && !is_folder("out") && !is_folder("link"));
        assert_eq!(std::fs::read_dir(outside.path()).expect("a folder").count(), 1);
    }
}
