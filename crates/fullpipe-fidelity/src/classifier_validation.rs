//! Validates the classifier with runs that are designed to have a known limit.
//!
//! A kernel does not record all limits of its senders, so [`classify`] cannot be compared with the kernel
//! itself. Instead, each point of an experiment is designed to have one limit, which the key `limit` names.
//! A run is classified correctly if the classifier names that limit for the longest time.
//!
//! ```text
//!   point { limit = "rwnd", ... } ──► expected: rwnd ──────────────────────────┐
//!       └─► a kernel's run ──► rows ──► classify ──► the limit of most time ───┴─► right or wrong
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use fullpipe::lab::experiment::Point;
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::trace::Row;
use serde::{Deserialize, Serialize};

use fullpipe::classify::{Limit, SocketFacts, classify, share};

/// Required share of runs that are classified correctly.
pub const ASKED: f64 = 0.95;

/// Limit that the classifier reported for the longest time in a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedLimit {
    /// Limit that the classifier reported.
    pub limit: Limit,
    /// Share of the run's time for which the classifier reported this limit, from 0 to 1.
    pub share: f64,
}

/// Returns the limit that a point is designed to have; `None` if the point states no limit or an unknown one.
pub fn expected(point: &Point) -> Option<Limit> {
    let name = point.limit.as_deref()?;
    Limit::ALL.into_iter().find(|limit| limit.name() == name)
}

/// Returns whether `named` is correct for a run that is designed to have the limit `expected`. A policer
/// is also a rate cap, so `cap` is correct but less specific; the classifier reports `cap` if there are
/// too few losses to show that packets are dropped.
pub fn is_right(expected: Limit, named: Limit) -> bool {
    named == expected || (expected, named) == (Limit::Policer, Limit::Cap)
}

/// Returns the limit that the classifier reports for the longest time in the first flow of a run; returns
/// `None` if no data was sent. The input of the classifier is the state that the sockets report, and the link
/// rate.
pub fn named(rows: &[Row], scenario: &Scenario) -> Option<NamedLimit> {
    let seen: Vec<Row> = rows.iter().filter(|row| row.flow == 0).map(Row::observed).collect();
    let host = SocketFacts { link: Some(scenario.path.forward.rate), ..SocketFacts::default() };
    let intervals = classify(&seen, &host).intervals;
    let shares = intervals.iter().map(|interval| interval.limit);
    let named = shares.map(|limit| NamedLimit { limit, share: share(&intervals, limit) });
    named.max_by(|a, b| a.share.total_cmp(&b.share))
}

/// A situation: a point with a known limit, and the limits that the classifier reported in its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation<'p> {
    /// Experiment point that is designed to have the limit.
    pub point: &'p Point,
    /// Limit that the classifier is expected to report.
    pub expected: Limit,
    /// Limits that the classifier reported, one for each run of the point.
    pub named: Vec<NamedLimit>,
}

impl Situation<'_> {
    /// Returns the number of runs that were classified correctly.
    pub fn right(&self) -> usize {
        self.named.iter().filter(|named| is_right(self.expected, named.limit)).count()
    }

    /// Returns the wrong limits that the classifier reported, with the number of runs for each.
    fn wrong(&self) -> BTreeMap<Limit, usize> {
        let mut wrong = BTreeMap::new();
        for named in self.named.iter().filter(|named| !is_right(self.expected, named.limit)) {
            *wrong.entry(named.limit).or_default() += 1;
        }
        wrong
    }

    /// Returns the mean and the minimum of the correct limit's share of time, over the runs that
    /// were classified correctly.
    fn time(&self) -> Option<(f64, f64)> {
        let right = self.named.iter().filter(|named| is_right(self.expected, named.limit));
        let shares: Vec<f64> = right.map(|named| named.share).collect();
        let least = shares.iter().copied().min_by(f64::total_cmp)?;
        Some((shares.iter().sum::<f64>() / shares.len() as f64, least))
    }
}

