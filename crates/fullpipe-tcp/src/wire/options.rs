//! Parser for TCP options (RFC 9293 section 3.1). The engine supports five options, and skips other options
//! by their length.
//!
//! ```text
//!   kind 0              end of the list          kind 4, length 2       SACK permitted (RFC 2018)
//!   kind 1              no operation             kind 5, length 8n + 2  SACK blocks (RFC 2018, RFC 2883)
//!   kind 2, length 4    MSS (RFC 9293)           kind 8, length 10      timestamps (RFC 7323)
//!   kind 3, length 3    window scale (RFC 7323)  others                 kind, length, length - 2 octets
//! ```
//!
//! A segment with an impossible option length is rejected. If the parser guessed the start of the next
//! option, an attacker could make it interpret the body of an option as an option. RFC 9293 MUST-7 requires
//! only that such a length does no harm.

use core::fmt;

use super::{SackBlocks, SeqNum, Timestamps};

pub(super) const END: u8 = 0;
pub(super) const NOP: u8 = 1;
pub(super) const MSS: u8 = 2;
pub(super) const WINDOW_SCALE: u8 = 3;
pub(super) const SACK_PERMITTED: u8 = 4;
pub(super) const SACK: u8 = 5;
pub(super) const TIMESTAMPS: u8 = 8;

/// Length of an option's kind and length fields together, in octets.
const PREFIX: usize = 2;
/// Length of a SACK block, in octets.
const BLOCK: usize = 8;

/// The options of one TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size that the sender accepts, in bytes.
    pub mss: Option<u16>,
    /// Window scale shift of the sender, as in the header. The parser does not limit values above 14.
    pub window_scale: Option<u8>,
    /// Whether the sender accepts selective acknowledgements.
    pub sack_permitted: bool,
    /// Timestamps option of the segment (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// SACK blocks, as ranges of sequence numbers.
    pub sack: SackBlocks,
}

/// Error for a TCP option with an impossible length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Kind of the TCP option.
    pub kind: u8,
    /// Length field of the TCP option; `None` if the options end before that field.
    pub length: Option<u8>,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length {
            Some(length) => write!(f, "TCP option {} has the invalid length {length}", self.kind),
            None => write!(f, "TCP option {} ends before its length field", self.kind),
        }
    }
}

impl std::error::Error for OptionError {}

impl Options {
    /// Parses the octets between the fixed 20-octet TCP header and the payload. If an option occurs twice,
    /// the last occurrence counts.
    ///
    /// # Errors
    /// Fails if a length is below two, exceeds the options, or differs from the fixed length of its kind.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, OptionError> {
        let mut options = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let Some(&length) = rest.first() else { return Err(OptionError { kind, length: None }) };
            let refused = OptionError { kind, length: Some(length) };
            let body = bytes.get(PREFIX..usize::from(length)).ok_or(refused)?;
            options.take(kind, body).ok_or(refused)?;
            bytes = &bytes[usize::from(length)..];
        }
        Ok(options)
    }

    /// Stores one TCP option. Returns `None` if the length of `body` is wrong for its kind.
    fn take(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        match kind {
            MSS => self.mss = Some(u16::from_be_bytes(body.try_into().ok()?)),
            WINDOW_SCALE => self.window_scale = Some(u8::from_be_bytes(body.try_into().ok()?)),
            SACK_PERMITTED if body.is_empty() => self.sack_permitted = true,
            SACK_PERMITTED => return None,
            SACK => {
                let (blocks, []) = body.as_chunks::<BLOCK>() else { return None };
                self.sack = SackBlocks::default();
                for block in blocks {
                    let (start, end) = halves(block);
                    // The 40 octets of options can hold at most four SACK blocks.
                    self.sack.push(SeqNum(start), SeqNum(end)).then_some(())?;
                }
                (!self.sack.is_empty()).then_some(())?;
            }
            TIMESTAMPS => {
                let (value, echo) = halves(body.try_into().ok()?);
                self.timestamps = Some(Timestamps { value, echo });
            }
            _ => {}
        }
        Some(())
    }
}

fn halves(octets: &[u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = *octets;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_sends_in_a_syn() {
        let options = Options::parse(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 10]);
        let expected = Options {
            mss: Some(1_460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 7, echo: 0 }),
            sack: SackBlocks::default(),
        };
        assert_eq!(options, Ok(expected));
    }

    #[test]
    fn unknown_ones_are_skipped_and_nothing_follows_the_end() {
        // The options are Fast Open (34), an experimental option (254) of minimum length, and MSS. Octets
        // after the end of the option list are not options.
        let options = Options::parse(&[34, 4, 1, 2, 254, 2, 1, 2, 4, 2, 0, 0, 3, 99]);
        assert_eq!(options, Ok(Options { mss: Some(512), ..Options::default() }));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for (bytes, length) in [
            (&[2][..], None),
            (&[2, 0, 5, 0xb4], Some(0)),
            (&[2, 1, 5, 0xb4], Some(1)),
            (&[2, 3, 5, 0xb4], Some(3)),
            (&[2, 5, 5, 0xb4, 0], Some(5)),
            (&[2, 4, 5], Some(4)),
            (&[3, 4, 7, 0], Some(4)),
            (&[4, 3, 0], Some(3)),
            (&[5, 2], Some(2)),
            (&[5, 9, 0, 0, 0, 1, 0, 0, 0], Some(9)),
            (&[5, 10, 0, 0, 0, 1, 0, 0, 0], Some(10)),
            (&[8, 9, 0, 0, 0, 1, 0, 0, 0], Some(9)),
            (&[99, 0], Some(0)),
            (&[99, 40, 0, 0], Some(40)),
        ] {
            assert_eq!(Options::parse(bytes), Err(OptionError { kind: bytes[0], length }), "{bytes:?}");
        }
    }

    #[test]
    fn no_more_than_four_blocks() {
        let mut bytes = vec![5, 2 + 5 * 8];
        bytes.resize(usize::from(bytes[1]), 0);
        assert!(Options::parse(&bytes).is_err());
        bytes.truncate(2 + 4 * 8);
        bytes[1] = 2 + 4 * 8;
        assert_eq!(Options::parse(&bytes).map(|options| options.sack.len()), Ok(4));
    }
}
