//! Results of a race that measures harm: one JSON document with the harm of each arm in each cell.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::harm::{HarmCell, HarmPlan, HarmRun, HarmRuns};
use crate::bootstrap::MeanInterval;
use crate::experiment::HarmBound;
use crate::stats::mean;
use crate::victim::Victim;

/// Name and version of the JSON document's format.
pub const HARM_SCHEMA: &str = "fullpipe.harm/1";

/// Results of a race that measures harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarmReport {
    /// Name and version of this JSON document's format.
    #[schemars(extend("const" = HARM_SCHEMA))]
    pub schema: String,
    /// Name of the race.
    pub race: String,
    /// Where the race ran: `sim` (simulator) or `emu` (kernel TCP on an emulated path).
    pub world: String,
    /// Arm with which the other arms are compared.
    pub against: String,
    /// Whether the race was ended early. A race that was ended early lacks some runs.
    pub interrupted: bool,
    /// Results of each cell, in the order of the file.
    pub cells: Vec<HarmCellReport>,
    /// Comparison of each bound with each cell to which it applies.
    pub bounds: Vec<HarmBoundReport>,
}

/// Results of one cell: one victim on one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarmCellReport {
    /// Label of the path.
    pub cell: String,
    /// Name of the `[[point]]` of the experiment that contains the path; absent if it has no name. Cells of different
    /// names are counted separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Name of the victim.
    pub victim: String,
    /// Metric of the victim.
    pub metric: VictimMetric,
    /// Rate of the link in the data direction, in bit/s.
    pub rate_bps: u64,
    /// Two-way propagation delay, in milliseconds.
    pub rtt_ms: f64,
    /// Number of senders under test, each of which is one flow.
    pub senders: u64,
    /// Mean of the victim's metric without the senders under test; null if no run is complete.
    pub alone: Option<f64>,
    /// Number of runs that were repeated because the machine did not keep up with the emulated path; zero in the
    /// simulator.
    #[serde(default)]
    pub repeated: u64,
    /// Number of runs without a result, because the machine did not keep up with any attempt. The means do not
    /// contain them.
    #[serde(default)]
    pub late: u64,
    /// Results of each arm, in the order of the race.
    pub arms: Vec<HarmArmReport>,
}

/// Metric of a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VictimMetric {
    /// Goodput in bit/s; higher is better.
    Goodput,
    /// 99th percentile of the time from when data is produced until the client's application has read it, in
    /// seconds; lower is better.
    DelayP99,
    /// Mean time of the downloads from the SYN, in seconds; lower is better.
    DownloadTime,
}

/// Results of one arm in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarmArmReport {
    /// Name of the arm.
    pub arm: String,
    /// Number of runs.
    pub runs: u64,
    /// Mean of the victim's metric beside this arm; null if no run is complete.
    pub beside: Option<f64>,
    /// Share of its performance that the victim loses; null for fewer than two runs.
    pub harm: Option<HarmInterval>,
    /// Harm by this arm minus harm by the arm `against`, paired by seed; null for that arm.
    pub excess: Option<HarmInterval>,
    /// The same difference in the simulator, with the same seeds; absent unless the race ran in the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedExcess>,
    /// Number of data segments that the senders under test sent, divided by the number of segments needed for
    /// the data that arrived; null without data, and for senders that are relayed in the emulator, because the
    /// retransmissions of a relay are not known.
    pub sent_per_needed: Option<f64>,
    /// Share of all data packets that queues, AQMs and policers of the path dropped; null if there were no
    /// packets.
    pub dropped: Option<f64>,
}

/// Mean over the seeds with its 95 % confidence interval (BCa bootstrap).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarmInterval {
    /// Mean.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl HarmInterval {
    /// Returns half the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Returns whether the means of two measurements differ by at most the sum of the half-widths of their intervals.
    pub fn agrees(&self, other: &Self) -> bool {
        (self.mean - other.mean).abs() <= self.half_width() + other.half_width()
    }
}

/// Harm by an arm minus harm by the arm `against` in the simulator, compared with the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulatedExcess {
    /// Excess in the simulator, paired by seed.
    pub excess: HarmInterval,
    /// Whether the means of both worlds differ by at most the sum of the half-widths of both intervals; null if
    /// the emulator has no excess.
    pub agrees: Option<bool>,
}

