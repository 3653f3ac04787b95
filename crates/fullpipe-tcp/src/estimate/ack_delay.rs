//! Judges whether the peer acknowledges promptly, so that a shorter retransmission timeout is safe.
//!
//! A receiver acknowledges every second full-sized segment at once, but may wait up to 500 ms before it acknowledges a
//! single segment (RFC 5681 section 4.2). Only an ACK of a single segment therefore shows how long the peer waits. The
//! delay of an ACK is the RTT of the oldest segment that it acknowledges minus the minimum RTT. It includes the time in
//! a queue, so it is an upper bound of the ACK delay.
//!
//! | observation | effect |
//! |---|---|
//! | ACK of one segment that was sent once, while nothing is missing, with a delay of at most 50 ms | a prompt ACK |
//! | ACK of any number of segments with a delay of more than 50 ms | the peer counts as late |
//! | unnecessary retransmission: a D-SACK, or a spurious timeout | the peer counts as late |
//!
//! A peer is prompt after [`LEAST_ACKS`] prompt ACKs. A late peer stays late until the connection ends, so a peer that
//! begins to delay its ACKs causes at most one spurious timeout.
//!
//! ACKs that arrive before their data can have arrived do not help a peer: they lower the minimum RTT, so that its
//! later ACKs count as late. Neither does a peer that acknowledges one segment in several parts: it acknowledges
//! only one whole segment.

use fullpipe_units::Duration;

/// Largest delay of a prompt ACK. The delay of Linux is 40 ms, unless its timer expires several times in a row.
const PROMPT: Duration = Duration::from_millis(50);
/// Number of prompt ACKs after which the peer counts as prompt. Some receivers delay ACKs until the next tick of a timer
/// of 200 ms. They acknowledge a quarter of all single segments within 50 ms, and four in a row once in 256 times.
const LEAST_ACKS: u8 = 4;

/// ACK delay of the peer, as far as it matters for the retransmission timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AckDelay {
    /// Number of prompt ACKs, up to [`LEAST_ACKS`].
    prompt: u8,
    late: bool,
}

impl AckDelay {
    /// Records the delay of an ACK. `single` indicates whether the ACK acknowledged one segment that was sent once, while
    /// nothing was missing.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, delay: Duration, single: bool) {
        if delay > PROMPT {
            self.late = true;
        } else if single && self.prompt < LEAST_ACKS {
            self.prompt += 1;
        }
    }

    /// Counts the peer as late until the connection ends.
    pub(super) fn expect_late_acks(&mut self) {
        self.late = true;
    }

    /// Returns whether the peer acknowledges promptly.
    #[inline(always)]
    pub(super) fn is_prompt(self) -> bool {
        self.prompt == LEAST_ACKS && !self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(acks: &[(u64, bool)]) -> AckDelay {
        let mut delay = AckDelay::default();
        acks.iter().for_each(|&(ms, single)| delay.on_ack(Duration::from_millis(ms), single));
        delay
    }

    /// Four ACKs of single segments within 50 ms show a prompt peer. ACKs of several segments show nothing, and a single
    /// late ACK of any kind shows a late peer.
    #[test]
    fn four_prompt_acks_and_no_late_one() {
        assert!(after(&[(50, true); 4]).is_prompt());
        assert!(!after(&[(50, true); 3]).is_prompt());
        assert!(!after(&[(0, false); 100]).is_prompt());
        for late in [(51, true), (51, false)] {
            let first = [&[late][..], &[(0, true); 100]].concat();
            let last = [&[(0, true); 100][..], &[late]].concat();
            assert!(!after(&first).is_prompt() && !after(&last).is_prompt());
        }
        let mut delay = after(&[(0, true); 4]);
        delay.expect_late_acks();
        delay.on_ack(Duration::ZERO, true);
        assert!(!delay.is_prompt());
    }
}
