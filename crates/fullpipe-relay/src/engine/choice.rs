//! The choice of the number of connections, from what limits each of them.
//!
//! ```text
//!             most of the rate is under a cap of each connection
//!   Watching ───────────────────────────────────────────────────► Trial (twice as many, or one more)
//!      ▲                                                             │ the newest connection has left slow
//!      │  the sum rose by half of what the cap predicts: kept        │ start, or 8 round trips have passed,
//!      └──────────────── otherwise: as many as before ◄──────────────┘ and the sum has been measured
//! ```
//!
//! A connection that is limited by its send buffer, its receive window, its congestion window or a rate cap
//! leaves room for another one. If the link, an application or a processor is the limit, another connection
//! adds nothing, and only takes a larger share from others.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Shortest time over which a sum of rates is measured.
const SPAN: Duration = Duration::from_secs(1);
/// Shortest time over which it is measured, in round trips.
const SPAN_ROUND_TRIPS: u64 = 4;
/// Number of round trips after which a trial is judged even if the newest connection is in slow start.
const START_ROUND_TRIPS: u64 = 8;
/// Time after a trial without success before the next one. The path may have changed by then.
const PAUSE: Duration = Duration::from_secs(30);
/// Share of the rate, in percent, that has to be under a cap of each connection.
const CAPPED_PERCENT: u64 = 75;

/// What holds a connection back, as far as the number of connections matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A limit of each connection: its buffers, its windows, or a rate cap.
    PerConnection,
    /// It is in slow start, or the limit is not known yet.
    Starting,
    /// The link, an application or a processor, which all connections share.
    Shared,
}

/// State of all connections at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) at: Instant,
    /// Payload that has been acknowledged on all connections since the beginning.
    pub(crate) acked: Bytes,
    /// Share of the present rate on connections with [`Room::PerConnection`], in percent.
    pub(crate) capped_percent: u64,
    /// The newest connection has not left slow start.
    pub(crate) is_starting: bool,
    /// Longest RTT of the connections.
    pub(crate) rtt: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No trial begins before `not_before`.
    Watching { not_before: Instant },
    /// More connections are tried than the `before` that reached `rate`.
    Trial { before: u32, rate: Rate, begun: Instant, settled: Option<Instant> },
}

/// Number of connections, which follows what limits them.
#[derive(Debug)]
pub(crate) struct Choice {
    most: u32,
    count: u32,
    phase: Phase,
    /// A trial has failed: from now on, one connection is added at a time.
    has_failed: bool,
    /// States of the last span, oldest first.
    sums: VecDeque<Sum>,
}

impl Choice {
    /// Begins with `least` connections, and never chooses more than `most`.
    pub(crate) fn new(least: u32, most: u32) -> Self {
        let phase = Phase::Watching { not_before: Instant::ZERO };
        Self { most, count: least, phase, has_failed: false, sums: VecDeque::new() }
    }

    /// Returns the number of connections that are to send.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Adds a state, and returns the number of connections if it changes.
    pub(crate) fn sample(&mut self, sum: Sum) -> Option<u32> {
        let span = span(sum.rtt);
        self.sums.push_back(sum);
        while self.sums.get(1).is_some_and(|second| sum.at.saturating_since(second.at) >= span) {
            self.sums.pop_front();
        }
        let before = self.count;
        match self.phase {
            Phase::Watching { not_before } if sum.at >= not_before => self.watch(sum),
            Phase::Watching { .. } => {}
            Phase::Trial { before, rate, begun, settled: None } => {
                let most = sum.rtt * START_ROUND_TRIPS;
                let waited = sum.at.saturating_since(begun);
                // The first samples of a new connection still show nothing.
                if waited >= most || (waited >= span && !sum.is_starting) {
                    self.sums.clear();
                    self.sums.push_back(sum);
                    self.phase = Phase::Trial { before, rate, begun, settled: Some(sum.at) };
                }
            }
            Phase::Trial { before, rate, settled: Some(settled), .. } => {
                if sum.at.saturating_since(settled) >= span {
                    self.judge(before, rate, sum.at);
                }
            }
        }
        (self.count != before).then_some(self.count)
    }

    /// Begins a trial if every state of a whole span shows room.
    fn watch(&mut self, sum: Sum) {
        let Some(rate) = self.rate() else { return };
        let is_capped = self.sums.iter().all(|sum| sum.capped_percent >= CAPPED_PERCENT);
        if !is_capped || self.count >= self.most {
            return;
        }
        let before = self.count;
        self.count = if self.has_failed { before + 1 } else { before * 2 }.min(self.most);
        self.phase = Phase::Trial { before, rate, begun: sum.at, settled: None };
    }

    /// Keeps the connections of a trial if the sum rose by half of what the cap predicts.
    fn judge(&mut self, before: u32, rate: Rate, at: Instant) {
        let Some(now) = self.rate() else { return };
        let predicted = u128::from(rate.as_bps()) * u128::from(self.count - before) / u128::from(before);
        let risen = u128::from(now.as_bps().saturating_sub(rate.as_bps()));
        let mut not_before = at;
        if risen * 2 < predicted {
            // A step of one that fails ends the search; after a doubling, steps of one follow.
            if self.has_failed {
                not_before = at + PAUSE;
            }
            self.has_failed = true;
            self.count = before;
            // The states were measured with more connections.
            self.sums.clear();
        }
        self.phase = Phase::Watching { not_before };
    }

