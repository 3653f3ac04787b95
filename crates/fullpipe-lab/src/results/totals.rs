//! Summaries and expectation results of a campaign's points, computed as the runs finish.

use super::{Expect, Report, Run, Summary, TimedOutcome};
use crate::campaign::RunResult;
use crate::check::judge;
use crate::experiment::Experiment;
use crate::metric::RunFigures;

/// Summaries and expectation results of a campaign's points, computed as the runs finish. Only the figures of one
/// point are in memory, so memory use does not grow with the number of runs.
#[derive(Clone, Debug)]
pub struct Totals<'e> {
    experiment: &'e Experiment,
    /// Point of the figures.
    point: usize,
    /// Figures of the runs of this point.
    figures: Vec<RunFigures>,
    summaries: Vec<Summary>,
    /// Number of an expectation, and its comparison with a point.
    expect: Vec<(usize, Expect)>,
    runs: usize,
}

impl<'e> Totals<'e> {
    /// Creates empty totals for a campaign of `experiment`.
    pub fn new(experiment: &'e Experiment) -> Self {
        Self { experiment, point: 0, figures: Vec::new(), summaries: Vec::new(), expect: Vec::new(), runs: 0 }
    }

    /// Adds a run, and returns its entry in the document. Runs must be added in the order of their points.
    pub fn add(&mut self, run: &RunResult<TimedOutcome>) -> Run {
        if run.point != self.point {
            self.end_point();
            self.point = run.point;
        }
        self.figures.push(RunFigures::from(&run.value.outcome));
        self.runs += 1;
        Run::new(self.experiment, run)
    }

    /// Returns the number of runs.
    pub const fn runs(&self) -> usize {
        self.runs
    }

    fn end_point(&mut self) {
        let (experiment, point) = (self.experiment, self.point);
        let figures = std::mem::take(&mut self.figures);
        if figures.is_empty() {
            return;
        }
        self.summaries.push(Summary::of(&experiment.points()[point], &figures));
        if figures.len() < experiment.seeds().len() {
            return;
        }
        for (number, expectation) in experiment.expectations().iter().enumerate() {
            if expectation.points.contains(&point) {
                let verdict = judge(experiment, expectation, point, &figures);
                self.expect.push((number, Expect::new(experiment, &verdict)));
            }
        }
    }

    /// Returns the document of a campaign in `world`, without runs, and the summary of each point.
    pub fn finish(mut self, world: &str) -> (Report, Vec<Summary>) {
        self.end_point();
        // The sort is stable, so the points of an expectation stay in order.
        self.expect.sort_by_key(|(number, _)| *number);
        let report = Report {
            interrupted: self.runs < self.experiment.points().len() * self.experiment.seeds().len(),
            expect: self.expect.into_iter().map(|(_, expect)| expect).collect(),
            ..Report::new(self.experiment, world, &[])
        };
        (report, self.summaries)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{summaries, tests};
    use super::*;

    /// With and without the runs in memory, documents and summaries are equal, for each number of runs.
    #[test]
    fn totals_are_those_of_the_runs() {
        let text = "name = 'x'\nduration = '1s'\nrepeat = 2\n[path]\nrate = ['10mbit', '20mbit', '5mbit']\n\
                    rtt = '10ms'\n[[flow]]\ncc = 'bbr'\n\
                    [[expect]]\nmetric = 'goodput_bps'\nmin = '5mbit'\n\
                    [[expect]]\nwhere = { rate = '20mbit' }\nmetric = 'rtt_mean_ms'\nmax = 100\n\
                    [[expect]]\nmetric = 'retransmits'\nover = 'max'\nmax = 7";
        let experiment = Experiment::from_toml(text).expect("valid");
        let of_point = |point| tests::runs().into_iter().map(move |run| RunResult { point, ..run });
        let runs: Vec<_> = (0..3).flat_map(of_point).collect();
        for number in 0..=runs.len() {
            let mut totals = Totals::new(&experiment);
            let made = runs[..number].iter().map(|run| totals.add(run)).collect();
            assert_eq!(totals.runs(), number);
            let (report, summed) = totals.finish("sim");
            let expected = Report::new(&experiment, "sim", &runs[..number]);
            assert_eq!(Report { runs: made, ..report }, expected);
            assert_eq!(summed, summaries(&experiment, &runs[..number]));
        }
    }
}
