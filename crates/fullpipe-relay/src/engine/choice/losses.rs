//! Compares the losses of some connections with those of fewer connections, which shows whether the path loses segments at
//! random.
//!
//! ```text
//!   random loss    each connection has a rate of its own: equally many losses of the same amount of data,
//!                  whatever the number of connections
//!   policer        the connections share a rate: with twice the connections, CUBIC and Reno need 2.5 to 4
//!                  times as many losses of the same amount of data for half of the rate
//! ```
//!
//! The number of losses is random, and small at first. The comparison therefore decides only when the difference from a
//! threshold between both cases exceeds its standard deviation. The losses of all smaller numbers of connections in a search
//! count together, so that the later comparisons decide earlier.

use std::ops::AddAssign;

use fullpipe_units::Bytes;

use super::Sum;

/// Threshold for the losses of the same amount of data, in percent of those of fewer connections: the first number, plus the
/// second one for each time that the smaller number is added. For twice the connections, this is the geometric mean of 1 and
/// of 2.5, the smallest factor with which losses reduce the rate of a CUBIC connection to half (RFC 9438, section 5.1).
const SAME_PERCENT: u64 = 100;
const MORE_PERCENT: u64 = 50;
/// Square of the number of standard deviations by which the losses must differ from the threshold. Too many connections in a
/// trial are found out by the next comparison, so that less certainty is needed for more connections than for an end of the
/// search.
const SAME_DEVIATIONS: u128 = 1;
const MORE_DEVIATIONS: u128 = 4;

/// Losses during some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    retransmits: u64,
    acked: Bytes,
}

/// Losses of the same amount of data, compared with those of fewer connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// About as many.
    Same,
    /// More, because the connections share a rate.
    More,
    /// Too few losses have occurred.
    Unknown,
}

impl Losses {
    pub(super) fn between(first: &Sum, last: &Sum) -> Self {
        Self {
            retransmits: last.retransmits - first.retransmits,
            acked: last.acked.saturating_sub(first.acked),
        }
    }

    /// Compares the losses of `count` connections with the losses `before` of at most `fewer` connections.
    pub(super) fn change_since(self, before: Self, count: u32, fewer: u32) -> Change {
        let kib = |losses: Self| u128::from(losses.acked.get() / 1024);
        let threshold = u128::from(SAME_PERCENT + MORE_PERCENT * u64::from(count - fewer) / u64::from(fewer));
        let product = |factors: [u128; 3]| factors.into_iter().fold(1, u128::saturating_mul);
        let later = product([self.retransmits.into(), kib(before), 100]);
        let earlier = product([before.retransmits.into(), kib(self), threshold]);
        // Losses are rare and independent of each other, so of all losses, a binomially distributed number occurs in the
        // later data. At the threshold, the difference of the products above has the mean 0 and this variance.
        let losses = u128::from(self.retransmits + before.retransmits);
        let variance = product([losses * threshold * 100, kib(self), kib(before)]);
        let difference = later.abs_diff(earlier);
        let square = difference.saturating_mul(difference);
        let exceeds = |deviations: u128| difference > 0 && square >= variance.saturating_mul(deviations);
        if later < earlier && exceeds(SAME_DEVIATIONS) {
            Change::Same
        } else if later > earlier && exceeds(MORE_DEVIATIONS) {
            Change::More
        } else {
            Change::Unknown
        }
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.retransmits += other.retransmits;
        self.acked += other.acked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(retransmits: u64, mib: u64) -> Losses {
        Losses { retransmits, acked: Bytes::from_mib(mib) }
    }

    /// The more losses have occurred, the smaller is the difference that decides.
    #[test]
    fn the_number_of_losses_says_how_certain_a_comparison_is() {
        let change = |later, earlier| losses(later, 2).change_since(losses(earlier, 1), 8, 4);
        assert_eq!(change(4, 2), Change::Unknown);
        assert_eq!(change(40, 20), Change::Same);
        assert_eq!(change(10, 2), Change::Unknown, "five times as many, but of few");
        assert_eq!(change(100, 20), Change::More);
        assert_eq!(change(60, 20), Change::Unknown, "the threshold");
        assert_eq!(change(0, 0), Change::Unknown);
    }

    /// From one connection to four, a shared rate needs six times as many losses, so few of them decide.
    #[test]
    fn few_losses_decide_about_many_more_connections() {
        assert_eq!(losses(8, 8).change_since(losses(2, 2), 4, 1), Change::Same);
        assert_eq!(losses(8, 8).change_since(losses(2, 2), 3, 2), Change::Unknown);
        assert_eq!(losses(100, 8).change_since(losses(3, 2), 4, 1), Change::More);
    }
}
