//! A table of points, written by another program: each row contains the values of some fields.
//!
//! | column | cell | meaning |
//! |---|---|---|
//! | `rtt` | `20ms` | the value of a field, as in an experiment file |
//! | `rtt_ms` | `20` | the same value; the name of the column ends in the unit: see below |
//! | `flow2.cc` | `cubic` | a field of the second `[[flow]]` |
//!
//! The units in names are `_bps`, `_ms`, `_s`, `_percent`, `_bytes`, `_fixed_bytes` and `_bdp`, as in the
//! columns of a data set. The numbers in such columns are rounded to nine decimals, because a value with a unit
//! has at most nine, and other programs write more (a Sobol sequence, for example). If an experiment file
//! requires a unit for a field, a bare number in a column without a unit is rejected.

use std::io::Read;

use super::ExperimentError;
use super::number::UNITS;
use super::swept::Row;

/// Maximum number of points of a design; a larger number is treated as a mistake.
pub(super) const MOST_POINTS: u64 = 100_000;

/// Maximum number of decimals of a value with a unit.
const DECIMALS: usize = 9;

/// Table of points: the fields that it sets, and their values in each row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointTable {
    /// Names of the fields, such as `rtt` or `flow2.cc`.
    names: Vec<String>,
    /// Unit to append to the cells of each column; `None` if the name of the column contains no unit.
    units: Vec<Option<&'static str>>,
    /// Values of all rows, one after another.
    values: Vec<String>,
}

impl PointTable {
    /// Creates a table without rows. `header` contains the names of the columns.
    ///
    /// # Errors
    /// Returns an error if there is no column, or if two columns set the same field.
    pub fn new<'h>(header: impl Iterator<Item = &'h str>) -> Result<Self, ExperimentError> {
        let mut table = Self::default();
        for column in header {
            let column = column.trim();
            let with_unit = |(end, unit): &(&'static str, &'static str)| {
                let name = column.strip_suffix(end)?.strip_suffix('_')?;
                // Cells with a fixed size need both the prefix `fixed:` and the suffix `B`.
                Some((name, if *end == "fixed_bytes" { *end } else { *unit }))
            };
            let (name, unit) = match UNITS.iter().find_map(with_unit) {
                Some((name, unit)) => (name, Some(unit)),
                None => (column, None),
            };
            if table.names.iter().any(|other| other == name) {
                return Err(ExperimentError::new(
                    format!("two columns of the points set the field '{name}'"),
                    "keep one of these columns",
                ));
            }
            table.names.push(name.into());
            table.units.push(unit);
        }
        if table.names.is_empty() {
            return Err(ExperimentError::new("the points have no column", "add a header line: rtt,loss"));
        }
        Ok(table)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Returns an error if the number of cells differs from that of the header, if a cell is empty, if a cell
    /// of a column with a unit is not a finite number, or if the table has too many rows.
    pub fn push<'c>(&mut self, cells: impl Iterator<Item = &'c str>) -> Result<(), ExperimentError> {
        let row = self.rows() + 1;
        if row > MOST_POINTS {
            return Err(ExperimentError::new(
                format!("the points have more than {MOST_POINTS} rows"),
                format!("allowed: up to {MOST_POINTS}; split the table"),
            ));
        }
        let before = self.values.len();
        for cell in cells {
            let at = self.values.len() - before;
            let (Some(name), Some(unit)) = (self.names.get(at), self.units.get(at)) else {
                return Err(ragged(row));
            };
            self.values.push(complete(row, name, *unit, cell.trim())?);
        }
        if self.values.len() - before == self.names.len() { Ok(()) } else { Err(ragged(row)) }
    }

    /// Reads a table from CSV text with a header line.
    ///
    /// # Errors
    /// Returns an error if the text is not CSV, if it has no row, or if [`new`](Self::new) or
    /// [`push`](Self::push) returns an error.
    pub fn from_csv(text: impl Read) -> Result<Self, ExperimentError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let unreadable = |error: csv::Error| {
            ExperimentError::new(
                format!("the points are not CSV: {error}"),
                "write comma-separated UTF-8 text",
            )
        };
        let mut table = Self::new(reader.headers().map_err(unreadable)?.iter())?;
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(unreadable)? {
            table.push(record.iter())?;
        }
        if table.values.is_empty() {
            return Err(ExperimentError::new("the points have no row", "add a row below the header"));
        }
        Ok(table)
    }

    /// Returns the table as CSV text. Tables with the same fields and values have the same text.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for record in std::iter::once(self.names.as_slice()).chain(self.values.chunks(self.names.len())) {
            // Writing to memory cannot fail, and all records have the same length.
            let _ = writer.write_record(record);
        }
        writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        (self.values.len() / self.names.len().max(1)) as u64
    }

    /// Returns the names of the fields that the table sets.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn row(&self, row: u64) -> Row<'_> {
        let from = row as usize * self.names.len();
        let values = self.values.get(from..from + self.names.len()).unwrap_or_default();
        Row { names: &self.names, values }
    }
}

fn ragged(row: u64) -> ExperimentError {
    ExperimentError::new(
        format!("row {row} of the points and the header differ in their number of cells"),
        "write one cell per column",
    )
}

/// Returns the value of a cell in the notation of an experiment file.
fn complete(row: u64, name: &str, unit: Option<&str>, cell: &str) -> Result<String, ExperimentError> {
    if cell.is_empty() {
        return Err(ExperimentError::new(
            format!("row {row} of the points has no value for '{name}'"),
            "write a value for every column of the header",
        ));
    }
    let Some(unit) = unit else { return Ok(cell.into()) };
    match cell.parse::<f64>() {
        Ok(number) if number.is_finite() && unit == "fixed_bytes" => {
            Ok(format!("fixed:{}B", decimal(number)))
        }
        Ok(number) if number.is_finite() => Ok(decimal(number) + unit),
        _ => Err(ExperimentError::new(
            format!("row {row} of the points: '{cell}' in column '{name}' is not a number"),
            "write a finite number without a unit, because the column name contains the unit",
        )),
    }
}

/// Writes a number without an exponent, rounded to [`DECIMALS`] decimals.
fn decimal(number: f64) -> String {
    // Rust prints the shortest number that parses to the same value.
    let shortest = number.to_string();
    match shortest.split_once('.') {
        Some((_, decimals)) if decimals.len() > DECIMALS => {
            let rounded = format!("{number:.DECIMALS$}");
            rounded.trim_end_matches('0').trim_end_matches('.').into()
        }
        _ => shortest,
    }
}
