//! Tests of the response to ICMP error messages that another implementation has encoded.

use crate::pair::Pair;
use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, icmpv4, icmpv6};
use fullpipe_tcp::wire::{Checksums, IcmpError, IcmpMessage, PacketError};
use fullpipe_tcp::{Config, Event, State};

/// Returns a router's ICMP message about `packet`, which quotes the IP header and eight more octets.
fn message(packet: &[u8], v4: Icmpv4Type, v6: Icmpv6Type) -> Vec<u8> {
    let mut bytes = Vec::new();
    if packet[0] >> 4 == 4 {
        let to = [packet[12], packet[13], packet[14], packet[15]];
        let builder = PacketBuilder::ipv4([203, 0, 113, 9], to, 64).icmpv4(v4);
        builder.write(&mut bytes, &packet[..28]).expect("room");
    } else {
        let to = std::array::from_fn(|i| packet[8 + i]);
        let router = [0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let builder = PacketBuilder::ipv6(router, to, 64).icmpv6(v6);
        builder.write(&mut bytes, &packet[..48]).expect("room");
    }
    bytes
}

fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    let v4 = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
    message(packet, Icmpv4Type::DestinationUnreachable(v4), Icmpv6Type::PacketTooBig { mtu: mtu.into() })
}

fn unreachable(packet: &[u8]) -> Vec<u8> {
    message(
        packet,
        Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Host),
        Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Address),
    )
}

fn refused(packet: &[u8]) -> Vec<u8> {
    message(
        packet,
        Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Port),
        Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Port),
    )
}

/// RFC 9293 MUST-54: over either IP version, an ICMP message reaches the connection whose segment it quotes,
/// and that connection reduces its segment size.
#[test]
fn a_router_makes_segments_smaller() {
    for (v6, mss) in [(false, 1348), (true, 1328)] {
        let mut pair = Pair::new(v6);
        let [here, there] = pair.addresses;
        pair.ends[1].listen(there, Config::default(), 4).expect("free");
        let id = pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
        pair.exchange();
        assert_eq!(pair.ends[0].connection(id).map(|c| c.state()), Some(State::Established));
        pair.ends[0].write(id, &[7; 5_000]);
        let packets = pair.sent(0);
        assert_eq!(packets[0].len(), 1_500);
        // The forged message has a wrong checksum and quotes a segment that belongs to no connection.
        let mut forged = too_big(&packets[0], 1_400);
        forged[if v6 { 40 + 8 + 40 } else { 20 + 8 + 20 }] ^= 1;
        pair.ends[0].handle_packet(pair.now, &forged, Checksums::Verify);
        pair.ends[0].handle_packet(pair.now, &forged, Checksums::Skip);
        assert_eq!(
            (pair.ends[0].counters().refused, pair.ends[0].counters().ignored),
            (1, 1),
            "a wrong checksum, and no such connection"
        );
        assert!(pair.sent(0).is_empty());
        pair.ends[0].handle_packet(pair.now, &too_big(&packets[0], 1_400), Checksums::Verify);
        assert_eq!(pair.ends[0].counters().complaints, 1);
        let again = pair.sent(0);
        assert_eq!(again[0].len(), 1_400);
        assert_eq!(pair.ends[0].connection(id).map(|c| c.mss()), Some(mss));
        // Segments that were small enough have passed the router.
        for packet in packets.into_iter().filter(|packet| packet.len() <= 1_400).chain(again) {
            pair.ends[1].handle_packet(pair.now, &packet, Checksums::Verify);
        }
        let peer = pair.ends[1].accept(there).expect("connected");
        let mut read = [0; 6_000];
        assert_eq!(pair.ends[1].read(pair.now, peer, &mut read), 5_000);
    }
}

/// RFC 9293 MUST-56 and SHLD-26: a connection attempt survives a temporary path failure. If no process
/// listens on the port, the attempt fails.
#[test]
fn a_host_refuses_a_connection() {
    for v6 in [false, true] {
        let mut pair = Pair::new(v6);
        let [here, there] = pair.addresses;
        let id = pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
        let syn = pair.sent(0).remove(0);
        pair.ends[0].handle_packet(pair.now, &unreachable(&syn), Checksums::Verify);
        assert_eq!(pair.ends[0].poll_event(), Some((id, Event::SoftError)));
        let connection = pair.ends[0].connection(id).expect("there");
        assert_eq!(
            (connection.state(), connection.soft_error()),
            (State::SynSent, Some(IcmpError::Unreachable))
        );
        pair.ends[0].handle_packet(pair.now, &refused(&syn), Checksums::Verify);
        assert_eq!(pair.ends[0].poll_event(), Some((id, Event::Aborted)));
        let connection = pair.ends[0].connection(id).expect("there");
        assert_eq!((connection.state(), connection.soft_error()), (State::Closed, Some(IcmpError::Refused)));
    }
}

/// RFC 9293 MUST-55: the stack ignores source quench messages, and messages that are not errors, regardless
/// of the packet that they quote. It rejects truncated messages.
#[test]
fn other_messages_mean_nothing() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    let syn = pair.sent(0).remove(0);
    let v6 = Icmpv6Type::PacketTooBig { mtu: 0 };
    for type_u8 in [4, 5, 8, 0, 13, 200] {
        let unknown = Icmpv4Type::Unknown { type_u8, code_u8: 0, bytes5to8: [0; 4] };
        let bytes = message(&syn, unknown, v6);
        assert_eq!(IcmpMessage::parse(&bytes, Checksums::Verify), Ok(None), "type {type_u8}");
        pair.ends[0].handle_packet(pair.now, &bytes, Checksums::Verify);
    }
    assert_eq!((pair.ends[0].counters().ignored, pair.ends[0].poll_event()), (6, None));
    let whole = refused(&syn);
    for len in 0..whole.len() {
        assert!(IcmpMessage::parse(&whole[..len], Checksums::Verify).is_err(), "{len} octets");
    }
    assert_eq!(IcmpMessage::parse(&syn, Checksums::Verify), Err(PacketError::Protocol(6)));
}

/// RFC 1191 section 7.1: if an old router does not report the MTU, the connection uses the next smaller
/// common MTU.
#[test]
fn an_old_router_names_no_mtu() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    let mut packet = pair.sent(0).remove(0);
    for (length, mtu) in [(1_500_u16, 1_492), (1_492, 1_006), (60, 68), (40_000, 32_000)] {
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        let error = IcmpMessage::parse(&too_big(&packet, 0), Checksums::Verify).expect("read");
        assert_eq!(error.map(|error| error.error), Some(IcmpError::TooBig(mtu)), "{length}");
    }
}