/// Comparison of a bound with one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarmBoundReport {
    /// Label of the path.
    pub cell: String,
    /// Name of the victim.
    pub victim: String,
    /// Arm whose harm is bounded.
    pub arm: String,
    /// Upper end of the excess's confidence interval; null if the arm has no excess in this cell.
    pub high: Option<f64>,
    /// Maximum for the upper end of the interval.
    pub max: f64,
    /// Whether the upper end is within the bound.
    pub pass: bool,
}

impl HarmReport {
    /// Creates the document of the race `plan` in `world`. `runs` contains the runs of each cell, in the order of
    /// the plan and of its seeds. If the race was ended early, some runs are missing.
    pub fn new(plan: &HarmPlan, world: &str, runs: &[Vec<HarmRuns>]) -> Self {
        let cells = || plan.cells().iter().zip(runs);
        let reports: Vec<HarmCellReport> =
            cells().map(|(cell, runs)| cell_report(plan, cell, runs)).collect();
        let compared = |bound: &HarmBound| {
            let applies = |cell: &HarmCell| {
                bound.points.contains(&cell.number) && bound.victim.is_none_or(|victim| victim == cell.victim)
            };
            let within = plan.cells().iter().zip(&reports).filter(|(cell, _)| applies(cell));
            within.map(|(_, report)| bound_report(bound, report)).collect::<Vec<_>>()
        };
        Self {
            schema: HARM_SCHEMA.into(),
            race: plan.name().into(),
            world: world.into(),
            against: plan.against().to_string(),
            interrupted: cells().count() < plan.cells().len()
                || runs.iter().any(|runs| runs.len() < plan.seeds().len()),
            bounds: plan.bounds().iter().flat_map(compared).collect(),
            cells: reports,
        }
    }

    /// Returns the report with the excesses of `simulated`, a report of the same plan in the simulator, beside those of
    /// this report.
    #[must_use]
    pub fn with_simulated(mut self, simulated: &Self) -> Self {
        for (cell, simulated) in self.cells.iter_mut().zip(&simulated.cells) {
            for (arm, simulated) in cell.arms.iter_mut().zip(&simulated.arms) {
                let emulated = arm.excess;
                arm.simulated = simulated.excess.map(|excess| SimulatedExcess {
                    excess,
                    agrees: emulated.map(|emulated| emulated.agrees(&excess)),
                });
            }
        }
        self.interrupted |= simulated.interrupted;
        self
    }

    /// Returns the number of comparisons in which the upper end of an interval is above its bound.
    pub fn failed(&self) -> usize {
        self.bounds.iter().filter(|bound| !bound.pass).count()
    }
}

impl HarmCellReport {
    /// Returns the results of the arm with this name.
    pub fn arm(&self, name: &str) -> Option<&HarmArmReport> {
        self.arms.iter().find(|arm| arm.arm == name)
    }
}

fn bound_report(bound: &HarmBound, cell: &HarmCellReport) -> HarmBoundReport {
    let arm = bound.arm.to_string();
    let high = cell.arm(&arm).and_then(|report| report.excess).map(|excess| excess.high);
    HarmBoundReport {
        cell: cell.cell.clone(),
        victim: cell.victim.clone(),
        arm,
        high,
        max: bound.max,
        pass: high.is_some_and(|high| high <= bound.max),
    }
}

fn cell_report(plan: &HarmPlan, cell: &HarmCell, runs: &[HarmRuns]) -> HarmCellReport {
    let path = &cell.point.scenario.path;
    let number = plan.arms().iter().position(|arm| *arm == plan.against()).unwrap_or_default();
    let base = harms(cell.victim, runs, number);
    let seed = plan.seeds().first().copied().unwrap_or_default();
    let arms = plan.arms().iter().enumerate().map(|(arm, name)| {
        let harms = harms(cell.victim, runs, arm);
        let excess: Vec<f64> =
            harms.iter().zip(&base).filter_map(|(harm, base)| Some((*harm)? - (*base)?)).collect();
        let made = || runs.iter().filter_map(|runs| runs.arms.get(arm));
        HarmArmReport {
            arm: name.to_string(),
            runs: made().count() as u64,
            beside: mean(made().filter_map(|run| run.beside)),
            harm: interval(&harms.iter().copied().flatten().collect::<Vec<_>>(), seed),
            excess: if arm == number { None } else { interval(&excess, seed) },
            simulated: None,
            sent_per_needed: share(made().filter_map(|run| Some((run.sent?, run.needed)))),
            dropped: share(made().map(|run| (run.dropped, run.offered))),
        }
    });
    HarmCellReport {
        cell: cell.point.label.clone(),
        point: cell.point.parameters.get("point").cloned(),
        victim: cell.victim.name().into(),
        metric: match cell.victim {
            Victim::Cubic | Victim::Reno | Victim::Bbr1 => VictimMetric::Goodput,
            Victim::Stream => VictimMetric::DelayP99,
            Victim::Web => VictimMetric::DownloadTime,
        },
        rate_bps: path.forward.rate.as_bps(),
        rtt_ms: path.rtt().as_millis_f64(),
        senders: cell.point.scenario.flows.len() as u64,
        alone: mean(runs.iter().filter_map(|runs| runs.alone)),
        repeated: runs.iter().map(|runs| u64::from(runs.slow.repeated)).sum(),
        late: runs.iter().map(|runs| u64::from(runs.slow.late)).sum(),
        arms: arms.collect(),
    }
}

