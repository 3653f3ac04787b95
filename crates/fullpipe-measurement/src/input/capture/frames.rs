//! Packets in a file: pcap and pcapng, read through a sliding window, with the link header before the IP
//! header.
//!
//! ```text
//!   source ──► window ──┬─ pcap: records ─────────┬─► link: header before the IP header ──► Frame
//!                       └─ pcapng: blocks ── clock ┘
//! ```
//!
//! The framing of both formats is simple and is parsed here. With a library, half of the run time for a large
//! pcapng file was spent on parsing blocks, and fullpipe needs only four block types (docs/decisions/0020).
//! The tests compare this reader with the library.

mod link;
mod pcap;
mod pcapng;
mod window;

use std::io::Read;

use fullpipe_units::Instant;

use crate::input::InputError;
use window::Window;

/// First four bytes of a pcapng file, and of a pcap file in both byte orders and with timestamps in
/// microseconds or nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Maximum length of a block in bytes; a packet has at most a quarter of a megabyte.
const LARGEST_BLOCK: usize = 16 << 20;

/// Captured packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Timestamp of the packet, relative to the epoch of the file.
    pub(super) at: Instant,
    /// Captured bytes, starting with the IP header; empty for a packet that is not IP.
    pub(super) ip: &'a [u8],
    /// Length on the wire in bytes, counted from the start of the IP header.
    pub(super) len: usize,
}

/// Properties of a file besides its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// Whether the file ends within a packet, for example because it was copied during the capture.
    pub(super) truncated: bool,
    /// Number of packets without a timestamp (pcapng simple packet blocks), which are skipped.
    pub(super) timeless: u64,
    /// Number of packets dropped during the capture, as reported by the capturing tool.
    pub(super) dropped: u64,
    /// Number of IP fragments of TCP segments. Only the first fragment contains the ports of the segment, and
    /// none contains its length, so fragments are not read.
    pub(super) fragments: u64,
}

/// Returns whether a file that starts with `beginning` is a capture.
pub fn is_capture(beginning: &[u8]) -> bool {
    beginning.first_chunk().is_some_and(|magic| *magic == PCAPNG || PCAP.contains(magic))
}

/// Passes every packet of a capture to `see`, in file order.
pub(super) fn each(source: impl Read, mut see: impl FnMut(Frame<'_>)) -> Result<Ending, InputError> {
    let mut window = Window::new(source);
    let mut fragments = 0;
    let counted = |frame: Frame<'_>| {
        fragments += u64::from(is_tcp_fragment(frame.ip));
        see(frame);
    };
    let ending = match window.ahead(PCAPNG.len())?.first_chunk() {
        Some(&PCAPNG) => pcapng::each(window, counted),
        Some(magic) if PCAP.contains(magic) => pcap::each(window, counted),
        Some(_) => Err(broken("the file does not begin with the header of a pcap or pcapng file")),
        None => Err(broken(ENDS_EARLY)),
    }?;
    Ok(Ending { fragments, ..ending })
}

/// Returns whether a packet is a fragment of a larger IP packet with TCP.
#[inline]
fn is_tcp_fragment(ip: &[u8]) -> bool {
    const TCP: u8 = 6;
    // The more-fragments flag and the fragment offset.
    const FRAGMENT_BITS: u16 = 0x3fff;
    const IPV6_HEADER: usize = 40;
    const IPV6_FRAGMENT: u8 = 44;
    match ip {
        [first, _, _, _, _, _, high, low, _, protocol, ..] if first >> 4 == 4 => {
            u16::from_be_bytes([*high, *low]) & FRAGMENT_BITS != 0 && *protocol == TCP
        }
        [first, _, _, _, _, _, IPV6_FRAGMENT, ..] if first >> 4 == 6 => ip.get(IPV6_HEADER) == Some(&TCP),
        _ => false,
    }
}

const ENDS_EARLY: &str = "the file ends within its header";
const TOO_LONG: &str = "a block is longer than the maximum packet length";

fn broken(what: &str) -> InputError {
    InputError::new(format!("cannot read this capture: {what}"), "capture again with tcpdump -w F or dumpcap")
}

/// Byte order of a file, which is the byte order of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns the 32-bit integer at offset `at`, which must lie within `bytes`.
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

    /// Returns the 64-bit integer in an option of eight bytes.
    fn u64(self, octets: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(octets),
            Self::Big => u64::from_be_bytes(octets),
        }
    }
}

#[cfg(test)]
mod tests;