    /// Returns the rate over the last span, if the states cover one.
    fn rate(&self) -> Option<Rate> {
        let (first, last) = (self.sums.front()?, self.sums.back()?);
        let time = last.at.saturating_since(first.at);
        if time < span(last.rtt) {
            return None;
        }
        Some(Rate::mean(last.acked.saturating_sub(first.acked), time))
    }
}

fn span(rtt: Duration) -> Duration {
    SPAN.max(rtt * SPAN_ROUND_TRIPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    /// A path on which each connection reaches at most `cap`, and all together `link`, after `start` of slow
    /// start.
    struct Path {
        cap: u64,
        link: u64,
        rtt: Duration,
        start: Duration,
    }

    impl Path {
        /// Runs a copy for `seconds`; returns the numbers of connections in their order, and the time of the
        /// last change.
        fn run(&self, choice: &mut Choice, seconds: u64) -> (Vec<u32>, Duration) {
            let (mut counts, mut acked, mut changed) = (vec![choice.count()], 0, Instant::ZERO);
            for step in 1..=seconds * 4 {
                let at = Instant::from_nanos(step * STEP.as_nanos());
                let is_starting = at.saturating_since(changed) < self.start;
                let old = counts.iter().rev().nth(1).copied().unwrap_or(0).min(choice.count());
                let active = if is_starting { old } else { choice.count() };
                let sum = (u64::from(active) * self.cap).min(self.link);
                acked += sum * STEP.as_nanos() / 8_000_000_000;
                // On a full link, the RTT is above idle, and the limit of each connection is the link.
                let capped_percent = if sum < self.link { 100 } else { 0 };
                let sum = Sum { at, acked: Bytes::new(acked), capped_percent, is_starting, rtt: self.rtt };
                if let Some(count) = choice.sample(sum) {
                    counts.push(count);
                    changed = at;
                }
            }
            (counts, changed.saturating_since(Instant::ZERO))
        }
    }

    const MBIT: u64 = 1_000_000;

    fn path(cap: u64, link: u64) -> Path {
        Path {
            cap: cap * MBIT,
            link: link * MBIT,
            rtt: Duration::from_millis(100),
            start: Duration::from_millis(800),
        }
    }

    #[test]
    fn one_connection_stays_alone_where_it_fills_the_link() {
        assert_eq!(path(2000, 1000).run(&mut Choice::new(1, 16), 60).0, [1]);
    }

    /// A send buffer of 4 MiB holds each connection to about 137 Mbit/s at 210 ms; 1 Gbit/s needs eight.
    #[test]
    fn connections_are_added_until_the_link_is_full() {
        let (counts, last) = path(137, 1000).run(&mut Choice::new(1, 16), 60);
        assert_eq!(counts, [1, 2, 4, 8]);
        assert!(last <= Duration::from_secs(7), "{last}");
    }

    #[test]
    fn a_doubling_without_gain_is_taken_back_and_followed_by_single_steps() {
        // Something else caps the sum at 500 Mbit/s, and the connections do not look limited by the link.
        let capped = Path { link: u64::MAX, ..path(100, 0) };
        let mut choice = Choice::new(1, 16);
        let mut acked = 0;
        let mut counts = vec![1];
        for step in 1..=400_u64 {
            let at = Instant::from_nanos(step * STEP.as_nanos());
            let rate = (u64::from(choice.count()) * capped.cap).min(500 * MBIT);
            acked += rate * STEP.as_nanos() / 8_000_000_000;
            let acked = Bytes::new(acked);
            let sum = Sum { at, acked, capped_percent: 100, is_starting: false, rtt: capped.rtt };
            counts.extend(choice.sample(sum));
        }
        // 8 connections add 100 of the 400 Mbit/s that they would have to; 5 add all of theirs, 6 nothing.
        assert_eq!(counts[..6], [1, 2, 4, 8, 4, 5]);
        assert_eq!(counts[6..8], [6, 5]);
        let pauses = counts.len();
        assert!(pauses <= 8 + 2 * 4, "one trial in 30 s: {counts:?}");
        assert_eq!(counts.last().copied().filter(|last| *last > 6), None);
    }

    #[test]
    fn the_bounds_are_kept() {
        assert_eq!(path(100, 10_000).run(&mut Choice::new(3, 5), 60).0, [3, 5]);
        assert_eq!(path(100, 10_000).run(&mut Choice::new(4, 4), 60).0, [4]);
    }

    #[test]
    fn a_limit_that_comes_and_goes_begins_no_trial() {
        let mut choice = Choice::new(1, 16);
        for step in 1..400_u64 {
            let capped_percent = if step % 4 == 0 { 0 } else { 100 };
            let at = Instant::from_nanos(step * STEP.as_nanos());
            let acked = Bytes::new(step * 1_000_000);
            let rtt = Duration::from_millis(100);
            assert_eq!(choice.sample(Sum { at, acked, capped_percent, is_starting: false, rtt }), None);
        }
    }
}
