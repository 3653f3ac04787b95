//! Runs experiments in the simulator.

use std::path::PathBuf;

use fullpipe::table::{SimulateOptions, Source};
use pyo3::prelude::*;

use crate::errors::{exception, usage};
use crate::table::Table;
use crate::work::{AtSignal, attended};

/// Runs the experiment in the file `path`, or `text`, and returns the JSON document that `--json` prints, the
/// table of runs, and the trace if `traced` is true.
#[pyfunction]
#[pyo3(signature = (path, text, *, seed, repeat, traced, progress))]
pub(crate) fn simulate(
    py: Python<'_>,
    path: Option<PathBuf>,
    text: Option<String>,
    seed: Option<u64>,
    repeat: Option<u64>,
    traced: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(String, Table, Option<Table>)> {
    check_repeat(py, repeat)?;
    let options = SimulateOptions { seed, repeat, traced };
    let (json, runs, trace) = attended(py, AtSignal::Wait, progress.as_ref(), move |attendance| {
        let source = match &path {
            Some(path) => Source::File(path),
            None => Source::Text(text.as_deref().unwrap_or_default()),
        };
        let made = fullpipe::table::simulate(source, options, attendance)?;
        Ok((fullpipe::json::document(&made.document)?, made.runs, made.trace))
    })?;
    Ok((json, runs.into(), trace.map(Table::from)))
}

/// Checks the number of seeds per point.
pub(crate) fn check_repeat(py: Python<'_>, repeat: Option<u64>) -> PyResult<()> {
    match repeat {
        Some(number) if !(1..=10_000).contains(&number) => {
            Err(usage(py, format!("repeat is {number}"), "allowed: 1 to 10000"))
        }
        _ => Ok(()),
    }
}

/// Converts the error of a result into an exception.
pub(crate) fn raised<T>(py: Python<'_>, result: Result<T, fullpipe::Error>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}
