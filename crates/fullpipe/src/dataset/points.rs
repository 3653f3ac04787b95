//! Reads tables of points from CSV or Parquet files.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use fullpipe_lab::experiment::{ExperimentError, PointTable};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::contained::contained;
use crate::Error;

/// First bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Reads a table of points from a CSV or Parquet file. The first bytes of the file determine its
/// format.
///
/// # Errors
/// Returns an error if the file cannot be read, or if a cell or a column is not valid.
pub(super) fn read(path: &Path) -> Result<PointTable, Error> {
    let cannot_read = |e: std::io::Error| {
        Error::new(
            format!("cannot read {}: {e}", path.display()),
            "pass a CSV or Parquet file: --points points.csv",
        )
    };
    let mut file = File::open(path).map_err(cannot_read)?;
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic).map_err(cannot_read)?;
    file.rewind().map_err(cannot_read)?;
    let table = if magic == MAGIC {
        contained(|| rows_of(file)).unwrap_or_else(|| Err(unreadable("the file is damaged")))
    } else {
        PointTable::from_csv(file).map_err(Error::from)
    };
    table.map_err(|error| error.about(path.display()))
}

fn unreadable(problem: impl std::fmt::Display) -> Error {
    Error::new(
        format!("the points are not readable as Parquet: {problem}"),
        "write the table without compression or with snappy, or as CSV",
    )
}

fn rows_of(file: File) -> Result<PointTable, Error> {
    let unreadable = |error: ParquetError| unreadable(error.to_string().replace('\n', " "));
    let reader = SerializedFileReader::new(file).map_err(unreadable)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let mut table = PointTable::new(fields.iter().map(|field| field.name()))?;
    for row in reader.get_row_iter(None).map_err(unreadable)? {
        let row = row.map_err(unreadable)?;
        let cells = row.get_column_iter().map(|(name, field)| text(name, field));
        let cells = cells.collect::<Result<Vec<_>, ExperimentError>>()?;
        table.push(cells.iter().map(String::as_str))?;
    }
    if table.rows() == 0 {
        return Err(Error::new("the points have no row", "write a table with at least one row"));
    }
    Ok(table)
}

fn text(name: &str, field: &Field) -> Result<String, ExperimentError> {
    Ok(match field {
        Field::Null => String::new(),
        Field::Bool(value) => value.to_string(),
        Field::Byte(value) => value.to_string(),
        Field::Short(value) => value.to_string(),
        Field::Int(value) => value.to_string(),
        Field::Long(value) => value.to_string(),
        Field::UByte(value) => value.to_string(),
        Field::UShort(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::ULong(value) => value.to_string(),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Str(value) => value.clone(),
        _ => {
            return Err(ExperimentError::new(
                format!("column '{name}' of the points contains neither text nor numbers"),
                "write text such as 20ms, or numbers with the unit in the column name, such as rtt_ms",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fullpipe_lab::columns::{Cell, Kind};

    use super::super::manifest::ColumnSpec;
    use super::super::part::{PartWriter, Rows};
    use super::*;

    fn written(name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("fullpipe-points-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    /// The same table gives the same points from Parquet and from CSV. Nulls and NaNs are rejected.
    #[test]
    fn parquet_and_csv_are_the_same_table() {
        let columns: Arc<[ColumnSpec]> = Arc::new([
            ColumnSpec::new("rtt_ms", Kind::F64, true),
            ColumnSpec::new("count", Kind::U64, false),
            ColumnSpec::new("cc", Kind::Text, false),
            ColumnSpec::new("ecn", Kind::Bool, false),
        ]);
        let table = |last: Cell| {
            let mut rows = Rows::new(&columns);
            for (rtt, cc) in [(Cell::F64(12.5), "reno"), (last, "cubic")] {
                rows.push([rtt, Cell::U64(2), Cell::Text(cc.into()), Cell::Bool(true)].into_iter());
            }
            let mut writer = PartWriter::new(&columns, "a hash", "runs", 0).expect("a writer");
            writer.append(rows).expect("it fits");
            written("parquet", &writer.finish().expect("a file"))
        };
        let path = table(Cell::F64(80.0));
        let csv = written("csv", b"rtt_ms,count,cc,ecn\n12.5,2,reno,true\n80,2,cubic,true\n");
        assert_eq!(read(&path).expect("points").to_csv(), read(&csv).expect("points").to_csv());
        for (last, expected) in
            [(Cell::Null, "row 2 of the points has no value for 'rtt'"), (Cell::F64(f64::NAN), "'NaN'")]
        {
            let error = read(&table(last)).expect_err("a bad cell");
            assert!(error.message.contains(expected) && !error.hint.is_empty(), "{error:?}");
        }
        for path in [path, csv] {
            let _ = std::fs::remove_file(path);
        }
    }
}
