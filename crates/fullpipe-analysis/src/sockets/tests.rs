use fullpipe_measurement::classify::samples::MSS;

use super::made::{MEMORY, run, sample};
use super::*;

/// If an application writes faster than the path carries the data, the rest waits in the kernel, and the
/// report contains the time until the memory is full.
#[test]
fn a_growing_queue_is_told_with_its_end() {
    let mut sockets = Sockets::new(SocketFacts::default());
    run(&mut sockets, 1, 1, 11, 69);
    let reports = sockets.interval(None, MEMORY);
    let [report] = reports.as_slice() else { panic!("{reports:#?}") };
    assert_eq!((report.achieved.as_bps(), report.offered_source), (8_000_000, OfferedSource::Measured));
    // 69 segments of 1448 bytes, ten times per second: just under a megabyte.
    let growth = 69 * MSS * 10;
    assert_eq!(report.offered.as_bps(), 8_000_000 + 8 * growth);
    assert_eq!(report.backlog.growth_bytes_per_s, growth);
    let full = report.backlog.memory_full_after_s.expect("an end");
    assert!((full - 1e9 / growth as f64).abs() < 1.0, "{full}");
    assert_eq!(report.limit, Some(Limit::Cwnd));
    // If the queue is steady, the backlog does not grow.
    let mut steady = Sockets::new(SocketFacts::default());
    run(&mut steady, 1, 1, 11, 0);
    let report = &steady.interval(None, MEMORY)[0];
    assert_eq!((report.offered, report.backlog.memory_full_after_s), (report.achieved, None));
    // The demand given by the user takes precedence over the measured rate: the data beyond the measured rate
    // is queued outside the kernel.
    run(&mut steady, 1, 12, 11, 0);
    let report = &steady.interval(Some(Rate::from_bps(16_000_000)), MEMORY)[0];
    assert_eq!(
        (report.offered_source, report.backlog.memory_full_after_s),
        (OfferedSource::Given, Some(1_000.0))
    );
}

/// An interval starts at the end of the previous one, even for sockets that were idle in between.
#[test]
fn an_interval_has_its_own_figures() {
    let mut sockets = Sockets::new(SocketFacts::default());
    let mut resting = sample(2, 700, 0);
    (resting.queued, resting.sender.flight_size, resting.sender.notsent) = Default::default();
    for tenth in 1..=20 {
        sockets.take(Instant::ZERO + Duration::from_millis(100 * tenth), &resting);
    }
    run(&mut sockets, 1, 1, 20, 0);
    assert_eq!(sockets.interval(None, MEMORY).len(), 1, "one of two moved");
    assert_eq!((sockets.len(), sockets.is_empty()), (2, false));
    // The second socket transfers its first data in the third second: a million bits.
    resting.acked += Bytes::new(125_000);
    for tenth in 21..=30 {
        sockets.take(Instant::ZERO + Duration::from_millis(100 * tenth), &resting);
    }
    let reports = sockets.interval(None, MEMORY);
    let [moved] = reports.as_slice() else { panic!("of the other there was no sample: {reports:#?}") };
    assert_eq!(moved.local.port(), 1_002);
    assert_eq!(moved.achieved.as_bps(), 1_000_000);
    sockets.keep(Instant::ZERO + Duration::from_millis(3_000));
    assert_eq!(sockets.len(), 1);
    assert_eq!(sockets.whole(None, MEMORY).len(), 1);
}

/// The largest sockets come first in reports, and their rows are the ones that are kept.
#[test]
fn the_largest_come_first() {
    let mut sockets = Sockets::new(SocketFacts::default()).keeping_rows();
    for id in 1..=12 {
        for tenth in 1..=20 {
            let at = Instant::ZERO + Duration::from_millis(100 * tenth);
            sockets.take(at, &sample(id, id * 10_000 * tenth, 50));
        }
    }
    let reports = sockets.whole(None, MEMORY);
    assert_eq!(reports.first().map(|report| report.local.port()), Some(1_012));
    assert_eq!(sockets.rows(reports[0].flow).map(<[Row]>::len), Some(20));
}

