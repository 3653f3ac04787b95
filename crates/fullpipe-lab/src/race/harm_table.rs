//! Text tables of the results of a race that measures harm: one table per arm, with one line per cell.

use std::fmt;

use super::harm_report::{HarmArmReport, HarmCellReport, HarmInterval, HarmReport, VictimMetric};
use super::{Cell, EMU};

/// Largest mean and largest upper end of the excess with which an arm counts as no more harmful than
/// `against`.
const NO_MORE: (f64, f64) = (0.02, 0.05);
/// Largest upper end of the excess that an arm may have in any cell.
const MOST: f64 = 0.10;

/// Text tables of the results of a race that measures harm, at most 100 columns wide if the labels of the cells are
/// short. Each compared arm has one table, in which the cell with the highest upper end of the excess comes first. If the
/// race ran in the emulator, the table compares the excess with that in the simulator.
#[derive(Clone, Copy, Debug)]
pub struct HarmTable<'a> {
    /// Results that the tables contain.
    pub report: &'a HarmReport,
}

/// A line of a table: the cell, the results of the arm `against`, and the results of the compared arm.
type Line<'a> = (&'a HarmCellReport, &'a HarmArmReport, &'a HarmArmReport);

impl fmt::Display for HarmTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report } = self;
        let HarmReport { race, world, against, .. } = report;
        writeln!(
            f,
            "race {race}, world {world}; harm: share of the victim's performance that the victim loses"
        )?;
        if world != EMU {
            writeln!(
                f,
                "victims: goodput in Mbit/s (cubic, reno, bbr1), p99 delay (stream), mean download time (web) in s"
            )?;
        }
        let names = report.cells.first().into_iter().flat_map(|cell| &cell.arms).map(|arm| &arm.arm);
        for name in names.filter(|name| *name != against) {
            writeln!(f, "\n{name} instead of {against}; more: harm by {name} - harm by {against}\n")?;
            self.table(f, name)?;
        }
        writeln!(f, "\ninterval: 95 % confidence over the seeds (BCa bootstrap), paired by seed")?;
        if world == EMU {
            writeln!(f, "agree: the means differ by at most the sum of the half-widths of both intervals")?;
        }
        self.slow_runs(f)?;
        self.bounds(f)
    }
}

