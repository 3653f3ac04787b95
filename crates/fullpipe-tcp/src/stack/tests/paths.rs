//! Tests of a stack with path memory: its budgets, the measurements that one connection leaves for the next one, and
//! the kill switch.

use std::net::SocketAddr;

use fullpipe_units::{Duration, Instant, Rate};

use super::{Pair, bytes, config, packet, syn};
use crate::cc::Algorithm;
use crate::conn::Config;
use crate::memory::Memory;
use crate::stack::siphash::Key;
use crate::stack::{Cut, IsnClock, Policy, Stack, StackConfig};
use crate::wire::{Checksums, Flags, Packet, Segment};

const CONNECTIONS: u32 = 10_000;
const MSS: u64 = 1_448;

fn surge() -> Config {
    Config { cc: Algorithm::Surge, ..config() }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Makes a handshake between `client`, whose initial sequence number is `number`, and the listener on `server`. The RTT is
/// 100 ms.
fn establish(end: &mut Stack, server: SocketAddr, client: SocketAddr, number: u32) {
    let (_, segment) = syn(1, number, true);
    end.handle_packet(at(1_000), &bytes(&segment, client, server), Checksums::Verify);
    let answer = packet(end, at(1_000)).expect("a SYN-ACK");
    let answer = Packet::parse(&answer, Checksums::Verify).expect("well made").segment;
    let timestamps = answer.timestamps.map(|of| crate::wire::Timestamps { value: 1_001, echo: of.value });
    let (seq, ack) = (segment.seq.plus(1), answer.seq.plus(1));
    let ack = Segment { seq, ack, flags: Flags::ACK, syn: None, timestamps, ..segment };
    end.handle_packet(at(1_100), &bytes(&ack, client, server), Checksums::Verify);
}

/// Returns the number of octets above ten segments that [`CONNECTIONS`] connections launch in total. All of them are
/// established at once, with an RTT of 100 ms, to the clients that `client` selects.
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
        establish(&mut end, server, client(number), number);
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
    // With an RTT of 20 ms, 18 segments leave in half of the RTT.
    assert_eq!((download(&mut pair), summary(&mut pair)), (18, Some((1, 1))));
    // The first connection has ended, and its budget has returned.
    assert_eq!((download(&mut pair), summary(&mut pair)), (18, Some((1, 2))));
    // An acknowledged FIN is counted as one octet.
    let totals = pair.ends[1].ended;
    assert_eq!((totals.needed, totals.later_lost, totals.launched, totals.plain), (128_002, 0, 2, 0));
    assert!((128_000..130_000).contains(&totals.sent), "{totals:?}");
}

/// A policy determines the configuration of its clients, also after the MTU has changed. Other clients have the
/// configuration of the listener.
#[test]
fn a_policy_applies_to_its_clients() {
    let server = SocketAddr::from(([198, 18, 0, 2], 443));
    let config = Config { initcwnd: Some(7), ..config() };
    let policy = |clients: &str, initcwnd| Policy {
        clients: clients.parse().expect("a prefix"),
        config: Config { initcwnd: Some(initcwnd), ..config.clone() },
    };
    let mut end = super::stack(server.ip(), 3);
    end.listen(server, config.clone(), 8).expect("free");
    end.set_policies(server, vec![policy("198.51.100.128/25", 3), policy("198.51.100.0/24", 5)]);
    for mtu in [1_500, 1_000] {
        end.set_mtu(at(0), server, mtu);
        for (host, window) in [([198, 51, 100, 200], 3), ([198, 51, 100, 1], 5), ([192, 0, 2, 1], 7)] {
            establish(&mut end, server, SocketAddr::from((host, mtu as u16)), 1);
            let id = end.accept(server).expect("established");
            let cwnd = end.connection(id).expect("open").snapshot().cwnd;
            assert_eq!(cwnd, window * (mtu - 52), "{host:?}");
        }
    }
}
