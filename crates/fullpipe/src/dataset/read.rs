//! Reads the parts of a data set back as a table in memory. A damaged or foreign part is an error.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fullpipe_lab::columns::Cell;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::contained::contained;
use super::files::part_name;
use super::manifest::{ColumnSpec, Manifest, hash};
use super::part::{Condition, examine};
use crate::Error;
use crate::table::{Batch, ColumnData, Table};

/// Parts of a table of a data set.
pub(super) struct Source<'a> {
    /// Folder of the data set.
    pub(super) dir: &'a Path,
    /// Name of the table: `runs` or `trace`.
    pub(super) table: &'static str,
    pub(super) manifest: &'a Manifest,
}

/// Reads the parts that exist: all `columns`, or the columns with the numbers `wanted`.
pub(super) fn table(
    source: &Source<'_>,
    columns: &[ColumnSpec],
    wanted: Option<&[usize]>,
) -> Result<Table, Error> {
    let &Source { dir, table, manifest } = source;
    let identity = hash(manifest.to_text()?.as_bytes());
    let all: Vec<usize> = (0..columns.len()).collect();
    let wanted = wanted.unwrap_or(&all);
    let mut batches = Vec::new();
    for number in 0..manifest.parts.len() {
        let path = dir.join(table).join(part_name(number));
        let condition = match fs::read(&path) {
            Ok(bytes) => examine(bytes, &identity, table, number),
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(unreadable(&path, e)),
        };
        match condition {
            Condition::Good => {}
            Condition::Damaged => return Err(unreadable(&path, "it is damaged")),
            Condition::Foreign => return Err(unreadable(&path, "it is not this part of this data set")),
        }
        let file = File::open(&path).map_err(|e| unreadable(&path, e))?;
        let read = contained(|| part(file, columns, wanted));
        let part = read.ok_or_else(|| unreadable(&path, "it is damaged"))?;
        batches.extend(part.map_err(|e| unreadable(&path, e.to_string().replace('\n', " ")))?);
    }
    let columns: Vec<ColumnSpec> = wanted.iter().map(|number| columns[*number].clone()).collect();
    Ok(Table::new(columns.into(), batches.into_iter().map(Arc::new).collect()))
}

fn unreadable(path: &Path, problem: impl std::fmt::Display) -> Error {
    Error::new(
        format!("cannot read {}: {problem}", path.display()),
        "list damaged parts with fullpipe dataset check DIR, delete these parts, and make them again",
    )
}

/// Reads one part; each row group is a batch.
fn part(file: File, columns: &[ColumnSpec], wanted: &[usize]) -> Result<Vec<Batch>, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    if !fields.iter().map(|field| field.name()).eq(columns.iter().map(|column| column.name.as_str())) {
        return Err(ParquetError::General("its columns differ from those in the manifest".into()));
    }
    (0..reader.num_row_groups()).map(|group| batch(&*reader.get_row_group(group)?, columns, wanted)).collect()
}

fn batch(
    group: &dyn RowGroupReader,
    columns: &[ColumnSpec],
    wanted: &[usize],
) -> Result<Batch, ParquetError> {
    let rows = usize::try_from(group.metadata().num_rows())?;
    let column = |(number, column): (usize, &ColumnSpec)| {
        let mut made = ColumnData::new(column);
        let data = &mut made;
        // Parquet stores unsigned integers in signed types of the same width.
        match (group.get_column_reader(number)?, column.kind.as_str()) {
            (ColumnReader::Int32ColumnReader(reader), "u32") => {
                values(reader, rows, data, |value| Ok(Cell::U32(value.cast_unsigned())))
            }
            (ColumnReader::Int64ColumnReader(reader), "u64") => {
                values(reader, rows, data, |value| Ok(Cell::U64(value.cast_unsigned())))
            }
            (ColumnReader::DoubleColumnReader(reader), "f64") => {
                values(reader, rows, data, |value| Ok(Cell::F64(*value)))
            }
            (ColumnReader::BoolColumnReader(reader), "bool") => {
                values(reader, rows, data, |value| Ok(Cell::Bool(*value)))
            }
            (ColumnReader::ByteArrayColumnReader(reader), "text" | "word") => {
                values(reader, rows, data, |value| Ok(Cell::Text(value.as_utf8()?.to_owned().into())))
            }
            _ => Err(ParquetError::General(format!("column {} has a different type", column.name))),
        }?;
        Ok(made)
    };
    let wanted = wanted.iter().map(|number| (*number, &columns[*number]));
    let columns = wanted.map(column).collect::<Result<_, ParquetError>>()?;
    Ok(Batch { rows, columns })
}

/// Adds the values of a column to `data`, with an empty cell for each row without a value.
fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    data: &mut ColumnData,
    cell: impl Fn(&T::T) -> Result<Cell, ParquetError>,
) -> Result<(), ParquetError> {
    let (mut levels, mut dense) = (Vec::new(), Vec::new());
    let optional = data.validity.is_some();
    let (read, ..) = reader.read_records(rows, optional.then_some(&mut levels), None, &mut dense)?;
    let complete = read == rows && if optional { levels.len() == rows } else { dense.len() == rows };
    if !complete {
        return Err(lacking());
    }
    if !optional {
        return dense.iter().try_for_each(|value| {
            data.push(&cell(value)?);
            Ok(())
        });
    }
    let mut dense = dense.iter();
    for level in levels {
        let value = if level == 0 { None } else { Some(dense.next().ok_or_else(lacking)?) };
        data.push(&value.map_or(Ok(Cell::Null), &cell)?);
    }
    Ok(())
}

fn lacking() -> ParquetError {
    ParquetError::General("a column has too few values".into())
}
