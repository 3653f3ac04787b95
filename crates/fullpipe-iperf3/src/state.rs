//! The byte that says where a test is.

use crate::WireError;

/// What one byte on the control connection says. The values between are not used by any version; 15 stays inside a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Server: prepare to count.
    TestStart,
    /// Server: send and receive.
    TestRunning,
    /// Client: the time or the amount is over.
    TestEnd,
    /// Server: send your parameters.
    ParamExchange,
    /// Server: open your data connections.
    CreateStreams,
    /// The server was told to end.
    ServerTerminate,
    /// The client was told to end.
    ClientTerminate,
    /// Server: send your results, then read mine.
    ExchangeResults,
    /// Server: print.
    DisplayResults,
    /// Client: nothing more will come.
    Done,
    /// Server, before it has read anything: it is full.
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

    /// As it is sent.
    pub fn byte(self) -> u8 {
        // Every state is in the table, which a test holds.
        Self::VALUES.iter().find(|(state, _)| *state == self).map_or(0, |&(_, value)| value.cast_unsigned())
    }

    /// The state that `byte` says.
    ///
    /// # Errors
    /// For a byte that no version sends: the peer is not iperf3.
    pub fn from_byte(byte: u8) -> Result<Self, WireError> {
        let value = byte.cast_signed();
        let known = Self::VALUES.iter().find(|&&(_, known)| known == value);
        known.map(|&(state, _)| state).ok_or_else(|| {
            WireError::new(format!("unknown message {value}: the other side does not speak iperf3"))
        })
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
