//! Checks whether the results of a run in real time can be trusted.
//!
//! An emulated path is only as accurate as the machine's timers, and packets must not be lost outside the
//! path. In every run, fullpipe measures three quantities and compares them with the same bounds. The
//! lateness of a packet is the time at which the packet was written minus the time at which it was due.
//!
//! | quantity | valid if |
//! |---|---|
//! | 99th percentile of lateness | at most 1 ms or 1 % of the RTT, whichever is larger |
//! | packets dropped at a device, outside the path | none |
//! | retransmitted segments minus data packets dropped on the path | within 5 segments or 3 %, plus segments that arrived twice |
//!
//! The maximum lateness is reported, but it has no bound, because a single pause of the machine within a minute does
//! not make a run invalid. The stalls of the hosts ([`Stalls`]) have no bound either. A receiver can reply late for
//! other reasons: a closed window, a slow application, or SACKs that it coalesces. The reply times of a receiver
//! therefore do not show which replies a busy machine delayed.

use std::fmt;

use fullpipe_tcp::estimate::RttHistogram;
use fullpipe_units::Duration;

/// Minimum of the bound on lateness; it applies to short paths, where 1 % of the RTT would be less.
const LATENESS_FLOOR: Duration = Duration::from_millis(1);
/// Divisor of the RTT in the bound on lateness: 1 % of the RTT.
const LATENESS_PER_RTT: u64 = 100;
/// Difference between retransmits and drops that is always allowed, in segments, for tail loss probes and
/// segments in flight at the end of the run.
const RECONCILED_FLOOR: u64 = 5;
/// Allowed difference between retransmits and drops, in percent of the drops.
const RECONCILED_PERCENT: u64 = 3;

/// Distribution of lateness: the time at which a packet was written minus the time at which it was due.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    histogram: RttHistogram,
    max: Duration,
}

impl Lateness {
    /// Adds the lateness of one packet.
    pub fn add(&mut self, late: Duration) {
        self.histogram.add(late);
        self.max = self.max.max(late);
    }

    /// Merges the distributions of `self` and `other`.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.histogram.merge(&other.histogram);
        self.max = self.max.max(other.max);
        self
    }

    /// Returns the quantiles of the lateness; all of them are zero if no packet was written.
    pub fn quantiles(&self) -> LatenessQuantiles {
        let quantile = |permille| self.histogram.permille(permille).unwrap_or_default().min(self.max);
        LatenessQuantiles { p50: quantile(500), p99: quantile(990), p999: quantile(999), max: self.max }
    }
}

/// Quantiles of a distribution of lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessQuantiles {
    /// Median lateness.
    pub p50: Duration,
    /// 99th percentile of the lateness.
    pub p99: Duration,
    /// 99.9th percentile of the lateness.
    pub p999: Duration,
    /// Maximum lateness.
    pub max: Duration,
}

/// Delays that the hosts at both ends of the path cause. These delays are not visible in the lateness of the
/// path, because the threads of the path have priority over the applications and possibly over kernel
/// threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Wake-up latency of a thread of ordinary priority: the time for which an application waits for a CPU.
    pub woken: LatenessQuantiles,
    /// Time until the receiver's kernel replies, measured from the second unanswered data packet written to
    /// its device to the next packet read from that device. The reply time includes the delay of ACKs and
    /// SACKs, which Linux coalesces for 1 ms (`tcp_comp_sack_delay_ns`): at 2 % loss, half of the receiver's
    /// replies to a BBR sender take 1 ms.
    pub answered: LatenessQuantiles,
}

/// Measurements of a run in real time, by which its validity is determined.
#[derive(Clone, Debug, PartialEq)]
pub struct Validity {
    /// Two-way propagation delay of the emulated path.
    pub rtt: Duration,
    /// Lateness of the packets of both directions.
    pub lateness: LatenessQuantiles,
    /// Number of packets dropped at the TUN devices of both directions, outside the path.
    pub tun_drops: u64,
    /// Number of segments that the senders retransmitted until all data was acknowledged; `None` if fullpipe
    /// cannot read the senders' counters.
    pub retransmits: Option<u64>,
    /// Number of data packets that the path dropped until all data was acknowledged.
    pub drops: u64,
    /// Number of segments that the receivers reported as duplicates (RFC 2883): unnecessary retransmissions.
    /// Duplicates occur, for example, when a slow reader opens its window late and thus delays ACKs until a
    /// tail loss probe elicits them.
    pub duplicates: u64,
    /// CPU time of the two forwarding loops divided by wall-clock time; 1 is a whole core.
    pub cpu: f64,
    /// Delays that the hosts cause; no bound applies to them.
    pub stalls: Stalls,
}

