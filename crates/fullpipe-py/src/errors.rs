//! Converts errors to Python exceptions: one class per category, with message and hint.

use fullpipe::{Error, ErrorKind};
use pyo3::prelude::*;

/// Returns the exception for an error. The class of the exception is defined in
/// `fullpipe/_errors.py`.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error.kind {
        ErrorKind::Usage => "UsageError",
        ErrorKind::Network => "NetworkError",
        ErrorKind::Rights => "RightsError",
        ErrorKind::Reverted => "RevertedError",
        ErrorKind::NoCommand => "CommandNotFoundError",
        _ => "InputError",
    };
    // Text quoted from an input may contain control characters, but a message is one line.
    let one_line = |text: &str| text.replace(char::is_control, " ");
    let made = py
        .import("fullpipe._errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| class.call1((one_line(&error.message), one_line(&error.hint))));
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// Returns a `UsageError` for an invalid argument.
pub(crate) fn usage(py: Python<'_>, message: String, hint: impl Into<String>) -> PyErr {
    exception(py, &Error::usage(message, hint))
}
