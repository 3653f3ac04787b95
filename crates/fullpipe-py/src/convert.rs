//! Converts Python values to values with units.

use std::ops::RangeInclusive;
use std::str::FromStr;

use fullpipe::Error;
use fullpipe::units::{Bytes, Duration, ParseUnitError, Probability, Rate};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::errors::{exception, usage};

/// Quantity that is written as a number and a unit.
pub(crate) trait Quantity: FromStr<Err = ParseUnitError> {
    /// Values to show in a hint.
    const EXAMPLE: &'static str;
}

impl Quantity for Rate {
    const EXAMPLE: &'static str = "100mbit or 1gbit";
}

impl Quantity for Duration {
    const EXAMPLE: &'static str = "210ms or 0.21s";
}

impl Quantity for Bytes {
    const EXAMPLE: &'static str = "64KiB or 1MB";
}

impl Quantity for Probability {
    const EXAMPLE: &'static str = "1.5% or 20ppm";
}

/// Whole numbers that are at least zero.
pub(crate) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// Parses the argument `name`, which is a string with a unit, or `None`.
///
/// # Errors
/// Returns a `UsageError` if the value is not a string, such as a bare number, or if the string is not a
/// value of this type.
pub(crate) fn unit<T: Quantity>(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<T>> {
    let Some(value) = value else { return Ok(None) };
    let py = value.py();
    let text = text(name, value, &format!("write the value with its unit in quotes: {name}=\"...\""))?;
    text.parse().map(Some).map_err(|error: ParseUnitError| {
        let hint = match error.hint() {
            "" => format!("write {}", T::EXAMPLE),
            hint => hint.into(),
        };
        usage(py, format!("{name}: {error}"), hint)
    })
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
    let text = text(name, value, hint)?;
    text.parse().map(Some).map_err(|error: T::Err| usage(py, format!("{name}: {error}"), hint))
}

/// Converts the argument `name`, which is a string. The hint says what to pass instead of another type.
///
/// # Errors
/// Returns a `UsageError` if the value is not a string, or contains half a surrogate pair.
pub(crate) fn text(name: &str, value: &Bound<'_, PyAny>, hint: &str) -> PyResult<String> {
    let py = value.py();
    match value.cast::<PyString>() {
        Ok(text) => text.extract().map_err(|_| {
            usage(py, format!("{name} is not valid Unicode"), "pass a str that UTF-8 can encode")
        }),
        Err(_) => {
            let message = format!("{name} is {}, but a str is expected", value.repr()?.to_string_lossy());
            Err(usage(py, message, hint))
        }
    }
}

/// Converts the argument `name`, which is a whole number or `None`.
///
/// # Errors
/// As those of [`whole`].
pub(crate) fn whole_or_none<T: TryFrom<u64>>(
    name: &str,
    value: Option<&Bound<'_, PyAny>>,
    allowed: RangeInclusive<u64>,
) -> PyResult<Option<T>> {
    value.map(|value| whole(name, value, allowed)).transpose()
}

/// Converts the argument `name`, which is a whole number.
///
/// # Errors
/// Returns a `UsageError` if the value is not an integer, or is out of range.
pub(crate) fn whole<T: TryFrom<u64>>(
    name: &str,
    value: &Bound<'_, PyAny>,
    allowed: RangeInclusive<u64>,
) -> PyResult<T> {
    let py = value.py();
    // A Boolean value of Python is also an integer.
    let number = (!value.is_instance_of::<PyBool>()).then(|| value.extract::<u64>());
    let number = match number {
        Some(Ok(number)) => allowed.contains(&number).then_some(number),
        Some(Err(error)) if error.is_instance_of::<PyOverflowError>(py) => None,
        _ => {
            let message = format!("{name} is a {}, but a whole number is expected", type_name(value));
            return Err(usage(py, message, format!("pass a whole number: {name}=2")));
        }
    };
    match number.and_then(|number| T::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => {
            let (least, most) = allowed.into_inner();
            let hint = if most == u64::MAX {
                format!("allowed: {least} or more, up to 64 bits")
            } else {
                format!("allowed: {least} to {most}")
            };
            let shown = value.repr().map_or_else(|_| "too large".into(), |text| text.to_string());
            Err(usage(py, format!("{name} is {shown}"), hint))
        }
    }
}

/// Converts the argument `name`, which is a Boolean value.
///
/// # Errors
/// Returns a `UsageError` if the value is not a Boolean value.
pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.cast::<PyBool>().map(|flag| flag.is_true()).map_err(|_| {
        let message = format!("{name} is a {}, but True or False is expected", type_name(value));
        usage(value.py(), message, format!("write {name}=True, or leave it out"))
    })
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "value of another type".into(), |name| name.to_string())
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
