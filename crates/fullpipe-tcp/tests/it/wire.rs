//! Tests that this crate and another parser (etherparse) agree on random packets. Each parser reads the
//! packets that the other has encoded, and both accept and reject the same damaged packets. This crate never
//! panics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TcpHeader, TcpOptionElement, TransportHeader};
use fullpipe_tcp::wire::{
    Checksums, Flags, Headers, Options, Packet, PacketError, SackBlocks, Segment, SeqNum, SynOptions,
    Timestamps,
};
use fullpipe_units::Ecn;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Returns a test configuration with a fixed seed, so that every machine tests the same packets and failures
/// are reproducible.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 4_000,
        rng_seed: RngSeed::Fixed(793),
        failure_persistence: None,
        ..Default::default()
    }
}

fn timestamps() -> impl Strategy<Value = Timestamps> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo })
}

fn sack(most: usize) -> impl Strategy<Value = SackBlocks> {
    vec(any::<(u32, u32)>(), 0..=most).prop_map(|blocks| {
        let mut sack = SackBlocks::default();
        for (start, end) in blocks {
            assert!(sack.push(SeqNum(start), SeqNum(end)));
        }
        sack
    })
}

/// Returns segments that fit into a header: a SYN with its options, or another segment with SACK blocks.
fn segments() -> impl Strategy<Value = Segment> {
    let syn = (any::<u16>(), option::of(0..=14u8), any::<bool>())
        .prop_map(|(mss, window_scale, sack_permitted)| SynOptions { mss, window_scale, sack_permitted });
    let numbers = (any::<u32>(), any::<u32>(), 0..1_600u32, any::<u16>(), any::<u8>(), any::<u8>());
    (numbers, option::of(timestamps()), option::of(syn), sack(3)).prop_map(
        |((seq, ack, len, window, flags, ecn), timestamps, syn, sack)| {
            let flags = Flags::from_bits(flags).without(Flags::SYN);
            Segment {
                seq: SeqNum(seq),
                // Without the ACK flag, the encoder writes zero into the acknowledgement field.
                ack: SeqNum(if flags.has(Flags::ACK) { ack } else { 0 }),
                len,
                window,
                flags: if syn.is_some() { flags.with(Flags::SYN) } else { flags },
                timestamps,
                syn,
                sack: if syn.is_some() { SackBlocks::default() } else { sack },
                ecn: Ecn::from_bits(ecn),
            }
        },
    )
}

fn sockets() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|both| both.map(|octets| IpAddr::from(Ipv4Addr::from(octets))));
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|both| both.map(|octets| IpAddr::from(Ipv6Addr::from(octets))));
    (prop_oneof![v4, v6], any::<[u16; 2]>())
        .prop_map(|([from, to], ports)| (SocketAddr::new(from, ports[0]), SocketAddr::new(to, ports[1])))
}

fn written(segment: &Segment, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let headers = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => Headers::of(segment, from, to),
        (SocketAddr::V6(from), SocketAddr::V6(to)) => Headers::of_v6(segment, from, to),
        _ => unreachable!("both of one version"),
    };
    let mut bytes = headers.as_bytes().to_vec();
    bytes.resize(bytes.len() + segment.len as usize, 0);
    bytes
}

/// Parses a packet with the other parser (etherparse). Returns the addresses, the TCP header and the payload.
fn read_by_another(bytes: &[u8]) -> Option<(SocketAddr, SocketAddr, TcpHeader, Vec<u8>)> {
    let headers = PacketHeaders::from_ip_slice(bytes).ok()?;
    let (from, to) = match headers.net? {
        NetHeaders::Ipv4(ip, _) => (IpAddr::from(ip.source), IpAddr::from(ip.destination)),
        NetHeaders::Ipv6(ip, _) => (IpAddr::from(ip.source), IpAddr::from(ip.destination)),
        _ => return None,
    };
    let Some(TransportHeader::Tcp(tcp)) = headers.transport else { return None };
    let payload = headers.payload.slice().to_vec();
    Some((SocketAddr::new(from, tcp.source_port), SocketAddr::new(to, tcp.destination_port), tcp, payload))
}

