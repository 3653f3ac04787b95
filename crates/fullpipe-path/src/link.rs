//! Links that serve a queue: at a constant rate, or at the delivery opportunities of a trace.
//!
//! ```text
//!   rate     ────────■■■■■■■■□□□□□□□□■■■■■■■■──►    a packet takes length / rate
//!   trace    ──|──────||───|──────────|──|───►      an opportunity carries a number of bytes at once; the unused
//!                                                  rest is lost if the queue is empty
//! ```

use std::sync::Arc;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Periodic transmission opportunities of a link, each for the same number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Times of the opportunities in ascending order, relative to the start of a period.
    times: Arc<[Duration]>,
    period: Duration,
    bytes: Bytes,
}

impl Opportunities {
    /// Creates opportunities of `bytes` at `times`, repeated every `period`.
    ///
    /// Returns `None` if there are no times, if the times are not in ascending order, or if any time exceeds
    /// the period. Also returns `None` if the period or `bytes` is zero, because the link would then transmit
    /// nothing, or everything at once.
    pub fn new(times: Vec<Duration>, period: Duration, bytes: Bytes) -> Option<Self> {
        let last = *times.last()?;
        let good = times.is_sorted() && last <= period && !period.is_zero() && !bytes.is_zero();
        good.then(|| Self { times: times.into(), period, bytes })
    }

    /// Returns the times of the opportunities, relative to the start of a period.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Returns the time after which the opportunities repeat.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the number of bytes that each opportunity can carry.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Returns the mean link rate that the transmission opportunities provide.
    pub fn mean_rate(&self) -> Rate {
        Rate::of(Bytes::new(self.bytes.get().saturating_mul(self.times.len() as u64)), self.period)
    }

    /// Returns the time of opportunity `number`; opportunities are numbered across all periods.
    fn at(&self, number: u64) -> Instant {
        let count = self.times.len() as u64;
        let within = self.times[(number % count) as usize];
        let before = self.period.as_nanos().saturating_mul(number / count);
        Instant::from_nanos(before.saturating_add(within.as_nanos()))
    }

    /// Returns the number of the first opportunity at `time` or later. The result is at least `from`.
    fn first_from(&self, from: u64, time: Instant) -> u64 {
        if self.at(from) >= time {
            return from;
        }
        let (count, period) = (self.times.len() as u64, self.period.as_nanos());
        // An opportunity at the end of a period has the same time as the start of the next period, and comes
        // before that period's opportunities.
        let (cycle, within) = match (time.as_nanos() / period, time.as_nanos() % period) {
            (cycle @ 1.., 0) => (cycle - 1, period),
            other => other,
        };
        let index = self.times.partition_point(|at| at.as_nanos() < within) as u64;
        (cycle * count + index).max(from)
    }
}

/// A link that transmits packets in order of arrival.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Constant(Constant),
    TraceDriven(TraceDriven),
}

impl Link {
    /// Creates a link of constant rate. A rate of zero is treated as 1 bit/s.
    pub(crate) fn constant(rate: Rate) -> Self {
        Self::Constant(Constant { rate: rate.max(Rate::from_bps(1)), free_at: Instant::ZERO, carry: 0 })
    }

    pub(crate) fn traced(opportunities: Opportunities) -> Self {
        let left = opportunities.bytes.get();
        Self::TraceDriven(TraceDriven { opportunities, next: 0, left, free_at: Instant::ZERO })
    }

    /// Returns the time at which the link has transmitted all its packets.
    pub(crate) fn free_at(&self) -> Instant {
        match self {
            Self::Constant(link) => link.free_at,
            Self::TraceDriven(link) => link.free_at,
        }
    }

    /// Returns the time at which a packet that is ready at `ready` begins transmission.
    pub(crate) fn start(&self, ready: Instant) -> Instant {
        match self {
            Self::Constant(link) => link.free_at.max(ready),
            Self::TraceDriven(link) => link.cursor(ready).2,
        }
    }

    /// Transmits `len` bytes from `start` on, and returns the completion time. `start` must be a time
    /// returned by [`Link::start`].
    pub(crate) fn send(&mut self, start: Instant, len: u32) -> Instant {
        match self {
            Self::Constant(link) => link.send(start, len),
            Self::TraceDriven(link) => link.send(start, len),
        }
    }

    /// Returns the mean transmission time of a packet of `len` bytes.
    pub(crate) fn mean_service(&self, len: u32) -> Duration {
        let rate = match self {
            Self::Constant(link) => link.rate,
            Self::TraceDriven(link) => link.opportunities.mean_rate(),
        };
        rate.time_for(Bytes::new(len.into()))
    }
}

const NANOS_PER_BYTE_AT_1BPS: u64 = 8_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Constant {
    rate: Rate,
    free_at: Instant,
    /// Fraction of a nanosecond by which `free_at` is too early, in units of 1/rate ns, as in
    /// [`Hop`](crate::Hop).
    carry: u64,
}

