//! Tests of the admission of new connections.

use fullpipe_units::Instant;

use super::super::Admission;
use super::{Pair, bytes, packet, syn};
use crate::wire::{Checksums, Flags, Packet};

/// Sends SYNs from the ports `from`, and returns the flags of the replies.
fn answers(pair: &mut Pair, ports: &[u16]) -> Vec<Flags> {
    for port in ports {
        let (from, segment) = syn(*port, 7, true);
        let bytes = bytes(&segment, from, pair.addresses[1]);
        pair.ends[1].handle_packet(pair.now, &bytes, Checksums::Verify);
    }
    sent(pair)
}

fn sent(pair: &mut Pair) -> Vec<Flags> {
    let mut flags = Vec::new();
    while let Some(bytes) = packet(&mut pair.ends[1], pair.now) {
        flags.push(Packet::parse(&bytes, Checksums::Verify).expect("well made").segment.flags);
    }
    flags
}

fn syn_ack() -> Flags {
    Flags::SYN.with(Flags::ACK)
}

fn reset() -> Flags {
    Flags::RST.with(Flags::ACK)
}

/// Once the listener admits connections, it answers a held SYN without another SYN from the client. A
/// retransmitted SYN gets no second reply.
#[test]
fn a_held_syn_is_answered_later() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let local = pair.addresses[1];
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Held);
    assert_eq!(answers(&mut pair, &[1_001, 1_002, 1_001]), []);
    assert_eq!((pair.ends[1].held_syns(local), pair.ends[1].connections()), (2, 0));
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Open);
    assert_eq!(sent(&mut pair), [syn_ack(), syn_ack()]);
    assert_eq!((pair.ends[1].held_syns(local), pair.ends[1].connections()), (0, 2));
}

/// If the server is down, held SYNs and later SYNs get the reset that a closed port sends.
#[test]
fn a_refused_syn_gets_a_reset() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let local = pair.addresses[1];
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Held);
    assert_eq!(answers(&mut pair, &[1_001]), []);
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Refused);
    assert_eq!(sent(&mut pair), [reset()]);
    assert_eq!(answers(&mut pair, &[1_002]), [reset()]);
    assert_eq!(pair.ends[1].connections(), 0);
}

/// A server that is too busy to accept drops SYNs without a reset, and answers the retransmitted SYN.
#[test]
fn a_dropped_syn_can_be_retransmitted() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let local = pair.addresses[1];
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Held);
    assert_eq!(answers(&mut pair, &[1_001]), []);
    pair.ends[1].drop_held_syns(local);
    assert_eq!(pair.ends[1].held_syns(local), 0);
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Open);
    assert_eq!(sent(&mut pair), []);
    assert_eq!(answers(&mut pair, &[1_001]), [syn_ack()]);
}

/// If a flood of SYNs arrives while SYNs are held, the listener keeps at most as many SYNs as the backlog.
#[test]
fn held_syns_are_bounded() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let local = pair.addresses[1];
    pair.ends[1].set_admission(Instant::ZERO, local, Admission::Held);
    let ports: Vec<u16> = (1_000..1_100).collect();
    assert_eq!(answers(&mut pair, &ports), []);
    assert_eq!(pair.ends[1].held_syns(local), 4);
}

/// A connection that was admitted earlier completes its transfer while new connections are refused.
#[test]
fn existing_connections_are_not_affected() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let local = pair.addresses[1];
    let client = pair.connect();
    let until = Instant::ZERO + fullpipe_units::Duration::from_secs(10);
    let server = loop {
        assert!(pair.step(until), "no connection");
        if let Some(id) = pair.ends[1].accept(local) {
            break id;
        }
    };
    pair.ends[1].set_admission(pair.now, local, Admission::Refused);
    assert_eq!(pair.ends[0].write(client, b"still here"), 10);
    let mut read = [0; 16];
    let got = loop {
        let now = pair.now;
        match pair.ends[1].read(now, server, &mut read) {
            0 => assert!(pair.step(until), "no data"),
            got => break got,
        }
    };
    assert_eq!(&read[..got], b"still here");
}
