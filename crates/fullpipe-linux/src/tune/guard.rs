//! A process of its own that takes changes back: at once when whoever makes them dies before the end, and at the deadline
//! unless they are confirmed. It outlives the shell and the connection from which it was started; where it might be killed with
//! their session, a timer of systemd stands beside it (`timer.rs`). Somebody who holds the lock does not keep an overdue trial from
//! ending: the lock is replaced (`lock.rs`), and syslog gets a line.
//!
//! ```text
//!   apply                          guard
//!     │── started, a socket ──────►│
//!     │◄───────────────── ready ───│  in a session of its own
//!     │  changes ...               │  waits
//!     │── done ───────────────────►│  waits for the deadline, looks whether it was confirmed
//!     ×  (or the socket closes)    │  takes back
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
/// The guard looks this often whether it is still needed.
const LOOK: Duration = Duration::from_secs(2);
/// So long it may take to start.
const START: std::time::Duration = std::time::Duration::from_secs(10);

/// The command that calls [`watch`]: the number of the generation is added as its last argument. With `--overdue` in front of that it is
/// to call [`settle`](super::settle) instead, in a process that nothing is handed to.
#[derive(Clone, Debug)]
pub struct Guard {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A guard that watches.
pub(super) struct Started {
    to: UnixStream,
}

impl Started {
    /// Tells it that everything is applied.
    pub(super) fn done(&mut self) {
        // A guard that is gone is replaced by the next command.
        let _ = self.to.write_all(&[DONE]);
    }
}

impl Guard {
    pub(super) fn start(&self, number: u64) -> Result<Started, Error> {
        let start = || -> io::Result<Started> {
            let (mut ours, theirs) = UnixStream::pair()?;
            // It belongs to nobody once this process has ended, and PID 1 reaps it.
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
                return Err(io::Error::other("it says something else than that it is ready"));
            }
            Ok(Started { to: ours })
        };
        start().doing("start the process that would take the changes back")
    }
}

/// What the guard does; standard input is the socket to whoever applies.
///
/// # Errors
/// It was started by something else, or a value cannot be restored: the journal then stays for the next command.
pub fn watch(place: &Target, number: u64) -> Result<(), Error> {
    // An error means that it leads one already.
    let _ = setsid();
    let input = io::stdin().as_fd().try_clone_to_owned().doing("take over standard input")?;
    let mut from = UnixStream::from(input);
    from.write_all(&[READY]).doing("answer")?;
    let mut byte = [0];
    let done = matches!(from.read(&mut byte), Ok(1)) && byte == [DONE];
    drop(from);
    take_back_in_time(place, number, done).inspect_err(|error| {
        log::warn(place, &format!("tune: the changes that nobody confirmed are still in place: {error}"));
    })
}

/// Takes the generation back at its deadline unless somebody has confirmed it, and at once where it was not `done`.
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
    // Whoever applies may be taking back by itself, after an error.
    let wait = if done { OVERDUE_WAIT } else { LOCK_WAIT };
    let mut left_to = None;
    let lock = loop {
        match attempt(place, wait, &due)? {
            Attempt::Locked { lock, .. } => break lock,
            Attempt::NothingDue => return Ok(()),
            // It ends, or somebody ends it: the next command names it too.
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

/// What became of the wait for the lock.
pub(super) enum Attempt {
    /// The lock is held; the journal may have changed.
    Locked {
        lock: Lock,
        /// Who held it until it was replaced.
        passed_over: Option<String>,
    },
    /// Somebody else has done it, or confirmed it.
    NothingDue,
    /// The changes are half-made, and whoever holds the lock may be at it. In words, who that is.
    LeftTo(String),
}

/// Waits for the lock, to take back the newest generation if that is `due`. An overdue trial waits for nobody: a `confirm` that still
/// holds the lock is late, and fails at its next write.
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

/// The generation, while it is on trial.
fn wanted(place: &Target, number: u64) -> Result<Option<Generation>, Error> {
    let found = generations(place)?.into_iter().find(|generation| generation.number == number);
    Ok(found.filter(|generation| generation.phase == Phase::Trial))
}
