//! Text tables of the results of a race: one table per arm, with one line per cell.

use std::fmt;

use super::{ArmReport, Cell, CellReport, IntervalKind, RaceReport, TimesReport};

/// Text tables of the results of a race, at most 100 columns wide if the labels of the cells are short. Each
/// compared arm has one table, in which the cell with the lowest ratio comes first.
#[derive(Clone, Copy, Debug)]
pub struct RaceTable<'a> {
    /// Results that the tables contain.
    pub report: &'a RaceReport,
}

/// A line of a table: the cell, the results of the arm `against`, and the results of the compared arm.
type Line<'a> = (&'a CellReport, &'a ArmReport, &'a ArmReport);

impl fmt::Display for RaceTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report } = self;
        let RaceReport { race, world, against, .. } = report;
        writeln!(
            f,
            "race {race}, world {world}; times in seconds: mean and p95 from the SYN to the last byte,\n\
             req: mean from the request to the last byte"
        )?;
        let names = report.cells.first().into_iter().flat_map(|cell| &cell.arms).map(|arm| &arm.arm);
        for name in names.filter(|name| *name != against) {
            writeln!(f, "\n{name} compared with {against}; ratio: time of {against} / time of {name}\n")?;
            self.table(f, name)?;
        }
        self.notes(f)?;
        self.bounds(f)
    }
}

impl RaceTable<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let RaceReport { cells, against, .. } = self.report;
        let mut lines: Vec<Line<'_>> = cells
            .iter()
            .filter_map(|cell| {
                let [base, arm] = [cell.arm(against)?, cell.arm(name)?];
                (base.runs > 0 && arm.runs > 0).then_some((cell, base, arm))
            })
            .collect();
        // In a cell without a ratio, some downloads did not complete, which is worse than any ratio.
        let low = |(_, _, arm): &Line<'_>| arm.ratio.map_or(f64::NEG_INFINITY, |ratio| ratio.low);
        lines.sort_by(|a, b| low(a).total_cmp(&low(b)));
        let labels: Vec<String> = lines.iter().map(|(cell, ..)| Cell::short_label(&cell.cell)).collect();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max(4);
        writeln!(
            f,
            "{:width$}  {:>12}  {against:>17}  {name:>17}  {:>5} {:^10} {:>5}",
            "", "floors", "", "", "sent/"
        )?;
        writeln!(
            f,
            "{:width$}  {:>5} {:>6}  {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5}  {:>5} {:^10} {:>5}",
            "cell", "link", "window", "mean", "p95", "req", "mean", "p95", "req", "ratio", "interval", "need"
        )?;
        for (label, (cell, base, arm)) in labels.iter().zip(&lines) {
            let [base_mean, base_p95, base_req] = times(base);
            let [mean, p95, req] = times(arm);
            let (link, window) = (seconds(cell.link_floor_s), seconds(cell.window_floor_s));
            let ratio = arm.ratio.map_or("-".into(), |ratio| format!("{:.2}", ratio.ratio));
            let interval =
                arm.ratio.map_or("-".into(), |ratio| format!("{:.2}..{:.2}", ratio.low, ratio.high));
            let sent = arm.sent_per_needed.map_or("-".into(), |sent| format!("{sent:.3}"));
            writeln!(
                f,
                "{label:width$}  {link:>5} {window:>6}  {base_mean:>5} {base_p95:>5} {base_req:>5}  {mean:>5} {p95:>5} \
                 {req:>5}  {ratio:>5} {interval:^10} {sent:>5}"
            )?;
        }
        Ok(())
    }

    /// Writes notes on the kind of the intervals, on incomplete downloads, and on repeated downloads.
    fn notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arms = || self.report.cells.iter().flat_map(|cell| cell.arms.iter().map(move |arm| (cell, arm)));
        let has = |kind| arms().any(|(_, arm)| arm.ratio.is_some_and(|ratio| ratio.interval == kind));
        writeln!(f)?;
        if has(IntervalKind::Confidence95) {
            writeln!(
                f,
                "interval: 95 % confidence interval (BCa bootstrap over the pairs) where the path is random"
            )?;
        }
        if has(IntervalKind::Range) {
            writeln!(f, "interval: smallest to largest ratio of the pairs where the path is not random")?;
        }
        for (cell, arm) in arms().filter(|(_, arm)| arm.unfinished > 0) {
            let ArmReport { arm, runs, unfinished, .. } = arm;
            writeln!(f, "{}: {unfinished} of {runs} downloads of {arm} did not complete", cell.cell)?;
        }
        for (cell, arm) in arms().filter(|(_, arm)| arm.late > 0) {
            let made = arm.runs + arm.late;
            let ArmReport { arm, late, .. } = arm;
            writeln!(
                f,
                "{}: {late} of {made} downloads of {arm} are not counted, because the machine was \
                         too slow",
                cell.cell
            )?;
        }
        let repeated: u64 = arms().map(|(_, arm)| arm.repeated).sum();
        if repeated > 0 {
            let made: u64 = arms().map(|(_, arm)| arm.runs + arm.late).sum();
            writeln!(
                f,
                "repeated: {repeated} attempts that the machine was too slow for, in {made} \
                         downloads in total"
            )?;
        }
        Ok(())
    }

    /// Writes one line per bound; writes nothing if the race has no bounds.
    fn bounds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = &self.report.bounds;
        if bounds.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        for bound in bounds {
            let verdict = if bound.pass { "pass" } else { "FAIL" };
            let low = bound.low.map_or("none".into(), |low| format!("{low:.3}"));
            let label = Cell::short_label(&bound.cell);
            let min = (bound.min * 1e3).round() / 1e3;
            writeln!(f, "{verdict}  {label}  {}: lower end {low}, expected >= {min}", bound.arm)?;
        }
        writeln!(f, "\n{} of {} bounds met", bounds.len() - self.report.failed(), bounds.len())
    }
}

