//! Packets in a file: pcap and pcapng, read through one window, and the link header before the IP header.
//!
//! ```text
//!   source ──► window ──┬─ pcap: records ─────────┬─► link: header before the IP header ──► Frame
//!                       └─ pcapng: blocks ── clock ┘
//! ```
//!
//! The framing of both formats is small and is read here: a library spent half of the time of a large pcapng
//! file on blocks, of which fullpipe needs four kinds (docs/decisions/0020). The tests compare this reader
//! with the library.

mod link;
mod pcap;
mod pcapng;
mod window;

use std::io::Read;

use fullpipe_units::Instant;

use crate::input::InputError;
use window::Window;

/// First four bytes of pcapng, and of pcap in both byte orders with times in microseconds and nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Maximum length of a block in bytes; a packet has at most a quarter of a megabyte.
const LARGEST_BLOCK: usize = 16 << 20;

/// Captured packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Time of the packet, since the origin of the file's times.
    pub(super) at: Instant,
    /// Captured bytes, starting with the IP header; empty if it is not an IP packet.
    pub(super) ip: &'a [u8],
    /// Length on the wire, from the IP header on.
    pub(super) len: usize,
}

/// Properties of a file besides its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// Whether it breaks off within a packet, like a capture that was copied while it was written.
    pub(super) truncated: bool,
    /// Number of packets without a time (pcapng's simple packets), which are skipped.
    pub(super) timeless: u64,
    /// Number of packets that the capturing tool lost, by its own count.
    pub(super) dropped: u64,
}

/// Returns whether a file with this beginning is a capture.
pub fn is_capture(beginning: &[u8]) -> bool {
    beginning.first_chunk().is_some_and(|magic| *magic == PCAPNG || PCAP.contains(magic))
}

/// Passes every packet of a capture to `see`, in the order of the file.
pub(super) fn each(source: impl Read, see: impl FnMut(Frame<'_>)) -> Result<Ending, InputError> {
    let mut window = Window::new(source);
    match window.ahead(PCAPNG.len())?.first_chunk() {
        Some(&PCAPNG) => pcapng::each(window, see),
        Some(magic) if PCAP.contains(magic) => pcap::each(window, see),
        Some(_) => Err(broken("it begins like none")),
        None => Err(broken(ENDS_EARLY)),
    }
}

const ENDS_EARLY: &str = "it ends within its header";
const TOO_LONG: &str = "a block is longer than any packet";

fn broken(what: &str) -> InputError {
    InputError::new(format!("cannot read this capture: {what}"), "capture again with tcpdump -w F or dumpcap")
}

/// Byte order of the numbers in a file: that of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns the number at offset `at`, which must lie within `bytes`.
    #[inline]
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let octets = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(octets),
            Self::Big => u32::from_be_bytes(octets),
        }
    }

    #[inline]
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let octets = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(octets),
            Self::Big => u16::from_be_bytes(octets),
        }
    }

    /// Returns the number in a whole option of eight bytes.
    fn u64(self, octets: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(octets),
            Self::Big => u64::from_be_bytes(octets),
        }
    }
}

#[cfg(test)]
mod tests;
