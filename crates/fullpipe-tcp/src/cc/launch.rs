//! Launch: the first flight of a connection whose window exceeds RFC 6928's ten segments.
//!
//! As a burst, such a flight would overflow short queues. The flight is therefore paced, like the unvalidated
//! phase of Careful Resume (RFC 9959). The first ten segments leave at once, as in every connection
//! (`tx/pacer.rs`).

use fullpipe_units::{Bytes, Duration, Rate};

use super::window::INITIAL_SEGMENTS;

/// Window and pacing rate of the first flight, chosen by the owner of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Initial congestion window in segments.
    pub window: u32,
    /// Upper bound of the pacing rate of the first flight.
    pub rate: Rate,
}

impl Launch {
    /// Launch of surge, and default for a window or rate that a profile omits: 44 segments at up to 20
    /// Mbit/s.
    ///
    /// In 2017, several content delivery networks used an initial window of 44 to 46 segments (cdnplanet,
    /// "Initcwnd settings of major CDN providers"). 44 is the largest number of full-sized segments (1448
    /// bytes) below 64 000 bytes. A Linux client first offers a window of 65 160 bytes, so a larger window
    /// would gain little. At 20 Mbit/s, a segment of 1500 bytes leaves every 0.6 ms.
    pub const DEFAULT: Self = Self { window: 44, rate: Rate::from_bps(20_000_000) };

    /// Divisor of the RTT: the first flight takes at least a quarter of the RTT. If it took a full round
    /// trip, a small transfer would lose more time than the larger window saves.
    const RTT_SHARE: u64 = 4;

    /// Divisor of the RTT: the first flight takes at most half of the RTT. On a short path, 44 segments are several BDP of
    /// a slow link, and fill its queue before the first ACK shows the rate. At 10 Mbit/s and 30 ms, 60 kB take 1.3 times as
    /// long as with BBRv1 if the flight takes longer, and 0.8 times as long if it does not.
    const LONGEST_SHARE: u64 = 2;

    /// Returns the initial congestion window in bytes.
    pub const fn bytes(self, mss: u64) -> u64 {
        self.window as u64 * mss
    }

    /// Returns the launch on a path with the given RTT: as many segments as [`Launch::rate`] sends in half of the RTT, but at
    /// least ten, and at most [`Launch::window`].
    pub fn within(self, mss: u64, rtt: Option<Duration>) -> Self {
        let Some(rtt) = rtt else { return self };
        let most = (self.rate * (rtt / Self::LONGEST_SHARE)).get().div_ceil(mss.max(1));
        let most = u32::try_from(most).unwrap_or(u32::MAX).max(INITIAL_SEGMENTS as u32);
        Self { window: self.window.min(most), ..self }
    }

    /// Returns the pacing rate of the first flight: a window per quarter of the RTT, but at most
    /// [`Launch::rate`].
    pub fn pacing_rate(self, mss: u64, rtt: Option<Duration>) -> Rate {
        let spread = |rtt: Duration| Rate::of(Bytes::new(self.bytes(mss)), rtt / Self::RTT_SHARE);
        rtt.map_or(self.rate, |rtt| self.rate.min(spread(rtt)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a short path, the bound on the rate applies; on a long path, the flight takes a quarter of the RTT.
    #[test]
    fn the_flight_is_spread_over_a_quarter_of_the_rtt() {
        let launch = Launch::DEFAULT;
        let ms = Duration::from_millis;
        assert_eq!(launch.bytes(1_448), 63_712);
        for (rtt, bps) in
            [(None, 20_000_000), (Some(0), 20_000_000), (Some(50), 20_000_000), (Some(200), 10_193_920)]
        {
            assert_eq!(launch.pacing_rate(1_448, rtt.map(ms)), Rate::from_bps(bps), "{rtt:?}");
        }
    }

    /// On a short path, the flight has only as many segments as leave within half of the RTT.
    /// Ten segments leave on any path.
    #[test]
    fn the_flight_takes_at_most_half_of_the_rtt() {
        let window = |rtt: Option<u64>, rate: u64| {
            let launch = Launch { rate: Rate::from_bps(rate), ..Launch::DEFAULT };
            launch.within(1_448, rtt.map(Duration::from_millis)).window
        };
        for (rtt, segments) in [(None, 44), (Some(50), 44), (Some(40), 35), (Some(20), 18), (Some(0), 10)] {
            assert_eq!(window(rtt, 20_000_000), segments, "{rtt:?}");
        }
        assert_eq!(window(Some(20), 50_000_000), 44);
    }
}
