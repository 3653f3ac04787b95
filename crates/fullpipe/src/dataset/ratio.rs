//! Compares two selections of rows in pairs. The two rows of a pair differ only in the values that the
//! selections set.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fullpipe_lab::bootstrap::MedianRatio;
use fullpipe_lab::columns::Cell;

use super::{Dataset, read};
use crate::Error;
use crate::table::{Batch, ColumnSpec};

/// Columns, each with the value that a selected row has. Numbers are compared by value, regardless of their
/// types.
pub type Selection = Vec<(String, Cell)>;

/// Comparison of two selections of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Rows whose values are the numerators. The columns are fields that differ between points, or `flow`.
    pub a: Selection,
    /// Rows whose values are the denominators. The columns are those of `a`.
    pub b: Selection,
    /// Column with the values: a result in numbers, such as `goodput_bps`.
    pub column: String,
    /// Random seed of the resampling that determines the interval.
    pub seed: u64,
}

impl Default for Comparison {
    fn default() -> Self {
        Self { a: Vec::new(), b: Vec::new(), column: "goodput_bps".into(), seed: 1 }
    }
}

/// Median of the ratios of paired rows, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// Median of the ratios; infinite if half of the denominators are zero.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of pairs with a ratio.
    pub pairs: u64,
    /// Number of selected rows without a ratio: the other row of the pair or a value is missing, or both
    /// values are zero.
    pub left_out: u64,
}

/// Name of the column that a selection may contain besides the fields.
const FLOW: &str = "flow";
const HINT: &str = "fullpipe names the columns of a data set in its manifest.json";

pub(super) fn ratio(dataset: &Dataset, dir: &Path, comparison: &Comparison) -> Result<PairedRatio, Error> {
    let columns = &dataset.manifest.columns;
    let number = |name: &str| columns.iter().position(|column| column.name == name);
    let Comparison { a, b, column, seed } = comparison;
    let names =
        |selection: &Selection| selection.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
    if a.is_empty() || names(a) != names(b) {
        return Err(Error::usage(
            "a and b must name the same columns, at least one",
            "select rows that differ in a field: a={\"cc\": \"bbr1\"}, b={\"cc\": \"cubic\"}",
        ));
    }
    // The fields come first, and the number of the run is the first column after them.
    let fields: Vec<&str> =
        columns.iter().map(|column| column.name.as_str()).take_while(|name| *name != "run").collect();
    let selectable = || fields.iter().copied().chain([FLOW]);
    if let Some(unknown) = names(a).iter().find(|name| !selectable().any(|known| known == name.as_str())) {
        return Err(Error::usage(
            format!("'{unknown}' is not a field that differs between the points of this data set"),
            format!("select rows by {}", selectable().collect::<Vec<_>>().join(", ")),
        ));
    }
    let Some(values) = number(column) else {
        return Err(Error::usage(format!("the data set has no column '{column}'"), HINT));
    };
    if values < fields.len() || matches!(columns[values].kind.as_str(), "text" | "bool") {
        return Err(Error::usage(
            format!("the column '{column}' is not a numeric result"),
            "choose a result such as goodput_bps",
        ));
    }
    // A pair has the same values in all of these columns.
    let common: Vec<&str> =
        selectable().chain(["seed"]).filter(|name| a.iter().all(|(key, _)| key != name)).collect();
    let wanted: Vec<usize> = selectable()
        .chain(["seed", column.as_str()])
        .filter_map(number)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let source = read::Source { dir, table: "runs", manifest: &dataset.manifest };
    let table = read::table(&source, columns, Some(&wanted))?;
    let index = |name: &str| table.columns().iter().position(|column| column.name == name);
    let at = |selection: &Selection| -> Vec<(usize, Cell)> {
        selection.iter().filter_map(|(name, cell)| Some((index(name)?, cell.clone()))).collect()
    };
    let (a_at, b_at) = (at(a), at(b));
    let common_at: Vec<usize> = common.iter().filter_map(|name| index(name)).collect();
    let value_at = index(column).unwrap_or_default();
    let mut pairs: BTreeMap<Vec<u8>, [Vec<Option<f64>>; 2]> = BTreeMap::new();
    let (mut of_a, mut of_b) = (0_u64, 0_u64);
    for batch in table.batches() {
        for row in 0..batch.rows {
            let is = |selection: &[(usize, Cell)]| {
                selection.iter().all(|(column, wanted)| equal(&batch.columns[*column].cell(row), wanted))
            };
            let (in_a, in_b) = (is(&a_at), is(&b_at));
            if !in_a && !in_b {
                continue;
            }
            let value = as_number(&batch.columns[value_at].cell(row));
            let sides = pairs.entry(key(batch, row, &common_at)).or_default();
            if in_a {
                of_a += 1;
                sides[0].push(value);
            }
            if in_b {
                of_b += 1;
                sides[1].push(value);
            }
        }
    }
    for (count, selection, side) in [(of_a, a, "a"), (of_b, b, "b")] {
        if count == 0 {
            return Err(Error::usage(
                format!("no row has the values of {side}: {}", written(selection)),
                found(table.columns(), table.batches().iter().map(AsRef::as_ref), &at(selection)),
            ));
        }
    }
    let mut ratios = Vec::new();
    for [of_a, of_b] in pairs.values() {
        // Equal points have equal runs, in the same order.
        for (a, b) in of_a.iter().zip(of_b) {
            if let (Some(a), Some(b)) = (a, b)
                && (*a > 0.0 || *b > 0.0)
            {
                ratios.push((*a, *b));
            }
        }
    }
    let count = ratios.len() as u64;
    let Some(MedianRatio { median, low, high }) = MedianRatio::of(&ratios, *seed) else {
        return Err(Error::new(
            format!(
                "only {count} pairs of runs are equal in all other fields and have a value in '{column}'"
            ),
            "make the missing parts, or add seeds (repeat): an interval requires at least two pairs",
        ));
    };
    Ok(PairedRatio { median, low, high, pairs: count, left_out: of_a + of_b - 2 * count })
}

