//! Whether a run in real time is to be believed.
//!
//! An emulated path is only as good as the machine's timers and as complete as its queues. Three things are measured in
//! every run and judged the same way everywhere:
//!
//! | what | valid when |
//! |---|---|
//! | lateness, time of writing less the time at which a packet was due: 99th percentile | at most 1 ms or 1 % of the RTT, whichever is more |
//! | packets that a device dropped beside the path | none |
//! | retransmitted segments against data packets dropped on the path, and segments that arrived twice | within 5 or 3 %, whichever is more |
//!
//! The greatest lateness is shown and not judged: one pause of the machine in a minute says little. Neither are the stalls
//! of the hosts themselves ([`Stalls`]): a receiver has reasons of its own to answer late, such as a window that has not
//! opened, an application that reads slowly or SACKs that it gathers, so that which answers a busy machine has held up is
//! not told by their time.

use std::fmt;

use fullpipe_tcp::estimate::RttHistogram;
use fullpipe_units::Duration;

/// The least bound of lateness, whatever the RTT.
const LATENESS_FLOOR: Duration = Duration::from_millis(1);
/// And as a part of the RTT.
const LATENESS_PER_RTT: u64 = 100;
/// Segments that may differ whatever their number: tail loss probes, and what is under way at the end.
const RECONCILED_FLOOR: u64 = 5;
/// And in percent of the drops.
const RECONCILED_PERCENT: u64 = 3;

/// How much later than due packets were written.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    histogram: RttHistogram,
    max: Duration,
}

impl Lateness {
    /// Counts one packet.
    pub fn add(&mut self, late: Duration) {
        self.histogram.add(late);
        self.max = self.max.max(late);
    }

    /// Both together.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.histogram.merge(&other.histogram);
        self.max = self.max.max(other.max);
        self
    }

    /// The figures that are shown; all zero when nothing was written.
    pub fn quantiles(&self) -> LatenessQuantiles {
        let quantile = |permille| self.histogram.permille(permille).unwrap_or_default().min(self.max);
        LatenessQuantiles { p50: quantile(500), p99: quantile(990), p999: quantile(999), max: self.max }
    }
}

/// Lateness in four figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessQuantiles {
    /// Half of the packets were at most so late.
    pub p50: Duration,
    /// 99 %.
    pub p99: Duration,
    /// 99.9 %.
    pub p999: Duration,
    /// The latest.
    pub max: Duration,
}

/// How well the ends of the path kept up, which a path that kept its times does not show: its threads run before the
/// applications and may run before the kernel's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How late a thread of ordinary priority woke: what an application waits for a processor.
    pub woken: LatenessQuantiles,
    /// From the second unanswered data packet, written to the receiver's device, to the next packet read from it: what its
    /// kernel takes to answer. ACKs that it delays are in it, and SACKs, which Linux gathers for 1 ms
    /// (`tcp_comp_sack_delay_ns`): half of the answers to BBR at 2 % loss take that long.
    pub answered: LatenessQuantiles,
}

/// What was measured of a run in real time.
#[derive(Clone, Debug, PartialEq)]
pub struct Validity {
    /// Propagation delay of the path, both ways.
    pub rtt: Duration,
    /// Lateness over both directions.
    pub lateness: LatenessQuantiles,
    /// Packets dropped at the devices, in neither direction by the path.
    pub tun_drops: u64,
    /// Segments that the senders retransmitted, until all they had sent was acknowledged; `None` when the senders are
    /// not ours to ask.
    pub retransmits: Option<u64>,
    /// Data packets that the path dropped in the same time.
    pub drops: u64,
    /// Segments that the receivers reported to have got twice (RFC 2883): retransmitted without need. A reader that is late to
    /// open its window holds back ACKs until a tail loss probe asks for them.
    pub duplicates: u64,
    /// Processor time of the two loops over real time: 1 is a whole core.
    pub cpu: f64,
    /// Of the hosts; not judged.
    pub stalls: Stalls,
}

/// What makes a run invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The 99th percentile of lateness, and what it may be.
    Late(Duration, Duration),
    /// So many packets were dropped beside the path.
    TunDrops(u64),
    /// Retransmissions, and the drops and duplicates that should explain them.
    Unexplained(u64, u64, u64),
}

impl Validity {
    /// What is wrong with the run; nothing with a valid one.
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
            // A repetition that was lost itself is a drop and no duplicate, and an ACK that reports one may be lost: so
            // duplicates explain what they can, and none are asked for.
            let explained = self.drops.saturating_sub(allowed)..=self.drops + self.duplicates + allowed;
            if !explained.contains(&retransmits) {
                problems.push(Problem::Unexplained(retransmits, self.drops, self.duplicates));
            }
        }
        problems
    }

    /// Nothing is wrong with the run.
    pub fn is_valid(&self) -> bool {
        self.problems().is_empty()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(p99, bound) => {
                write!(f, "1 % of the packets were written more than {p99} late (bound {bound})")
            }
            Self::TunDrops(n) => write!(f, "{n} packets dropped between the kernel and the path"),
            Self::Unexplained(retransmits, drops, duplicates) => write!(
                f,
                "{retransmits} retransmitted segments, {drops} dropped by the path and {duplicates} that arrived twice"
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
