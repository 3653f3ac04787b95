//! Kill switch, which ends larger launches on a host that sends much more than its clients need.

use std::fmt;

use fullpipe_units::{Duration, Instant};

/// Maximum excess of the number of octets sent per octet needed over 1 / (1 - loss): 0.1. With a larger
/// excess, the switch acts.
const OVERHEAD: f64 = 0.1;
/// Time for which the overhead must last.
const LASTING: Duration = Duration::from_secs(30);
/// Multiple of the usual share of connections with a timeout, above which the switch acts.
const TIMEOUTS: f64 = 2.0;
/// Minimum number of octets needed in an observation: 1000 full-sized segments. With less data, a single
/// spurious retransmission of a short response would count.
const LEAST_OCTETS: u64 = 1_448_000;
/// Minimum number of connections in an observation for a comparison of their timeouts.
const LEAST_CONNECTIONS: u64 = 100;

/// Sums over all connections of a sender since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderTotals {
    /// Octets that were sent and are no longer in flight, including retransmissions and copies.
    pub sent: u64,
    /// Octets that the clients have acknowledged.
    pub needed: u64,
    /// Octets of `sent` that were sent after the first flights. `later_lost` is the number of these octets
    /// that were lost, excluding octets that a client has received twice.
    pub later_sent: u64,
    /// Octets of `later_sent` that were lost.
    pub later_lost: u64,
    /// Connections that launched more than ten segments. `launched_timeouts` is the number of these
    /// connections with a retransmission timeout.
    pub launched: u64,
    /// Connections of `launched` with a retransmission timeout.
    pub launched_timeouts: u64,
    /// Connections that launched at most ten segments. `plain_timeouts` is the number of these connections
    /// with a retransmission timeout.
    pub plain: u64,
    /// Connections of `plain` with a retransmission timeout.
    pub plain_timeouts: u64,
}

impl SenderTotals {
    /// Returns the sums over these connections and those of `other`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            needed: self.needed + other.needed,
            later_sent: self.later_sent + other.later_sent,
            later_lost: self.later_lost + other.later_lost,
            launched: self.launched + other.launched,
            launched_timeouts: self.launched_timeouts + other.launched_timeouts,
            plain: self.plain + other.plain,
            plain_timeouts: self.plain_timeouts + other.plain_timeouts,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            needed: self.needed.saturating_sub(before.needed),
            later_sent: self.later_sent.saturating_sub(before.later_sent),
            later_lost: self.later_lost.saturating_sub(before.later_lost),
            launched: self.launched.saturating_sub(before.launched),
            launched_timeouts: self.launched_timeouts.saturating_sub(before.launched_timeouts),
            plain: self.plain.saturating_sub(before.plain),
            plain_timeouts: self.plain_timeouts.saturating_sub(before.plain_timeouts),
        }
    }
}

/// Reason why the switch has acted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TripReason {
    /// For half a minute, the host sent more octets per octet needed than the loss of the path explains.
    Overhead {
        /// Octets sent per octet needed.
        sent_per_needed: f64,
        /// Highest value of `sent_per_needed` that the loss of the path explains.
        bound: f64,
    },
    /// A larger share of connections than usual had a timeout.
    Timeouts {
        /// Share of the connections with a larger launch that had a timeout.
        share: f64,
        /// Share of the other connections that had a timeout.
        usual: f64,
    },
}

impl fmt::Display for TripReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overhead { sent_per_needed, bound } => write!(
                f,
                "for {LASTING}, connections sent {sent_per_needed:.2} bytes per byte needed, which is more \
                 than {bound:.2}"
            ),
            Self::Timeouts { share, usual } => write!(
                f,
                "{:.1} % of the connections with a larger launch had a timeout, but only {:.1} % of the \
                 other connections",
                100.0 * share,
                100.0 * usual
            ),
        }
    }
}

/// Observer of all connections of a sender, which acts at most once until [`KillSwitch::reset`].
#[derive(Clone, Debug, Default)]
pub struct KillSwitch {
    /// Time and totals at the start of the current observation.
    from: Option<(Instant, SenderTotals)>,
    reason: Option<TripReason>,
}

impl KillSwitch {
    /// Returns the reason why the switch has acted; `None` if launches are permitted.
    pub fn reason(&self) -> Option<TripReason> {
        self.reason
    }

