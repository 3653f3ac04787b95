//! Tables of results in memory, in the column layout of Apache Arrow (feature `tables`).
//!
//! ```text
//!   cells ─► TableBuilder ─► Table: batches of rows, one buffer of values per column
//!   part of a data set ─────┘
//! ```
//!
//! A reader that knows the layout, such as Arrow's C data interface, can use the buffers without conversion.
//! A batch of simulated runs has at most [`BATCH_ROWS`] rows, and a row group of a part becomes one batch.
//! Batches are immutable.

mod simulate;

use std::collections::BTreeMap;
use std::sync::Arc;

use fullpipe_lab::columns::{Cell, Text};

pub use crate::dataset::ColumnSpec;
pub use simulate::{SimulateOptions, Simulation, Source, simulate};

/// Maximum number of rows of a batch of simulated runs, which keeps the offsets of strings within
/// 32 bits.
pub const BATCH_ROWS: usize = 1 << 16;

/// Table with columns of fixed types.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Arc<[ColumnSpec]>,
    batches: Vec<Arc<Batch>>,
}

/// A batch: consecutive rows of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// Values of each column of the table.
    pub columns: Vec<ColumnData>,
}

/// Values of one column in one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnData {
    /// One value per row; zero or empty for rows without a value.
    pub values: Values,
    /// Flags that mark rows with a value; `None` if all rows have one.
    pub validity: Option<Validity>,
}

/// Values of a column by type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Unsigned integers of 32 bits.
    U32(Vec<u32>),
    /// Unsigned integers of 64 bits.
    U64(Vec<u64>),
    /// Floating-point numbers of 64 bits.
    F64(Vec<f64>),
    /// Boolean values.
    Bool(Bits),
    /// Strings, one per row.
    Text(Texts),
    /// Strings with few distinct values: each distinct string once, in the order of its first appearance, and
    /// its number for each row. Rows without a value have the number 0.
    Words {
        /// Number of each row's string.
        keys: Vec<i32>,
        /// The distinct strings.
        words: Texts,
        /// Number of each distinct string.
        numbers: BTreeMap<Text, i32>,
    },
}

/// UTF-8 strings, one after the other. String `i` begins at `offsets[i]` and ends at `offsets[i + 1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Texts {
    /// Offsets into `bytes`, one more than there are strings.
    pub offsets: Vec<i32>,
    /// Bytes of all strings.
    pub bytes: Vec<u8>,
}

impl Texts {
    fn new() -> Self {
        Self { offsets: vec![0], bytes: Vec::new() }
    }

    /// Returns the number of strings.
    pub fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.offsets.push(self.bytes.len().try_into().unwrap_or(i32::MAX));
    }

    fn get(&self, number: usize) -> Text {
        let at = |number: usize| usize::try_from(self.offsets[number]).unwrap_or(0);
        String::from_utf8_lossy(&self.bytes[at(number)..at(number + 1)]).into_owned().into()
    }
}

/// Flags, eight per byte; the flag of row 0 is the least significant bit of the first byte.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bits {
    /// The bytes with the flags.
    pub bytes: Vec<u8>,
    length: usize,
}

impl Bits {
    fn push(&mut self, flag: bool) {
        if self.length.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(flag) << (self.length % 8);
        }
        self.length += 1;
    }

    fn get(&self, row: usize) -> bool {
        self.bytes[row / 8] >> (row % 8) & 1 == 1
    }
}

/// Flags that mark the rows of a column that have a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validity {
    /// One flag per row.
    pub bits: Bits,
    /// Number of rows without a value.
    pub nulls: usize,
}

impl ColumnData {
    pub(crate) fn new(column: &ColumnSpec) -> Self {
        let values = match column.kind.as_str() {
            "u32" => Values::U32(Vec::new()),
            "u64" => Values::U64(Vec::new()),
            "f64" => Values::F64(Vec::new()),
            "bool" => Values::Bool(Bits::default()),
            "word" => Values::Words { keys: Vec::new(), words: Texts::new(), numbers: BTreeMap::new() },
            _ => Values::Text(Texts::new()),
        };
        Self { values, validity: column.optional.then(Validity::default) }
    }

    /// Adds a value; its type must be that of the column.
    pub(crate) fn push(&mut self, cell: &Cell) {
        if let Some(validity) = &mut self.validity {
            validity.bits.push(*cell != Cell::Null);
            validity.nulls += usize::from(*cell == Cell::Null);
        }
        match (&mut self.values, cell) {
            (Values::U32(values), Cell::U32(value)) => values.push(*value),
            (Values::U64(values), Cell::U64(value)) => values.push(*value),
            (Values::F64(values), Cell::F64(value)) => values.push(*value),
            (Values::Bool(values), Cell::Bool(value)) => values.push(*value),
            (Values::Text(texts), Cell::Text(value)) => texts.push(value),
            (Values::Words { keys, words, numbers }, Cell::Text(value)) => {
                // There are fewer words than rows in a batch, so the number always fits.
                let next = numbers.len().try_into().unwrap_or(i32::MAX);
                let number = match numbers.get(value) {
                    Some(number) => *number,
                    None => {
                        words.push(value);
                        numbers.insert(value.clone(), next);
                        next
                    }
                };
                keys.push(number);
            }
            (Values::U32(values), Cell::Null) => values.push(0),
            (Values::U64(values), Cell::Null) => values.push(0),
            (Values::F64(values), Cell::Null) => values.push(0.0),
            (Values::Bool(values), Cell::Null) => values.push(false),
            (Values::Text(texts), Cell::Null) => texts.push(""),
            (Values::Words { keys, .. }, Cell::Null) => keys.push(0),
            (_, cell) => unreachable!("{cell:?} has the type of another column"),
        }
    }

