//! Inputs of a plan: the path, this host's part in the transfer, and facts about the other host.

use std::fmt;
use std::net::IpAddr;

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::Bytes;

use super::from_report::FromReport;
use super::item::What;
use crate::advice::Host;
use crate::path_facts::PathFacts;

/// This host's part in the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Data comes from it.
    #[default]
    Sender,
    /// Data goes to it.
    Receiver,
    /// Both.
    Both,
}

impl Role {
    /// Whether this host is that end.
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

/// Inputs of a plan, besides the facts of this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanInputs {
    /// The path to fill. The rate of its link and its RTT are required. The host's memory is divided among its flows.
    pub path: PathFacts,
    /// This host's part.
    pub role: Role,
    /// The peer, where the plan is for connections to one.
    pub to: Option<IpAddr>,
    /// Optional items to apply.
    pub with: Vec<What>,
    /// The other host.
    pub peer: Peer,
    /// Further facts from a report.
    pub report: FromReport,
}

/// Facts about the other host; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peer {
    /// The largest buffer of its end of the transfer.
    pub buffer: Option<Bytes>,
    /// Its congestion control, where it is the sender.
    pub congestion_control: Option<String>,
    /// Its kernel.
    pub kernel: Option<KernelVersion>,
}
