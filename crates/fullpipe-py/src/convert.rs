//! Converts Python values to values with units.

use std::str::FromStr;

use fullpipe::Error;
use fullpipe::units::ParseUnitError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{exception, usage};

/// Parses the argument `name`, which is a string with a unit, or `None`.
///
/// # Errors
/// Returns a `UsageError` if the value is not a string, such as a bare number, or if the string is not a
/// value of this type.
pub(crate) fn unit<T: FromStr<Err = ParseUnitError>>(
    name: &str,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<T>> {
    let Some(value) = value else { return Ok(None) };
    let py = value.py();
    let text = text(name, value)?;
    text.parse()
        .map(Some)
        .map_err(|error: ParseUnitError| usage(py, format!("{name}: {error}"), error.hint()))
}

/// Parses the argument `name`, which is a name (of a congestion control, for example) or `None`.
///
/// # Errors
/// Returns a `UsageError` if the value is not a string, or if the string is not a value of this type.
pub(crate) fn name<T: FromStr>(
    name: &str,
    value: Option<&Bound<'_, PyAny>>,
    hint: &str,
) -> PyResult<Option<T>>
where
    T::Err: std::fmt::Display,
{
    let Some(value) = value else { return Ok(None) };
    let py = value.py();
    let text = text(name, value)?;
    text.parse().map(Some).map_err(|error: T::Err| usage(py, format!("{name}: {error}"), hint))
}

fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.cast::<PyString>() {
        Ok(text) => text.extract(),
        Err(_) => {
            let message = format!("{name} is {}, but a str is expected", value.repr()?.to_string_lossy());
            Err(usage(
                value.py(),
                message,
                format!("write the value with its unit in quotes: {name}=\"...\""),
            ))
        }
    }
}

/// Converts a JSON object into a TOML document.
#[pyfunction]
pub(crate) fn toml_of_json(py: Python<'_>, json: &str) -> PyResult<String> {
    let converted = serde_json::from_str::<toml::Table>(json)
        .map_err(|error| error.to_string())
        .and_then(|table| toml::to_string(&table).map_err(|error| error.to_string()));
    converted.map_err(|problem| {
        let problem = problem.replace('\n', " ");
        exception(
            py,
            &Error::usage(format!("not an experiment: {problem}"), "use str, numbers, lists and dicts"),
        )
    })
}
