//! Finds connections of a copy that are far slower than the others.
//!
//! The usual reason is another path: routers with several paths (ECMP), and link bundles, choose the path of a
//! connection from its ports, and one of the paths loses packets or is congested. A new connection from another local
//! port probably gets another path.

use std::collections::BTreeMap;

use fullpipe_units::{Duration, Instant, Rate};

/// Time for which a connection must be far slower than the others.
const LASTING: Duration = Duration::from_secs(5);
/// A connection is far slower if its rate is below this percentage of the median of the others.
const FAR_PERCENT: u64 = 25;
/// Minimum number of other connections. With fewer, the median could be the rate of another bad path.
const OTHERS: usize = 2;
/// Minimum time between two reopenings of the same connection; each reopening doubles it.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Default)]
struct Slow {
    /// Time since which the connection has been far slower than the others.
    since: Option<Instant>,
    /// Number of times that the connection was opened anew, and the time before which it is not opened anew
    /// again.
    times: u32,
    not_before: Option<Instant>,
}

/// Connections that are far slower than the others, by number.
#[derive(Debug, Default)]
pub(crate) struct Laggards(BTreeMap<u32, Slow>);

impl Laggards {
    /// Adds the rates of all connections that had blocks to send in an interval. Returns the connection that should be
    /// opened anew, if there is one. Connection 0 is never opened anew, because it carries the messages.
    pub(crate) fn sampled(&mut self, at: Instant, rates: &[(u32, Rate)]) -> Option<u32> {
        let mut found = None;
        for (number, slow) in &mut self.0 {
            if rates.iter().all(|(connection, _)| connection != number) {
                slow.since = None;
            }
        }
        for (number, rate) in rates {
            let mut others: Vec<Rate> =
                rates.iter().filter(|(other, _)| other != number).map(|(_, rate)| *rate).collect();
            others.sort_unstable();
            let median = others.get(others.len() / 2).copied().unwrap_or(Rate::ZERO);
            let is_far = others.len() >= OTHERS && *rate < median.mul_div(FAR_PERCENT, 100);
            let slow = self.0.entry(*number).or_default();
            if !is_far {
                slow.since = None;
                continue;
            }
            let since = *slow.since.get_or_insert(at);
            let is_due = slow.not_before.is_none_or(|not_before| at >= not_before);
            if at.saturating_since(since) >= LASTING && is_due && *number != 0 && found.is_none() {
                found = Some(*number);
                slow.not_before = Some(at + PAUSE * (1_u64 << slow.times.min(10)));
                slow.times += 1;
                slow.since = None;
            }
        }
        found
    }

    /// Returns how often a connection was opened anew.
    pub(crate) fn times(&self, number: u32) -> u32 {
        self.0.get(&number).map_or(0, |slow| slow.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `seconds` in intervals of 250 ms; `rate` returns the rate of each connection in Mbit/s. Returns the
    /// connections that are opened anew, with their times in intervals.
    fn course(seconds: u64, connections: u32, rate: impl Fn(u32, u64) -> u64) -> Vec<(u64, u32)> {
        let mut laggards = Laggards::default();
        let mut opened = Vec::new();
        for step in 0..seconds * 4 {
            let at = Instant::ZERO + Duration::from_millis(250) * step;
            let rates: Vec<_> =
                (0..connections).map(|n| (n, Rate::from_bps(rate(n, step) * 1_000_000))).collect();
            opened.extend(laggards.sampled(at, &rates).map(|number| (step, number)));
        }
        opened
    }

    #[test]
    fn a_connection_far_below_the_others_for_five_seconds_is_opened_anew() {
        assert_eq!(course(8, 4, |n, _| if n == 2 { 5 } else { 40 }), [(20, 2)]);
        assert_eq!(course(60, 4, |n, _| if n == 2 { 15 } else { 40 }), [], "not far below");
        assert_eq!(
            course(60, 4, |n, _| if n == 0 { 1 } else { 40 }),
            [],
            "connection 0 carries the messages"
        );
        assert_eq!(course(60, 2, |n, _| if n == 1 { 1 } else { 40 }), [], "too few to compare");
        assert_eq!(course(60, 4, |_, _| 0), [], "all wait");
        let recovers = |n, step: u64| if n == 1 && !step.is_multiple_of(19) { 1 } else { 40 };
        assert_eq!(course(60, 4, recovers), [], "less than 5 s each");
    }

    #[test]
    fn a_connection_that_stays_slow_is_opened_anew_ever_less_often() {
        let opened = course(220, 4, |n, _| if n == 3 { 1 } else { 40 });
        let times: Vec<u64> = opened.iter().map(|(step, _)| step / 4).collect();
        assert_eq!(times, [5, 35, 95, 215]);
    }
}
