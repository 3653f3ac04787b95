//! Gives connections up while other flows use a link that is full.
//!
//! ```text
//!   rate      ________                  a queue all the time, and less than the copy has had: others have the rest
//!                     \____
//!                          \____        half of the connections: the queue remains ──► half of these, down to the fewest
//!   queue     ......::::::::::::::
//!
//!   rate      ________
//!                     \____     _____   half of the connections: the queue is gone, or each connection has kept its rate
//!                          \___/          ──► the former number again; after three times, the path itself has become slower
//!   queue     ......:::::..:::::
//! ```
//!
//! A queue that never empties shows that the link is always busy. If the copy then has less than before, other flows have
//! the rest. With more connections than one, the copy takes a larger part than one flow, so it gives connections up, without
//! a comparison of rates: beside other flows, the rate always falls with the number of connections.

use fullpipe_units::{Duration, Instant, Rate};

use super::{Choice, Phase, Sum};

/// Percentage of the highest rate below which a copy with a queue shares its link. The rate of a full link is the same with
/// each number of connections, up to the retransmissions and a measurement error.
const SHARED_LINK_PERCENT: u64 = 85;
/// A queue that never empties is assumed above this percentage of the shortest RTT; the RTT of a path without a queue varies,
/// too.
const BUSY_PERCENT: u64 = 110;
/// Percentage of the time for which the queue must remain with fewer connections. Losses of several flows at the same time may
/// empty it for a moment.
const STILL_BUSY_PERCENT: usize = 75;
/// Time after which connections are given up again if the former number has returned, and number of such attempts. Each attempt
/// doubles the time.
const RETRY: Duration = Duration::from_secs(10);
const MOST_FAILED: u32 = 3;
/// Percentage of the rate below which half of the connections have a rate of their own, for example that of a shaper per
/// flow: with `n` connections beside `m` flows, half of the connections keep `(n + m) / (n + 2 m)` of the rate, which is two
/// thirds if `m = n`.
const OWN_RATE_PERCENT: u64 = 55;

impl Choice {
    /// Gives up half of the connections if other flows share a full link. Returns whether it does.
    pub(super) fn has_yielded(&mut self, rate: Rate, at: Instant) -> bool {
        let is_less = |highest: Rate| rate < highest.mul_div(SHARED_LINK_PERCENT, 100);
        // In slow start, the rate is still low, and the queue is that of the overshoot.
        let has_waited = self.yield_after.is_none_or(|after| at >= after);
        let is_steady = has_waited && self.all(|sum| !sum.is_starting) && !self.is_rising();
        let are_others_there =
            self.busy_percent() == 100 && is_steady && self.highest.max(self.expected).is_some_and(is_less);
        if self.count <= self.least || !are_others_there {
            return false;
        }
        let before = self.count;
        let count = (before / 2).max(self.least);
        self.begin(Phase::Yielding { before, rate, begun: at, settled: None }, count);
        true
    }

    /// Keeps fewer connections if the link is still full. Otherwise, goes back to the former number, and tries again later.
    pub(super) fn judge_yielding(&mut self, before: u32, rate: Rate, at: Instant) {
        let Some(now) = self.rate() else { return };
        let is_shared = now >= rate.mul_div(OWN_RATE_PERCENT, 100);
        if self.busy_percent() >= STILL_BUSY_PERCENT && is_shared {
            (self.is_yielding, self.yields_failed) = (true, 0);
            // When the others have left, a limit per connection shows at once, and more connections are tried.
            self.phase = Phase::Watching { not_before: at };
            return;
        }
        self.begin(Phase::Watching { not_before: at }, before);
        self.is_yielding = false;
        // The losses with which other flows begin may empty the queue once. After several attempts, the path is slower than
        // before, so its present rate is the one to compare with.
        self.yield_after = Some(at + RETRY * (1 << self.yields_failed));
        self.yields_failed += 1;
        if self.yields_failed == MOST_FAILED {
            (self.highest, self.yields_failed) = (Some(rate), 0);
        }
    }

