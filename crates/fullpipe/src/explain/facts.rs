//! What an explanation starts from.

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Duration, Rate};

use crate::input::iperf3::Iperf3Log;
use crate::input::sysctl::HostSettings;

/// What there is to explain, and what the user knows besides.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The run.
    pub log: &'a Iperf3Log,
    /// Round-trip time of the idle path, as `ping` prints it; not needed where the log has it.
    pub rtt: Option<Duration>,
    /// Rate of the line.
    pub link: Option<Rate>,
    /// Kernel settings. One dump stands for both hosts.
    pub sysctl: Option<&'a HostSettings>,
    /// Kernel of the hosts, if the dump does not say or says it wrongly.
    pub kernel: Option<KernelVersion>,
    /// What one flow of the same host reaches where neither line nor RTT limit it (a LAN).
    pub control: Option<Rate>,
}
