//! Parses packet headers for the link, and segments and merges super-packets (RFC 9293, RFC 791, RFC 8200).
//!
//! ```text
//!   super-packet: [ virtio header | IP | TCP | payload 0 | payload 1 | ... | payload n ]
//!   the path sees n + 1 packets, each IP + TCP + payload i
//!   behind the path, surviving neighbours are merged: headers with the first one's sequence number, joined payload
//! ```
//!
//! Super-packets are segmented as in the kernel: the sequence number and the IPv4 identification increase
//! from segment to segment. FIN and PSH are set on the last segment only, and CWR is set on the first segment
//! only.

use fullpipe_path::{Ecn, PacketKind};
use fullpipe_tcp::wire::checksum::{fold, sum};

use crate::tun::VIRTIO_HEADER;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN_PSH: u8 = 0x09;
const FIN_SYN_RST: u8 = 0x07;
const CWR: u8 = 0x80;

/// `virtio_net_hdr` flag: the checksum is incomplete and must be completed before the packet is sent.
const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
/// Offset of the checksum field in the TCP header.
const TCP_CHECKSUM: usize = 16;
/// Maximum total length of the IPv4 and TCP headers, including options, in bytes.
pub(crate) const MOST_HEADERS: usize = 60 + 60;

/// Those header fields of a packet that the path uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedPacket {
    pub(crate) ip_header: usize,
    /// Total length of the IP and transport headers, in bytes.
    pub(crate) headers: usize,
    pub(crate) flow: FlowKey,
    pub(crate) kind: PacketKind,
    pub(crate) ecn: Ecn,
}

/// Key of a flow: the header fields that all packets of the flow in one direction have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    source: [u8; 16],
    destination: [u8; 16],
    protocol: u8,
    pub(crate) ports: [u16; 2],
}

/// Parses the headers of a TCP packet. Any other packet is treated as a control packet that belongs to no
/// flow.
pub(crate) fn parse(packet: &[u8]) -> ParsedPacket {
    let mut flow = FlowKey::default();
    let ecn = ecn_of(packet);
    let other =
        |flow, headers| ParsedPacket { ip_header: headers, headers, flow, kind: PacketKind::Control, ecn };
    let ip_header = match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            flow.protocol = packet[9];
            flow.source[..4].copy_from_slice(&packet[12..16]);
            flow.destination[..4].copy_from_slice(&packet[16..20]);
            usize::from(packet[0] & 15) * 4
        }
        Some(6) if packet.len() >= 40 => {
            flow.protocol = packet[6];
            flow.source.copy_from_slice(&packet[8..24]);
            flow.destination.copy_from_slice(&packet[24..40]);
            40
        }
        _ => return other(flow, packet.len()),
    };
    let Some(transport) = packet.get(ip_header..) else { return other(flow, packet.len()) };
    let transport_header = match flow.protocol {
        TCP if transport.len() >= 20 => usize::from(transport[12] >> 4) * 4,
        UDP if transport.len() >= 8 => 8,
        _ => return other(flow, packet.len()),
    };
    flow.ports = [be16(transport, 0), be16(transport, 2)];
    let headers = (ip_header + transport_header).min(packet.len());
    let pure_ack = flow.protocol == TCP && transport[13] & FIN_SYN_RST == 0;
    let kind = match packet.len() > headers {
        true => PacketKind::Data,
        false if pure_ack => PacketKind::Ack,
        false => PacketKind::Control,
    };
    ParsedPacket { ip_header, headers, flow, kind, ecn }
}

/// Returns the ECN field of an IP packet. In IPv4, the ECN field consists of the two lowest bits of the
/// second byte. In IPv6, the ECN field consists of the two lowest bits of the traffic class, which spans the
/// first two bytes.
fn ecn_of(packet: &[u8]) -> Ecn {
    match packet {
        [first, second, ..] if first >> 4 == 4 => Ecn::from_bits(*second),
        [first, second, ..] if first >> 4 == 6 => Ecn::from_bits(second >> 4),
        _ => Ecn::NotEct,
    }
}

/// Sets the ECN field of an IP header; in IPv4, also updates the header checksum.
pub(crate) fn set_ecn(ip: &mut [u8], ecn: Ecn) {
    match ip.first().map(|byte| byte >> 4) {
        Some(4) if ip.len() >= 20 => {
            let header = usize::from(ip[0] & 15) * 4;
            ip[1] = ip[1] & !3 | ecn.bits();
            put16(ip, 10, 0);
            let sum = !fold(sum(&ip[..header.min(ip.len())]));
            put16(ip, 10, sum);
        }
        Some(6) if ip.len() >= 2 => ip[1] = ip[1] & !0x30 | ecn.bits() << 4,
        _ => {}
    }
}

/// Division of a packet's payload into wire segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Payload length of each segment, in bytes; the last segment may be shorter.
    size: usize,
    payload: usize,
    pub(crate) count: u32,
}

