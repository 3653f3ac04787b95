//! The receiver state that the sender knew at each transmission, inferred at any point on the path.
//!
//! ```text
//!   sender ◄───── ACK (value 7) ◄───── tap ◄───── receiver        recorded as it passes
//!   sender ─────► data (echo 7) ─────► tap ─────► receiver        the sender knew the recorded ACK
//! ```
//!
//! At the sender, the last captured ACK is the one that the sender knows. At any other point, the latest
//! captured ACKs were still on their way to the sender when it sent the data that passes now. An ACK counts
//! as known to the sender once the data echoes the ACK's timestamp or a later one (RFC 7323), and the time
//! to the sender and back has passed. Otherwise a capture at the receiver would show nothing in flight and
//! a window that is never full.

use std::collections::VecDeque;

use fullpipe_units::{Duration, Instant};

/// Content of an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AckInfo {
    /// Time at which the ACK passed the tap.
    pub(super) at: Instant,
    /// Value of the timestamp option.
    pub(super) value: Option<u32>,
    /// First unacknowledged byte.
    pub(super) una: u64,
    /// Number of bytes above `una` that SACK blocks report as received.
    pub(super) sacked: u64,
    /// First byte beyond the receive window.
    pub(super) edge: u64,
}

/// ACKs on their way to the sender, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    passed: VecDeque<AckInfo>,
    known: Option<AckInfo>,
}

impl Answers {
    /// Records an ACK; if there are more than `most`, every other one is dropped.
    pub(super) fn passes(&mut self, told: AckInfo, most: usize) {
        if self.passed.len() >= most.max(2) {
            let mut number = 0;
            self.passed.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        self.passed.push_back(told);
    }

    /// Returns the ACK that the sender knew when it sent the data that passes at `now`, and whether it is
    /// newer than the ACK for the previous data; `away` is the shortest time from the tap to the sender and
    /// back.
    pub(super) fn known(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        away: Duration,
    ) -> Option<(AckInfo, bool)> {
        let mut fresh = false;
        while let Some(next) = self.passed.front() {
            let arrived = now.saturating_since(next.at) >= away;
            let echoed = match (next.value, echo) {
                // Timestamps wrap: half of their range counts as earlier.
                (Some(value), Some(echo)) => echo.wrapping_sub(value) as i32 >= 0,
                _ => true,
            };
            if !(arrived && echoed) {
                break;
            }
            self.known = self.passed.pop_front();
            fresh = true;
        }
        self.known.map(|told| (told, fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(millis: u64, una: u64) -> AckInfo {
        let at = Instant::from_nanos(millis * 1_000_000);
        AckInfo { at, value: Some(millis as u32), una, ..AckInfo::default() }
    }

    /// At the receiver, the sender knows an ACK only one round trip later, and not before its timestamp is
    /// echoed.
    #[test]
    fn an_ack_counts_once_it_is_echoed() {
        let (mut answers, away) = (Answers::default(), Duration::from_millis(100));
        for (millis, una) in [(0, 10), (50, 20), (60, 30)] {
            answers.passes(told(millis, una), 512);
        }
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        assert_eq!(answers.known(at(90), Some(0), away), None);
        assert_eq!(answers.known(at(100), Some(0), away).map(|(told, _)| told.una), Some(10));
        // Two ACKs are old enough, but the data echoes only one of them.
        assert_eq!(answers.known(at(170), Some(50), away).map(|(told, _)| told.una), Some(20));
        assert_eq!(answers.known(at(171), None, away).map(|(told, _)| told.una), Some(30));
    }

    #[test]
    fn a_long_way_takes_no_more_room() {
        let mut answers = Answers::default();
        for i in 0..10_000 {
            answers.passes(told(i, i), 64);
            assert!(answers.passed.len() <= 64);
        }
    }
}
