//! Compares the results of an experiment with its expectations.

use std::collections::BTreeMap;

use crate::experiment::{Expectation, Experiment};
use crate::metric::RunFigures;
use crate::outcome::Outcome;

/// Result of comparing an expectation with the runs of one experiment point.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict<'e> {
    /// Expectation that was compared.
    pub expectation: &'e Expectation,
    /// Index of the experiment point that was compared.
    pub point: usize,
    /// Value of the metric, aggregated over the runs of the point; `None` if any run has no value of the
    /// metric.
    pub value: Option<f64>,
    /// Whether the aggregated value is within the bounds of the expectation.
    pub pass: bool,
}

/// Compares every expectation of `experiment` with the points to which it applies. `runs` contains outcomes,
/// each with the index of its point.
///
/// A point that has no run in `runs` is not compared.
pub fn evaluate<'e>(experiment: &'e Experiment, runs: &[(usize, &Outcome)]) -> Vec<Verdict<'e>> {
    let mut by_point: BTreeMap<usize, Vec<RunFigures>> = BTreeMap::new();
    for (point, outcome) in runs {
        by_point.entry(*point).or_default().push(RunFigures::from(*outcome));
    }
    let verdict = |expectation: &'e Expectation, point: usize| {
        Some(judge(experiment, expectation, point, by_point.get(&point)?))
    };
    let expectations = experiment.expectations().iter();
    expectations.flat_map(|e| e.points.iter().filter_map(move |point| verdict(e, *point))).collect()
}

/// Compares an expectation with the runs of a point.
pub(crate) fn judge<'e>(
    experiment: &Experiment,
    expectation: &'e Expectation,
    point: usize,
    runs: &[RunFigures],
) -> Verdict<'e> {
    let path = &experiment.points()[point].scenario.path;
    let figures: Vec<_> = runs.iter().map(|run| expectation.metric.of(run, path)).collect();
    let value = expectation.over.of(&figures);
    let pass = value.is_some_and(|value| {
        expectation.min.is_none_or(|min| value >= min) && expectation.max.is_none_or(|max| value <= max)
    });
    Verdict { expectation, point, value, pass }
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::SendLimit;
    use fullpipe_tcp::cc::Algorithm;
    use fullpipe_units::{Bytes, Duration, Rate};

    use super::*;
    use crate::metric::Metric;
    use crate::outcome::{FlowOutcome, PathOutcome, RttOutcome, WireOutcome, Work};

    fn flow(mbit: u64, rtt_ms: Option<u64>) -> FlowOutcome {
        let ms = Duration::from_millis;
        FlowOutcome {
            cc: Algorithm::Reno.into(),
            bytes: Bytes::new(1),
            goodput: Rate::from_bps(mbit * 1_000_000),
            goodput_second_half: Rate::from_bps(mbit * 2_000_000),
            segments_sent: None,
            retransmits: mbit,
            rtt: rtt_ms.map(|rtt| RttOutcome { min: ms(1), mean: ms(rtt), p50: ms(rtt), p95: ms(2 * rtt) }),
            send_limit: vec![(SendLimit::Rwnd, ms(3)), (SendLimit::Cwnd, ms(1))],
            send_limit_second_half: Vec::new(),
            max_cwnd: Bytes::ZERO,
            wire: WireOutcome {
                peak: Rate::from_bps(mbit * 4_000_000),
                mean: Rate::from_bps(mbit * 1_000_000),
            },
            wire_second_half: WireOutcome::default(),
            finished: None,
            response: None,
            delay_p99: None,
        }
    }

    fn run(flows: Vec<FlowOutcome>) -> Outcome {
        Outcome {
            flows,
            path: PathOutcome { delivered: 73, queue_drops: 3, random_drops: 4, ..PathOutcome::default() },
            work: Work::default(),
            digest: 0,
        }
    }

    fn experiment(expect: &str) -> Experiment {
        let text = format!(
            "name = 'x'\nduration = '1s'\n[path]\nrate = ['150mbit', '300mbit']\nrtt = '1ms'\n\
             [[flow]]\ncc = 'reno'\n[[expect]]\n{expect}"
        );
        Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn several_flows_are_judged_as_one_transfer() {
        let experiment = experiment("metric = 'retransmits'\nmin = 0");
        let path = &experiment.points()[0].scenario.path;
        let several = run(vec![flow(10, Some(20)), flow(30, Some(40)), flow(0, None)]);
        let several = RunFigures::from(&several);
        let expected = [
            ("goodput_bps", 40e6),
            ("goodput_second_half_bps", 80e6),
            // With an MTU of 1500, 1448 bytes of each packet are payload.
            ("utilisation", 40.0 / (150.0 * 1448.0 / 1500.0)),
            ("utilisation_second_half", 80.0 / (150.0 * 1448.0 / 1500.0)),
            ("retransmits", 40.0),
            ("retransmit_share", 0.5),
            ("fairness", 1_600.0 / 3_000.0),
            ("first_share", 10.0 / 40.0),
            ("first_share_second_half", 20.0 / 80.0),
            ("rtt_mean_ms", 30.0),
            ("rtt_p95_ms", 80.0),
            ("queue_drops", 3.0),
            ("random_drops", 4.0),
            ("wire_peak_bps", 120e6),
            ("wire_burst", 4.0),
            ("share.rwnd", 0.75),
            ("share.app", 0.0),
        ];
        for (name, value) in expected {
            let metric: Metric = name.parse().expect(name);
            let found = metric.of(&several, path).expect(name);
            assert!((found - value).abs() <= value * 1e-9, "{name}: {found}, not {value}");
        }
        let idle = RunFigures::from(&run(vec![flow(0, None)]));
        assert_eq!(Metric::RttMean.of(&idle, path), None);
        assert_eq!(Metric::FirstShare.of(&idle, path), None);
        assert_eq!(Metric::WireBurst.of(&idle, path), None);
    }

    #[test]
    fn bounds_are_held_against_the_repeats_of_each_point() {
        let judge = |expect: &str| {
            let experiment = experiment(expect);
            let runs =
                [(0, 90), (0, 110), (1, 120)].map(|(point, mbit)| (point, run(vec![flow(mbit, None)])));
            let verdicts = evaluate(&experiment, &runs.each_ref().map(|(point, outcome)| (*point, outcome)));
            verdicts.iter().map(|v| (v.point, v.value, v.pass)).collect::<Vec<_>>()
        };
        let both = judge("metric = 'goodput_bps'\nmin = '100mbit'\nmax = '110mbit'");
        assert_eq!(both, [(0, Some(100e6), true), (1, Some(120e6), false)]);
        let one =
            judge("where = { rate = '0.15gbit' }\nmetric = 'goodput_bps'\nover = 'min'\nmin = '100mbit'");
        assert_eq!(one, [(0, Some(90e6), false)]);
        let most = judge("metric = 'goodput_bps'\nover = 'max'\nmax = '115mbit'");
        assert_eq!(most, [(0, Some(110e6), true), (1, Some(120e6), false)]);
        // If a run has no value for the metric, the expectation is not met.
        let none = judge("metric = 'rtt_mean_ms'\nmax = '1s'");
        assert_eq!(none, [(0, None, false), (1, None, false)]);
    }
}
