//! What the start of a flow shows: whether slow start alone explains the whole log, and whether slow start
//! ended because it overshot a rate.
//!
//! ```text
//!   segments after n round trips of slow start: 10 (2^n - 1)     no log of that many segments can be shorter
//!   slow start that meets random loss loses single segments
//!   slow start that meets a rate limit sends up to twice that rate, and loses up to half of a window at once
//! ```
//!
//! Even after an overshoot, random loss is the limit if the later losses occur at rates much lower than the
//! highest rate.

use fullpipe_measurement::thresholds::loss;
use fullpipe_tcp::cc::INITIAL_SEGMENTS;
use fullpipe_units::Bytes;

use super::series::Series;
use super::{Confidence, Explainer, Finding, Limit, RttSource};

/// Number of round trips that a flow in slow start takes in addition to those of the formula: the last window
/// must be acknowledged, delayed ACKs slow the growth, and BBR paces its first window.
/// Unit: round trips
const MORE_ROUND_TRIPS: f64 = 3.0;
/// A burst of losses shows that slow start overshot a rate if the loss rate in the burst is at least this
/// multiple of the loss rate afterwards. With random loss, the two loss rates would be about equal.
const DENSER: f64 = 4.0;

/// Losses at the end of slow start that random loss does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overshoot {
    /// Number of segments retransmitted in the first interval with losses.
    retransmits: u64,
}

impl Series {
    /// Returns the burst of losses that ended slow start, if a rate limit or a queue explains it and random
    /// loss does not; `None` if later losses occur at much lower rates and therefore limit the flow.
    pub(super) fn overshoot(&self, mss: Bytes) -> Option<Overshoot> {
        let (burst, later) = self.first_losses(mss)?;
        let lost = burst.retransmits as f64;
        // The log reports the window after its reduction, which at most halves the window.
        let window = 2.0 * burst.window_after + lost;
        let dense = lost * later.segments >= DENSER * later.retransmits as f64 * burst.segments;
        let at_once = burst.retransmits >= loss::FEWEST_IN_A_BURST && lost >= loss::BURST * window;
        let holds = later.episodes >= loss::FEWEST_EPISODES && later.rate < loss::FAR_BELOW * later.fastest;
        (dense && at_once && !holds).then_some(Overshoot { retransmits: burst.retransmits })
    }
}

