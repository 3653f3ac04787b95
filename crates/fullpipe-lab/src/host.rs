//! Settings, devices and route of a host as plain values, and the changes that can be made to them.
//!
//! ```text
//!   fullpipe-linux reads a host ─► HostDescription ─► fullpipe-analysis plans ─► [Change] ─► fullpipe-linux applies
//! ```
//!
//! Reading or changing a host requires a kernel; planning does not. Both sides use these types, so nothing is
//! converted between them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// The TCP-related state of one host. Values that the host does not report are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostDescription {
    /// Kernel settings: the key with dots, the value on one line.
    pub settings: BTreeMap<String, String>,
    /// Total memory (`MemTotal`).
    pub memory: Option<Bytes>,
    /// Congestion controls built as modules, loaded or not.
    pub loadable: Vec<String>,
    /// Network devices that have a queueing discipline.
    pub devices: Vec<Device>,
    /// Route to the peer, if a peer was given.
    pub route: Option<Route>,
}

impl HostDescription {
    /// Creates a description that consists of settings only. A key may contain slashes, as in
    /// `net/ipv4/tcp_rmem`, and a value may contain any white space.
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
    /// Name of the device.
    pub name: String,
    /// Kinds of root queueing disciplines, each listed once and joined by `+` if the hardware queues differ.
    pub qdisc: String,
}

/// The route that packets to a peer take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Route {
    /// Address of the peer.
    pub destination: IpAddr,
    /// Whether the route is for this peer only; otherwise it is for a network that contains the peer.
    pub exact: bool,
    /// Gateway, device and metrics of a route to this peer only, without congestion control and initial
    /// window, as `ip route` prints them: `via 192.0.2.1 dev eth0`.
    pub way: String,
    /// Next hops of a multipath route, which `ip route` prints last: `nexthop via 192.0.2.1 dev eth0 weight 1
    /// ...`. Empty for a route with a single next hop.
    pub hops: String,
    /// The complete current route, as `ip route` prints it.
    pub present: String,
    /// The output device.
    pub device: String,
    /// Congestion control that the route sets, if any.
    pub congctl: Option<String>,
    /// Initial window in segments that the route sets, if any.
    pub initcwnd: Option<u32>,
}

/// A change to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Set a kernel setting below `/proc/sys`.
    Setting {
        /// Key of the setting, with dots.
        key: String,
        /// New value of the setting.
        value: String,
    },
    /// Set metrics of the route to one peer. A metric that is `None` is left unchanged.
    Route {
        /// Address of the peer.
        destination: IpAddr,
        /// Congestion control of new connections.
        congctl: Option<String>,
        /// Initial window of new connections in segments.
        initcwnd: Option<u32>,
    },
}