    /// Returns the value in row `row` of the batch.
    pub fn cell(&self, row: usize) -> Cell {
        if self.validity.as_ref().is_some_and(|validity| !validity.bits.get(row)) {
            return Cell::Null;
        }
        match &self.values {
            Values::U32(values) => Cell::U32(values[row]),
            Values::U64(values) => Cell::U64(values[row]),
            Values::F64(values) => Cell::F64(values[row]),
            Values::Bool(values) => Cell::Bool(values.get(row)),
            Values::Text(texts) => Cell::Text(texts.get(row)),
            Values::Words { keys, words, .. } => {
                Cell::Text(words.get(usize::try_from(keys[row]).unwrap_or(0)))
            }
        }
    }
}

impl Table {
    pub(crate) fn new(columns: Arc<[ColumnSpec]>, batches: Vec<Arc<Batch>>) -> Self {
        Self { columns, batches }
    }

    /// Returns names and types of the columns.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    /// Returns the rows in batches.
    pub fn batches(&self) -> &[Arc<Batch>] {
        &self.batches
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(|batch| batch.rows).sum()
    }
}

/// Builder of a table, row by row.
#[derive(Debug)]
pub(crate) struct TableBuilder {
    columns: Arc<[ColumnSpec]>,
    open: Batch,
    done: Vec<Batch>,
}

impl TableBuilder {
    pub(crate) fn new(columns: Arc<[ColumnSpec]>) -> Self {
        let open = empty(&columns);
        Self { columns, open, done: Vec::new() }
    }

    /// Adds a row; the types of its cells must be those of the columns.
    pub(crate) fn push(&mut self, cells: impl Iterator<Item = Cell>) {
        if self.open.rows == BATCH_ROWS {
            self.done.push(std::mem::replace(&mut self.open, empty(&self.columns)));
        }
        for (column, cell) in self.open.columns.iter_mut().zip(cells) {
            column.push(&cell);
        }
        self.open.rows += 1;
    }

    /// Returns the rows in batches.
    pub(crate) fn into_batches(mut self) -> Vec<Batch> {
        if self.open.rows > 0 {
            self.done.push(self.open);
        }
        self.done
    }

    /// Returns the table.
    pub(crate) fn finish(self) -> Table {
        let columns = Arc::clone(&self.columns);
        Table::new(columns, self.into_batches().into_iter().map(Arc::new).collect())
    }
}

fn empty(columns: &[ColumnSpec]) -> Batch {
    Batch { rows: 0, columns: columns.iter().map(ColumnData::new).collect() }
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::columns::Kind;

    use super::*;

    /// Cells are read back as they were added, across the end of a batch, with and without values.
    #[test]
    fn cells_come_back() {
        let columns = [
            ColumnSpec::new("a", Kind::U32, false),
            ColumnSpec::new("b", Kind::U64, true),
            ColumnSpec::new("c", Kind::F64, true),
            ColumnSpec::new("d", Kind::Bool, true),
            ColumnSpec::new("e", Kind::Text, true),
            ColumnSpec { kind: "word".into(), ..ColumnSpec::new("f", Kind::Text, true) },
        ];
        let row = |n: usize| {
            let text = if n.is_multiple_of(2) { "cubic".to_owned() } else { format!("{n} µs") };
            let cells = [
                Cell::U64(u64::MAX - n as u64),
                Cell::F64(0.5),
                Cell::Bool(n % 3 == 1),
                Cell::Text(text.into()),
                Cell::Text(["open", "µs", ""][n % 3].into()),
            ];
            let cells = cells.into_iter().enumerate().map(move |(column, cell)| match (n + column) % 5 {
                0 => Cell::Null,
                _ => cell,
            });
            std::iter::once(Cell::U32(n as u32)).chain(cells)
        };
        let rows = BATCH_ROWS + 9;
        let mut builder = TableBuilder::new(columns.into());
        (0..rows).for_each(|n| builder.push(row(n)));
        let table = builder.finish();
        assert_eq!((table.rows(), table.batches().len()), (rows, 2));
        for n in (0..20).chain(rows - 20..rows) {
            let batch = &table.batches()[n / BATCH_ROWS];
            let cells = batch.columns.iter().map(|column| column.cell(n % BATCH_ROWS));
            assert!(cells.eq(row(n)), "row {n}");
        }
        let nulls = |column: usize| {
            let nulls = |batch: &Arc<Batch>| batch.columns[column].validity.as_ref().map_or(0, |it| it.nulls);
            table.batches().iter().map(nulls).sum::<usize>()
        };
        assert_eq!((nulls(0), nulls(1)), (0, rows.div_ceil(5)));
    }
}