impl Explainer<'_> {
    /// Returns the number of round trips that slow start needs for the data of the log, if these round trips
    /// explain the whole length of the log.
    pub(super) fn round_trips_of_start(&self) -> Option<f64> {
        let measured = &self.measured;
        let lossless = measured.retransmits.unwrap_or(0) == 0;
        if measured.rtt_source == RttSource::Bound || !lossless {
            return None;
        }
        let bytes = self.facts.transfer.bytes().get() as f64;
        let segments = bytes / measured.mss.get().max(1) as f64 / measured.streams.max(1) as f64;
        let needed = (segments / INITIAL_SEGMENTS as f64 + 1.0).log2();
        let taken = measured.length.as_secs_f64() / measured.rtt.as_secs_f64();
        (taken <= needed + MORE_ROUND_TRIPS).then_some(needed)
    }

    pub(super) fn only_the_start(&self, round_trips: f64) -> Finding {
        Finding {
            limit: Limit::SlowStart,
            what: "the transfer ended during slow start".into(),
            share: 1.0,
            confidence: Confidence::High,
            ceiling: None,
            evidence: vec![format!(
                "slow start needs {round_trips:.1} round trips for {}, and the transfer took {:.1}, without a loss",
                self.facts.transfer.bytes(),
                self.measured.length.as_secs_f64() / self.measured.rtt.as_secs_f64()
            )],
            could_not_tell: vec!["what would limit a longer transfer".into()],
            next_test: Some("measure for longer: iperf3 -t 60".into()),
        }
    }

    /// Returns the burst of losses at the end of slow start, for a loss-based sender.
    pub(super) fn overshoot(&self) -> Option<Overshoot> {
        let loss_based = !self.sender.algorithm().is_rate_based();
        self.series.overshoot(self.measured.mss).filter(|_| loss_based)
    }

    /// Returns the findings if the congestion window limits the flow after slow start overshot a rate: loss,
    /// or that rate.
    pub(super) fn cwnd_or_rate(&self, cwnd: Finding, overshoot: Overshoot) -> Vec<Finding> {
        let steady = self.measured.steady;
        let rate = Finding {
            limit: Limit::Policer,
            what: "a policer or a queue on the path limits the rate".into(),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: None,
            evidence: vec![format!(
                "{} segments were lost at once when slow start ended, far more than random loss explains: the flow exceeded \
                 the rate of a policer, a shaper or a link",
                overshoot.retransmits
            )],
            could_not_tell: vec![format!(
                "whether that rate is near {steady}, because too few losses followed at one rate"
            )],
            next_test: Some(format!(
                "repeat with iperf3 -C bbr -t 60: a rate that stays near {steady} shows a policer or a shaper; a higher \
                 rate shows random loss"
            )),
        };
        vec![Finding { confidence: Confidence::Low, ..cwnd }, rate]
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::Findings;
    use crate::explain::made::{explained, log_of, path};
    use crate::explain::{Confidence, HostFacts, Limit};

    /// Returns the findings for a log on a path of 100 ms, with rates in Mbit/s and retransmissions per second.
    /// The window is full.
    fn found(seconds: &[(f64, u64)]) -> Findings {
        let window = |mbps: f64| (mbps * 1e6 / 8.0 * 0.1 / 1024.0) as u64;
        let log = log_of(seconds.iter().map(|(mbps, again)| (*mbps, *again, window(*mbps))));
        explained(&log, path("100ms"), &HostFacts::default()).expect("an explanation")
    }

    /// Random losses hit slow start with the same probability as the rest of the flow. A burst in which a
    /// fifth of the window is lost has another cause, which may have limited the flow ever since. Later
    /// losses at much lower rates show that this cause is not the limit.
    #[test]
    fn a_burst_at_the_end_of_slow_start_leaves_the_cause_open() {
        let growing = |first: u64| -> Vec<(f64, u64)> {
            let later = (0..18).map(|i| (14.0 + 0.4 * f64::from(i), u64::from(i == 17)));
            [(9.0, 0), (16.0, first)].into_iter().chain(later).collect()
        };
        let open = found(&growing(60));
        let limits: Vec<Limit> = open.findings.iter().take(2).map(|finding| finding.limit).collect();
        assert_eq!(limits, [Limit::Cwnd, Limit::Policer], "{:#?}", open.findings);
        let candidates = open.undecided.expect("not decided").candidates;
        assert_eq!(candidates[1].limits, [Limit::Policer, Limit::Cap]);
        assert!(open.findings[0].confidence == Confidence::Low, "{:#?}", open.findings);

        let single = found(&growing(1));
        assert_eq!((single.findings[0].limit, single.undecided), (Limit::Cwnd, None));

        // Slow start reached 80 Mbit/s and overflowed a queue; random losses then keep the rate near 15
        // Mbit/s.
        let sawtooth = (0..30).map(|i| ([12.0, 15.0, 18.0][i % 3], u64::from(i % 3 == 2)));
        let start = [(20.0, 0), (80.0, 400), (15.0, 0)];
        let held: Vec<(f64, u64)> = start.into_iter().chain(sawtooth).collect();
        let held = found(&held);
        assert_eq!((held.findings[0].limit, held.undecided), (Limit::Cwnd, None));
    }

    /// 1 MiB is 725 segments, for which slow start needs 6.2 round trips. A flow that takes twice as long has
    /// another limit.
    #[test]
    fn a_transfer_that_slow_start_explains_ends_in_it() {
        let lasting = |tenths: u32| {
            let mbps = 8.388_608 / f64::from(tenths) * 10.0;
            let text = format!(
                "Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr Cwnd\n\
                 [  5] 0.00-{0}.{1} sec 1.00 MBytes {mbps} Mbits/sec 0 900 KBytes\n\
                 [  5] 0.00-{0}.{1} sec 1.00 MBytes {mbps} Mbits/sec 0 sender\n",
                tenths / 10,
                tenths % 10,
            );
            let log = fullpipe_measurement::input::iperf3::parse(&text).expect("a log");
            explained(&log, path("100ms"), &HostFacts::default()).expect("an explanation")
        };
        for (tenths, ends_in_start) in [(7, true), (9, true), (13, false)] {
            let found = lasting(tenths);
            let first = &found.findings[0];
            let is_start = (first.limit, first.confidence) == (Limit::SlowStart, Confidence::High);
            assert_eq!(is_start, ends_in_start, "{tenths}: {first:#?}");
            assert_eq!(found.undecided.is_none(), ends_in_start, "{tenths}: {:?}", found.undecided);
        }
    }
}