/// Sums include closed connections, and never decrease.
#[test]
fn sums_never_fall() {
    let mut sockets = Sockets::new(SocketFacts::default());
    run(&mut sockets, 1, 1, 20, 0);
    run(&mut sockets, 2, 1, 20, 0);
    // The second connection ends, and the first continues.
    run(&mut sockets, 1, 21, 1, 0);
    let before = sockets.totals();
    assert_eq!((before.sent, sockets.present().connections), (Bytes::new(2_000_000 + 1_900_000), 2));
    assert!((before.limits[&Limit::Cwnd].as_secs_f64() - 3.9).abs() < 0.01, "{before:?}");
    sockets.keep(Instant::ZERO + Duration::from_millis(2_100));
    assert_eq!(sockets.totals(), before);
    let present = sockets.present();
    assert_eq!((present.connections, present.unsent), (1, Bytes::new(50 * MSS)));
    assert_eq!(present.rtt, Some(Duration::from_millis(50)));
    run(&mut sockets, 1, 22, 9, 0);
    assert_eq!(sockets.totals().sent, Bytes::new(1_900_000 + 2_900_000));
    sockets.keep(Instant::FAR_FUTURE);
    assert_eq!((sockets.totals().sent, sockets.present()), (Bytes::new(4_800_000), Present::default()));
}

/// Reports without words equal the full reports except for the description and the evidence.
#[test]
fn reports_without_words_say_the_same() {
    let (mut whole, mut brief) =
        (Sockets::new(SocketFacts::default()), Sockets::new(SocketFacts::default()).without_words());
    for sockets in [&mut whole, &mut brief] {
        run(sockets, 1, 1, 11, 0);
        // The second socket delivers nothing, but has queued data.
        run(sockets, 2, 0, 2, 0);
    }
    let (whole, brief) = (whole.interval(None, MEMORY), brief.interval(None, MEMORY));
    assert_eq!(whole.len(), 2);
    let words = |report: &SocketReport| report.what.is_some() && report.evidence.is_some();
    assert!(whole.iter().any(words) && !brief.iter().any(words));
    let without = |report: SocketReport| SocketReport { what: None, evidence: None, ..report };
    assert_eq!(whole.into_iter().map(without).collect::<Vec<_>>(), brief);
}

/// Returns the sockets of a host on a link of 50 Mbit/s.
fn on_a_link() -> Sockets {
    Sockets::new(SocketFacts { link: Some(Rate::from_bps(50_000_000)), ..SocketFacts::default() })
}

/// Returns a sample of a socket that only receives.
fn arriving(id: u64, received: u64, unread: u64, window: u64) -> Sample<'static> {
    let mut arriving = sample(id, 0, 0);
    arriving.remote = SocketAddr::from(([198, 51, 100, 7], 443));
    (arriving.queued, arriving.sender.flight_size, arriving.sender.notsent) = Default::default();
    arriving.receiver = made::received(received, unread, window);
    arriving
}

fn tenth(nth: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(100 * nth)
}

/// A download is limited by the link, by its reader, by its window, or by a limit that a receiver does not
/// observe.
#[test]
fn downloads_have_limits() {
    let told = |rate: u64, unread: u64, window: u64| {
        let mut sockets = on_a_link();
        (1..=20).for_each(|nth| sockets.take(tenth(nth), &arriving(1, rate / 80 * nth, unread, window)));
        let (whole, interval) = (sockets.whole(None, MEMORY), sockets.interval(None, MEMORY));
        assert_eq!(whole[0].limit, interval[0].limit);
        (interval[0].limit, interval[0].what.clone().unwrap_or_default())
    };
    assert_eq!(told(47_000_000, 0, 4_000_000), (Some(Limit::Link), "the link is full".into()));
    assert_eq!(told(8_000_000, 200_000, 60_000).0, Some(Limit::ReceiverApp));
    // 8 Mbit/s in 50 ms are 50 kB.
    assert_eq!(told(8_000_000, 0, 55_000).0, Some(Limit::Rwnd));
    assert_eq!(told(8_000_000, 0, 4_000_000), (None, NOT_OBSERVABLE.into()));
}

