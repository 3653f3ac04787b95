//! A host's settings, devices and route as plain values, and the changes that can be made to them.
//!
//! ```text
//!   fullpipe-linux reads a host ─► HostFacts ─► fullpipe-analysis plans ─► [Change] ─► fullpipe-linux applies
//! ```
//!
//! Reading and changing a host takes a kernel, planning does not. Both sides use these types, so nothing is
//! converted between them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// The state of one host, as far as TCP transfers depend on it. What the host does not report is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Kernel settings as read: key with dots, and value on one line.
    pub settings: BTreeMap<String, String>,
    /// Total memory (`MemTotal`).
    pub memory: Option<Bytes>,
    /// Congestion controls that are built as modules, loaded or not.
    pub loadable: Vec<String>,
    /// Network devices that have a queueing discipline.
    pub devices: Vec<Device>,
    /// The route to the peer, if a peer was given.
    pub route: Option<Route>,
}

impl HostFacts {
    /// Facts that consist of settings alone. A key may have slashes, as in `net/ipv4/tcp_rmem`, and a value
    /// any white space.
    pub fn new(settings: impl IntoIterator<Item = (String, String)>) -> Self {
        let one_line = |value: String| value.split_whitespace().collect::<Vec<_>>().join(" ");
        let settings =
            settings.into_iter().map(|(key, value)| (key.replace('/', "."), one_line(value))).collect();
        Self { settings, ..Self::default() }
    }
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its root queueing disciplines, each kind once, joined by `+` where the queues of the hardware differ.
    pub qdisc: String,
}

/// The route that packets to a peer take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Route {
    /// The peer.
    pub destination: IpAddr,
    /// Whether the route is for this peer alone; otherwise it is for a network that contains the peer.
    pub exact: bool,
    /// Gateway, device and metrics of a route to the peer alone, without congestion control and initial
    /// window, as `ip route` prints them: `via 192.0.2.1 dev eth0`.
    pub way: String,
    /// The next hops of a multipath route, which `ip route` prints last: `nexthop via 192.0.2.1 dev eth0
    /// weight 1 ...`. Empty for a route with a single next hop.
    pub hops: String,
    /// The whole present route, as `ip route` prints it.
    pub present: String,
    /// The output device.
    pub device: String,
    /// The congestion control that the route sets, if any.
    pub congctl: Option<String>,
    /// The initial window in segments that the route sets, if any.
    pub initcwnd: Option<u32>,
}

/// A change to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Set a kernel setting below `/proc/sys`.
    Setting {
        /// Its key, with dots.
        key: String,
        /// Its new value.
        value: String,
    },
    /// Set metrics of the route to one peer. A metric that is `None` keeps its value.
    Route {
        /// The peer.
        destination: IpAddr,
        /// Congestion control of new connections.
        congctl: Option<String>,
        /// Initial window of new connections in segments.
        initcwnd: Option<u32>,
    },
}
