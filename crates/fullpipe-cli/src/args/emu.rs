//! Command-line arguments of `fullpipe emu`.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use fullpipe::lab::experiment::Amount;
use fullpipe::units::{Duration, Probability, Rate};

use super::DatapathName;

const EMU_EXAMPLE: &str = "\
Examples:
  fullpipe emu --rate 340mbit --rtt 140ms --loss 1.5% \\
      --serve 'iperf3 -s -1' -- iperf3 -c 198.18.0.2
  fullpipe emu --rate 10mbit --rtt 50ms --serve 'python3 -m http.server 80' -- \\
      sh -c 'curl -o page http://$FULLPIPE_PEER/'

The command runs in a private network namespace with the address 198.18.0.1
(FULLPIPE_ADDR). Its traffic crosses the emulated path to a second namespace with the
address 198.18.0.2 (FULLPIPE_PEER), where --serve runs; no other host is reachable.
--loss and --queue apply to the direction towards the peer. Under sudo, both commands
run as the user who called sudo. Each command has a private PID namespace, so that all its
child processes are killed when it ends, or when fullpipe ends for any reason.

Exit codes:
  the exit code of the command; 128 + N if signal N ended it; or
  1    the path or the server failed to start
  2    wrong usage
  4    missing permission to create network namespaces or TUN devices
  127  command not found";

#[derive(Debug, ClapArgs)]
#[command(after_help = EMU_EXAMPLE)]
pub(crate) struct EmuArgs {
    /// Rate of the link in both directions, for example 340mbit
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,

    /// Round-trip time of the idle path, for example 140ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Duration,

    /// Packet loss probability towards the peer, for example 20ppm or 1.5%
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// Size of the queue at the link towards the peer, for example 1bdp or 4MiB
    #[arg(long, value_name = "SIZE", default_value = "1bdp")]
    pub(crate) queue: Amount,

    /// Seed for random packet loss
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Pass packets one by one (plain), or as super-packets for higher rates (offload)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) datapath: DatapathName,

    /// Run this shell command on the peer until the main command ends
    #[arg(long, value_name = "COMMAND")]
    pub(crate) serve: Option<String>,

    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