    /// Returns the percentage of the totals at which each connection had a queue in front of it.
    fn busy_percent(&self) -> usize {
        let queue = self.least_rtt.map(|least| least.mul_div(BUSY_PERCENT, 100));
        let is_busy = |sum: &&Sum| sum.is_queued && queue.is_some_and(|queue| sum.rtt > queue);
        self.sums.iter().filter(is_busy).count() * 100 / self.sums.len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Bytes;

    use super::super::{Interval, Remembered, Room};
    use super::*;

    const STEP: Duration = Duration::from_millis(250);
    const RTT: Duration = Duration::from_millis(100);
    const LINK: u64 = 100_000_000;

    /// Runs a copy that has settled on eight connections, for which `rate_and_rtt` returns the total rate in bit/s and the RTT
    /// at a time in seconds and with a number of connections. Returns the numbers with the times in seconds from which
    /// they were used.
    fn run(seconds: u64, rate_and_rtt: impl Fn(u64, u64) -> (u64, Duration)) -> (Choice, Vec<(u64, u32)>) {
        let mut choice = Choice::new(1, 16, None);
        let earlier = Remembered { connections: 8, rtt: RTT, rate: Rate::from_bps(LINK) };
        assert_eq!(choice.resume(earlier, RTT, None), Some(8));
        let mut counts = vec![(0, 8)];
        for step in 1..=seconds * 4 {
            let count = u64::from(choice.count());
            let (rate, rtt) = rate_and_rtt(step / 4, count);
            let is_queued = rtt > RTT;
            let interval = Interval {
                acked: Bytes::new(rate / 8 / 4 / count),
                rtt,
                room: if is_queued { Room::Shared } else { Room::PerConnection },
                is_growing: false,
                is_window_limited: true,
                retransmits: u64::from(is_queued && step % 8 == 0),
                is_resting: false,
            };
            let at = Instant::from_nanos(step * STEP.as_nanos());
            counts.extend(
                choice.sampled(at, (0..count).map(|_| interval), false).map(|count| (step / 4, count)),
            );
        }
        (choice, counts)
    }

    /// From 20 s to 60 s, `others` flows share the link with the connections, each of which has at most an eighth of it.
    fn beside(others: u64) -> impl Fn(u64, u64) -> (u64, Duration) {
        move |second, count| match second {
            20..60 => (LINK * count / (count + others), RTT * 2),
            _ => (LINK * count.min(8) / 8, RTT),
        }
    }

    #[test]
    fn a_copy_beside_other_flows_goes_down_to_one_connection_and_comes_back() {
        for others in [2, 4, 8] {
            let (choice, counts) = run(60, beside(others));
            let numbers: Vec<u32> = counts.iter().map(|(_, count)| *count).collect();
            assert_eq!(numbers, [8, 4, 2, 1], "beside {others}: {counts:?}");
            assert!(counts[1].0 < 25 && counts[3].0 < 35, "{counts:?}");
            assert_eq!(
                choice.outcome(),
                None,
                "the next copy does not start with the number beside other flows"
            );
            let (_, counts) = run(90, beside(others));
            assert!(counts.iter().any(|(second, count)| *second < 80 && *count >= 8), "{counts:?}");
        }
    }

    /// Where a path becomes slower, fewer connections stay only if they keep the link busy.
    #[test]
    fn a_path_that_becomes_slower_keeps_the_connections_that_it_needs() {
        // A shaper for each connection, with a queue of its own.
        let (_, counts) = run(200, |second, count| match second {
            ..20 => (LINK * count / 8, RTT),
            _ => (LINK * count / 16, RTT * 2),
        });
        assert_eq!(
            counts.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
            [8, 4, 8, 4, 8, 4, 8],
            "{counts:?}"
        );
        // Half of the link, which four connections fill without a queue.
        let (_, counts) = run(60, |second, count| match second {
            ..20 => (LINK * count / 8, RTT),
            _ if count > 4 => (LINK / 2, RTT * 2),
            _ => (LINK * count / 8, RTT),
        });
        assert_eq!(counts[..3].iter().map(|(_, count)| *count).collect::<Vec<_>>(), [8, 4, 8], "{counts:?}");
        // Half of the link, which one connection fills, with a queue.
        let (_, counts) = run(60, |second, count| match second {
            ..20 => (LINK * count / 8, RTT),
            _ => (LINK / 2, RTT * 2),
        });
        assert_eq!(counts.last().map(|(_, count)| *count), Some(1), "{counts:?}");
    }
}