/// If the sockets of a host together fill the link, the link is the limit of each of them, in both
/// directions. Sockets whose data stays on the host do not count.
#[test]
fn sockets_that_fill_the_link_together_share_it() {
    let mut sockets = on_a_link();
    for nth in 1..=20 {
        for id in 1..=3 {
            sockets.take(tenth(nth), &arriving(id, 196_000 * nth, 0, 4_000_000));
            let mut sends = sample(10 + id, 196_000 * nth, 50);
            sends.remote = SocketAddr::from(([198, 51, 100, 7], 443));
            sockets.take(tenth(nth), &sends);
        }
        // The two ends of this socket have the same address.
        sockets.take(tenth(nth), &sample(20, 100_000 * nth, 50));
    }
    let reports = sockets.interval(None, MEMORY);
    let limits = |id: u16| {
        reports.iter().find(|report| report.local.port() == 1_000 + id).and_then(|report| report.limit)
    };
    for id in [1, 2, 3, 11, 12, 13] {
        assert_eq!(limits(id), Some(Limit::Link), "{id}: {reports:#?}");
    }
    assert_eq!(limits(20), Some(Limit::Cwnd));
    let what = reports[0].what.as_deref().unwrap_or_default();
    assert_eq!(what, "the link is full: 3 connections share it");
    let crossing = sockets.senders().filter(|sender| sender.crosses_link);
    let ports: Vec<bool> = crossing.map(|sender| sender.connection.starts_with("192.0.2.1:101")).collect();
    assert_eq!(ports, [true; 3]);
}

/// The time for which sockets together fill the link counts as time of the link, including that of sockets
/// that have closed. Sockets whose data stays on the host do not count.
#[test]
fn the_time_of_a_full_link_is_counted_for_all_that_share_it() {
    let seconds = |link: u64| {
        let link = Some(Rate::from_bps(link * 1_000_000));
        let mut sockets = Sockets::new(SocketFacts { link, ..SocketFacts::default() });
        for nth in 1..=600 {
            for id in 1..=3 {
                let mut sends = sample(id, 196_000 * nth, 50);
                sends.remote = SocketAddr::from(([198, 51, 100, 7], 443));
                sockets.take(tenth(nth), &sends);
            }
            // The two ends of this socket have the same address.
            sockets.take(tenth(nth), &sample(20, 100_000 * nth, 50));
        }
        let open = sockets.totals().limits;
        sockets.keep(Instant::FAR_FUTURE);
        assert_eq!(sockets.totals().limits, open);
        let of = |limit| open.get(&limit).map_or(0.0, |time| time.as_secs_f64());
        (of(Limit::Link), of(Limit::Cwnd))
    };
    // 59.9 s for each of three sockets that carry 47 Mbit/s together, and for the one that stays on the host.
    let near = |(link, cwnd): (f64, f64), expected: (f64, f64)| {
        assert!((link - expected.0).abs() < 1e-6 && (cwnd - expected.1).abs() < 1e-6, "{link} and {cwnd}");
    };
    near(seconds(50), (3.0 * 59.9, 59.9));
    near(seconds(60), (0.0, 4.0 * 59.9));
}

/// A writer that fills an autotuned send buffer queues no data beyond the buffer, so the report predicts no
/// growth.
#[test]
fn data_within_the_send_buffer_is_no_backlog() {
    let full_after = |sndbuf: u64| {
        let mut sockets =
            Sockets::new(SocketFacts { wmem: Some(Bytes::from_mib(4)), ..SocketFacts::default() });
        for nth in 1..=10 {
            let mut growing = sample(1, 100_000 * nth, 50 + 69 * nth);
            growing.sender.sndbuf = Bytes::new(sndbuf);
            sockets.take(tenth(nth), &growing);
        }
        let report = sockets.interval(None, MEMORY).remove(0);
        assert!(report.offered > report.achieved);
        report.backlog.memory_full_after_s
    };
    assert_eq!(full_after(2_000_000), None);
    // The buffer may grow to tcp_wmem[2].
    assert_eq!(full_after(87_040), None);
    let mut beyond = Sockets::new(SocketFacts::default());
    for nth in 1..=10 {
        let mut growing = sample(1, 100_000 * nth, 50 + 69 * nth);
        growing.sender.sndbuf = Bytes::new(87_040);
        beyond.take(tenth(nth), &growing);
    }
    assert!(beyond.interval(None, MEMORY)[0].backlog.memory_full_after_s.is_some());
}

/// A reader that takes nothing leaves the buffer full: nothing moves, and the socket is still reported.
#[test]
fn a_reader_that_stopped_is_reported() {
    let mut sockets = on_a_link();
    (1..=20).for_each(|nth| sockets.take(tenth(nth), &arriving(1, 265_000, 265_000, 0)));
    let reports = sockets.interval(None, MEMORY);
    assert_eq!(reports.first().map(|report| report.limit), Some(Some(Limit::ReceiverApp)), "{reports:#?}");
}
