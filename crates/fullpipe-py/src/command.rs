//! Runs the `fullpipe` command in this process.

use std::ffi::OsString;
use std::path::PathBuf;

use fullpipe_cli::{Interpreter, run_in};
use pyo3::prelude::*;

/// Runs the command with `arguments`, which do not include its name, and returns its exit code. To start the
/// package again, the command runs the interpreter `program` with the arguments `leading` before its own
/// arguments.
#[pyfunction]
pub(crate) fn command(
    py: Python<'_>,
    arguments: Vec<OsString>,
    program: PathBuf,
    leading: Vec<OsString>,
) -> u8 {
    py.detach(|| run_in(Interpreter { program, arguments: leading }, arguments))
}

/// Returns the version of fullpipe.
#[pyfunction]
pub(crate) const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
