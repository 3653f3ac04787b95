use super::*;

const STEP: Duration = Duration::from_millis(250);
const MBIT: u64 = 1_000_000;

/// A path on which each connection reaches at most `cap`, and all together at most `link`, after `start` of slow
/// start.
struct Path {
    cap: u64,
    link: u64,
    rtt: Duration,
    start: Duration,
    /// Whether the connections report a shared limit when the link is full.
    is_seen: bool,
}

impl Path {
    /// Runs a copy for `seconds`; returns the sequence of connection counts, and the time of the last change.
    fn run(&self, choice: &mut Choice, seconds: u64) -> (Vec<u32>, Duration) {
        let (mut counts, mut changed, mut old) = (vec![choice.count()], Instant::ZERO, 0);
        for step in 1..=seconds * 4 {
            let at = Instant::from_nanos(step * STEP.as_nanos());
            let is_starting = at.saturating_since(changed) < self.start;
            let count = choice.count();
            let active = if is_starting { old.min(count) } else { count };
            let sum = (u64::from(active) * self.cap).min(self.link);
            let is_full = u64::from(active) * self.cap > self.link && self.is_seen;
            let interval = |number: u32| Interval {
                acked: Bytes::new(if number < active {
                    sum / u64::from(active) * STEP.as_nanos() / 8_000_000_000
                } else {
                    0
                }),
                rtt: self.rtt,
                room: match number < active {
                    true if is_full => Room::Shared,
                    true => Room::PerConnection,
                    false => Room::Starting,
                },
                is_growing: false,
                is_window_limited: false,
                retransmits: 0,
                is_resting: false,
            };
            if let Some(next) = choice.sampled(at, (0..count).map(interval), false) {
                counts.push(next);
                (old, changed) = (count, at);
            }
        }
        (counts, changed.saturating_since(Instant::ZERO))
    }
}

fn path(cap: u64, link: u64) -> Path {
    Path {
        cap: cap * MBIT,
        link: link * MBIT,
        rtt: Duration::from_millis(100),
        start: Duration::from_millis(800),
        is_seen: true,
    }
}

#[test]
fn one_connection_stays_alone_where_it_fills_the_link() {
    assert_eq!(path(2000, 1000).run(&mut Choice::new(1, 16, None), 60).0, [1]);
}

/// A send buffer of 4 MiB limits each connection to about 137 Mbit/s at an RTT of 210 ms, so 1 Gbit/s needs eight
/// connections. Seven connections reach 96 %, which cannot be distinguished from 95 % within the measurement error.
#[test]
fn connections_are_added_until_the_link_is_full() {
    let (counts, last) = path(137, 1000).run(&mut Choice::new(1, 16, None), 25);
    assert_eq!(counts, [1, 4, 8]);
    assert!(last <= Duration::from_secs(7), "{last}");
}

#[test]
fn the_rate_of_the_link_says_how_many_are_needed() {
    let link = Some(Rate::from_bps(1_000_000_000));
    let (counts, last) = path(137, 943).run(&mut Choice::new(1, 16, link), 20);
    assert_eq!(counts, [1, 7]);
    assert!(last <= Duration::from_secs(3), "{last}");
    assert_eq!(path(937, 943).run(&mut Choice::new(1, 16, link), 60).0[..2], [1, 2]);
    assert_eq!(path(945, 943).run(&mut Choice::new(1, 16, link), 60).0, [1]);
}

/// The path has a cap of 500 Mbit/s for all connections together, which the connections do not report as a shared
/// limit.
#[test]
fn a_trial_without_gain_leaves_as_many_as_the_sum_needs() {
    let capped = Path { is_seen: false, ..path(100, 500) };
    let (counts, _) = capped.run(&mut Choice::new(1, 16, None), 100);
    // Eight connections add as much as one more would; 4.75 connections are needed for 95 %, so that seven are within
    // one and a half times that number.
    assert_eq!(counts[..4], [1, 4, 8, 7]);
    assert_eq!(counts[4..6], [8, 7], "one more is tried, and adds nothing");
    assert!(counts.len() <= 4 + 2 * 4, "one trial in 30 s: {counts:?}");
    let alone = Path { is_seen: false, ..path(500, 500) };
    let (counts, _) = alone.run(&mut Choice::new(1, 16, None), 20);
    assert_eq!(counts, [1, 4, 1]);
}

