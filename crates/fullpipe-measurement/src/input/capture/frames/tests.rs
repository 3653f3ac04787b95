//! Compares the reader with a library for the same formats, and tests it with damaged files.

use std::io::{self, Read};

use fullpipe_units::draw;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};

use super::*;

/// Compared values of a packet: timestamp in nanoseconds, bytes, length on the wire.
type Packet = (u64, Vec<u8>, usize);

const ORDERS: [Order; 2] = [Order::Little, Order::Big];
/// Number of packets per section, or in a pcap file.
const PACKETS: u64 = 60;
/// Number of blocks in the two sections except the last block: section header, two interfaces, the packets,
/// and two other blocks after every seventh packet.
const BLOCKS: usize = 2 * (3 + PACKETS as usize + 2 * (PACKETS as usize).div_ceil(7)) - 1;

fn u32_of(order: Order, number: u32) -> [u8; 4] {
    match order {
        Order::Little => number.to_le_bytes(),
        Order::Big => number.to_be_bytes(),
    }
}

fn u16_of(order: Order, number: u16) -> [u8; 2] {
    match order {
        Order::Little => number.to_le_bytes(),
        Order::Big => number.to_be_bytes(),
    }
}

fn u64_of(order: Order, number: u64) -> [u8; 8] {
    match order {
        Order::Little => number.to_le_bytes(),
        Order::Big => number.to_be_bytes(),
    }
}

fn block(file: &mut Vec<u8>, order: Order, kind: u32, body: &[u8]) {
    let length = (12 + body.len().next_multiple_of(4)) as u32;
    file.extend(u32_of(order, kind));
    file.extend(u32_of(order, length));
    file.extend(body);
    file.extend(vec![0; body.len().next_multiple_of(4) - body.len()]);
    file.extend(u32_of(order, length));
}

fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [u16_of(order, code), u16_of(order, value.len() as u16)].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn section(file: &mut Vec<u8>, order: Order) {
    let mut body = u32_of(order, 0x1a2b_3c4d).to_vec();
    body.extend(u16_of(order, 1));
    body.extend([0, 0]);
    body.extend([0xff; 8]);
    block(file, order, 0x0a0d_0d0a, &body);
}

fn interface(file: &mut Vec<u8>, order: Order, options: &[Vec<u8>]) {
    let mut body = u16_of(order, 101).to_vec();
    body.extend([0; 6]);
    body.extend(options.concat());
    block(file, order, 1, &body);
}

fn packet_body(order: Order, interface: u32, ticks: u64, bytes: &[u8], original: u32) -> Vec<u8> {
    let numbers = [interface, (ticks >> 32) as u32, ticks as u32, bytes.len() as u32, original];
    let mut body: Vec<u8> = numbers.into_iter().flat_map(|number| u32_of(order, number)).collect();
    body.extend(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
    body
}

/// Returns the bytes of a packet; its length and content are derived from its number.
fn octets(number: u64) -> Vec<u8> {
    (0..draw(number, 0, 0) % 90).map(|at| draw(number, 1, at) as u8).collect()
}

/// Returns two sections with different byte orders, interfaces with different clocks, irrelevant blocks, and
/// packets with options.
fn pcapng() -> Vec<u8> {
    let mut file = Vec::new();
    for order in ORDERS {
        section(&mut file, order);
        interface(&mut file, order, &[]);
        interface(&mut file, order, &[option(order, 2, b"eth0"), option(order, 9, &[9])]);
        for number in 0..PACKETS {
            let bytes = octets(number);
            let original = bytes.len() as u32 + (number % 3) as u32 * 1_000;
            let ticks = 1_700_000_000_000_000 + number * 1_000;
            let mut body = packet_body(order, (number % 2) as u32, ticks, &bytes, original);
            if number % 5 == 0 {
                body.extend(option(order, 2, &[0, 0, 0, 1]));
                body.extend(option(order, 0, &[]));
            }
            block(&mut file, order, 6, &body);
            if number % 7 == 0 {
                block(&mut file, order, 4, &[0; 4]);
                block(&mut file, order, 0x0bad, &octets(number + 1_000));
            }
        }
    }
    file
}

fn pcap(magic: [u8; 4], order: Order) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.extend([u16_of(order, 2), u16_of(order, 4)].concat());
    file.extend([0; 8]);
    file.extend(u32_of(order, 262_144));
    file.extend(u32_of(order, 101));
    for number in 0..PACKETS {
        let bytes = octets(number);
        let numbers = [1_700_000_000 + number as u32, 999_999, bytes.len() as u32, bytes.len() as u32 + 7];
        file.extend(numbers.into_iter().flat_map(|number| u32_of(order, number)));
        file.extend(bytes);
    }
    file
}

