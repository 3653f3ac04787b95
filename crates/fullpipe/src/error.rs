//! Error type of this crate, with a one-line message and a hint.

use std::fmt;

use fullpipe_analysis::{DiagnoseError, InputError};
use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::experiment::ExperimentError;

/// Error of an operation, with its category, message and hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Category of the error.
    pub kind: Kind,
    /// One-line error message without a final period.
    pub message: String,
    /// Hint that suggests a remedy; may be empty.
    pub hint: String,
}

/// Category of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The input is not usable, or a run failed.
    Runtime,
    /// The command-line arguments contradict each other.
    Usage,
    /// The peer (an iperf3 server or a relay) is unreachable, refuses the connection
    /// or disconnects.
    Network,
    /// The process lacks a required privilege.
    Rights,
    /// A change to the host failed, and all changes were reverted.
    Reverted,
    /// The command to run does not exist.
    NoCommand,
}

impl Error {
    /// Creates an error of [`Kind::Runtime`] from a message and a hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Runtime, message: message.into(), hint: hint.into() }
    }

    /// Creates an error of [`Kind::Usage`] from a message and a hint.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::new(message, hint) }
    }

    /// Prefixes the error message with its subject, such as the name of a file.
    #[must_use]
    pub fn about(self, subject: impl fmt::Display) -> Self {
        Self { message: format!("{subject}: {}", self.message), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<ExperimentError> for Error {
    fn from(error: ExperimentError) -> Self {
        Self::new(error.message, error.hint)
    }
}

impl From<InputError> for Error {
    fn from(error: InputError) -> Self {
        Self::new(error.message, error.hint)
    }
}

impl From<RunPanicked> for Error {
    fn from(error: RunPanicked) -> Self {
        Self::new(error.to_string(), "this is a defect of fullpipe: please report it with the input")
    }
}

impl From<DiagnoseError> for Error {
    fn from(error: DiagnoseError) -> Self {
        match error {
            DiagnoseError::Input(error) => error.into(),
            DiagnoseError::Defect(error) => error.into(),
            DiagnoseError::Abandoned => Self::new("interrupted: the ladder is not complete", "run it again"),
        }
    }
}

#[cfg(target_os = "linux")]
impl From<fullpipe_linux::Error> for Error {
    fn from(error: fullpipe_linux::Error) -> Self {
        let kind = match error.kind {
            fullpipe_linux::Kind::Rights => Kind::Rights,
            fullpipe_linux::Kind::NoCommand => Kind::NoCommand,
            fullpipe_linux::Kind::Network => Kind::Network,
            fullpipe_linux::Kind::Reverted => Kind::Reverted,
            fullpipe_linux::Kind::Settings | fullpipe_linux::Kind::System => Kind::Runtime,
        };
        Self { kind, ..Self::new(error.message, error.hint) }
    }
}

#[cfg(all(target_os = "linux", feature = "relay"))]
impl From<fullpipe_relay::Error> for Error {
    fn from(error: fullpipe_relay::Error) -> Self {
        let kind = match error.kind {
            fullpipe_relay::Kind::Usage => Kind::Usage,
            fullpipe_relay::Kind::Network => Kind::Network,
            fullpipe_relay::Kind::Rights => Kind::Rights,
            fullpipe_relay::Kind::Runtime => Kind::Runtime,
        };
        Self { kind, ..Self::new(error.message, error.hint) }
    }
}
