//! Packet times in a capture whose clock may be set during the recording.
//!
//! ```text
//!   timestamps of the file    0   1   2   3 │ 3603  3604          set forward: TCP shows that no hour passed
//!   time of the packets       0   1   2   3 │    3     4
//!   timestamps of the file    0   1   2   3 │ -57  -56            set back: time never runs backwards
//!   time of the packets       0   1   2   3 │   3    4
//! ```
//!
//! The clock is set if NTP steps it or if a virtual machine resumes; a damaged file may contain wrong
//! timestamps. Without a correction, a step forward would lengthen the transfer, and a step back would put
//! the rest of the transfer into a single instant.

use fullpipe_units::{Duration, Instant};

/// Minimum backward step of the timestamps that shows that the clock was set back. With several processors,
/// packets are out of order by microseconds, and by more in files that were merged without sorting.
const BACK: Duration = Duration::from_secs(1);
/// Minimum pause that a clock set forward may explain.
const FORWARD: Duration = Duration::from_secs(1);

/// Converts the timestamps of a file to a time that never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CaptureClock {
    /// Timestamp of the last packet, or `None` before the first.
    last: Option<Instant>,
    /// Time of the last packet.
    now: Instant,
    begin: Instant,
    leaps: u64,
    first: Option<Leap>,
}

/// Step by which the clock was set forward or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leap {
    /// Time since the first packet.
    after: Duration,
    by: Duration,
    forward: bool,
}

impl CaptureClock {
    /// Returns how often the clock has been set so far.
    pub(super) const fn leaps(&self) -> u64 {
        self.leaps
    }

    /// Returns the time of a packet with timestamp `at`. `stood_still` returns whether TCP shows that a pause
    /// of the given length did not take place.
    #[inline]
    pub(super) fn time(&mut self, at: Instant, stood_still: impl FnOnce(Duration) -> bool) -> Instant {
        let Some(last) = self.last else {
            (self.last, self.now, self.begin) = (Some(at), at, at);
            return at;
        };
        if at >= last {
            let pause = at.saturating_since(last);
            self.last = Some(at);
            if pause >= FORWARD && stood_still(pause) {
                self.leap(pause, true);
            } else {
                // A damaged file may contain any timestamps, and their sum must not overflow.
                let now = self.now.as_nanos().saturating_add(pause.as_nanos());
                self.now = Instant::from_nanos(now.min(u64::MAX / 2));
            }
        } else if last.saturating_since(at) >= BACK {
            self.leap(last.saturating_since(at), false);
            self.last = Some(at);
        }
        self.now
    }

    fn leap(&mut self, by: Duration, forward: bool) {
        self.leaps += 1;
        self.first.get_or_insert(Leap { after: self.now.saturating_since(self.begin), by, forward });
    }

    /// Returns a sentence about the steps of the clock, if there were any.
    pub(super) fn remark(&self) -> Option<String> {
        let Leap { after, by, forward } = self.first?;
        let direction = if forward { "forward" } else { "back" };
        let more = match self.leaps {
            1 => String::new(),
            2 => ", and once more".into(),
            leaps => format!(", and {} more times", leaps - 1),
        };
        Some(format!(
            "the clock of the capturing host was set {direction} by {by}, {after} after the start of the \
             capture{more}; all times are corrected for this"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// The time continues without a gap after clock changes in both directions, and a real pause is kept.
    #[test]
    fn leaps_are_left_out_and_pauses_stay() {
        let mut clock = CaptureClock::default();
        assert_eq!(clock.time(at(10_000), |_| true), at(10_000));
        assert_eq!(clock.time(at(10_500), |_| true), at(10_500));
        assert_eq!(clock.time(at(13_000), |_| false), at(13_000));
        assert_eq!(clock.time(at(3_613_000), |_| true), at(13_000));
        assert_eq!(clock.time(at(3_613_100), |_| true), at(13_100));
        assert_eq!(clock.time(at(3_613_099), |_| true), at(13_100));
        assert_eq!(clock.time(at(5_000), |_| true), at(13_100));
        assert_eq!(clock.time(at(5_400), |_| true), at(13_500));
        let told = clock.remark().expect("two leaps");
        assert!(
            told.contains("set forward by 3600s, 3s after the start of the capture, and once more"),
            "{told}"
        );
        assert_eq!(CaptureClock::default().remark(), None);
    }
}
