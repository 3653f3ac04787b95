//! Tests of connections that read and write path memory.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

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
        fn rtt(&self, _: Instant, _: IpAddr) -> Option<Duration> {
            self.0.rtt
        }
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

/// The early retransmission of a SYN-ACK waits for 1.5 times the RTT of an earlier connection to the client, at least
/// 100 ms, and for the configured time if no RTT is known or if it is too old. A half-open connection that is rebuilt
/// keeps this time.
#[test]
fn a_syn_ack_waits_for_the_remembered_rtt() {
    let early = |rtt: Option<u64>, hours: u64| {
        let mut memory = Memory::new(1, Rate::from_bps(10_000_000_000));
        if let Some(rtt) = rtt {
            let visit = Visit {
                rtt: ms(rtt),
                rttvar: ms(1),
                capacity: None,
                launched: 10,
                launch_lost: 0,
                later: 0,
                later_lost: 0,
                congested: false,
                informed: false,
            };
            memory.record(Instant::ZERO, CLIENT, &visit);
        }
        let tunables = Tunables { syn_ack_early: Some(ms(250)), ..Tunables::LINUX };
        let config = Arc::new(Config { tunables, ..Config::default() });
        let mut server = Connection::server_with(Arc::clone(&config), 1);
        let begin = Instant::ZERO + Duration::from_secs(hours * 3_600 + 1);
        server.start_at(SeqNum(7));
        server.expect(begin, &memory, CLIENT);
        let syn =
            Script::new(Connection::server(Config::default())).syn_ack(Some(7), Some(1460), true, false);
        let syn = Segment { flags: Flags::SYN, ..syn };
        server.handle_segment(begin, &syn);
        assert!(server.poll_transmit(begin).is_some(), "a SYN-ACK");
        let due = server.poll_timeout();
        let progress = server.progress().expect("half-open");
        let mut server = Connection::half_open(config, 1, SeqNum(7), (begin, &syn), progress);
        assert_eq!(server.poll_timeout(), due);
        server.handle_timeout(due);
        assert!(server.poll_transmit(due).is_some(), "the early retransmission");
        // The timeout of one second starts with the early retransmission.
        assert_eq!(server.poll_timeout(), due + Duration::from_secs(1));
        due.saturating_since(begin)
    };
    assert_eq!(early(None, 0), ms(250));
    assert_eq!(early(Some(120), 0), ms(180));
    assert_eq!(early(Some(20), 0), ms(100));
    assert_eq!(early(Some(900), 0), ms(1_000));
    assert_eq!(early(Some(120), 2), ms(250));
}
