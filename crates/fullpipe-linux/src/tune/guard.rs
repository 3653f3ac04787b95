//! The guard: a separate process that reverts the changes to the host. It reverts them immediately if the
//! process that makes them dies early, and otherwise at the deadline, unless they are confirmed.
//!
//! The guard outlives the shell and the connection from which it was started. If the guard is killed together
//! with its session, a systemd timer reverts the changes (`timer.rs`). If another process holds the lock, the
//! guard still reverts an overdue trial: it replaces the lock (`lock.rs`), and writes a line to syslog.
//!
//! ```text
//!   apply                          guard
//!     │── starts it, with socket ─►│
//!     │◄───────────────── ready ───│  in a separate session
//!     │  changes ...               │  waits
//!     │── done ───────────────────►│  waits for the deadline, checks for confirmation
//!     ×  (or the socket closes)    │  reverts
//! ```

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fullpipe_units::Duration;
use rustix::process::setsid;

use super::apply::revert;
use super::journal::{Generation, Phase, generations};
use super::lock::{LOCK_WAIT, Lock, LockError, OVERDUE_WAIT};
use super::log;
use super::place::Target;
use crate::clock::Clock;
use crate::error::{Doing, Error};

const READY: u8 = b'r';
const DONE: u8 = b'd';
/// Interval at which the guard checks whether it is still needed.
const LOOK: Duration = Duration::from_secs(2);
/// Timeout for the guard to report that it is ready.
const START: std::time::Duration = std::time::Duration::from_secs(10);

/// The command that calls [`watch`], with the generation number as its last argument. With
/// `--overdue` before the number, the command must call [`settle`](super::settle) instead, in a
/// process that inherits no socket.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Path of the program that the guard process runs.
    pub program: PathBuf,
    /// Arguments of the program, before the generation number.
    pub arguments: Vec<OsString>,
}

/// A guard process that is running.
pub(super) struct RunningGuard {
    to: UnixStream,
}

impl RunningGuard {
    /// Tells the guard that all changes have been applied.
    pub(super) fn done(&mut self) {
        // If the guard has died, the next command reverts the changes.
        let _ = self.to.write_all(&[DONE]);
    }
}

impl Guard {
    pub(super) fn start(&self, number: u64) -> Result<RunningGuard, Error> {
        let start = || -> io::Result<RunningGuard> {
            let (mut ours, theirs) = UnixStream::pair()?;
            // The applying process does not wait for the guard: once it has ended, PID 1 reaps the guard.
            let child = Command::new(&self.program)
                .args(&self.arguments)
                .arg(number.to_string())
                .current_dir("/")
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            drop(child);
            ours.set_read_timeout(Some(START))?;
            let mut ready = [0];
            ours.read_exact(&mut ready)?;
            if ready != [READY] {
                return Err(io::Error::other("the process did not report that it is ready"));
            }
            Ok(RunningGuard { to: ours })
        };
        start().doing("start the process that reverts unconfirmed changes")
    }
}

/// Runs the guard. The standard input of the guard is the socket to the applying process.
///
/// # Errors
/// Returns an error if the process was not started by the applying process, or if a value cannot be restored.
/// If a value cannot be restored, the journal is kept for the next command.
pub fn watch(place: &Target, number: u64) -> Result<(), Error> {
    // The call fails only if the process is already the leader of a process group.
    let _ = setsid();
    let input = io::stdin().as_fd().try_clone_to_owned().doing("take over standard input")?;
    let mut from = UnixStream::from(input);
    from.write_all(&[READY]).doing("answer")?;
    let mut byte = [0];
    let done = matches!(from.read(&mut byte), Ok(1)) && byte == [DONE];
    drop(from);
    take_back_in_time(place, number, done).inspect_err(|error| {
        log::warn(place, &format!("tune: unconfirmed changes are still in effect: {error}"));
    })
}

/// Reverts the generation with this number at its deadline unless it was confirmed. If `done` is false,
/// reverts it immediately.
fn take_back_in_time(place: &Target, number: u64, done: bool) -> Result<(), Error> {
    let clock = Clock::starting_in(Duration::ZERO);
    while done && let Some(left) = wanted(place, number)?.map(|trial| trial.left(place).unwrap_or(LOOK)) {
        if left.is_zero() {
            break;
        }
        clock.sleep_until(clock.now() + left.min(LOOK));
    }
    let due = |last: &Generation| {
        let over = !done || last.left(place) == Some(Duration::ZERO);
        last.number == number && last.phase != Phase::Confirmed && over
    };
    // If the applying process has failed, it may be reverting the changes itself.
    let wait = if done { OVERDUE_WAIT } else { LOCK_WAIT };
    let mut left_to = None;
    let lock = loop {
        match attempt(place, wait, &due)? {
            Attempt::Locked { lock, .. } => break lock,
            Attempt::NothingDue => return Ok(()),
            // The guard waits until the process that holds the lock ends or is killed. The next command also
            // reports that process.
            Attempt::LeftTo(holder) => {
                if left_to.as_ref() != Some(&holder) {
                    log::warn(
                        place,
                        &format!("tune: there are unfinished changes, but {holder} holds the lock"),
                    );
                }
                left_to = Some(holder);
            }
        }
    };
    let mut all = generations(place)?;
    let Some(last) = all.pop().filter(due) else { return Ok(()) };
    revert(place, &lock, last, &all, false, &mut |_| ()).map(drop).map_err(|error| lock.explain(error))
}

/// Result of an attempt to lock the state in order to revert a generation.
pub(super) enum Attempt {
    /// The lock is taken; the journal may have changed while the process waited for the lock.
    Locked {
        lock: Lock,
        /// Description of the former holder of the lock, if the lock was replaced.
        passed_over: Option<String>,
    },
    /// There is nothing to revert: another process has reverted or confirmed the changes.
    NothingDue,
    /// The changes are unfinished, and the process that holds the lock may be working on them. The value
    /// describes that process.
    LeftTo(String),
}

/// Waits for the lock, in order to revert the newest generation if `due` returns true for it. If it returns false, the
/// lock is not taken, because it would only delay the next command. The wait for an
/// overdue trial is short: a `confirm` that still holds the lock is too late and fails at its next write.
pub(super) fn attempt(
    place: &Target,
    wait: Duration,
    due: &dyn Fn(&Generation) -> bool,
) -> Result<Attempt, Error> {
    let newest_due = || Ok::<_, Error>(generations(place)?.pop().filter(due));
    if newest_due()?.is_none() {
        return Ok(Attempt::NothingDue);
    }
    let mut passed_over = None;
    loop {
        let busy = match Lock::take(place, wait) {
            Ok(lock) => return Ok(Attempt::Locked { lock, passed_over }),
            Err(LockError::Busy(busy)) => busy,
            Err(error) => return Err(error.into_error(place)),
        };
        let Some(last) = newest_due()? else { return Ok(Attempt::NothingDue) };
        if !last.is_overdue(place) {
            return Ok(Attempt::LeftTo(busy.holder()));
        }
        let holder = busy.holder();
        log::warn(
            place,
            &format!(
                "tune: {holder} holds the lock; reverting expired trial changes without waiting for \
                      that process"
            ),
        );
        busy.discard(place).doing("replace the lock")?;
        passed_over = Some(holder);
    }
}

/// Returns the generation with this number if the generation is on trial.
fn wanted(place: &Target, number: u64) -> Result<Option<Generation>, Error> {
    let found = generations(place)?.into_iter().find(|generation| generation.number == number);
    Ok(found.filter(|generation| generation.phase == Phase::Trial))
}
