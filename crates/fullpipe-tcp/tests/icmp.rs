//! ICMP error messages on their way to a connection, written by another implementation.

use std::net::{IpAddr, SocketAddr};

use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, icmpv4, icmpv6};
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{ConnectError, Cut, IsnClock, Stack, StackConfig};
use fullpipe_tcp::wire::{
    Checksums, Complaint, Dscp, Flags, Headers, IcmpError, IpChoices, Packet, PacketError, Segment,
};
use fullpipe_tcp::{Config, Event, State};
use fullpipe_units::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Two stacks that are connected, and what the first says when it has something to.
struct Pair {
    ends: [Stack; 2],
    addresses: [SocketAddr; 2],
    now: Instant,
}

impl Pair {
    fn new(v6: bool) -> Self {
        let address = |host: u8| -> IpAddr {
            if v6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()].into() } else { [198, 18, 0, host].into() }
        };
        let addresses = [SocketAddr::new(address(1), 40_000), SocketAddr::new(address(2), 80)];
        let ends = addresses.map(|address| {
            let mut stack = Stack::new(StackConfig {
                key: Key::new([7; 16]),
                isn_clock: IsnClock::Linux,
                max_connections: 10,
                cut: Cut::Segments,
            });
            stack.add_address(address.ip());
            stack
        });
        Self { ends, addresses, now: Instant::ZERO + MS }
    }

    /// What the end sends now.
    fn sent(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(packet) = self.ends[end].poll_packet(self.now) {
            packets.push([packet.headers.as_bytes(), packet.payload[0], packet.payload[1]].concat());
        }
        packets
    }

    fn exchange(&mut self) {
        for end in [0, 1, 0, 1] {
            for packet in self.sent(end) {
                self.ends[1 - end].handle_packet(self.now, &packet, Checksums::Verify);
            }
        }
    }
}

/// A router's message about `packet`, of which it quotes the IP header and eight octets more.
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

/// MUST-54: the message reaches the connection whose segment it quotes, over either version, and its segments become smaller.
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
        // Nobody else's packet, and not one that was never sent.
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
        // What was small enough had got through.
        for packet in packets.into_iter().filter(|packet| packet.len() <= 1_400).chain(again) {
            pair.ends[1].handle_packet(pair.now, &packet, Checksums::Verify);
        }
        let peer = pair.ends[1].accept(there).expect("connected");
        let mut read = [0; 6_000];
        assert_eq!(pair.ends[1].read(pair.now, peer, &mut read), 5_000);
    }
}

/// MUST-56 and SHLD-26: opening outlives a path that is broken for now, and ends where nobody listens.
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
            (State::SynSent, Some(Complaint::Unreachable))
        );
        pair.ends[0].handle_packet(pair.now, &refused(&syn), Checksums::Verify);
        assert_eq!(pair.ends[0].poll_event(), Some((id, Event::Aborted)));
        let connection = pair.ends[0].connection(id).expect("there");
        assert_eq!((connection.state(), connection.soft_error()), (State::Closed, Some(Complaint::Refused)));
    }
}

/// MUST-55: source quench and what else is no error message means nothing, whatever it quotes; what is cut off is refused.
#[test]
fn other_messages_mean_nothing() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    let syn = pair.sent(0).remove(0);
    let v6 = Icmpv6Type::PacketTooBig { mtu: 0 };
    for type_u8 in [4, 5, 8, 0, 13, 200] {
        let unknown = Icmpv4Type::Unknown { type_u8, code_u8: 0, bytes5to8: [0; 4] };
        let bytes = message(&syn, unknown, v6.clone());
        assert_eq!(IcmpError::parse(&bytes, Checksums::Verify), Ok(None), "type {type_u8}");
        pair.ends[0].handle_packet(pair.now, &bytes, Checksums::Verify);
    }
    assert_eq!((pair.ends[0].counters().ignored, pair.ends[0].poll_event()), (6, None));
    let whole = refused(&syn);
    for len in 0..whole.len() {
        assert!(IcmpError::parse(&whole[..len], Checksums::Verify).is_err(), "{len} octets");
    }
    assert_eq!(IcmpError::parse(&syn, Checksums::Verify), Err(PacketError::Protocol(6)));
}

