use super::*;
use crate::cc::AckSample;
use crate::cc::testing::{Bench, ms, sample};

fn at(segments: u64) -> Bench<Bic> {
    Bench::new(segments, Bic::new)
}

/// Returns the BIC search state after a loss at a window of `last_max`, with an estimate of one segment per
/// ACK.
fn search(last_max: u64) -> Search {
    Search { last_max, per_ack: 1 << PER_ACK_SHIFT, ..Search::default() }
}

/// Returns a bench in congestion avoidance after a loss at a window of `last_max`, with ACKs of one segment
/// each.
fn after_loss(last_max: u64) -> Bench<Bic> {
    let mut bench = at(last_max);
    bench.lose();
    bench.cc.search.per_ack = 1 << PER_ACK_SHIFT;
    bench
}

/// Runs a round trip of 100 ms in which the peer acknowledges the whole window segment by segment. Returns
/// the window growth.
fn round(bench: &mut Bench<Bic>) -> u64 {
    let before = bench.cwnd();
    bench.pass(ms(100));
    for _ in 0..before {
        bench.cc.search.per_ack = 1 << PER_ACK_SHIFT;
        bench.ack(1);
    }
    bench.cwnd() - before
}

/// A reduction leaves 819/1024 of the window (BIC-1 and BIC-2). A reduction below the last maximum lowers
/// that maximum (fast convergence).
#[test]
fn bic_1_and_2_cuts_and_fast_convergence() {
    let mut bench = at(100);
    bench.lose();
    assert_eq!((bench.ssthresh(), bench.cwnd(), bench.cc.search.last_max), (79, 79, 100));
    let mut search = search(100);
    assert_eq!((search.cut(80), search.last_max), (63, 71));
    assert_eq!((search.cut(71), search.last_max), (56, 71), "at the maximum nobody asks for room");
}

/// The estimate of segments per ACK changes only while nothing is missing, because the ACK that ends a
/// recovery covers the segments that waited for the hole (Linux: `bictcp_acked`).
#[test]
fn only_acks_without_disorder_count() {
    let mut bench = at(100);
    let before = bench.cc.search.per_ack;
    bench.cc.on_ack(&bench.cx, &AckSample { was_open: false, ..sample(9) });
    assert_eq!(bench.cc.search.per_ack, before);
    bench.cc.on_ack(&bench.cx, &sample(9));
    assert_eq!(bench.cc.search.per_ack, before + 9 - 2);
}

/// BIC-3: the window grows by a quarter of the distance to the last maximum in each round trip.
#[test]
fn bic_3_the_search() {
    assert_eq!(search(100).count_at(80), 16);
    let mut bench = after_loss(100);
    assert_eq!(round(&mut bench), 4, "from 79: 21 / 4, and less as the distance shrinks");
}

/// Far from the maximum, the window grows by at most 16 segments per round trip (BIC-4). Below a window of 20
/// segments, the window grows by one segment per ACK.
#[test]
fn bic_4_linear_when_far() {
    assert_eq!(search(200).count_at(20), 1);
    assert_eq!(search(1_000).count_at(160), 10);
    let mut bench = after_loss(1_000);
    assert_eq!(bench.cwnd(), 799);
    assert!((16..=17).contains(&round(&mut bench)));
}

/// Window growth at the plateau, away from the plateau, and in the linear probing beyond it (BIC-5 to BIC-7).
#[test]
fn bic_5_to_7_around_and_beyond_the_plateau() {
    let search = search(100);
    let counts = [97, 98, 100, 102, 103, 104, 112, 147, 148, 160].map(|cwnd| search.count_at(cwnd));
    assert_eq!(counts, [485, 490, 500, 510, 515, 78, 28, 9, 9, 10]);
}

/// Up to a window of 14 segments, BIC behaves like Reno (BIC-8).
#[test]
fn bic_8_reno_while_small() {
    let mut bench = after_loss(24);
    assert_eq!(bench.cwnd(), 19);
    bench.lose();
    assert_eq!(bench.cwnd(), 15, "15 segments and more keep four fifths");
    bench.lose();
    assert_eq!(bench.cwnd(), 11);
    bench.lose();
    assert_eq!(bench.cwnd(), 5, "12 leave 6, and 11 leave 5");
    let (_, before) = (bench.pass(ms(100)), bench.cwnd());
    bench.acks(before);
    assert_eq!(bench.cwnd(), before + 1);
    assert_eq!(search(10).cut(12), 6);
}

