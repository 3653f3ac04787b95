use fullpipe_lab::trace::{BbrInfo, ReceiverInfo};
use fullpipe_units::draw;

use super::buffers::BufferState;
use super::losses::Losses;
use super::samples::{MSS, row};
use super::*;

/// Rows every 50 ms, each modified by `with`.
fn rows(with: impl Fn(usize, &mut Row)) -> Vec<Row> {
    (0..100)
        .map(|i| {
            let mut row = row(50 + 50 * i as u64);
            with(i, &mut row);
            row
        })
        .collect()
}

/// Returns the limit that applies for most of the time of these rows.
fn main_limit(rows: &[Row]) -> Limit {
    classify(rows, &SocketFacts::default()).findings[0].limit
}

fn interval(from: u64, to: u64, limit: Limit) -> LimitPeriod {
    let at = |millis| Instant::ZERO + Duration::from_millis(millis);
    let (from, to) = (at(from), at(to));
    LimitPeriod { from, to, limit, basis: Basis::Inferred, confidence: Confidence::High }
}

/// If the receiver reports a retransmission of BBR as a duplicate, this retransmission repaired no loss. If
/// it reports more duplicates than there were retransmissions, the network duplicated segments.
#[test]
fn spurious_retransmissions_are_no_losses() {
    let loss = |cc: Algorithm, duplicates: fn(u64) -> u64| {
        let rows = rows(|i, row| {
            let sender = &mut row.sender;
            (sender.cc, sender.retransmits) = (Some(cc), i as u64);
            sender.dsack_dups = duplicates(i as u64);
        });
        classify(&rows, &SocketFacts::default()).loss.at_most.as_f64()
    };
    let all = loss(Algorithm::Bbr1, |_| 0);
    assert!((0.009..0.011).contains(&all), "one of a hundred segments: {all}");
    let half = loss(Algorithm::Bbr1, |retransmits| retransmits / 2);
    assert!((0.45..0.55).contains(&(half / all)), "{half} of {all}");
    assert_eq!(loss(Algorithm::Bbr1, |retransmits| 3 * retransmits), all);
    let cubic = loss(Algorithm::Cubic, |_| 0);
    assert_eq!(loss(Algorithm::Cubic, |retransmits| retransmits / 2), cubic);
}

#[test]
fn agreement_is_weighted_by_time() {
    use Limit::{App, Cwnd, Link};
    let a = [interval(0, 100, App), interval(100, 400, Cwnd)];
    let b = [interval(50, 200, App), interval(200, 500, Cwnd)];
    // Common time: 50 to 400. Same limit: 50 to 100 and 200 to 400.
    assert_eq!(agreement(&a, &b), Some(250.0 / 350.0));
    assert_eq!(agreement(&b, &a), agreement(&a, &b));
    assert_eq!(agreement(&a, &[interval(500, 600, Link)]), None);
    assert_eq!(agreement(&[], &b), None);
    assert!((share(&a, Cwnd) - 0.75).abs() < 1e-9);
    assert_eq!((share(&a, Link), share(&[], App)), (0.0, 0.0));
}

#[test]
fn nothing_is_said_of_nothing() {
    for rows in [Vec::new(), vec![row(50)]] {
        let classification = classify(&rows, &SocketFacts::default());
        assert_eq!((classification.intervals.len(), classification.findings.len()), (0, 0));
        assert!(!classification.notes.is_empty());
    }
    assert_eq!(exact(&rows(|_, _| {})), None, "no truth, no exact limit");
}

/// Each rule responds to the column that it depends on.
#[test]
fn each_rule_has_its_column() {
    let segments = |n: u64| Bytes::new(n * MSS);
    assert_eq!(main_limit(&rows(|_, _| {})), Limit::Cwnd);
    let empty = |_: usize, row: &mut Row| row.sender.notsent = Bytes::ZERO;
    assert_eq!(main_limit(&rows(empty)), Limit::App);
    let full = |_: usize, row: &mut Row| {
        row.sender.notsent = Bytes::ZERO;
        row.sender.cwnd = segments(300);
        row.sender.sndbuf = segments(150);
        row.sender.sndbuf_used = segments(102);
    };
    assert_eq!(main_limit(&rows(full)), Limit::Sndbuf);
    assert_eq!(main_limit(&rows(|_, row| row.sender.rwnd = segments(100))), Limit::Rwnd);
    assert_eq!(main_limit(&rows(|_, row| row.sender.ssthresh = None)), Limit::SlowStart);
    let capped = |_: usize, row: &mut Row| {
        row.sender.max_pacing_rate = row.sender.delivery_rate;
        row.sender.pacing_rate = row.sender.delivery_rate;
        row.sender.cwnd = segments(300);
    };
    assert_eq!(main_limit(&rows(capped)), Limit::Pacing);
    let queued = |_: usize, row: &mut Row| row.sender.srtt = Some(Duration::from_millis(90));
    assert_eq!(main_limit(&rows(queued)), Limit::Link);
}

