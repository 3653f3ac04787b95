//! Reads tables of other libraries through Arrow's C stream interface, and returns rows of a trace as CSV.
//!
//! ```text
//!   pandas, polars, pyarrow, DuckDB ──__arrow_c_stream__──► batches ──► the columns of a trace, as CSV
//! ```
//!
//! Types and layouts are those of <https://arrow.apache.org/docs/format/Columnar.html>. A trace is small, so its
//! values are copied. The sizes of buffers are not part of the interface: they follow from the lengths that the
//! producer states.
#![allow(unsafe_code, reason = "C structs that other libraries fill")]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::str::from_utf8;

use fullpipe::Error;
use fullpipe::lab::columns::Kind;
use fullpipe::lab::trace::COLUMNS;

use crate::arrow::{ArrowArray, ArrowArrayStream, ArrowSchema};

/// Maximum size of the CSV text in bytes, as for a file.
const LARGEST: usize = 64 << 20;
/// Maximum length, in bytes, of a string that is stored in the view itself.
const INLINE: usize = 12;

/// Type of the values of a column.
#[derive(Clone, Debug, PartialEq)]
enum Type {
    Null,
    Bool,
    Signed(usize),
    Unsigned(usize),
    Float(usize),
    Text,
    LargeText,
    TextView,
    /// Indices of values in a second array, the dictionary.
    Dictionary(Box<Self>, Box<Self>),
}

/// Value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(&'a str),
}

/// Column of the table that is also a column of a trace.
struct Wanted {
    /// Number of the column in the table.
    number: usize,
    name: String,
    kind: Kind,
    values: Type,
}

/// Returns the trace rows of a table as CSV. `run` selects the rows of one run by their value in the column
/// `run`.
///
/// # Errors
/// Returns an error if the table is not a trace, if the type of a column differs from that in a trace, if `run` is set
/// but the table has no column `run`, if the table has several runs and `run` is `None`, if there are too many rows,
/// or if the producer fails.
pub(crate) fn trace_csv(stream: &mut ArrowArrayStream, run: Option<u64>) -> Result<Vec<u8>, Error> {
    let schema = stream_schema(stream)?;
    let (columns, of_run) = wanted(&schema)?;
    if run.is_some() && of_run.is_none() {
        return Err(Error::usage(
            "the table has no column run",
            "omit the argument run, which selects a run by this column",
        ));
    }
    let mut text = String::new();
    let header: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    text.push_str(&header.join(","));
    text.push('\n');
    let mut runs = BTreeSet::new();
    while let Some(array) = next(stream)? {
        let rows = usize::try_from(array.length).unwrap_or(0);
        let first = usize::try_from(array.offset).unwrap_or(0);
        for row in 0..rows {
            if let Some(of_run) = &of_run {
                let Found::Integer(number) = cell(&array, of_run, first + row)? else { continue };
                if run.is_some_and(|wanted| i128::from(wanted) != number) {
                    continue;
                }
                runs.insert(number);
                if runs.len() > 1 {
                    return Err(Error::usage(
                        "the table contains several runs",
                        "select one by its number in the column run: run=0",
                    ));
                }
            }
            for (number, column) in columns.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write(&mut text, column, cell(&array, column, first + row)?)?;
            }
            text.push('\n');
        }
        if text.len() > LARGEST {
            return Err(Error::new(
                "the table is larger than 64 MiB as text",
                "pass the rows of a single run, sampled every 10 ms or less often",
            ));
        }
    }
    if let Some(run) = run.filter(|_| runs.is_empty()) {
        return Err(Error::usage(
            format!("the table has no run {run}"),
            "its column run contains the numbers of its runs",
        ));
    }
    Ok(text.into_bytes())
}

