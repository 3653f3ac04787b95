//! Command-line arguments of `fullpipe accelerate`.

use std::net::SocketAddr;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use fullpipe::tcp::cc::Algorithm;

use super::OutputArgs;

const ACCELERATE_EXAMPLE: &str = "\
Examples:
  fullpipe accelerate --listen 203.0.113.5:443 --upstream 127.0.0.1:8443 \\
      --client-address proxy-v2 --check
  fullpipe accelerate --config accelerate.toml
  fullpipe accelerate status

fullpipe accepts new connections to ADDRESS:PORT of this host with its own TCP, and relays their
data to the server over loopback. The clients need no change, and neither does the server, except
that it must accept the PROXY protocol with proxy-v2. Connections that exist at the start stay with
the kernel. If fullpipe ends or is killed, the kernel's listener on ADDRESS:PORT answers new
connections; the connections that fullpipe carried are lost.

Exit codes:
  0  done
  1  the service cannot start, or the worker fails repeatedly
  2  wrong usage
  4  missing permission: steering requires root
  5  --check found a reason not to start";

#[derive(Debug, ClapArgs)]
#[command(after_help = ACCELERATE_EXAMPLE, args_conflicts_with_subcommands = true)]
pub(crate) struct AccelerateArgs {
    #[command(subcommand)]
    pub(crate) action: Option<AccelerateAction>,

    /// Accelerate the connections to this address and port of this host, for example 203.0.113.5:443
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,

    /// Connect to the server at HOST:PORT, or at a Unix socket (unix:/run/server.sock)
    #[arg(long, value_name = "HOST:PORT|unix:PATH")]
    pub(crate) upstream: Option<String>,

    /// Send the client's address to the server in a PROXY protocol header (proxy-v2), connect from the
    /// client's address (transparent), or hide the address (hidden); there is no default, because with hidden
    /// the server may trust clients as if they were this host
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) client_address: Option<ClientAddressName>,

    /// Congestion control towards the clients: reno, bic, cubic, vegas, bbr, bbr3 or surge
    /// [default: bbr]
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<Algorithm>,

    /// Read settings from FILE (TOML); options on the command line take precedence
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<String>,

    /// Accelerate only clients whose packets match an nftables expression, for example
    /// 'ip saddr 198.51.100.0/24'
    #[arg(long = "match", value_name = "EXPRESSION")]
    pub(crate) matching: Option<String>,

    /// Print what a start would change on this host and what would prevent the start, and change nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) check: bool,

    /// Print the nftables commands that a start would run, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Start even if firewall rules for the port would no longer apply
    #[arg(long, value_enum, value_name = "ACTION")]
    pub(crate) firewall: Option<FirewallAction>,

    /// Start even if no server listens on the address and port; nothing then answers connections after
    /// fullpipe ends
    #[arg(long)]
    pub(crate) no_fallback: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccelerateAction {
    /// Show the running services: steering, server, connections and limits
    Status(AccelerateStatusArgs),
    /// Relay connections; started by fullpipe accelerate
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AccelerateStatusArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

// The values of the following enums have no doc comments, because with comments clap would print a list of
// values instead of one line.

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientAddressName {
    #[value(name = "proxy-v2")]
    ProxyV2,
    Transparent,
    Hidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FirewallAction {
    Ignore,
}
