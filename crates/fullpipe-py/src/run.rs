//! Runs experiments in the simulator.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use fullpipe::table::{SimulateOptions, Source};
use pyo3::prelude::*;

use crate::convert::{ANY, flag, text, whole_or_none};
use crate::errors::exception;
use crate::table::Table;
use crate::work::{AtSignal, attended};

/// Runs the experiment in the file `path`, or `text`, and returns the JSON document that `--json` prints, the
/// table of runs, and the trace if `traced` is true.
#[pyfunction]
#[pyo3(signature = (path, text, *, seed, repeat, traced, progress))]
pub(crate) fn simulate(
    py: Python<'_>,
    path: Option<PathBuf>,
    text: Option<Bound<'_, PyAny>>,
    seed: Option<Bound<'_, PyAny>>,
    repeat: Option<Bound<'_, PyAny>>,
    traced: Bound<'_, PyAny>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(String, Table, Option<Table>)> {
    let text = experiment_text(text.as_ref())?;
    let options = SimulateOptions {
        seed: whole_or_none("seed", seed.as_ref(), ANY)?,
        repeat: whole_or_none("repeat", repeat.as_ref(), REPEAT)?,
        traced: flag("trace", &traced)?,
    };
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

/// Allowed numbers of seeds per point.
pub(crate) const REPEAT: RangeInclusive<u64> = 1..=10_000;

/// Converts the text of an experiment.
pub(crate) fn experiment_text(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    value.map(|value| text("the experiment", value, "pass the text of an experiment file")).transpose()
}

/// Converts the error of a result into an exception.
pub(crate) fn raised<T>(py: Python<'_>, result: Result<T, fullpipe::Error>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}
