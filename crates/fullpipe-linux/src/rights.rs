//! What the process must be allowed: to make network namespaces and TUN devices.

use std::fs::{self, File};

use rustix::process::{getegid, geteuid, getgid, getuid};

use crate::error::Error;
use crate::namespace::Namespace;
use crate::sys;

const TUN: &str = "/dev/net/tun";

/// Makes sure of the rights, by a user namespace where the process has none. To be called before the process
/// starts a thread: the kernel gives a user namespace to single-threaded processes only.
///
/// # Errors
/// [`Kind::Rights`](crate::Kind::Rights), with what is missing.
pub fn acquire() -> Result<(), Error> {
    // The device first: a user namespace does not help where it may not be opened.
    if let Err(error) = File::options().read(true).write(true).open(TUN) {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => Error::settings(
                format!("there is no {TUN}"),
                "load the kernel's tun module, or pass the device to the container (--device /dev/net/tun)",
            ),
            _ => Error::rights(format!("{TUN} cannot be opened: {error}")),
        });
    }
    if Namespace::new().is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare_user().map_err(|e| Error::rights(format!("no user namespace can be made: {e}")))?;
    // The same numbers inside and outside: a command started in here still belongs to its user.
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|e| Error::rights(format!("/proc/self/{file} cannot be written: {e}")))
    };
    map("setgroups", "deny".into())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))?;
    Namespace::new().map(drop)
}

/// Who started the command: the user that commands behind the path run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User number.
    pub user: u32,
    /// Group number.
    pub group: u32,
}

impl Caller {
    /// The user behind `sudo` or a set-user-id bit; `None` when the process is that user already.
    pub fn behind_privileges() -> Option<Self> {
        let real = Self { user: getuid().as_raw(), group: getgid().as_raw() };
        if geteuid().as_raw() != real.user {
            return Some(real);
        }
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        // Only root may become somebody else, and only sudo's word is taken for who that is.
        let sudo =
            (real.user == 0).then(|| Some(Self { user: number("SUDO_UID")?, group: number("SUDO_GID")? }));
        sudo.flatten().filter(|caller| caller.user != 0)
    }
}
