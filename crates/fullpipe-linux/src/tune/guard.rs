//! A separate process that reverts changes: immediately if the applying process dies early, and
//! otherwise at the deadline unless the changes are confirmed.
//!
//! The guard outlives the shell and the connection from which it was started. In case it is killed
//! with its session, a systemd timer backs it up (`timer.rs`). Another process that holds the lock
//! cannot prevent the end of an overdue trial: the guard replaces the lock (`lock.rs`), and writes
//! a line to syslog.
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
/// Timeout for the guard to start.
const START: std::time::Duration = std::time::Duration::from_secs(10);

/// The command that calls [`watch`], with the generation number as its last argument. With
/// `--overdue` before the number, the command must call [`settle`](super::settle) instead, in a
/// process that inherits no socket.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Path of the program to run.
    pub program: PathBuf,
    /// Arguments of the program, without the generation number.
    pub arguments: Vec<OsString>,
}

/// A running guard process.
pub(super) struct RunningGuard {
    to: UnixStream,
}

impl RunningGuard {
    /// Tells the guard that all changes are applied.
    pub(super) fn done(&mut self) {
        // If the guard is dead, the next command reverts the changes.
        let _ = self.to.write_all(&[DONE]);
    }
}

impl Guard {
    pub(super) fn start(&self, number: u64) -> Result<RunningGuard, Error> {
        let start = || -> io::Result<RunningGuard> {
            let (mut ours, theirs) = UnixStream::pair()?;
            // The child process is not waited for: once this process has ended, PID 1 reaps it.
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

/// Runs the guard; standard input is its socket to the applying process.
///
/// # Errors
/// It was not started by the applying process, or a value cannot be restored. In the latter case,
/// the journal is kept for the next command.
pub fn watch(place: &Target, number: u64) -> Result<(), Error> {
    // Fails only if the process is already a process group leader.
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

/// Reverts the generation at its deadline unless it was confirmed, and immediately if not `done`.
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
    // If the applying process failed, it may be reverting the changes itself.
    let wait = if done { OVERDUE_WAIT } else { LOCK_WAIT };
    let mut left_to = None;
    let lock = loop {
        match attempt(place, wait, &due)? {
            Attempt::Locked { lock, .. } => break lock,
            Attempt::NothingDue => return Ok(()),
            // The guard keeps waiting until the holder ends or is killed. The next command also
            // reports the holder.
            Attempt::LeftTo(holder) => {
                if left_to.as_ref() != Some(&holder) {
                    log::warn(place, &format!("tune: changes are half-made, and {holder} holds the lock"));
                }
                left_to = Some(holder);
            }
        }
    };
    let mut all = generations(place)?;
    let Some(last) = all.pop().filter(due) else { return Ok(()) };
    revert(place, &lock, last, &all, false, &mut |_| ()).map(drop).map_err(|error| lock.explain(error))
}

/// Result of an attempt to take the lock.
pub(super) enum Attempt {
    /// The lock is taken; the journal may have changed during the wait.
    Locked {
        lock: Lock,
        /// The former holder, if the lock was replaced.
        passed_over: Option<String>,
    },
    /// Another process has reverted or confirmed the changes.
    NothingDue,
    /// The changes are half-made, and the holder of the lock may be working on them. The value
    /// describes the holder.
    LeftTo(String),
}

/// Waits for the lock, in order to revert the newest generation if it is `due`. For an overdue
/// trial, the wait is short: a `confirm` that still holds the lock is too late, and fails at its
/// next write.
pub(super) fn attempt(
    place: &Target,
    wait: Duration,
    due: &dyn Fn(&Generation) -> bool,
) -> Result<Attempt, Error> {
    let mut passed_over = None;
    loop {
        let busy = match Lock::take(place, wait) {
            Ok(lock) => return Ok(Attempt::Locked { lock, passed_over }),
            Err(LockError::Busy(busy)) => busy,
            Err(error) => return Err(error.into_error(place)),
        };
        let Some(last) = generations(place)?.pop().filter(due) else { return Ok(Attempt::NothingDue) };
        if !last.is_overdue(place) {
            return Ok(Attempt::LeftTo(busy.holder()));
        }
        let holder = busy.holder();
        log::warn(
            place,
            &format!("tune: {holder} holds the lock: overdue changes are taken back without waiting for it"),
        );
        busy.discard(place).doing("replace the lock")?;
        passed_over = Some(holder);
    }
}

/// Returns the generation with this number if it is on trial.
fn wanted(place: &Target, number: u64) -> Result<Option<Generation>, Error> {
    let found = generations(place)?.into_iter().find(|generation| generation.number == number);
    Ok(found.filter(|generation| generation.phase == Phase::Trial))
}