impl Segments {
    /// Computes the wire segments of a packet: a plain packet has one, and a super-packet with a GSO size has
    /// several.
    pub(crate) fn of(virtio: &[u8], packet: &[u8], parsed: &ParsedPacket) -> Self {
        let payload = packet.len() - parsed.headers;
        let whole = Self { size: payload, payload, count: 1 };
        if virtio.is_empty() || virtio[1] == GSO_NONE || parsed.flow.protocol != TCP {
            return whole;
        }
        match usize::from(u16::from_ne_bytes([virtio[4], virtio[5]])) {
            0 => whole,
            size => Self { size, payload, count: payload.div_ceil(size).max(1) as u32 },
        }
    }

    /// Returns the payload of segment number `index`, as offset and length within the packet.
    pub(crate) fn payload(&self, index: u32) -> (usize, usize) {
        let offset = index as usize * self.size;
        (offset, self.size.min(self.payload - offset))
    }
}

/// Merges the segments `first` to `last` of a super-packet into one packet. Writes the headers of that packet
/// to `to`, after a `virtio_net_hdr`, and returns their length.
pub(crate) fn merged_headers(
    read: &[u8],
    parsed: &ParsedPacket,
    segments: &Segments,
    first: u32,
    last: u32,
    to: &mut [u8; VIRTIO_HEADER + MOST_HEADERS],
) -> usize {
    let (offset, _) = segments.payload(first);
    let (last_offset, last_len) = segments.payload(last);
    let payload = last_offset + last_len - offset;
    let len = VIRTIO_HEADER + parsed.headers;
    to[..len].copy_from_slice(&read[..len]);
    let (virtio, headers) = to[..len].split_at_mut(VIRTIO_HEADER);
    let (ip, tcp) = headers.split_at_mut(parsed.ip_header);

    let ip_len = parsed.headers + payload;
    let pseudo = if ip[0] >> 4 == 4 {
        put16(ip, 2, ip_len as u16);
        put16(ip, 4, be16(ip, 4).wrapping_add(first as u16));
        put16(ip, 10, 0);
        put16(ip, 10, !fold(sum(ip)));
        sum(&ip[12..20])
    } else {
        put16(ip, 4, (ip_len - ip.len()) as u16);
        sum(&ip[8..40])
    };
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    if last + 1 < segments.count {
        tcp[13] &= !FIN_PSH;
    }
    if first > 0 {
        tcp[13] &= !CWR;
    }
    // The checksum field contains the uncomplemented sum of the pseudo-header, as it does when the kernel leaves the
    // checksum to a network card.
    put16(tcp, TCP_CHECKSUM, fold(pseudo + u64::from(TCP) + (tcp.len() + payload) as u64));

    virtio[0] = NEEDS_CSUM;
    if payload <= segments.size {
        virtio[1] = GSO_NONE;
        virtio[4..6].fill(0);
    }
    virtio[2..4].copy_from_slice(&(parsed.headers as u16).to_ne_bytes());
    virtio[6..8].copy_from_slice(&(parsed.ip_header as u16).to_ne_bytes());
    virtio[8..10].copy_from_slice(&(TCP_CHECKSUM as u16).to_ne_bytes());
    len
}

/// Writes the headers of wire segment number `index` to `to`, truncated to the length of `to`, and returns
/// the number of bytes. If the kernel left the checksum to the network card, it is completed here, as in a
/// capture behind the card.
pub(crate) fn wire_headers(
    (virtio, packet): (&[u8], &[u8]),
    parsed: &ParsedPacket,
    segments: &Segments,
    index: u32,
    to: &mut [u8],
) -> usize {
    let kept = parsed.headers.min(to.len());
    let left_to_card = virtio.first().is_some_and(|flags| flags & NEEDS_CSUM != 0);
    let whole_header = parsed.headers >= parsed.ip_header + TCP_CHECKSUM + 4;
    if !left_to_card || parsed.flow.protocol != TCP || !whole_header {
        to[..kept].copy_from_slice(&packet[..kept]);
        return kept;
    }
    let mut read = [0; VIRTIO_HEADER + MOST_HEADERS];
    read[..VIRTIO_HEADER].copy_from_slice(virtio);
    read[VIRTIO_HEADER..][..parsed.headers].copy_from_slice(&packet[..parsed.headers]);
    let mut merged = [0; VIRTIO_HEADER + MOST_HEADERS];
    merged_headers(&read, parsed, segments, index, index, &mut merged);
    let headers = &mut merged[VIRTIO_HEADER..][..parsed.headers];
    let tcp = &mut headers[parsed.ip_header..];
    let (offset, len) = segments.payload(index);
    let payload = &packet[parsed.headers..][offset..offset + len];
    put16(tcp, TCP_CHECKSUM, !fold(sum(tcp) + sum(payload)));
    to[..kept].copy_from_slice(&headers[..kept]);
    kept
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
