//! The target of tuning, which determines where settings and files are.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullpipe_units::Duration;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::lock::LOCK_WAIT;
use crate::error::{Doing, Error, Kind};
use crate::namespace::this_namespace;

/// Path of the state folder below the root of the target.
const STATE: &str = "var/lib/fullpipe";
/// Name of fullpipe's settings file in `/etc/sysctl.d`.
const OWNED: &str = "90-fullpipe.conf";

/// A host to tune: this host, one of its network namespaces, or a folder that imitates a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Folder that takes the place of `/`.
    root: PathBuf,
    /// Whether kernel settings are files below `root` instead of the kernel's own.
    imitated: bool,
    /// Path of the folder that contains the journal and the lock.
    state: PathBuf,
    /// Path of the settings file that fullpipe writes.
    owned: PathBuf,
    /// Whether other processes can find the target with the same arguments. Other processes cannot find a
    /// namespace that is given by its path.
    lasting: bool,
    /// Time for which a process waits for the lock of the state.
    lock_wait: Duration,
}

impl Target {
    /// Creates a target for this host. With `netns`, the target is the network namespace with this name (`ip
    /// netns`) or path, which the calling thread enters permanently. With `root`, files are below that
    /// folder; unless `netns` is also given, so are the kernel settings.
    ///
    /// # Errors
    /// Returns an error if the namespace or the folder does not exist or is not accessible.
    pub fn new(root: Option<&Path>, netns: Option<&str>) -> Result<Self, Error> {
        if let Some(name) = netns {
            enter(name)?;
        }
        Self::inherited(root, netns)
    }

    /// Creates a target like [`Target::new`], but for a process that was started inside the namespace. The
    /// path of the namespace may no longer exist.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist.
    pub fn inherited(root: Option<&Path>, netns: Option<&str>) -> Result<Self, Error> {
        if let Some(root) = root
            && !root.is_dir()
        {
            let hint = "pass a folder to use as /; it must contain proc/sys and etc";
            return Err(Error::settings(format!("{} is not a folder", root.display()), hint));
        }
        let below = root.unwrap_or(Path::new("/"));
        let var = below.join(STATE);
        let etc = below.join("etc/sysctl.d").join(OWNED);
        let lasting = netns.is_none_or(|name| !name.contains('/'));
        let here = Self {
            root: below.into(),
            imitated: root.is_some(),
            state: var.clone(),
            owned: etc,
            lasting,
            lock_wait: LOCK_WAIT,
        };
        here.refuse_links(root.is_some())?;
        let Some(name) = netns else { return Ok(here) };
        let own = if name.contains('/') { format!("ns-{}", this_namespace()) } else { name.to_owned() };
        Ok(match root {
            Some(_) => Self { imitated: false, ..here },
            None => {
                // The host loads the files below `/etc` at boot for itself, but not for a network namespace.
                let state = var.join("netns").join(own);
                Self { owned: state.join(OWNED), state, ..here }
            }
        })
    }

