//! Packets in a file: pcap and pcapng, read through one window, and what stands before the IP header.
//!
//! ```text
//!   source ──► window ──┬─ pcap: records ─────────┬─► link: what stands before the IP header ──► Frame
//!                       └─ pcapng: blocks ── clock ┘
//! ```
//!
//! The framing of both is small and is read here: half of the time of a large pcapng file went into a library's blocks, of which
//! fullpipe wants four kinds (docs/decisions/0020). The library is what the tests hold this reader against.

mod link;
mod pcap;
mod pcapng;
mod window;

use std::io::Read;

use fullpipe_units::Instant;

use crate::input::InputError;
use window::Window;

/// The first four octets of pcapng, and of pcap in both byte orders with times in microseconds and nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Octets of the longest block: a packet has a quarter of a megabyte at most.
const LARGEST_BLOCK: usize = 16 << 20;

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// When, since whatever the file counts from.
    pub(super) at: Instant,
    /// Its first octets, from the IP header on; empty if it is no IP packet.
    pub(super) ip: &'a [u8],
    /// Its length on the wire, from the IP header on.
    pub(super) len: usize,
}

/// What a file says beside its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// It breaks off within a packet, as a capture does that was being written when it was copied.
    pub(super) truncated: bool,
    /// Packets without a time (pcapng's simple packets), which are not shown.
    pub(super) timeless: u64,
    /// Packets that the capturing tool lost, by its own count.
    pub(super) dropped: u64,
}

/// Whether a file that begins like this is a capture.
pub fn is_capture(beginning: &[u8]) -> bool {
    beginning.first_chunk().is_some_and(|magic| *magic == PCAPNG || PCAP.contains(magic))
}

/// Shows every packet of a capture to `see`, in the order of the file.
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

/// In which order a file has the octets of its numbers: that of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// The number at `at`, which is there.
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

    /// A whole option of eight octets.
    fn u64(self, octets: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(octets),
            Self::Big => u64::from_be_bytes(octets),
        }
    }
}

#[cfg(test)]
mod tests;