/// A full window is due to the buffer or to the reader; the receiver's columns, or a window that has shrunk,
/// decide which.
#[test]
fn a_window_is_small_for_two_reasons() {
    let small = |row: &mut Row| row.sender.rwnd = Bytes::new(100 * MSS);
    let unread = |bytes: u64| {
        let unread = Bytes::new(bytes);
        Some(ReceiverInfo { received: Bytes::ZERO, unread, rcvbuf: Bytes::new(1_000_000) })
    };
    let with = |bytes| {
        rows(move |_, row| {
            small(row);
            row.receiver = unread(bytes);
        })
    };
    assert_eq!(main_limit(&with(0)), Limit::Rwnd);
    assert_eq!(main_limit(&with(500_000)), Limit::ReceiverApp);
    let shrinks = |i: usize, row: &mut Row| {
        if i >= 10 {
            small(row);
        }
    };
    assert_eq!(main_limit(&rows(shrinks)), Limit::ReceiverApp);
}

/// A full receive window that keeps doubling, as Cwnd does, marks the start of a transfer. A full window that
/// stays constant is a buffer at its limit, and one that reopens when the application reads is limited by the
/// reader.
#[test]
fn a_window_that_still_doubles_is_the_start() {
    let window = |segments: fn(usize) -> u64| {
        rows(move |i, row| {
            (row.sender.cc, row.sender.ssthresh) = (Some(Algorithm::Cubic), None);
            row.sender.cwnd = Bytes::new(100_000 * MSS);
            row.sender.rwnd = Bytes::new(segments(i) * MSS);
            (row.sender.flight_size, row.sender.inflight) = (row.sender.rwnd, row.sender.rwnd);
        })
    };
    // The window doubles every other row, which is once every two round trips.
    let doubles = window(|i| 10 << (i / 2).min(9));
    let limits = |rows: &[Row]| {
        let intervals = classify(rows, &SocketFacts::default()).intervals;
        intervals.iter().map(|interval| (interval.limit, interval.length().as_millis())).collect::<Vec<_>>()
    };
    let [(Limit::SlowStart, start), (Limit::Rwnd, rest)] = limits(&doubles)[..] else {
        panic!("{:?}", limits(&doubles))
    };
    assert!((700..=1_000).contains(&start) && rest > 3_900, "{start} ms, {rest} ms");
    let opens = window(|i| if i % 8 < 4 { 100 } else { 50 });
    assert!(limits(&opens).iter().all(|(limit, _)| *limit != Limit::SlowStart), "{:?}", limits(&opens));
    // After a loss the congestion window no longer doubles.
    let mut later = window(|i| 10 << (i / 2).min(9));
    later.iter_mut().for_each(|row| row.sender.ssthresh = Some(Bytes::new(MSS)));
    assert_eq!(limits(&later)[0].0, Limit::Rwnd);
}

/// BBR's own report takes precedence over the inference from its rates, and appears in the evidence.
#[test]
fn the_start_of_bbr_is_what_it_says() {
    let gain = |i: usize| if i < 30 { 288 } else { 100 };
    let told = rows(|i, row| {
        row.sender.cc = Some(Algorithm::Bbr1);
        // The rates look as if BBR had left Startup immediately.
        row.sender.pacing_rate = row.sender.delivery_rate;
        row.sender.bbr = Some(BbrInfo {
            bw: Rate::from_bps(23_168_000),
            min_rtt: Some(Duration::from_millis(50)),
            pacing_gain_percent: gain(i),
            cwnd_gain_percent: 288,
        });
    });
    let classification = classify(&told, &SocketFacts::default());
    let first = &classification.intervals[0];
    assert_eq!(first.limit, Limit::SlowStart, "{:?}", classification.intervals);
    assert!((1_300..=1_600).contains(&first.length().as_millis()), "{first:?}");
    let start = classification.findings.iter().find(|finding| finding.limit == Limit::SlowStart);
    let evidence = &start.expect("a start").evidence;
    let model = "BBR has measured a bandwidth of 23.2 Mbit/s and a minimum RTT of 50ms, and paces at 2.88 times the bandwidth (medians)";
    assert!(evidence.iter().any(|line| line == model), "{evidence:?}");
}

