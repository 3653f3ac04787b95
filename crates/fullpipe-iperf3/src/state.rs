//! The byte that signals the state of a test.

use crate::WireError;

/// A test state, signalled by one byte on the control connection. No version uses the values between these;
/// 15 is internal to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Server: requests preparation of the test.
    TestStart,
    /// Server: requests the start of the data transfer.
    TestRunning,
    /// Client: the duration or the amount of data has been reached.
    TestEnd,
    /// Server: requests the parameters.
    ParamExchange,
    /// Server: requests the data connections.
    CreateStreams,
    /// The server was terminated.
    ServerTerminate,
    /// The client was terminated.
    ClientTerminate,
    /// Server: requests the client's results, then sends its own.
    ExchangeResults,
    /// Server: requests output of the results.
    DisplayResults,
    /// Client: the test is finished.
    Done,
    /// Server, as its first message: the server is busy.
    AccessDenied,
    /// Server: a [`Refusal`](crate::Refusal) follows.
    ServerError,
}

impl State {
    const VALUES: [(Self, i8); 12] = [
        (Self::TestStart, 1),
        (Self::TestRunning, 2),
        (Self::TestEnd, 4),
        (Self::ParamExchange, 9),
        (Self::CreateStreams, 10),
        (Self::ServerTerminate, 11),
        (Self::ClientTerminate, 12),
        (Self::ExchangeResults, 13),
        (Self::DisplayResults, 14),
        (Self::Done, 16),
        (Self::AccessDenied, -1),
        (Self::ServerError, -2),
    ];

    /// Returns the byte that signals this state on the wire.
    pub fn byte(self) -> u8 {
        // A test checks that every state is in the table.
        Self::VALUES.iter().find(|(state, _)| *state == self).map_or(0, |&(_, value)| value.cast_unsigned())
    }

    /// Returns the state that `byte` signals.
    ///
    /// # Errors
    /// Returns an error for a byte that no version sends: the peer does not speak iperf3.
    pub fn from_byte(byte: u8) -> Result<Self, WireError> {
        let value = byte.cast_signed();
        let known = Self::VALUES.iter().find(|&&(_, known)| known == value);
        known
            .map(|&(state, _)| state)
            .ok_or_else(|| WireError::new(format!("unknown message {value}: the peer does not speak iperf3")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_one_byte_and_back() {
        for (state, value) in State::VALUES {
            assert_eq!((state.byte(), State::from_byte(state.byte())), (value.cast_unsigned(), Ok(state)));
        }
        assert_eq!((State::AccessDenied.byte(), State::ServerError.byte()), (0xff, 0xfe));
        let unknown = (0..=u8::MAX).filter(|&byte| State::from_byte(byte).is_err()).count();
        assert_eq!(unknown, 256 - State::VALUES.len());
    }
}
