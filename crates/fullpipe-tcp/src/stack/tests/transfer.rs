//! Bytes through both stacks.

use std::net::SocketAddr;

use fullpipe_units::{Duration, Instant};

use super::{Pair, transfer};

fn until(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Payload is where it belongs, each way, over IPv4 and IPv6; no packet is longer than the MTU.
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

/// The same where packets are lost, come twice and come late.
#[test]
fn every_byte_arrives_over_a_hostile_path() {
    let mut pair = Pair::v4();
    pair.hostile = [30, 50, 20];
    transfer(&mut pair, 2_000_000, until(600));
    assert!(pair.ends[0].counters().refused == 0);
}
