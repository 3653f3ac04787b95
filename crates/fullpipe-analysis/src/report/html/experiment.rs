//! HTML page of an experiment.

use askama::Template;
use fullpipe_lab::campaign::{Job, JobWatch, Progress, RunPanicked};
use fullpipe_lab::experiment::{Experiment, Point};
use fullpipe_lab::metric::Metric;
use fullpipe_lab::results::{Report, Spread, Summary};
use fullpipe_lab::scenario::Scenario;

use super::scene::replay;
use super::{Frame, Provenance, Scene};
use crate::report::page::percent;

/// Maximum number of points with charts; the tables contain all points. More charts would make the file too
/// large to open quickly.
const MOST_POINTS: usize = 24;
/// Maximum number of flows of a point for which each flow has a separate chart, in addition to the chart of
/// all flows together.
const MOST_FLOWS: usize = 4;

/// Renders an experiment as a page, with all points and expectations in tables. Charts show the first seed of
/// the first 24 points, which are simulated again to obtain their timelines. Points whose congestion control
/// exists only in Linux have no charts.
///
/// # Errors
/// Returns an error if a simulated run panicked, which is a defect of this library.
pub fn render_experiment(
    experiment: &Experiment,
    summaries: &[Summary],
    report: &Report,
    made: Provenance<'_>,
) -> Result<String, RunPanicked> {
    let seeds = experiment.seeds();
    let seed = seeds.first().copied().unwrap_or_default();
    let scenes = of_points(experiment, seed, &|_: Progress| ())?.unwrap_or_default();
    let failed = report.failed();
    let all = report.expect.len();
    let page = ExperimentPage {
        frame: Frame::new(made, scenes),
        name: experiment.name(),
        description: experiment.description(),
        verdict: match (all, failed) {
            (0, _) => None,
            (_, 0) => Some(format!("{all} of {all} expectations met")),
            _ => Some(format!("{failed} of {all} expectations not met")),
        },
        failed: failed > 0,
        seeds: match seeds.as_slice() {
            [first, .., last] => format!("mean (min..max) of seeds {first} to {last}"),
            [only] => format!("seed {only}"),
            [] => String::new(),
        },
        points: points(summaries),
        left_out: experiment.points().len().saturating_sub(MOST_POINTS),
        report,
    };
    // Writing to a string does not fail.
    Ok(page.render().unwrap_or_default())
}

/// Returns the scenes of the first points, or `None` if `watch` abandons the runs.
pub(super) fn of_points(
    experiment: &Experiment,
    seed: u64,
    watch: &dyn JobWatch,
) -> Result<Option<Vec<Scene>>, RunPanicked> {
    let job = |point: &Point| Job {
        label: if point.label.is_empty() { experiment.name().into() } else { point.label.clone() },
        scenario: Scenario { seed, ..point.scenario.clone() },
    };
    let ours = |point: &&Point| point.scenario.flows.iter().all(|flow| flow.cc.of_fullpipe().is_some());
    let jobs: Vec<Job> = experiment.points().iter().take(MOST_POINTS).filter(ours).map(job).collect();
    replay(&jobs, &format!("Seed {seed}. RTT is the smoothed RTT."), MOST_FLOWS, watch)
}

#[derive(Template)]
#[template(path = "experiment.html")]
struct ExperimentPage<'a> {
    frame: Frame<'a>,
    name: &'a str,
    description: &'a str,
    verdict: Option<String>,
    failed: bool,
    seeds: String,
    points: Vec<PointView<'a>>,
    left_out: usize,
    report: &'a Report,
}

/// View of a point as a table row.
struct PointView<'a> {
    label: &'a str,
    goodput: String,
    second_half: String,
    /// Goodput as a percentage of the highest goodput.
    bar: String,
    retransmits: String,
    rtt: String,
    limits: Vec<LimitView>,
}

struct LimitView {
    name: &'static str,
    /// Share as readable text; `width` is the same share for the bar.
    share: String,
    width: String,
}

fn points(summaries: &[Summary]) -> Vec<PointView<'_>> {
    let goodput = |summary: &Summary| summary.goodput.map_or(0.0, |spread| spread.mean);
    let most = summaries.iter().map(goodput).fold(0.0, f64::max).max(1.0);
    let number = |value: Option<f64>, metric: Metric| value.map_or("-".into(), |v| metric.number(v));
    summaries
        .iter()
        .map(|summary| {
            let words = |spread: Option<Spread>| spread.map_or("-".into(), |s| s.words(summary.repeats));
            PointView {
                label: &summary.point,
                goodput: words(summary.goodput),
                second_half: words(summary.goodput_second_half),
                bar: format!("{:.2}", 100.0 * goodput(summary) / most),
                retransmits: number(summary.retransmits, Metric::Retransmits),
                rtt: number(summary.rtt_mean_ms, Metric::RttMean),
                limits: summary
                    .limits
                    .iter()
                    .map(|(limit, share)| LimitView {
                        name: limit.name(),
                        share: percent(*share),
                        width: format!("{:.2}", 100.0 * share),
                    })
                    .collect(),
            }
        })
        .collect()
}
