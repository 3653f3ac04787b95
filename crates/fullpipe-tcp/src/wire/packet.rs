//! Parser that converts an IPv4 (RFC 791) or IPv6 (RFC 8200) packet with TCP (RFC 9293) into a segment
//! between two sockets.
//!
//! ```text
//!   version 4: length, fragment, checksum ─┐
//!                                          ├─► TCP: offset, checksum ─► options ─► Segment, payload range
//!   version 6: length, next header chain ──┘
//! ```
//!
//! The parser neither repairs a packet nor guesses missing values. It rejects packets that are truncated, are
//! fragments or have a wrong checksum, and returns the reason. It ignores octets beyond the packet's own
//! length (Ethernet padding). It drops the urgent pointer, because the engine treats urgent data like other
//! data.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;

use fullpipe_units::Ecn;

use super::checksum::{fold, sum};
use super::options::{OptionError, Options};
use super::{Flags, Segment, SeqNum, SynOptions};

pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
pub(super) const TCP_HEADER: usize = 20;
/// IPv4 protocol number and IPv6 next header value of TCP.
pub(super) const TCP: u8 = 6;

/// IPv6 extension headers that the parser skips: hop-by-hop options, routing, and destination options (RFC
/// 8200 section 4.1). The second octet of each header is its length in units of eight octets, not counting
/// the first eight.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;
/// Bits of the IPv4 header that identify a fragment: the more-fragments flag and the fragment offset.
const FRAGMENT_BITS: u16 = 0x3fff;
pub(super) const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Whether the parser verifies checksums. In a capture on the sending host, packets have no valid checksum if
/// the network card computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The parser rejects packets with a wrong checksum.
    Verify,
    /// The parser ignores checksums.
    Skip,
}

/// Parsed TCP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Socket address of the sender.
    pub from: SocketAddr,
    /// Socket address of the receiver.
    pub to: SocketAddr,
    /// Segment that the headers describe.
    pub segment: Segment,
    /// Range of the payload within the parsed octets.
    pub payload: Range<usize>,
}

