use super::made::{MEMORY, run, sample};
use super::*;
use crate::classify::samples::MSS;

/// Data that is written faster than the path carries it waits in the kernel, and the report contains the time
/// until the memory is full.
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
    // The demand given by the user takes precedence over the measured rate: the rest queues outside the
    // kernel.
    run(&mut steady, 1, 12, 11, 0);
    let report = &steady.interval(Some(Rate::from_bps(16_000_000)), MEMORY)[0];
    assert_eq!(
        (report.offered_source, report.backlog.memory_full_after_s),
        (OfferedSource::Given, Some(1_000.0))
    );
}

/// An interval starts at the end of the previous one, also for sockets that were idle meanwhile.
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
    // The second socket moves for the first time in the third second: a million bits in one second.
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