/// A reason why a run in real time is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The 99th percentile of lateness, and the bound that it exceeds.
    Late(Duration, Duration),
    /// Number of packets dropped outside the emulated path.
    TunDrops(u64),
    /// The numbers of retransmitted segments, of drops and of duplicates, which do not agree with each other.
    Unexplained(u64, u64, u64),
}

impl Validity {
    /// Returns the reasons why the run is invalid; empty for a valid run.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let bound = LATENESS_FLOOR.max(self.rtt / LATENESS_PER_RTT);
        if self.lateness.p99 > bound {
            problems.push(Problem::Late(self.lateness.p99, bound));
        }
        if self.tun_drops > 0 {
            problems.push(Problem::TunDrops(self.tun_drops));
        }
        if let Some(retransmits) = self.retransmits {
            let allowed = RECONCILED_FLOOR.max(self.drops * RECONCILED_PERCENT / 100);
            // If a retransmission is lost, it is counted as a drop but not as a duplicate; the ACK that
            // reports a duplicate may be lost too. Duplicates therefore raise only the upper bound.
            let explained = self.drops.saturating_sub(allowed)..=self.drops + self.duplicates + allowed;
            if !explained.contains(&retransmits) {
                problems.push(Problem::Unexplained(retransmits, self.drops, self.duplicates));
            }
        }
        problems
    }

    /// Returns whether the machine kept up with the run: it wrote packets on time, and dropped none outside
    /// the path. Unlike that of [`Self::is_valid`], the result does not depend on the behaviour of the
    /// senders.
    pub fn kept_up(&self) -> bool {
        let problems = self.problems();
        !problems.iter().any(|problem| matches!(problem, Problem::Late(..) | Problem::TunDrops(_)))
    }

    /// Returns whether all measurements of the run are within their bounds.
    pub fn is_valid(&self) -> bool {
        self.problems().is_empty()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(p99, bound) => {
                write!(f, "1 % of the packets were written more than {p99} too late (limit {bound})")
            }
            Self::TunDrops(n) => write!(f, "{n} packets were dropped between the kernel and the path"),
            Self::Unexplained(retransmits, drops, duplicates) => write!(
                f,
                "{retransmits} segments were retransmitted, but the path dropped {drops}, and {duplicates} \
                 arrived twice"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(p99: Duration, tun_drops: u64, retransmits: u64, drops: u64) -> Validity {
        let lateness = LatenessQuantiles { p99, max: Duration::from_secs(1), ..LatenessQuantiles::default() };
        let rtt = Duration::from_millis(210);
        Validity {
            rtt,
            lateness,
            tun_drops,
            retransmits: Some(retransmits),
            drops,
            duplicates: 0,
            cpu: 0.5,
            stalls: Stalls::default(),
        }
    }

    #[test]
    fn bounds_are_the_larger_of_two() {
        let ms = Duration::from_micros;
        assert_eq!(measured(ms(2_100), 0, 105, 100).problems(), []);
        assert_eq!(measured(ms(2_101), 0, 106, 100).problems().len(), 2);
        assert_eq!(measured(ms(0), 0, 1_030, 1_000).problems(), []);
        assert_eq!(measured(ms(0), 0, 969, 1_000).problems(), [Problem::Unexplained(969, 1_000, 0)]);
        assert_eq!(measured(ms(0), 1, 0, 0).problems(), [Problem::TunDrops(1)]);
        let [late, lossy] = [measured(ms(2_101), 0, 0, 0), measured(ms(0), 1, 0, 0)];
        let retransmits = measured(ms(2_100), 0, 106, 100);
        assert_eq!([&late, &lossy, &retransmits].map(Validity::kept_up), [false, false, true]);
        let probed = Validity { duplicates: 20, ..measured(ms(0), 0, 25, 0) };
        assert_eq!(probed.problems(), []);
        let unexplained = Validity { retransmits: Some(26), ..probed };
        assert_eq!(unexplained.problems(), [Problem::Unexplained(26, 0, 20)]);
        let near = Validity { rtt: Duration::from_millis(2), ..measured(ms(1_000), 0, 0, 0) };
        assert!(near.is_valid(), "1 ms however short the path");
        assert!(
            !Validity { lateness: LatenessQuantiles { p99: ms(1_001), ..near.lateness }, ..near }.is_valid()
        );
    }

    #[test]
    fn both_directions_count() {
        let (mut one, mut other) = (Lateness::default(), Lateness::default());
        for _ in 0..990 {
            one.add(Duration::from_micros(50));
        }
        for _ in 0..10 {
            other.add(Duration::from_millis(7));
        }
        let quantiles = one.with(&other).quantiles();
        assert!((50..=52).contains(&quantiles.p99.as_micros()), "{quantiles:?}");
        assert_eq!((quantiles.p999, quantiles.max), (Duration::from_millis(7), Duration::from_millis(7)));
        assert_eq!(Lateness::default().quantiles(), LatenessQuantiles::default());
    }
}