/// A path that becomes faster needs fewer connections; a path that needs all of them gets them back.
#[test]
fn connections_that_add_nothing_are_given_up() {
    let mut choice = Choice::new(1, 16, None);
    let (counts, _) = path(137, 1000).run(&mut choice, 20);
    assert_eq!(counts.last(), Some(&8));
    // The clock of this path starts again at zero, which the choice must not notice.
    choice.phase = Phase::Watching { not_before: Instant::ZERO };
    choice.sums.clear();
    let (counts, _) = path(600, 1000).run(&mut choice, 90);
    assert_eq!(counts[..5], [8, 4, 2, 1, 2], "one reaches 60 %, and two are enough");
    assert_eq!(counts[5..], [1, 2], "a minute later, one is tried again");
}

#[test]
fn a_copy_that_knows_the_link_starts_with_the_forecast() {
    let link = |mbit| Some(Rate::from_bps(mbit * MBIT));
    let buffers = Buffers { send: Some(Bytes::from_mib(4)), receive: Some(Bytes::from_mib(32)) };
    let forecast = |mut choice: Choice, rtt| choice.forecast(Duration::from_millis(rtt), buffers, None);
    assert_eq!(forecast(Choice::new(1, 16, link(500)), 210), 4);
    assert_eq!(forecast(Choice::new(1, 16, link(1000)), 210), 7);
    assert_eq!(forecast(Choice::new(1, 16, link(1000)), 20), 1);
    assert_eq!(forecast(Choice::new(2, 5, link(10_000)), 210), 5);
    assert_eq!(forecast(Choice::new(1, 16, None), 210), 1);
    let mut choice = Choice::new(1, 16, link(943));
    assert_eq!(choice.forecast(Duration::from_millis(210), buffers, None), 7);
    assert_eq!(path(137, 943).run(&mut choice, 20).0, [7, 6, 7], "at most one fewer is tried");
    // The smaller buffer counts, and the one that is known.
    let of = |send: Option<u64>, receive: Option<u64>| {
        let buffers = Buffers { send: send.map(Bytes::from_mib), receive: receive.map(Bytes::from_mib) };
        Choice::new(1, 16, link(500)).forecast(Duration::from_millis(210), buffers, None)
    };
    assert_eq!(of(Some(4), Some(2)), 10, "49.9 Mbit/s with a window of 1.25 MiB");
    assert_eq!((of(None, Some(2)), of(Some(4), None), of(None, None)), (10, 4, 1));
    // The receiver reports its buffer after the first forecast, but before data has been acknowledged.
    let mut choice = Choice::new(1, 16, link(500));
    let rtt = Duration::from_millis(210);
    assert_eq!(choice.forecast(rtt, Buffers { receive: None, ..buffers }, None), 4);
    assert_eq!(choice.forecast(rtt, Buffers { receive: Some(Bytes::from_mib(2)), ..buffers }, None), 10);
    let (counts, _) = path(50, 472).run(&mut choice, 20);
    assert!(counts.iter().all(|count| *count >= 6), "five windows of 2 MiB cannot fill the link: {counts:?}");
}

