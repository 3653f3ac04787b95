//! Fuzz target for packets: parses octets, encodes the result again, and passes it to connections.

use std::net::{Ipv4Addr, SocketAddrV4};

use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::wire::{Checksums, Flags, Headers, IcmpMessage, Packet, SackBlocks, Segment, SeqNum};
use fullpipe_tcp::{Config, Connection};
use fullpipe_units::{Bytes, Instant};

const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 1);
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 2);

pub fn run(data: &[u8]) {
    let error = IcmpMessage::parse(data, Checksums::Verify);
    assert!(error.is_err() || error == IcmpMessage::parse(data, Checksums::Skip));
    let verified = Packet::parse(data, Checksums::Verify);
    let Ok(packet) = Packet::parse(data, Checksums::Skip) else {
        assert!(verified.is_err(), "checksums make nothing right");
        return;
    };
    assert!(verified.is_err() || verified.as_ref() == Ok(&packet));
    assert!(packet.payload.end <= data.len() && packet.payload.len() == packet.segment.len as usize);
    read_again(&packet.segment);
    for state in 0..3 {
        meet(state, &packet.segment);
    }
}

/// Checks that a segment encoded by our headers parses as that segment, as far as headers can represent it.
pub fn read_again(segment: &Segment) {
    let mut expected = segment.clone();
    if !segment.flags.has(Flags::ACK) {
        expected.ack = SeqNum(0);
    }
    // A header has room for forty octets of options; the last SACK blocks may not fit.
    let others = segment.header_len()
        - 40
        - if segment.sack.is_empty() { 0 } else { 4 + 8 * segment.sack.len() as u32 };
    let room = (40 - others).saturating_sub(4) / 8;
    let mut sack = SackBlocks::default();
    for (start, end) in segment.sack.iter().take(room as usize) {
        sack.push(start, end);
    }
    expected.sack = sack;
    let mut bytes = Headers::of(segment, FROM, TO).as_bytes().to_vec();
    // An IP packet has at most 65 535 octets.
    let len = segment.len.min(u32::from(u16::MAX) - bytes.len() as u32);
    expected.len = len;
    bytes.resize(bytes.len() + len as usize, 0);
    let packet = Packet::parse(&bytes, Checksums::Skip).expect("ours is well-formed");
    assert_eq!(packet.segment, expected);
}

/// Delivers a segment in one of three states: `Listen`, `SynSent`, or a connection with data in flight.
fn meet(state: u32, segment: &Segment) {
    let config = Config {
        sndbuf: Buffer::Fixed(Bytes::from_mib(1)),
        rcvbuf: Buffer::Auto { max: Bytes::from_mib(6) },
        ..Config::default()
    };
    let mut conn = if state == 0 { Connection::server(config) } else { Connection::client(config) };
    let mut now = Instant::ZERO;
    if state > 0 {
        conn.open();
    }
    if state == 2 {
        let syn = conn.poll_transmit(now).expect("a SYN").segment().clone();
        let answer = Segment { ack: syn.seq.plus(1), flags: Flags::SYN.with(Flags::ACK), ..syn };
        conn.handle_segment(now, &answer);
        conn.write(100_000);
    }
    for _ in 0..3 {
        let mut count = 0;
        while conn.poll_transmit(now).is_some() {
            count += 1;
            assert!(count < 10_000, "transmits for ever");
        }
        conn.check();
        let due = conn.poll_timeout();
        assert!(due > now, "a timer is due after everything was handled");
        conn.handle_segment(now, segment);
        conn.check();
        conn.read(now, u64::MAX);
        if !due.is_never() {
            now = due;
            conn.handle_timeout(now);
        }
    }
}
