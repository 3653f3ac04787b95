//! Parts of a data set: tables encoded as Parquet in memory, with a hash of all bytes of the file.
//!
//! The footer of a part contains the hash of the manifest, the table, the number of the part, and the BLAKE3 hash of
//! the file, computed with zeros in place of that hash itself. This reveals a part that was truncated, changed or
//! copied from another data set, without reading its values.

use std::sync::Arc;

use fullpipe_lab::columns::Cell;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::manifest::ColumnSpec;
use crate::Error;

/// Maximum number of rows of a row group. The rows stay in memory until the group is encoded.
const GROUP_ROWS: usize = 100_000;
/// Keys in the footer of a part: the hash of the manifest, the table, the number of the part, and the hash of the
/// file.
const MANIFEST: &str = "fullpipe.manifest";
const TABLE: &str = "fullpipe.table";
const NUMBER: &str = "fullpipe.part";
const SEAL: &str = "fullpipe.blake3";
/// Number of hexadecimal digits of a BLAKE3 hash.
const DIGITS: usize = 64;

/// Values of several rows, stored by column.
pub(super) struct Rows {
    columns: Vec<Buffer>,
    rows: usize,
}

/// Values of one column. A column that may lack values also has a definition level per row, which is 1 for a
/// value and 0 for a missing one.
struct Buffer {
    values: Values,
    levels: Option<Vec<i16>>,
}

enum Values {
    U32(Vec<i32>),
    U64(Vec<i64>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
}

impl Rows {
    pub(super) fn new(columns: &[ColumnSpec]) -> Self {
        let buffer = |column: &ColumnSpec| Buffer {
            values: match column.kind.as_str() {
                "u32" => Values::U32(Vec::new()),
                "u64" => Values::U64(Vec::new()),
                "f64" => Values::F64(Vec::new()),
                "bool" => Values::Bool(Vec::new()),
                _ => Values::Text(Vec::new()),
            },
            levels: column.optional.then(Vec::new),
        };
        Self { columns: columns.iter().map(buffer).collect(), rows: 0 }
    }

    /// Adds a row; the types of its cells must be those of the columns.
    pub(super) fn push(&mut self, cells: impl Iterator<Item = Cell>) {
        for (buffer, cell) in self.columns.iter_mut().zip(cells) {
            if let Some(levels) = &mut buffer.levels {
                levels.push(i16::from(cell != Cell::Null));
            }
            // Parquet stores unsigned integers in signed types of the same width.
            match (&mut buffer.values, cell) {
                (_, Cell::Null) => {}
                (Values::U32(values), Cell::U32(value)) => values.push(value.cast_signed()),
                (Values::U64(values), Cell::U64(value)) => values.push(value.cast_signed()),
                (Values::F64(values), Cell::F64(value)) => values.push(value),
                (Values::Bool(values), Cell::Bool(value)) => values.push(value),
                (Values::Text(values), Cell::Text(value)) => match values.last() {
                    // Equal consecutive strings share their memory.
                    Some(last) if last.data() == value.as_bytes() => values.push(last.clone()),
                    _ => values.push(value.as_bytes().to_vec().into()),
                },
                (_, cell) => unreachable!("{cell:?} has the type of another column"),
            }
        }
        self.rows += 1;
    }

