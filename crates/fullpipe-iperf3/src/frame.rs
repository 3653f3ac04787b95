//! JSON frames with a four-byte length prefix.
//!
//! A [`Reader`] stores only bytes that have arrived. A peer that announces a large frame and sends nothing
//! therefore uses no memory.

use serde_json::Value;

use crate::WireError;

/// Maximum length in bytes of the JSON text with the test parameters, equal to the limit of iperf3's server.
pub const PARAMS_MOST: usize = 8 << 10;
/// Maximum length in bytes of the JSON text with results but without server output. The results of 256
/// streams, at about 300 bytes each, take less than a third of it.
pub const RESULTS_MOST: usize = 256 << 10;
/// Maximum length in bytes of the JSON text with results and trace rows of the server's sockets
/// ([`Results::trace`](crate::Results)).
pub const TRACE_MOST: usize = 2 << 20;
/// Maximum length in bytes of the JSON text with results and server output (`--get-server-output`). The
/// server output grows with the duration of the test.
pub const OUTPUT_MOST: usize = 64 << 20;

const LENGTH: usize = 4;

/// Encodes `value` as a frame: a length prefix and the JSON text.
pub fn encode(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    // No JSON document that fullpipe writes is longer than 4 GiB.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Reader that assembles one frame from received bytes.
#[derive(Debug)]
pub struct Reader {
    most: usize,
    bytes: Vec<u8>,
}

impl Reader {
    /// Creates a reader for a frame whose JSON text has at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, bytes: Vec::new() }
    }

    /// Returns the number of bytes that are still missing: first those of the length prefix, then those of
    /// the JSON text. The number is zero when the frame is complete.
    ///
    /// # Errors
    /// Returns an error if the announced length exceeds the limit of the reader.
    pub fn missing(&self) -> Result<usize, WireError> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else { return Ok(LENGTH - self.bytes.len()) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.most {
            return Err(WireError::new(format!(
                "the peer announced {length} bytes of JSON; the limit is {}",
                self.most
            )));
        }
        Ok((LENGTH + length).saturating_sub(self.bytes.len()))
    }

    /// Adds received bytes to the frame, at most as many as [`missing`](Self::missing) returned.
    pub fn push(&mut self, arrived: &[u8]) {
        self.bytes.extend_from_slice(arrived);
    }

    /// Returns the JSON value of a complete frame.
    ///
    /// # Errors
    /// Returns an error if the content of the frame is not JSON.
    pub fn value(&self) -> Result<Value, WireError> {
        let text = self.bytes.get(LENGTH..).unwrap_or_default();
        serde_json::from_slice(text).map_err(|error| WireError::new(format!("not JSON: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(bytes: &[u8], most: usize) -> Result<Value, WireError> {
        let mut reader = Reader::new(most);
        let mut rest = bytes;
        while let missing @ 1.. = reader.missing()? {
            // The reader receives the frame in small pieces, as from a network.
            let (piece, after) = rest.split_at(missing.min(3).min(rest.len()));
            assert!(!piece.is_empty(), "cut off");
            reader.push(piece);
            rest = after;
        }
        assert!(rest.is_empty());
        reader.value()
    }

    #[test]
    fn a_frame_is_read_in_pieces() {
        let value = json!({"tcp": true, "num": 12});
        let bytes = encode(&value);
        assert_eq!(bytes[..4], [0, 0, 0, bytes.len() as u8 - 4]);
        assert_eq!(read(&bytes, PARAMS_MOST), Ok(value));
    }

    #[test]
    fn hostile_frames_are_refused_before_they_cost_anything() {
        let huge = read(&u32::MAX.to_be_bytes(), PARAMS_MOST).expect_err("too long");
        assert_eq!(huge.to_string(), "the peer announced 4294967295 bytes of JSON; the limit is 8192");
        let one_more = read(&(PARAMS_MOST as u32 + 1).to_be_bytes(), PARAMS_MOST);
        assert!(one_more.is_err());
        for text in ["", "{", "{\"a\":}", "\u{0}\u{0}", "{\"a\":1e999}", &"[".repeat(5_000)] {
            let bytes = [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
            assert!(read(&bytes, PARAMS_MOST).is_err(), "{text}");
        }
        let not_utf8 = [0, 0, 0, 4, b'"', 0xff, 0xfe, b'"'];
        assert!(read(&not_utf8, PARAMS_MOST).is_err());
    }
}
