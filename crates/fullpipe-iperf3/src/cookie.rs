//! The cookie of an iperf3 test, which identifies the connections of the test.

use std::fmt;

use crate::WireError;

/// Length of a cookie on the wire, in bytes: 36 characters and a terminating zero.
pub const LENGTH: usize = 37;

/// The 32 characters from which iperf3 makes its cookies.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Cookie of an iperf3 test. The client chooses the cookie and sends it at the start of every TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie([u8; LENGTH - 1]);

impl Cookie {
    /// Creates a cookie from `random` bytes, using five bits of each byte.
    pub fn from_random(random: [u8; LENGTH - 1]) -> Self {
        Self(random.map(|byte| LETTERS[usize::from(byte) % LETTERS.len()]))
    }

    /// Returns the cookie in the form in which it is sent.
    pub fn to_wire(self) -> [u8; LENGTH] {
        let mut wire = [0; LENGTH];
        wire[..LENGTH - 1].copy_from_slice(&self.0);
        wire
    }

    /// Parses a cookie. Other implementations may use other characters, so all printable ASCII characters
    /// except the space are accepted.
    ///
    /// # Errors
    /// Returns an error unless `wire` consists of 36 such characters and a zero; a peer that sends anything
    /// else does not use the iperf3 protocol.
    pub fn from_wire(wire: &[u8; LENGTH]) -> Result<Self, WireError> {
        let mut letters = [0; LENGTH - 1];
        letters.copy_from_slice(&wire[..LENGTH - 1]);
        if wire[LENGTH - 1] == 0 && letters.iter().all(u8::is_ascii_graphic) {
            Ok(Self(letters))
        } else {
            Err(WireError::new("no cookie received: the peer does not speak iperf3"))
        }
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&letter| write!(f, "{}", char::from(letter)))
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_letters_and_a_zero() {
        let cookie = Cookie::from_random(std::array::from_fn(|at| at as u8 * 7));
        let wire = cookie.to_wire();
        assert_eq!(Cookie::from_wire(&wire), Ok(cookie));
        assert_eq!((cookie.to_string().len(), wire[36]), (36, 0));
        assert!(wire[..36].iter().all(|letter| LETTERS.contains(letter)));
        let mut bad = wire;
        bad[36] = b'a';
        assert!(Cookie::from_wire(&bad).is_err());
        bad = wire;
        bad[3] = 0;
        assert!(Cookie::from_wire(&bad).is_err());
        assert!(Cookie::from_wire(b"GET / HTTP/1.1\r\nHost: example.org\r\nUs").is_err());
    }
}
