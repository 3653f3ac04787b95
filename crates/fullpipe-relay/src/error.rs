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
    /// Whether the same call may succeed later.
    pub(crate) outlook: Outlook,
}

/// Whether the same call may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// This depends on the category of the error and on the state of the copy.
    Open,
    /// The call may succeed a few seconds later.
    Temporary,
    /// The other end did not answer in time. A further call at once would wait as long again.
    Silent,
    /// The other end has refused the call, and will refuse it again.
    Refused,
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
    /// Returns whether the network, and not the other end, has ended the call.
    pub(crate) fn is_loss(&self) -> bool {
        self.kind == Kind::Network && self.outlook != Outlook::Refused
    }

    pub(crate) fn new(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into(), outlook: Outlook::Open }
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
        Self { outlook: Outlook::Temporary, ..self }
    }

    /// Marks the error as that of an end that did not answer in time.
    pub(crate) fn silence(self) -> Self {
        Self { outlook: Outlook::Silent, ..self }
    }

    /// Marks the error as a refusal of the other end: the same call would fail in the same way.
    pub(crate) fn refusal(self) -> Self {
        Self { outlook: Outlook::Refused, ..self }
    }

    /// Creates the error for the failed operation `what` on a file or socket.
    pub(crate) fn system(what: impl fmt::Display, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some disk space; the same command then continues the copy"
            }
            io::ErrorKind::NotFound => "check the path",
            // The error is not that of a system call, but of cap-std, which lets no path lead out of a folder.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                "choose a path below the folder that the relay serves; symbolic links must not lead out of it"
            }
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