/// With ACKs of two segments, the count halves and growth doubles (BIC-9). With ACKs of one segment, the
/// estimate begins at two segments and stops at 31/16, because the average moves in whole sixteenths, and 31
/// >> 4 is 1.
#[test]
fn bic_9_segments_per_ack() {
    let mut two = search(100);
    two.per_ack = PER_ACK_AT_START;
    (0..100).for_each(|_| two.note_ack(2));
    assert_eq!((two.per_ack, two.count_at(80)), (32, 8));
    let mut one = Search { last_max: 100, ..Search::default() };
    (0..100).for_each(|_| one.note_ack(1));
    assert_eq!((one.per_ack, one.count_at(80)), (31, 8));
}

/// Before the first loss, the window grows by at least 5 % per round trip (BIC-10). A timeout resets the
/// search to that state.
#[test]
fn bic_10_before_the_first_loss() {
    assert_eq!(search(0).count_at(400), 20, "and no more than 16 a round trip is asked for above");
    assert_eq!(search(0).count_at(160), 10);
    let mut bench = after_loss(100);
    bench.signal(Signal::Timeout { first: true });
    assert_eq!((bench.cwnd(), bench.ssthresh()), (1, 63));
    assert_eq!((bench.cc.search.last_max, bench.cc.search.per_ack), (0, 32));
}

/// An undo reverts the window reduction (BIC-11).
#[test]
fn bic_11_undo() {
    let mut bench = at(100);
    bench.signal(Signal::EnterRecovery);
    assert_eq!(bench.cwnd(), 79);
    bench.signal(Signal::SpuriousRecovery);
    assert_eq!(bench.cwnd(), 100);
}

/// Growth is fast at first, slow near the last maximum, and fast again above it (BIC-12). Between two losses
/// at the same window, the window is above nine tenths of that value for more than half of the time.
#[test]
fn bic_12_shape() {
    let mut bench = after_loss(200);
    let mut windows = vec![bench.cwnd()];
    while bench.cwnd() < 201 {
        round(&mut bench);
        windows.push(bench.cwnd());
    }
    let steps: Vec<u64> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.windows(2).all(|pair| pair[1] <= pair[0].max(1)), "concave up to the maximum: {steps:?}");
    let near = windows.iter().filter(|window| 10 * **window >= 9 * 200).count();
    assert!(2 * near > windows.len(), "{near} of {} rounds", windows.len());
    // Above the maximum, the curve is convex: growth increases from one round trip to the next.
    let beyond: Vec<u64> = (0..30).map(|_| round(&mut bench)).collect();
    let (first, last) = (beyond.iter().take(15).sum::<u64>(), beyond.iter().skip(15).sum::<u64>());
    assert!(last > 4 * first, "{beyond:?}");
    assert!(beyond.iter().all(|step| *step <= MAX_INCREMENT + 1));
}

/// In theory, the distance to the maximum shrinks continuously, by a quarter per round trip. From four fifths
/// of the maximum to eight segments below it, where the plateau begins, the search takes 4 ln(0.2 W / 8)
/// round trips. The quarter is rounded down to whole segments, which subtracts 1.5 from both sides of the
/// division.
#[test]
fn the_search_takes_the_logarithm_of_the_loss() {
    for w_max in [100, 200, 300] {
        let mut bench = after_loss(w_max);
        let mut rounds = 0;
        while w_max - bench.cwnd() > 8 {
            round(&mut bench);
            rounds += 1;
        }
        let law = 4.0 * ((0.2 * w_max as f64 - 1.5) / (8.0 - 1.5)).ln();
        assert!((law..law + 1.0).contains(&f64::from(rounds)), "{w_max}: {rounds} rounds, the law's {law}");
    }
}

/// Counts are valid for windows from one segment to ten million segments (INV-11).
#[test]
fn extreme_windows() {
    for last_max in [0, 1, 14, 10_000_000, u64::from(u32::MAX)] {
        for cwnd in [1, 14, 15, 1_000, 10_000_000] {
            assert!(search(last_max).count_at(cwnd) >= 1);
            assert!(search(last_max).cut(cwnd) < cwnd.max(2));
        }
    }
}
