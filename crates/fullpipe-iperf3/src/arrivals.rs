//! Loss, reordering and jitter of a UDP stream, computed from the headers of received datagrams.
//!
//! A gap in the sequence numbers is counted as loss. A datagram that arrives late fills a gap and is counted
//! as out of order. A duplicate datagram cannot be distinguished from a late datagram, so duplicates hide
//! losses, as in iperf3.

use fullpipe_units::{Duration, Instant};

use crate::datagram::Header;

/// Weight of a new transit-time difference in the jitter estimate: 1/16 (RFC 1889 section 6.3.1).
const GAIN: f64 = 1.0 / 16.0;

/// Datagram counts of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Highest sequence number received: the number of datagrams that the sender is known to have sent.
    pub packets: u64,
    /// Number of datagrams that are missing, according to the sequence numbers.
    pub lost: u64,
    /// Number of datagrams that arrived after a datagram with a higher sequence number.
    pub out_of_order: u64,
}

impl Counts {
    /// Returns the difference between these counts and the counts `earlier`, which were taken before. The
    /// number of lost datagrams is zero, not negative, if more gaps have been filled than have newly
    /// appeared.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            lost: self.lost.saturating_sub(earlier.lost),
            out_of_order: self.out_of_order.saturating_sub(earlier.out_of_order),
        }
    }

    /// Returns the percentage of lost datagrams; zero if no datagram was received.
    pub fn lost_percent(self) -> f64 {
        if self.packets == 0 { 0.0 } else { 100.0 * self.lost as f64 / self.packets as f64 }
    }
}

/// Receive statistics of one UDP stream.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    counts: Counts,
    /// Jitter in nanoseconds, as a floating-point number, so that the division by 16 loses no fraction.
    jitter: f64,
    /// Transit time of the previous datagram: arrival time minus send time. The clocks of the two hosts are
    /// not synchronised, so only differences between transit times are meaningful.
    transit: Option<i128>,
}

impl Arrivals {
    /// Records that a datagram with this header arrived at `now`, on the receiver's clock.
    pub fn arrived(&mut self, now: Instant, header: Header) {
        let counts = &mut self.counts;
        if header.number > counts.packets {
            counts.lost = counts.lost.saturating_add(header.number - counts.packets - 1);
            counts.packets = header.number;
        } else {
            counts.out_of_order += 1;
            counts.lost = counts.lost.saturating_sub(1);
        }
        let transit = i128::from(now.as_nanos()) - i128::from(header.sent.as_nanos());
        if let Some(before) = self.transit.replace(transit) {
            self.jitter += ((transit - before).unsigned_abs() as f64 - self.jitter) * GAIN;
        }
    }

    /// Returns the datagram counts since the first datagram.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the jitter: the smoothed absolute difference between the transit times of successive
    /// datagrams.
    pub fn jitter(&self) -> Duration {
        Duration::from_nanos(self.jitter.round() as u64)
    }

    /// Resets the jitter at the end of the omitted period. The counts are not reset; the caller subtracts
    /// their current values with [`Counts::since`].
    pub fn omitted(&mut self) {
        self.jitter = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: &[u64]) -> Counts {
        let mut arrivals = Arrivals::default();
        for &number in numbers {
            arrivals.arrived(Instant::ZERO, Header { sent: Instant::ZERO, number });
        }
        arrivals.counts()
    }

    #[test]
    fn gaps_are_lost_and_late_ones_fill_them() {
        let counts = |packets, lost, out_of_order| Counts { packets, lost, out_of_order };
        assert_eq!(after(&[1, 2, 3]), counts(3, 0, 0));
        assert_eq!(after(&[1, 4, 5]), counts(5, 2, 0));
        assert_eq!(after(&[1, 3, 2, 4]), counts(4, 0, 1));
        assert_eq!(after(&[3]), counts(3, 2, 0));
        // A duplicate is counted as a late datagram, although it fills no gap.
        assert_eq!(after(&[1, 1, 1]), counts(1, 0, 2));
    }

    #[test]
    fn hostile_numbers_overflow_nothing() {
        let counts = after(&[1, u64::MAX, 0, u64::MAX, 5]);
        assert_eq!((counts.packets, counts.out_of_order), (u64::MAX, 3));
        let mut arrivals = Arrivals::default();
        for nanos in [0, u64::MAX, 0] {
            let header = Header { sent: Instant::from_nanos(u64::MAX - nanos), number: 1 };
            arrivals.arrived(Instant::from_nanos(nanos), header);
        }
        assert!(arrivals.jitter() > Duration::ZERO);
    }

    /// The jitter filter is that of RFC 1889 section 6.3.1: J += (|D| - J) / 16, starting at zero with the
    /// second datagram.
    #[test]
    fn jitter_is_the_filter_of_rfc_1889() {
        let mut arrivals = Arrivals::default();
        let micros = |micros: u64| Instant::from_nanos(micros * 1_000);
        // The sender's clock is far ahead of the receiver's; the transit time changes by 160 us, and then by
        // 0 us.
        for (number, sent, now) in [(1, 9_000_000, 100), (2, 9_001_000, 1_260), (3, 9_002_000, 2_260)] {
            arrivals.arrived(micros(now), Header { sent: micros(sent), number });
        }
        assert_eq!(arrivals.jitter(), Duration::from_nanos(9_375));
        arrivals.omitted();
        assert_eq!(arrivals.jitter(), Duration::ZERO);
    }

    #[test]
    fn an_interval_is_a_difference() {
        let earlier = Counts { packets: 10, lost: 3, out_of_order: 0 };
        let later = Counts { packets: 30, lost: 2, out_of_order: 1 };
        assert_eq!(later.since(earlier), Counts { packets: 20, lost: 0, out_of_order: 1 });
        assert!((Counts { packets: 20, lost: 5, out_of_order: 0 }.lost_percent() - 25.0).abs() < 1e-9);
        assert!(Counts::default().lost_percent().abs() < 1e-9);
    }
}
