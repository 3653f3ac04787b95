//! Pacer: releases transmissions at a given rate.
//!
//! Each transmission postpones the next one by `length / rate`. A delayed sender may catch up by at most half
//! an interval, so that idle time does not lead to a burst. A sender that only the pacer has delayed may catch up
//! by more ([`Bursts`](crate::Bursts)).

use fullpipe_units::{Bytes, Duration, Instant, Rate};

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
    /// set. With `missed`, the sender catches up by at most this time, instead of half an interval.
    pub(crate) fn on_send(
        &mut self,
        now: Instant,
        len: u64,
        segments: u64,
        rate: Option<Rate>,
        missed: Option<Duration>,
    ) {
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
            let made_up = late.min(missed.unwrap_or(interval / 2));
            // The next departure is in the past as long as the sender has not caught up.
            let due = self.next_departure + interval;
            self.next_departure = Instant::from_nanos(due.as_nanos() - made_up.as_nanos());
        }
    }

    /// Returns the time from `now` until the next transmission may leave.
    #[cfg(test)]
    fn wait(&self, now: Instant) -> Duration {
        self.next_departure.saturating_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            pacer.on_send(pacer.next_departure(), 1500, 1, Some(RATE), None);
        }
    }

    /// A new pacing rate applies only to packets sent afterwards (PC-2). It does not change a wait that the
    /// old rate has already set.
    #[test]
    fn a_new_rate_counts_from_the_next_packet() {
        let mut pacer = warm();
        pacer.on_send(Instant::ZERO, 1500, 1, Some(RATE), None);
        assert_eq!(pacer.wait(Instant::ZERO), Duration::from_millis(1));
        pacer.on_send(pacer.next_departure(), 1500, 1, Some(Rate::from_bps(3_000_000)), None);
        assert_eq!(pacer.wait(Instant::ZERO), Duration::from_millis(5));
        pacer.on_send(pacer.next_departure(), 1500, 1, Some(RATE), None);
        assert_eq!(pacer.wait(Instant::ZERO), Duration::from_millis(6));
    }

    /// After ten idle seconds, the pacing credit is limited to half an interval (PC-3).
    #[test]
    fn idle_time_is_not_saved_up() {
        let mut pacer = warm();
        let now = Instant::ZERO + Duration::from_secs(10);
        pacer.on_send(now, 1500, 1, Some(RATE), None);
        assert_eq!(pacer.wait(now), Duration::from_micros(500));
        pacer.on_send(pacer.next_departure(), 1500, 1, Some(RATE), None);
        assert_eq!(pacer.wait(now), Duration::from_micros(1500));
    }

    /// A sender that wakes up late sends the data that it has missed, but at most the amount for the given
    /// time.
    #[test]
    fn a_late_sender_catches_up() {
        let most = Some(Duration::from_millis(4));
        for (late, packets) in [(0, 1), (3, 4), (4, 5), (50, 5)] {
            let mut pacer = warm();
            let now = Instant::ZERO + Duration::from_millis(late);
            let mut sent = 0;
            while pacer.next_departure() <= now {
                pacer.on_send(now, 1500, 1, Some(RATE), most);
                sent += 1;
            }
            assert_eq!((sent, pacer.wait(now)), (packets, Duration::from_millis(1)), "{late} ms late");
        }
    }

    #[test]
    fn the_initial_window_leaves_at_once() {
        let mut pacer = Pacer::default();
        for _ in 0..10 {
            pacer.on_send(Instant::ZERO, 1448, 1, Some(RATE), None);
            assert_eq!(pacer.next_departure(), Instant::ZERO);
        }
        pacer.on_send(Instant::ZERO, 1448, 1, Some(RATE), None);
        assert!(pacer.next_departure() > Instant::ZERO);
    }
}
