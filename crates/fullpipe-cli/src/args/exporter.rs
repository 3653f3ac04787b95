//! Command-line arguments of `fullpipe exporter`.

use std::net::SocketAddr;

use clap::Args as ClapArgs;
use fullpipe::units::Rate;

const EXPORTER_EXAMPLE: &str = "\
Example:
  fullpipe exporter --dst 192.0.2.7:443 --dst backup.example.com

For each --dst, /metrics reports the time per limit (fullpipe_limit_seconds_total), bytes,
connections, round-trip times and unsent data. /probe?target=HOST[:PORT] runs a short test against
an iperf3 server, one test at a time. The exporter runs until it is stopped.

Exit codes:
  1  cannot listen on the address, or the kernel does not report its sockets
  2  wrong usage
  4  missing permission to read the files of the process (--pid)";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXPORTER_EXAMPLE)]
pub(crate) struct ExporterArgs {
    /// Address to listen on; any client that can connect to it can read the metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9579")]
    pub(crate) listen: SocketAddr,

    /// Report the connections to HOST (all ports, or only PORT) as one group; repeatable [default: all
    /// connections as one group]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) dst: Vec<String>,

    /// Report only the connections of the process with this ID
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Rate of the link, for example 1gbit; required to tell a full link from a per-flow limit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,

    /// Permit probes only to the iperf3 server HOST; repeatable [default: any server if --listen is a
    /// loopback address, otherwise none]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) probe_target: Vec<String>,

    /// Refuse all probes
    #[arg(long, conflicts_with = "probe_target")]
    pub(crate) no_probe: bool,
}
