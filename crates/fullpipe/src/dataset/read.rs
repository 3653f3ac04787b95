//! Reads the parts of a data set back as a table in memory.

use std::fs::File;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use fullpipe_lab::columns::Cell;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::files::part_name;
use super::manifest::ColumnSpec;
use crate::Error;
use crate::table::{Batch, ColumnData, Table};

/// Reads those of the first `parts` parts that exist in the folder `dir`: all `columns`, or the columns with
/// the numbers `wanted`.
pub(super) fn table(
    dir: &Path,
    columns: &[ColumnSpec],
    wanted: Option<&[usize]>,
    parts: usize,
) -> Result<Table, Error> {
    let all: Vec<usize> = (0..columns.len()).collect();
    let wanted = wanted.unwrap_or(&all);
    let mut batches = Vec::new();
    for number in 0..parts {
        let path = dir.join(part_name(number));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(unreadable(&path, e)),
        };
        // The Parquet reader validates its input, but may panic on damaged files.
        let read = catch_unwind(AssertUnwindSafe(|| part(file, columns, wanted)));
        let part = read.map_err(|_| unreadable(&path, "it is damaged"))?;
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
