//! Captures that must not exhaust memory or panic: more connections than are tracked, bytes that are not a
//! capture, and a truncated file.

use std::net::SocketAddrV4;

use super::made::{pcap, push, spoilt, whole};
use super::one_way::{Gap, TimedOffset};
use super::sender_view::AckInfo;
use super::timeline::Span;
use super::*;

/// Maximum memory for all connections, in bytes.
const MOST_BYTES: usize = 160 << 20;

/// For any number of connections, their total memory stays within bounds.
#[test]
fn many_connections_share_the_room() {
    let spans = size_of::<Span>();
    let remembered =
        size_of::<AckInfo>() + size_of::<Gap>() + size_of::<TimedOffset>() + 2 * size_of::<u64>();
    for connections in 1..=MOST_CONNECTIONS {
        let Room { spans: most, memory } = Room::for_each_of(connections);
        assert!(most >= 64 && memory.0 >= 16, "{connections}");
        let each = 2 * (most * spans + memory.0 * remembered);
        assert!(connections * each <= MOST_BYTES, "{connections} of {each} bytes each");
    }
}

/// Packets of untracked connections are counted and reported; the largest connection is diagnosed.
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
    let capture = read(&file[..], None).expect("a capture");
    assert_eq!(capture.origin.connections.len(), MOST_CONNECTIONS);
    assert_eq!(capture.packets().map(|packets| packets.connection.counts.data_segments), Some(20));
    let said = capture.origin.notes.join("\n");
    assert!(
        said.contains(
            "only the first 4096 connections are considered; 50 packets belong to other connections"
        ),
        "{said}"
    );
}

/// Files with random bytes changed, and files truncated at every fifth position (a prime, so that each field
/// of a record is cut in some record), are read or rejected without a panic. The fuzz targets try more.
#[test]
fn any_octets_are_read_or_refused() {
    for octets in spoilt() {
        let _ = read(&octets[..], None);
    }
    let file = whole();
    for end in (0..file.len()).step_by(5) {
        let _ = read(&file[..end], None);
    }
}