/// For a short copy over a long path, more connections save round trips of slow start. For a long copy, and where round trips
/// are short, they do not.
#[test]
fn a_short_copy_starts_with_more_connections() {
    let buffers = Buffers { send: Some(Bytes::from_mib(4)), receive: Some(Bytes::from_mib(32)) };
    let started = |mbit: u64, rtt: u64, mb: u64| {
        let mut choice = Choice::new(1, 16, Some(Rate::from_bps(mbit * MBIT)));
        choice.forecast(Duration::from_millis(rtt), buffers, Some(Bytes::new(mb * 1_000_000)))
    };
    assert_eq!([20, 100, 1000, 10_000].map(|mb| started(500, 210, mb)), [10, 8, 5, 4]);
    assert_eq!([1, 10, 100, 1000].map(|mb| started(100, 40, mb)), [7, 6, 2, 1]);
    assert_eq!([1, 10, 1000].map(|mb| started(1000, 1, mb)), [1, 1, 1]);
    assert_eq!(started(10_000, 210, 1000), 16, "not enough in any case");
    // Only the windows of the connections that the copy has opened by then count, so the range of the command applies.
    let mut choice = Choice::new(2, 5, Some(Rate::from_bps(500 * MBIT)));
    let rtt = Duration::from_millis(210);
    assert_eq!(choice.forecast(rtt, buffers, Some(Bytes::new(20_000_000))), 5);
    // A copy that lasts longer than predicted gives up what it does not need.
    let mut choice = Choice::new(1, 16, Some(Rate::from_bps(500 * MBIT)));
    assert_eq!(choice.forecast(rtt, buffers, Some(Bytes::new(100_000_000))), 8);
    let slow = Path { rtt, ..path(137, 472) };
    let (counts, last) = slow.run(&mut choice, 60);
    assert!(matches!(counts[..], [8, .., 4 | 5]) && last < Duration::from_secs(20), "{counts:?} {last}");
    // The rate of an earlier copy replaces that of the link.
    let earlier = Remembered { connections: 4, rtt, rate: Rate::from_bps(470 * MBIT) };
    let resumed = |mb: u64| Choice::new(1, 16, None).resume(earlier, rtt, Some(Bytes::new(mb * 1_000_000)));
    assert_eq!([20, 100, 1000, 10_000].map(resumed), [Some(10), Some(8), Some(5), Some(4)]);
}

/// If the rate of the link is not known, a copy that ends before a search would have settled starts with the number that is
/// probably the fastest. A longer copy starts with one connection and searches.
#[test]
fn a_short_copy_over_an_unknown_link_starts_with_up_to_four() {
    let buffers = Buffers { send: Some(Bytes::from_mib(4)), receive: Some(Bytes::from_mib(32)) };
    let started = |rtt: u64, kb: u64| {
        let mut choice = Choice::new(1, 16, None);
        choice.forecast(Duration::from_millis(rtt), buffers, Some(Bytes::new(kb * 1_000)))
    };
    assert_eq!([10, 1_000, 20_000, 102_400, 200_000].map(|kb| started(210, kb)), [1, 4, 4, 4, 1]);
    assert_eq!([1_000, 300_000, 10_000_000].map(|kb| started(1, kb)), [1, 1, 1]);
    let of = |choice: &mut Choice, buffers| {
        choice.forecast(Duration::from_millis(210), buffers, Some(Bytes::new(20_000_000)))
    };
    assert_eq!(of(&mut Choice::new(1, 2, None), buffers), 2);
    assert_eq!(of(&mut Choice::new(6, 16, None), buffers), 6);
    assert_eq!(of(&mut Choice::new(1, 16, None), Buffers::default()), 1, "nothing is known of the windows");
    // The receiver reports later that its buffer is so small that the copy will last for long.
    let mut choice = Choice::new(1, 16, None);
    assert_eq!(of(&mut choice, Buffers { receive: None, ..buffers }), 4);
    assert_eq!(of(&mut choice, Buffers { receive: Some(Bytes::from_kib(320)), ..buffers }), 1);
    // If one connection fills the link, the copy goes back to one.
    let mut choice = Choice::new(1, 16, None);
    assert_eq!(of(&mut choice, buffers), 4);
    assert_eq!(path(137, 20).run(&mut choice, 20).0, [4, 2, 1]);
}

