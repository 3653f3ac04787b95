//! Reason why the sender has stopped sending.

use core::fmt;

/// Reason why the sender has stopped sending. The sender records each change of this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendLimit {
    /// The application currently has no more data to send.
    App,
    /// The send buffer is full of unacknowledged data, and the application has more to write.
    Sndbuf,
    /// The peer's receive window is full.
    Rwnd,
    /// The congestion window is full, and the connection is not in slow start.
    Cwnd,
    /// The congestion window is full during slow start, in which the window doubles every round trip.
    SlowStart,
    /// The pacer delays the next transmission.
    Pacing,
    /// Loss recovery, either fast recovery or recovery after a timeout, limits sending.
    Recovery,
}

impl SendLimit {
    /// All limits, in the order of reports.
    pub const ALL: [Self; 7] =
        [Self::App, Self::Sndbuf, Self::Rwnd, Self::Cwnd, Self::SlowStart, Self::Pacing, Self::Recovery];

    /// Returns the name of the limit in traces and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Sndbuf => "sndbuf",
            Self::Rwnd => "rwnd",
            Self::Cwnd => "cwnd",
            Self::SlowStart => "slow_start",
            Self::Pacing => "pacing",
            Self::Recovery => "recovery",
        }
    }
}

impl fmt::Display for SendLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
