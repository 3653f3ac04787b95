//! Error type of this crate, with a one-line message and a hint.

use std::fmt;
use std::io;

/// Error of an operation on this host, with its category, message and hint.
#[derive(Debug)]
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
pub enum Kind {
    /// The process lacks a privilege, for example the privilege to create network namespaces or TUN devices.
    Rights,
    /// This host does not support the given setting or argument.
    Settings,
    /// The command to run does not exist.
    NoCommand,
    /// The iperf3 peer is unreachable, refuses the test or disconnects.
    Network,
    /// A change to the host failed, and all changes were rolled back.
    Reverted,
    /// A system call failed unexpectedly.
    System,
}

impl Error {
    pub(crate) fn settings(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Settings, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn rights(message: impl Into<String>) -> Self {
        let hint = "run the command as root, or on a host where all users may open /dev/net/tun and create \
                    user namespaces; the simulator (--world sim) needs no privileges";
        Self { kind: Kind::Rights, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn network(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Network, message: message.into(), hint: hint.into() }
    }

    /// Creates the error for the failed operation `what`, caused by `error`.
    pub(crate) fn system(what: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let message = format!("cannot {what}: {error}");
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::rights(message),
            _ => Self { kind: Kind::System, message, hint: String::new() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Converts the error of a system call into an [`Error`] that names the failed operation.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|error| Error::system(what, error))
    }
}
