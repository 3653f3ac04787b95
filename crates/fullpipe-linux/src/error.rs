//! What can go wrong, in a line and a hint.

use std::fmt;
use std::io;

/// Something that this machine did not do.
#[derive(Debug)]
pub struct Error {
    /// What sort of failure it is.
    pub kind: Kind,
    /// One line without a final period.
    pub message: String,
    /// What to do instead; may be empty.
    pub hint: String,
}

/// Sorts of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process may not make namespaces or TUN devices.
    Rights,
    /// The experiment asks for what a real kernel cannot be told.
    Settings,
    /// The command that was to run does not exist.
    NoCommand,
    /// The other end cannot be reached, has refused, or has broken off.
    Network,
    /// A change was begun, did not succeed, and is taken back.
    Reverted,
    /// A system call failed that should not have.
    System,
}

impl Error {
    pub(crate) fn settings(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Settings, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn rights(message: impl Into<String>) -> Self {
        let hint = "run it as root, or where /dev/net/tun may be opened by everybody and user namespaces are \
                    allowed; the simulator (--world sim) needs no rights";
        Self { kind: Kind::Rights, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn network(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: Kind::Network, message: message.into(), hint: hint.into() }
    }

    /// `what` could not be done because of `error`.
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

/// Adds what was being done to the error of a system call.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|error| Error::system(what, error))
    }
}
