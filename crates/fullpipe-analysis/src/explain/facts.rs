//! Input of the explainer.

use fullpipe_measurement::PathFacts;
use fullpipe_measurement::classify::SocketFacts;
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_measurement::measurement::{Measurement, Transfer};
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RateOption;

/// Facts about the two hosts that the measurement does not contain.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Kernel settings of the host that recorded the measurement. They apply to both hosts if `peer` is
    /// `None`.
    pub local: Option<HostSettings>,
    /// Kernel settings of the other host.
    pub peer: Option<HostSettings>,
    /// Whether the peer is a different host. If `peer` is `None`, its settings are then unknown, and `local`
    /// does not apply to it.
    pub peer_is_unknown: bool,
    /// Whether both endpoints are on the same host, so that there is no path between them and no ladder.
    pub same_host: bool,
    /// Kernel release of the hosts, if the settings lack it or contain a wrong one.
    pub kernel: Option<KernelVersion>,
    /// Rate of one flow of the same host on a path on which neither link nor RTT is a limit, such as a LAN.
    pub control: Option<Rate>,
    /// Option by which the sampled application limits its own rate.
    pub rate_option: Option<RateOption>,
}

/// Input of the explainer: the measurement and the facts that it does not contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) measurement: &'a Measurement,
    /// Diagnosed direction of the measurement.
    pub(crate) transfer: &'a Transfer,
    pub(crate) path: PathFacts,
    pub(crate) hosts: &'a HostFacts,
}

/// Source of a host's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingsSource {
    /// Settings of the host that recorded the measurement: [`HostFacts::local`].
    Sysctl,
    /// Settings of the other host: [`HostFacts::peer`].
    PeerSysctl,
}

impl HostFacts {
    /// Returns the settings of the sending host of `measurement`, and their source.
    pub fn sender(&self, measurement: &Measurement) -> Option<(&HostSettings, SettingsSource)> {
        self.settings(measurement.made_by_sender())
    }

    /// Returns the settings of the receiving host of `measurement`, and their source.
    pub fn receiver(&self, measurement: &Measurement) -> Option<(&HostSettings, SettingsSource)> {
        self.settings(!measurement.made_by_sender())
    }

    /// Returns the facts that the classifier needs in addition to the rows in `measurement`.
    pub fn of_sockets(&self, measurement: &Measurement, path: &PathFacts) -> SocketFacts {
        SocketFacts {
            link: path.link,
            cc: None,
            wmem: self.sender(measurement).and_then(|(host, _)| host.tcp_wmem).map(|wmem| wmem[2]),
            rmem: self.receiver(measurement).and_then(|(host, _)| host.tcp_rmem).map(|rmem| rmem[2]),
        }
    }

    /// Returns whether one dump applies to both hosts.
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
    /// Returns whether the sending sockets were sampled.
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

    /// Returns the assumption that assigns the dumps to the hosts; `None` without dumps.
    pub(super) fn whose_dumps(&self) -> Option<String> {
        let (own, other) =
            if self.made_by_sender() { ("sender", "receiver") } else { ("receiver", "sender") };
        Some(match (&self.hosts.local, &self.hosts.peer) {
            (None, None) => return None,
            (Some(_), None) if self.hosts.peer_is_unknown => {
                format!("the settings of the {other} are not known: pass them with --peer-sysctl")
            }
            (Some(_), None) => "both hosts have the settings of the sysctl dump; give those of the other \
                                host with --peer-sysctl"
                .into(),
            (Some(_), Some(_)) => {
                format!(
                    "--sysctl has the settings of the {own}, which wrote the log, and --peer-sysctl \
                         those of the {other}"
                )
            }
            (None, Some(_)) => format!(
                "--peer-sysctl has the settings of the {other}; those of the {own}, which wrote the log, \
                 are not known"
            ),
        })
    }
}
