//! Compares results of the simulator with results of the kernel, cell by cell.
//!
//! A cell is an experiment point that both the simulator and the kernel have run. The criterion depends on
//! what differs between the runs of a cell:
//!
//! | cell | criterion |
//! |---|---|
//! | no loss | only timing differs between runs: 5 % |
//! | loss, BBR | loss hardly affects the rate: 10 % |
//! | loss, Reno or CUBIC | few losses determine a run's result: the mean lies within the kernel's range |
//!
//! The criterion applies both to the goodput of the whole run and to the goodput of its second half. RTT and
//! retransmissions are listed, but no criterion applies to them.

use std::fmt::{self, Write};

use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::results::{Run, Spread};

/// Permitted relative deviation of the simulator's mean if only the timing differs between runs.
const LOSSLESS: f64 = 0.05;
/// Permitted relative deviation of the simulator's mean for algorithms that loss hardly affects.
const LOSSY: f64 = 0.10;

/// Criterion for the agreement between simulator and kernel in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Criterion {
    /// The means of simulator and kernel differ by at most this share of the kernel's mean.
    Within(f64),
    /// The simulator's mean lies between the minimum and the maximum of the kernel runs.
    InSpread,
}

/// Results of a cell, either in the simulator or on the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Sum of the goodput of all flows, in bit/s.
    pub goodput: Spread,
    /// Sum of the goodput of all flows over the second half of the run, in bit/s.
    pub goodput_second_half: Spread,
    /// Mean RTT in milliseconds, over the flows and runs that have an RTT.
    pub rtt_mean_ms: Option<f64>,
    /// Number of segments that all flows retransmitted, as a mean over the runs.
    pub retransmits: f64,
    /// Number of runs over which the results are computed.
    pub runs: usize,
}

/// A cell with its results in the simulator and on the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell<'e> {
    /// Experiment point of the cell.
    pub point: &'e Point,
    /// Criterion for the agreement between simulator and kernel.
    pub criterion: Criterion,
    /// Results of the cell in the simulator, with the loss patterns of the kernel runs.
    pub sim: Figures,
    /// Mean, minimum and maximum of the simulated goodput over additional blocks of seeds, in bit/s; `None`
    /// if all runs are identical.
    pub blocks: Option<Spread>,
    /// Results of the cell on the kernel.
    pub kernel: Figures,
}

/// Returns `count` blocks of seeds. Each block contains as many seeds as `seeds`, and no seed occurs twice.
/// The mean over a single block can be misleading, because all of its runs may happen to have few losses.
pub fn further_blocks(seeds: &[u64], count: u64) -> Vec<Vec<u64>> {
    let len = seeds.len() as u64;
    let shifted = |block: u64| seeds.iter().map(|seed| seed.wrapping_add(block * len)).collect();
    (1..=count).map(shifted).collect()
}

/// Returns whether runs of `point` with different seeds differ because of random losses, duplication, random
/// delays or AQM drops.
pub fn varies(point: &Point) -> bool {
    let (path, flows) = (&point.scenario.path, point.scenario.flows.len());
    path.forward.is_random(flows) || path.backward.is_random(flows)
}

impl Criterion {
    /// Returns the criterion of agreement for `point`.
    pub fn of(point: &Point) -> Self {
        let by_rate = point.scenario.flows.iter().all(|flow| flow.cc.is_rate_based());
        match (varies(point), by_rate) {
            (false, _) => Self::Within(LOSSLESS),
            (true, true) => Self::Within(LOSSY),
            (true, false) => Self::InSpread,
        }
    }

    fn holds(self, sim: Spread, kernel: Spread) -> bool {
        match self {
            Self::Within(share) => (sim.mean / kernel.mean - 1.0).abs() <= share,
            Self::InSpread => (kernel.min..=kernel.max).contains(&sim.mean),
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(share) => write!(f, "{:.0} %", 100.0 * share),
            Self::InSpread => f.write_str("in spread"),
        }
    }
}

