//! The client's end of the control connection, with error messages for users.

use fullpipe_iperf3::{Refusal, State};
use fullpipe_units::Duration;
use serde_json::Value;
use socket2::Socket;

use crate::clock::Clock;
use crate::error::Error;
use crate::iperf3::control::{ConnectionError, Control};
use crate::poll::Stop;

/// Timeout for a reply from the server, the same as in iperf3. The server may first wait for all
/// data connections.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why a client's test did not finish.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The test was stopped on request of the user.
    Interrupted,
    /// The test failed with an error.
    Failed(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ConnectionError> for Fault {
    fn from(broken: ConnectionError) -> Self {
        const STRANGER: &str = "check that an iperf3 server listens on this port";
        const LOOK: &str = "check the output of the server";
        let (message, hint) = match broken {
            ConnectionError::Stopped => return Self::Interrupted,
            ConnectionError::Closed => ("the server closed the control connection unexpectedly".into(), LOOK),
            ConnectionError::Silent => (format!("the server did not answer within {PATIENCE}"), STRANGER),
            ConnectionError::Nonsense(error) => (error.to_string(), STRANGER),
            ConnectionError::System(error) => (format!("the control connection failed: {error}"), LOOK),
        };
        Self::Failed(Error::network(message, hint))
    }
}

/// The client's end of the control connection of a test.
pub(super) struct Dialog {
    control: Control,
    clock: Clock,
}

impl Dialog {
    pub(super) fn new(socket: Socket, clock: Clock, stop: &Stop) -> Result<Self, Fault> {
        let control = Control::new(socket, clock, stop).map_err(ConnectionError::from)?;
        Ok(Self { control, clock })
    }

    pub(super) fn socket(&self) -> &Socket {
        self.control.socket()
    }

    /// Waits for the next state from the server, and returns an error unless it is `wanted`.
    pub(super) fn expect(&self, wanted: State) -> Result<(), Fault> {
        match self.state()? {
            state if state == wanted => Ok(()),
            state => Err(Error::network(
                format!("the server sent the state {state:?} instead of {wanted:?}"),
                "check that an iperf3 server listens on this port",
            )
            .into()),
        }
    }

    /// Waits for the next state from the server, and returns an error if the server refuses or terminates the
    /// test.
    pub(super) fn state(&self) -> Result<State, Fault> {
        match self.control.state(self.clock.now() + PATIENCE)? {
            State::AccessDenied => Err(Error::network(
                Refusal::BUSY.to_string(),
                "iperf3's server runs one test at a time; fullpipe iperf3 -s runs many",
            )
            .into()),
            State::ServerError => {
                let refusal = self.control.refusal()?;
                Err(Error::network(
                    format!("the server refused the test: {refusal}"),
                    "request less: check the limits of the server",
                )
                .into())
            }
            State::ServerTerminate => {
                Err(Error::network("the server terminated the test", "check the output of the server").into())
            }
            state => Ok(state),
        }
    }

    /// Returns true as soon as the server sends data, and false if it sends none before `timeout`.
    pub(super) fn speaks_within(&self, timeout: Duration) -> Result<bool, Fault> {
        Ok(self.control.speaks_within(timeout)?)
    }

    pub(super) fn say(&self, state: State) -> Result<(), Fault> {
        Ok(self.control.say(state)?)
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Fault> {
        Ok(self.control.write(bytes)?)
    }

    pub(super) fn send_json(&self, value: &Value) -> Result<(), Fault> {
        Ok(self.control.send(value)?)
    }

    /// Reads a JSON message of at most `most` bytes from the server.
    pub(super) fn read_json(&self, most: usize) -> Result<Value, Fault> {
        Ok(self.control.frame(most)?)
    }
}
