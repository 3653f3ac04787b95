//! Records how the command was started: its arguments, and the interpreter if the command runs in one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

static INVOCATION: OnceLock<Invocation> = OnceLock::new();

#[derive(Debug)]
struct Invocation {
    arguments: Vec<OsString>,
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "commands that start the program again need Linux")
    )]
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

/// Returns the interpreter in which the command runs; `None` if the command is a standalone program.
#[cfg(target_os = "linux")]
pub(crate) fn interpreter() -> Option<&'static Interpreter> {
    INVOCATION.get()?.interpreter.as_ref()
}
