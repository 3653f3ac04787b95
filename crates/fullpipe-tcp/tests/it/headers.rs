//! Tests that another implementation reads the encoded headers correctly, with all fields, options and
//! checksums.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use etherparse::{Ipv4Header, TcpHeader, TcpOptionElement};
use fullpipe_tcp::wire::{Flags, Headers, Packet, SackBlocks, Segment, SeqNum, SynOptions, Timestamps};
use fullpipe_units::Ecn;

const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 40_000);
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 5_201);

fn plain() -> Segment {
    Segment {
        seq: SeqNum(u32::MAX - 3),
        ack: SeqNum(0x89ab_cdef),
        len: 0,
        window: 0xfedc,
        flags: Flags::ACK,
        timestamps: None,
        syn: None,
        sack: SackBlocks::default(),
        ecn: Ecn::Ect0,
    }
}

fn blocks(count: u32) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    for n in 0..count {
        assert!(blocks.push(SeqNum(1_000 * n), SeqNum(1_000 * n + 500)));
    }
    blocks
}

/// Returns segments with every combination of TCP options that a connection can send, both with and without
/// payload.
fn segments() -> Vec<Segment> {
    let timestamps = [None, Some(Timestamps { value: 0x0102_0304, echo: u32::MAX })];
    let mut all = Vec::new();
    for timestamps in timestamps {
        for window_scale in [None, Some(0), Some(14)] {
            for sack_permitted in [false, true] {
                for flags in [Flags::SYN, Flags::SYN.with(Flags::ACK)] {
                    let syn = Some(SynOptions { mss: 1_460, window_scale, sack_permitted });
                    all.push(Segment { syn, timestamps, flags, ..plain() });
                }
            }
        }
        for count in 0..=(if timestamps.is_some() { 3 } else { 4 }) {
            for len in [0, 1, 1_447, 1_448] {
                let flags = Flags::ACK.with(if len == 0 { Flags::FIN } else { Flags::PSH });
                all.push(Segment { sack: blocks(count), timestamps, flags, len, ..plain() });
            }
        }
    }
    all.push(Segment { flags: Flags::RST, ..plain() });
    all
}

#[test]
fn another_reader_finds_every_field_and_right_checksums() {
    let all = segments();
    assert_eq!(all.len(), 24 + 16 + 20 + 1);
    for segment in all {
        let headers = Headers::of(&segment, FROM, TO);
        let bytes = headers.as_bytes();
        assert_eq!(bytes.len(), segment.header_len() as usize, "{segment:?}");
        let (ip, rest) = Ipv4Header::from_slice(bytes).expect("IPv4");
        assert_eq!((ip.source, ip.destination), (FROM.ip().octets(), TO.ip().octets()));
        assert_eq!(u32::from(ip.total_len), segment.header_len() + segment.len);
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        assert!(ip.dont_fragment && ip.protocol.0 == 6);

        let (tcp, rest) = TcpHeader::from_slice(rest).expect("TCP");
        assert_eq!(rest, &[]);
        assert_eq!((tcp.source_port, tcp.destination_port), (FROM.port(), TO.port()));
        assert_eq!((tcp.sequence_number, tcp.window_size), (segment.seq.0, segment.window));
        assert_eq!(tcp.acknowledgment_number, if tcp.ack { segment.ack.0 } else { 0 });
        let has = |flag| segment.flags.has(flag);
        let flags = [Flags::SYN, Flags::ACK, Flags::FIN, Flags::PSH, Flags::RST].map(has);
        assert_eq!([tcp.syn, tcp.ack, tcp.fin, tcp.psh, tcp.rst], flags);
        let payload = vec![0; segment.len as usize];
        assert_eq!(Ok(tcp.checksum), tcp.calc_checksum_ipv4(&ip, &payload), "{segment:?}");
        assert_eq!(options(&tcp), wanted(&segment));
    }
}

fn options(tcp: &TcpHeader) -> Vec<TcpOptionElement> {
    let options = tcp.options_iterator().map(|option| option.expect("a valid option"));
    options.filter(|option| *option != TcpOptionElement::Noop).collect()
}

fn wanted(segment: &Segment) -> Vec<TcpOptionElement> {
    let mut options = Vec::new();
    if let Some(syn) = segment.syn {
        options.push(TcpOptionElement::MaximumSegmentSize(syn.mss));
        options.extend(syn.sack_permitted.then_some(TcpOptionElement::SelectiveAcknowledgementPermitted));
    }
    options.extend(segment.timestamps.map(|at| TcpOptionElement::Timestamp(at.value, at.echo)));
    options.extend(segment.syn.and_then(|syn| syn.window_scale).map(TcpOptionElement::WindowScale));
    let mut blocks = segment.sack.iter().map(|(start, end)| (start.0, end.0));
    if let Some(first) = blocks.next() {
        let rest = [blocks.next(), blocks.next(), blocks.next()];
        options.push(TcpOptionElement::SelectiveAcknowledgement(first, rest));
    }
    options
}

/// Together with timestamps, four SACK blocks do not fit into the header. The encoder therefore drops the
/// last block, and the header remains valid. A kernel never sends four blocks with timestamps.
#[test]
fn blocks_without_room_are_left_out() {
    let timestamps = Some(Timestamps { value: 1, echo: 2 });
    let headers = Headers::of(&Segment { sack: blocks(4), timestamps, ..plain() }, FROM, TO);
    let (_, rest) = Ipv4Header::from_slice(headers.as_bytes()).expect("IPv4");
    let (tcp, _) = TcpHeader::from_slice(rest).expect("TCP");
    let three = Segment { sack: blocks(3), timestamps, ..plain() };
    assert_eq!(options(&tcp), wanted(&three));
}

/// RFC 2675 section 3: the length field of a jumbogram is zero. Captures of Linux BIG TCP contain such
/// packets, with the option or, from newer kernels, without it. The parser once read them as headers without
/// payload.
#[test]
fn the_length_of_a_jumbogram_is_that_on_the_wire() {
    const PAYLOAD: usize = 180_000;
    let end = |port| SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0);
    let mut bytes = Headers::of_v6(&plain(), end(40_000), end(5_201)).as_bytes().to_vec();
    bytes[4..6].fill(0);
    let mut optioned = bytes.clone();
    let option = [&[6, 0, 0xc2, 4][..], &(PAYLOAD as u32 + 20 + 8).to_be_bytes()].concat();
    optioned[6] = 0;
    optioned.splice(40..40, option);
    for headers in [bytes, optioned] {
        let packet = Packet::parse_cut(&headers, headers.len() + PAYLOAD).expect("a packet");
        assert_eq!((packet.segment.len as usize, packet.segment.ack), (PAYLOAD, plain().ack));
        assert!(Packet::parse_cut(&headers, headers.len()).is_err(), "no jumbogram is that short");
    }
}
