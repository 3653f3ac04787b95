//! Tests of path memory: its bounds, the governor and the budgets.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const MSS: u64 = 1_448;
/// Launch window of the configuration, in segments.
const WINDOW: u32 = 44;
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

/// Returns the launch window that a client gets if the configuration specifies [`WINDOW`] segments.
fn window(memory: &mut Memory, now: u64, number: u32) -> u32 {
    memory.recall(at(now), client(number)).window.unwrap_or(WINDOW)
}

/// Returns the measurements of a connection whose first flight had `launched` segments, `lost` of which were lost.
fn visit(launched: u32, lost: u64) -> Visit {
    Visit {
        rtt: RTT,
        rttvar: Duration::from_millis(5),
        capacity: Some(Capacity {
            rate: Rate::from_bps(100_000_000),
            cwnd: Bytes::new(600_000),
            is_bottleneck: true,
        }),
        launched: launched.into(),
        launch_lost: lost,
        later: 1_000,
        later_lost: 10,
        congested: false,
        informed: false,
    }
}

/// If each first flight to a prefix loses a fifth, the prefix launches with 44, 32, 20 and then 10 segments. After
/// thirty launches without loss, it is back at 44.
#[test]
fn the_governor_needs_three_launches_down_and_thirty_up() {
    let mut memory = memory();
    let mut windows = Vec::new();
    let mut launch = |now: u64, lost_share: u64| {
        let window = window(&mut memory, now, 1);
        memory.record(at(now), client(1), &visit(window, u64::from(window) * lost_share / 100));
        windows.push(window);
    };
    (0..4).for_each(|now| launch(now, 20));
    (4..35).for_each(|now| launch(now, 0));
    assert_eq!(windows[..4], [44, 32, 20, 10]);
    // The fourth launch also lost segments, so the clean launches begin with the fifth.
    assert_eq!((windows[4], windows[13], windows[14], windows[24]), (10, 10, 20, 32));
    assert_eq!((windows[33], windows[34]), (32, 44));
    assert_eq!(window(&mut memory, 40, 999), 44, "another prefix");
}

/// Random loss of 3 % does not move the governor, although single launches lose more than later data.
#[test]
fn random_loss_is_not_the_fault_of_a_launch() {
    let mut memory = memory();
    for now in 0..200 {
        let lost = (0..44).filter(|i| draw(3, now, *i) % 100 < 3).count() as u64;
        memory.record(at(now), client(1), &Visit { later_lost: 30, ..visit(44, lost) });
        assert!(window(&mut memory, now, 1) >= 32, "{now}: {lost}");
    }
    let loss = memory.recall(at(200), client(1)).loss.as_f64();
    assert!((loss - 0.03).abs() < 0.001, "{loss}");
}

/// After a congestive loss in a first flight that used the remembered capacity, a prefix launches with ten segments for
/// ten minutes. The same is true if there is no measurement of the bottleneck. Otherwise, the next launch uses this
/// measurement.
#[test]
fn congestion_flags_a_prefix() {
    let mut memory = memory();
    memory.record(at(0), client(1), &Visit { congested: true, ..visit(44, 0) });
    assert_eq!(window(&mut memory, 0, 1), 44);
    assert!(memory.recall(at(0), client(1)).capacity.is_some());
    memory.record(at(0), client(300), &Visit { congested: true, capacity: None, ..visit(44, 0) });
    assert_eq!(window(&mut memory, 0, 300), 10);
    memory.record(at(0), client(1), &Visit { congested: true, informed: true, ..visit(44, 2) });
    assert_eq!(window(&mut memory, 0, 1), 44, "two segments");
    memory.record(at(0), client(1), &Visit { congested: true, informed: true, ..visit(44, 0) });
    let recalled = memory.recall(at(599), client(2));
    assert_eq!(
        (recalled.window, recalled.capacity, recalled.rtt),
        (Some(10), None, Some(RTT)),
        "the same /24"
    );
    assert_eq!(window(&mut memory, 600, 2), 44);
}

