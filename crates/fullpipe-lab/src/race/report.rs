//! Results of a race: one JSON document with the times of each arm in each cell, and ratios with intervals.

use fullpipe_units::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::floors::{floors, ideal, segments};
use super::{Cell, Pair, RacePlan};
use crate::arm::Arm;
use crate::bootstrap::{MeanRatio, ratio_of_means};
use crate::experiment::RatioBound;
use crate::scenario::Scenario;
use crate::stats::{mean, median, nearest_rank};

/// Name and version of the JSON document's format.
pub const SCHEMA: &str = "fullpipe.race/1";

/// Results of a race. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RaceReport {
    /// Name and version of this JSON document's format.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Name of the race.
    pub race: String,
    /// Where the race ran: `sim` (simulator) or `emu` (kernel TCP on an emulated path).
    pub world: String,
    /// Arm with which the other arms are compared.
    pub against: String,
    /// Whether the race was ended early. A race that was ended early lacks some pairs.
    pub interrupted: bool,
    /// Results of each cell, in the order of the file.
    pub cells: Vec<CellReport>,
    /// Comparison of each bound with each cell to which it applies.
    pub bounds: Vec<BoundReport>,
}

/// Results of one cell: one download on one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellReport {
    /// Label of the cell.
    pub cell: String,
    /// Rate of the link in the data direction, in bit/s.
    pub rate_bps: u64,
    /// Two-way propagation delay, in milliseconds.
    pub rtt_ms: f64,
    /// Probability of random packet loss in the data direction.
    pub loss: f64,
    /// Size of the download, in bytes.
    pub size_bytes: u64,
    /// Minimum time from the SYN that the link allows, in seconds: two round trips, for the handshake and the
    /// request, plus the transmission time of the download at the link rate.
    pub link_floor_s: f64,
    /// Minimum time from the SYN that the receive window of a Linux client allows, in seconds. The window
    /// starts at 64 KiB and grows by at most two bytes per received byte, so the amount of data per round
    /// trip at most triples.
    pub window_floor_s: f64,
    /// Mean time from the SYN, in seconds, of an ideal sender with the packet losses of the race. This sender keeps the
    /// link busy if the client's window admits data, and sends a lost segment again, once, when its ACK is due.
    pub ideal_s: f64,
    /// Results of each arm, in the order of the race.
    pub arms: Vec<ArmReport>,
}

/// Results of one arm in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmReport {
    /// Name of the arm.
    pub arm: String,
    /// Number of completed and incomplete downloads of the arm, excluding those that `late` counts.
    pub runs: u64,
    /// Number of downloads that did not complete within the duration of the experiment; their times are not
    /// included.
    pub unfinished: u64,
    /// Number of times that a download was repeated because the machine did not keep up with the emulated
    /// path.
    pub repeated: u64,
    /// Number of downloads that are not included because the machine failed to keep up even in the last
    /// repetition.
    pub late: u64,
    /// Times from the SYN to the last byte; null if no download completed.
    pub from_syn: Option<TimesReport>,
    /// Times from the request to the last byte; null if no download completed.
    pub from_request: Option<TimesReport>,
    /// Number of data segments sent divided by the number of segments that the download needs; null if there
    /// is no run.
    pub sent_per_needed: Option<f64>,
    /// Comparison with the arm `against`; null for that arm itself, and if fewer than two pairs are complete.
    pub ratio: Option<RatioReport>,
}

/// Distribution of the times of one arm, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimesReport {
    /// Mean time, in seconds.
    pub mean_s: f64,
    /// Median time, in seconds.
    pub median_s: f64,
    /// 95th percentile of the times, in seconds.
    pub p95_s: f64,
    /// Minimum time, in seconds.
    pub min_s: f64,
    /// Maximum time, in seconds.
    pub max_s: f64,
}

/// Ratio of two mean times from the SYN: that of the arm `against` divided by that of this arm; above 1 if
/// this arm is faster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioReport {
    /// Ratio of the means over the pairs in which both downloads completed.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Kind of the interval.
    pub interval: IntervalKind,
    /// Number of pairs in the comparison.
    pub pairs: u64,
}

/// Kind of the interval of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalKind {
    /// Confidence interval of 95 % for the ratio of the means (BCa bootstrap over the pairs).
    Confidence95,
    /// Range from the smallest to the largest ratio of a pair, for a cell without random loss.
    Range,
}

/// Comparison of a bound with one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundReport {
    /// Label of the cell.
    pub cell: String,
    /// Arm whose ratio is bounded.
    pub arm: String,
    /// Lower end of the interval of the arm's ratio; null if the arm has no ratio in this cell.
    pub low: Option<f64>,
    /// Minimum for the lower end of the interval: `min` of the bound, or the smaller share of the ratio that the
    /// floors allow.
    pub min: f64,
    /// Whether the lower end reaches the bound.
    pub pass: bool,
}

