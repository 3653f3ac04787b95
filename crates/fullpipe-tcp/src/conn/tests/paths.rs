//! Tests of connections that read and write path memory.

use std::net::{IpAddr, Ipv4Addr};

use fullpipe_units::{Bytes, Rate};

use super::pair::{Fate, Pair, Side};
use super::*;
use crate::buffers::Buffer;
use crate::cc::{Algorithm, Launch};
use crate::memory::{Memory, MemorySummary, PathMemory, Recollection, SenderTotals, Visit};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Runs a connection that uses `memory` and sends `segments`, on a path that loses the data segments whose numbers
/// `lost` selects. The connection starts at the second `begin`. Returns the launch window, and the measurements of the
/// connection.
fn visited(
    memory: &mut Memory,
    begin: u64,
    cc: Algorithm,
    segments: u64,
    lost: impl Fn(u64) -> bool + 'static,
) -> (u64, Visit, SenderTotals) {
    let config = Config {
        cc,
        launch: Some(Launch::DEFAULT),
        sndbuf: Buffer::Auto { max: Bytes::from_mib(1) },
        ..Config::default()
    };
    let mut pair = Pair::on(config.clone(), config, move |from, segment, ordinal| {
        if from == Side::Client && segment.len > 0 && lost(ordinal) { Fate::Lost } else { Fate::Arrives }
    });
    pair.now = Instant::ZERO + ms(1_000 * begin);
    pair.client.open();
    pair.run(1_000 * begin + 1_000);
    pair.client.recall(pair.now, memory, CLIENT);
    let window = pair.client.snapshot().cwnd / pair.client.mss();
    assert_eq!(pair.client.visit(), None, "nothing was sent");
    pair.write(Side::Client, segments * pair.client.mss());
    pair.client.recall(pair.now, memory, CLIENT);
    assert_eq!(pair.client.snapshot().cwnd / pair.client.mss(), window, "too late");
    pair.run(1_000 * begin + 60_000);
    assert_eq!(pair.client.acknowledged(), segments * pair.client.mss());
    let visit = pair.client.visit().expect("data was sent");
    memory.record(pair.now, CLIENT, &visit);
    (window, visit, pair.client.sender_totals())
}

/// If connections to a prefix lose a fifth of their first flights, the following connections launch with 44, 32, 20 and
/// then 10 segments. After thirty launches without loss, the launch window is back at 44 segments.
#[test]
fn the_governor_follows_the_losses_of_first_flights() {
    let mut memory = Memory::new(1, Rate::from_bps(10_000_000_000));
    let mut begin = 0;
    let mut launch = |lossy: bool| {
        begin += 100;
        let first = move |number: u64| lossy && number < 44 && number % 5 == 2;
        visited(&mut memory, begin, Algorithm::Bbr1, 200, first)
    };
    let lossy: Vec<_> = (0..3).map(|_| launch(true)).collect();
    assert_eq!(lossy.iter().map(|(window, ..)| *window).collect::<Vec<_>>(), [44, 32, 20]);
    let (_, visit, _) = lossy[0];
    assert_eq!((visit.launched, visit.launch_lost, visit.later_lost), (44, 9, 0));
    assert!((160..=180).contains(&visit.later), "{visit:?}");
    let clean: Vec<u64> = (0..31).map(|_| launch(false).0).collect();
    assert_eq!((clean[0], clean[9], clean[10], clean[20], clean[29], clean[30]), (10, 10, 20, 32, 32, 44));
}

/// The kill switch acts if the first flights of a host lose a fifth of their data but its later data arrives. It does
/// not act if all data is lost at the same rate, because then the path causes the losses.
#[test]
fn first_flights_that_overflow_trip_the_kill_switch() {
    let reason = |lost: fn(u64) -> bool| {
        let mut memory = Memory::new(1, Rate::from_bps(10_000_000_000));
        let (_, _, totals) = visited(&mut memory, 0, Algorithm::Bbr1, 60, lost);
        let fleet = (0..100).fold(SenderTotals::default(), |sum, _| sum.plus(totals));
        memory.observe(Instant::ZERO, SenderTotals::default());
        memory.observe(Instant::ZERO + ms(30_000), fleet);
        memory.summary().tripped.map(|reason| reason.to_string())
    };
    let expected = "for 30s, connections sent 1.15 bytes per byte needed, which is more than 1.10";
    assert_eq!(reason(|number| number < 44 && number % 5 == 2), Some(expected.into()));
    assert_eq!(reason(|number| number % 7 == 2), None);
    assert_eq!(reason(|_| false), None);
}

/// A connection knows the random loss that earlier connections have measured, so surge copies its first
/// retransmissions. After the kill switch has acted, surge starts like BBRv1, with ten segments.
#[test]
fn a_connection_starts_with_what_is_known() {
    #[derive(Debug)]
    struct Known(Recollection);
    impl PathMemory for Known {
        fn recall(&mut self, _: Instant, _: IpAddr) -> Recollection {
            self.0
        }
        fn record(&mut self, _: Instant, _: IpAddr, _: &Visit) {}
        fn grant(&mut self, _: Instant, _: IpAddr, wanted: Bytes, _: Option<Duration>) -> Bytes {
            wanted
        }
        fn observe(&mut self, _: Instant, _: SenderTotals) {}
        fn summary(&self) -> MemorySummary {
            MemorySummary::default()
        }
    }
    let started = |known: Recollection| {
        let config = Config { cc: Algorithm::Surge, ..Config::default() };
        let mut pair = Pair::new(config.clone(), config);
        pair.client.open();
        pair.run(1_000);
        pair.client.recall(pair.now, &mut Known(known), CLIENT);
        let control = pair.client.sender.decision.control;
        (control.cwnd / pair.client.mss(), control.repair.second_copy, pair.client.snapshot().status.phase)
    };
    assert_eq!(started(Recollection::NONE), (44, false, "Launch"));
    let loss = fullpipe_units::Probability::from_ppm(10_000);
    assert_eq!(started(Recollection { loss, ..Recollection::NONE }), (44, true, "Launch"));
    let halted = Recollection { window: Some(10), halted: true, ..Recollection::NONE };
    assert_eq!(started(halted), (10, false, "Startup"));
}