fn files() -> Vec<Vec<u8>> {
    let mut files = vec![pcapng()];
    files.extend(
        PCAP.iter().zip([Order::Big, Order::Little].repeat(2)).map(|(&magic, order)| pcap(magic, order)),
    );
    files
}

fn ours(source: impl Read) -> (Vec<Packet>, Result<Ending, InputError>) {
    let mut packets = Vec::new();
    let ending = each(source, |frame| packets.push((frame.at.as_nanos(), frame.ip.to_vec(), frame.len)));
    (packets, ending)
}

/// Returns the packets that the library reads, up to the end or to its first error; the flag is true if it
/// reached the end.
fn theirs(file: &[u8]) -> (Vec<Packet>, bool) {
    let mut reader: Box<dyn PcapReaderIterator> = if file.starts_with(&PCAPNG) {
        match PcapNGReader::new(1 << 16, file) {
            Ok(reader) => Box::new(reader),
            Err(_) => return (Vec::new(), false),
        }
    } else {
        match LegacyPcapReader::new(1 << 16, file) {
            Ok(reader) => Box::new(reader),
            Err(_) => return (Vec::new(), false),
        }
    };
    let (mut packets, mut ticks_per_second) = (Vec::new(), Vec::new());
    loop {
        let (read, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().expect("a slice can be read");
                continue;
            }
            Err(PcapError::Eof) => return (packets, true),
            Err(_) => return (packets, false),
        };
        let nanos = |ticks: u64, per_second: u64| ticks * (1_000_000_000 / per_second);
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                ticks_per_second.push(if header.is_nanosecond_precision() {
                    1_000_000_000
                } else {
                    1_000_000
                });
            }
            PcapBlockOwned::Legacy(packet) => {
                let at = u64::from(packet.ts_sec) * 1_000_000_000;
                let at = at + nanos(packet.ts_usec.into(), ticks_per_second[0]);
                packets.push((at, packet.data.to_vec(), packet.origlen as usize));
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => ticks_per_second.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                ticks_per_second.push(10u64.pow(interface.if_tsresol.into()));
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let at = nanos(ticks, ticks_per_second[packet.if_id as usize]);
                let bytes = packet.data[..packet.caplen as usize].to_vec();
                packets.push((at, bytes, packet.origlen as usize));
            }
            PcapBlockOwned::NG(_) => {}
        }
        reader.consume(read);
    }
}

/// For every variant of both formats, this reader and the library return the same packets.
#[test]
fn reads_what_the_library_reads() {
    for file in files() {
        let (packets, ending) = ours(&file[..]);
        let (expected, whole) = theirs(&file);
        assert!(whole && packets.len() >= 60, "{} packets", packets.len());
        assert_eq!(packets, expected);
        assert_eq!(ending.map(|ending| ending.truncated).ok(), Some(false));
    }
}

/// Source that returns one byte at a time, like a slow pipe, and is interrupted at every other read.
struct Slow<'a>(&'a [u8], bool);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.0.read(&mut buffer[..1])
    }
}

/// The packets do not depend on the size of each read, and a truncated file returns all packets before its
/// end.
#[test]
fn reads_and_cuts_anywhere_lose_nothing() {
    for file in files() {
        let (whole, _) = ours(&file[..]);
        assert_eq!(ours(Slow(&file, false)).0, whole);
        let mut between_two = 0;
        for end in 0..file.len() {
            let (packets, ending) = ours(&file[..end]);
            assert_eq!(packets, whole[..packets.len()], "cut at {end}");
            match ending {
                Ok(Ending { truncated, .. }) => between_two += usize::from(!truncated),
                Err(error) => assert!(error.message.contains(ENDS_EARLY), "{}", error.message),
            }
        }
        // At any other position the file is truncated, or ends within its header, and is reported as
        // truncated.
        assert_eq!(between_two, if file.starts_with(&PCAPNG) { BLOCKS } else { PACKETS as usize });
    }
}

/// A changed byte does not create packets, and damage that is rejected has a one-line error.
#[test]
fn damage_is_read_or_refused() {
    for (number, file) in files().into_iter().enumerate() {
        for seed in 0..400 {
            let mut spoilt = file.clone();
            let at = draw(seed, number as u64, 0) as usize % spoilt.len();
            spoilt[at] ^= 1 + (draw(seed, number as u64, 1) % 255) as u8;
            let (packets, ending) = ours(&spoilt[..]);
            assert!(packets.len() <= 121, "{} packets", packets.len());
            if let Err(error) = ending {
                assert!(!error.message.is_empty() && !error.message.contains('\n'));
            }
        }
    }
}

