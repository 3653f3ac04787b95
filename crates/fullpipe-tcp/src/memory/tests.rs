//! Tests of path memory: its bounds, the governor and the budgets.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const MSS: u64 = 1_448;
const RTT: Duration = Duration::from_millis(50);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn memory() -> Memory {
    Memory::new(7, Rate::from_bps(10_000_000_000))
}

/// A connection whose first flight had `launched` segments, `lost` of which were lost.
fn visit(launched: u32, lost: u64) -> Visit {
    Visit {
        rtt: RTT,
        rttvar: Duration::from_millis(5),
        capacity: Some(Capacity { rate: Rate::from_bps(100_000_000), cwnd: Bytes::new(600_000) }),
        launched: launched.into(),
        launch_lost: lost,
        later: 1_000,
        later_lost: 10,
        congested: false,
    }
}

/// A prefix on which a fifth of each first flight is lost launches with 44, 32, 20 and then 10 segments. Thirty
/// clean launches later, it is back at 44.
#[test]
fn the_governor_needs_three_launches_down_and_thirty_up() {
    let mut memory = memory();
    let mut windows = Vec::new();
    let mut launch = |now: u64, lost_share: u64| {
        let window = memory.recall(at(now), client(1)).window;
        memory.record(at(now), client(1), &visit(window, u64::from(window) * lost_share / 100));
        windows.push(window);
    };
    (0..4).for_each(|now| launch(now, 20));
    (4..35).for_each(|now| launch(now, 0));
    assert_eq!(windows[..4], [44, 32, 20, 10]);
    // The fourth launch was lossy as well, so the clean ones begin with the fifth.
    assert_eq!((windows[4], windows[13], windows[14], windows[24]), (10, 10, 20, 32));
    assert_eq!((windows[33], windows[34]), (32, 44));
    assert_eq!(memory.recall(at(40), client(999)).window, 44, "another prefix");
}

/// Random loss of 3 % does not move the governor, although single launches lose more than later data.
#[test]
fn random_loss_is_not_the_fault_of_a_launch() {
    let mut memory = memory();
    for now in 0..200 {
        let lost = (0..44).filter(|i| draw(3, now, *i) % 100 < 3).count() as u64;
        memory.record(at(now), client(1), &Visit { later_lost: 30, ..visit(44, lost) });
        assert!(memory.recall(at(now), client(1)).window >= 32, "{now}: {lost}");
    }
    let loss = memory.recall(at(200), client(1)).loss.as_f64();
    assert!((loss - 0.03).abs() < 0.001, "{loss}");
}

/// After a congestive loss in its first flight, a prefix launches with ten segments for ten minutes.
#[test]
fn congestion_flags_a_prefix() {
    let mut memory = memory();
    memory.record(at(0), client(1), &Visit { congested: true, ..visit(44, 0) });
    let recalled = memory.recall(at(599), client(2));
    assert_eq!((recalled.window, recalled.capacity, recalled.rtt), (10, None, Some(RTT)), "the same /24");
    assert_eq!(memory.recall(at(600), client(2)).window, 44);
}

/// The remembered window is resumed by half, once in ten seconds, for ten minutes, and only if the RTT matches.
#[test]
fn a_window_is_resumed_by_half() {
    let mut memory = memory();
    memory.record(at(0), client(1), &visit(44, 0));
    let rwnd = Bytes::from_mib(6);
    let recalled = memory.recall(at(100), client(1));
    let launch = recalled.launch(Some(RTT), rwnd, MSS);
    assert_eq!(launch.window, 207, "300 000 bytes");
    assert_eq!(launch.rate, Rate::of(Bytes::new(207 * MSS), RTT));
    assert_eq!(recalled.launch(Some(RTT), Bytes::new(100_000), MSS).window, 69, "the client's window");
    for rtt in [None, Some(RTT * 11), Some(RTT / 3)] {
        assert_eq!(recalled.launch(rtt, rwnd, MSS), Launch::DEFAULT, "{rtt:?}");
    }
    assert_eq!(memory.recall(at(105), client(1)).capacity, None, "within ten seconds");
    assert!(memory.recall(at(110), client(1)).capacity.is_some());
    let recalled = memory.recall(at(601), client(1));
    assert_eq!((recalled.capacity, recalled.rtt), (None, Some(RTT)));
    assert_eq!(memory.recall(at(3_601), client(1)).rtt, None);
}

/// 10 000 connections at once: a client launches at most 64 KiB beyond ten segments, a prefix 256 KiB, and all of
/// them together 5 % of the device.
#[test]
fn budgets_hold_with_ten_thousand_connections() {
    let wanted = Bytes::new(34 * MSS);
    let sum = |memory: &mut Memory, clients: &dyn Fn(u32) -> IpAddr| -> u64 {
        (0..10_000).map(|i| memory.grant(at(1), clients(i), wanted, Some(RTT)).get()).sum()
    };
    assert_eq!(sum(&mut memory(), &|_| client(1)), 64 << 10);
    assert_eq!(sum(&mut memory(), &|i| client(i % 256)), 256 << 10);
    let small = Rate::from_bps(1_000_000_000);
    let of_device = sum(&mut Memory::new(7, small), &|i| client(256 * i));
    assert_eq!(of_device, 1_000_000_000 / 8 / 10 / 20, "5 % of 100 ms");
    let v6 = |i: u32| IpAddr::from(Ipv6Addr::from((0x2001_0db8_0001_u128 << 80) | u128::from(i)));
    assert_eq!(sum(&mut memory(), &v6), 256 << 10);
}

/// The budgets return with time: a client's within a round trip.
#[test]
fn budgets_return() {
    let mut memory = memory();
    let grant = |memory: &mut Memory, ms: u64| {
        let now = at(1) + Duration::from_millis(ms);
        memory.grant(now, client(1), Bytes::from_mib(1), Some(RTT)).get()
    };
    assert_eq!((grant(&mut memory, 0), grant(&mut memory, 0)), (65_536, 0));
    assert_eq!((grant(&mut memory, 25), grant(&mut memory, 10_000)), (32_768, 65_536));
    memory.set_halted(true);
    assert_eq!(grant(&mut memory, 20_000), 0);
    assert_eq!(memory.recall(at(30), client(1)).window, 10);
}

/// However many clients there are, the tables stay within their size, and the latest clients are remembered.
#[test]
fn the_table_is_bounded() {
    let mut memory = memory();
    for number in 0..200_000_u32 {
        memory.record(at(u64::from(number)), client(256 * number), &visit(44, 0));
    }
    assert!(memory.prefixes.len() <= SETS * WAYS, "{}", memory.prefixes.len());
    assert!(memory.prefixes.len() > SETS * WAYS * 9 / 10, "{}", memory.prefixes.len());
    assert!(memory.recall(at(200_000), client(256 * 199_999)).rtt.is_some());
    assert!(size_of::<Entry>() <= 192, "{}", size_of::<Entry>());
    // Another key distributes the entries in another way.
    assert_ne!(memory.place(1), Memory::new(8, Rate::MAX).place(1));
    let mapped = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
    assert_eq!(prefix_of(mapped), prefix_of(client(2)));
    assert_ne!(
        prefix_of(IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        prefix_of(IpAddr::from(Ipv4Addr::UNSPECIFIED))
    );
}