/// Checks that both parsers read the same values from a packet.
fn agree(packet: &Packet, bytes: &[u8]) -> Result<(), TestCaseError> {
    let Some((from, to, tcp, payload)) = read_by_another(bytes) else {
        return Err(TestCaseError::fail("the other reader refuses it"));
    };
    prop_assert_eq!((packet.from, packet.to), (from, to));
    prop_assert_eq!(&bytes[packet.payload.clone()], &payload[..]);
    let segment = &packet.segment;
    prop_assert_eq!(segment.len as usize, payload.len());
    prop_assert_eq!(
        (segment.seq.0, segment.ack.0, segment.window),
        (tcp.sequence_number, tcp.acknowledgment_number, tcp.window_size)
    );
    let flags = [tcp.fin, tcp.syn, tcp.rst, tcp.psh, tcp.ack, tcp.urg, tcp.ece, tcp.cwr];
    let bits = flags.iter().enumerate().map(|(bit, &set)| u8::from(set) << bit).sum::<u8>();
    prop_assert_eq!(segment.flags.bits(), bits);
    Ok(())
}

/// Returns the TCP options that the other parser reads, or `None` if it rejects them or does not know one of
/// them.
fn options_of_another(tcp: &TcpHeader) -> Option<Options> {
    let mut options = Options::default();
    for element in tcp.options_iterator() {
        match element.ok()? {
            TcpOptionElement::Noop => {}
            TcpOptionElement::MaximumSegmentSize(mss) => options.mss = Some(mss),
            TcpOptionElement::WindowScale(shift) => options.window_scale = Some(shift),
            TcpOptionElement::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
            TcpOptionElement::Timestamp(value, echo) => options.timestamps = Some(Timestamps { value, echo }),
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                options.sack = SackBlocks::default();
                for (start, end) in [Some(first)].into_iter().chain(rest).flatten() {
                    options.sack.push(SeqNum(start), SeqNum(end));
                }
            }
        }
    }
    Some(options)
}

/// Returns the octets of a TCP option as another host may write it, either one of the five known options or a
/// NOP.
fn foreign_option() -> impl Strategy<Value = Vec<u8>> {
    let blocks = vec(any::<[u8; 8]>(), 1..=4).prop_map(|blocks| {
        let mut bytes = vec![5, 2 + 8 * blocks.len() as u8];
        bytes.extend(blocks.concat());
        bytes
    });
    let with = |kind: u8| move |body: Vec<u8>| [&[kind, 2 + body.len() as u8], &body[..]].concat();
    prop_oneof![
        Just(vec![1]),
        any::<[u8; 2]>().prop_map(move |mss| with(2)(mss.to_vec())),
        any::<u8>().prop_map(move |shift| with(3)(vec![shift])),
        Just(vec![4, 2]),
        any::<[u8; 8]>().prop_map(move |stamps| with(8)(stamps.to_vec())),
        blocks,
    ]
}