/// The data of a window that a send buffer limits is acknowledged in one burst per round trip, so that the rate of single
/// intervals varies. The copy must nevertheless notice that the rate does not rise.
#[test]
fn bursts_of_a_full_buffer_are_not_a_rising_rate() {
    for phase in 0..7_u64 {
        let mut choice = Choice::new(1, 16, None);
        let (step, rtt, window) = (300_000_000, 210_000_000_u64, 720_000);
        let bursts = |at: u64| (at + phase * rtt / 7) / rtt;
        let raised = (1..60).find(|number| {
            let acked = Bytes::new((bursts(number * step) - bursts((number - 1) * step)) * window);
            let interval = Interval {
                acked,
                rtt: Duration::from_nanos(rtt),
                room: Room::PerConnection,
                is_growing: false,
                is_window_limited: false,
                retransmits: 0,
                is_resting: false,
            };
            choice.sampled(Instant::from_nanos(number * step), [interval], false).is_some()
        });
        assert!(raised.is_some_and(|number| number <= 9), "{raised:?} intervals, phase {phase}");
    }
}

/// Empty buffers, and rates and sizes at the end of their ranges, leave the number within its range.
#[test]
fn any_forecast_is_within_the_range() {
    let extremes = [0, 1, 1 << 32, u64::MAX];
    for size in extremes {
        for buffer in extremes {
            for rate in extremes {
                let mut choice = Choice::new(2, 16, Some(Rate::from_bps(rate)));
                let buffers = Buffers { send: Some(Bytes::new(buffer)), receive: None };
                for rtt in [Duration::ZERO, Duration::from_millis(200), Duration::from_secs(1 << 20)] {
                    let count = choice.forecast(rtt, buffers, Some(Bytes::new(size)));
                    assert!((2..=16).contains(&count), "{size} {buffer} {rate} {rtt}");
                    let earlier = Remembered { connections: 3, rtt, rate: Rate::from_bps(rate) };
                    let count = Choice::new(2, 16, None).resume(earlier, rtt, Some(Bytes::new(size)));
                    assert!(count.is_none_or(|count| (2..=16).contains(&count)), "{size} {rate} {rtt}");
                }
            }
        }
    }
}

/// A copy starts with the number of the last one. If it has the same rate, it keeps this number; otherwise, it searches on.
#[test]
fn a_copy_resumes_the_number_of_an_earlier_one() {
    let rtt = Duration::from_millis(100);
    let mut first = Choice::new(1, 16, None);
    assert_eq!(first.outcome(), None);
    assert_eq!(path(137, 1000).run(&mut first, 25).0, [1, 4, 8]);
    let earlier = first.outcome().expect("a search has ended");
    assert_eq!((earlier.connections, earlier.rtt), (8, rtt));
    assert!(earlier.rate.as_bps().abs_diff(1_000_000_000) < 10_000_000, "{earlier:?}");
    let resumed = |range: (u32, u32), earlier, rtt| {
        let mut choice = Choice::new(range.0, range.1, None);
        choice.resume(earlier, rtt, None);
        choice
    };
    let mut second = resumed((1, 16), earlier, rtt.mul_div(4, 3));
    assert_eq!(path(137, 1000).run(&mut second, 50).0, [8], "no search for a minute");
    assert_eq!(second.outcome().map(|outcome| outcome.connections), Some(8));
    // Over a path on which each connection is slower, the search goes on at once.
    let (counts, _) = path(60, 1000).run(&mut resumed((1, 16), earlier, rtt), 25);
    assert_eq!(counts[..2], [8, 16]);
    // Another RTT is another path, and the range of the command applies.
    assert_eq!(resumed((1, 16), earlier, rtt * 2).count(), 1);
    assert_eq!(resumed((2, 4), earlier, rtt).count(), 4);
    assert_eq!(path(137, 1000).run(&mut Choice::new(1, 16, None), 3).0, [1, 4]);
    let mut short = Choice::new(1, 16, None);
    path(137, 1000).run(&mut short, 3);
    assert_eq!(short.outcome(), None, "the search has not ended");
}

#[test]
fn the_bounds_are_kept() {
    assert_eq!(path(100, 10_000).run(&mut Choice::new(3, 5, None), 60).0, [3, 5]);
    assert_eq!(path(100, 10_000).run(&mut Choice::new(4, 4, None), 60).0, [4]);
    let link = Some(Rate::from_bps(10_000 * MBIT));
    assert_eq!(path(100, 10_000).run(&mut Choice::new(3, 5, link), 60).0, [3, 5]);
}