impl RaceReport {
    /// Creates the document of the race `plan` in `world`. `pairs` contains the pairs of each cell, in the
    /// order of the plan. If the race was ended early, some pairs are missing.
    pub fn new(plan: &RacePlan, world: &str, pairs: &[Vec<Pair>]) -> Self {
        let cells = || plan.cells().iter().zip(pairs);
        let reports: Vec<CellReport> = cells().map(|(cell, pairs)| cell_report(plan, cell, pairs)).collect();
        let compared = |bound: &RatioBound, number: usize| {
            let cell = reports.get(number)?;
            let arm = bound.arm.to_string();
            let low = cell.arm(&arm).and_then(|report| report.ratio).map(|ratio| ratio.low);
            let of_floor = bound.floor_share.zip(cell.allowed_ratio(&bound.against.to_string()));
            let min = of_floor.map_or(bound.min, |(share, allowed)| bound.min.min(share * allowed));
            let pass = low.is_some_and(|low| low >= min);
            Some(BoundReport { cell: cell.cell.clone(), arm, low, min, pass })
        };
        let bounds = plan.bounds().iter();
        let bounds =
            bounds.flat_map(|bound| bound.points.iter().filter_map(move |number| compared(bound, *number)));
        let bounds = bounds.collect();
        Self {
            schema: SCHEMA.into(),
            race: plan.name().into(),
            world: world.into(),
            against: plan.against().to_string(),
            interrupted: cells().any(|(cell, pairs)| pairs.len() < cell.seeds.len()),
            cells: reports,
            bounds,
        }
    }

    /// Returns the number of comparisons in which the lower end of an interval is below its bound.
    pub fn failed(&self) -> usize {
        self.bounds.iter().filter(|bound| !bound.pass).count()
    }
}

impl CellReport {
    /// Returns the results of the arm with this name.
    pub fn arm(&self, name: &str) -> Option<&ArmReport> {
        self.arms.iter().find(|arm| arm.arm == name)
    }

    /// Returns the ratio of the fastest possible download: the mean time of the arm `against`, divided by the larger of
    /// the two floors.
    fn allowed_ratio(&self, against: &str) -> Option<f64> {
        let mean_s = self.arm(against)?.from_syn?.mean_s;
        Some(mean_s / self.link_floor_s.max(self.window_floor_s))
    }
}

fn cell_report(plan: &RacePlan, cell: &Cell, pairs: &[Pair]) -> CellReport {
    let path = &cell.point.scenario.path;
    let (link, window) = floors(&cell.point.scenario, cell.size);
    CellReport {
        cell: cell.point.label.clone(),
        rate_bps: path.forward.rate.as_bps(),
        rtt_ms: cell.point.scenario.longest_rtt().as_millis_f64(),
        loss: path.forward.loss.as_f64(),
        size_bytes: cell.size.get(),
        link_floor_s: link.as_secs_f64(),
        window_floor_s: window.as_secs_f64(),
        ideal_s: ideal_mean(cell),
        arms: plan.arms().iter().map(|arm| arm_report(plan, cell, *arm, pairs)).collect(),
    }
}

/// Returns the mean time of the ideal sender over the seeds of the cell, which are one if nothing is lost at random.
fn ideal_mean(cell: &Cell) -> f64 {
    let scenario = &cell.point.scenario;
    let different = if scenario.path.forward.loss.is_zero() { 1 } else { usize::MAX };
    let time = |seed: &u64| ideal(&Scenario { seed: *seed, ..scenario.clone() }, cell.size).as_secs_f64();
    mean(cell.seeds.iter().take(different).map(time)).unwrap_or_default()
}