impl HarmTable<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let HarmReport { cells, against, .. } = self.report;
        let mut lines: Vec<Line<'_>> =
            cells.iter().filter_map(|cell| Some((cell, cell.arm(against)?, cell.arm(name)?))).collect();
        let high = |(_, _, arm): &Line<'_>| arm.excess.map_or(f64::INFINITY, |excess| excess.high);
        lines.sort_by(|a, b| high(b).total_cmp(&high(a)));
        let labels: Vec<String> = lines.iter().map(|(cell, ..)| Cell::short_label(&cell.cell)).collect();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max(4);
        match self.report.world == EMU {
            true => self.both_worlds(f, name, width, &labels, &lines)?,
            false => self.one_world(f, name, width, &labels, &lines)?,
        }
        let excess: Vec<HarmInterval> = lines.iter().filter_map(|(_, _, arm)| arm.excess).collect();
        let (mean, upper) = NO_MORE;
        let within = within(&excess);
        writeln!(
            f,
            "{}{name}: in {within} of {} cells, the excess harm is at most {mean} on average and {upper} at \
             the upper end",
            if self.report.world == EMU { "" } else { "\n" },
            lines.len()
        )?;
        self.counts(f, &lines)
    }

    /// Writes the number of cells within the limits for each victim; cells of a named `[[point]]` are counted separately.
    fn counts(&self, f: &mut fmt::Formatter<'_>, lines: &[Line<'_>]) -> fmt::Result {
        let group = |cell: &HarmCellReport| (cell.victim.clone(), cell.point.clone());
        let mut groups: Vec<(String, Option<String>)> = Vec::new();
        for cell in &self.report.cells {
            if !groups.contains(&group(cell)) {
                groups.push(group(cell));
            }
        }
        groups.sort_by_key(|(_, point)| point.is_some());
        for (victim, point) in &groups {
            let of_group = lines.iter().filter(|(cell, ..)| (&cell.victim, &cell.point) == (victim, point));
            let excess: Vec<HarmInterval> = of_group.filter_map(|(_, _, arm)| arm.excess).collect();
            let above = excess.iter().filter(|excess| excess.high > MOST).count();
            write!(f, "  {victim}")?;
            if let Some(point) = point {
                write!(f, ", {point}")?;
            }
            writeln!(f, ": {} of {}; upper end above {MOST} in {above}", within(&excess), excess.len())?;
        }
        Ok(())
    }

    /// Writes the lines with the metrics of the victim.
    fn one_world(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        width: usize,
        labels: &[String],
        lines: &[Line<'_>],
    ) -> fmt::Result {
        let against = &self.report.against;
        writeln!(
            f,
            "{:width$}  {:6}  {:^22}  {:^12}  {:^20}  {:>5}  {:>5}",
            "", "", "victim", "harm by", "", "sent/", "drops"
        )?;
        writeln!(
            f,
            "{:width$}  {:6}  {:>6}  {:>6.6}  {:>6.6}  {:>5.5}  {:>5.5}  {:>6}  {:^12}  {:>5}  {:>5}",
            "cell", "victim", "alone", against, name, against, name, "more", "interval", "need", "%"
        )?;
        for (label, (cell, base, arm)) in labels.iter().zip(lines) {
            let [alone, beside_base, beside] =
                [cell.alone, base.beside, arm.beside].map(|value| shown(cell.metric, value));
            let [base_harm, harm] = [base.harm, arm.harm].map(|harm| number(harm.map(|harm| harm.mean), 2));
            let interval = interval(arm.excess);
            writeln!(
                f,
                "{label:width$}  {:6}  {alone:>6}  {beside_base:>6}  {beside:>6}  {base_harm:>5}  {harm:>5}  {:>6}  {interval:^12}  {:>5}  {:>5}",
                cell.victim,
                number(arm.excess.map(|excess| excess.mean), 3),
                number(arm.sent_per_needed, 3),
                number(arm.dropped.map(|share| 100.0 * share), 1),
            )?;
        }
        Ok(())
    }

    /// Writes the lines that compare the excess in the emulator with that in the simulator.
    fn both_worlds(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        width: usize,
        labels: &[String],
        lines: &[Line<'_>],
    ) -> fmt::Result {
        let against = &self.report.against;
        writeln!(f, "{:width$}  {:6}  {:^12}  {:^22}  {:>15}", "", "", "harm by", "emulated", "simulated")?;
        writeln!(
            f,
            "{:width$}  {:6}  {:>5.5}  {:>5.5}  {:>6}  {:^14}  {:>6}  {:^14}  {:>5}",
            "cell", "victim", against, name, "more", "interval", "more", "interval", "agree"
        )?;
        for (label, (cell, base, arm)) in labels.iter().zip(lines) {
            let [base_harm, harm] = [base.harm, arm.harm].map(|harm| number(harm.map(|harm| harm.mean), 2));
            let simulated = arm.simulated.map(|simulated| simulated.excess);
            let [more, simulated_more] =
                [arm.excess, simulated].map(|excess| number(excess.map(|excess| excess.mean), 3));
            let [emulated, simulated] = [arm.excess, simulated].map(interval);
            let agrees = match arm.simulated.and_then(|simulated| simulated.agrees) {
                None => "-",
                Some(true) => "yes",
                Some(false) => "no",
            };
            writeln!(
                f,
                "{label:width$}  {:6}  {base_harm:>5}  {harm:>5}  {more:>6}  {emulated:^14}  {simulated_more:>6}  \
                 {simulated:^14}  {agrees:>5}",
                cell.victim,
            )?;
        }
        let agreeing = lines.iter().filter(|(_, _, arm)| {
            arm.simulated.and_then(|simulated| simulated.agrees).is_some_and(|agrees| agrees)
        });
        writeln!(
            f,
            "\n{name}: in {} of {} cells, the emulator and the simulator agree",
            agreeing.count(),
            lines.len()
        )
    }

    /// Writes how many runs the machine was too slow for; writes nothing if there are none.
    fn slow_runs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = &self.report.cells;
        let repeated: u64 = cells.iter().map(|cell| cell.repeated).sum();
        if repeated > 0 {
            writeln!(f, "repeated: {repeated} runs that the machine was too slow for")?;
        }
        for cell in cells.iter().filter(|cell| cell.late > 0) {
            let label = Cell::short_label(&cell.cell);
            let HarmCellReport { victim, late, .. } = cell;
            writeln!(f, "not counted, because the machine was too slow: {late} of {label} {victim}")?;
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
        for bound in bounds.iter().filter(|bound| !bound.pass) {
            let (label, high) = (Cell::short_label(&bound.cell), number(bound.high, 3));
            writeln!(
                f,
                "FAIL  {label}  {}  {}: upper end {high}, expected <= {}",
                bound.victim, bound.arm, bound.max
            )?;
        }
        let failed = self.report.failed();
        writeln!(
            f,
            "{}{} of {} bounds met",
            if failed > 0 { "\n" } else { "" },
            bounds.len() - failed,
            bounds.len()
        )
    }
}

/// Returns the number of cells with at most the mean and the upper end of [`NO_MORE`].
fn within(excess: &[HarmInterval]) -> usize {
    let (mean, upper) = NO_MORE;
    excess.iter().filter(|excess| excess.mean <= mean && excess.high <= upper).count()
}

/// Formats a metric of a victim in at most six characters: Mbit/s or seconds.
fn shown(metric: VictimMetric, value: Option<f64>) -> String {
    match metric {
        VictimMetric::Goodput => number(value.map(|bps| bps / 1e6), 2),
        VictimMetric::DelayP99 | VictimMetric::DownloadTime => number(value, 3),
    }
}

/// Formats the ends of an interval in at most 14 characters.
fn interval(excess: Option<HarmInterval>) -> String {
    excess.map_or("-".into(), |HarmInterval { low, high, .. }| format!("{low:.3}..{high:.3}"))
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.decimals$}"))
}
