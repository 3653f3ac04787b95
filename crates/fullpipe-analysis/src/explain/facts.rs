//! What an explanation starts from.

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Duration, Rate};
use serde::Serialize;

use crate::classify::HostFacts;
use crate::input::capture::Capture;
use crate::input::iperf3::{Iperf3Log, Role};
use crate::input::received::Received;
use crate::input::sysctl::HostSettings;
use crate::input::trace::Trace;

/// What there is to explain, and what the user knows besides.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The run.
    pub log: &'a Iperf3Log,
    /// The rows that the log sums up, of a trace: then they are explained, and the log has the figures.
    pub trace: Option<&'a Trace>,
    /// The capture that the log sums up.
    pub capture: Option<&'a Capture>,
    /// The samples of receiving sockets that the log sums up.
    pub received: Option<&'a Received>,
    /// Both ends are one host, and between them is no path whose ladder could be climbed.
    pub no_path: bool,
    /// Round-trip time of the idle path, as `ping` prints it; not needed where the log has it.
    pub rtt: Option<Duration>,
    /// Rate of the line.
    pub link: Option<Rate>,
    /// Kernel settings of the host on which the log was made. They stand for both hosts where `peer_sysctl`
    /// is not given.
    pub sysctl: Option<&'a HostSettings>,
    /// Kernel settings of the other host.
    pub peer_sysctl: Option<&'a HostSettings>,
    /// The other host is another one, of which no settings are known where `peer_sysctl` is not given: then
    /// `sysctl` does not stand for it.
    pub peer_is_unknown: bool,
    /// Kernel of the hosts, if the dump does not say or says it wrongly.
    pub kernel: Option<KernelVersion>,
    /// What one flow of the same host reaches where neither line nor RTT limit it (a LAN).
    pub control: Option<Rate>,
}

/// Which settings a host's are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsSource {
    /// Those of the host on which the log was made: [`Facts::sysctl`].
    Sysctl,
    /// Those of the other host: [`Facts::peer_sysctl`].
    PeerSysctl,
}

impl<'a> Facts<'a> {
    /// A log of which nothing else is known.
    pub const fn of(log: &'a Iperf3Log) -> Self {
        Self {
            log,
            trace: None,
            capture: None,
            received: None,
            no_path: false,
            rtt: None,
            link: None,
            sysctl: None,
            peer_sysctl: None,
            peer_is_unknown: false,
            kernel: None,
            control: None,
        }
    }

    /// A trace of which nothing else is known.
    pub fn of_trace(trace: &'a Trace) -> Self {
        Self { trace: Some(trace), ..Self::of(trace.log()) }
    }

    /// A capture of which nothing else is known.
    pub fn of_capture(capture: &'a Capture) -> Self {
        Self { capture: Some(capture), ..Self::of(capture.log()) }
    }

    /// What receiving sockets told, of which nothing else is known.
    pub fn of_received(received: &'a Received) -> Self {
        Self { received: Some(received), ..Self::of(received.log()) }
    }

    /// Whether the log was made on the host that sent the data that it explains.
    pub fn made_by_sender(&self) -> bool {
        self.log.role != Role::Receiver
    }

    /// Settings of the sending host, and which they are.
    pub fn sender(&self) -> Option<(&'a HostSettings, SettingsSource)> {
        self.settings(self.made_by_sender())
    }

    /// Settings of the receiving host, and which they are.
    pub fn receiver(&self) -> Option<(&'a HostSettings, SettingsSource)> {
        self.settings(!self.made_by_sender())
    }

    /// What the classifier of rows is told beside them.
    pub fn hosts(&self) -> HostFacts {
        HostFacts {
            line: self.link,
            cc: None,
            wmem: self.sender().and_then(|(host, _)| host.tcp_wmem).map(|wmem| wmem[2]),
            rmem: self.receiver().and_then(|(host, _)| host.tcp_rmem).map(|rmem| rmem[2]),
        }
    }

    /// Whether one dump stands for both hosts.
    pub fn one_for_both(&self) -> bool {
        self.sysctl.is_some() && self.peer_sysctl.is_none() && !self.peer_is_unknown
    }

    /// Whose settings are whose, as an assumption; `None` without any.
    pub(super) fn whose_dumps(&self) -> Option<String> {
        let (own, other) =
            if self.made_by_sender() { ("sender", "receiver") } else { ("receiver", "sender") };
        Some(match (self.sysctl, self.peer_sysctl) {
            (None, None) => return None,
            (Some(_), None) if self.peer_is_unknown => {
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

    fn settings(&self, made_the_log: bool) -> Option<(&'a HostSettings, SettingsSource)> {
        let own = self.sysctl.map(|host| (host, SettingsSource::Sysctl));
        let peer = self.peer_sysctl.map(|host| (host, SettingsSource::PeerSysctl));
        if made_the_log { own } else { peer.or(own.filter(|_| !self.peer_is_unknown)) }
    }
}