/// RFC 1191 section 7.1: an old router names no MTU; the next smaller usual one is taken.
#[test]
fn an_old_router_names_no_mtu() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    let mut packet = pair.sent(0).remove(0);
    for (length, mtu) in [(1_500_u16, 1_492), (1_492, 1_006), (60, 68), (40_000, 32_000)] {
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        let error = IcmpError::parse(&too_big(&packet, 0), Checksums::Verify).expect("read");
        assert_eq!(error.map(|error| error.complaint), Some(Complaint::TooBig(mtu)), "{length}");
    }
}

/// MUST-46: nobody connects to a group.
#[test]
fn a_group_is_no_peer() {
    let mut pair = Pair::new(false);
    let here = pair.addresses[0];
    for there in ["224.0.0.1:80", "255.255.255.255:80", "0.0.0.0:80", "198.18.0.2:0"] {
        let refused =
            pair.ends[0].connect(pair.now, here, there.parse().expect("a socket"), Config::default());
        assert_eq!(refused, Err(ConnectError::NotOneHost), "{there}");
    }
}

/// MUST-48 and MUST-49: class and hops are the application's choice, in every packet of its connection.
#[test]
fn the_application_chooses_class_and_hops() {
    for v6 in [false, true] {
        let mut pair = Pair::new(v6);
        let [here, there] = pair.addresses;
        let dscp = Dscp::new(46).expect("six bits");
        let config = Config { ip_choices: IpChoices { hop_limit: 9, dscp }, ..Config::default() };
        pair.ends[0].connect(pair.now, here, there, config).expect("free");
        let syn = pair.sent(0).remove(0);
        let (class, hops) = if v6 {
            let (header, _) = etherparse::Ipv6Header::from_slice(&syn).expect("a header");
            (header.traffic_class, header.hop_limit)
        } else {
            let (header, _) = etherparse::Ipv4Header::from_slice(&syn).expect("a header");
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            (header.dscp.value() << 2 | header.ecn.value(), header.time_to_live)
        };
        assert_eq!((class, hops), (46 << 2, 9));
    }
    assert_eq!(Dscp::new(64), None);
}

/// MUST-30 to MUST-33, as far as it goes: urgent data is data like any other, in its place.
#[test]
fn urgent_data_is_data() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[1].listen(there, Config::default(), 4).expect("free");
    let id = pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    pair.exchange();
    pair.ends[0].write(id, b"urgent");
    let packet = pair.sent(0).remove(0);
    let read = Packet::parse(&packet, Checksums::Verify).expect("ours");
    let segment =
        Segment { flags: Flags::from_bits(read.segment.flags.bits() | 0x20), ..read.segment.clone() };
    let mut headers = Headers::between(&segment, here, there).expect("one version");
    headers.cover([&packet[read.payload.clone()], &[]]);
    let mut bytes = [headers.as_bytes(), &packet[read.payload]].concat();
    // The pointer names the octet behind the urgent ones; the checksum follows by RFC 1624.
    bytes[39] = 3;
    let checksum = u16::from_be_bytes([bytes[36], bytes[37]]);
    bytes[36..38].copy_from_slice(&(checksum.wrapping_sub(3)).to_be_bytes());
    pair.ends[1].handle_packet(pair.now, &bytes, Checksums::Verify);
    let peer = pair.ends[1].accept(there).expect("connected");
    let mut read = [0; 10];
    assert_eq!(pair.ends[1].read(pair.now, peer, &mut read), 6);
    assert_eq!(&read[..6], b"urgent");
}
