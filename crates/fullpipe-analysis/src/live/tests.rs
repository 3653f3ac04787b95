use fullpipe_measurement::classify::samples::{MSS, row};

use super::*;

/// Returns a row of a sender that fills the receive window.
fn at_the_window(millis: u64) -> Row {
    let mut row = row(millis);
    row.sender.rwnd = row.sender.flight_size;
    row
}

fn seconds(times: &BTreeMap<Limit, Duration>, limit: Limit) -> f64 {
    times.get(&limit).map_or(0.0, |time| time.as_secs_f64())
}

/// Over an hour at ten rows per second, every second is counted, while the number of kept rows is bounded.
#[test]
fn an_hour_is_counted_and_not_kept() {
    let mut live = Live::new(SocketFacts::default());
    for tenth in 1..=36_000 {
        let millis = tenth * 100;
        live.push(&if tenth <= 9_000 { at_the_window(millis) } else { row(millis) });
        assert!(live.rows().len() < ROWS);
    }
    let times = live.times();
    let (rwnd, cwnd) = (seconds(&times, Limit::Rwnd), seconds(&times, Limit::Cwnd));
    assert!((rwnd - 900.0).abs() < 1.0 && (cwnd - 2_700.0).abs() < 1.0, "{times:?}");
    assert!((rwnd + cwnd - 3_599.9).abs() < 1e-6, "no time is lost or counted twice: {times:?}");
}

/// The current limit may differ from the limit that applied longest.
#[test]
fn what_holds_now_is_told() {
    let mut live = Live::new(SocketFacts::default());
    assert_eq!(live.held(), None);
    for tenth in 1..=100 {
        live.push(&row(tenth * 100));
    }
    let held = live.held().expect("a limit");
    assert_eq!((held.limit, held.confidence), (Limit::Cwnd, Confidence::High));
    assert!(held.evidence.contains("1.00 times the Cwnd"), "{held:?}");
    for tenth in 101..=115 {
        let mut starved = row(tenth * 100);
        starved.sender.notsent = Bytes::ZERO;
        live.push(&starved);
    }
    let held = live.held().expect("a limit");
    assert_eq!((held.limit, held.share), (Limit::App, 1.0), "{held:?}");
    let longer = live.held_since(Instant::ZERO).expect("a limit");
    assert_eq!(longer.limit, Limit::Cwnd);
    // It equals the first finding of a full classification of the same time span.
    let first = live.classified(Instant::ZERO).findings.swap_remove(0);
    assert_eq!((longer.share, &longer.what), (first.share, &first.what));
    assert_eq!((longer.confidence, Some(&longer.evidence)), (first.confidence, first.evidence.first()));
}

/// An idle socket has no limit and takes no memory. A pause between two transfers of data is attributed to
/// the application.
#[test]
fn a_rest_costs_nothing() {
    let mut live = Live::new(SocketFacts::default());
    let resting = |millis| {
        let mut row = row(1_000);
        row.at = Instant::ZERO + Duration::from_millis(millis);
        (row.sender.flight_size, row.sender.inflight, row.sender.notsent) = Default::default();
        row
    };
    for millis in (100..=1_000).step_by(100) {
        live.push(&row(millis));
    }
    for millis in (1_100..=600_000).step_by(100) {
        live.push(&resting(millis));
    }
    assert!(live.rows().len() < 20, "{}", live.rows().len());
    assert_eq!(live.held(), None);
    for i in 1..=20 {
        let mut row = row(1_000 + 100 * i);
        row.at = Instant::ZERO + Duration::from_millis(600_000 + 100 * i);
        live.push(&row);
    }
    let times = live.times();
    assert!(seconds(&times, Limit::App) > 590.0 && seconds(&times, Limit::Cwnd) > 2.0, "{times:?}");
}