/// Returns a key that is equal for rows with equal values in these columns.
fn key(batch: &Batch, row: usize, columns: &[usize]) -> Vec<u8> {
    let mut key = Vec::new();
    for column in columns {
        match batch.columns[*column].cell(row) {
            Cell::Null => key.push(0),
            Cell::U32(value) => key.extend(u64::from(value).to_be_bytes()),
            Cell::U64(value) => key.extend(value.to_be_bytes()),
            Cell::F64(value) => key.extend(value.to_bits().to_be_bytes()),
            Cell::Bool(value) => key.push(u8::from(value)),
            Cell::Text(text) => key.extend(text.bytes()),
        }
        // This byte separates the values, because UTF-8 text never contains it.
        key.push(0xff);
    }
    key
}

fn as_number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::U32(value) => Some(f64::from(*value)),
        Cell::U64(value) => Some(*value as f64),
        Cell::F64(value) => Some(*value),
        Cell::Null | Cell::Bool(_) | Cell::Text(_) => None,
    }
}

fn equal(cell: &Cell, wanted: &Cell) -> bool {
    cell == wanted || as_number(cell).zip(as_number(wanted)).is_some_and(|(cell, wanted)| cell == wanted)
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Null => "nothing".into(),
        Cell::U32(value) => value.to_string(),
        Cell::U64(value) => value.to_string(),
        Cell::F64(value) => value.to_string(),
        Cell::Bool(value) => value.to_string(),
        Cell::Text(text) => format!("'{text}'"),
    }
}

fn written(selection: &Selection) -> String {
    selection.iter().map(|(name, cell)| format!("{name}={}", shown(cell))).collect::<Vec<_>>().join(", ")
}

