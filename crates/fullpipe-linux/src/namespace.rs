//! Unnamed network namespaces, which exist as long as something refers to them.
//!
//! A namespace created with `ip netns add` remains if fullpipe is killed; the namespaces of this module do
//! not. The process refers to each namespace by a file descriptor. The kernel removes a namespace when its
//! last descriptor, device and process are gone.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Doing, Error};
use crate::sys;

/// A network namespace, referenced by a file descriptor.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Creates a network namespace that contains only a loopback device, which is down.
    ///
    /// # Errors
    /// Returns an error if the process is not permitted to create network namespaces.
    pub fn new() -> Result<Self, Error> {
        // Entering a namespace affects only the calling thread, so the function uses a temporary thread. All
        // other threads stay in their namespace.
        in_thread(|| {
            sys::unshare_network().doing("create a network namespace")?;
            let fd = File::open("/proc/thread-self/ns/net").doing("open /proc/thread-self/ns/net")?;
            Ok(Self { fd: fd.into() })
        })
    }

    /// Returns the network namespace of a process; returns `None` if this is the caller's namespace, or if
    /// the caller is not permitted to inspect it.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be opened, for example because the process does not exist.
    pub fn of_process(process: u32) -> Result<Option<Self>, Error> {
        let file = format!("/proc/{process}/ns/net");
        let number = |file: &str| std::fs::metadata(file).map(|found| (found.dev(), found.ino()));
        match (number(&file), number("/proc/thread-self/ns/net")) {
            (Ok(theirs), Ok(own)) if theirs == own => Ok(None),
            // A missing permission is reported later, when other files of the process are read.
            (Err(error), _) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
            _ => Ok(Some(Self { fd: File::open(&file).doing(format_args!("open {file}"))?.into() })),
        }
    }

    /// Runs `work` inside the network namespace. Sockets and devices that `work` opens stay in the namespace,
    /// wherever they are used later.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be entered, or if `work` fails.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        in_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Returns the descriptor that refers to the network namespace.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns a second handle to the same network namespace.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self { fd: self.fd.try_clone().doing("copy a file descriptor")? })
    }

    /// Moves the calling thread into the network namespace permanently.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .doing("enter a network namespace")
    }
}

/// Returns the inode number of the network namespace of the calling thread; 0 if it cannot be read.
pub fn this_namespace() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino())
}

fn in_thread<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Sets a sysctl in the network namespace of the calling thread; `name` has the form `net/ipv4/tcp_rmem`.
pub(crate) fn set_sysctl(name: &str, value: &str) -> Result<(), Error> {
    let write = || File::options().write(true).open(format!("/proc/sys/{name}"))?.write_all(value.as_bytes());
    write().doing(format_args!("set {name} to '{value}'"))
}
