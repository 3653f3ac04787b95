//! HTML page of a race: the times and ratios of each path for each download size.

use askama::Template;
use fullpipe_lab::race::{ArmReport, BoundReport, CellReport, IntervalKind, RaceReport, RatioReport};
use fullpipe_units::Bytes;
use serde::Serialize;

use super::{Frame, Provenance};

/// Renders the results of a race as a page: a table for each arm that is compared, the bounds, and a chart of
/// each path.
pub fn render_race(report: &RaceReport, made: Provenance<'_>) -> String {
    let (all, failed) = (report.bounds.len(), report.failed());
    let arms = || report.cells.iter().flat_map(|cell| &cell.arms);
    let page = RacePage {
        frame: Frame { races: charts(report), ..Frame::new(made, Vec::new()) },
        verdict: match (all, failed) {
            (0, _) => None,
            (_, 0) => Some(format!("{all} of {all} bounds met")),
            _ => Some(format!("{failed} of {all} bounds not met")),
        },
        failed: failed > 0,
        tables: tables(report),
        has_range: arms().any(|arm| arm.ratio.is_some_and(|ratio| ratio.interval == IntervalKind::Range)),
        unfinished: arms().map(|arm| arm.unfinished).sum(),
        repeated: arms().map(|arm| arm.repeated).sum(),
        late: arms().map(|arm| arm.late).sum(),
        bounds: report.bounds.iter().map(bound).collect(),
        report,
    };
    // Writing to a string does not fail.
    page.render().unwrap_or_default()
}

/// Downloads of different sizes on one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RaceChart {
    /// Label of the path, which is the label of its cells without the size.
    pub(super) label: String,
    against: String,
    arms: Vec<ArmChart>,
    /// For each size in bytes, the time of the ideal sender in seconds.
    ideal: Vec<(u64, f64)>,
}

/// Downloads of one arm on one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ArmChart {
    arm: String,
    points: Vec<ChartPoint>,
}

/// Downloads of one size by one arm. Times are in seconds, from the SYN.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChartPoint {
    size_bytes: u64,
    mean_s: f64,
    min_s: f64,
    p95_s: f64,
    ratio: Option<RatioReport>,
}

/// Returns one chart for each path, in the order of the race.
fn charts(report: &RaceReport) -> Vec<RaceChart> {
    let mut charts: Vec<RaceChart> = Vec::new();
    for cell in &report.cells {
        let label = path_label(report, cell);
        let known = charts.iter().position(|chart| chart.label == label);
        let number = known.unwrap_or_else(|| {
            let arm = |arm: &ArmReport| ArmChart { arm: arm.arm.clone(), points: Vec::new() };
            charts.push(RaceChart {
                label,
                against: report.against.clone(),
                arms: cell.arms.iter().map(arm).collect(),
                ideal: Vec::new(),
            });
            charts.len() - 1
        });
        let chart = &mut charts[number];
        chart.ideal.push((cell.size_bytes, cell.ideal_s));
        for (chart, arm) in chart.arms.iter_mut().zip(&cell.arms) {
            chart.points.extend(arm.from_syn.map(|times| ChartPoint {
                size_bytes: cell.size_bytes,
                mean_s: times.mean_s,
                min_s: times.min_s,
                p95_s: times.p95_s,
                ratio: arm.ratio,
            }));
        }
    }
    for chart in &mut charts {
        chart.ideal.sort_by_key(|(size, _)| *size);
        chart.arms.iter_mut().for_each(|arm| arm.points.sort_by_key(|point| point.size_bytes));
    }
    charts
}

/// Returns the label of a cell without the size of its download. If nothing else is left, returns the name of
/// the race.
fn path_label(report: &RaceReport, cell: &CellReport) -> String {
    let is_size = |field: &&str| {
        let value = field.split_once('=').map_or(*field, |(_, value)| value);
        value.parse::<Bytes>().is_ok_and(|size| size.get() == cell.size_bytes)
    };
    let mut fields: Vec<&str> = cell.cell.split(' ').collect();
    if let Some(size) = fields.iter().rposition(is_size) {
        fields.remove(size);
    }
    if fields.is_empty() { report.race.clone() } else { fields.join(" ") }
}

