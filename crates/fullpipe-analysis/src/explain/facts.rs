//! What an explanation starts from.

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classify::SocketFacts;
use crate::input::sysctl::HostSettings;
use crate::measurement::{Measurement, Transfer};
use crate::path_facts::PathFacts;

/// What is known of the two hosts besides the measurement.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Kernel settings of the host that made the measurement. They stand for both hosts where `peer` is not given.
    pub local: Option<HostSettings>,
    /// Kernel settings of the other host.
    pub peer: Option<HostSettings>,
    /// The other host is another one, of which no settings are known where `peer` is not given: then `local` does not
    /// stand for it.
    pub peer_is_unknown: bool,
    /// Both ends are one host, and between them is no path whose ladder could be climbed.
    pub same_host: bool,
    /// Kernel of the hosts, if the settings do not say or say it wrongly.
    pub kernel: Option<KernelVersion>,
    /// What one flow of the same host reaches where neither link nor RTT limit it (a LAN).
    pub control: Option<Rate>,
}

/// What an explanation starts from: the measurement, and what is known besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) measurement: &'a Measurement,
    /// The explained direction of the measurement.
    pub(crate) transfer: &'a Transfer,
    pub(crate) path: PathFacts,
    pub(crate) hosts: &'a HostFacts,
}

/// Which settings a host's are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingsSource {
    /// Those of the host that made the measurement: [`HostFacts::local`].
    Sysctl,
    /// Those of the other host: [`HostFacts::peer`].
    PeerSysctl,
}

impl HostFacts {
    /// Settings of the sending host of `measurement`, and which they are.
    pub fn sender(&self, measurement: &Measurement) -> Option<(&HostSettings, SettingsSource)> {
        self.settings(measurement.made_by_sender())
    }

    /// Settings of the receiving host of `measurement`, and which they are.
    pub fn receiver(&self, measurement: &Measurement) -> Option<(&HostSettings, SettingsSource)> {
        self.settings(!measurement.made_by_sender())
    }

    /// What the classifier of the rows of `measurement` needs besides them.
    pub fn of_sockets(&self, measurement: &Measurement, path: &PathFacts) -> SocketFacts {
        SocketFacts {
            link: path.link,
            cc: None,
            wmem: self.sender(measurement).and_then(|(host, _)| host.tcp_wmem).map(|wmem| wmem[2]),
            rmem: self.receiver(measurement).and_then(|(host, _)| host.tcp_rmem).map(|rmem| rmem[2]),
        }
    }

    /// Whether one dump stands for both hosts.
    pub(super) fn one_for_both(&self) -> bool {
        self.local.is_some() && self.peer.is_none() && !self.peer_is_unknown
    }

    fn settings(&self, made_the_measurement: bool) -> Option<(&HostSettings, SettingsSource)> {
        let local = self.local.as_ref().map(|host| (host, SettingsSource::Sysctl));
        let peer = self.peer.as_ref().map(|host| (host, SettingsSource::PeerSysctl));
        if made_the_measurement { local } else { peer.or(local.filter(|_| !self.peer_is_unknown)) }
    }
}

impl<'a> Facts<'a> {
    /// Whether the sending sockets were sampled.
    pub(super) fn is_traced(&self) -> bool {
        !self.measurement.rows().is_empty()
    }

    pub(crate) fn made_by_sender(&self) -> bool {
        self.measurement.made_by_sender()
    }

    pub(crate) fn sender(&self) -> Option<(&'a HostSettings, SettingsSource)> {
        self.hosts.sender(self.measurement)
    }

    pub(crate) fn receiver(&self) -> Option<(&'a HostSettings, SettingsSource)> {
        self.hosts.receiver(self.measurement)
    }

    /// Whose settings are whose, as an assumption; `None` without any.
    pub(super) fn whose_dumps(&self) -> Option<String> {
        let (own, other) =
            if self.made_by_sender() { ("sender", "receiver") } else { ("receiver", "sender") };
        Some(match (&self.hosts.local, &self.hosts.peer) {
            (None, None) => return None,
            (Some(_), None) if self.hosts.peer_is_unknown => {
                format!("of the {other} no settings are known: --peer-sysctl has them")
            }
            (Some(_), None) => "the sysctl dump stands for both hosts; --peer-sysctl has the other's".into(),
            (Some(_), Some(_)) => {
                format!("--sysctl is of the {own}, where the log was made, and --peer-sysctl of the {other}")
            }
            (None, Some(_)) => format!(
                "--peer-sysctl is of the {other}; of the {own}, where the log was made, no settings are known"
            ),
        })
    }
}