/// Reason why a packet was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The packet is shorter than required by its headers or its length field.
    Truncated,
    /// The IP version, in the first four bits, is neither 4 nor 6.
    Version(u8),
    /// The length of a header is below its minimum, or exceeds the packet.
    HeaderLength,
    /// The packet is a fragment.
    Fragment,
    /// The protocol is not the expected one, or an IPv6 extension header is unknown.
    Protocol(u8),
    /// The checksum of the IPv4 header is wrong.
    IpChecksum,
    /// The checksum of the TCP header and payload is wrong.
    TcpChecksum,
    /// The checksum of an ICMP message is wrong.
    IcmpChecksum,
    /// A TCP option is malformed.
    Option(OptionError),
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the packet is truncated"),
            Self::Version(version) => write!(f, "IP version {version} is neither 4 nor 6"),
            Self::HeaderLength => f.write_str("a header length is invalid"),
            Self::Fragment => f.write_str("the packet is a fragment"),
            Self::Protocol(protocol) => write!(f, "protocol {protocol} is not TCP"),
            Self::IpChecksum => f.write_str("the IPv4 header checksum is wrong"),
            Self::TcpChecksum => f.write_str("the TCP checksum is wrong"),
            Self::IcmpChecksum => f.write_str("the ICMP checksum is wrong"),
            Self::Option(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PacketError {}

/// IP header fields that the TCP parser needs.
pub(super) struct Ip {
    pub(super) from: core::net::IpAddr,
    pub(super) to: core::net::IpAddr,
    pub(super) protocol: u8,
    /// Range of the IP payload within the packet, up to the packet's end.
    pub(super) payload: Range<usize>,
    /// Sum of the two addresses, for the checksum's pseudo-header.
    pub(super) addresses: u64,
    ecn: Ecn,
}

/// Parses the IP header of a packet of `len` octets; `bytes` contains the first octets of the packet.
pub(super) fn ip(bytes: &[u8], len: usize, checksums: Checksums) -> Result<Ip, PacketError> {
    match bytes.first().map(|first| first >> 4) {
        None => Err(PacketError::Truncated),
        Some(4) => ipv4(bytes, len, checksums),
        Some(6) => ipv6(bytes, len),
        Some(version) => Err(PacketError::Version(version)),
    }
}

impl Packet {
    /// Parses one packet that begins with its IP header.
    ///
    /// # Errors
    /// Returns the first fault, from the outermost header inwards.
    pub fn parse(bytes: &[u8], checksums: Checksums) -> Result<Self, PacketError> {
        Self::parse_of(bytes, bytes.len(), checksums)
    }

    /// Parses a truncated packet, as found in captures. `bytes` contains the first octets of a packet of
    /// `len` octets. All headers must be present; the function ignores checksums. If a super-segment is too
    /// long for the length field (Linux BIG TCP), the field is zero, and `len` is used instead.
    ///
    /// # Errors
    /// Fails as [`Packet::parse`] does.
    pub fn parse_cut(bytes: &[u8], len: usize) -> Result<Self, PacketError> {
        Self::parse_of(bytes, len.max(bytes.len()), Checksums::Skip)
    }

    fn parse_of(bytes: &[u8], len: usize, checksums: Checksums) -> Result<Self, PacketError> {
        let ip = ip(bytes, len, checksums)?;
        if ip.protocol != TCP {
            return Err(PacketError::Protocol(ip.protocol));
        }
        let tcp = ip.payload.start..ip.payload.end.min(bytes.len());
        let tcp = bytes.get(tcp).ok_or(PacketError::Truncated)?;
        if tcp.len() < TCP_HEADER {
            return Err(PacketError::Truncated);
        }
        let offset = usize::from(tcp[12] >> 4) * 4;
        if !(TCP_HEADER..=tcp.len()).contains(&offset) {
            return Err(PacketError::HeaderLength);
        }
        // A packet of either IP version is shorter than 2^32 octets.
        let pseudo = ip.addresses + u64::from(TCP) + tcp.len() as u64;
        if checksums == Checksums::Verify && fold(pseudo + sum(tcp)) != u16::MAX {
            return Err(PacketError::TcpChecksum);
        }
        let options = Options::parse(&tcp[TCP_HEADER..offset]).map_err(PacketError::Option)?;
        let payload = ip.payload.start + offset..ip.payload.end;
        Ok(Self {
            from: SocketAddr::new(ip.from, word(tcp, 0)),
            to: SocketAddr::new(ip.to, word(tcp, 2)),
            segment: Segment { ecn: ip.ecn, ..segment(tcp, &options, payload.len()) },
            payload,
        })
    }
}

fn segment(tcp: &[u8], options: &Options, payload: usize) -> Segment {
    let flags = Flags::from_bits(tcp[13]);
    // The MSS, window scale and SACK-permitted options have no meaning outside a SYN.
    let syn = flags.has(Flags::SYN).then(|| SynOptions {
        mss: options.mss.unwrap_or(0),
        window_scale: options.window_scale,
        sack_permitted: options.sack_permitted,
    });
    Segment {
        seq: SeqNum(number(tcp, 4)),
        ack: SeqNum(number(tcp, 8)),
        // IP length fields have 16 bits; the length of a BIG TCP packet is the caller's `len`.
        len: payload as u32,
        window: word(tcp, 14),
        flags,
        timestamps: options.timestamps,
        syn,
        sack: options.sack,
        ecn: Ecn::NotEct,
    }
}

/// Parses the IPv4 header of a packet of `len` octets.
fn ipv4(bytes: &[u8], len: usize, checksums: Checksums) -> Result<Ip, PacketError> {
    if bytes.len() < IPV4_HEADER {
        return Err(PacketError::Truncated);
    }
    let header = usize::from(bytes[0] & 0xf) * 4;
    let total = match usize::from(word(bytes, 2)) {
        0 if len > usize::from(u16::MAX) => len,
        total => total,
    };
    if header < IPV4_HEADER || header > total {
        return Err(PacketError::HeaderLength);
    }
    if total > len || header > bytes.len() {
        return Err(PacketError::Truncated);
    }
    if checksums == Checksums::Verify && fold(sum(&bytes[..header])) != u16::MAX {
        return Err(PacketError::IpChecksum);
    }
    if word(bytes, 6) & FRAGMENT_BITS != 0 {
        return Err(PacketError::Fragment);
    }
    let address = |at| Ipv4Addr::from_bits(number(bytes, at)).into();
    let (addresses, ecn) = (sum(&bytes[12..20]), Ecn::from_bits(bytes[1]));
    Ok(Ip { from: address(12), to: address(16), protocol: bytes[9], payload: header..total, addresses, ecn })
}

fn ipv6(bytes: &[u8], len: usize) -> Result<Ip, PacketError> {
    if bytes.len() < IPV6_HEADER {
        return Err(PacketError::Truncated);
    }
    // The length of a jumbogram (RFC 2675) does not fit into the field, which is then zero.
    let total = match usize::from(word(bytes, 4)) {
        0 if len > IPV6_HEADER + usize::from(u16::MAX) => len,
        payload => IPV6_HEADER + payload,
    };
    if total > len {
        return Err(PacketError::Truncated);
    }
    let (protocol, at) = skip_extensions(bytes, total, bytes[6])?;
    if protocol == FRAGMENT {
        return Err(PacketError::Fragment);
    }
    let address = |at: usize| {
        let octets: [u8; 16] = core::array::from_fn(|i| bytes[at + i]);
        Ipv6Addr::from(octets).into()
    };
    let (addresses, ecn) = (sum(&bytes[8..40]), Ecn::from_bits(bytes[1] >> 4));
    Ok(Ip { from: address(8), to: address(24), protocol, payload: at..total, addresses, ecn })
}

/// Skips the extension headers of an IPv6 packet of `total` octets. `next` is the type of the first header.
/// Returns the upper-layer protocol and the offset of its header.
pub(super) fn skip_extensions(bytes: &[u8], total: usize, mut next: u8) -> Result<(u8, usize), PacketError> {
    let mut at = IPV6_HEADER;
    while EXTENSIONS.contains(&next) {
        let here = bytes.get(at..total.min(bytes.len())).ok_or(PacketError::Truncated)?;
        let &[following, length, ..] = here else { return Err(PacketError::Truncated) };
        (next, at) = (following, at + 8 + 8 * usize::from(length));
        if at > total {
            return Err(PacketError::HeaderLength);
        }
    }
    Ok((next, at))
}

pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