/// Returns the harm in each run beside arm `number`; `None` for a run without a metric.
fn harms(victim: Victim, runs: &[HarmRuns], number: usize) -> Vec<Option<f64>> {
    let harm = |runs: &HarmRuns| {
        let beside = runs.arms.get(number).and_then(|run: &HarmRun| run.beside)?;
        let (alone, most) = (runs.alone?, if victim.more_is_better() { runs.alone? } else { beside });
        let lost = if victim.more_is_better() { alone - beside } else { beside - alone };
        (most > 0.0).then(|| lost / most)
    };
    runs.iter().map(harm).collect()
}

fn interval(values: &[f64], seed: u64) -> Option<HarmInterval> {
    let MeanInterval { mean, low, high } = MeanInterval::of(values, seed)?;
    Some(HarmInterval { mean, low, high })
}

/// Returns the sum of the first values divided by the sum of the second values; `None` if the second sum is
/// zero.
fn share(counts: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let (part, whole) = counts.fold((0, 0), |sums, counts| (sums.0 + counts.0, sums.1 + counts.1));
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::Arm;
    use crate::experiment::Experiment;
    use crate::race::{HarmTable, SlowRuns};

    fn plan(more: &str) -> HarmPlan {
        let text = format!(
            "name = 'small'\nduration = '60s'\nrepeat = 4\n\
             [path]\nrate = '10mbit'\nrtt = '50ms'\nqueue = ['0.25bdp', '1bdp']\n[[flow]]\ncc = 'bbr1'\n{more}"
        );
        let experiment = Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let [bbr1, surge] = ["bbr1", "surge"].map(|arm| arm.parse::<Arm>().expect("an arm"));
        HarmPlan::new(&experiment, &[bbr1, surge], bbr1, &[Victim::Cubic, Victim::Stream]).expect("a plan")
    }

    /// Returns the runs of a cell with these metrics of the victim: alone, beside bbr1, and beside surge.
    fn runs(metrics: &[[f64; 3]]) -> Vec<HarmRuns> {
        let run = |beside| HarmRun {
            beside: Some(beside),
            sent: Some(110),
            needed: 100,
            offered: 400,
            dropped: 10,
        };
        let runs = |[alone, bbr1, surge]: &[f64; 3]| HarmRuns {
            alone: Some(*alone),
            arms: vec![run(*bbr1), HarmRun { sent: Some(105), ..run(*surge) }],
            slow: SlowRuns::default(),
        };
        metrics.iter().map(runs).collect()
    }

    const BOUNDS: &str = "[[harm]]\narm = 'surge'\nagainst = 'bbr1'\nmax = 0.15\n\
                          [[harm]]\nwhere = { queue = '1bdp' }\nvictim = 'cubic'\narm = 'surge'\nagainst = 'bbr1'\nmax = 0.01\n\
                          [[harm]]\narm = 'bbr3'\nagainst = 'bbr1'\nmax = -1\n";

    fn report() -> HarmReport {
        let goodput = runs(&[[8e6, 4e6, 3e6], [8e6, 4e6, 4e6], [8e6, 2e6, 2e6], [8e6, 4e6, 3e6]]);
        let delay = runs(&[[0.1, 0.2, 0.2], [0.1, 0.2, 0.25], [0.1, 0.4, 0.4], [0.1, 0.2, 0.2]]);
        let cells = [goodput.clone(), delay.clone(), goodput, delay];
        HarmReport::new(&plan(BOUNDS), "sim", &cells)
    }

    #[test]
    fn harm_is_the_share_of_the_performance_that_is_lost() {
        let report = report();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        let cubic = &report.cells[0];
        assert_eq!((cubic.victim.as_str(), cubic.metric, cubic.senders), ("cubic", VictimMetric::Goodput, 1));
        near(cubic.alone.expect("runs"), 8e6);
        let [bbr1, surge] = ["bbr1", "surge"].map(|arm| cubic.arm(arm).expect("an arm"));
        near(bbr1.harm.expect("harm").mean, (3.0 * 0.5 + 0.75) / 4.0);
        near(surge.harm.expect("harm").mean, (2.0 * 0.625 + 0.5 + 0.75) / 4.0);
        let excess = surge.excess.expect("an excess");
        near(excess.mean, 0.0625);
        assert!(excess.low >= 0.0 && excess.high <= 0.125 && excess.low < excess.high, "{excess:?}");
        assert_eq!((bbr1.excess, bbr1.runs), (None, 4));
        near(surge.sent_per_needed.expect("data"), 1.05);
        near(surge.dropped.expect("packets"), 0.025);

        let stream = &report.cells[1];
        assert_eq!((stream.victim.as_str(), stream.metric), ("stream", VictimMetric::DelayP99));
        near(stream.arm("bbr1").and_then(|arm| arm.harm).expect("harm").mean, (3.0 * 0.5 + 0.75) / 4.0);
        near(stream.arm("surge").and_then(|arm| arm.excess).expect("an excess").mean, 0.1 / 4.0);

        assert!(!report.interrupted);
        let early = HarmReport::new(&plan(""), "sim", &[runs(&[[8e6, 4e6, 3e6]])]);
        assert!(early.interrupted && early.cells[0].arms[1].excess.is_none());
        let document = serde_json::to_value(&report).expect("JSON");
        assert_eq!(document["schema"], HARM_SCHEMA);
        assert_eq!(serde_json::from_value::<HarmReport>(document).expect("readable"), report);
    }

    #[test]
    fn a_bound_is_compared_with_the_upper_end() {
        let report = report();
        let found: Vec<_> = report
            .bounds
            .iter()
            .map(|bound| (bound.cell.as_str(), bound.victim.as_str(), bound.max, bound.pass))
            .collect();
        let expected = [
            ("queue=0.25bdp", "cubic", 0.15, true),
            ("queue=0.25bdp", "stream", 0.15, true),
            ("queue=1bdp", "cubic", 0.15, true),
            ("queue=1bdp", "stream", 0.15, true),
            ("queue=1bdp", "cubic", 0.01, false),
        ];
        assert_eq!(found, expected, "bbr3 is not in the race");
        assert_eq!(report.failed(), 1);
    }

    /// The table counts the cells of each victim, and those of a named point separately.
    #[test]
    fn cells_of_named_points_are_counted_separately() {
        let names =
            "[[point]]\npath = { loss = '0%' }\n[[point]]\nname = 'short'\nflow = { bytes = '60kB' }\n";
        let more = runs(&[[8e6, 4e6, 3e6], [8e6, 4e6, 4e6], [8e6, 2e6, 2e6], [8e6, 4e6, 3e6]]);
        let same = runs(&[[8e6, 4e6, 4e6], [8e6, 2e6, 2e6], [8e6, 4e6, 4e6], [8e6, 3e6, 3e6]]);
        let cells: Vec<_> = [&same, &same, &same, &more]
            .into_iter()
            .flat_map(|cubic| [cubic.clone(), same.clone()])
            .collect();
        let report = HarmReport::new(&plan(names), "sim", &cells);
        let points: Vec<_> = report.cells.iter().map(|cell| cell.point.as_deref()).collect();
        assert_eq!((points.len(), &points[..4], &points[4..]), (8, &[None; 4][..], &[Some("short"); 4][..]));
        let text = HarmTable { report: &report }.to_string();
        let at = text.find("\nsurge: in 7 of 8 cells").unwrap_or_else(|| panic!("{text}"));
        let counts: Vec<&str> = text[at..].lines().skip(2).take(4).collect();
        let expected = [
            "  cubic: 2 of 2; upper end above 0.1 in 0",
            "  stream: 2 of 2; upper end above 0.1 in 0",
            "  cubic, short: 1 of 2; upper end above 0.1 in 1",
            "  stream, short: 2 of 2; upper end above 0.1 in 0",
        ];
        assert_eq!(counts, expected, "{text}");
    }

    /// The means of both worlds may differ by the sum of the half-widths of their intervals, which need not overlap.
    #[test]
    fn worlds_agree_within_their_half_widths() {
        let interval = |mean, low, high| HarmInterval { mean, low, high };
        let emulated = interval(0.10, 0.06, 0.12);
        for (simulated, agrees) in [
            (interval(0.10, 0.10, 0.10), true),
            (interval(0.13, 0.13, 0.13), true),
            (interval(0.14, 0.14, 0.14), false),
            (interval(0.14, 0.12, 0.15), true),
            (interval(0.05, 0.04, 0.05), false),
        ] {
            assert_eq!(
                (emulated.agrees(&simulated), simulated.agrees(&emulated)),
                (agrees, agrees),
                "{simulated:?}"
            );
        }

        let goodput = runs(&[[8e6, 4e6, 3e6], [8e6, 4e6, 4e6], [8e6, 2e6, 2e6], [8e6, 4e6, 3e6]]);
        let more = runs(&[[8e6, 4e6, 1e6], [8e6, 4e6, 1.2e6], [8e6, 2e6, 0.4e6], [8e6, 4e6, 1e6]]);
        let mut late = goodput.clone();
        late[0].slow = SlowRuns { repeated: 3, late: 1 };
        late[0].arms[1] = HarmRun::default();
        let delay = runs(&[[0.1, 0.2, 0.2], [0.1, 0.2, 0.25], [0.1, 0.4, 0.4], [0.1, 0.2, 0.2]]);
        let report = |world, [first, second]: [&Vec<HarmRuns>; 2]| {
            let cells = [first.clone(), delay.clone(), second.clone(), delay.clone()];
            HarmReport::new(&plan("").with_requests(), world, &cells)
        };
        let report = report("emu", [&goodput, &late]).with_simulated(&report("sim", [&goodput, &more]));
        let surge = |cell: usize| report.cells[cell].arm("surge").expect("an arm");
        let agrees = |cell: usize| surge(cell).simulated.expect("a simulated excess").agrees;
        assert_eq!([agrees(0), agrees(2)], [Some(true), Some(false)], "{report:#?}");
        assert_eq!(report.cells[0].arm("bbr1").expect("an arm").simulated, None);
        assert_eq!((report.cells[2].repeated, report.cells[2].late), (3, 1));
        // The late run is in no mean.
        let mean = |harm: Option<HarmInterval>| harm.expect("harm").mean;
        assert!((mean(surge(2).harm) - (0.5 + 0.75 + 0.625) / 3.0).abs() < 1e-9, "{report:#?}");

        let text = HarmTable { report: &report }.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let line = text.lines().find(|line| line.starts_with("0.25bdp  cubic")).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[2], words[3], words[4], words[6]), ("0.56", "0.62", "0.062", "0.062"), "{text}");
        assert_eq!(words.last(), Some(&"yes"), "{text}");
        for part in [
            "surge: in 3 of 4 cells, the emulator and the simulator agree",
            "repeated: 3 runs that the machine was too slow for",
            "not counted, because the machine was too slow: 1 of 1bdp cubic",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_table_begins_with_the_most_harm() {
        let report = report();
        let text = HarmTable { report: &report }.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
        let at = |part: &str| {
            lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{text}"))
        };
        assert!(at("surge instead of bbr1") < at("0.25bdp  cubic"), "{text}");
        assert!(at("0.25bdp  cubic") < at("0.25bdp  stream"), "{text}");
        let words: Vec<&str> = lines[at("0.25bdp  cubic")].split_whitespace().collect();
        assert_eq!(words[..7], ["0.25bdp", "cubic", "8.00", "3.50", "3.00", "0.56", "0.62"], "{text}");
        assert_eq!(
            (words[7], words[words.len() - 2], words[words.len() - 1]),
            ("0.062", "1.050", "2.5"),
            "{text}"
        );
        let words: Vec<&str> = lines[at("0.25bdp  stream")].split_whitespace().collect();
        assert_eq!(words[2..5], ["0.100", "0.250", "0.263"], "{text}");
        // cubic: excess 0.0625; stream: excess 0.025.
        let counts = at("surge: in 0 of 4 cells");
        assert_eq!(
            lines[counts + 1..counts + 3],
            ["  cubic: 0 of 2; upper end above 0.1 in 2", "  stream: 0 of 2; upper end above 0.1 in 0"],
            "{text}"
        );
        assert_eq!(
            (at("FAIL  1bdp  cubic"), lines.len() - 1),
            (lines.len() - 3, at("4 of 5 bounds met")),
            "{text}"
        );
    }
}