/// Formats the mean and the 95th percentile of the times of an arm from the SYN, and the mean from the request.
fn times(arm: &ArmReport) -> [String; 3] {
    let text = |time: Option<f64>| time.map_or("-".into(), seconds);
    let from_syn = |part: fn(&TimesReport) -> f64| text(arm.from_syn.as_ref().map(part));
    [
        from_syn(|times| times.mean_s),
        from_syn(|times| times.p95_s),
        text(arm.from_request.map(|times| times.mean_s)),
    ]
}

/// Formats a time in at most five characters, if it is below 100 000 s.
fn seconds(seconds: f64) -> String {
    match seconds {
        ..9.9995 => format!("{seconds:.3}"),
        ..99.995 => format!("{seconds:.2}"),
        _ => format!("{seconds:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::{BoundReport, RatioReport, SCHEMA};

    fn arm(name: &str, mean_s: f64, low: Option<f64>, unfinished: u64) -> ArmReport {
        let times = TimesReport { mean_s, median_s: mean_s, p95_s: 2.0 * mean_s, min_s: mean_s, max_s: 3.0 };
        let interval = if mean_s < 1.0 { IntervalKind::Confidence95 } else { IntervalKind::Range };
        ArmReport {
            arm: name.into(),
            runs: 60,
            unfinished,
            repeated: 0,
            late: 0,
            from_syn: Some(times),
            from_request: Some(TimesReport { mean_s: mean_s - 0.2, ..times }),
            sent_per_needed: Some(1.0),
            ratio: low.map(|low| RatioReport {
                ratio: low + 0.05,
                low,
                high: low + 0.1,
                interval,
                pairs: 60,
            }),
        }
    }

    fn report() -> RaceReport {
        let cell = |label: &str, mean_s: f64, low: f64| CellReport {
            cell: label.into(),
            rate_bps: 100_000_000,
            rtt_ms: 200.0,
            loss: 0.01,
            size_bytes: 640_000,
            link_floor_s: 0.453,
            window_floor_s: 0.8,
            ideal_s: 0.85,
            arms: vec![
                arm("cubic", 101.0, Some(0.1), 2),
                arm("bbr1", 1.2 * mean_s, None, 0),
                arm("bbr1+iw", mean_s, Some(low), 0),
            ],
        };
        let mut none = cell("rate=1mbit rtt=1ms bytes=60kB", 0.5, 1.0);
        none.arms[0].runs = 0;
        RaceReport {
            schema: SCHEMA.into(),
            race: "quick".into(),
            world: "sim".into(),
            against: "bbr1".into(),
            interrupted: false,
            cells: vec![cell("rate=100mbit rtt=200ms loss=1% bytes=640kB", 0.5, 1.25), none],
            bounds: vec![
                BoundReport {
                    cell: "a".into(),
                    arm: "bbr1+iw".into(),
                    low: Some(1.25),
                    min: 1.2,
                    pass: true,
                },
                BoundReport { cell: "b".into(), arm: "bbr1+iw".into(), low: None, min: 1.2, pass: false },
            ],
        }
    }

    #[test]
    fn a_table_has_a_line_per_cell_and_the_worst_first() {
        let report = report();
        let text = RaceTable { report: &report }.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
        let with = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        let table = |name: &str| {
            let begin = lines.iter().position(|line| line.starts_with(&format!("{name} compared with bbr1")));
            lines[begin.expect(name) + 4..].iter().take_while(|line| !line.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(with("compared with"), 2, "{text}");
        // CUBIC ran in only one of the cells.
        let [cubic] = table("cubic")[..] else { panic!("{text}") };
        let words: Vec<&str> = cubic.split_whitespace().collect();
        assert_eq!(words[4..6], ["0.453", "0.800"], "{text}");
        assert_eq!(
            words[6..],
            ["0.600", "1.200", "0.400", "101", "202", "101", "0.15", "0.10..0.20", "1.000"],
            "{text}"
        );
        let [worst, best] = table("bbr1+iw")[..] else { panic!("{text}") };
        assert!(
            worst.starts_with("1mbit 1ms 60kB ") && best.starts_with("100mbit 200ms 1% 640kB "),
            "{text}"
        );
        assert!(best.contains(" 0.500 1.000 0.300   1.30 1.25..1.35 1.000"), "{text}");
        assert_eq!((with("95 % confidence"), with("smallest to largest")), (1, 1), "{text}");
        assert_eq!(with("2 of 60 downloads of cubic did not complete"), 1, "{text}");
        assert_eq!(with(" late"), 0, "{text}");
        assert_eq!(
            (with("pass  a  bbr1+iw: lower end 1.250, expected >= 1.2"), with("FAIL  b")),
            (1, 1),
            "{text}"
        );
        assert!(text.ends_with("1 of 2 bounds met\n"), "{text}");
    }

    #[test]
    fn repetitions_and_late_downloads_are_counted() {
        let mut report = report();
        let arm = &mut report.cells[0].arms[2];
        (arm.runs, arm.repeated, arm.late) = (58, 7, 2);
        report.cells[1].arms[1].repeated = 1;
        let text = RaceTable { report: &report }.to_string();
        let line = "rate=100mbit rtt=200ms loss=1% bytes=640kB: 2 of 60 downloads of bbr1+iw are not counted, \
             because the machine was too slow";
        assert!(text.lines().any(|found| found == line), "{text}");
        // There are two cells with three arms and 60 downloads per arm, but CUBIC runs in only one of the
        // cells.
        let line = "repeated: 8 attempts that the machine was too slow for, in 300 downloads in total";
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}