/// A block with an impossible length, or with two different lengths, is reported as damage. The reader does
/// not read on to the end of a block that is longer than the maximum packet length.
#[test]
fn lengths_that_cannot_be() {
    let refused = |file: &[u8]| ours(file).1.expect_err("damage").message;
    let whole = pcapng();
    for (length, said) in [
        (8, "the length of a block is invalid"),
        (29, "is invalid"),
        (u32::MAX, "longer than the maximum packet length"),
    ] {
        let mut file = whole.clone();
        file[4..8].copy_from_slice(&u32::to_le_bytes(length));
        assert!(refused(&file).contains(said), "{length}: {}", refused(&file));
    }
    let mut file = whole.clone();
    file[24] ^= 4;
    assert!(refused(&file).contains("the two lengths of a block differ"), "{}", refused(&file));
    let mut file = Vec::new();
    section(&mut file, Order::Big);
    block(&mut file, Order::Big, 6, &packet_body(Order::Big, 0, 0, &[0x45], 1));
    assert!(refused(&file).contains("refers to an unknown interface"), "{}", refused(&file));
    let mut file = pcap(PCAP[1], Order::Little);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused(&file).contains("longer than the maximum packet length"), "{}", refused(&file));
}

/// Values that the library does not return: packets in the obsolete block, offsets of an interface clock,
/// packets without a timestamp, and the latest drop count of each interface.
#[test]
fn what_else_a_section_says() {
    for order in ORDERS {
        let mut file = Vec::new();
        section(&mut file, order);
        interface(&mut file, order, &[option(order, 14, &u64_of(order, 100))]);
        interface(&mut file, order, &[]);
        let mut body = packet_body(order, 0, 1_000_000, &[0x45, 0], 60);
        // In this block the drop count is stored where an enhanced packet block has the upper half of the
        // interface number.
        body[..4].copy_from_slice(&[u16_of(order, 0), u16_of(order, 7)].concat());
        block(&mut file, order, 2, &body);
        block(&mut file, order, 3, &[0; 8]);
        for (interface, code, count) in
            [(0, 5, 3), (0, 5, 10), (0, 7, 9), (1, 7, 5), (1, 5, u64::MAX), (9, 5, 1)]
        {
            let mut body = u32_of(order, interface).to_vec();
            body.extend([0; 8]);
            body.extend(option(order, code, &u64_of(order, count)));
            block(&mut file, order, 5, &body);
        }
        let (packets, ending) = ours(&file[..]);
        assert_eq!(packets, [(101_000_000_000, vec![0x45, 0], 60)]);
        assert_eq!(ending.ok(), Some(Ending { timeless: 1, dropped: 15, ..Ending::default() }));
    }
}

/// Fragments are counted, because they are the true reason why a capture on some tunnels has no connection.
#[test]
fn fragments_of_tcp_are_counted() {
    let v4 = |bits: u16, protocol: u8| {
        let [high, low] = bits.to_be_bytes();
        [[0x45, 0, 0, 40, 0, 1, high, low, 64, protocol].as_slice(), &[0; 10]].concat()
    };
    let v6 = |next: u8, inner: u8| {
        let header = [&[0x60, 0, 0, 0, 0, 8, next, 64][..], &[0; 32]].concat();
        [header.as_slice(), &[inner, 0, 0, 1, 0, 0, 0, 1]].concat()
    };
    for (ip, fragment) in [
        (v4(0x4000, 6), false),
        (v4(0x2000, 6), true),
        (v4(0x00b9, 6), true),
        (v4(0x2000, 17), false),
        (v6(44, 6), true),
        (v6(44, 17), false),
        (v6(6, 0), false),
        (vec![0x45; 3], false),
        (v6(44, 6)[..40].to_vec(), false),
    ] {
        assert_eq!(is_tcp_fragment(&ip), fragment, "{ip:02x?}");
        let mut file = Vec::new();
        section(&mut file, Order::Little);
        interface(&mut file, Order::Little, &[]);
        block(&mut file, Order::Little, 6, &packet_body(Order::Little, 0, 1, &ip, ip.len() as u32));
        assert_eq!(ours(&file[..]).1.map(|ending| ending.fragments), Ok(fragment.into()));
    }
}