/// If the send buffer has no unsent data at times, the kernel marks BBR's samples as limited by the application, and BBR
/// stays in Startup. The buffer is then the limit, not the start.
#[test]
fn bbr_that_waits_for_the_send_buffer_does_not_start_for_ever() {
    let waits = |every: usize| {
        rows(move |i, row| {
            row.sender.cc = Some(Algorithm::Bbr1);
            row.sender.bbr = Some(BbrInfo {
                bw: Rate::from_bps(23_168_000),
                min_rtt: Some(Duration::from_millis(50)),
                pacing_gain_percent: 288,
                cwnd_gain_percent: 288,
            });
            row.sender.cwnd = Bytes::new(1_000 * MSS);
            row.sender.sndbuf_used = row.sender.sndbuf.mul_div(9, 10);
            if i % every == 0 {
                row.sender.notsent = Bytes::ZERO;
            }
        })
    };
    let limits = |rows: &[Row]| {
        let intervals = classify(rows, &SocketFacts::default()).intervals;
        intervals.iter().map(|interval| interval.limit).collect::<Vec<_>>()
    };
    assert_eq!(limits(&waits(3)), [Limit::Sndbuf]);
    assert_eq!(limits(&waits(1_000)), [Limit::SlowStart]);
}

/// A short span of another limit between two spans of one limit is noise, not a change.
#[test]
fn a_moment_makes_no_interval() {
    let blip = |i: usize, row: &mut Row| {
        if i == 50 {
            row.sender.rwnd = Bytes::ZERO;
        }
    };
    let classification = classify(&rows(blip), &SocketFacts::default());
    assert_eq!(classification.intervals.len(), 1, "{:?}", classification.intervals);
}

/// No limit is reported before the first byte or after the last one.
#[test]
fn idle_ends_are_left_out() {
    let idle = |i: usize, row: &mut Row| {
        let sent = i.clamp(20, 60) as u64 - 20;
        row.sender.delivered = Bytes::new(sent * 100 * MSS);
        if !(20..60).contains(&i) {
            row.sender.flight_size = Bytes::ZERO;
            row.sender.notsent = Bytes::ZERO;
        }
    };
    let intervals = classify(&rows(idle), &SocketFacts::default()).intervals;
    let (first, last) = (intervals.first().expect("some"), intervals.last().expect("some"));
    assert_eq!((first.from.as_secs_f64(), last.to.as_secs_f64()), (1.0, 3.05));
}

/// Losses at the peaks of a sawtooth are caused by a fixed rate; losses anywhere else in the
/// sawtooth are random.
#[test]
fn losses_are_told_by_their_rank() {
    // A window that grows by two segments per row; `falls` returns whether it loses a packet at this row.
    let sawtooth = |falls: &dyn Fn(usize, u64) -> bool| {
        let (mut window, mut lost, mut delivered) = (50, 0, 0);
        let row = |i: usize| {
            let mut row = row(50 + 50 * i as u64);
            row.sender.cwnd = Bytes::new(window * MSS);
            delivered += window * MSS;
            row.sender.delivered = Bytes::new(delivered);
            let falls = falls(i, window);
            (window, lost) = if falls { (window * 7 / 10, lost + 1) } else { (window + 2, lost) };
            row.sender.retransmits = lost;
            row
        };
        Losses::of(&(0..600).map(row).collect::<Vec<_>>())
    };
    let fixed = sawtooth(&|_, window| window >= 100);
    assert!(fixed.episodes > 10 && fixed.at_fixed_rate(), "{fixed:?}");
    for seed in 0..20 {
        let chance = sawtooth(&|i, window| draw(seed, 1, i as u64) % 3_000 < window);
        assert!(chance.episodes > 5 && !chance.at_fixed_rate(), "{seed}: {chance:?}");
    }
}