impl Constant {
    fn send(&mut self, start: Instant, len: u32) -> Instant {
        if self.free_at < start {
            self.carry = 0;
        }
        self.free_at = start;
        if self.rate != Rate::MAX {
            let rate = self.rate.as_bps();
            let work = u64::from(len) * NANOS_PER_BYTE_AT_1BPS + self.carry;
            self.free_at += Duration::from_nanos(work / rate);
            self.carry = work % rate;
        }
        self.free_at
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TraceDriven {
    opportunities: Opportunities,
    /// Number of the current transmission opportunity, and the bytes that remain in it.
    next: u64,
    left: u64,
    free_at: Instant,
}

impl TraceDriven {
    /// Returns the number, the remaining bytes and the time of the opportunity in which a packet that is
    /// ready at `ready` begins transmission.
    fn cursor(&self, ready: Instant) -> (u64, u64, Instant) {
        let (next, left) = match self.left {
            0 => (self.next + 1, self.opportunities.bytes.get()),
            left => (self.next, left),
        };
        let first = self.opportunities.first_from(next, ready.max(self.free_at));
        let left = if first == next { left } else { self.opportunities.bytes.get() };
        (first, left, self.opportunities.at(first))
    }

    fn send(&mut self, start: Instant, len: u32) -> Instant {
        (self.next, self.left, self.free_at) = self.cursor(start);
        let mut rest = u64::from(len);
        while rest > self.left {
            rest -= self.left;
            self.next += 1;
            self.left = self.opportunities.bytes.get();
        }
        self.left -= rest;
        self.free_at = self.opportunities.at(self.next);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|&ms| Duration::from_millis(ms)).collect()
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Each time in the trace is an opportunity to send 1500 bytes. Opportunities at equal times add up, and
    /// the trace restarts after its last entry.
    #[test]
    fn opportunities_repeat() {
        let trace =
            Opportunities::new(millis(&[1, 1, 4, 10]), Duration::from_millis(10), Bytes::new(1_500)).unwrap();
        assert_eq!(trace.mean_rate(), Rate::from_bps(4_800_000));
        let times: Vec<_> = (0..8).map(|n| trace.at(n)).collect();
        assert_eq!(times, [at(1), at(1), at(4), at(10), at(11), at(11), at(14), at(20)]);
        for ms in 0..60 {
            let first = trace.first_from(0, at(ms));
            assert!(trace.at(first) >= at(ms) && (first == 0 || trace.at(first - 1) < at(ms)), "{ms} ms");
        }
        let from_zero =
            Opportunities::new(millis(&[0, 3, 10]), Duration::from_millis(10), Bytes::new(1_500)).unwrap();
        for nanos in (0..50_000_000).step_by(250_000) {
            let (first, time) =
                (from_zero.first_from(0, Instant::from_nanos(nanos)), Instant::from_nanos(nanos));
            assert!(
                from_zero.at(first) >= time && (first == 0 || from_zero.at(first - 1) < time),
                "{nanos} ns"
            );
        }
        assert_eq!(trace.first_from(9, at(3)), 9, "what has been used is not used again");
    }

    #[test]
    fn useless_traces_are_refused() {
        let (ms, len) = (Duration::from_millis(10), Bytes::new(1_500));
        for (times, period, bytes) in [
            (millis(&[]), ms, len),
            (millis(&[2, 1]), ms, len),
            (millis(&[11]), ms, len),
            (millis(&[0]), Duration::ZERO, len),
            (millis(&[1]), ms, Bytes::ZERO),
        ] {
            assert_eq!(Opportunities::new(times.clone(), period, bytes), None, "{times:?}");
        }
    }

    /// A packet may start in one opportunity and end in the next. A packet that is already waiting gets the
    /// remaining bytes of an opportunity; if no packet is waiting, those bytes are lost.
    #[test]
    fn a_trace_counts_bytes() {
        let trace =
            Opportunities::new(millis(&[1, 2, 3, 4]), Duration::from_millis(4), Bytes::new(1_500)).unwrap();
        let mut link = Link::traced(trace);
        let mut serve = |ready, len| {
            let start = link.start(ready);
            (start, link.send(start, len))
        };
        assert_eq!(serve(at(0), 1_000), (at(1), at(1)));
        assert_eq!(serve(at(0), 1_000), (at(1), at(2)), "500 bytes of the first and of the second");
        assert_eq!(serve(at(2), 1_000), (at(2), at(2)), "the other 1000 of the second");
        assert_eq!(serve(at(2), 100), (at(3), at(3)));
        // No packet was waiting at 3 ms, so the remaining 1400 bytes are lost.
        assert_eq!(serve(Instant::from_nanos(3_000_001), 3_001), (at(4), at(6)));
        assert_eq!(serve(at(100), 1_500), (at(100), at(100)));
    }
}
