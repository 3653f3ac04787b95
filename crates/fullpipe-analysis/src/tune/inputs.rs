//! Inputs of a plan: the path, the role of this host in the transfer, and facts about the other host.

use std::fmt;
use std::net::IpAddr;

use fullpipe_measurement::PathFacts;
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::Bytes;

use super::from_report::FromReport;
use super::item::What;
use crate::advice::Host;

/// Role of this host in the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The host sends the data.
    #[default]
    Sender,
    /// The host receives the data.
    Receiver,
    /// The host sends and receives.
    Both,
}

impl Role {
    /// Returns whether this role includes the endpoint `host`.
    pub const fn is(self, host: Host) -> bool {
        matches!(
            (self, host),
            (Self::Both, _) | (Self::Sender, Host::Sender) | (Self::Receiver, Host::Receiver)
        )
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sender => "the sender",
            Self::Receiver => "the receiver",
            Self::Both => "sender and receiver",
        })
    }
}

/// Inputs of a plan besides the facts about this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanInputs {
    /// The path to fill. Its link rate and RTT are required. The memory of the host is divided among its
    /// flows.
    pub path: PathFacts,
    /// Role of this host.
    pub role: Role,
    /// Address of the peer, if the plan applies only to connections to it.
    pub to: Option<IpAddr>,
    /// Optional items to apply.
    pub with: Vec<What>,
    /// Facts about the other host.
    pub peer: Peer,
    /// Other facts from a report.
    pub report: FromReport,
}

/// Facts about the other host; `None` means unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peer {
    /// Maximum buffer at the other endpoint of the transfer.
    pub buffer: Option<Bytes>,
    /// The other host's congestion control, if it is the sender.
    pub congestion_control: Option<String>,
    /// Kernel release of the other host.
    pub kernel: Option<KernelVersion>,
}
