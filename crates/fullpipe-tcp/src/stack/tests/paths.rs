//! Tests of a stack with path memory: its budgets, the measurements that one connection leaves for the next one, and
//! the kill switch.

use std::net::SocketAddr;

use fullpipe_units::{Duration, Instant, Rate};

use super::{Pair, bytes, config, packet, syn};
use crate::cc::Algorithm;
use crate::conn::Config;
use crate::memory::Memory;
use crate::stack::siphash::Key;
use crate::stack::{Cut, IsnClock, Stack, StackConfig};
use crate::wire::{Checksums, Flags, Packet, Segment};

const CONNECTIONS: u32 = 10_000;
const MSS: u64 = 1_448;

fn surge() -> Config {
    Config { cc: Algorithm::Surge, ..config() }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Returns the number of octets above ten segments that [`CONNECTIONS`] connections launch in total. All of them are
/// established at once, with an RTT of 20 ms, to the clients that `client` selects.
fn launched_at_once(device: Rate, client: impl Fn(u32) -> SocketAddr) -> u64 {
    let server = SocketAddr::from(([198, 18, 0, 2], 443));
    let most = 2 * CONNECTIONS as usize;
    let key = Key::new([3; 16]);
    let mut end = Stack::new(StackConfig {
        key,
        isn_clock: IsnClock::Linux,
        max_connections: most,
        cut: Cut::Segments,
    });
    end.add_address(server.ip());
    end.listen(server, surge(), most).expect("free");
    end.set_path_memory(Box::new(Memory::new(5, device)));
    for number in 0..CONNECTIONS {
        let ((_, segment), from) = (syn(1, number, true), client(number));
        end.handle_packet(at(0), &bytes(&segment, from, server), Checksums::Verify);
        let answer = packet(&mut end, at(0)).expect("a SYN-ACK");
        let answer = Packet::parse(&answer, Checksums::Verify).expect("well made").segment;
        let timestamps = answer.timestamps.map(|of| crate::wire::Timestamps { value: 1_001, echo: of.value });
        let (seq, ack) = (segment.seq.plus(1), answer.seq.plus(1));
        let ack = Segment { seq, ack, flags: Flags::ACK, syn: None, timestamps, ..segment };
        end.handle_packet(at(20), &bytes(&ack, from, server), Checksums::Verify);
    }
    let windows = (0..CONNECTIONS).map(|_| {
        let id = end.accept(server).expect("established");
        end.connection(id).expect("open").snapshot().cwnd
    });
    windows.map(|window| window.checked_sub(10 * MSS).expect("ten segments")).sum()
}

/// If 10 000 connections are established at once, they launch at most 64 KiB above ten segments to one client, 256 KiB
/// to one prefix, and in total 5 % of the device's rate for 100 ms. Because only whole segments are granted, part of
/// each budget may be left.
#[test]
fn budgets_hold_with_ten_thousand_connections() {
    let fast = Rate::from_bps(100_000_000_000);
    let port = |number: u32| 1_024 + number as u16;
    let spent = |octets: u64, budget: u64| assert!((budget - MSS..=budget).contains(&octets), "{octets}");
    spent(launched_at_once(fast, |number| ([10, 0, 0, 1], port(number)).into()), 64 << 10);
    spent(launched_at_once(fast, |number| ([10, 0, 0, number as u8], port(number)).into()), 256 << 10);
    let prefixes = |number: u32| ([10, (number >> 8) as u8, number as u8, 1], 1_024).into();
    spent(launched_at_once(Rate::from_bps(1_000_000_000), prefixes), 625_000);
    // If no budget limits the launches, each connection launches 44 segments.
    let all = launched_at_once(Rate::from_bps(1_000_000_000_000), prefixes);
    assert_eq!(all, u64::from(CONNECTIONS) * 34 * MSS);
}

/// Downloads 64 kB, closes the connection on both sides, and returns the initial window of the server.
fn download(pair: &mut Pair) -> u64 {
    let (near, far) = (pair.addresses[0], pair.addresses[1]);
    pair.addresses[0] = SocketAddr::new(near.ip(), near.port() + 1);
    let client = pair.ends[0].connect(pair.now, near, far, config()).expect("free");
    let begun = pair.now;
    let run = |pair: &mut Pair, millis: u64| {
        let until = begun + Duration::from_millis(millis);
        while pair.step(until) {}
        pair.now = until;
    };
    run(pair, 40);
    let server = pair.ends[1].accept(far).expect("connected");
    let window = pair.ends[1].connection(server).expect("open").snapshot().cwnd / MSS;
    assert_eq!(pair.ends[1].write(server, &[1; 64_000]), 64_000);
    pair.ends[1].release(pair.now, server);
    for millis in 0..100 {
        run(pair, 50 + 10 * millis);
        let mut room = [0; 4_096];
        while pair.ends[0].read(pair.now, client, &mut room) > 0 {}
    }
    pair.ends[0].release(pair.now, client);
    run(pair, 1_500);
    while pair.ends.iter_mut().any(|end| end.poll_event().is_some()) {}
    window
}

/// As soon as a connection has ended, its measurements are available to the next connection, and are included in the
/// sums that the kill switch observes.
#[test]
fn a_connection_leaves_what_it_has_measured() {
    let mut pair = Pair::v4();
    let server = pair.addresses[1];
    pair.ends[1].listen(server, surge(), 8).expect("free");
    assert_eq!(pair.ends[1].observe_senders(at(0)), None, "no memory");
    pair.ends[1].set_path_memory(Box::new(Memory::new(5, Rate::from_bps(10_000_000_000))));
    let summary = |pair: &mut Pair| {
        let now = pair.now;
        pair.ends[1].observe_senders(now).map(|summary| (summary.prefixes, summary.launches))
    };
    assert_eq!((download(&mut pair), summary(&mut pair)), (44, Some((1, 1))));
    // The first connection has ended, and its budget has returned.
    assert_eq!((download(&mut pair), summary(&mut pair)), (44, Some((1, 2))));
    // An acknowledged FIN is counted as one octet.
    let totals = pair.ends[1].ended;
    assert_eq!((totals.needed, totals.later_lost, totals.launched, totals.plain), (128_002, 0, 2, 0));
    assert!((128_000..130_000).contains(&totals.sent), "{totals:?}");
}
