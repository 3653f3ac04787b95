//! Tests of data transfer between two stacks.

use std::net::SocketAddr;

use fullpipe_units::{Bytes, Duration, Instant};

use super::{Pair, config, transfer};
use crate::conn::{Config, Event};

fn until(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Every payload byte arrives at its stream offset in both directions, over IPv4 and IPv6. No packet exceeds
/// the MTU.
#[test]
fn every_byte_arrives_where_it_belongs() {
    let mut pair = Pair::v4();
    transfer(&mut pair, 300_000, until(10));
    assert_eq!(pair.longest, 1_500);
    let v6 = |host, port| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, host], port));
    let mut pair = Pair::new([v6(1, 40_000), v6(2, 5_201)]);
    transfer(&mut pair, 300_000, until(10));
    assert_eq!(pair.longest, 1_500);
}

/// Every payload byte arrives at its stream offset, even if packets are lost, duplicated and delayed.
#[test]
fn every_byte_arrives_over_a_hostile_path() {
    let mut pair = Pair::v4();
    pair.hostile = [30, 50, 20];
    transfer(&mut pair, 2_000_000, until(600));
    assert!(pair.ends[0].counters().refused == 0);
}

/// With a limit on unsent data, transmissions make a socket writable, and the application learns this before
/// the next packet arrives (LOWAT-1).
#[test]
fn sending_makes_a_socket_writable() {
    let mut pair = Pair::v4();
    pair.listen(8);
    let [near, far] = pair.addresses;
    let config = Config { notsent_lowat: Some(Bytes::new(14_480)), ..config() };
    let client = pair.ends[0].connect(pair.now, near, far, config).expect("free");
    while pair.ends[0].poll_event().is_none() {
        assert!(pair.step(until(1)), "not connected");
    }
    let taken = pair.ends[0].write(client, &[0; 100_000]);
    assert!(taken < 100_000, "{taken}");
    pair.send();
    let unsent = |pair: &Pair| pair.ends[0].connection(client).expect("there").snapshot().notsent;
    while unsent(&pair) >= 7_240 {
        assert!(!pair.ends[0].has_events());
        assert!(pair.step(until(1)), "stalled");
    }
    assert_eq!(pair.ends[0].poll_event(), Some((client, Event::Writable)));
}

/// The endpoint that closes first remains in TIME-WAIT. A new connection between the same sockets replaces
/// the old one (TW-3) and uses higher sequence numbers.
#[test]
fn a_pair_of_sockets_is_used_again() {
    let mut pair = Pair::v4();
    pair.listen(8);
    let mut last = None;
    for round in 0..3 {
        let client = pair.connect();
        let begun = pair.now;
        while pair.step(begun + Duration::from_millis(100)) {}
        let server = pair.ends[1].accept(pair.addresses[1]).expect("connected");
        let iss = pair.ends[1].connection(server).expect("there").iss();
        assert!(last.is_none_or(|last| iss.distance_from(last) > 0), "round {round}");
        last = Some(iss);
        pair.ends[1].release(pair.now, server);
        while pair.step(begun + Duration::from_millis(200)) {}
        pair.ends[0].release(pair.now, client);
        while pair.step(begun + Duration::from_millis(300)) {}
        pair.now = begun + Duration::from_millis(300);
        assert_eq!([pair.ends[0].connections(), pair.ends[1].connections()], [0, 1], "round {round}");
        while pair.ends.iter_mut().any(|end| end.poll_event().is_some()) {}
    }
    while pair.step(until(600)) {}
    assert_eq!(pair.ends[1].connections(), 0);
}
