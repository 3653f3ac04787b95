//! Error type of this crate, with a one-line message and a hint.

use std::fmt;
use std::io;

/// Error of a copy or of a relay, with its category, message and hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Category of the error.
    pub kind: Kind,
    /// One-line error message without a final period.
    pub message: String,
    /// Hint that suggests a remedy; may be empty.
    pub hint: String,
    /// Whether the same call may succeed a few seconds later.
    pub(crate) is_temporary: bool,
}

/// Category of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The arguments contradict each other, or ask for something that does not exist.
    Usage,
    /// The peer is unreachable, disconnects, or breaks the protocol.
    Network,
    /// The peer's key is not the expected one, or the peer does not accept this key.
    Rights,
    /// A file cannot be read or written, or the peer reports a failure.
    Runtime,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into(), is_temporary: false }
    }

    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message, hint)
    }

    pub(crate) fn network(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Network, message, hint)
    }

    pub(crate) fn rights(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Rights, message, hint)
    }

    pub(crate) fn runtime(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Runtime, message, hint)
    }

    /// Marks the error as temporary: the same call may succeed a few seconds later.
    pub(crate) fn temporary(self) -> Self {
        Self { is_temporary: true, ..self }
    }

    /// Creates the error for the failed operation `what` on a file or socket.
    pub(crate) fn system(what: impl fmt::Display, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some disk space; the same command then continues the copy"
            }
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => {
                "check the owner and the permissions of the file and its folder"
            }
            io::ErrorKind::AddrInUse => "stop the other server, or choose another port with --listen",
            _ => "",
        };
        Self::runtime(format!("cannot {what}: {error}"), hint)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
