//! TCP-related settings, devices and route of a host as plain values, and the changes that fullpipe can make
//! to them.
//!
//! ```text
//!   fullpipe-linux reads a host ─► HostDescription ─► fullpipe-analysis plans ─► [Change] ─► fullpipe-linux applies
//! ```
//!
//! Reading or changing a host requires a running kernel; planning a change does not. Both planning and
//! changing a host use the types of this module, so no values have to be converted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// The TCP-related state of one host. A field is empty if the host does not report its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostDescription {
    /// Kernel settings (sysctls), each as a dotted key and a one-line value.
    pub settings: BTreeMap<String, String>,
    /// Total memory of the host (`MemTotal`).
    pub memory: Option<Bytes>,
    /// Congestion controls that are available as kernel modules, whether loaded or not.
    pub loadable: Vec<String>,
    /// Network devices of the host that have a queueing discipline.
    pub devices: Vec<Device>,
    /// Route from the host to the peer; `None` if no peer was given.
    pub route: Option<Route>,
}

impl HostDescription {
    /// Creates a host description that contains only kernel settings. A key may contain slashes, as in
    /// `net/ipv4/tcp_rmem`, and a value may contain any white space.
    pub fn new(settings: impl IntoIterator<Item = (String, String)>) -> Self {
        let one_line = |value: String| value.split_whitespace().collect::<Vec<_>>().join(" ");
        let settings =
            settings.into_iter().map(|(key, value)| (key.replace('/', "."), one_line(value))).collect();
        Self { settings, ..Self::default() }
    }
}

/// A network device of a host, and its queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Device {
    /// Name of the network device, such as `eth0`.
    pub name: String,
    /// Root queueing discipline of the device, such as `fq`. If the hardware queues have different
    /// disciplines, each one is listed once, joined by `+`.
    pub qdisc: String,
}

/// Route from the host to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Route {
    /// Address of the peer to which the route leads.
    pub destination: IpAddr,
    /// Whether the route is for the peer only (`true`) or for a network that contains the peer (`false`).
    pub exact: bool,
    /// Gateway, device and metrics for a host route to the peer, without congestion control and initial
    /// window, in the format of `ip route`: `via 192.0.2.1 dev eth0`.
    pub way: String,
    /// Next hops of a multipath route, which `ip route` prints last: `nexthop via 192.0.2.1 dev eth0 weight 1
    /// ...`. Empty for a route with a single next hop.
    pub hops: String,
    /// The complete route as it is now, in the format of `ip route`.
    pub present: String,
    /// Network device through which the route leads.
    pub device: String,
    /// Congestion control that the route sets; `None` if the route sets none.
    pub congctl: Option<String>,
    /// Initial congestion window in segments that the route sets; `None` if the route sets none.
    pub initcwnd: Option<u32>,
}

/// A change that fullpipe can make to the TCP settings or routes of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Change a kernel setting (sysctl) below `/proc/sys`.
    Setting {
        /// Dotted key of the kernel setting.
        key: String,
        /// New value of the kernel setting.
        value: String,
    },
    /// Set metrics of the route to one peer. A metric that is `None` remains unchanged.
    Route {
        /// Address of the peer to which the route leads.
        destination: IpAddr,
        /// Congestion control for new connections over the route.
        congctl: Option<String>,
        /// Initial congestion window in segments for new connections over the route.
        initcwnd: Option<u32>,
    },
}
