//! Waits for key presses and for changes of the terminal's size.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(unix)]
use std::sync::atomic::Ordering;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(unix)]
use rustix::io::Errno;

#[cfg(unix)]
use crate::failure::INTERRUPTED;

/// How a wait for an event ended.
pub(super) enum Waited {
    Event(Event),
    /// The time has passed without an event.
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// Waits at most `time` for an event.
///
/// If the terminal is closed, `crossterm` never returns, because it reads the end of the input repeatedly.
/// This function therefore checks the terminal first, and calls `crossterm` only if there is input.
pub(super) fn wait(time: Duration) -> io::Result<Waited> {
    // Events that `crossterm` has already read but not returned cannot be detected on the terminal.
    for time in [Duration::ZERO, time] {
        if is_closed(time)? {
            return Ok(Waited::Closed);
        }
        if event::poll(Duration::ZERO)? {
            return Ok(Waited::Event(event::read()?));
        }
    }
    Ok(Waited::Nothing)
}

/// Waits at most `time` until the terminal has input, and returns whether it was closed.
#[cfg(unix)]
fn is_closed(time: Duration) -> io::Result<bool> {
    let keyboard = io::stdin();
    let mut watched = [PollFd::new(&keyboard, PollFlags::IN)];
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut watched, Some(&time)) {
        Ok(_) => Ok(watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        // A signal means that the size of the terminal has changed, or that the live view must end.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends the process if the live view is still running two seconds after its terminal was closed. This can
/// happen if the terminal is closed just when `crossterm` starts to read.
#[cfg(unix)]
pub(super) fn end_with_terminal(over: Arc<AtomicBool>) {
    const GRACE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
    std::thread::spawn(move || {
        let keyboard = io::stdin();
        // Since no events are requested, the call returns only when the terminal is closed.
        while let Err(error) = poll(&mut [PollFd::new(&keyboard, PollFlags::empty())], None) {
            if error != Errno::INTR {
                return;
            }
        }
        let _ = poll(&mut [], Some(&GRACE));
        if !over.load(Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    });
}

/// On this system, the process ends when its terminal is closed, so there is nothing to do.
#[cfg(not(unix))]
pub(super) fn end_with_terminal(_: Arc<AtomicBool>) {}

/// On this system, `crossterm` waits for input, and the process ends when its terminal is closed.
#[cfg(not(unix))]
fn is_closed(time: Duration) -> io::Result<bool> {
    event::poll(time).map(|_| false)
}
