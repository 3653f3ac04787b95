//! ICMP error messages about a segment (RFC 792, RFC 1191, RFC 4443).
//!
//! ```text
//!   reporter's IP header │ type, code, checksum, MTU │ our IP header │ our ports, sequence number
//! ```
//!
//! Anyone can forge such a message. The connection checks the quoted sequence number to decide whether to
//! accept the message (RFC 5927).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::SeqNum;
use super::checksum::{fold, sum};
use super::packet::{
    self, Checksums, IPV4_HEADER, IPV6_HEADER, PacketError, TCP, ip, number, skip_extensions, word,
};

/// IP protocol numbers of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Length of an ICMP header in octets: the type, the code, the checksum, and a word whose meaning depends on
/// the type.
const HEADER: usize = 8;
/// Number of octets of the TCP header that every ICMP message quotes: the ports and the sequence number.
const QUOTED_TCP: usize = 8;

/// Kind of error that an ICMP message reports about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The segment exceeds the MTU of the next link. The value is the MTU in bytes, including the IP header.
    TooBig(u64),
    /// The segment cannot be delivered now: a soft error (RFC 9293 section 3.9.2.2).
    Unreachable,
    /// No process at the destination accepts the segment (port or protocol unreachable): a hard error.
    Refused,
}

/// ICMP error message about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpMessage {
    /// Socket address that sent the segment.
    pub from: SocketAddr,
    /// Socket address to which the segment was sent.
    pub to: SocketAddr,
    /// Sequence number of the quoted segment.
    pub seq: SeqNum,
    /// Kind of the reported error.
    pub error: IcmpError,
}

impl IcmpMessage {
    /// Parses a packet that begins with its IP header. Returns `None` if the message is not an error, does
    /// not quote TCP, or has a type that TCP ignores (source quench: RFC 9293 MUST-55).
    ///
    /// # Errors
    /// Fails if the packet is malformed, or with [`PacketError::Protocol`] if it is not ICMP.
    pub fn parse(bytes: &[u8], checksums: Checksums) -> Result<Option<Self>, PacketError> {
        let ip = ip(bytes, bytes.len(), checksums)?;
        let v6 = match ip.protocol {
            ICMP if ip.from.is_ipv4() => false,
            ICMPV6 if ip.from.is_ipv6() => true,
            other => return Err(PacketError::Protocol(other)),
        };
        let message = bytes.get(ip.payload.clone()).ok_or(PacketError::Truncated)?;
        if message.len() < HEADER {
            return Err(PacketError::Truncated);
        }
        // Only ICMPv6 includes the addresses in its checksum.
        let pseudo = if v6 { ip.addresses + u64::from(ICMPV6) + message.len() as u64 } else { 0 };
        if checksums == Checksums::Verify && fold(pseudo + sum(message)) != u16::MAX {
            return Err(PacketError::IcmpChecksum);
        }
        let (head, quoted) = message.split_at(HEADER);
        let error = if v6 { error_v6(head) } else { error_v4(head, quoted) };
        Ok(error.and_then(|error| about(quoted, v6, error)))
    }
}

fn error_v4(head: &[u8], quoted: &[u8]) -> Option<IcmpError> {
    match (head[0], head[1]) {
        (3, 4) => Some(IcmpError::TooBig(match word(head, 6) {
            0 => plateau_below(u64::from(word(quoted.get(..IPV4_HEADER)?, 2))),
            mtu => u64::from(mtu),
        })),
        (3, 2 | 3) => Some(IcmpError::Refused),
        (3 | 11 | 12, _) => Some(IcmpError::Unreachable),
        _ => None,
    }
}

fn error_v6(head: &[u8]) -> Option<IcmpError> {
    match (head[0], head[1]) {
        (2, _) => Some(IcmpError::TooBig(number(head, 4).into())),
        (1, 4) => Some(IcmpError::Refused),
        (1 | 3 | 4, _) => Some(IcmpError::Unreachable),
        _ => None,
    }
}

/// Returns the largest common MTU below `length`. This MTU is used if a router older than RFC 1191 reports no
/// MTU (RFC 1191 section 7.1).
fn plateau_below(length: u64) -> u64 {
    const PLATEAUS: [u64; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];
    PLATEAUS.into_iter().find(|&mtu| mtu < length).unwrap_or(68)
}

/// Identifies the segment of a quoted packet, which may be truncated. Only the addresses, the ports and the
/// sequence number are used.
fn about(quoted: &[u8], v6: bool, error: IcmpError) -> Option<IcmpMessage> {
    let (from, to, tcp): (IpAddr, IpAddr, &[u8]) = if v6 {
        let header = quoted.get(..IPV6_HEADER).filter(|header| header[0] >> 4 == 6)?;
        let (next, at) = skip_extensions(quoted, quoted.len(), header[6]).ok()?;
        let address = |at: usize| Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| header[at + i]));
        (address(8).into(), address(24).into(), quoted.get(at..).filter(|_| next == TCP)?)
    } else {
        let header = quoted.get(..IPV4_HEADER).filter(|header| header[0] >> 4 == 4)?;
        let length = usize::from(header[0] & 0xf) * 4;
        // Only the first fragment of a packet contains the ports.
        let whole =
            header[9] == TCP && length >= IPV4_HEADER && word(header, 6) & packet::FRAGMENT_OFFSET == 0;
        let address = |at| Ipv4Addr::from_bits(number(header, at));
        (address(12).into(), address(16).into(), quoted.get(length..).filter(|_| whole)?)
    };
    let tcp = tcp.get(..QUOTED_TCP)?;
    Some(IcmpMessage {
        from: SocketAddr::new(from, word(tcp, 0)),
        to: SocketAddr::new(to, word(tcp, 2)),
        seq: SeqNum(number(tcp, 4)),
        error,
    })
}