/// Returns the columns that belong to a trace, and the column with the number of the run.
fn wanted(schema: &ArrowSchema) -> Result<(Vec<Wanted>, Option<Wanted>), Error> {
    let mut columns = Vec::new();
    let mut of_run = None;
    if text(schema.format) != "+s" {
        return Err(not_a_trace("it is an array without columns"));
    }
    for number in 0..usize::try_from(schema.n_children).unwrap_or(0) {
        // SAFETY: the schema has this number of children, which live as long as the schema.
        let child = unsafe { &**schema.children.add(number) };
        let name = text(child.name);
        let kind = match name {
            "point" => Some(Kind::Text),
            "seed" | "run" => Some(Kind::U64),
            _ => COLUMNS.iter().find(|column| column.name == name).map(|column| column.kind),
        };
        let Some(kind) = kind else { continue };
        let Some(values) = type_of(child) else {
            return Err(Error::new(
                format!("the column {name} has the Arrow type '{}'", text(child.format)),
                "convert it to numbers, strings or Boolean values",
            ));
        };
        let column = Wanted { number, name: name.to_owned(), kind, values };
        if name == "run" {
            of_run = Some(column);
        } else {
            columns.push(column);
        }
    }
    if !columns.iter().any(|column| column.name == "t_s") {
        return Err(not_a_trace("it has no column t_s"));
    }
    Ok((columns, of_run))
}

fn not_a_trace(problem: &str) -> Error {
    Error::new(
        format!("the table is not a trace: {problem}"),
        "pass rows with the columns of docs/reference/trace.md, such as those of run(..., trace=True).trace",
    )
}

/// Returns the type of a column; `None` if no column of a trace has values of this type.
fn type_of(schema: &ArrowSchema) -> Option<Type> {
    let plain = match text(schema.format) {
        "n" => Type::Null,
        "b" => Type::Bool,
        "c" => Type::Signed(1),
        "C" => Type::Unsigned(1),
        "s" => Type::Signed(2),
        "S" => Type::Unsigned(2),
        "i" => Type::Signed(4),
        "I" => Type::Unsigned(4),
        "l" => Type::Signed(8),
        "L" => Type::Unsigned(8),
        "f" => Type::Float(4),
        "g" => Type::Float(8),
        "u" => Type::Text,
        "U" => Type::LargeText,
        "vu" => Type::TextView,
        _ => return None,
    };
    if schema.dictionary.is_null() {
        return Some(plain);
    }
    // SAFETY: the dictionary lives as long as the schema.
    let values = type_of(unsafe { &*schema.dictionary })?;
    Some(Type::Dictionary(Box::new(plain), Box::new(values)))
}

/// Adds a value to a line of CSV, in the form that the reader of traces expects for a column of this type.
fn write(text: &mut String, column: &Wanted, found: Found<'_>) -> Result<(), Error> {
    // pandas stores integers as floating-point numbers if a row of the column has no value.
    let is_whole = |value: f64| value.fract() == 0.0 && value.abs() < 9.0e15;
    let written = match (column.kind, found) {
        (_, Found::Null) => Ok(()),
        (_, Found::Float(value)) if value.is_nan() => Ok(()),
        (Kind::U32 | Kind::U64 | Kind::F64, Found::Integer(value)) => write!(text, "{value}"),
        (Kind::U32 | Kind::U64, Found::Float(value)) if is_whole(value) => write!(text, "{value:.0}"),
        (Kind::F64, Found::Float(value)) => write!(text, "{value}"),
        (Kind::Bool, Found::Bool(value)) => write!(text, "{value}"),
        (Kind::Text, Found::Text(value)) => write!(text, "\"{}\"", value.replace('"', "\"\"")),
        _ => {
            return Err(Error::new(
                format!("the column {} has no values of the type {}", column.name, column.kind.name()),
                "docs/reference/trace.md lists the types of the columns",
            ));
        }
    };
    // Writing to a string cannot fail.
    let _ = written;
    Ok(())
}