    /// Appends all rows of `other`.
    fn append(&mut self, other: Self) {
        for (buffer, more) in self.columns.iter_mut().zip(other.columns) {
            if let (Some(levels), Some(more)) = (&mut buffer.levels, more.levels) {
                levels.extend(more);
            }
            match (&mut buffer.values, more.values) {
                (Values::U32(values), Values::U32(more)) => values.extend(more),
                (Values::U64(values), Values::U64(more)) => values.extend(more),
                (Values::F64(values), Values::F64(more)) => values.extend(more),
                (Values::Bool(values), Values::Bool(more)) => values.extend(more),
                (Values::Text(values), Values::Text(more)) => values.extend(more),
                _ => unreachable!("the columns of one table"),
            }
        }
        self.rows += other.rows;
    }
}

/// Writer of one part.
pub(super) struct PartWriter {
    columns: Arc<[ColumnSpec]>,
    writer: SerializedFileWriter<Vec<u8>>,
    rows: Rows,
}

impl PartWriter {
    /// Creates a writer for part `number` of `table` (`runs` or `trace`) in the data set whose manifest has the
    /// hash `manifest`.
    pub(super) fn new(
        columns: &Arc<[ColumnSpec]>,
        manifest: &str,
        table: &str,
        number: usize,
    ) -> Result<Self, Error> {
        let metadata = [
            (MANIFEST, manifest.to_owned()),
            (TABLE, table.to_owned()),
            (NUMBER, number.to_string()),
            (SEAL, "0".repeat(DIGITS)),
        ];
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("fullpipe ", env!("CARGO_PKG_VERSION")).into())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(
                metadata.map(|(key, value)| KeyValue::new(key.into(), value)).into(),
            ))
            .build();
        let writer =
            SerializedFileWriter::new(Vec::new(), schema(columns).map_err(defect)?, Arc::new(properties));
        Ok(Self { columns: Arc::clone(columns), writer: writer.map_err(defect)?, rows: Rows::new(columns) })
    }

    /// Appends rows to the part.
    pub(super) fn append(&mut self, rows: Rows) -> Result<(), Error> {
        self.rows.append(rows);
        if self.rows.rows >= GROUP_ROWS { self.encode().map_err(defect) } else { Ok(()) }
    }

    /// Encodes the rows in memory as a row group.
    fn encode(&mut self) -> Result<(), ParquetError> {
        let Rows { columns, rows } = std::mem::replace(&mut self.rows, Rows::new(&self.columns));
        if rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for Buffer { values, levels } in columns {
            let levels = levels.as_deref();
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Values::U32(values) => column.typed::<Int32Type>().write_batch(&values, levels, None)?,
                Values::U64(values) => column.typed::<Int64Type>().write_batch(&values, levels, None)?,
                Values::F64(values) => column.typed::<DoubleType>().write_batch(&values, levels, None)?,
                Values::Bool(values) => column.typed::<BoolType>().write_batch(&values, levels, None)?,
                Values::Text(values) => column.typed::<ByteArrayType>().write_batch(&values, levels, None)?,
            };
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Returns the bytes of the complete file.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.encode().map_err(defect)?;
        let mut bytes = self.writer.into_inner().map_err(defect)?;
        let at = seal_at(&bytes).ok_or_else(|| defect("the footer has no hash"))?;
        let hash = super::manifest::hash(&bytes);
        bytes[at..at + DIGITS].copy_from_slice(hash.as_bytes());
        Ok(bytes)
    }
}

fn defect(error: impl std::fmt::Display) -> Error {
    Error::new(
        format!("a part cannot be encoded: {error}"),
        "this is a defect of fullpipe: please report it with the experiment",
    )
}

fn schema(columns: &[ColumnSpec]) -> Result<TypePtr, ParquetError> {
    let field = |column: &ColumnSpec| {
        let (physical, logical) = match column.kind.as_str() {
            "u32" => (Physical::INT32, Some(LogicalType::integer(32, false))),
            "u64" => (Physical::INT64, Some(LogicalType::integer(64, false))),
            "f64" => (Physical::DOUBLE, None),
            "bool" => (Physical::BOOLEAN, None),
            _ => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(&column.name, physical);
        Ok(Arc::new(field.with_repetition(repetition).with_logical_type(logical).build()?))
    };
    let fields = columns.iter().map(field).collect::<Result<_, ParquetError>>()?;
    Ok(Arc::new(Type::group_type_builder("runs").with_fields(fields).build()?))
}

/// Returns the position of the hash in the file. The hash follows its key, a type tag and its length.
fn seal_at(bytes: &[u8]) -> Option<usize> {
    let key = bytes.windows(SEAL.len()).rposition(|window| window == SEAL.as_bytes())?;
    let at = key + SEAL.len() + 2;
    let digits = bytes.get(at..at + DIGITS)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(at)
}

/// Result of examining the file of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The file is the expected part.
    Good,
    /// The file was truncated or changed, or is not a part of a data set.
    Damaged,
    /// The file is a part of another data set, or a different part of this one.
    Foreign,
}

