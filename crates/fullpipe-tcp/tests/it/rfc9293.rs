//! Tests of a stack against the requirements of RFC 9293 for the interfaces to the application and to IP. The
//! scripts test single connections.

use std::net::SocketAddr;

use crate::pair::Pair;
use etherparse::{IpNumber, Ipv4Header, Ipv4Options};
use fullpipe_tcp::stack::ConnectError;
use fullpipe_tcp::wire::{Checksums, Dscp, Flags, Headers, IpChoices, Packet, Segment, SeqNum, SynOptions};
use fullpipe_tcp::{Config, State};
use fullpipe_units::Ecn;

fn syn() -> Segment {
    Segment {
        seq: SeqNum(77),
        ack: SeqNum(0),
        len: 0,
        window: 65_535,
        flags: Flags::SYN,
        timestamps: None,
        syn: Some(SynOptions { mss: 1_460, window_scale: None, sack_permitted: true }),
        sack: Default::default(),
        ecn: Ecn::NotEct,
    }
}

fn packet(segment: &Segment, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    Headers::between(segment, from, to).expect("one version").as_bytes().to_vec()
}

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("a socket")
}

/// RFC 9293 MUST-41 and MUST-42: a second listener on a socket is an error and leaves the first listener
/// unchanged. A stack may listen on the local port of a connection that is being opened.
#[test]
fn listening_disturbs_nobody() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[1].listen(there, Config::default(), 4).expect("free");
    assert_eq!(pair.ends[1].listen(there, Config::default(), 1), Err(ConnectError::InUse));
    let id = pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    pair.ends[0].listen(here, Config::default(), 4).expect("a connection from there is no listener");
    pair.exchange();
    assert_eq!(pair.ends[0].connection(id).map(|connection| connection.state()), Some(State::Established));
    let back = SocketAddr::new(there.ip(), 50_000);
    let other = pair.ends[1].connect(pair.now, back, here, Config::default()).expect("free");
    pair.exchange();
    pair.exchange();
    assert_eq!(pair.ends[1].connection(other).map(|connection| connection.state()), Some(State::Established));
}

/// RFC 9293 MUST-43 to MUST-45: the caller chooses the local address, which must belong to the stack. Every
/// reply comes from the address that the peer used.
#[test]
fn the_local_address_stays() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    let second = socket("198.18.0.9:80");
    pair.ends[1].add_address(second.ip());
    pair.ends[1].listen(second, Config::default(), 4).expect("ours");
    let stranger = socket("192.0.2.1:1000");
    assert_eq!(
        pair.ends[0].connect(pair.now, stranger, there, Config::default()),
        Err(ConnectError::NotOurs)
    );
    for (to, flags) in [(second, Flags::SYN.with(Flags::ACK)), (there, Flags::RST.with(Flags::ACK))] {
        pair.ends[1].handle_packet(pair.now, &packet(&syn(), here, to), Checksums::Verify);
        let answers = pair.sent(1);
        let answer = Packet::parse(&answers[0], Checksums::Verify).expect("ours");
        assert_eq!((answers.len(), answer.from, answer.to), (1, to, here));
        assert_eq!(answer.segment.flags, flags);
    }
}

/// RFC 9293 MUST-46: an attempt to connect to a multicast or broadcast address is an error.
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

/// RFC 9293 MUST-48 and MUST-49: the application chooses the DSCP and the hop limit of every packet of its
/// connection.
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

/// RFC 9293 MUST-30 to MUST-33 and MUST-62, in part: the stack delivers urgent data in order, like other
/// data.
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
    // The urgent pointer contains the offset of the octet after the urgent data. The checksum is updated as
    // in RFC 1624.
    bytes[39] = 3;
    let checksum = u16::from_be_bytes([bytes[36], bytes[37]]);
    bytes[36..38].copy_from_slice(&(checksum.wrapping_sub(3)).to_be_bytes());
    pair.ends[1].handle_packet(pair.now, &bytes, Checksums::Verify);
    let peer = pair.ends[1].accept(there).expect("connected");
    let mut read = [0; 10];
    assert_eq!(pair.ends[1].read(pair.now, peer, &mut read), 6);
    assert_eq!(&read[..6], b"urgent");
}

