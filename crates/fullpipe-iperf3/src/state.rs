//! The states of a test, each signalled by one byte.

use crate::WireError;

/// A state of a test, signalled by one byte on the control connection. No iperf3 version uses the values
/// between those listed here; 15 is internal to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server asks the client to prepare the test.
    TestStart,
    /// The server asks the client to start the data transfer.
    TestRunning,
    /// The client reports that the duration or the amount of data has been reached.
    TestEnd,
    /// The server asks the client for the parameters of the test.
    ParamExchange,
    /// The server asks the client to open the data connections.
    CreateStreams,
    /// The server reports that it was terminated.
    ServerTerminate,
    /// The client reports that it was terminated.
    ClientTerminate,
    /// The server asks the client for its results, and then sends its own.
    ExchangeResults,
    /// The server asks the client to print the results.
    DisplayResults,
    /// The client reports that the test is finished.
    Done,
    /// The server reports, in its first message, that it is busy.
    AccessDenied,
    /// The server reports an error; a [`Refusal`](crate::Refusal) follows.
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

    /// Returns the byte that signals this state.
    pub fn byte(self) -> u8 {
        // A unit test checks that the table contains every state.
        Self::VALUES.iter().find(|(state, _)| *state == self).map_or(0, |&(_, value)| value.cast_unsigned())
    }

    /// Returns the test state that `byte` signals.
    ///
    /// # Errors
    /// Returns an error for a byte that no iperf3 version sends; a peer that sends such a byte does not use
    /// the iperf3 protocol.
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