impl Figures {
    /// Computes the results of one cell from its runs; returns `None` if there are no runs.
    fn of<'r>(runs: impl Iterator<Item = &'r Run> + Clone) -> Option<Self> {
        let total = |value: fn(&fullpipe::lab::results::Flow) -> u64| {
            let sums = runs.clone().map(move |run| run.flows.iter().map(value).sum::<u64>() as f64);
            Spread::of(&sums.collect::<Vec<_>>())
        };
        let rtts: Vec<f64> =
            runs.clone().flat_map(|run| &run.flows).filter_map(|flow| Some(flow.rtt_ms?.mean)).collect();
        Some(Self {
            goodput: total(|flow| flow.goodput_bps)?,
            goodput_second_half: total(|flow| flow.goodput_second_half_bps)?,
            rtt_mean_ms: Spread::of(&rtts).map(|spread| spread.mean),
            retransmits: total(|flow| flow.retransmits)?.mean,
            runs: runs.count(),
        })
    }
}

impl Cell<'_> {
    /// Returns whether simulator and kernel agree in this cell.
    pub fn holds(&self) -> bool {
        self.criterion.holds(self.sim.goodput, self.kernel.goodput)
            && self.criterion.holds(self.sim.goodput_second_half, self.kernel.goodput_second_half)
    }
}

/// Result of `--check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All cells agree.
    Holds,
    /// All cells that were compared agree, but some cells have no valid kernel run.
    Incomplete,
    /// Some cells disagree.
    Fails,
}

impl Verdict {
    /// Returns the verdict on an experiment with `points` cells, of which `cells` contains those with a valid
    /// kernel run. A cell without a valid kernel run counts neither as an agreement nor as a disagreement.
    pub fn of(cells: &[Cell<'_>], points: usize) -> Self {
        match (cells.iter().all(Cell::holds), cells.len() == points) {
            (false, _) => Self::Fails,
            (true, false) => Self::Incomplete,
            (true, true) => Self::Holds,
        }
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Fails }
    }
}

/// Returns the cells of `experiment` that both simulator and kernel have run, in the order of the experiment.
/// `blocks` contains simulated runs of additional blocks of seeds.
pub fn cells<'e>(
    experiment: &'e Experiment,
    sim: &[Run],
    blocks: &[Vec<Run>],
    kernel: &[Run],
) -> Vec<Cell<'e>> {
    let figures = |runs: &[Run], label: &str| Figures::of(runs.iter().filter(|run| run.point == label));
    let spread = |label: &str| {
        let means = blocks.iter().filter_map(|runs| Some(figures(runs, label)?.goodput.mean));
        Spread::of(&means.collect::<Vec<_>>())
    };
    let cell = |point: &'e Point| {
        Some(Cell {
            point,
            criterion: Criterion::of(point),
            sim: figures(sim, &point.label)?,
            blocks: spread(&point.label),
            kernel: figures(kernel, &point.label)?,
        })
    };
    experiment.points().iter().filter_map(cell).collect()
}

