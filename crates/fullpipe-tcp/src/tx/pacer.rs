//! Pacer: releases transmissions at a given rate.
//!
//! Each transmission postpones the next one by `length / rate`. A delayed sender may catch up by at most half
//! an interval, so that idle time does not lead to a burst.

use fullpipe_units::{Bytes, Instant, Rate};

/// Number of segments at the start of a connection that are not paced, because the initial window leaves at
/// once.
const UNPACED_SEGMENTS: u64 = 10;

/// Pacer of a connection, which keeps the earliest departure time of the next transmission.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    next_departure: Instant,
    segments: u64,
}

impl Pacer {
    /// Returns the earliest departure time of the next transmission.
    pub(crate) fn next_departure(&self) -> Instant {
        self.next_departure
    }

    /// Records that `len` payload bytes left in `segments` segments at `now`, paced at `rate` if a rate is
    /// set.
    pub(crate) fn on_send(&mut self, now: Instant, len: u64, segments: u64, rate: Option<Rate>) {
        let paced = self.segments >= UNPACED_SEGMENTS;
        self.segments += segments;
        let late = now.saturating_since(self.next_departure);
        self.next_departure = self.next_departure.max(now);
        if let Some(rate) = rate
            && paced
            && rate != Rate::MAX
            && !rate.is_zero()
        {
            let interval = rate.time_for(Bytes::new(len));
            self.next_departure += interval - late.min(interval / 2);
        }
    }

    /// Returns the time from `now` until the next transmission may leave.
    #[cfg(test)]
    fn wait(&self, now: Instant) -> fullpipe_units::Duration {
        self.next_departure.saturating_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Duration;

    const RATE: Rate = Rate::from_bps(12_000_000);

    fn warm() -> Pacer {
        Pacer { next_departure: Instant::ZERO, segments: UNPACED_SEGMENTS }
    }

    /// At 12 Mbit/s, a packet of 1500 bytes leaves every millisecond, without cumulative error (PC-1).
    #[test]
    fn spacing_is_exact() {
        let mut pacer = warm();
        for i in 0..1000 {
            assert_eq!(pacer.next_departure(), Instant::ZERO + Duration::from_millis(i));
            pacer.on_send(pacer.next_departure(), 1500, 1, Some(RATE));
        }
    }

    /// A new pacing rate applies only to packets sent afterwards (PC-2). It does not change a wait that the
    /// old rate has already set.
    #[test]
    fn a_new_rate_counts_from_the_next_packet() {
        let mut pacer = warm();
        pacer.on_send(Instant::ZERO, 1500, 1, Some(RATE));
        assert_eq!(pacer.wait(Instant::ZERO), Duration::from_millis(1));
        pacer.on_send(pacer.next_departure(), 1500, 1, Some(Rate::from_bps(3_000_000)));
        assert_eq!(pacer.wait(Instant::ZERO), Duration::from_millis(5));
        pacer.on_send(pacer.next_departure(), 1500, 1, Some(RATE));
        assert_eq!(pacer.wait(Instant::ZERO), Duration::from_millis(6));
    }

    /// After ten idle seconds, the pacing credit is limited to half an interval (PC-3).
    #[test]
    fn idle_time_is_not_saved_up() {
        let mut pacer = warm();
        let now = Instant::ZERO + Duration::from_secs(10);
        pacer.on_send(now, 1500, 1, Some(RATE));
        assert_eq!(pacer.wait(now), Duration::from_micros(500));
        pacer.on_send(pacer.next_departure(), 1500, 1, Some(RATE));
        assert_eq!(pacer.wait(now), Duration::from_micros(1500));
    }

    #[test]
    fn the_initial_window_leaves_at_once() {
        let mut pacer = Pacer::default();
        for _ in 0..10 {
            pacer.on_send(Instant::ZERO, 1448, 1, Some(RATE));
            assert_eq!(pacer.next_departure(), Instant::ZERO);
        }
        pacer.on_send(Instant::ZERO, 1448, 1, Some(RATE));
        assert!(pacer.next_departure() > Instant::ZERO);
    }
}