/// A connection resumes half of the remembered rate and window, once in ten seconds, for ten minutes, and only if the
/// RTT matches.
#[test]
fn a_window_is_resumed_by_half() {
    let mut memory = memory();
    memory.record(at(0), client(1), &visit(44, 0));
    let rwnd = Bytes::from_mib(6);
    let recalled = memory.recall(at(100), client(1));
    let launch = |recalled: Recollection, rtt, rwnd| recalled.launch(Launch::DEFAULT, rtt, rwnd, MSS);
    let resumed = Launch { window: 207, rate: Rate::from_bps(50_000_000) };
    assert_eq!(launch(recalled, Some(RTT), rwnd), resumed, "300 000 bytes");
    assert_eq!(launch(recalled, Some(RTT), Bytes::new(100_000)).window, 69, "the client's window");
    for rtt in [None, Some(RTT * 11), Some(RTT / 3)] {
        assert_eq!(launch(recalled, rtt, rwnd), Launch::DEFAULT, "{rtt:?}");
    }
    let again = memory.recall(at(105), client(1));
    assert_eq!(launch(again, Some(RTT), rwnd), Launch::DEFAULT, "within ten seconds");
    assert!(memory.recall(at(110), client(1)).resumes);
    let recalled = memory.recall(at(601), client(1));
    assert_eq!((recalled.capacity, recalled.rtt), (None, Some(RTT)));
    assert_eq!(memory.recall(at(3_601), client(1)).rtt, None);
}

/// A launch uses at most three quarters of a measured bottleneck, for any number of connections. A rate that the path
/// did not limit does not slow down a launch, and a window of less than forty segments is not resumed.
#[test]
fn a_slow_bottleneck_slows_the_launch() {
    let rwnd = Bytes::from_mib(6);
    let launch = |mbps: u64, is_bottleneck: bool| {
        let mut memory = memory();
        let rate = Rate::from_bps(1_000_000 * mbps);
        let capacity = Some(Capacity { rate, cwnd: rate * RTT, is_bottleneck });
        memory.record(at(0), client(1), &Visit { capacity, ..visit(44, 0) });
        let launches = [1, 2].map(|now| {
            let launch = memory.recall(at(now), client(1)).launch(Launch::DEFAULT, Some(RTT), rwnd, MSS);
            (launch.window, launch.rate.as_bps() / 1_000_000)
        });
        assert_eq!(launches[0], launches[1], "{mbps}: nothing is resumed");
        launches[0]
    };
    assert_eq!([launch(8, true), launch(4, true), launch(8, false)], [(44, 6), (44, 3), (44, 20)]);
}

/// A later connection that did not fill the bottleneck leaves a higher stored capacity unchanged, and raises a lower
/// one. Congestion in a first flight removes the stored capacity.
#[test]
fn capacity_is_that_of_the_bottleneck() {
    let mut memory = memory();
    let mut rate = |now: u64, mbps: u64, is_bottleneck: bool, informed: bool| {
        let rate = Rate::from_bps(1_000_000 * mbps);
        let capacity = Some(Capacity { rate, cwnd: rate * RTT, is_bottleneck });
        memory.record(at(now), client(1), &Visit { capacity, congested: informed, informed, ..visit(44, 0) });
        memory.recall(at(now), client(1)).capacity.map(|capacity| capacity.rate.as_bps() / 1_000_000)
    };
    assert_eq!(rate(0, 50, true, false), Some(50));
    assert_eq!(rate(1, 10, false, false), Some(50), "a short connection");
    assert_eq!(rate(2, 60, false, false), Some(60));
    assert_eq!(rate(3, 5, true, false), Some(5), "the path has become slower");
    assert_eq!(rate(604, 2, false, false), Some(2), "ten minutes later");
    assert_eq!(rate(605, 80, true, true), None);
}

/// If 10 000 connections launch at once, a client gets at most 64 KiB above ten segments, a prefix 256 KiB, and all of
/// them together 5 % of the device's rate.
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

