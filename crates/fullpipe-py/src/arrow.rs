//! Exports tables through Arrow's C data interface and C stream interface.
//!
//! The structs and their rules are those of <https://arrow.apache.org/docs/format/CDataInterface.html> and
//! `CStreamInterface.html`: a producer fills a struct; its consumer calls `release` once, or moves the struct
//! by copying it and clearing `release` of the original. An exported array refers to the buffers of the table
//! and keeps the table alive. Nothing is copied.
#![allow(unsafe_code, reason = "C structs that other libraries read and release")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::iter;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use fullpipe::table::{Batch, ColumnData, ColumnSpec, Table, Texts, Values};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Flag of a field whose values may be null (`ARROW_FLAG_NULLABLE`).
const NULLABLE: i64 = 2;

/// `struct ArrowSchema`.
#[repr(C)]
pub(crate) struct ArrowSchema {
    pub(crate) format: *const c_char,
    pub(crate) name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    pub(crate) n_children: i64,
    pub(crate) children: *mut *mut Self,
    pub(crate) dictionary: *mut Self,
    pub(crate) release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
pub(crate) struct ArrowArray {
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    pub(crate) n_buffers: i64,
    pub(crate) n_children: i64,
    pub(crate) buffers: *mut *const c_void,
    pub(crate) children: *mut *mut Self,
    pub(crate) dictionary: *mut Self,
    pub(crate) release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
pub(crate) struct ArrowArrayStream {
    pub(crate) get_schema: Option<unsafe extern "C" fn(*mut Self, *mut ArrowSchema) -> c_int>,
    pub(crate) get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowArray) -> c_int>,
    pub(crate) get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    pub(crate) release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

// SAFETY: the pointers point to memory that only this struct owns, and to buffers that do not change.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArrayStream {}

impl Drop for ArrowSchema {
    /// Releases the struct, unless a consumer has moved or released it.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: `release` is the function that the producer has set, and was not called before.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArrayStream {
    /// Releases the struct, unless a consumer has moved or released it.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for a schema.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    /// Releases the struct, unless a consumer has moved or released it.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for a schema.
            unsafe { release(self) }
        }
    }
}

/// Moves the stream out of a capsule, so that the caller releases the stream instead of the capsule.
pub(crate) fn taken_stream(capsule: &Bound<'_, PyCapsule>) -> PyResult<ArrowArrayStream> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule with this name contains a stream. The copy is released instead of the original.
    unsafe {
        let stream = pointer.cast::<ArrowArrayStream>().as_ptr();
        let taken = stream.read();
        (*stream).release = None;
        Ok(taken)
    }
}

