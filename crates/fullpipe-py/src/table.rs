//! A table of results as a Python object that other libraries read without a copy.

use std::sync::Arc;

use fullpipe::lab::columns::Cell;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::arrow;
use crate::convert::text;
use crate::errors::usage;

/// Table of results: typed columns whose names end in their units.
#[pyclass(frozen, module = "fullpipe")]
pub(crate) struct Table(pub(crate) Arc<fullpipe::table::Table>);

impl From<fullpipe::table::Table> for Table {
    fn from(table: fullpipe::table::Table) -> Self {
        Self(Arc::new(table))
    }
}

#[pymethods]
impl Table {
    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.rows()
    }

    /// Names of the columns, in the order of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.0.columns().iter().map(|column| column.name.as_str()).collect()
    }

    /// Types of the columns by name: u32, u64, f64, bool, text, or word for strings with few distinct values.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let types = PyDict::new(py);
        self.0.columns().iter().try_for_each(|column| types.set_item(&column.name, &column.kind))?;
        Ok(types)
    }

    /// Returns the values of a column as a list; None for a row without a value.
    fn column<'py>(&self, py: Python<'py>, name: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let hint = "column_names lists the columns";
        let name = text("the name of a column", &name, hint)?;
        let number = self.0.columns().iter().position(|column| column.name == name);
        let number = number.ok_or_else(|| usage(py, format!("the table has no column '{name}'"), hint))?;
        self.values(py, number)
    }

    /// Returns all values as a dict of lists.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (number, column) in self.0.columns().iter().enumerate() {
            columns.set_item(&column.name, self.values(py, number)?)?;
        }
        Ok(columns)
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<fullpipe.Table: {} rows, {} columns>", self.num_rows(), self.0.columns().len())
    }

    /// Returns the schema as a capsule of Arrow's PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, arrow::schema(self.0.columns()), c"arrow_schema")
    }

    /// Returns the rows as a capsule of Arrow's PyCapsule interface. A request for another schema is ignored, as
    /// the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        PyCapsule::new_with_value(py, arrow::stream(&self.0), c"arrow_array_stream")
    }
}

impl Table {
    /// Returns the values of the column with this number.
    fn values<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for batch in self.0.batches() {
            for row in 0..batch.rows {
                match batch.columns[number].cell(row) {
                    Cell::Null => list.append(py.None())?,
                    Cell::U32(value) => list.append(value)?,
                    Cell::U64(value) => list.append(value)?,
                    Cell::F64(value) => list.append(value)?,
                    Cell::Bool(value) => list.append(value)?,
                    Cell::Text(value) => list.append(&*value)?,
                }
            }
        }
        Ok(list)
    }
}
