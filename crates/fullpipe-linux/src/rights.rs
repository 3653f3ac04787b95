//! Acquires the privileges for creating network namespaces and TUN devices.

use std::fs::{self, File};
use std::time::Duration;
use std::{io, thread};

use rustix::process::{getegid, geteuid, getgid, getuid};

use crate::error::Error;
use crate::namespace::Namespace;
use crate::sys;

const TUN: &str = "/dev/net/tun";

/// Acquires the privileges for creating network namespaces and TUN devices. If the process lacks these
/// privileges, it enters a user namespace. This function must be called before the process starts a thread,
/// because the kernel allows only single-threaded processes to create a user namespace.
///
/// # Errors
/// Returns an error of [`Kind::Rights`](crate::Kind::Rights) if a privilege is missing, or of
/// [`Kind::Settings`](crate::Kind::Settings) if the TUN device file does not exist.
pub fn acquire() -> Result<(), Error> {
    // The TUN device file is checked first, because a user namespace does not help if this file cannot be
    // opened.
    if let Err(error) = File::options().read(true).write(true).open(TUN) {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => Error::settings(
                format!("{TUN} does not exist"),
                "load the kernel's tun module, or pass the device to the container (--device /dev/net/tun)",
            ),
            _ => Error::rights(format!("cannot open {TUN}: {error}")),
        });
    }
    if Namespace::new().is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare_user().map_err(|e| Error::rights(format!("cannot create a user namespace: {e}")))?;
    // User and group IDs are the same inside and outside the user namespace, so commands that are started
    // inside keep their user.
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|e| Error::rights(format!("cannot write /proc/self/{file}: {e}")))
    };
    map("setgroups", "deny".into())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))?;
    Namespace::new().map(drop)
}

/// Number of attempts to create a user namespace, and the pause between them.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// Creates a user namespace. [`Namespace::new`] may have used a temporary thread. Such a thread belongs to
/// the process for a short time even after it was joined, and during that time the kernel rejects the call
/// with `EINVAL`.
#[expect(clippy::disallowed_methods, reason = "the kernel ends the thread in its own time")]
fn unshare_user() -> io::Result<()> {
    for _ in 1..ATTEMPTS {
        match sys::unshare_user() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => thread::sleep(PAUSE),
            done => return done,
        }
    }
    sys::unshare_user()
}

/// The user who started fullpipe. Commands behind an emulated path run as this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User ID of the caller.
    pub user: u32,
    /// Group ID of the caller.
    pub group: u32,
}

impl Caller {
    /// Returns the user who ran `sudo` or a set-user-ID program; returns `None` if the process already runs
    /// as that user.
    pub fn behind_privileges() -> Option<Self> {
        let real = Self { user: getuid().as_raw(), group: getgid().as_raw() };
        if geteuid().as_raw() != real.user {
            return Some(real);
        }
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        // Only root can change its identity, so sudo's environment variables are used only if the process
        // runs as root.
        let sudo =
            (real.user == 0).then(|| Some(Self { user: number("SUDO_UID")?, group: number("SUDO_GID")? }));
        sudo.flatten().filter(|caller| caller.user != 0)
    }
}
