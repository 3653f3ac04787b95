//! The arguments of `fullpipe tune`.

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

Without --apply nothing is changed. What is applied is taken back by itself after --revert-after,
unless fullpipe tune confirm comes before; also when this process is killed, and after a restart.
Where systemd runs the host, it is told to as well, for a logout may end all processes of a session.
Settings on trial stand in /etc/sysctl.d/90-fullpipe.conf as comments, confirmed ones as settings;
what was before is kept in /var/lib/fullpipe.

Exit codes:
  0  done
  1  the input cannot be used, or something went wrong
  2  wrong usage
  4  this process may not change the host (the plan is printed all the same) or read the state
  5  with --verify: the gain did not come
  6  a change did not succeed, and all is as it was before";

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
    /// Print a plan, and apply it if asked to; what tune without a word does
    Plan(PlanArgs),
    /// Keep what is on trial
    Confirm(StateArgs),
    /// Take the newest changes back
    Rollback(RollbackArgs),
    /// Show what is changed, what has become of it, and who else sets the same
    Status(StateArgs),
    /// Show what this kernel offers and uses, and what each limits
    Show(ShowArgs),
    /// Take changes back when nobody confirms them
    #[command(hide = true)]
    Guard(GuardArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceArgs {
    /// A folder that stands for /: settings are read and written below DIR/proc/sys, files below DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// A network namespace, by its name (ip netns) or path; with --root only files are below DIR
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    /// Rate of the line, as 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,

    /// Round-trip time of the idle path, as 210ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Option<Duration>,

    /// Share of the packets that is lost, as 20ppm or 1.5%
    #[arg(long, value_name = "SHARE")]
    pub(crate) loss: Option<Probability>,

    /// Take the path from a report of fullpipe diagnose --json or fullpipe iperf3 -J, or - for standard input; the options above
    /// outrank it
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<String>,

    /// The other host, by name or address: what can be, is changed for connections to it alone
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,

    /// This host's part in the transfer; sender when neither this nor --from says
    #[arg(long, value_enum)]
    pub(crate) role: Option<RoleName>,

    /// Flows at a time that the host's memory has to do for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) flows: Option<u64>,

    /// Kernel settings of the other host: a file with the output of sysctl -a
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_sysctl: Option<String>,

    /// Also apply what is for some applications only: notsent_lowat, initcwnd, slow_start_after_idle
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) with: Vec<What>,

    /// Apply it
    #[arg(long)]
    pub(crate) apply: bool,

    /// Take it back after so long unless it is confirmed, or never
    #[arg(long, value_name = "TIME|never", default_value = "120s")]
    pub(crate) revert_after: RevertAfter,

    /// Apply it, and measure before and after in turns against iperf3 -s on the host of --to
    #[arg(long, requires = "to")]
    pub(crate) verify: bool,

    /// With --verify: measurements before and after, each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,

    /// With --verify: length of each measurement
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub(crate) time: Duration,

    /// With --verify: port of iperf3 -s
    #[arg(long, value_name = "PORT", default_value_t = 5201)]
    pub(crate) port: u16,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How long changes last that nobody confirms.
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
    /// Take all changes back, and not the newest only
    #[arg(long)]
    pub(crate) all: bool,

    /// Also where somebody else has changed the same since
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// Round-trip times at which to say what each limits, as 10ms,210ms
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "10ms,50ms,210ms")]
    pub(crate) rtt: Vec<Duration>,

    /// A loss for which to say what it leaves of a loss-based sender
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// Also show the route to this host, given by name or address
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

    /// Do not watch: end what is overdue
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