/// Returns the cells as a Markdown table, with the number of cells that agree.
pub fn table(cells: &[Cell<'_>]) -> String {
    let mut text = String::from(
        "| cell | path | cc | goodput sim / kernel | sim, other seeds | second half sim / kernel | \
         RTT sim / kernel | retransmits sim / kernel | criterion | |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let agreeing = cells.iter().filter(|cell| cell.holds()).count();
    for cell in cells {
        let (sim, kernel) = (&cell.sim, &cell.kernel);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {:.0} / {:.0} | {} | {} |",
            cell.point.parameters.get("point").unwrap_or(&cell.point.label),
            path(cell.point),
            flows(cell.point),
            pair(sim.goodput, kernel.goodput, cell.criterion),
            cell.blocks.map_or("-".into(), |means| format!("{}-{}", mbit(means.min), mbit(means.max))),
            pair(sim.goodput_second_half, kernel.goodput_second_half, cell.criterion),
            millis(sim.rtt_mean_ms, kernel.rtt_mean_ms),
            sim.retransmits,
            kernel.retransmits,
            cell.criterion,
            if cell.holds() { "agrees" } else { "**misses**" },
        );
    }
    let _ = writeln!(text, "\n{agreeing} of {} cells agree.", cells.len());
    text
}

/// Returns a Markdown table of published results next to those of simulator and kernel; returns `None` if the
/// experiment has no published results. The table has one row for each point of an expectation with a
/// published result, provided that both simulator and kernel have run the point.
pub fn published(experiment: &Experiment, sim: &[Run], kernel: &[Run]) -> Option<String> {
    let told: Vec<_> = experiment.expectations().iter().filter(|e| e.published.is_some()).collect();
    if told.is_empty() {
        return None;
    }
    let mut text = String::from(
        "| point | metric | published | simulator | kernel | kernel, each run |\n|---|---|---|---|---|---|\n",
    );
    for expectation in told {
        for &number in &expectation.points {
            let point = &experiment.points()[number];
            let metric = expectation.metric;
            let figures = |runs: &[Run]| {
                let of_point = runs.iter().filter(|run| run.point == point.label);
                of_point.map(|run| metric.of(&run.into(), &point.scenario.path)).collect::<Vec<_>>()
            };
            let (sim, kernel) = (figures(sim), figures(kernel));
            let (Some(one), Some(other)) = (expectation.over.of(&sim), expectation.over.of(&kernel)) else {
                continue;
            };
            let each: Vec<_> = kernel.iter().flatten().map(|value| metric.number(*value)).collect();
            let _ = writeln!(
                text,
                "| {} | `{metric}` | {} | {} | {} | {} |",
                point.label,
                expectation.published.as_deref().unwrap_or_default(),
                metric.display(one),
                metric.display(other),
                each.join(", "),
            );
        }
    }
    Some(text)
}

/// Describes the path of a cell by the parameters of its point.
pub fn path(point: &Point) -> String {
    let keys = ["rate", "rtt", "loss", "queue", "sndbuf"];
    let values = keys.iter().filter_map(|key| Some((*key, point.parameters.get(*key)?)));
    let words = values.map(|(key, value)| match key {
        "loss" => format!("loss {value}"),
        "queue" => format!("queue {value}"),
        "sndbuf" => format!("buffers {value}"),
        _ => value.clone(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Describes the flows of a cell: their number and congestion control.
pub fn flows(point: &Point) -> String {
    let flows = &point.scenario.flows;
    match flows.len() {
        1 => flows[0].cc.to_string(),
        n => format!("{n} x {}", flows[0].cc),
    }
}

/// Formats a rate in Mbit/s.
pub fn mbit(bps: f64) -> String {
    let mbit = bps / 1e6;
    if mbit < 10.0 { format!("{mbit:.2}") } else { format!("{mbit:.1}") }
}

fn pair(sim: Spread, kernel: Spread, criterion: Criterion) -> String {
    match criterion {
        Criterion::Within(_) => format!(
            "{} / {} ({:+.1} %)",
            mbit(sim.mean),
            mbit(kernel.mean),
            100.0 * (sim.mean / kernel.mean - 1.0)
        ),
        Criterion::InSpread => {
            format!("{} / {} ({}-{})", mbit(sim.mean), mbit(kernel.mean), mbit(kernel.min), mbit(kernel.max))
        }
    }
}

fn millis(sim: Option<f64>, kernel: Option<f64>) -> String {
    let one = |value: Option<f64>| value.map_or("-".into(), |ms| format!("{ms:.1}"));
    format!("{} / {} ms", one(sim), one(kernel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::lab::outcome::PathOutcome;
    use fullpipe::lab::results::{Flow, WorkCounts};

    fn experiment() -> Experiment {
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = '10ms'\nloss = ['0%', '1%']\n\
                    [[flow]]\ncc = ['cubic', 'bbr1']\ncount = 2";
        Experiment::from_toml(text).expect("valid")
    }

    fn run(point: &str, seed: u64, mbit: f64) -> Run {
        let flow = Flow {
            cc: "cubic".into(),
            bytes: 0,
            goodput_bps: (mbit * 0.5e6) as u64,
            goodput_second_half_bps: (mbit * 0.5e6) as u64,
            retransmits: 3,
            rtt_ms: None,
            send_limit: Default::default(),
            wire: Default::default(),
            wire_second_half: Default::default(),
            response_ms: None,
        };
        Run {
            point: point.into(),
            seed,
            flows: vec![flow.clone(), flow],
            path: PathOutcome::default(),
            work: WorkCounts { events: 0, acks: 0, records_visited: 0 },
            digest: String::new(),
            wall_s: 0.0,
            validity: None,
        }
    }

    #[test]
    fn each_kind_of_cell_has_its_own_bound() {
        let experiment = experiment();
        let kinds: Vec<_> = experiment.points().iter().map(Criterion::of).collect();
        let (lossless, spread) = (Criterion::Within(LOSSLESS), Criterion::InSpread);
        assert_eq!(kinds, [lossless, lossless, spread, Criterion::Within(LOSSY)]);
    }

    /// No seed occurs twice, because a block would otherwise repeat a result of another block.
    #[test]
    fn blocks_of_seeds_are_disjoint() {
        assert_eq!(further_blocks(&[7, 8, 9], 2), [[10, 11, 12], [13, 14, 15]]);
    }

    /// Even without loss, points with jitter, duplication or a random AQM need several seeds; points with
    /// CoDel or a drop-tail queue do not.
    #[test]
    fn whatever_draws_at_random_varies() {
        let varies = |path: &str| {
            let text = format!(
                "name = 'x'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n{path}\n[[flow]]\ncc = 'reno'"
            );
            varies(&Experiment::from_toml(&text).expect("valid").points()[0])
        };
        for random in [
            "loss = '1%'",
            "jitter = '2ms'",
            "duplicate = '1%'",
            "queue = { aqm = 'red', min = '30KiB', max = '90KiB' }",
            "queue = { aqm = 'pie' }",
            "[path.backward]\njitter = '2ms'",
        ] {
            assert!(varies(random), "{random}");
        }
        for fixed in
            ["", "queue = { aqm = 'codel' }", "queue = { aqm = 'fq_codel' }", "policer = { rate = '5mbit' }"]
        {
            assert!(!varies(fixed), "{fixed}");
        }
    }

    #[test]
    fn flows_add_up_and_bounds_bite() {
        let experiment = experiment();
        let label = |i: usize| experiment.points()[i].label.clone();
        let agree = |i: usize, sim: &[f64], kernel: &[f64]| {
            let runs = |values: &[f64]| {
                values.iter().zip(1..).map(|(mbit, seed)| run(&label(i), seed, *mbit)).collect::<Vec<_>>()
            };
            let (sim, kernel) = (runs(sim), runs(kernel));
            let cells = cells(&experiment, &sim, &[], &kernel);
            assert_eq!(cells.len(), 1, "cells that one world lacks are left out");
            assert_eq!(cells[0].sim.retransmits, 6.0);
            cells[0].holds()
        };
        assert!(agree(0, &[9.52], &[10.0]));
        assert!(!agree(0, &[9.48], &[10.0]));
        assert!(agree(2, &[1.0, 2.0], &[1.4, 1.6]));
        assert!(!agree(2, &[1.0, 1.0], &[1.4, 1.6]));
        assert!(agree(3, &[9.1], &[10.0]));
        assert!(!agree(3, &[8.9], &[10.0]));
    }

    #[test]
    fn a_cell_that_could_not_be_compared_is_no_disagreement() {
        let experiment = experiment();
        let label = &experiment.points()[0].label;
        let verdict = |sim: f64, points| {
            let (sim, kernel) = ([run(label, 1, sim)], [run(label, 1, 10.0)]);
            Verdict::of(&cells(&experiment, &sim, &[], &kernel), points)
        };
        assert_eq!(verdict(10.0, 1), Verdict::Holds);
        assert_eq!(verdict(10.0, 2), Verdict::Incomplete);
        assert_eq!(verdict(5.0, 1), Verdict::Fails);
        assert_eq!(verdict(5.0, 2), Verdict::Fails, "what was compared counts");
        assert_eq!(Verdict::of(&[], 1), Verdict::Incomplete);
    }

    #[test]
    fn the_table_counts_what_agrees() {
        let experiment = experiment();
        let label = &experiment.points()[0].label;
        let (sim, kernel) = ([run(label, 1, 9.0)], [run(label, 1, 10.0)]);
        let blocks = [vec![run(label, 2, 8.0), run(label, 3, 9.0)], vec![run(label, 4, 12.0)]];
        let text = table(&cells(&experiment, &sim, &blocks, &kernel));
        assert!(text.contains("| 2 x cubic | 9.00 / 10.0 (-10.0 %) | 8.50-12.0 |"), "{text}");
        assert!(text.contains("| **misses** |") && text.ends_with("0 of 1 cells agree.\n"), "{text}");
    }
}