/// If slow start loses a third of its window at once, it has overshot a rate; if it loses single segments, it
/// has not. Later losses at rates much lower than the highest one limit the flow, whatever ended its slow
/// start.
#[test]
fn a_burst_of_losses_may_come_from_a_rate() {
    // The window doubles up to 160 segments and falls to `after`; later it loses one segment per `every` rows.
    let losses = |burst: u64, after: u64, every: u64| {
        let (mut delivered, mut lost) = (0, 0);
        let row = |i: u64| {
            let window = if i < 5 { 10 << i } else { after + i % 20 };
            lost += if i == 5 { burst } else { u64::from(i > 5 && i.is_multiple_of(every)) };
            delivered += window * MSS;
            let mut row = row(50 + 50 * i);
            let sender = &mut row.sender;
            (sender.cwnd, sender.inflight) = (Bytes::new(window * MSS), Bytes::new(window * MSS));
            (sender.flight_size, sender.delivered) = (sender.inflight, Bytes::new(delivered));
            sender.retransmits = lost;
            row
        };
        Losses::of(&(0..200).map(row).collect::<Vec<_>>())
    };
    assert!(losses(50, 60, 1_000).may_come_from_a_rate());
    assert!(!losses(1, 60, 1_000).may_come_from_a_rate(), "one segment");
    assert!(losses(50, 60, 20).may_come_from_a_rate(), "later losses come at that rate");
    assert!(!losses(50, 8, 20).may_come_from_a_rate(), "later losses come at lower rates");
}

/// Windows of a low sawtooth cannot be ranked: the largest window of the last two round trips is always near
/// its top. Random losses of 2 % were once attributed to a cap.
#[test]
fn a_low_sawtooth_says_nothing_about_a_rate() {
    let sawtooth = |low: u64| {
        let (mut delivered, mut lost) = (0, 0);
        let row = |i: u64| {
            let window = low + low * (i % 12) / 12;
            lost += u64::from(i.is_multiple_of(12));
            delivered += window * MSS;
            let mut row = row(50 + 50 * i);
            (row.sender.cwnd, row.sender.delivered) = (Bytes::new(window * MSS), Bytes::new(delivered));
            row.sender.retransmits = lost;
            row
        };
        Losses::of(&(0..240).map(row).collect::<Vec<_>>())
    };
    assert!(sawtooth(7).at_fixed_rate() && sawtooth(7).are_dense(), "{:?}", sawtooth(7));
    assert!(sawtooth(60).at_fixed_rate() && !sawtooth(60).are_dense(), "{:?}", sawtooth(60));
}

#[test]
fn a_buffer_that_never_grows_was_set_or_is_at_its_end() {
    let state = |sizes: &[u64], limit: Option<u64>| {
        BufferState::of(sizes.iter().map(|size| Bytes::new(*size)), limit.map(Bytes::new))
    };
    assert_eq!(state(&[], None), None);
    assert_eq!(state(&[4, 4, 4, 4], Some(6)), Some(BufferState::Locked));
    assert_eq!(state(&[2, 4, 6, 6], Some(6)), Some(BufferState::AtLimit));
    assert_eq!(state(&[2, 3, 4, 5], Some(6)), Some(BufferState::Growing));
    assert_eq!(state(&[2, 3, 4, 5], None), Some(BufferState::Growing));
    assert_eq!(state(&[2, 4, 4, 4], None), Some(BufferState::Still));
}

/// Arbitrary values are classified over the whole time, without a panic.
#[test]
fn any_numbers_are_classified() {
    for seed in 0..200u64 {
        let value = |i: usize, column: u64| {
            let draw = draw(seed, column, i as u64);
            // Zeros, small numbers, and maximum values.
            match draw % 4 {
                0 => 0,
                1 => u64::MAX - draw % 3,
                2 => draw >> 50,
                _ => draw >> (draw % 60),
            }
        };
        let odd = |i: usize, row: &mut Row| {
            let bytes = |column| Bytes::new(value(i, column));
            let rate = |column| (value(i, column) % 5 > 0).then(|| Rate::from_bps(value(i, column)));
            let span = |column| (value(i, column) % 5 > 0).then(|| Duration::from_nanos(value(i, column)));
            let sender = &mut row.sender;
            (sender.mss, sender.cwnd, sender.inflight) = (bytes(1), bytes(2), bytes(3));
            (sender.flight_size, sender.rwnd, sender.notsent) = (bytes(4), bytes(5), bytes(6));
            (sender.sndbuf, sender.sndbuf_used, sender.delivered) = (bytes(7), bytes(8), bytes(9));
            (sender.pacing_rate, sender.max_pacing_rate, sender.delivery_rate) =
                (rate(10), rate(11), rate(12));
            (sender.srtt, sender.min_rtt) = (span(13), span(14));
            sender.retransmits = value(i, 15);
        };
        let host = SocketFacts { link: Some(Rate::from_bps(seed)), ..SocketFacts::default() };
        let classification = classify(&rows(odd), &host);
        assert!(classification.intervals.windows(2).all(|pair| pair[0].to == pair[1].from));
    }
}