fn arm_report(plan: &RacePlan, cell: &Cell, arm: Arm, pairs: &[Pair]) -> ArmReport {
    let (name, against) = (arm.to_string(), plan.against().to_string());
    let made = || pairs.iter().filter_map(|pair| pair.runs.get(&name));
    let runs: Vec<_> = made().filter(|run| !run.late).collect();
    let from_syn: Vec<f64> = runs.iter().filter_map(|run| run.from_syn_ns).map(seconds).collect();
    let from_request = runs.iter().filter_map(|run| run.from_request_ns).map(seconds).collect();
    let sent: u64 = runs.iter().map(|run| run.sent_segments).sum();
    let needed = segments(&cell.point.scenario, cell.size) * runs.len() as u64;
    let time = |pair: &Pair, arm: &str| pair.runs.get(arm)?.from_syn_ns.map(seconds);
    let paired: Vec<(f64, f64)> =
        pairs.iter().filter_map(|pair| Some((time(pair, &against)?, time(pair, &name)?))).collect();
    let ratio = if arm == plan.against() { None } else { ratio(cell, &paired) };
    ArmReport {
        runs: runs.len() as u64,
        unfinished: (runs.len() - from_syn.len()) as u64,
        repeated: made().map(|run| u64::from(run.repeated)).sum(),
        late: made().filter(|run| run.late).count() as u64,
        from_syn: TimesReport::of(from_syn),
        from_request: TimesReport::of(from_request),
        sent_per_needed: (needed > 0).then(|| sent as f64 / needed as f64),
        ratio,
        arm: name,
    }
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// Returns the ratio of the means of `pairs`; each pair contains the time of the arm `against` and the time
/// of the compared arm.
fn ratio(cell: &Cell, pairs: &[(f64, f64)]) -> Option<RatioReport> {
    let count = pairs.len() as u64;
    if cell.random {
        let seed = cell.seeds.first().copied().unwrap_or_default();
        let MeanRatio { ratio, low, high } = MeanRatio::of(pairs, seed)?;
        return Some(RatioReport { ratio, low, high, interval: IntervalKind::Confidence95, pairs: count });
    }
    // Without random loss, the pairs are not a random sample.
    let ratios = || pairs.iter().map(|(against, time)| against / time);
    Some(RatioReport {
        ratio: ratio_of_means(pairs)?,
        low: ratios().fold(f64::INFINITY, f64::min),
        high: ratios().fold(f64::NEG_INFINITY, f64::max),
        interval: IntervalKind::Range,
        pairs: count,
    })
}

impl TimesReport {
    /// Returns the distribution of `times`; `None` if there are none.
    fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        Some(Self {
            mean_s: mean(times.iter().copied())?,
            p95_s: nearest_rank(&times, 95)?,
            min_s: *times.first()?,
            max_s: *times.last()?,
            median_s: median(times)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{ArmRun, SIM};
    use super::*;
    use crate::experiment::Experiment;

    /// Returns a race with a cell without loss and a cell with loss.
    fn plan(more: &str) -> RacePlan {
        let text = format!(
            "name = 'small'\nduration = '60s'\nrepeat = 4\n\
             [path]\nrate = '100mbit'\nrtt = '50ms'\nloss = ['0%', '1%']\n\
             [[flow]]\ncc = 'bbr1'\nbytes = '650kB'\napp = {{ request = '200B' }}\n{more}"
        );
        let experiment = Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let [bbr1, iw] = ["bbr1", "bbr1+iw"].map(|arm| arm.parse::<Arm>().expect("an arm"));
        RacePlan::new(&experiment, &[bbr1, iw], bbr1).expect("a plan")
    }

    fn run(ms: Option<u64>, sent: u64) -> ArmRun {
        let ns = |ms: u64| ms * 1_000_000;
        ArmRun {
            from_syn_ns: ms.map(ns),
            from_request_ns: ms.map(|ms| ns(ms - 50)),
            sent_segments: sent,
            ..ArmRun::default()
        }
    }

    /// Returns the pairs of a cell in which `bbr1` and `bbr1+iw` have these times in milliseconds.
    fn pairs(cell: &Cell, times: &[(u64, Option<u64>)]) -> Vec<Pair> {
        let pair = |(seed, (bbr1, iw)): (&u64, &(u64, Option<u64>))| Pair {
            cell: cell.point.label.clone(),
            seed: *seed,
            scenario: String::new(),
            world: SIM.into(),
            runs: BTreeMap::from([("bbr1".into(), run(Some(*bbr1), 449)), ("bbr1+iw".into(), run(*iw, 898))]),
        };
        cell.seeds.iter().zip(times).map(pair).collect()
    }

    #[test]
    fn means_ratios_and_overheads_are_those_of_the_runs() {
        let plan = plan("");
        let [clean, lossy] = plan.cells() else { panic!("two cells") };
        let made = [
            pairs(clean, &[(400, Some(300)), (420, Some(300)), (380, Some(300)), (400, Some(320))]),
            pairs(lossy, &[(500, Some(400)), (700, None), (600, Some(400)), (600, Some(560))]),
        ];
        let report = RaceReport::new(&plan, "sim", &made);
        assert_eq!((report.interrupted, report.bounds.len(), report.failed()), (false, 0, 0));
        let arm = |cell: usize, name: &str| report.cells[cell].arm(name).expect("an arm");
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");

        let bbr1 = arm(0, "bbr1");
        assert_eq!((bbr1.runs, bbr1.unfinished, bbr1.ratio), (4, 0, None));
        let times = bbr1.from_syn.expect("times");
        near(times.mean_s, 0.4);
        near(times.median_s, 0.4);
        near(times.p95_s, 0.42);
        near(times.min_s, 0.38);
        near(times.max_s, 0.42);
        near(bbr1.from_request.expect("times").mean_s, 0.35);
        near(bbr1.sent_per_needed.expect("runs"), 1.0);

        let ratio = arm(0, "bbr1+iw").ratio.expect("a ratio");
        assert_eq!((ratio.interval, ratio.pairs), (IntervalKind::Range, 4));
        near(ratio.ratio, 1_600.0 / 1_220.0);
        near(ratio.low, 400.0 / 320.0);
        near(ratio.high, 420.0 / 300.0);

        let iw = arm(1, "bbr1+iw");
        let ratio = iw.ratio.expect("a ratio");
        assert_eq!((iw.runs, iw.unfinished), (4, 1));
        assert_eq!((ratio.interval, ratio.pairs), (IntervalKind::Confidence95, 3));
        near(ratio.ratio, 1_700.0 / 1_360.0);
        assert!(ratio.low < ratio.ratio && ratio.ratio < ratio.high, "{ratio:?}");
        near(iw.sent_per_needed.expect("runs"), 2.0);

        // A late download has no time, and is counted neither as a run nor as incomplete.
        let mut late = made.clone();
        let run = late[0][3].runs.get_mut("bbr1+iw").expect("a run");
        *run = ArmRun { repeated: 2, late: true, sent_segments: 5_000, ..ArmRun::default() };
        late[0][1].runs.get_mut("bbr1+iw").expect("a run").repeated = 1;
        let late = RaceReport::new(&plan, "emu", &late);
        let iw = late.cells[0].arm("bbr1+iw").expect("an arm");
        assert_eq!((iw.runs, iw.unfinished, iw.repeated, iw.late), (3, 0, 3, 1));
        assert_eq!(iw.ratio.map(|ratio| ratio.pairs), Some(3));
        near(iw.from_syn.expect("times").mean_s, 0.3);
        near(iw.sent_per_needed.expect("runs"), 2.0);
        assert!(!late.interrupted);

        let missing = [made[0].clone(), made[1][..3].to_vec()];
        assert!(RaceReport::new(&plan, "sim", &missing).interrupted);
        let document = serde_json::to_value(&report).expect("JSON");
        assert_eq!(document["schema"], SCHEMA);
        assert_eq!(document["cells"][1]["arms"][1]["ratio"]["interval"], "confidence95");
        assert_eq!(serde_json::from_value::<RaceReport>(document).expect("readable"), report);
    }

    #[test]
    fn a_bound_is_compared_with_the_lower_end() {
        let ratio = |min: f64| {
            format!("[[ratio]]\nwhere = {{ loss = '0%' }}\narm = 'bbr1+iw'\nagainst = 'bbr1'\nmin = {min}\n")
        };
        let plan = plan(&(ratio(1.2) + &ratio(1.3) + "[[ratio]]\narm = 'bbr3'\nagainst = 'bbr1'\nmin = 9\n"));
        let times = [(400, Some(320)), (420, Some(300))];
        let made = plan.cells().iter().map(|cell| pairs(cell, &times)).collect::<Vec<_>>();
        let report = RaceReport::new(&plan, "sim", &made);
        let found: Vec<_> =
            report.bounds.iter().map(|bound| (bound.cell.as_str(), bound.min, bound.pass)).collect();
        assert_eq!(found, [("loss=0%", 1.2, true), ("loss=0%", 1.3, false)], "bbr3 is not in the race");
        assert_eq!(report.failed(), 1);
    }

    /// The window floor of the download is 0.2 s, so no sender is more than 2.05 times as fast as `bbr1` in 0.41 s.
    #[test]
    fn a_bound_is_at_most_a_share_of_the_floor() {
        let ratio = |min: f64, share: f64| {
            format!(
                "[[ratio]]\nwhere = {{ loss = '0%' }}\narm = 'bbr1+iw'\nagainst = 'bbr1'\nmin = {min}\n\
                 floor_share = {share}\n"
            )
        };
        let plan = plan(&(ratio(1.2, 0.95) + &ratio(1.3, 0.6) + &ratio(1.3, 0.95)));
        let times = [(400, Some(320)), (420, Some(300))];
        let made = plan.cells().iter().map(|cell| pairs(cell, &times)).collect::<Vec<_>>();
        let report = RaceReport::new(&plan, "sim", &made);
        let found: Vec<_> =
            report.bounds.iter().map(|bound| ((bound.min * 1e3).round(), bound.pass)).collect();
        assert_eq!(found, [(1_200.0, true), (1_230.0, true), (1_300.0, false)]);
    }
}
