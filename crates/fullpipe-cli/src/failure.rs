//! Failures of a command, each with a message, a hint and an exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};
use fullpipe::lab::experiment::ExperimentError;
use fullpipe::units::ParseUnitError;
use fullpipe::{ErrorKind, InputError};

use crate::args::Args;
use crate::{invocation, suggestion};

/// Exit code: the input is not usable, or a run failed.
pub(crate) const RUNTIME: u8 = 1;
/// Exit code: the command-line arguments are invalid.
pub(crate) const USAGE: u8 = 2;
/// Exit code: the peer (an iperf3 server or a relay) is unreachable, refuses the connection or disconnects.
pub(crate) const NETWORK: u8 = 3;
/// Exit code: the process lacks a required privilege, or one end does not accept the key of the other.
pub(crate) const RIGHTS: u8 = 4;
/// Exit code: a change to the host failed, and all changes were rolled back.
pub(crate) const REVERTED: u8 = 6;
/// Exit code: the command to run does not exist, as in shells.
pub(crate) const NO_COMMAND: u8 = 127;
/// Exit code: the command completed, but an expectation is not met.
pub(crate) const EXPECTATION: u8 = 5;
/// Exit code after Ctrl-C: 128 plus the number of the signal SIGINT, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Failure of a command: a one-line message, a one-line hint and an exit code.
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

    /// Creates a failure for command-line arguments that contradict each other.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: USAGE, ..Self::new(message, hint) }
    }

    /// Replaces the exit code of the failure.
    pub(crate) fn exiting(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Prefixes the message of the failure with its subject, such as the name of a file.
    pub(crate) fn about(self, subject: impl fmt::Display) -> Self {
        Self { message: format!("{subject}: {}", self.message), ..self }
    }

    /// Returns the message of the failure.
    #[cfg(target_os = "linux")]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints message and hint to standard error, and returns the exit code for the process.
    pub(crate) fn report(&self) -> ExitCode {
        // Text quoted from the input may contain control characters, but each message must stay on one line.
        let one_line = |text: &str| text.replace(char::is_control, " ");
        eprintln!("error: {}", one_line(&self.message));
        if !self.hint.is_empty() {
            eprintln!("hint: {}", one_line(&self.hint));
        }
        ExitCode::from(self.code)
    }
}

impl From<clap::Error> for Failure {
    /// Shortens the message of the argument parser to two lines: the error, and a hint. The hint is the
    /// parser's tip, the possible values or the help command.
    fn from(error: clap::Error) -> Self {
        let unit = error.source().and_then(|source| source.downcast_ref::<ParseUnitError>());
        let rendered = error.render().to_string();
        let mut paragraphs = rendered.split("\n\n");
        let what = paragraphs.next().unwrap_or_default();
        let (values, what): (Vec<&str>, Vec<&str>) =
            what.lines().map(str::trim).partition(|line| line.starts_with("[possible values: "));
        let what = what.join(" ");
        let what = what.trim_start_matches("error: ");
        // The message of the value parser already names the invalid value, so the value is not quoted again.
        let message = match (error.get(ContextKind::InvalidArg), error.source()) {
            (Some(argument), Some(source)) => format!("{argument}: {source}"),
            _ => what.to_owned(),
        };
        let size = error.source().and_then(|source| source.downcast_ref::<ExperimentError>());
        let tip = paragraphs.find_map(|text| text.trim().strip_prefix("tip: "));
        let values = values.first().map(|values| values.trim_matches(['[', ']']));
        let own = unit.map(ParseUnitError::hint).or(size.map(|error| error.hint.as_str()));
        if let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) {
            return Self::usage(message, suggestion::for_command(typed, &invocation::words()));
        }
        let hint = own.filter(|hint| !hint.is_empty()).or(tip).or(values);
        let hint = hint.map_or_else(|| format!("see {} --help", command_line()), str::to_owned);
        Self { code: USAGE, ..Self::new(message, hint) }
    }
}

/// Returns the first words of the command line, which select the command.
fn command_line() -> String {
    let root = Args::command();
    let mut line = root.get_name().to_owned();
    let mut command = &root;
    for word in invocation::words() {
        let Some(inner) = command.find_subcommand(&word) else { break };
        line = format!("{line} {word}");
        command = inner;
    }
    line
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use fullpipe::linux::uml::kernel::check_architecture;

    use super::*;

    /// On an unsupported architecture, `--world uml` fails in the same way as `--world emu` on a host that does
    /// not support a setting: with a one-line message, a hint and exit code 1.
    #[test]
    fn another_architecture_is_refused_as_the_emulator_refuses_a_host() {
        for architecture in ["aarch64", "riscv64", "x86", "powerpc64"] {
            let refused = Failure::from(check_architecture(architecture).expect_err(architecture));
            assert_eq!(
                refused.message,
                format!("a guest in virtual time requires x86_64, but this host is {architecture}")
            );
            assert_eq!(refused.hint, "use the simulator: --world sim, or the emulator: --world emu");
            assert_eq!(refused.code, RUNTIME);
        }
        assert!(check_architecture("x86_64").is_ok());
    }
}
