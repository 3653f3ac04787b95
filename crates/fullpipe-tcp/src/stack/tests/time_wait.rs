//! Tests of connections in TIME-WAIT after the application has released them.

use std::net::SocketAddr;

use fullpipe_units::{Duration, Instant};

use super::super::time_wait::Rest;
use super::super::{Place, Stack};
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
