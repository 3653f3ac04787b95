//! Bytes as hexadecimal digits, in messages, files and output.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes that are written as lower-case hexadecimal digits, two per byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex<const N: usize>(pub [u8; N]);

/// Error for a string that does not consist of the expected number of hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHex {
    digits: usize,
}

impl fmt::Display for NotHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} hexadecimal digits", self.digits)
    }
}

impl std::error::Error for NotHex {}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Self, NotHex> {
        let refused = NotHex { digits: 2 * N };
        if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(refused);
        }
        let mut bytes = [0; N];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| refused)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| refused)?;
        }
        Ok(Self(bytes))
    }
}

impl<const N: usize> TryFrom<String> for Hex<N> {
    type Error = NotHex;

    fn try_from(text: String) -> Result<Self, NotHex> {
        text.parse()
    }
}

impl<const N: usize> From<Hex<N>> for String {
    fn from(bytes: Hex<N>) -> Self {
        bytes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written() {
        let bytes = Hex([0x00, 0x9f, 0xff]);
        assert_eq!(bytes.to_string(), "009fff");
        assert_eq!("009FFF".parse(), Ok(bytes));
        for text in ["", "009ff", "009ffff", "00 9ff", "+09fff", "00äff"] {
            assert_eq!(text.parse::<Hex<3>>(), Err(NotHex { digits: 6 }), "{text}");
        }
    }
}