/// Returns the value of a column in row `row` of a batch, counted from the start of the batch's arrays.
fn cell<'a>(batch: &'a ArrowArray, column: &Wanted, row: usize) -> Result<Found<'a>, Error> {
    if usize::try_from(batch.n_children).unwrap_or(0) <= column.number {
        return Err(broken("a batch has fewer columns than the schema"));
    }
    // SAFETY: the array has this child, which lives as long as the array.
    let array = unsafe { &**batch.children.add(column.number) };
    value(array, &column.values, row)
}

fn value<'a>(array: &'a ArrowArray, values: &Type, row: usize) -> Result<Found<'a>, Error> {
    if usize::try_from(array.length).unwrap_or(0) <= row {
        return Err(broken("a column is shorter than its batch"));
    }
    let at = usize::try_from(array.offset).unwrap_or(0) + row;
    match values {
        Type::Null => return Ok(Found::Null),
        Type::Dictionary(numbers, values) => {
            let Found::Integer(number) = value(array, numbers, row)? else { return Ok(Found::Null) };
            if array.dictionary.is_null() {
                return Err(broken("a column has no dictionary"));
            }
            let number =
                usize::try_from(number).map_err(|_| broken("an index of a dictionary is negative"))?;
            // SAFETY: the dictionary lives as long as the array.
            return value(unsafe { &*array.dictionary }, values, number);
        }
        _ => {}
    }
    if array.null_count != 0
        && let Some(validity) = buffer(array, 0)
        // SAFETY: the bitmap has a bit for each row.
        && unsafe { *validity.add(at / 8) } >> (at % 8) & 1 == 0
    {
        return Ok(Found::Null);
    }
    let data = buffer(array, 1).ok_or_else(|| broken("a column has no values"))?;
    // SAFETY: the buffer has a value of this size for each row, and the offsets of strings lie within their buffer.
    unsafe {
        Ok(match values {
            Type::Null | Type::Dictionary(..) => Found::Null,
            Type::Bool => Found::Bool(*data.add(at / 8) >> (at % 8) & 1 == 1),
            Type::Signed(1) => Found::Integer(read::<i8>(data, at).into()),
            Type::Signed(2) => Found::Integer(read::<i16>(data, at).into()),
            Type::Signed(4) => Found::Integer(read::<i32>(data, at).into()),
            Type::Signed(_) => Found::Integer(read::<i64>(data, at).into()),
            Type::Unsigned(1) => Found::Integer(read::<u8>(data, at).into()),
            Type::Unsigned(2) => Found::Integer(read::<u16>(data, at).into()),
            Type::Unsigned(4) => Found::Integer(read::<u32>(data, at).into()),
            Type::Unsigned(_) => Found::Integer(read::<u64>(data, at).into()),
            Type::Float(4) => Found::Float(read::<f32>(data, at).into()),
            Type::Float(_) => Found::Float(read::<f64>(data, at)),
            Type::Text => {
                let (begin, end) = (read::<i32>(data, at), read::<i32>(data, at + 1));
                Found::Text(slice(buffer(array, 2), begin.into(), end.into())?)
            }
            Type::LargeText => {
                let (begin, end) = (read::<i64>(data, at), read::<i64>(data, at + 1));
                Found::Text(slice(buffer(array, 2), begin, end)?)
            }
            Type::TextView => Found::Text(view(array, data.add(16 * at))?),
        })
    }
}

/// Returns a value in a buffer. The value need not have the alignment of its type.
///
/// # Safety
/// The buffer must have more than `at` values of this type.
unsafe fn read<T: Copy>(data: *const u8, at: usize) -> T {
    // SAFETY: the caller guarantees that the buffer contains this value.
    unsafe { data.cast::<T>().add(at).read_unaligned() }
}

