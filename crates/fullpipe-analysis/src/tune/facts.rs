//! What a host says of itself, as far as a transfer depends on it.

use std::collections::BTreeMap;

use fullpipe_units::Bytes;
use serde::Serialize;

use crate::input::InputError;
use crate::input::sysctl::HostSettings;

/// The settings to read, as files below `/proc/sys`. What is not there is left out.
pub const KEYS: [&str; 17] = [
    "kernel/osrelease",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_adv_win_scale",
    "net/ipv4/tcp_moderate_rcvbuf",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_ecn",
];

/// One host, as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Its settings, understood.
    pub settings: HostSettings,
    /// The same as they were read: key with dots, and value on one line.
    pub values: BTreeMap<String, String>,
    /// Its memory (`MemTotal`).
    pub memory: Option<Bytes>,
    /// Congestion controls that are built as modules and not loaded.
    pub loadable: Vec<String>,
    /// Its devices and their queueing disciplines.
    pub devices: Vec<Device>,
    /// The way to the peer, where one was asked for.
    pub route: Option<Route>,
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its root queueing disciplines, one for each queue of the hardware where they differ.
    pub qdisc: String,
}

/// The route that packets to a peer take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The peer.
    pub destination: String,
    /// Whether the route is for this peer alone; else it is for a network that the peer is in.
    pub exact: bool,
    /// The way to the peer alone, less the two below, as `ip route` has it: `via 192.0.2.1 dev eth0`.
    pub way: String,
    /// Its ways, where it has several, as `ip route` has them behind all else: `nexthop via 192.0.2.1 dev eth0 weight 1 ...`.
    pub hops: String,
    /// The whole route as it is, as `ip route` has it.
    pub present: String,
    /// The device.
    pub device: String,
    /// Its congestion control, where it has one.
    pub congctl: Option<String>,
    /// Its initial window in segments, where it has one.
    pub initcwnd: Option<u32>,
}

impl HostFacts {
    /// Facts from settings as they were read, `key` as in `net/ipv4/tcp_rmem`.
    ///
    /// # Errors
    /// No known setting among them, or one that makes no sense.
    pub fn new(read: impl IntoIterator<Item = (String, String)>) -> Result<Self, InputError> {
        let one_line = |value: String| value.split_whitespace().collect::<Vec<_>>().join(" ");
        let values: BTreeMap<String, String> =
            read.into_iter().map(|(key, value)| (key.replace('/', "."), one_line(value))).collect();
        let dump: String = values.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        Ok(Self { settings: HostSettings::parse(&dump)?, values, ..Self::default() })
    }

    /// The present value of a setting.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The congestion control of new connections to the peer: the route's, or else the host's.
    pub fn congestion_control(&self) -> Option<&str> {
        let of_route = self.route.as_ref().and_then(|route| route.congctl.as_deref());
        of_route.or(self.settings.congestion_control.as_deref())
    }

    /// Whether this kernel can run a congestion control; true where it does not say what it has.
    pub fn has_congestion_control(&self, name: &str) -> bool {
        !self.settings.lacks_congestion_control(name) || self.loadable.iter().any(|module| module == name)
    }
}