    /// Checks that the folders to which fullpipe writes are not symbolic links. Below `root`, a link could
    /// lead to the files of a different host, such as this one.
    fn refuse_links(&self, below_root: bool) -> Result<(), Error> {
        const OURS: [&str; 1] = [STATE];
        const WRITTEN: [&str; 7] = ["var", "var/lib", STATE, "etc", "etc/sysctl.d", "proc", "proc/sys"];
        let folders: &[&str] = if below_root { &WRITTEN } else { &OURS };
        for folder in folders {
            let path = self.root.join(folder);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                let hint = if below_root {
                    "replace the link with a folder, because everything that --root changes must be below \
                     the root folder"
                } else {
                    "replace the link with a folder to which only root can write"
                };
                return Err(Error::settings(format!("{} is a symbolic link", path.display()), hint));
            }
        }
        Ok(())
    }

    /// Sets the time for which a process waits for the lock of the state; the default is 10 s.
    #[must_use]
    pub fn with_lock_wait(self, lock_wait: Duration) -> Self {
        Self { lock_wait, ..self }
    }

    /// Returns whether the target is a folder that imitates a host and has neither a kernel nor routes.
    pub fn is_imitated(&self) -> bool {
        self.imitated
    }

    /// Returns the path of the settings file that fullpipe writes.
    pub fn owned(&self) -> &Path {
        &self.owned
    }

    /// Returns whether an unrelated process can find the target with the same arguments.
    pub(super) fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// Returns the boot ID of the host.
    pub(super) fn boot(&self) -> String {
        let id = "proc/sys/kernel/random/boot_id";
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        // A folder that imitates a host may lack a boot ID; the boot ID of this host then applies.
        let found = read(self.of_kernel(id)).or_else(|| read(Path::new("/").join(id)));
        found.unwrap_or_default().trim().into()
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the folders that fullpipe creates for its state, the innermost one last.
    pub(super) fn state_folders(&self) -> Vec<PathBuf> {
        let outermost = self.root.join(STATE);
        let ours = |folder: &&Path| folder.starts_with(&outermost);
        let mut folders: Vec<PathBuf> = self.state.ancestors().take_while(ours).map(Into::into).collect();
        folders.reverse();
        folders
    }

    pub(super) fn lock_wait(&self) -> Duration {
        self.lock_wait
    }

    /// Returns the path below `root` of a file that does not belong to the running kernel, for example boot
    /// settings or services.
    pub(super) fn below_root(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the path of a file that belongs to the running kernel.
    pub(super) fn of_kernel(&self, path: &str) -> PathBuf {
        if self.imitated { self.root.join(path) } else { Path::new("/").join(path) }
    }

    /// Returns the path of the file that contains the setting `key`; the key may be written with dots or
    /// slashes.
    fn setting(&self, key: &str) -> PathBuf {
        let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
        let sys = if self.imitated { self.root.join("proc/sys") } else { "/proc/sys".into() };
        sys.join(path)
    }

    /// Reads the value of a kernel setting, byte for byte.
    pub(super) fn read(&self, key: &str) -> io::Result<String> {
        fs::read_to_string(self.setting(key))
    }

    pub(super) fn write(&self, key: &str, value: &str) -> Result<(), Error> {
        let write = || {
            let mut file = File::options().write(true).truncate(true).open(self.setting(key))?;
            file.write_all(value.as_bytes())
        };
        write().doing(format_args!("set {key} to '{}'", value.trim())).map_err(|error| Error {
            hint: if key.starts_with("net.core.") {
                "change the setting on the host, because the namespace of a container does not have it".into()
            } else {
                String::new()
            },
            ..error
        })
    }

    /// Checks whether this process is permitted to write a kernel setting, without writing it.
    pub(super) fn may_write(&self, key: &str) -> io::Result<()> {
        File::options().write(true).open(self.setting(key)).map(drop)
    }
}

/// Moves the calling thread into a network namespace.
fn enter(name: &str) -> Result<(), Error> {
    let path = if name.contains('/') { PathBuf::from(name) } else { Path::new("/run/netns").join(name) };
    let file = File::open(&path).map_err(|error| {
        let hint = "pass a name that ip netns list prints, or a path such as /proc/PID/ns/net";
        Error {
            kind: if error.kind() == io::ErrorKind::PermissionDenied { Kind::Rights } else { Kind::Settings },
            hint: hint.into(),
            ..Error::system(format_args!("open the network namespace {}", path.display()), error)
        }
    })?;
    let inode = file.metadata().doing("inspect a network namespace")?.ino();
    if inode != this_namespace() {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| {
            let hint = "run the command as root";
            let error = Error::system(format_args!("enter the network namespace {name}"), error);
            Error { hint: hint.into(), ..error }
        })?;
    }
    Ok(())
}
