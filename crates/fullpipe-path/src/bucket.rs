//! A token bucket with exact integer arithmetic.
//!
//! Tokens are counted in bits times 10^9, so a nanosecond at 1 bit/s adds exactly one token. No rounding
//! error accumulates, and at most `rate x T + burst` bits pass in any interval of length T.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

const SCALE: u128 = 1_000_000_000;

/// A token bucket with its rate, burst size and current fill. The bucket starts full.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    rate: Rate,
    capacity: u128,
    tokens: u128,
    at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(rate: Rate, burst: Bytes) -> Self {
        let capacity = scaled(burst);
        Self { rate: rate.max(Rate::from_bps(1)), capacity, tokens: capacity, at: Instant::ZERO }
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.at).as_nanos();
        let gained = u128::from(elapsed) * u128::from(self.rate.as_bps());
        self.tokens = self.capacity.min(self.tokens.saturating_add(gained));
        self.at = self.at.max(now);
    }

    /// Takes tokens for `len` bytes at `now`; returns `false` if the bucket contains too few.
    pub(crate) fn take(&mut self, now: Instant, len: Bytes) -> bool {
        self.fill(now);
        let needed = scaled(len);
        let enough = self.tokens >= needed;
        if enough {
            self.tokens -= needed;
        }
        enough
    }

    /// Takes tokens for `len` bytes as soon as they are available, at `now` or later, and returns that time.
    /// A packet larger than the bucket waits until enough tokens have accumulated, even beyond the bucket
    /// size.
    pub(crate) fn take_when_ready(&mut self, now: Instant, len: Bytes) -> Instant {
        self.fill(now);
        let needed = scaled(len);
        let at = self.at;
        if let Some(rest) = self.tokens.checked_sub(needed) {
            self.tokens = rest;
            return at;
        }
        let wait = (needed - self.tokens).div_ceil(u128::from(self.rate.as_bps()));
        let ready = at + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX));
        // The wait is rounded up to a nanosecond, so tokens beyond the packet's need stay in the bucket.
        self.tokens = self.tokens.saturating_add(wait * u128::from(self.rate.as_bps())) - needed;
        self.at = ready;
        ready
    }
}

fn scaled(amount: Bytes) -> u128 {
    u128::from(amount.get()) * 8 * SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In any interval of length T, at most rate x T + burst bytes pass.
    #[test]
    fn never_more_than_rate_and_burst() {
        let (rate, burst, len) = (Rate::from_bps(8_000_003), Bytes::new(20_000), Bytes::new(1_500));
        let mut bucket = TokenBucket::new(rate, burst);
        let passed: Vec<Instant> = (0..200_000u64)
            .map(|i| Instant::from_nanos(i * 400_000 + i * i % 1_000))
            .filter(|&now| bucket.take(now, len))
            .collect();
        for (i, &from) in passed.iter().enumerate().step_by(97) {
            for (j, &to) in passed.iter().enumerate().skip(i).step_by(131) {
                let amount = (j - i + 1) as u64 * len.get();
                let allowed = (rate * to.saturating_since(from)).get() + burst.get() + 1;
                assert!(amount <= allowed, "{amount} > {allowed} between {from} and {to}");
            }
        }
        let span = passed.last().unwrap().saturating_since(passed[0]);
        let mean = Rate::of(Bytes::new(passed.len() as u64 * 1_500), span);
        assert!((0.99..1.01).contains(&(mean.as_bps() as f64 / rate.as_bps() as f64)), "{mean}");
    }

    #[test]
    fn waiting_serves_exactly_at_the_rate() {
        let mut bucket = TokenBucket::new(Rate::from_bps(12_000_000), Bytes::new(3_000));
        let times: Vec<u64> =
            (0..5).map(|_| bucket.take_when_ready(Instant::ZERO, Bytes::new(1_500)).as_nanos()).collect();
        assert_eq!(times, [0, 0, 1_000_000, 2_000_000, 3_000_000]);
    }
}
