//! Tests of connections in TIME-WAIT after the application has released them.

use std::net::SocketAddr;

use fullpipe_units::{Duration, Instant};

use super::super::time_wait::Rest;
use super::super::{Admission, Place, Stack};
use super::{bytes, config, packet, stack, syn};
use crate::wire::{Checksums, Flags, Packet, Segment};

fn server() -> SocketAddr {
    SocketAddr::from(([198, 18, 0, 2], 5_201))
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Passes a segment to the stack, and returns its first reply.
fn hear(end: &mut Stack, now: Instant, from: SocketAddr, segment: &Segment) -> Option<Segment> {
    end.handle_packet(now, &bytes(segment, from, server()), Checksums::Verify);
    let mut first = None;
    while let Some(bytes) = packet(end, now) {
        first.get_or_insert(Packet::parse(&bytes, Checksums::Verify).expect("well made").segment);
    }
    first
}

/// Opens a connection, and closes it on the side of the stack. Returns the client's address, its FIN, and the last ACK
/// of the stack.
fn close_first(end: &mut Stack, now: Instant, port: u16) -> (SocketAddr, Segment, Segment) {
    let (from, segment) = syn(port, 100, false);
    let answer = hear(end, now, from, &segment).expect("a SYN-ACK");
    let ack = |flags, ack: &Segment| Segment {
        seq: segment.seq.plus(1),
        ack: ack.seq.plus(1),
        flags,
        syn: None,
        ..segment.clone()
    };
    hear(end, now, from, &ack(Flags::ACK, &answer));
    let id = end.accept(server()).expect("established");
    end.release(now, id);
    let bytes = packet(end, now).expect("a FIN");
    let fin = Packet::parse(&bytes, Checksums::Verify).expect("well made").segment;
    assert!(fin.flags.has(Flags::FIN));
    let reply = ack(Flags::FIN.with(Flags::ACK), &fin);
    let last = hear(end, now, from, &reply).expect("the last ACK");
    (from, reply, last)
}

/// The stack keeps only a small record of a released connection in TIME-WAIT. The record acknowledges a repeated FIN,
/// which restarts TIME-WAIT, and ends after two segment lifetimes or with a reset.
#[test]
fn time_wait_takes_little_memory() {
    let mut end = stack(server().ip(), 9);
    end.listen(server(), config(), 8).expect("free");
    assert!(size_of::<Rest>() <= 160, "{} bytes", size_of::<Rest>());
    let (from, fin, last) = close_first(&mut end, at(1), 1);
    assert!(matches!(end.slots[0].1, Place::TimeWait(_)), "{:?}", end.slots[0].1);
    assert_eq!((end.connections(), end.in_time_wait()), (1, 1));
    assert_eq!(hear(&mut end, at(11), from, &fin), Some(last.clone()));
    end.handle_timeout(at(61));
    assert_eq!((end.in_time_wait(), end.poll_timeout()), (1, at(71)));
    end.handle_timeout(at(71));
    assert_eq!((end.connections(), end.in_time_wait()), (0, 0));
    assert!(end.poll_timeout().is_never());

    let (from, fin, last) = close_first(&mut end, at(100), 1);
    let reset = Segment { seq: last.ack, ack: fin.ack, flags: Flags::RST, ..fin };
    assert_eq!(hear(&mut end, at(101), from, &reset), None);
    assert_eq!((end.connections(), end.in_time_wait()), (0, 0));
}

/// Connections in TIME-WAIT do not prevent new connections, and their number is limited.
#[test]
fn time_wait_is_limited() {
    let mut end = stack(server().ip(), 9);
    end.config.max_connections = 3;
    end.listen(server(), config(), 8).expect("free");
    for port in 1..=8 {
        close_first(&mut end, at(1), port);
    }
    assert_eq!((end.connections(), end.in_time_wait(), end.counters().cookies_sent), (3, 3, 0));
    end.handle_timeout(at(61));
    assert_eq!((end.connections(), end.in_time_wait()), (0, 0));
}

/// A client may reuse its port directly after a reset. The stack answers the SYN with a SYN-ACK, even if the application
/// has not yet released the connection that was reset.
#[test]
fn a_port_is_reused_after_a_reset() {
    let mut end = stack(server().ip(), 9);
    end.listen(server(), config(), 8).expect("free");
    let (from, first) = syn(1, 100, false);
    let answer = hear(&mut end, at(1), from, &first).expect("a SYN-ACK");
    let next = |flags| Segment {
        seq: first.seq.plus(1),
        ack: answer.seq.plus(1),
        flags,
        syn: None,
        ..first.clone()
    };
    hear(&mut end, at(1), from, &next(Flags::ACK));
    let before = end.accept(server()).expect("established");
    assert_eq!(hear(&mut end, at(1), from, &next(Flags::RST.with(Flags::ACK))), None);
    let (_, second) = syn(1, 50_000, false);
    let answer = hear(&mut end, at(1), from, &second).expect("a reply");
    assert!(answer.flags.has(Flags::SYN) && !answer.flags.has(Flags::RST), "{:?}", answer.flags);
    assert_eq!(answer.ack, second.seq.plus(1));
    // Releasing the first connection does not affect the second one.
    end.release(at(1), before);
    let ack =
        Segment { seq: second.seq.plus(1), ack: answer.seq.plus(1), flags: Flags::ACK, syn: None, ..second };
    hear(&mut end, at(1), from, &ack);
    let after = end.accept(server()).expect("established");
    assert_ne!(after, before);
    assert!(end.connection(before).is_none() && end.connection(after).is_some());
}

/// The SYN of a new connection between the sockets of one in TIME-WAIT is handled like any other SYN: if the server is
/// down, it gets the reset of a closed port, and TIME-WAIT remains; if the state of the server is not known, it waits.
/// A SYN that may be old is acknowledged in each case.
#[test]
fn a_syn_in_time_wait_follows_the_admission() {
    let mut end = stack(server().ip(), 9);
    end.listen(server(), config(), 8).expect("free");
    let (from, fin, last) = close_first(&mut end, at(1), 1);
    let [new, old] = [50_000, 100].map(|seq| syn(1, seq, false).1);
    let refusal = |reply: Option<Segment>| {
        let reply = reply.expect("a reset");
        assert_eq!((reply.flags, reply.ack), (Flags::RST.with(Flags::ACK), new.seq.plus(1)));
    };
    end.set_admission(at(2), server(), Admission::Refused);
    refusal(hear(&mut end, at(2), from, &new));
    assert_eq!(hear(&mut end, at(2), from, &old), Some(last.clone()));
    assert_eq!(hear(&mut end, at(3), from, &fin), Some(last.clone()));

    end.set_admission(at(4), server(), Admission::Held);
    assert_eq!(hear(&mut end, at(4), from, &new), None);
    assert_eq!(hear(&mut end, at(4), from, &old), Some(last.clone()));
    assert_eq!((end.held_syns(server()), end.in_time_wait()), (1, 1));
    end.set_admission(at(5), server(), Admission::Refused);
    let bytes = packet(&mut end, at(5)).expect("a packet");
    refusal(Some(Packet::parse(&bytes, Checksums::Verify).expect("well made").segment));
    assert_eq!((end.held_syns(server()), end.in_time_wait()), (0, 1));

    end.set_admission(at(6), server(), Admission::Held);
    assert_eq!(hear(&mut end, at(6), from, &new), None);
    end.set_admission(at(7), server(), Admission::Open);
    let bytes = packet(&mut end, at(7)).expect("a SYN-ACK");
    let answer = Packet::parse(&bytes, Checksums::Verify).expect("well made").segment;
    assert_eq!((answer.flags, answer.ack), (Flags::SYN.with(Flags::ACK), new.seq.plus(1)));
    assert_eq!((end.connections(), end.in_time_wait()), (1, 0));
}

/// At the maximum number of connections, a SYN does not end TIME-WAIT, and leaves no trace in the queue of half-open
/// connections.
#[test]
fn a_full_stack_keeps_time_wait() {
    let mut end = stack(server().ip(), 9);
    end.config.max_connections = 1;
    end.listen(server(), config(), 8).expect("free");
    let (from, _, last) = close_first(&mut end, at(1), 1);
    let (other, segment) = syn(2, 100, false);
    hear(&mut end, at(2), other, &segment).expect("a SYN-ACK");
    let (_, new) = syn(1, 50_000, false);
    for second in 3..6 {
        assert_eq!(hear(&mut end, at(second), from, &new), Some(last.clone()));
    }
    assert_eq!((end.connections(), end.in_time_wait(), end.listeners[&server()].half_open), (2, 1, 1));
}
