//! What stopped the sender.

use core::fmt;

/// What stopped the last transmission: the sender's own truth, recorded on each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendLimit {
    /// The application offered nothing more.
    App,
    /// The application has more, but the send buffer is full of unacknowledged data.
    Sndbuf,
    /// The receiver's window.
    Rwnd,
    /// The congestion window, outside slow start.
    Cwnd,
    /// The congestion window while it still doubles each round trip.
    SlowStart,
    /// The pacer.
    Pacing,
    /// Loss recovery: fast recovery or the repair after a timeout.
    Recovery,
}

impl SendLimit {
    /// Every value, in the order of the report.
    pub const ALL: [Self; 7] =
        [Self::App, Self::Sndbuf, Self::Rwnd, Self::Cwnd, Self::SlowStart, Self::Pacing, Self::Recovery];

    /// The name in traces and reports.
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
