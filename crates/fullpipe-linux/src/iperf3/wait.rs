//! Waits for a socket, a timeout or a stop signal, whichever comes first.

use std::io;

use fullpipe_units::Duration;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use socket2::Socket;

use crate::clock::timespec;
use crate::poll::Stop;

/// Result of waiting for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// The socket is ready; an error of the socket is reported by the next call on it.
    Ready,
    /// The stop signal is set.
    Stopped,
    /// The timeout expired, or a signal interrupted the wait.
    Late,
}

/// Waits until `socket` is ready for `events`, until `stop` is set, or until `timeout` expires.
pub(crate) fn wait(
    socket: Option<(&Socket, PollFlags)>,
    stop: &Stop,
    timeout: Option<Duration>,
) -> io::Result<WaitResult> {
    let timeout = timeout.map(timespec);
    let mut watched = vec![PollFd::new(stop, PollFlags::IN)];
    watched.extend(socket.map(|(socket, what)| PollFd::new(socket, what)));
    match poll(&mut watched, timeout.as_ref()) {
        Ok(0) => Ok(WaitResult::Late),
        Ok(_) if !watched[0].revents().is_empty() => Ok(WaitResult::Stopped),
        Ok(_) => Ok(WaitResult::Ready),
        // A signal interrupted the wait, so the caller checks the clock again.
        Err(Errno::INTR) => Ok(WaitResult::Late),
        Err(error) => Err(error.into()),
    }
}

/// Waits until `socket` is ready for `what`, and returns false if the stop signal was set first.
pub(crate) fn ready(socket: &Socket, what: PollFlags, stop: &Stop) -> io::Result<bool> {
    loop {
        match wait(Some((socket, what)), stop, None)? {
            WaitResult::Ready => return Ok(true),
            WaitResult::Stopped => return Ok(false),
            WaitResult::Late => {}
        }
    }
}

/// Waits for at most `timeout`, and returns whether the stop signal was set.
pub(crate) fn stops_within(stop: &Stop, timeout: Duration) -> io::Result<bool> {
    Ok(wait(None, stop, Some(timeout))? == WaitResult::Stopped)
}