/// Returns the options field of a header, with as many of the TCP options as fit into it. An end-of-list
/// option and zeros pad the field to 32-bit words (RFC 9293 section 3.1).
fn options_field(options: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for option in options {
        if bytes.len() + option.len() <= 40 {
            bytes.extend(option);
        }
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns a packet that another TCP implementation has encoded.
fn foreign(
    (from, to): (SocketAddr, SocketAddr),
    numbers: (u32, u32, u16, u8),
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let (seq, ack, window, bits) = numbers;
    let mut tcp = TcpHeader::new(from.port(), to.port(), seq, window);
    tcp.acknowledgment_number = ack;
    let set = |bit: u32| bits >> bit & 1 == 1;
    (tcp.fin, tcp.syn, tcp.rst, tcp.psh) = (set(0), set(1), set(2), set(3));
    (tcp.ack, tcp.urg, tcp.ece, tcp.cwr) = (set(4), set(5), set(6), set(7));
    tcp.set_options_raw(options).expect("at most forty octets");
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => PacketBuilder::ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("both of one version"),
    };
    let mut bytes = Vec::new();
    builder.tcp_header(tcp).write(&mut bytes, payload).expect("fits a packet");
    bytes
}

proptest! {
    #![proptest_config(config())]

    /// Both parsers read back every field and option, over IPv4 and IPv6. Checksums are correct, and the
    /// parsers detect one flipped bit in the data that the checksums cover.
    #[test]
    fn what_is_written_is_read(segment in segments(), (from, to) in sockets(), flip in any::<prop::sample::Index>()) {
        let bytes = written(&segment, from, to);
        let packet = Packet::parse(&bytes, Checksums::Verify);
        let expected = Packet {
            from, to, segment: segment.clone(), payload: bytes.len() - segment.len as usize..bytes.len(),
        };
        prop_assert_eq!(packet.as_ref(), Ok(&expected));
        agree(&expected, &bytes)?;
        let (.., tcp, payload) = read_by_another(&bytes).expect("agreed");
        let checksum = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => tcp.calc_checksum_ipv4_raw(from.octets(), to.octets(), &payload),
            (IpAddr::V6(from), IpAddr::V6(to)) => tcp.calc_checksum_ipv6_raw(from.octets(), to.octets(), &payload),
            _ => unreachable!("both of one version"),
        };
        prop_assert_eq!(checksum, Ok(tcp.checksum));
        let options = options_of_another(&tcp).expect("all are known");
        prop_assert_eq!(options.timestamps, segment.timestamps);
        prop_assert_eq!(options.sack, segment.sack);
        prop_assert_eq!(options.mss.unwrap_or(0), segment.syn.map_or(0, |syn| syn.mss));
        prop_assert_eq!(options.window_scale, segment.syn.and_then(|syn| syn.window_scale));
        prop_assert_eq!(options.sack_permitted, segment.syn.is_some_and(|syn| syn.sack_permitted));
        if from.is_ipv4() {
            prop_assert_eq!(bytes.len(), (segment.header_len() + segment.len) as usize);
        }

        // Flip only bits after the IP header, because IPv6 has no header checksum.
        let start = if from.is_ipv4() { 20 } else { 40 };
        let bit = flip.index((bytes.len() - start) * 8);
        let mut damaged = bytes;
        damaged[start + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Packet::parse(&damaged, Checksums::Verify).is_err());
    }

    /// This crate reads the same values from a packet as the implementation that encoded it.
    #[test]
    fn what_another_writes_is_read(
        sockets in sockets(),
        numbers in any::<(u32, u32, u16, u8)>(),
        options in vec(foreign_option(), 0..6),
        payload in vec(any::<u8>(), 0..200),
    ) {
        let options = options_field(&options);
        let bytes = foreign(sockets, numbers, &options, &payload);
        let packet = Packet::parse(&bytes, Checksums::Verify);
        prop_assert!(packet.is_ok(), "{:?}", packet);
        let packet = packet.expect("just looked");
        agree(&packet, &bytes)?;
        let (.., tcp, _) = read_by_another(&bytes).expect("agreed");
        let theirs = options_of_another(&tcp);
        prop_assert_eq!(Options::parse(&options).ok(), theirs);
        prop_assert_eq!(packet.segment.timestamps, theirs.and_then(|options| options.timestamps));
        prop_assert_eq!(packet.segment.syn.is_some(), numbers.3 & 2 != 0);
    }

    /// If the TCP options are random octets, both parsers reject the same octets. (The other parser stops at
    /// unknown options, whereas this crate skips them by their length.)
    #[test]
    fn random_options(options in vec(prop_oneof![0..10u8, any::<u8>()], 0..=10usize)) {
        let mut options = options;
        options.resize(options.len().next_multiple_of(4), 0);
        let mut tcp = TcpHeader::new(1, 2, 3, 4);
        tcp.set_options_raw(&options).expect("at most forty octets");
        let unknown = tcp.options_iterator().any(|element| {
            matches!(element, Err(etherparse::TcpOptionReadError::UnknownId(_)))
        });
        if !unknown {
            prop_assert_eq!(Options::parse(&options).ok(), options_of_another(&tcp));
        }
    }

    /// The test truncates and alters packets at random, and both parsers ignore checksums. The parser of this
    /// crate never panics, accepts no packet that the other parser rejects, and reads the same values from
    /// accepted packets.
    #[test]
    fn damaged_packets(
        sockets in sockets(),
        numbers in any::<(u32, u32, u16, u8)>(),
        options in vec(foreign_option(), 0..4),
        payload in vec(any::<u8>(), 0..40),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = foreign(sockets, numbers, &options_field(&options), &payload);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(packet) = Packet::parse(&bytes, Checksums::Skip) {
            agree(&packet, &bytes)?;
        }
    }
}

