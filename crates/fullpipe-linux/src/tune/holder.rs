//! Finds the processes that hold a file lock (flock).
//!
//! `/proc/locks` names the process that called flock(2). That process may have died and left the descriptor
//! to another process. `/proc/locks` identifies files by a device number, which can differ from the one
//! that stat(2) returns (btrfs, overlayfs). `/proc/PID/fdinfo` lists the lock for every descriptor that
//! holds it. `/proc/locks` is only a shortcut; `/proc/PID/fdinfo` is authoritative. Neither file shows
//! processes in other PID namespaces.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// A process that holds a file lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    /// Command name of the process; empty if it is not readable.
    name: String,
    /// User IDs of the process (real, effective, saved, file system); empty if they are not readable.
    uids: Vec<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "{}", self.pid),
            name => write!(f, "{} ({name})", self.pid),
        }
    }
}

impl Holder {
    fn new(pid: u32) -> Self {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let status = file("status");
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        Self {
            pid,
            name: file("comm").trim().into(),
            uids: uids.split_whitespace().filter_map(|uid| uid.parse().ok()).collect(),
        }
    }

    /// Returns whether all user IDs of the process belong to `users`. Returns true if the user IDs are not
    /// readable. All IDs are checked, because any user may have passed the lock's descriptor to a set-user-ID
    /// program.
    pub(super) fn is_only(&self, users: &[u32]) -> bool {
        self.uids.iter().all(|uid| users.contains(uid))
    }
}

/// Returns the visible processes that hold the flock of `file`.
pub(super) fn holders(file: &File) -> Vec<Holder> {
    let Ok(file) = file.metadata() else { return Vec::new() };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let named = takers(&locks, &file);
    let mut found: Vec<u32> = named.iter().copied().filter(|pid| holds(*pid, &file)).collect();
    if found.is_empty() {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        found = pids.filter(|pid| holds(*pid, &file)).collect();
    }
    // Users other than root may not read the descriptors of other users' processes.
    let pids = if found.is_empty() { named } else { found };
    pids.into_iter().map(Holder::new).collect()
}

/// Returns the processes that took the flock of `file`, according to the text of `/proc/locks` (see
/// proc_locks(5)), for example `1: FLOCK ADVISORY WRITE 4711 fe:00:398607 0 EOF`. The line of a waiting
/// process has an arrow after the number.
fn takers(locks: &str, file: &Metadata) -> Vec<u32> {
    let id = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    let taker = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == id => pid.parse().ok().filter(|pid| *pid != 0),
            _ => None,
        }
    };
    locks.lines().filter_map(taker).collect()
}

/// Returns whether a descriptor of the process holds the flock of `file`.
fn holds(pid: u32, file: &Metadata) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    descriptors.into_iter().any(|descriptor| {
        let info = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let locked = info.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"));
        // The file is inspected last, because stat(2) hangs on files of an unresponsive file server.
        locked
            && fs::metadata(process.join("fd").join(descriptor.file_name()))
                .is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::fs::{FlockOperation, flock};

    #[test]
    fn a_holder_is_named_and_one_that_waits_is_not() {
        let file = tempfile::tempfile().unwrap();
        let found = file.metadata().unwrap();
        let id = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 11 {id} 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 {id} 0 EOF\n\
             2: -> FLOCK  ADVISORY  WRITE 13 {id} 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 {id}1 0 EOF\n\
             4: FLOCK  ADVISORY  READ 0 {id} 0 EOF\n"
        );
        assert_eq!(takers(&locks, &found), [12]);
    }

    #[test]
    fn a_lock_without_a_holder_names_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holders(file.as_file()), []);
        flock(file.as_file(), FlockOperation::LockShared).unwrap();
        let pids: Vec<u32> = holders(&file.reopen().unwrap()).iter().map(|holder| holder.pid).collect();
        assert_eq!(pids, [std::process::id()]);
    }
}
