//! Waiting for a socket, a time and the word to stop, whichever comes first.

use std::io;

use fullpipe_units::Duration;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use socket2::Socket;

use crate::clock::timespec;
use crate::poll::Stop;

/// What a wait has ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The socket is ready; an error of it is what the next call on it answers.
    Ready,
    /// Somebody has said to stop.
    Stopped,
    /// The time is over.
    Late,
}

/// Waits until `socket` is ready for what it is watched for, `stop` was said or `timeout` is over.
pub(crate) fn wait(
    socket: Option<(&Socket, PollFlags)>,
    stop: &Stop,
    timeout: Option<Duration>,
) -> io::Result<Waited> {
    let timeout = timeout.map(timespec);
    let mut watched = vec![PollFd::new(stop, PollFlags::IN)];
    watched.extend(socket.map(|(socket, what)| PollFd::new(socket, what)));
    match poll(&mut watched, timeout.as_ref()) {
        Ok(0) => Ok(Waited::Late),
        Ok(_) if !watched[0].revents().is_empty() => Ok(Waited::Stopped),
        Ok(_) => Ok(Waited::Ready),
        // After a signal whoever waits looks at the clock again.
        Err(Errno::INTR) => Ok(Waited::Late),
        Err(error) => Err(error.into()),
    }
}

/// Waits until `socket` is ready for `what`; whether it is, and not the word to stop.
pub(crate) fn ready(socket: &Socket, what: PollFlags, stop: &Stop) -> io::Result<bool> {
    loop {
        match wait(Some((socket, what)), stop, None)? {
            Waited::Ready => return Ok(true),
            Waited::Stopped => return Ok(false),
            Waited::Late => {}
        }
    }
}

/// Whether somebody says to stop within `timeout`.
pub(crate) fn stops_within(stop: &Stop, timeout: Duration) -> io::Result<bool> {
    Ok(wait(None, stop, Some(timeout))? == Waited::Stopped)
}
