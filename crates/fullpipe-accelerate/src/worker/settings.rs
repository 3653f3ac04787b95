//! Settings that the keeper sends to the worker.

use std::net::SocketAddr;
use std::path::PathBuf;

use fullpipe_tcp::memory::MemoryLimits;
use fullpipe_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::config::{ClientAddress, Upstream};
use crate::policies::Senders;

/// Settings that the keeper sends to the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) client_address: ClientAddress,
    /// Name of the congestion control.
    pub(crate) cc: String,
    /// MTU of the path to the clients, in bytes.
    pub(crate) mtu: u32,
    /// Memory budget in bytes.
    pub(crate) memory: u64,
    pub(crate) connections: usize,
    /// Shared table of live connections, whose clients the keeper probes if the worker dies.
    pub(crate) table: PathBuf,
    /// User ID and group ID to which the worker changes; `None` if the keeper has already started it with
    /// these IDs.
    pub(crate) identity: Option<(u32, u32)>,
    /// Maximum rate of all connections together, in bit/s; `None` without a limit.
    pub(crate) limit: Option<u64>,
    /// Limits of the path memory; `None` if there is no path memory.
    pub(crate) paths: Option<PathLimits>,
    /// Profiles and policies.
    pub(crate) senders: Senders,
}

/// Limits of the path memory, in the form in which the keeper sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathLimits {
    prefixes: usize,
    client: u64,
    prefix: u64,
    device_permille: u32,
}

impl From<MemoryLimits> for PathLimits {
    fn from(limits: MemoryLimits) -> Self {
        let MemoryLimits { prefixes, client, prefix, device_permille } = limits;
        Self { prefixes, client: client.get(), prefix: prefix.get(), device_permille }
    }
}

impl From<PathLimits> for MemoryLimits {
    fn from(limits: PathLimits) -> Self {
        let PathLimits { prefixes, client, prefix, device_permille } = limits;
        Self { prefixes, client: Bytes::new(client), prefix: Bytes::new(prefix), device_permille }
    }
}
