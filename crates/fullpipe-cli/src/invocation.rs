//! Records how the command was started: its arguments, and the interpreter if it runs in one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::failure::Failure;

static INVOCATION: OnceLock<Invocation> = OnceLock::new();

#[derive(Debug)]
struct Invocation {
    arguments: Vec<OsString>,
    interpreter: Option<Interpreter>,
}

/// An interpreter that runs the command, with its leading arguments, such as `python -m fullpipe`.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Path of the interpreter.
    pub program: PathBuf,
    /// Arguments of the interpreter that precede those of the command.
    pub arguments: Vec<OsString>,
}

/// Records how the command was started. Only the first call has an effect.
pub(crate) fn begin(arguments: &[OsString], interpreter: Option<Interpreter>) {
    let _ = INVOCATION.set(Invocation { arguments: arguments.into(), interpreter });
}

/// Returns the arguments of the command, without the name of the program.
pub(crate) fn arguments() -> Vec<OsString> {
    INVOCATION
        .get()
        .map_or_else(|| std::env::args_os().skip(1).collect(), |invocation| invocation.arguments.clone())
}

/// Returns the arguments of the command as strings.
pub(crate) fn words() -> Vec<String> {
    arguments().iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Returns the interpreter in which the command runs; `None` if the command is an executable file.
pub(crate) fn interpreter() -> Option<&'static Interpreter> {
    INVOCATION.get()?.interpreter.as_ref()
}

/// Checks that the running program is `fullpipe` itself, because it must be started a second time for `what`, as
/// another user. That user may not be permitted to read the files of a Python package.
///
/// # Errors
/// Returns an error if the command runs in an interpreter.
pub(crate) fn require_program(what: &str) -> Result<(), Failure> {
    if interpreter().is_none() {
        return Ok(());
    }
    Err(Failure::new(
        format!("{what} requires the program fullpipe, but this is the Python package"),
        "install the program: cargo install fullpipe-cli, or the .deb or the tarball of the release",
    ))
}