/// Returns a hint for the first selected column in which no row has the wanted value. The hint lists some
/// values of this column.
fn found<'b>(
    columns: &[ColumnSpec],
    batches: impl Iterator<Item = &'b Batch> + Clone,
    selection: &[(usize, Cell)],
) -> String {
    const MOST: usize = 8;
    for (column, wanted) in selection {
        let cells = batches.clone().flat_map(|batch| {
            let data = &batch.columns[*column];
            (0..batch.rows).map(move |row| data.cell(row))
        });
        let (mut values, mut has) = (BTreeSet::new(), false);
        for cell in cells {
            has |= equal(&cell, wanted);
            values.insert(shown(&cell));
        }
        if !has {
            let more = if values.len() > MOST { ", ..." } else { "" };
            let values: Vec<String> = values.into_iter().take(MOST).collect();
            return format!("{} is {}{more}", columns[*column].name, values.join(", "));
        }
    }
    "no row has these values at the same time".into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::tests::folder;
    use super::super::{DatasetOptions, Shard, part_name};
    use super::*;

    const SWEEP: &str = "name = 'sweep'\nduration = '2s'\nrepeat = 4\n[path]\nrate = '10mbit'\nrtt = ['40ms', '80ms']\n\
                         loss = ['0%', '1%']\n[[flow]]\ncc = ['reno', 'cubic', 'bbr1']\n[[flow]]\ncc = 'reno'";

    fn made(name: &str) -> (Dataset, PathBuf) {
        let dir = folder(name);
        let options = DatasetOptions { part_packets: Some(20_000), ..DatasetOptions::default() };
        let dataset = Dataset::from_text(SWEEP, &options).expect("valid");
        dataset.make(&dir, Shard::ALL, None, &()).expect("made");
        (dataset, dir)
    }

    fn select(values: &[(&str, Cell)]) -> Selection {
        values.iter().map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect()
    }

    fn cc(name: &'static str) -> Selection {
        select(&[("cc", Cell::Text(name.into()))])
    }

    /// The pairs are those that a reader of the table finds who compares all other fields, the flow and the seed.
    #[test]
    fn pairs_differ_only_in_what_is_selected() {
        let (dataset, dir) = made("ratio");
        let table = dataset.table(&dir).expect("rows");
        let column = |name: &str| table.columns().iter().position(|column| column.name == name).expect(name);
        let rows: Vec<Vec<Cell>> = table
            .batches()
            .iter()
            .flat_map(|batch| {
                (0..batch.rows).map(move |row| batch.columns.iter().map(|c| c.cell(row)).collect())
            })
            .collect();
        let same = ["rtt_ms", "loss_percent", "flow", "seed"].map(column);
        let at = column("cc");
        let of = |name: &'static str| rows.iter().filter(move |row| row[at] == Cell::Text(name.into()));
        let mut ratios = Vec::new();
        for a in of("bbr1") {
            let mut partners = of("reno").filter(|b| same.iter().all(|column| a[*column] == b[*column]));
            let b = partners.next().expect("a partner");
            assert!(partners.next().is_none());
            let goodput = |row: &[Cell]| as_number(&row[column("goodput_bps")]).expect("a number");
            ratios.push(goodput(a) / goodput(b));
        }
        ratios.sort_by(f64::total_cmp);
        let found = dataset
            .ratio(&dir, &Comparison { a: cc("bbr1"), b: cc("reno"), ..Comparison::default() })
            .expect("a ratio");
        // 2 RTTs x 2 losses x 4 seeds x 2 flows.
        assert_eq!((found.pairs, found.left_out), (32, 0));
        assert_eq!(found.median, f64::midpoint(ratios[15], ratios[16]));
        assert!(ratios[0] <= found.low && found.low <= found.median && found.median <= found.high);
        let inverse = dataset
            .ratio(&dir, &Comparison { a: cc("reno"), b: cc("bbr1"), ..Comparison::default() })
            .expect("a ratio");
        assert!((inverse.median * found.median - 1.0).abs() < 0.05, "{inverse:?} {found:?}");

        // Both flows of a run, under one of the losses.
        let flow = |flow| {
            select(&[
                ("flow", Cell::U64(flow)),
                ("loss_percent", Cell::U64(1)),
                ("cc", Cell::Text("bbr1".into())),
            ])
        };
        let found = dataset.ratio(&dir, &Comparison { a: flow(0), b: flow(1), ..Comparison::default() });
        let found = found.expect("a ratio");
        assert!(found.pairs == 8 && found.low > 1.0, "BBR gets more than Reno under loss: {found:?}");

        // Rows without a partner and rows without a value are left out.
        fs::remove_file(dir.join("runs").join(part_name(0))).expect("removed");
        let found = dataset
            .ratio(&dir, &Comparison { a: cc("bbr1"), b: cc("reno"), ..Comparison::default() })
            .expect("a ratio");
        assert!(found.pairs < 32 && found.left_out > 0, "{found:?}");
        let _ = fs::remove_dir_all(dir);
    }

    #[test]
    fn an_unusable_comparison_is_refused_with_a_hint() {
        let (dataset, dir) = made("ratio-refused");
        let refused = |a: Selection, b: Selection, column: &str| {
            let comparison = Comparison { a, b, column: column.into(), seed: 1 };
            let error = dataset.ratio(&dir, &comparison).expect_err("refused");
            assert!(!error.message.contains('\n') && !error.hint.is_empty(), "{error:?}");
            format!("{}; {}", error.message, error.hint)
        };
        let bps = "goodput_bps";
        let rtt = select(&[("rtt_ms", Cell::F64(40.0))]);
        assert!(refused(cc("reno"), rtt, bps).contains("same columns"));
        assert!(refused(Vec::new(), Vec::new(), bps).contains("same columns"));
        let unknown = || select(&[("rtt", Cell::U64(40))]);
        assert!(refused(unknown(), unknown(), bps).contains("'rtt' is not a field that differs"));
        assert!(
            refused(unknown(), unknown(), bps).ends_with("select rows by rtt_ms, loss_percent, cc, flow")
        );
        assert!(refused(cc("reno"), cc("cubic"), "speed").contains("no column 'speed'"));
        for column in ["flow_cc", "rtt_ms"] {
            assert!(refused(cc("reno"), cc("cubic"), column).contains("is not a numeric result"), "{column}");
        }
        let none = refused(cc("bbr9"), cc("cubic"), bps);
        assert!(none.contains("a: cc='bbr9'; cc is 'bbr1', 'cubic', 'reno'"), "{none}");
        // No run of this sweep ends before its time.
        assert!(refused(cc("reno"), cc("cubic"), "finished_s").contains("only 0 pairs"));
        let _ = fs::remove_dir_all(dir);
    }
}