/// Checks whether the content of a file is part `number` of `table` in the data set whose manifest has the hash
/// `manifest`.
pub(super) fn examine(mut bytes: Vec<u8>, manifest: &str, table: &str, number: usize) -> Condition {
    let Some(at) = seal_at(&bytes) else { return Condition::Damaged };
    let stated = bytes[at..at + DIGITS].to_vec();
    bytes[at..at + DIGITS].fill(b'0');
    if super::manifest::hash(&bytes).as_bytes() != stated {
        return Condition::Damaged;
    }
    // The writer places its four entries next to each other at the end of the file.
    let footer = &bytes[bytes.len().saturating_sub(4096)..];
    let has = |key: &str, value: &str| {
        let at = footer.windows(key.len()).rposition(|window| window == key.as_bytes());
        // A type tag and the length are between the key and the value.
        at.and_then(|at| footer.get(at + key.len() + 1..)).is_some_and(|rest| {
            usize::from(rest[0]) == value.len() && rest[1..].starts_with(value.as_bytes())
        })
    };
    let is_this = has(MANIFEST, manifest) && has(TABLE, table) && has(NUMBER, &number.to_string());
    if is_this { Condition::Good } else { Condition::Foreign }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    const MANIFEST_HASH: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    fn columns() -> Arc<[ColumnSpec]> {
        let specs = [
            ("a", "u32", false),
            ("b", "u64", true),
            ("c", "f64", false),
            ("d", "bool", false),
            ("e", "text", true),
        ];
        specs
            .map(|(name, kind, optional)| ColumnSpec { name: name.into(), kind: kind.into(), optional })
            .into()
    }

    fn part(rows: u32) -> Vec<u8> {
        let columns = columns();
        let mut writer = PartWriter::new(&columns, MANIFEST_HASH, "runs", 7).expect("a writer");
        for row in 0..rows {
            let mut one = Rows::new(&columns);
            let (b, e) = match row % 3 {
                0 => (Cell::Null, Cell::Text(Cow::Borrowed("cubic"))),
                _ => (Cell::U64(u64::MAX - u64::from(row)), Cell::Null),
            };
            one.push([Cell::U32(u32::MAX - row), b, Cell::F64(0.1), Cell::Bool(row == 1), e].into_iter());
            writer.append(one).expect("it fits");
        }
        writer.finish().expect("a part")
    }

    #[test]
    fn values_are_read_back() {
        let path = std::env::temp_dir().join(format!("fullpipe-part-{}.parquet", std::process::id()));
        std::fs::write(&path, part(3)).expect("a file");
        let reader = SerializedFileReader::new(std::fs::File::open(&path).expect("a file")).expect("Parquet");
        let rows = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
        let rows: Vec<Vec<Field>> =
            rows.map(|row| row.get_column_iter().map(|(_, field)| field.clone()).collect()).collect();
        let cubic = || Field::Str("cubic".into());
        let (a, c) = (|row: u32| Field::UInt(u32::MAX - row), Field::Double(0.1));
        assert_eq!(rows[0], [a(0), Field::Null, c.clone(), Field::Bool(false), cubic()]);
        assert_eq!(rows[1], [a(1), Field::ULong(u64::MAX - 1), c.clone(), Field::Bool(true), Field::Null]);
        assert_eq!(rows[2], [a(2), Field::ULong(u64::MAX - 2), c, Field::Bool(false), Field::Null]);
        assert_eq!(rows.len(), 3);
        let _ = std::fs::remove_file(path);
    }

    #[test]
    fn parts_are_equal_and_know_where_they_belong() {
        let bytes = part(50);
        assert_eq!(bytes, part(50));
        assert_eq!(examine(bytes.clone(), MANIFEST_HASH, "runs", 7), Condition::Good);
        assert_eq!(examine(bytes.clone(), MANIFEST_HASH, "runs", 70), Condition::Foreign);
        assert_eq!(examine(bytes.clone(), MANIFEST_HASH, "trace", 7), Condition::Foreign);
        assert_eq!(examine(bytes, &"1".repeat(64), "runs", 7), Condition::Foreign);
    }

    /// The check detects every changed byte and every truncation.
    #[test]
    fn damage_is_found() {
        let bytes = part(5);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let found = examine(changed, MANIFEST_HASH, "runs", 7);
            assert_eq!(found, Condition::Damaged, "byte {at} of {}", bytes.len());
        }
        for length in (0..bytes.len()).step_by(7) {
            let found = examine(bytes[..length].to_vec(), MANIFEST_HASH, "runs", 7);
            assert_eq!(found, Condition::Damaged, "{length}");
        }
    }
}
