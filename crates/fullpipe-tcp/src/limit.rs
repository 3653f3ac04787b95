//! Reason why the sender stopped sending.

use core::fmt;

/// Reason why the sender stopped sending. The sender records every change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendLimit {
    /// The application has written nothing more.
    App,
    /// The send buffer is full of unacknowledged data, while the application has more to write.
    Sndbuf,
    /// The receive window is full.
    Rwnd,
    /// The congestion window is full, outside slow start.
    Cwnd,
    /// The congestion window is full in slow start, while it doubles every round trip.
    SlowStart,
    /// The pacer delays the next transmission.
    Pacing,
    /// Loss recovery limits sending: fast recovery, or recovery after a timeout.
    Recovery,
}

impl SendLimit {
    /// All values, in report order.
    pub const ALL: [Self; 7] =
        [Self::App, Self::Sndbuf, Self::Rwnd, Self::Cwnd, Self::SlowStart, Self::Pacing, Self::Recovery];

    /// Returns the name used in traces and reports.
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
