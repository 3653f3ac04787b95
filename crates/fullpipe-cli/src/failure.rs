//! How a command ends when it cannot do what it was asked.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ContextKind;
use fullpipe_analysis::InputError;
use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::experiment::ExperimentError;
use fullpipe_units::ParseUnitError;

use crate::args::Args;

/// The input cannot be used, or the run went wrong.
pub(crate) const RUNTIME: u8 = 1;
/// The command line is not one.
pub(crate) const USAGE: u8 = 2;
/// The other end cannot be reached, refuses or breaks off.
#[cfg(target_os = "linux")]
pub(crate) const NETWORK: u8 = 3;
/// The machine does not let the process do it.
#[cfg(target_os = "linux")]
pub(crate) const RIGHTS: u8 = 4;
/// A change was begun, did not succeed, and is taken back.
#[cfg(target_os = "linux")]
pub(crate) const REVERTED: u8 = 6;
/// There is no such command: the exit code of shells.
#[cfg(target_os = "linux")]
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

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        Self::new(error.message, error.hint)
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::new(error.message, error.hint)
    }
}

impl From<RunPanicked> for Failure {
    fn from(error: RunPanicked) -> Self {
        Self::new(error.to_string(), "this is a defect of fullpipe: please report it with the input")
    }
}

#[cfg(target_os = "linux")]
impl From<fullpipe_linux::Error> for Failure {
    fn from(error: fullpipe_linux::Error) -> Self {
        let code = match error.kind {
            fullpipe_linux::Kind::Rights => RIGHTS,
            fullpipe_linux::Kind::NoCommand => NO_COMMAND,
            fullpipe_linux::Kind::Network => NETWORK,
            fullpipe_linux::Kind::Reverted => REVERTED,
            fullpipe_linux::Kind::Settings | fullpipe_linux::Kind::System => RUNTIME,
        };
        Self::new(error.message, error.hint).exiting(code)
    }
}