/// Returns a buffer of an array; `None` if there is none.
fn buffer(array: &ArrowArray, number: usize) -> Option<*const u8> {
    if usize::try_from(array.n_buffers).unwrap_or(0) <= number {
        return None;
    }
    // SAFETY: the array has this number of buffers.
    let buffer: *const c_void = unsafe { *array.buffers.add(number) };
    (!buffer.is_null()).then_some(buffer.cast())
}

/// Returns the string between two offsets of a buffer.
///
/// # Safety
/// The offsets must lie within the buffer.
unsafe fn slice<'a>(data: Option<*const u8>, begin: i64, end: i64) -> Result<&'a str, Error> {
    let (Ok(begin), Ok(length)) = (usize::try_from(begin), usize::try_from(end - begin)) else {
        return Err(broken("the offsets of a string are out of order"));
    };
    if length == 0 {
        return Ok("");
    }
    let data = data.ok_or_else(|| broken("a string column has no data buffer"))?;
    // SAFETY: the caller guarantees that the offsets lie within the buffer.
    let bytes = unsafe { std::slice::from_raw_parts(data.add(begin), length) };
    from_utf8(bytes).map_err(|_| broken("a string is not UTF-8"))
}

/// Returns the string of a view. A view has 16 bytes: the length of the string, and either the string itself or its
/// position in a buffer.
///
/// # Safety
/// The view must belong to the array.
unsafe fn view<'a>(array: &ArrowArray, view: *const u8) -> Result<&'a str, Error> {
    // SAFETY: a view has 16 bytes, and its position lies within the buffer with its number.
    unsafe {
        let length = read::<i32>(view, 0);
        if usize::try_from(length).is_ok_and(|length| length <= INLINE) {
            return slice(Some(view.add(4)), 0, length.into());
        }
        let (number, begin) = (read::<i32>(view, 2), i64::from(read::<i32>(view, 3)));
        // The first two buffers are the bitmap and the views.
        let number = usize::try_from(number)
            .map_err(|_| broken("a string refers to a buffer that does not exist"))?
            + 2;
        slice(buffer(array, number), begin, begin + i64::from(length))
    }
}

fn stream_schema(stream: &mut ArrowArrayStream) -> Result<ArrowSchema, Error> {
    let get = stream.get_schema.ok_or_else(|| broken("the stream was read before"))?;
    let mut schema = MaybeUninit::uninit();
    // SAFETY: the stream is not released, and the function fills the schema if it returns 0.
    unsafe {
        match get(stream, schema.as_mut_ptr()) {
            0 => Ok(schema.assume_init()),
            code => Err(failed(stream, code)),
        }
    }
}

/// Returns the next batch; `None` at the end of the stream.
fn next(stream: &mut ArrowArrayStream) -> Result<Option<ArrowArray>, Error> {
    let get = stream.get_next.ok_or_else(|| broken("the stream was read before"))?;
    let mut array = MaybeUninit::uninit();
    // SAFETY: as for the schema.
    unsafe {
        match get(stream, array.as_mut_ptr()) {
            0 => {
                let array: ArrowArray = array.assume_init();
                Ok(array.release.is_some().then_some(array))
            }
            code => Err(failed(stream, code)),
        }
    }
}

/// Returns the error that the producer reports.
fn failed(stream: &mut ArrowArrayStream, code: i32) -> Error {
    let message = stream.get_last_error.map(|get| {
        // SAFETY: the stream is not released; the message lives until its next call.
        unsafe { get(stream) }
    });
    let message = message
        .filter(|text| !text.is_null())
        .map_or_else(|| format!("error {code}"), |it| text(it).to_owned());
    Error::new(
        format!("the table cannot be read: {message}"),
        "the library that made the table reports this error",
    )
}

/// Converts a C string; returns an empty string if it is null or not UTF-8.
fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: the strings of the interface end with a zero byte, and live as long as their struct.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

fn broken(problem: &str) -> Error {
    Error::new(
        format!("the table breaks a rule of Arrow's C interface: {problem}"),
        "this is a defect of the library that made the table",
    )
}
