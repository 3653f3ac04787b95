//! Steps of the ladder: the order in which remedies are tried, and the sizes of each.

use fullpipe_measurement::classify::Limit;
use fullpipe_units::Bytes;

use super::{Change, Host, State};

/// Order in which the ladder tries steps. The steps with the least effect on others come first: one
/// application, one host, both hosts. Steps that take capacity from other traffic come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// The application's own setting (`-w`, `-b`, `SO_RCVBUF`, curl's `--limit-rate`).
    Application,
    /// A setting of the host that made the measurement, if it is this endpoint of the transfer.
    ThisHost(Host),
    /// Settings of both hosts.
    BothHosts,
    /// The sender's congestion control.
    CongestionControl,
    /// The queue at the bottleneck.
    ManagedQueue,
    /// More connections for the same transfer.
    Connections,
}

/// A step of the ladder: one way to make the change of a remedy.
#[derive(Debug)]
pub struct Step {
    /// Position of the step in the order in which steps are tried.
    pub order: Order,
    /// Limits that the step lifts or raises.
    pub lifts: &'static [Limit],
    /// The change in all of its sizes, smallest first. The ladder goes on to the next size as long as the
    /// step gains enough.
    pub sizes: &'static [Change],
}

/// Two states of the hosts, before and after a remedy.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// State before the remedy.
    pub before: State,
    /// State after the remedy.
    pub after: State,
    /// Maximum send and receive buffers after the remedy.
    pub buffers: (Bytes, Bytes),
}