/// The budgets refill with time; the budget of a client refills within a round trip.
#[test]
fn budgets_return() {
    let mut memory = memory();
    let grant = |memory: &mut Memory, ms: u64| {
        let now = at(1) + Duration::from_millis(ms);
        memory.grant(now, client(1), Bytes::from_mib(1), Some(RTT)).get()
    };
    assert_eq!((grant(&mut memory, 0), grant(&mut memory, 0)), (65_536, 0));
    assert_eq!((grant(&mut memory, 25), grant(&mut memory, 10_000)), (32_768, 65_536));
}

/// After the kill switch has acted, no launch exceeds ten segments, and the summary contains the reason.
#[test]
fn the_kill_switch_forbids_launches() {
    let mut memory = memory();
    let totals =
        |second: u64| SenderTotals { sent: 120_000 * second, needed: 100_000 * second, ..Default::default() };
    for second in 0..=30 {
        assert_eq!((memory.summary().tripped, window(&mut memory, second, 1)), (None, 44));
        memory.observe(at(second), totals(second));
    }
    assert_eq!(memory.grant(at(31), client(1), Bytes::from_mib(1), Some(RTT)), Bytes::ZERO);
    let recalled = memory.recall(at(31), client(1));
    assert_eq!((recalled.window, recalled.halted), (Some(10), true));
    let reason = memory.summary().tripped.expect("a reason").to_string();
    assert_eq!(reason, "for 30s, connections sent 1.20 bytes per byte needed, which is more than 1.10");
}

/// A configuration may lower the limits, but not raise them.
#[test]
fn limits_have_ranges() {
    const DEFAULT: MemoryLimits = MemoryLimits::DEFAULT;
    assert_eq!(DEFAULT.check(), Ok(()));
    let lowest =
        MemoryLimits { prefixes: 1_024, client: Bytes::ZERO, prefix: Bytes::ZERO, device_permille: 1 };
    assert_eq!(lowest.check(), Ok(()));
    for (limits, message, allowed) in [
        (MemoryLimits { prefixes: 10, ..DEFAULT }, "prefixes 10 is out of range", "1024 to 65536"),
        (
            MemoryLimits { client: Bytes::from_kib(65), ..DEFAULT },
            "client_budget 65 KiB is out of range",
            "0B to 64KiB",
        ),
        (
            MemoryLimits { prefix: Bytes::from_kib(257), ..DEFAULT },
            "prefix_budget 257 KiB is out of range",
            "0B to 256KiB",
        ),
        (MemoryLimits { device_permille: 60, ..DEFAULT }, "device_share 6 is out of range", "0.1% to 5%"),
    ] {
        let error = limits.check().expect_err(message);
        assert_eq!((error.to_string().as_str(), error.allowed()), (message, allowed));
    }
    let mut memory = Memory::with_limits(7, Rate::MAX, lowest);
    assert_eq!(memory.grant(at(1), client(1), Bytes::from_mib(1), Some(RTT)), Bytes::ZERO, "no budget");
}

/// Regardless of the number of clients, the tables stay within their size and remember the latest clients.
#[test]
fn the_table_is_bounded() {
    let mut memory = memory();
    for number in 0..200_000_u32 {
        memory.record(at(u64::from(number)), client(256 * number), &visit(44, 0));
    }
    assert!(memory.prefixes.len() <= 65_536, "{}", memory.prefixes.len());
    assert!(memory.prefixes.len() > 65_536 * 9 / 10, "{}", memory.prefixes.len());
    assert!(memory.recall(at(200_000), client(256 * 199_999)).rtt.is_some());
    assert!(size_of::<Entry>() <= 192, "{}", size_of::<Entry>());
    // A different key distributes the entries differently.
    assert_ne!(memory.place(1), Memory::new(8, Rate::MAX).place(1));
    let mapped = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
    assert_eq!(prefix_of(mapped), prefix_of(client(2)));
    assert_ne!(
        prefix_of(IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        prefix_of(IpAddr::from(Ipv4Addr::UNSPECIFIED))
    );
}