/// Feeds a choice with the intervals that `interval` returns for a step and for a connection that was opened at an
/// earlier step; returns each number of connections with the time of its choice in seconds.
fn fed(steps: u64, mut interval: impl FnMut(u64, u64) -> Interval) -> Vec<(u32, u64)> {
    let mut choice = Choice::new(1, 16, None);
    let (mut opened, mut counts) = (vec![0], vec![(1, 0)]);
    for step in 1..=steps {
        let at = Instant::from_nanos(step * STEP.as_nanos());
        let intervals: Vec<Interval> = opened.iter().map(|opened| interval(step, *opened)).collect();
        if let Some(count) = choice.sampled(at, intervals, false) {
            opened.resize(opened.len().max(count as usize), step);
            counts.push((count, step / 4));
        }
    }
    counts
}

fn cwnd(acked: u64, retransmits: u64) -> Interval {
    Interval {
        acked: Bytes::new(acked),
        rtt: Duration::from_millis(100),
        room: Room::PerConnection,
        is_growing: retransmits == 0,
        is_window_limited: true,
        retransmits,
        is_resting: false,
    }
}

/// After a loss, CUBIC's window hardly grows for seconds, and then fills the link by itself. If losses recur without a queue,
/// they are a cap of each connection.
#[test]
fn a_window_that_grows_is_not_a_cap() {
    let counts = fed(80, |step, _| cwnd(2_000_000, u64::from(step == 3)));
    assert!(matches!(counts[..2], [_, (2, 10..=13)]), "{counts:?}");
    let counts = fed(80, |step, _| cwnd(2_000_000, u64::from(step % 8 == 0)));
    assert!(matches!(counts[..2], [_, (4, 0..=4)]), "{counts:?}");
}

/// A connection whose losses reduce its rate to 0.7 of the link, in cycles of four seconds, with a queue before each loss.
/// Two connections use 0.85 of the link, and three all of it.
#[test]
fn the_cycles_of_the_windows_say_whether_more_are_needed() {
    let cycle = |step: u64, least: u64| (1000 - least) * (step % 16) / 15 + least;
    let counts = |needed: bool| {
        let mut choice = Choice::new(1, 16, None);
        let mut counts = vec![1];
        for step in 1..=240_u64 {
            let count = u64::from(choice.count());
            let least = if needed { [700, 850, 1000][count.min(3) as usize - 1] } else { 920 };
            let is_lost = step == 2 || step % 16 == 0;
            let rtt = Duration::from_millis(if step % 16 == 15 { 110 } else { 100 });
            let each = cycle(step, least) * 3_000 / count;
            let interval = Interval { rtt, ..cwnd(each, u64::from(is_lost)) };
            let at = Instant::from_nanos(step * STEP.as_nanos());
            counts.extend(choice.sampled(at, (0..count).map(|_| interval), false));
        }
        counts
    };
    assert_eq!(counts(true), [1, 2, 3]);
    assert_eq!(counts(false), [1], "0.96 of the link");
}

/// For four seconds after its slow start, a connection has more than twice the rate that random loss permits. The
/// present connections still lose this surplus when the next ones are judged.
#[test]
fn random_loss_leaves_each_connection_its_rate() {
    let counts = fed(100, |step, opened| {
        let acked = if step < opened + 16 { 500_000 } else { 200_000 };
        cwnd(acked, acked / 100_000)
    });
    let counts: Vec<u32> = counts.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [1, 4, 8, 16]);
}

#[test]
fn a_limit_that_comes_and_goes_begins_no_trial() {
    let mut choice = Choice::new(1, 16, None);
    for step in 1..400_u64 {
        let room = if step % 4 == 0 { Room::Shared } else { Room::PerConnection };
        let at = Instant::from_nanos(step * STEP.as_nanos());
        let (acked, rtt) = (Bytes::new(1_000_000), Duration::from_millis(100));
        let interval = Interval {
            acked,
            rtt,
            room,
            is_growing: false,
            is_window_limited: false,
            retransmits: 0,
            is_resting: false,
        };
        assert_eq!(choice.sampled(at, [interval], false), None);
    }
}