/// Memory to which the pointers of an exported schema point.
struct SchemaContent {
    format: &'static CStr,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

/// Memory to which the pointers of an exported array point.
struct ArrayContent {
    /// Owner of the values. The struct array of a batch has none.
    _batch: Option<Arc<Batch>>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

/// State to which the private pointer of an exported stream points.
struct StreamContent {
    table: Arc<Table>,
    next: usize,
}

/// Returns the schema of a table: a struct whose fields are the columns.
pub(crate) fn schema(columns: &[ColumnSpec]) -> ArrowSchema {
    let field = |column: &ColumnSpec| {
        let format = match column.kind.as_str() {
            "u32" => c"I",
            "u64" => c"L",
            "f64" => c"g",
            "bool" => c"b",
            // Dictionary indices of words; the dictionary contains the words.
            "word" => c"i",
            _ => c"u",
        };
        let flags = if column.optional { NULLABLE } else { 0 };
        let mut field = schema_of(format, &column.name, flags, Vec::new());
        if column.kind == "word" {
            field.dictionary = Box::into_raw(Box::new(schema_of(c"u", "", 0, Vec::new())));
        }
        Box::into_raw(Box::new(field))
    };
    schema_of(c"+s", "", 0, columns.iter().map(field).collect())
}

fn schema_of(format: &'static CStr, name: &str, flags: i64, children: Vec<*mut ArrowSchema>) -> ArrowSchema {
    // The names of columns are identifiers, so none contains a zero byte.
    let content = SchemaContent { format, name: CString::new(name).unwrap_or_default(), children };
    let content = Box::into_raw(Box::new(content));
    // SAFETY: the pointer comes from a box, and nobody else has it yet.
    let parts = unsafe { &mut *content };
    ArrowSchema {
        format: parts.format.as_ptr(),
        name: parts.name.as_ptr(),
        metadata: null(),
        flags,
        n_children: count(parts.children.len()),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: content.cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller passes a struct of `schema_of` that was not released before.
    unsafe {
        let content = Box::from_raw((*schema).private_data.cast::<SchemaContent>());
        // If a consumer has moved a child, its `release` is cleared, so this frees only its box.
        content.children.iter().for_each(|child| drop(Box::from_raw(*child)));
        if !(*schema).dictionary.is_null() {
            drop(Box::from_raw((*schema).dictionary));
        }
        (*schema).release = None;
    }
}

/// Returns a batch as a struct array whose children are the columns.
fn array(batch: &Arc<Batch>) -> ArrowArray {
    let column = |data: &ColumnData| {
        let (validity, nulls) = match &data.validity {
            // Without nulls, the bitmap may be absent.
            Some(validity) if validity.nulls > 0 => (validity.bits.bytes.as_ptr().cast(), validity.nulls),
            _ => (null(), 0),
        };
        let mut buffers = vec![validity];
        match &data.values {
            Values::U32(values) => buffers.push(values.as_ptr().cast()),
            Values::U64(values) => buffers.push(values.as_ptr().cast()),
            Values::F64(values) => buffers.push(values.as_ptr().cast()),
            Values::Bool(bits) => buffers.push(bits.bytes.as_ptr().cast()),
            Values::Text(texts) => buffers.extend(buffers_of(texts)),
            Values::Words { keys, .. } => buffers.push(keys.as_ptr().cast()),
        }
        let content =
            |buffers| ArrayContent { _batch: Some(Arc::clone(batch)), buffers, children: Vec::new() };
        let mut array = array_of(batch.rows, nulls, content(buffers));
        if let Values::Words { words, .. } = &data.values {
            let buffers = iter::once(null()).chain(buffers_of(words)).collect();
            array.dictionary = Box::into_raw(Box::new(array_of(words.count(), 0, content(buffers))));
        }
        Box::into_raw(Box::new(array))
    };
    let children = batch.columns.iter().map(column).collect();
    array_of(batch.rows, 0, ArrayContent { _batch: None, buffers: vec![null()], children })
}

/// Returns the buffers of strings: their offsets, and their bytes.
fn buffers_of(texts: &Texts) -> [*const c_void; 2] {
    [texts.offsets.as_ptr().cast(), texts.bytes.as_ptr().cast()]
}

fn array_of(length: usize, nulls: usize, content: ArrayContent) -> ArrowArray {
    let content = Box::into_raw(Box::new(content));
    // SAFETY: the pointer comes from a box, and nobody else has it yet.
    let parts = unsafe { &mut *content };
    ArrowArray {
        length: count(length),
        null_count: count(nulls),
        offset: 0,
        n_buffers: count(parts.buffers.len()),
        n_children: count(parts.children.len()),
        buffers: parts.buffers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: content.cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the caller passes a struct of `array_of` that was not released before.
    unsafe {
        let content = Box::from_raw((*array).private_data.cast::<ArrayContent>());
        // As for a schema: if a child was moved, this frees only its box.
        content.children.iter().for_each(|child| drop(Box::from_raw(*child)));
        if !(*array).dictionary.is_null() {
            drop(Box::from_raw((*array).dictionary));
        }
        (*array).release = None;
    }
}

/// Returns a stream of the batches of a table.
pub(crate) fn stream(table: &Arc<Table>) -> ArrowArrayStream {
    let content = Box::new(StreamContent { table: Arc::clone(table), next: 0 });
    ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(content).cast(),
    }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the caller passes a stream of `stream` that is not released, and memory for a schema, which is not
    // initialised.
    unsafe {
        let content = &*(*stream).private_data.cast::<StreamContent>();
        out.write(schema(content.table.columns()));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as for `get_schema`; only one thread at a time uses a stream.
    unsafe {
        let content = &mut *(*stream).private_data.cast::<StreamContent>();
        match content.table.batches().get(content.next) {
            Some(batch) => {
                content.next += 1;
                out.write(array(batch));
            }
            // A released array marks the end of the stream.
            None => out.write_bytes(0, 1),
        }
    }
    0
}

unsafe extern "C" fn get_last_error(_: *mut ArrowArrayStream) -> *const c_char {
    null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the caller passes a stream of `stream` that was not released before.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<StreamContent>()));
        (*stream).release = None;
    }
}

/// Converts a number of rows, buffers or columns to `i64`. The number always fits, because the size of memory
/// bounds it.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
