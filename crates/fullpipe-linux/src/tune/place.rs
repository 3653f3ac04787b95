//! Where settings are read and written, and where the files are.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullpipe_units::Duration;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::lock::LOCK_WAIT;
use crate::error::{Doing, Error, Kind};

/// Where all state is, below what stands for `/`.
const STATE: &str = "var/lib/fullpipe";
/// The name of the one file that is ours below `/etc/sysctl.d`.
const OWNED: &str = "90-fullpipe.conf";

/// A host: this one, a network namespace of it, or a folder that looks like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What stands for `/`.
    root: PathBuf,
    /// Settings are files below `root` and no kernel's.
    imitated: bool,
    /// Where what has been changed is kept.
    state: PathBuf,
    /// Our file.
    owned: PathBuf,
    /// Another process finds it by the same arguments: its namespace has a name.
    lasting: bool,
    /// How long a command waits for the lock of the state.
    lock_wait: Duration,
}

impl Target {
    /// This host; with `netns` the network namespace of that name (`ip netns`) or path, which the calling thread
    /// enters for good; with `root` files are below that folder, and so are settings unless there is a namespace.
    ///
    /// # Errors
    /// There is no such namespace or folder, or it may not be entered.
    pub fn new(root: Option<&Path>, netns: Option<&str>) -> Result<Self, Error> {
        if let Some(name) = netns {
            enter(name)?;
        }
        Self::inherited(root, netns)
    }

    /// The same for a process that was started inside: the path of a namespace may lead nowhere by now.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn inherited(root: Option<&Path>, netns: Option<&str>) -> Result<Self, Error> {
        if let Some(root) = root
            && !root.is_dir()
        {
            let hint = "give a folder that stands for /, with proc/sys and etc in it";
            return Err(Error::settings(format!("{} is no folder", root.display()), hint));
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
        let Some(name) = netns else { return Ok(here) };
        let own = if name.contains('/') { format!("ns-{}", this_namespace()) } else { name.to_owned() };
        Ok(match root {
            Some(_) => Self { imitated: false, ..here },
            None => {
                // Nothing below /etc is loaded for a namespace, and what is would be loaded for the host.
                let state = var.join("netns").join(own);
                Self { owned: state.join(OWNED), state, ..here }
            }
        })
    }

    /// The same with another limit for the wait for the lock of its state, which is 10 s otherwise.
    #[must_use]
    pub fn with_lock_wait(self, lock_wait: Duration) -> Self {
        Self { lock_wait, ..self }
    }

    /// Whether there is no kernel behind it, and so no route.
    pub fn is_imitated(&self) -> bool {
        self.imitated
    }

    /// Our file of settings.
    pub fn owned(&self) -> &Path {
        &self.owned
    }

    /// Whether a process that was not started from here finds it.
    pub(super) fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// What tells this run of the machine from others.
    pub(super) fn boot(&self) -> String {
        let id = "proc/sys/kernel/random/boot_id";
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        // A folder that imitates a host may have none, and is on this machine.
        let found = read(self.of_kernel(id)).or_else(|| read(Path::new("/").join(id)));
        found.unwrap_or_default().trim().into()
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// The folders that are ours, the state's last.
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

    /// The folder of files that stand where they do on a host: settings of every boot, services.
    pub(super) fn below_root(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A file that the running kernel makes or has come with.
    pub(super) fn of_kernel(&self, path: &str) -> PathBuf {
        if self.imitated { self.root.join(path) } else { Path::new("/").join(path) }
    }

    /// The file of a setting, `key` with dots or slashes.
    fn setting(&self, key: &str) -> PathBuf {
        let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
        let sys = if self.imitated { self.root.join("proc/sys") } else { "/proc/sys".into() };
        sys.join(path)
    }

    /// A setting as it stands there, byte for byte.
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
                "set it on the host: the namespace of a container has no value of its own".into()
            } else {
                String::new()
            },
            ..error
        })
    }

    /// Whether a setting may be written; nothing is.
    pub(super) fn may_write(&self, key: &str) -> io::Result<()> {
        File::options().write(true).open(self.setting(key)).map(drop)
    }
}

/// Moves the calling thread into a namespace.
fn enter(name: &str) -> Result<(), Error> {
    let path = if name.contains('/') { PathBuf::from(name) } else { Path::new("/run/netns").join(name) };
    let file = File::open(&path).map_err(|error| {
        let hint = "give a name that ip netns list prints, or a path such as /proc/PID/ns/net";
        Error {
            kind: if error.kind() == io::ErrorKind::PermissionDenied { Kind::Rights } else { Kind::Settings },
            hint: hint.into(),
            ..Error::system(format_args!("open the network namespace {}", path.display()), error)
        }
    })?;
    let inode = file.metadata().doing("look at a network namespace")?.ino();
    if inode != this_namespace() {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| {
            let hint = "it takes root";
            let error = Error::system(format_args!("enter the network namespace {name}"), error);
            Error { hint: hint.into(), ..error }
        })?;
    }
    Ok(())
}

/// The number of the calling thread's network namespace.
pub(super) fn this_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino())
}
