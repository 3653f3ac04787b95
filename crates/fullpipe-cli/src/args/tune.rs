//! Command-line arguments of `fullpipe tune`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use fullpipe::tune::What;
use fullpipe::units::{Duration, ParseUnitError, Probability, Rate};

use super::OutputArgs;

const TUNE_EXAMPLE: &str = "\
Examples:
  fullpipe tune --link 1gbit --rtt 210ms --loss 20ppm --to 203.0.113.7
  fullpipe diagnose cubic.iperf3.txt --link 1gbit --rtt 210ms --json | fullpipe tune --from -
  fullpipe tune --link 1gbit --rtt 210ms --loss 20ppm --to 203.0.113.7 --apply
  fullpipe tune confirm
  fullpipe tune rollback
  fullpipe tune show --rtt 210ms

Without --apply, nothing changes. Applied changes are on trial: fullpipe reverts them after the time
of --revert-after unless you run fullpipe tune confirm. It reverts them even if this process is
killed or the host restarts. On hosts with systemd, a timer backs this up, because a logout can kill
all processes of a session. /etc/sysctl.d/90-fullpipe.conf lists trial settings as comments and
confirmed ones as settings; /var/lib/fullpipe stores the previous values.

Exit codes:
  0  done
  1  unusable input, or an error
  2  wrong usage
  4  missing permission to change the host (the plan is still printed) or to read the state
  5  --verify measured no gain
  6  a change failed, and all changes were reverted";

#[derive(Debug, ClapArgs)]
#[command(after_help = TUNE_EXAMPLE, args_conflicts_with_subcommands = true)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    pub(crate) action: Option<TuneAction>,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TuneAction {
    /// Print a tuning plan, or apply it with --apply (default subcommand)
    Plan(PlanArgs),
    /// Make the trial changes permanent
    Confirm(StateArgs),
    /// Revert the newest changes
    Rollback(RollbackArgs),
    /// Show applied changes, drift, and other files that set the same keys
    Status(StateArgs),
    /// Show the kernel's congestion controls and TCP settings, and the rate that each setting allows
    Show(ShowArgs),
    /// Wait for the end of a trial, and revert the changes unless they were confirmed
    #[command(hide = true)]
    Guard(GuardArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceArgs {
    /// Use DIR as the root directory: read and write settings below DIR/proc/sys, and files below DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Network namespace to tune, by name (ip netns) or path; --root then applies only to files
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    /// Rate of the link, for example 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,

    /// Round-trip time of the idle path, for example 210ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Option<Duration>,

    /// Packet loss probability, for example 20ppm or 1.5%
    #[arg(long, value_name = "SHARE")]
    pub(crate) loss: Option<Probability>,

    /// Read the description of the path from a report of fullpipe diagnose --json or fullpipe iperf3 -J (-
    /// for standard input); --link, --rtt and --loss override it
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<String>,

    /// Name or address of the peer; where the kernel allows it, limit changes to connections to this peer
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,

    /// Role of this host in the transfer [default: from the report, otherwise sender]
    #[arg(long, value_enum)]
    pub(crate) role: Option<RoleName>,

    /// Number of concurrent flows that share the host's memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) flows: Option<u64>,

    /// Kernel settings of the peer: a file with sysctl -a output
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_sysctl: Option<String>,

    /// Also set options that suit only some applications: notsent_lowat, initcwnd, slow_start_after_idle
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) with: Vec<What>,

    /// Apply the plan to the host
    #[arg(long)]
    pub(crate) apply: bool,

    /// Revert the changes after TIME unless they are confirmed
    #[arg(long, value_name = "TIME|never", default_value = "120s")]
    pub(crate) revert_after: RevertAfter,

    /// Apply the plan, and measure the throughput with and without it; requires iperf3 -s on the peer
    #[arg(long, requires = "to")]
    pub(crate) verify: bool,

    /// With --verify, number of rounds; each round measures once without and once with the plan
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,

    /// With --verify, duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub(crate) time: Duration,

    /// With --verify, port of the iperf3 server
    #[arg(long, value_name = "PORT", default_value_t = 5201)]
    pub(crate) port: u16,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Trial time, after which unconfirmed changes are reverted; with `None`, the changes stay until they are
/// rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RevertAfter(pub(crate) Option<Duration>);

impl FromStr for RevertAfter {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "never" { Ok(Self(None)) } else { text.parse().map(|time| Self(Some(time))) }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RollbackArgs {
    /// Revert all changes, not only the newest
    #[arg(long)]
    pub(crate) all: bool,

    /// Also restore values that were modified since they were applied
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// Round-trip times for which to calculate rates, for example 10ms,210ms
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "10ms,50ms,210ms")]
    pub(crate) rtt: Vec<Duration>,

    /// Packet loss probability for which to calculate the rate of a loss-based sender
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// Also show the route to HOST, a name or an address
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// Revert expired trials and exit, without waiting for other trials
    #[arg(long)]
    pub(crate) overdue: bool,

    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    Sender,
    Receiver,
    Both,
}
