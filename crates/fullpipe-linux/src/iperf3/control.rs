//! The control connection of a test, for client and server: states, JSON frames and refusals. Every read has
//! a time limit.
//!
//! A peer may vanish, stall, or send single bytes. As in iperf3, each read therefore has two limits: the
//! longest pause between bytes, and the longest total time.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use fullpipe_iperf3::{Refusal, State, WireError, frame, refusal};
use fullpipe_units::{Duration, Instant};
use rustix::event::PollFlags;
use serde_json::Value;
use socket2::Socket;

use super::wait::{WaitResult, wait};
use crate::clock::Clock;
use crate::poll::Stop;

/// Timeout for the next byte of a message on the control connection.
const IDLE: Duration = Duration::from_secs(10);
/// Timeout for a whole message on the control connection.
const TOTAL: Duration = Duration::from_secs(30);

/// A control connection between client and server.
#[derive(Debug)]
pub(crate) struct Control {
    socket: Socket,
    clock: Clock,
    stop: Stop,
}

/// Reason why reading from or writing to the control connection failed.
#[derive(Debug)]
pub(crate) enum ConnectionError {
    /// The peer closed the connection.
    Closed,
    /// The peer did not send anything before the timeout.
    Silent,
    /// This process received the stop signal.
    Stopped,
    /// The peer sent a message that is not a valid iperf3 message.
    Nonsense(WireError),
    /// A system call on the control connection failed.
    System(io::Error),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("control socket has closed unexpectedly"),
            Self::Silent => f.write_str("the peer did not send anything before the timeout"),
            Self::Stopped => f.write_str("interrupted"),
            Self::Nonsense(error) => error.fmt(f),
            Self::System(error) => write!(f, "control connection: {error}"),
        }
    }
}

impl From<WireError> for ConnectionError {
    fn from(error: WireError) -> Self {
        Self::Nonsense(error)
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Self::Closed,
            _ => Self::System(error),
        }
    }
}

impl Control {
    /// Creates a control connection from a connected socket.
    pub(crate) fn new(socket: Socket, clock: Clock, stop: &Stop) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        Ok(Self { socket, clock, stop: stop.clone() })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Waits for the next state from the peer, at most until `until`.
    pub(crate) fn state(&self, until: Instant) -> Result<State, ConnectionError> {
        let mut byte = [0];
        self.fill(&mut byte, until, Duration::MAX)?;
        Ok(State::from_byte(byte[0])?)
    }

    /// Returns the next state from the peer if it has already arrived.
    pub(crate) fn state_now(&self) -> Result<Option<State>, ConnectionError> {
        match self.state(Instant::ZERO) {
            Ok(state) => Ok(Some(state)),
            Err(ConnectionError::Silent) => Ok(None),
            Err(broken) => Err(broken),
        }
    }

    /// Reads a JSON frame of at most `most` bytes from the peer.
    pub(crate) fn frame(&self, most: usize) -> Result<Value, ConnectionError> {
        /// Number of bytes per read; a longer frame takes several reads.
        const PIECE: usize = 16 << 10;
        let mut reader = frame::Reader::new(most);
        let until = self.clock.now() + TOTAL;
        let mut piece = [0; PIECE];
        while let missing @ 1.. = reader.missing()? {
            let piece = &mut piece[..missing.min(PIECE)];
            self.fill(piece, until, IDLE)?;
            reader.push(piece);
        }
        Ok(reader.value()?)
    }

    fn fill(&self, into: &mut [u8], until: Instant, idle: Duration) -> Result<(), ConnectionError> {
        let mut rest = into;
        let mut patience = until.min(self.clock.now() + idle);
        while !rest.is_empty() {
            match (&self.socket).read(rest) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(read) => {
                    rest = &mut rest[read..];
                    patience = until.min(self.clock.now() + idle);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::IN, patience)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn say(&self, state: State) -> Result<(), ConnectionError> {
        self.write(&[state.byte()])
    }

    /// Tells the client that the server refuses the test, with the reason.
    pub(crate) fn refuse(&self, refusal: Refusal) -> Result<(), ConnectionError> {
        // The refusal is a single write. With two writes, a client that closed its connection after the first
        // would answer the second with a reset.
        let mut message = vec![State::ServerError.byte()];
        message.extend(refusal.to_wire());
        self.write(&message)
    }

    pub(crate) fn send(&self, value: &Value) -> Result<(), ConnectionError> {
        self.write(&frame::encode(value))
    }

    /// Writes all of `bytes` to the control connection.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), ConnectionError> {
        let until = self.clock.now() + TOTAL;
        let mut rest = bytes;
        while !rest.is_empty() {
            match (&self.socket).write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT, until)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns true as soon as the peer sends data, and false if it sends none before `timeout`.
    pub(crate) fn speaks_within(&self, timeout: Duration) -> Result<bool, ConnectionError> {
        match self.wait(PollFlags::IN, self.clock.now() + timeout) {
            Ok(()) => Ok(true),
            Err(ConnectionError::Silent) => Ok(false),
            Err(broken) => Err(broken),
        }
    }

    /// Reads the reason for a refusal, which follows [`State::ServerError`].
    pub(crate) fn refusal(&self) -> Result<Refusal, ConnectionError> {
        let mut wire = [0; refusal::LENGTH];
        self.fill(&mut wire, self.clock.now() + TOTAL, IDLE)?;
        Ok(Refusal::from_wire(wire))
    }

    /// Waits until the control connection is ready, the time `until` is reached, or the stop signal is set.
    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), ConnectionError> {
        loop {
            let left = until.saturating_since(self.clock.now());
            match wait(Some((&self.socket, flags)), &self.stop, Some(left))
                .map_err(ConnectionError::System)?
            {
                WaitResult::Ready => return Ok(()),
                WaitResult::Stopped => return Err(ConnectionError::Stopped),
                WaitResult::Late if left.is_zero() => return Err(ConnectionError::Silent),
                WaitResult::Late => {}
            }
        }
    }
}