    /// Permits launches again.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes the sums over all connections; must be called about once per second. Returns the reason if the
    /// switch acts now.
    pub fn observe(&mut self, now: Instant, totals: SenderTotals) -> Option<TripReason> {
        let (from, before) = *self.from.get_or_insert((now, totals));
        if self.reason.is_some() || now.saturating_since(from) < LASTING {
            return None;
        }
        self.from = Some((now, totals));
        self.reason = overhead(totals.since(before)).or_else(|| timeouts(totals.since(before)));
        self.reason
    }
}

fn overhead(totals: SenderTotals) -> Option<TripReason> {
    let SenderTotals { sent, needed, later_sent, later_lost, .. } = totals;
    // The path's loss rate is measured on later data only; otherwise, losses caused by the launch itself
    // would raise the bound.
    let loss = later_lost as f64 / later_sent.max(1) as f64;
    let bound = 1.0 / (1.0 - loss.min(0.5)) + OVERHEAD;
    let sent_per_needed = sent as f64 / needed.max(1) as f64;
    (needed >= LEAST_OCTETS && sent_per_needed > bound)
        .then_some(TripReason::Overhead { sent_per_needed, bound })
}

fn timeouts(totals: SenderTotals) -> Option<TripReason> {
    let SenderTotals { launched, launched_timeouts, plain, plain_timeouts, .. } = totals;
    if launched < LEAST_CONNECTIONS || plain < LEAST_CONNECTIONS {
        return None;
    }
    let (share, usual) = (launched_timeouts as f64 / launched as f64, plain_timeouts as f64 / plain as f64);
    // If no other connection had a timeout, assume that one of them had a timeout.
    let usual = usual.max(1.0 / plain as f64);
    (share > TIMEOUTS * usual).then_some(TripReason::Timeouts { share, usual })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Runs the switch for `seconds`, each of which adds `step`, and returns the seconds at which it acted.
    fn observed(step: SenderTotals, seconds: u64) -> (KillSwitch, Vec<u64>) {
        let (mut switch, mut acted) = (KillSwitch::default(), Vec::new());
        for second in 0..=seconds {
            let totals = SenderTotals {
                sent: step.sent * second,
                needed: step.needed * second,
                later_sent: step.later_sent * second,
                later_lost: step.later_lost * second,
                launched: step.launched * second,
                launched_timeouts: step.launched_timeouts * second,
                plain: step.plain * second,
                plain_timeouts: step.plain_timeouts * second,
            };
            if switch.observe(at(second), totals).is_some() {
                acted.push(second);
            }
        }
        (switch, acted)
    }

    #[test]
    fn it_acts_after_half_a_minute_and_says_why() {
        let wasteful = SenderTotals {
            sent: 120_000,
            needed: 100_000,
            later_sent: 100_000,
            later_lost: 2_000,
            ..SenderTotals::default()
        };
        let (mut switch, acted) = observed(wasteful, 100);
        assert_eq!(acted, [30]);
        let reason = switch.reason().expect("a reason").to_string();
        assert_eq!(reason, "for 30s, connections sent 1.20 bytes per byte needed, which is more than 1.12");
        switch.reset();
        assert_eq!((switch.reason(), switch.observe(at(200), SenderTotals::default())), (None, None));
    }

    /// Loss explains as many retransmissions as there were lost segments.
    #[test]
    fn loss_is_no_reason() {
        let lossy = SenderTotals {
            sent: 111_000,
            needed: 100_000,
            later_sent: 100_000,
            later_lost: 10_000,
            ..SenderTotals::default()
        };
        assert_eq!(observed(lossy, 100).1, []);
        assert_eq!(observed(SenderTotals { later_lost: 0, ..lossy }, 100).1, [30]);
    }

    #[test]
    fn timeouts_are_compared_with_those_of_other_connections() {
        let usual = SenderTotals {
            sent: 100_000,
            needed: 100_000,
            launched: 10,
            plain: 10,
            plain_timeouts: 1,
            launched_timeouts: 2,
            ..SenderTotals::default()
        };
        assert_eq!(observed(usual, 100).1, []);
        let (switch, acted) = observed(SenderTotals { launched_timeouts: 3, ..usual }, 100);
        assert_eq!(acted, [30]);
        let reason = switch.reason().expect("a reason").to_string();
        assert_eq!(
            reason,
            "30.0 % of the connections with a larger launch had a timeout, but only 10.0 % of the other connections"
        );
    }
}
