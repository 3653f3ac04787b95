//! What a capture may hold without harm: more connections than are followed, octets that are no capture, a file that breaks off.

use std::net::SocketAddrV4;

use fullpipe_tcp::wire::{Headers, Segment};
use fullpipe_units::{Ecn, draw};

use super::course::Span;
use super::half::{Gap, Timed};
use super::told::Told;
use super::*;
use fullpipe_tcp::wire::{Flags, SackBlocks, SeqNum};

/// Of all that is remembered in sum.
const MOST_BYTES: usize = 160 << 20;

/// However many connections there are, what is remembered of all of them stays within bounds.
#[test]
fn many_connections_share_the_room() {
    let spans = size_of::<Span>();
    let remembered = size_of::<Told>() + size_of::<Gap>() + size_of::<Timed>() + 2 * size_of::<u64>();
    for connections in 1..=MOST_CONNECTIONS {
        let Room { spans: most, memory } = Room::for_each_of(connections);
        assert!(most >= 64 && memory.0 >= 16, "{connections}");
        let each = 2 * (most * spans + memory.0 * remembered);
        assert!(connections * each <= MOST_BYTES, "{connections} of {each} bytes each");
    }
}

fn pcap() -> Vec<u8> {
    let mut file = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 8]);
    file.extend([96, 0, 0, 0, 101, 0, 0, 0]);
    file
}

fn push(file: &mut Vec<u8>, micros: u64, from: SocketAddrV4, seq: u32) {
    let to = SocketAddrV4::new([198, 18, 0, 2].into(), 5_201);
    let segment = Segment {
        seq: SeqNum(seq),
        ack: SeqNum(1),
        len: 1_448,
        window: 1_000,
        flags: Flags::ACK,
        timestamps: None,
        syn: None,
        sack: SackBlocks::default(),
        ecn: Ecn::NotEct,
    };
    let headers = Headers::of(&segment, from, to);
    let bytes = headers.as_bytes();
    let (seconds, nanos) = (micros / 1_000_000, micros % 1_000_000 * 1_000);
    for number in [seconds as u32, nanos as u32, bytes.len() as u32, segment.header_len() + segment.len] {
        file.extend(number.to_le_bytes());
    }
    file.extend(bytes);
}

/// Of more connections than are followed the rest is counted and said; the largest is explained.
#[test]
fn more_connections_than_are_followed() {
    let mut file = pcap();
    let mut micros = 0;
    for number in 0..MOST_CONNECTIONS as u32 + 50 {
        let from = SocketAddrV4::new((0x0a00_0000 + number).into(), 40_000);
        for segment in 0..(if number == 7 { 20 } else { 1 }) {
            micros += 100;
            push(&mut file, micros, from, segment * 1_448);
        }
    }
    let capture = Capture::read(&file[..], None).expect("a capture");
    assert_eq!(capture.connections().len(), MOST_CONNECTIONS);
    assert_eq!(capture.connection().counts.data_segments, 20);
    let said = capture.notes().join("\n");
    assert!(
        said.contains("only the first 4096 connections are followed; 50 packets are of others"),
        "{said}"
    );
}

/// Octets changed at random, and a file that breaks off anywhere, are read or refused, and never a panic.
#[test]
fn any_octets_are_read_or_refused() {
    let mut file = pcap();
    for segment in 0..40 {
        let from = SocketAddrV4::new([198, 18, 0, 1].into(), 40_000);
        push(&mut file, 1_000 * u64::from(segment), from, segment * 1_448);
    }
    for seed in 0..2_000 {
        let mut spoilt = file.clone();
        for change in 0..1 + draw(seed, 0, 0) % 8 {
            let at = draw(seed, 1, change) as usize % spoilt.len();
            spoilt[at] = draw(seed, 2, change) as u8;
        }
        spoilt.truncate(spoilt.len() - draw(seed, 3, 0) as usize % 200);
        let _ = Capture::read(&spoilt[..], None).map(|capture| capture.classify(None));
    }
    for end in 0..file.len() {
        let _ = Capture::read(&file[..end], None);
    }
}