const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 40_000);
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 5_201);

fn data() -> Segment {
    Segment {
        seq: SeqNum(1),
        ack: SeqNum(2),
        len: 100,
        window: 1_000,
        flags: Flags::ACK.with(Flags::PSH),
        timestamps: Some(Timestamps { value: 3, echo: 4 }),
        syn: None,
        sack: SackBlocks::default(),
        ecn: Ecn::Ect0,
    }
}

/// For every rejection reason, the smallest change to a packet that causes it is reported with this reason.
#[test]
fn refusals_name_their_reason() {
    let good = written(&data(), FROM.into(), TO.into());
    let refused = |change: &dyn Fn(&mut Vec<u8>), checksums| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Packet::parse(&bytes, checksums).expect_err("refused")
    };
    let skip = |change: &dyn Fn(&mut Vec<u8>)| refused(change, Checksums::Skip);
    assert_eq!(skip(&|bytes| bytes.clear()), PacketError::Truncated);
    assert_eq!(skip(&|bytes| bytes.truncate(151)), PacketError::Truncated);
    assert_eq!(skip(&|bytes| bytes[0] = 0x55), PacketError::Version(5));
    assert_eq!(skip(&|bytes| bytes[0] = 0x44), PacketError::HeaderLength);
    assert_eq!(skip(&|bytes| bytes[6] = 0x20), PacketError::Fragment);
    assert_eq!(skip(&|bytes| bytes[7] = 1), PacketError::Fragment);
    assert_eq!(skip(&|bytes| bytes[9] = 17), PacketError::Protocol(17));
    assert_eq!(skip(&|bytes| bytes[32] = 0x40), PacketError::HeaderLength);
    assert_eq!(refused(&|bytes| bytes[8] -= 1, Checksums::Verify), PacketError::IpChecksum);
    assert_eq!(refused(&|bytes| bytes[151] = 1, Checksums::Verify), PacketError::TcpChecksum);
    assert!(matches!(skip(&|bytes| bytes[43] = 9), PacketError::Option(error) if error.kind == 8));
    assert!(
        Packet::parse(&[&good[..], &[0; 6]].concat(), Checksums::Verify).is_ok(),
        "an Ethernet frame's padding"
    );
}

/// The parser skips IPv6 extension headers before TCP. It rejects a packet with a fragment header.
#[test]
fn ipv6_extension_headers() {
    let socket = |last| SocketAddrV6::new(Ipv6Addr::new(0x2001, 0x2, 0, 0, 0, 0, 0, last), 5_201, 0, 0);
    let plain = written(&data(), socket(1).into(), socket(2).into());
    let with = |kind: u8, extension: &[u8]| {
        let mut bytes = plain.clone();
        bytes[6] = kind;
        let length = u16::from_be_bytes([bytes[4], bytes[5]]) + extension.len() as u16;
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        bytes.splice(40..40, extension.iter().copied());
        Packet::parse(&bytes, Checksums::Verify)
    };
    let hop_by_hop = [6, 0, 1, 4, 0, 0, 0, 0];
    let routing = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(with(0, &hop_by_hop).map(|packet| packet.segment), Ok(data()));
    assert_eq!(with(43, &[&routing[..], &hop_by_hop].concat()).map(|packet| packet.segment), Ok(data()));
    assert_eq!(with(44, &[6, 0, 0, 0, 0, 0, 0, 1]), Err(PacketError::Fragment));
    assert_eq!(with(17, &[]), Err(PacketError::Protocol(17)));
    assert_eq!(with(0, &[6, 200, 1, 4, 0, 0, 0, 0]), Err(PacketError::HeaderLength));
}