/// RFC 9293 MUST-57 and MUST-63: the stack does not reply to a segment whose source or destination is not the
/// address of a single host.
#[test]
fn nothing_is_answered_but_one_host() {
    for (v6, from, to) in [
        (false, "198.18.0.1:1000", "255.255.255.255:80"),
        (false, "198.18.0.1:1000", "224.0.0.1:80"),
        (false, "224.0.0.1:1000", "198.18.0.2:80"),
        (false, "255.255.255.255:1000", "198.18.0.2:80"),
        (false, "0.0.0.0:1000", "198.18.0.2:80"),
        (false, "198.18.0.1:0", "198.18.0.2:80"),
        (true, "[2001:db8::1]:1000", "[ff02::1]:80"),
        (true, "[ff02::1]:1000", "[2001:db8::2]:80"),
        (true, "[::]:1000", "[2001:db8::2]:80"),
    ] {
        let mut pair = Pair::new(v6);
        let there = pair.addresses[1];
        pair.ends[1].listen(there, Config::default(), 4).expect("free");
        // Port 80 has a listener. Port 81 has none, and the stack would reply with a reset.
        for port in [80, 81] {
            let to = SocketAddr::new(socket(to).ip(), port);
            pair.ends[1].handle_packet(pair.now, &packet(&syn(), socket(from), to), Checksums::Verify);
        }
        assert!(pair.sent(1).is_empty(), "{from} to {to}");
        assert_eq!((pair.ends[1].counters().ignored, pair.ends[1].connections()), (2, 0));
    }
}

/// RFC 9293 MUST-58 and MUST-59: the stack handles all segments that have arrived before it sends a reply,
/// and one ACK covers all of them.
#[test]
fn one_ack_for_what_has_arrived() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[1].listen(there, Config::default(), 4).expect("free");
    let id = pair.ends[0].connect(pair.now, here, there, Config::default()).expect("free");
    pair.exchange();
    pair.ends[0].write(id, &[1; 14_480]);
    let packets = pair.sent(0);
    assert_eq!(packets.len(), 10);
    for packet in packets {
        pair.ends[1].handle_packet(pair.now, &packet, Checksums::Verify);
    }
    let answers = pair.sent(1);
    assert_eq!(answers.len(), 1);
    let connection = pair.ends[0].connection(id).expect("there");
    assert_eq!(connection.acknowledged(), 0);
    pair.ends[0].handle_packet(pair.now, &answers[0], Checksums::Verify);
    assert_eq!(pair.ends[0].connection(id).expect("there").acknowledged(), 14_480);
}

/// RFC 9293 MUST-50 to MUST-53: the parser skips IP options, including source routes. Replies go to the
/// source address.
#[test]
fn ip_options_are_skipped() {
    let mut pair = Pair::new(false);
    let [here, there] = pair.addresses;
    pair.ends[1].listen(there, Config::default(), 4).expect("free");
    // The IP options are a completed source route, an unknown option and the end of the option list.
    let route = [131, 7, 8, 203, 0, 113, 9, 158, 4, 0, 0, 0];
    let plain = packet(&syn(), here, there);
    let mut header =
        Ipv4Header::new(plain.len() as u16 - 20, 64, IpNumber::TCP, [198, 18, 0, 1], [198, 18, 0, 2])
            .expect("short enough");
    header.options = Ipv4Options::try_from(&route[..]).expect("whole words");
    header.set_payload_len(plain.len() - 20).expect("short enough");
    header.header_checksum = header.calc_header_checksum();
    let mut bytes = Vec::new();
    header.write(&mut bytes).expect("room");
    bytes.extend_from_slice(&plain[20..]);
    pair.ends[1].handle_packet(pair.now, &bytes, Checksums::Verify);
    let answers = pair.sent(1);
    let (answer, _) = Ipv4Header::from_slice(&answers[0]).expect("a header");
    assert_eq!((answer.destination, answer.options.len()), ([198, 18, 0, 1], 0));
}
