//! The errors that a server reports to a client (state `SERVER_ERROR`), with iperf3's error codes.

use std::fmt;

/// Reason for which a server refuses to run a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error code of iperf3 (`i_errno`) for the reason.
    pub code: i32,
    /// Value of `errno` on the server, or zero.
    pub errno: i32,
}

/// Length in bytes of a refusal, excluding the state byte.
pub const LENGTH: usize = 8;

macro_rules! codes {
    ($($name:ident = $code:literal, $words:literal;)*) => {
        impl Refusal {
            $(#[doc = concat!("`", stringify!($code), "`: ", $words, ".")]
            pub const $name: Self = Self { code: $code, errno: 0 };)*

            /// Returns the meaning of the error code; returns `None` if the code is unknown.
            pub fn words(self) -> Option<&'static str> {
                match self.code {
                    $($code => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    DURATION = 5, "the test duration is out of range";
    STREAMS = 6, "too many parallel streams";
    BLOCK_SIZE = 7, "the block size is out of range";
    BUFFER_SIZE = 8, "the socket buffer is too large";
    MSS = 10, "the maximum segment size is out of range";
    OMIT = 12, "the omitted period is out of range";
    BURST = 15, "the burst size is out of range";
    UDP_BLOCK_SIZE = 20, "the datagram size is out of range";
    TOS = 21, "the type of service is out of range";
    REVERSE_AND_BIDIRECTIONAL = 25, "a test cannot be both reverse and bidirectional";
    TOTAL_RATE = 27, "the rate is above the server's limit";
    NO_DATA = 31, "no data arrived before the timeout";
    MAX_DURATION = 37, "the test is longer than the server allows";
    CONTROL_CLOSED = 109, "the control connection has closed unexpectedly";
    MESSAGE = 110, "the message is not an iperf3 message";
    RECV_PARAMS = 114, "the parameters cannot be read";
    RECV_RESULTS = 117, "the results cannot be read";
    CLIENT_TERMINATED = 119, "the client has terminated";
    SERVER_TERMINATED = 120, "the server has terminated";
    BUSY = 121, "the server is busy running a test. try again later";
    SET_MSS = 123, "the maximum segment size cannot be set";
    SET_BUFFERS = 124, "the socket buffers cannot be set";
    WINDOW_SIZE = 130, "the socket buffers cannot be set";
    PROTOCOL = 131, "the protocol is not supported";
    CONGESTION = 134, "the congestion control is not available";
    PACING = 140, "the pacing rate cannot be set";
    BUFFERS_GRANTED = 141, "the kernel does not grant socket buffers of the requested size";
    AUTHORIZATION = 144, "test authorization failed";
    CREATE_STREAM = 200, "a data connection could not be opened";
    STREAM_ACCEPT = 204, "a data connection was not opened in time";
    STREAM_WRITE = 205, "writing to a data connection failed";
    STREAM_READ = 206, "reading from a data connection failed";
    STREAM_CLOSED = 207, "a data connection has closed unexpectedly";
    STREAM_ID = 208, "a stream number does not belong to this test";
}

impl Refusal {
    /// Returns the bytes of the refusal, which follow the state byte.
    pub fn to_wire(self) -> [u8; LENGTH] {
        let mut wire = [0; LENGTH];
        wire[..4].copy_from_slice(&self.code.to_be_bytes());
        wire[4..].copy_from_slice(&self.errno.to_be_bytes());
        wire
    }

    /// Parses a refusal. Any bytes of the right length form a valid refusal.
    pub fn from_wire(wire: [u8; LENGTH]) -> Self {
        let [a, b, c, d, e, f, g, h] = wire;
        Self { code: i32::from_be_bytes([a, b, c, d]), errno: i32::from_be_bytes([e, f, g, h]) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => f.write_str(words)?,
            None => write!(f, "iperf3 error {}", self.code)?,
        }
        if self.errno != 0 { write!(f, " (errno {})", self.errno) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_two_numbers_and_has_words() {
        let refusal = Refusal { errno: 13, ..Refusal::PROTOCOL };
        assert_eq!(refusal.to_wire(), [0, 0, 0, 131, 0, 0, 0, 13]);
        assert_eq!(Refusal::from_wire(refusal.to_wire()), refusal);
        assert_eq!(refusal.to_string(), "the protocol is not supported (errno 13)");
        assert_eq!(Refusal::from_wire([0xff; LENGTH]).to_string(), "iperf3 error -1 (errno -1)");
    }
}
