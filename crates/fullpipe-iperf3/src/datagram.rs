//! The header of each UDP datagram, and the hello that precedes the datagrams.
//!
//! ```text
//!   seconds u32 | microseconds u32 | number u32, or u64 with 64-bit counters | the rest of the block
//! ```
//!
//! All fields of the header are big-endian. The send time is taken from the sender's clock, so the one-way
//! delay is not observable. Sequence numbers start at 1. Before the first datagram, the client sends a hello
//! on each of its sockets and waits for the reply.

use fullpipe_units::Instant;

/// Hello that a client sends on each new UDP socket. iperf3 sends an integer in the machine's byte order,
/// which is little-endian on nearly all machines.
pub const HELLO: [u8; 4] = *b"9876";
/// Reply of the server to [`HELLO`].
pub const ANSWER: [u8; 4] = *b"6789";
/// Hello of an iperf3 client before version 3.11.
pub const OLD_HELLO: [u8; 4] = 123_456_789_u32.to_le_bytes();
/// Reply of an iperf3 server before version 3.11.
pub const OLD_ANSWER: [u8; 4] = 987_654_321_u32.to_le_bytes();

/// Length in bytes of the longest datagram header.
pub const LONGEST: usize = 16;

/// Returns the server's reply to `hello`; returns `None` if `hello` is not a known hello.
pub fn answer(hello: &[u8]) -> Option<[u8; 4]> {
    match hello {
        _ if hello == HELLO => Some(ANSWER),
        _ if hello == OLD_HELLO => Some(OLD_ANSWER),
        _ => None,
    }
}

/// Returns whether `bytes` is a server's reply to a hello.
pub fn is_answer(bytes: &[u8]) -> bool {
    bytes == ANSWER || bytes == OLD_ANSWER
}

/// Header of a UDP datagram of an iperf3 test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Send time of the datagram on the sender's clock, in whole microseconds.
    pub sent: Instant,
    /// Sequence number of the datagram, starting at 1.
    pub number: u64,
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MICRO: u64 = 1_000;

impl Header {
    /// Writes the header to the first bytes of a datagram.
    ///
    /// # Panics
    /// Panics if the datagram is shorter than the header.
    pub fn write(self, wide: bool, datagram: &mut [u8]) {
        let nanos = self.sent.as_nanos();
        // Seconds and microseconds have 32 bits each; larger values are truncated, as in iperf3.
        let seconds = (nanos / NANOS_PER_SECOND) as u32;
        let micros = (nanos % NANOS_PER_SECOND / NANOS_PER_MICRO) as u32;
        datagram[..4].copy_from_slice(&seconds.to_be_bytes());
        datagram[4..8].copy_from_slice(&micros.to_be_bytes());
        if wide {
            datagram[8..16].copy_from_slice(&self.number.to_be_bytes());
        } else {
            datagram[8..12].copy_from_slice(&(self.number as u32).to_be_bytes());
        }
    }

    /// Parses the header of `datagram`; returns `None` if the datagram is too short.
    pub fn read(wide: bool, datagram: &[u8]) -> Option<Self> {
        let word = |from: usize| {
            let bytes = datagram.get(from..)?.first_chunk::<4>()?;
            Some(u64::from(u32::from_be_bytes(*bytes)))
        };
        let number = match wide {
            false => word(8)?,
            true => word(8)? << 32 | word(12)?,
        };
        // A value above 999 999 in the microseconds field is not rejected; it only yields a later time.
        let sent = Instant::from_nanos(word(0)? * NANOS_PER_SECOND + word(4)? * NANOS_PER_MICRO);
        Some(Self { sent, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_there_and_back() {
        let header = Header { sent: Instant::from_nanos(7_000_001_000), number: 5 };
        let mut datagram = [0xaa; LONGEST];
        header.write(false, &mut datagram);
        assert_eq!(datagram[..12], [0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 5]);
        assert_eq!(Header::read(false, &datagram), Some(header));
        let wide = Header { number: 1 << 40, ..header };
        wide.write(true, &mut datagram);
        assert_eq!(datagram[8..], [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(Header::read(true, &datagram), Some(wide));
    }

    #[test]
    fn a_short_or_hostile_datagram_is_no_harm() {
        for length in 0..LONGEST {
            assert_eq!(Header::read(true, &vec![0; length]), None);
            assert_eq!(Header::read(false, &vec![0; length]).is_some(), length >= 12);
        }
        let header = Header::read(true, &[0xff; LONGEST]).expect("long enough");
        assert_eq!((header.number, header.sent), (u64::MAX, Instant::from_nanos(4_294_971_589_967_295_000)));
    }

    #[test]
    fn each_hello_has_its_answer() {
        assert_eq!(answer(b"9876"), Some(*b"6789"));
        assert_eq!(answer(&[0x15, 0xcd, 0x5b, 0x07]), Some([0xb1, 0x68, 0xde, 0x3a]));
        assert!(answer(b"6789").is_none() && answer(b"").is_none() && answer(b"98765").is_none());
        assert!(is_answer(b"6789") && is_answer(&OLD_ANSWER) && !is_answer(b"9876"));
    }
}