/// A kernel reuses addresses and ports, so decreasing counters belong to another connection.
#[test]
fn another_connection_begins_anew() {
    let mut live = Live::new(SocketFacts::default());
    for tenth in 1..=50 {
        live.push(&at_the_window(tenth * 100));
    }
    for tenth in 51..=100 {
        let mut row = row(tenth * 100);
        row.sender.delivered = Bytes::new(row.sender.delivered.get() - 5_000 * 2 * MSS);
        live.push(&row);
    }
    let times = live.times();
    assert!((seconds(&times, Limit::Rwnd) - 4.9).abs() < 1e-6, "{times:?}");
    assert!((seconds(&times, Limit::Cwnd) - 4.9).abs() < 1e-6, "the gap is nobody's: {times:?}");
    let same = live.times();
    live.push(&row(9_000));
    assert_eq!(live.times(), same, "a row from the past is left out");
}

/// SACKed segments count as delivered by estimate; a timeout that reverses the estimate does not start
/// another flow.
#[test]
fn a_timeout_is_no_other_flow() {
    let mut live = Live::new(SocketFacts::default());
    for tenth in 1..=50 {
        let mut row = row(tenth * 100);
        if tenth == 40 {
            row.sender.delivered += Bytes::new(280 * MSS);
        }
        live.push(&row);
    }
    assert_eq!(live.rows().len(), 50);
}

/// A flow takes less than half a mebibyte, however long it runs.
#[test]
fn a_flow_takes_less_than_half_a_mebibyte() {
    assert!((ROWS + Past::ROWS) * size_of::<Row>() < 512 << 10);
}

/// `cargo test --release -p fullpipe-analysis --lib live -- --ignored --nocapture` prints the share of a core
/// that adding rows takes: 10 rows per second for each of 1000 flows, with every row kept. No limit is
/// queried, so this is the cost of sampling alone.
#[test]
#[ignore = "a figure, not a fact"]
fn a_thousand_flows_at_ten_rows_a_second() {
    for (what, make) in [("in flight", row as fn(u64) -> Row), ("at the window", at_the_window)] {
        let mut flows = vec![Live::new(SocketFacts::default()); 1_000];
        let seconds = 100;
        #[expect(clippy::disallowed_methods, reason = "it measures what pushing takes")]
        let begin = std::time::Instant::now();
        for tenth in 1..=10 * seconds {
            let row = make(100 * tenth);
            flows.iter_mut().for_each(|live| live.push(&row));
        }
        let share = begin.elapsed().as_secs_f64() / seconds as f64;
        println!("{what}: {:.2} % of a core", 100.0 * share);
    }
}

/// `limit_since` and `held_since` return the limit and the confidence of the first finding of a full
/// classification, for every limit and any start time, even if limits alternate.
#[test]
fn the_limit_alone_is_the_first_of_all_findings() {
    let mut told = BTreeMap::new();
    for seed in 0..10 {
        let mut live = Live::new(SocketFacts::default());
        let draws = |n: u64| fullpipe_units::draw(seed, 1, n);
        // A limit lasts for a few rows, often too few to be more than noise.
        let (mut kind, mut left) = (0, 0);
        for tenth in 1..=200 {
            if left == 0 {
                (kind, left) = (draws(2 * tenth) % 5, 1 + draws(2 * tenth + 1) % 7);
            }
            left -= 1;
            let mut row = row(tenth * 100);
            match kind {
                0 => row.sender.notsent = Bytes::ZERO,
                1 => row = at_the_window(tenth * 100),
                2 => row.sender.ssthresh = None,
                3 => (row.sender.notsent, row.sender.sndbuf_used) = (Bytes::ZERO, row.sender.sndbuf),
                _ => {}
            }
            live.push(&row);
        }
        for tenth in 0..=201 {
            let from = Instant::ZERO + Duration::from_millis(tenth * 100);
            let first = live.classified(from).findings.into_iter().next();
            let expected = first.as_ref().map(|finding| (finding.limit, finding.confidence));
            assert_eq!(live.limit_since(from), expected, "seed {seed}, from {from:?}");
            let held = live.held_since(from);
            assert_eq!(held.as_ref().map(|held| (held.limit, held.confidence)), expected);
            assert_eq!(held.map(|held| held.share), first.map(|finding| finding.share));
            *told.entry(expected).or_insert(0) += 1;
        }
    }
    assert!(told.len() >= 5, "limits of all kinds, and none at the end: {told:?}");
}
