//! Rate limit for bytes that a relay reads or writes for a client.
//!
//! Bytes are moved in parts. After each part, all connections of the client wait for the time that the part
//! takes at the limit. A part that starts late shortens the following wait by at most [`CREDIT`], so that
//! timers that fire late do not lower the mean rate.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Time that a part may take at the rate: short compared with the 100 ms over which bursts are noticed.
const PART: Duration = Duration::from_millis(4);
/// Smallest and largest part in bytes. A TLS record has at most 16 KiB.
const LEAST_PART: u64 = 1 << 10;
const MOST_PART: u64 = 64 << 10;
/// Longest idle time that later parts may make up for.
const CREDIT: Duration = Duration::from_millis(10);

/// Rate limit with the time at which the next part is due.
#[derive(Debug)]
pub(crate) struct Allowance {
    rate: Rate,
    due: Instant,
}

impl Allowance {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, due: Instant::ZERO }
    }

    /// Returns the largest number of bytes to move at once.
    pub(crate) fn part(&self) -> usize {
        // At most 64 KiB, which fits into every integer type.
        (self.rate * PART).get().clamp(LEAST_PART, MOST_PART) as usize
    }

    /// Returns the time to wait before the next part.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_since(now)
    }

    /// Records that `bytes` were moved at the time `now`.
    pub(crate) fn take(&mut self, now: Instant, bytes: Bytes) {
        let earliest = Instant::ZERO + now.saturating_since(Instant::ZERO).saturating_sub(CREDIT);
        self.due = self.due.max(earliest) + self.rate.time_for(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several connections read as much as they may, and their timers are a millisecond late.
    #[test]
    fn connections_together_have_the_rate_and_no_bursts() {
        for (mbit, connections) in [(1, 1), (10, 4), (100, 16), (1000, 3)] {
            let rate = Rate::from_bps(mbit * 1_000_000);
            let mut allowance = Allowance::new(rate);
            let mut waits = vec![Instant::ZERO; connections];
            let mut read: Vec<(Instant, u64)> = Vec::new();
            let end = Instant::ZERO + Duration::from_secs(2);
            while let Some(now) = waits.iter().min().copied().filter(|now| *now < end) {
                let reader = waits.iter().position(|wait| *wait == now).expect("the earliest");
                let wait = allowance.wait(now);
                if wait > Duration::ZERO {
                    waits[reader] = now + wait + Duration::from_millis(1);
                    continue;
                }
                let part = allowance.part() as u64;
                allowance.take(now, Bytes::new(part));
                read.push((now, part));
            }
            let sum = |from: Instant, to: Instant| -> f64 {
                read.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, part)| *part as f64).sum()
            };
            let mean = sum(Instant::ZERO, end) * 8.0 / 2.0 / (mbit as f64 * 1e6);
            assert!((0.99..1.02).contains(&mean), "{mbit} Mbit/s over {connections}: {mean}");
            let window = Duration::from_millis(100);
            let most = read.iter().map(|(at, _)| sum(*at, *at + window)).fold(0.0, f64::max);
            let most = most * 8.0 / 0.1 / (mbit as f64 * 1e6);
            assert!(most < 1.2, "{mbit} Mbit/s over {connections}: {most} in 100 ms");
        }
    }
}
