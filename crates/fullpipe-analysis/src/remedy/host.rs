//! The host that is planned for: the settings to read, and their parsed values.

use fullpipe_lab::host::HostDescription;

use fullpipe_measurement::input::InputError;
use fullpipe_measurement::input::sysctl::HostSettings;

/// Settings to read, as files in `/proc/sys`. Missing files are skipped.
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

/// The host that is planned for, as opposed to its peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalHost {
    /// Facts about the host, as read.
    pub facts: HostDescription,
    /// Parsed settings of the host.
    pub settings: HostSettings,
}

impl LocalHost {
    /// Parses the settings of `facts`.
    ///
    /// # Errors
    /// Returns an error if there is no known setting, or if a value is invalid.
    pub fn new(facts: HostDescription) -> Result<Self, InputError> {
        let dump: String = facts.settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        Ok(Self { settings: HostSettings::parse(&dump)?, facts })
    }

    /// Returns the congestion control for new connections to the peer: that of the route, or else the default
    /// of the host.
    pub fn congestion_control(&self) -> Option<&str> {
        let of_route = self.facts.route.as_ref().and_then(|route| route.congctl.as_deref());
        of_route.or(self.settings.congestion_control.as_deref())
    }

    /// Returns whether this kernel supports a congestion control. Assumes that it does if the kernel does not
    /// list the available ones.
    pub fn has_congestion_control(&self, name: &str) -> bool {
        !self.settings.lacks_congestion_control(name)
            || self.facts.loadable.iter().any(|module| module == name)
    }
}
