//! How a command ends when it cannot do what it was asked.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ContextKind;
use fullpipe::lab::experiment::ExperimentError;
use fullpipe::units::ParseUnitError;
use fullpipe::{ErrorKind, InputError};

use crate::args::Args;

/// The input cannot be used, or the run went wrong.
pub(crate) const RUNTIME: u8 = 1;
/// The command line is not one.
pub(crate) const USAGE: u8 = 2;
/// The other end cannot be reached, refuses or breaks off.
pub(crate) const NETWORK: u8 = 3;
/// The machine does not let the process do it.
pub(crate) const RIGHTS: u8 = 4;
/// A change was begun, did not succeed, and is taken back.
pub(crate) const REVERTED: u8 = 6;
/// There is no such command: the exit code of shells.
pub(crate) const NO_COMMAND: u8 = 127;
/// The run is fine and an expectation is not met.
pub(crate) const EXPECTATION: u8 = 5;
/// Ended by Ctrl-C: 128 and the number of the signal, as shells count.
pub(crate) const INTERRUPTED: u8 = 130;

/// What went wrong and what to do instead, in a line each.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), code: RUNTIME }
    }

    /// A command line whose parts do not go together.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: USAGE, ..Self::new(message, hint) }
    }

    /// The same with another exit code.
    pub(crate) fn exiting(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The same, with what it is about in front.
    pub(crate) fn about(self, subject: impl fmt::Display) -> Self {
        Self { message: format!("{subject}: {}", self.message), ..self }
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Tells the user; the exit code of the process.
    pub(crate) fn report(&self) -> ExitCode {
        // What is quoted may hold anything; a line stays a line.
        let one_line = |text: &str| text.replace(char::is_control, " ");
        eprintln!("error: {}", one_line(&self.message));
        if !self.hint.is_empty() {
            eprintln!("hint: {}", one_line(&self.hint));
        }
        ExitCode::from(self.code)
    }
}

impl From<clap::Error> for Failure {
    /// The parser's essay in two lines: what is wrong, and its own tip, the values there are or the help.
    fn from(error: clap::Error) -> Self {
        let unit = error.source().and_then(|source| source.downcast_ref::<ParseUnitError>());
        let rendered = error.render().to_string();
        let mut paragraphs = rendered.split("\n\n");
        let what = paragraphs.next().unwrap_or_default();
        let (values, what): (Vec<&str>, Vec<&str>) =
            what.lines().map(str::trim).partition(|line| line.starts_with("[possible values: "));
        let what = what.join(" ");
        let what = what.trim_start_matches("error: ");
        // A parser's own words say what is wrong with a value: it need not be quoted before as well.
        let message = match (error.get(ContextKind::InvalidArg), error.source()) {
            (Some(argument), Some(source)) => format!("{argument}: {source}"),
            _ => what.to_owned(),
        };
        let size = error.source().and_then(|source| source.downcast_ref::<ExperimentError>());
        let tip = paragraphs.find_map(|text| text.trim().strip_prefix("tip: "));
        let values = values.first().map(|values| values.trim_matches(['[', ']']));
        let own = unit.map(ParseUnitError::hint).or(size.map(|error| error.hint.as_str()));
        let hint = own.filter(|hint| !hint.is_empty()).or(tip).or(values);
        let hint = hint.map_or_else(|| format!("see {} --help", command_line()), str::to_owned);
        Self { code: USAGE, ..Self::new(message, hint) }
    }
}

/// As much of the command line as names a command.
fn command_line() -> String {
    let named = std::env::args().nth(1).filter(|name| Args::command().find_subcommand(name).is_some());
    named.map_or_else(|| "fullpipe".into(), |name| format!("fullpipe {name}"))
}

impl From<fullpipe::Error> for Failure {
    fn from(error: fullpipe::Error) -> Self {
        let code = match error.kind {
            ErrorKind::Usage => USAGE,
            ErrorKind::Rights => RIGHTS,
            ErrorKind::NoCommand => NO_COMMAND,
            ErrorKind::Network => NETWORK,
            ErrorKind::Reverted => REVERTED,
            _ => RUNTIME,
        };
        Self::new(error.message, error.hint).exiting(code)
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        fullpipe::Error::from(error).into()
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        fullpipe::Error::from(error).into()
    }
}

#[cfg(target_os = "linux")]
impl From<fullpipe::linux::Error> for Failure {
    fn from(error: fullpipe::linux::Error) -> Self {
        fullpipe::Error::from(error).into()
    }
}