#[derive(Template)]
#[template(path = "race.html")]
struct RacePage<'a> {
    frame: Frame<'a>,
    verdict: Option<String>,
    failed: bool,
    tables: Vec<TableView<'a>>,
    /// Whether some intervals are ranges instead of confidence intervals, because their paths have no
    /// randomness.
    has_range: bool,
    unfinished: u64,
    repeated: u64,
    late: u64,
    bounds: Vec<BoundView<'a>>,
    report: &'a RaceReport,
}

/// Comparison of a bound with a cell.
struct BoundView<'a> {
    cell: &'a str,
    arm: &'a str,
    low: String,
    min: String,
    pass: bool,
}

/// Comparison of one arm with the arm `against`.
struct TableView<'a> {
    arm: &'a str,
    rows: Vec<RowView<'a>>,
}

/// One cell of a comparison. Times are in seconds.
struct RowView<'a> {
    cell: &'a str,
    link: String,
    window: String,
    ideal: String,
    /// Mean and 95th percentile of the times of the arm `against`.
    base: [String; 2],
    /// Mean and 95th percentile of the times of the compared arm.
    times: [String; 2],
    /// Mean times from the request, of the arm `against` and of the compared arm.
    from_request: [String; 2],
    ratio: String,
    interval: String,
    sent: String,
}

fn tables(report: &RaceReport) -> Vec<TableView<'_>> {
    let names = report.cells.first().into_iter().flat_map(|cell| &cell.arms).map(|arm| arm.arm.as_str());
    let compared = names.filter(|name| *name != report.against);
    compared
        .map(|name| TableView {
            arm: name,
            rows: report.cells.iter().filter_map(|cell| row(cell, &report.against, name)).collect(),
        })
        .collect()
}

/// Returns the row of a cell; `None` if one of the arms made no download.
fn row<'a>(cell: &'a CellReport, against: &str, name: &str) -> Option<RowView<'a>> {
    let made = |name: &str| cell.arm(name).filter(|arm| arm.runs > 0);
    let (base, arm) = (made(against)?, made(name)?);
    let none = || "-".to_owned();
    let text = |time: Option<f64>| time.map_or_else(none, seconds);
    let times = |arm: &ArmReport| {
        let (mean, p95) = arm.from_syn.map(|times| (times.mean_s, times.p95_s)).unzip();
        [text(mean), text(p95)]
    };
    Some(RowView {
        cell: &cell.cell,
        link: seconds(cell.link_floor_s),
        window: seconds(cell.window_floor_s),
        ideal: seconds(cell.ideal_s),
        base: times(base),
        times: times(arm),
        from_request: [base, arm].map(|arm| text(arm.from_request.map(|times| times.mean_s))),
        ratio: arm.ratio.map_or_else(none, |ratio| format!("{:.2}", ratio.ratio)),
        interval: arm.ratio.map_or_else(none, |ratio| format!("{:.2} to {:.2}", ratio.low, ratio.high)),
        sent: arm.sent_per_needed.map_or_else(none, |sent| format!("{sent:.3}")),
    })
}

fn bound(bound: &BoundReport) -> BoundView<'_> {
    BoundView {
        cell: &bound.cell,
        arm: &bound.arm,
        low: bound.low.map_or_else(|| "none".into(), |low| format!("{low:.3}")),
        min: bound.min.to_string(),
        pass: bound.pass,
    }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_a_path_has_no_size() {
        let report = RaceReport {
            schema: String::new(),
            race: "quick".into(),
            world: "sim".into(),
            against: "bbr1".into(),
            interrupted: false,
            cells: Vec::new(),
            bounds: Vec::new(),
        };
        let label = |cell: &str, size_bytes: u64| {
            let cell = CellReport {
                cell: cell.into(),
                rate_bps: 1,
                rtt_ms: 1.0,
                loss: 0.0,
                size_bytes,
                link_floor_s: 0.0,
                window_floor_s: 0.0,
                ideal_s: 0.0,
                arms: Vec::new(),
            };
            path_label(&report, &cell)
        };
        assert_eq!(
            label("rate=20mbit rtt=100ms loss=1% bytes=8MB", 8_000_000),
            "rate=20mbit rtt=100ms loss=1%"
        );
        assert_eq!(label("20mbit 100ms 0% 60kB", 60_000), "20mbit 100ms 0%");
        assert_eq!(label("queue=60kB bytes=60kB", 60_000), "queue=60kB", "the last field");
        assert_eq!(label("bytes=60kB", 60_000), "quick");
        assert_eq!(label("a name", 60_000), "a name");
    }
}
