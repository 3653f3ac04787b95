//! Captures for tests.

use std::net::SocketAddrV4;

use fullpipe_tcp::wire::{Flags, Headers, SackBlocks, Segment, SeqNum};
use fullpipe_units::{Ecn, draw};

/// Returns a pcap file without packets.
pub(super) fn pcap() -> Vec<u8> {
    let mut file = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 8]);
    file.extend([96, 0, 0, 0, 101, 0, 0, 0]);
    file
}

/// Adds a data segment sent by `from`.
pub(super) fn push(file: &mut Vec<u8>, micros: u64, from: SocketAddrV4, seq: u32) {
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

/// Returns a capture with forty segments.
pub(super) fn whole() -> Vec<u8> {
    let mut file = pcap();
    for segment in 0..40 {
        let from = SocketAddrV4::new([198, 18, 0, 1].into(), 40_000);
        push(&mut file, 1_000 * u64::from(segment), from, segment * 1_448);
    }
    file
}

/// Returns copies of the capture from `whole`, each with random bytes changed and up to 199 bytes cut off at
/// the end.
pub(crate) fn spoilt() -> impl Iterator<Item = Vec<u8>> {
    let file = whole();
    (0..500).map(move |seed| {
        let mut spoilt = file.clone();
        for change in 0..1 + draw(seed, 0, 0) % 8 {
            let at = draw(seed, 1, change) as usize % spoilt.len();
            spoilt[at] = draw(seed, 2, change) as u8;
        }
        spoilt.truncate(spoilt.len() - draw(seed, 3, 0) as usize % 200);
        spoilt
    })
}
