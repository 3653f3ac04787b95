//! Encoding of segment headers: IPv4 (RFC 791) or IPv6 (RFC 8200) and TCP (RFC 9293), with the options in the
//! same order as in Linux.
//!
//! ```text
//!   SYN      MSS | SACK permitted, timestamps  or  NOP, NOP, timestamps  or  NOP, NOP, SACK permitted
//!            | NOP, window scale
//!   others   NOP, NOP, timestamps | NOP, NOP, SACK blocks
//! ```

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use super::checksum::{fold, sum};
use super::options::{MSS, NOP, SACK, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE};
use super::packet::{IPV4_HEADER, IPV6_HEADER, TCP};
use super::{Flags, Segment};

/// Maximum length of a TCP header in octets, because the data offset has four bits and counts 32-bit words.
const MOST_TCP: usize = 60;
const MOST: usize = IPV6_HEADER + MOST_TCP;
/// Offset of the checksum field within a TCP header, in octets.
const CHECKSUM: usize = 16;

const VERSION_4_AND_LENGTH: u8 = 0x45;
const VERSION_6: u8 = 0x60;
const DONT_FRAGMENT: u8 = 0x40;
const HOPS: u8 = IpChoices::DEFAULT.hop_limit;
/// Offset of the TTL field within an IPv4 header, in octets. `IPV4_CHECKSUM` is the offset of the checksum,
/// and `HOP_LIMIT` is that of the hop limit within an IPv6 header.
const TIME_TO_LIVE: usize = 8;
const IPV4_CHECKSUM: usize = 10;
const HOP_LIMIT: usize = 7;

/// IP header fields that the application may choose (RFC 9293 section 3.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpChoices {
    /// Time to live (IPv4) or hop limit (IPv6): 1 to 255.
    pub hop_limit: u8,
    /// Differentiated services code point (RFC 2474).
    pub dscp: Dscp,
}

impl IpChoices {
    /// Linux defaults: a hop limit of 64, and best effort.
    pub const DEFAULT: Self = Self { hop_limit: 64, dscp: Dscp::DEFAULT };
}

impl Default for IpChoices {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Differentiated services code point, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// Default DSCP: best effort.
    pub const DEFAULT: Self = Self(0);

    /// Returns the DSCP with value `code_point`, or `None` if the value is above 63.
    pub const fn new(code_point: u8) -> Option<Self> {
        if code_point < 64 { Some(Self(code_point)) } else { None }
    }

    /// Returns the DSCP as a number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// IP and TCP headers of one segment.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; MOST],
    len: usize,
    /// Offset of the TCP header within the packet, in octets.
    tcp: usize,
}

impl Headers {
    /// Returns the IPv4 and TCP headers of `segment`.
    ///
    /// Both checksums are correct for a payload of zeros. The identification is zero, which RFC 6864 allows
    /// for a packet that must not be fragmented. The function drops SACK blocks that do not fit into the
    /// options.
    pub fn of(segment: &Segment, from: SocketAddrV4, to: SocketAddrV4) -> Self {
        let mut headers = Self { bytes: [0; MOST], len: 0, tcp: IPV4_HEADER };
        let ecn = segment.ecn.bits();
        headers.put(&[VERSION_4_AND_LENGTH, ecn, 0, 0, 0, 0, DONT_FRAGMENT, 0, HOPS, TCP, 0, 0]);
        headers.put(&from.ip().octets());
        headers.put(&to.ip().octets());
        headers.tcp(segment, from.port(), to.port());
        let total = (headers.len + segment.len as usize).min(usize::from(u16::MAX));
        headers.bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        let checksum = !fold(sum(&headers.bytes[..IPV4_HEADER]));
        headers.bytes[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        headers.tcp_checksum(sum(&headers.bytes[12..20]), total - IPV4_HEADER);
        headers
    }

    /// Returns the IPv6 and TCP headers of `segment`. The IPv6 header has no checksum. The flow label is
    /// zero, and the traffic class contains only the ECN field.
    pub fn of_v6(segment: &Segment, from: SocketAddrV6, to: SocketAddrV6) -> Self {
        let mut headers = Self { bytes: [0; MOST], len: 0, tcp: IPV6_HEADER };
        // The traffic class straddles the first two octets of the IPv6 header; its two lowest bits are the
        // ECN field.
        headers.put(&[VERSION_6, segment.ecn.bits() << 4, 0, 0, 0, 0, TCP, HOPS]);
        headers.put(&from.ip().octets());
        headers.put(&to.ip().octets());
        headers.tcp(segment, from.port(), to.port());
        let length = (headers.len - IPV6_HEADER + segment.len as usize).min(usize::from(u16::MAX));
        headers.bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        headers.tcp_checksum(sum(&headers.bytes[8..40]), length);
        headers
    }

    /// Returns the headers for the IP version of the two addresses, or `None` if their versions differ.
    pub fn between(segment: &Segment, from: SocketAddr, to: SocketAddr) -> Option<Self> {
        match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => Some(Self::of(segment, from, to)),
            (SocketAddr::V6(from), SocketAddr::V6(to)) => Some(Self::of_v6(segment, from, to)),
            _ => None,
        }
    }