/// Returns whether at least the share [`ASKED`] of all runs was classified correctly.
pub fn holds(situations: &[Situation<'_>]) -> bool {
    let (right, runs) = sums(situations);
    runs > 0 && right as f64 >= ASKED * runs as f64
}

fn sums(situations: &[Situation<'_>]) -> (usize, usize) {
    situations.iter().fold((0, 0), |(right, runs), of| (right + of.right(), runs + of.named.len()))
}

/// Returns the situations as a Markdown table.
pub fn lines(situations: &[Situation<'_>]) -> String {
    let mut text = String::from(
        "| situation | runs | correct | reported instead | share of time, mean (minimum) |\n|---|---|---|---|---|\n",
    );
    for situation in situations {
        let wrong = situation.wrong();
        let wrong: Vec<String> = wrong.iter().map(|(limit, runs)| format!("{limit} {runs}")).collect();
        let wrong = if wrong.is_empty() { "-".into() } else { wrong.join(", ") };
        let time = situation
            .time()
            .map_or("-".into(), |(mean, least)| format!("{:.0} % ({:.0} %)", 100.0 * mean, 100.0 * least));
        // Writing to a string cannot fail.
        let (label, runs, right) = (&situation.point.label, situation.named.len(), situation.right());
        let _ = writeln!(text, "| {label} | {runs} | {right} | {wrong} | {time} |");
    }
    text
}

/// Returns the Markdown table of situations, followed by the share of runs that were classified correctly.
pub fn table(situations: &[Situation<'_>]) -> String {
    let mut text = lines(situations);
    let (right, runs) = sums(situations);
    let percent = if runs == 0 { 0.0 } else { 100.0 * right as f64 / runs as f64 };
    let met = if holds(situations) { "met" } else { "not met" };
    let _ = writeln!(
        text,
        "\nThe correct limit is reported in {right} of {runs} runs ({percent:.1} %). Target {:.0} %: {met}.",
        100.0 * ASKED
    );
    text
}

#[cfg(test)]
mod tests {
    use fullpipe::lab::experiment::Experiment;
    use fullpipe::lab::sim;

    use super::*;

    fn experiment() -> Experiment {
        let text = "name = 'x'\nduration = '4s'\n[path]\nrate = '50mbit'\nrtt = '40ms'\n[[flow]]\ncc = 'cubic'\n\
                    [[point]]\nname = 'rwnd: set by hand'\nlimit = 'rwnd'\nhost = { rcvbuf = { fixed = '128KiB' } }\n\
                    [[point]]\nname = 'no limit'\nflow = { count = 2 }";
        Experiment::from_toml(text).expect("valid")
    }

    #[test]
    fn a_point_says_what_limits_it_and_the_rows_do_too() {
        let experiment = experiment();
        let [first, second] = experiment.points() else { panic!("two points") };
        assert_eq!((expected(first), expected(second)), (Some(Limit::Rwnd), None));
        let mut rows: Vec<Row> = Vec::new();
        sim::run_traced(&first.scenario, &mut rows);
        let named = named(&rows, &first.scenario).expect("something is classified");
        assert!(named.limit == Limit::Rwnd && named.share > 0.9, "{named:?}");
        assert_eq!(super::named(&[], &first.scenario), None);
    }

    #[test]
    fn nineteen_of_twenty_are_enough() {
        let experiment = experiment();
        let named = |limit, share| NamedLimit { limit, share };
        let of = |right: usize, wrong: usize| {
            let runs = [vec![named(Limit::Rwnd, 0.75); right], vec![named(Limit::App, 0.9); wrong]].concat();
            [Situation { point: &experiment.points()[0], expected: Limit::Rwnd, named: runs }]
        };
        assert!(holds(&of(19, 1)) && !holds(&of(18, 1)) && !holds(&of(0, 0)));
        let text = table(&of(18, 1));
        assert!(text.contains("| rwnd: set by hand | 19 | 18 | app 1 | 75 % (75 %) |"), "{text}");
        assert!(text.ends_with("18 of 19 runs (94.7 %). Target 95 %: not met.\n"), "{text}");
    }
}