    /// Returns the headers with the IP header fields that the application has chosen.
    pub fn choosing(mut self, choices: IpChoices) -> Self {
        if choices == IpChoices::DEFAULT {
            return self;
        }
        let dscp = choices.dscp.get();
        if self.tcp == IPV6_HEADER {
            self.bytes[0] |= dscp >> 2;
            self.bytes[1] |= dscp << 6;
            self.bytes[HOP_LIMIT] = choices.hop_limit;
        } else {
            self.bytes[1] |= dscp << 2;
            self.bytes[TIME_TO_LIVE] = choices.hop_limit;
            self.bytes[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
            let checksum = !fold(sum(&self.bytes[..IPV4_HEADER]));
            self.bytes[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        self
    }

    /// Completes the TCP checksum for a payload that is stored in two parts.
    pub fn cover(&mut self, [first, second]: [&[u8]; 2]) {
        let behind = sum(second);
        // If the first part has an odd number of octets, the words of the second part are shifted by one
        // octet (RFC 1071 section 2 (B)).
        let behind = if first.len() % 2 == 1 { u64::from(fold(behind).swap_bytes()) } else { behind };
        let field = self.tcp + CHECKSUM..self.tcp + CHECKSUM + 2;
        let zeros = u16::from_be_bytes([self.bytes[field.start], self.bytes[field.start + 1]]);
        let checksum = !fold(u64::from(!zeros) + sum(first) + behind);
        self.bytes[field].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Leaves the TCP checksum to the sending device, as a kernel does for checksum offload. The field is set
    /// to the sum of the pseudo-header, without taking the complement.
    pub fn leave_checksum(&mut self) {
        let (ip, tcp) = self.bytes[..self.len].split_at_mut(self.tcp);
        let (addresses, length) = match ip.len() {
            IPV4_HEADER => (&ip[12..20], u16::from_be_bytes([ip[2], ip[3]]) - IPV4_HEADER as u16),
            _ => (&ip[8..40], u16::from_be_bytes([ip[4], ip[5]])),
        };
        let pseudo = fold(sum(addresses) + u64::from(TCP) + u64::from(length));
        tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
    }

    /// Returns the offset of the TCP header within the packet, in octets.
    pub const fn tcp_at(&self) -> usize {
        self.tcp
    }

    /// Returns the headers as bytes, starting with the IP header.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn tcp(&mut self, segment: &Segment, from: u16, to: u16) {
        self.put(&from.to_be_bytes());
        self.put(&to.to_be_bytes());
        self.put(&segment.seq.0.to_be_bytes());
        // An initial SYN acknowledges nothing, so `ack` is not written.
        let ack = if segment.flags.has(Flags::ACK) { segment.ack.0 } else { 0 };
        self.put(&ack.to_be_bytes());
        self.put(&[0, segment.flags.bits()]);
        self.put(&segment.window.to_be_bytes());
        self.put(&[0; 4]);
        self.options(segment);
    }

    fn options(&mut self, segment: &Segment) {
        if let Some(syn) = segment.syn.filter(|syn| syn.mss > 0) {
            self.put(&[MSS, 4]);
            self.put(&syn.mss.to_be_bytes());
        }
        let sack_permitted = segment.syn.is_some_and(|syn| syn.sack_permitted);
        match segment.timestamps {
            Some(timestamps) => {
                // The SACK-permitted option takes the place of the padding.
                self.put(if sack_permitted { &[SACK_PERMITTED, 2] } else { &[NOP, NOP] });
                self.put(&[TIMESTAMPS, 10]);
                self.put(&timestamps.value.to_be_bytes());
                self.put(&timestamps.echo.to_be_bytes());
            }
            None if sack_permitted => self.put(&[NOP, NOP, SACK_PERMITTED, 2]),
            None => {}
        }
        if let Some(shift) = segment.syn.and_then(|syn| syn.window_scale) {
            self.put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let room = (self.tcp + MOST_TCP - self.len).saturating_sub(4) / 8;
        let blocks = segment.sack.len().min(room);
        if blocks > 0 {
            self.put(&[NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for (start, end) in segment.sack.iter().take(blocks) {
                self.put(&start.0.to_be_bytes());
                self.put(&end.0.to_be_bytes());
            }
        }
    }

    /// Writes the data offset and the checksum, which depend on the other fields. `addresses` is the sum of
    /// both addresses, and `length` is the total length of header and payload.
    fn tcp_checksum(&mut self, addresses: u64, length: usize) {
        let tcp = &mut self.bytes[self.tcp..self.len];
        tcp[12] = (tcp.len() as u8 / 4) << 4;
        let checksum = !fold(addresses + u64::from(TCP) + length as u64 + sum(tcp));
        tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fullpipe_units::Ecn;

    use super::*;
    use crate::wire::{SackBlocks, SeqNum, SynOptions, Timestamps};

    /// Returns the options of a SYN or SYN-ACK as octets.
    fn options(sack_permitted: bool, window_scale: Option<u8>, timestamps: bool) -> Vec<u8> {
        let segment = Segment {
            seq: SeqNum(1),
            ack: SeqNum(0),
            len: 0,
            window: 64_240,
            flags: Flags::SYN,
            timestamps: timestamps.then_some(Timestamps { value: 0x0102_0304, echo: 0x0506_0708 }),
            syn: Some(SynOptions { mss: 1_460, window_scale, sack_permitted }),
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        };
        let end = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        Headers::of(&segment, end, end).as_bytes()[IPV4_HEADER + 20..].to_vec()
    }

    /// Order and padding of the options are those of Linux (`tcp_options_write`). A SYN-ACK omits the options
    /// that the SYN did not offer.
    #[test]
    fn options_are_laid_out_as_in_linux() {
        const TIMES: [u8; 10] = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        const MSS: [u8; 4] = [2, 4, 5, 0xb4];
        const SCALE: [u8; 4] = [1, 3, 3, 10];
        for (sack_permitted, scale, timestamps, expected) in [
            (true, Some(10), true, [&MSS[..], &[4, 2], &TIMES, &SCALE].concat()),
            (false, Some(10), true, [&MSS[..], &[1, 1], &TIMES, &SCALE].concat()),
            (true, Some(10), false, [&MSS[..], &[1, 1, 4, 2], &SCALE].concat()),
            (true, None, true, [&MSS[..], &[4, 2], &TIMES].concat()),
            (true, None, false, [&MSS[..], &[1, 1, 4, 2]].concat()),
            (false, Some(10), false, [&MSS[..], &SCALE].concat()),
            (false, None, false, MSS.to_vec()),
        ] {
            assert_eq!(options(sack_permitted, scale, timestamps), expected);
        }
    }
}
