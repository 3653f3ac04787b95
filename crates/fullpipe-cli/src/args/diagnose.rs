//! Command-line arguments of `fullpipe diagnose`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fullpipe::tcp::buffers::KernelVersion;
use fullpipe::units::{Duration, ParseUnitError, Rate};

use super::{DemandArgs, OutputArgs, ProveArgs};
use crate::example::Example;
use crate::failure::Failure;

const DIAGNOSE_EXAMPLE: &str = "\
Examples:
  fullpipe diagnose --example
  fullpipe diagnose cubic.iperf3.txt --link 1gbit --rtt 210ms --sysctl sysctl.txt
  fullpipe diagnose server.example.com --link 1gbit
  fullpipe diagnose --pid 4242 --link 1gbit
  fullpipe diagnose --dst 192.0.2.7:443 --watch
  while sleep 0.1; do ss -tmi dst 192.0.2.7; done > ss.txt
  fullpipe diagnose ss.txt

HOST[:PORT] is an iperf3 server; fullpipe sends one TCP stream to it for 10 to 30 s. fullpipe treats
a name as a file if the file exists, or if the name contains a / or has the extension of a log file.

With --pid, --dst or --watch, fullpipe samples the sockets of running applications without
affecting them. After Ctrl-C, it stops sampling and diagnoses the samples.

Exit codes:
  0  done
  1  unusable input, no connection to sample, or no kernel for --prove
  2  wrong usage
  3  the iperf3 server is unreachable, refuses the test, or disconnects
  4  missing permission to read the files of the process (--pid), or to trace processes (--prove)";

#[derive(Debug, ClapArgs)]
#[command(after_help = DIAGNOSE_EXAMPLE)]
pub(crate) struct DiagnoseArgs {
    /// Input: iperf3 output (from the sending host), ss -tmi output, a capture (pcap, pcapng), a trace that
    /// fullpipe run wrote, - for standard input, or HOST[:PORT] of an iperf3 server to test against
    #[arg(
        required_unless_present_any = ["pid", "dst", "watch", "example"],
        conflicts_with_all = ["pid", "dst", "watch", "example"]
    )]
    file: Option<String>,

    /// Diagnose a built-in example log, and print the command to diagnose your own log
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        num_args = 0..=1,
        default_missing_value = "cubic",
        conflicts_with_all = ["pid", "dst", "watch", "tui", "point", "seed", "flow"]
    )]
    pub(crate) example: Option<Example>,

    #[command(flatten)]
    pub(crate) sockets: SocketArgs,

    /// Rate of the link, for example 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,

    /// Round-trip time of the idle path, for example 210ms [default: the RTT in the log, or an upper bound
    /// derived from the log]
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Option<Duration>,

    /// Kernel settings of the host that wrote the log: a file with sysctl -a output, or local for this host;
    /// without --peer-sysctl, they are also assumed for the other host
    #[arg(long, value_name = "FILE|local")]
    pub(crate) sysctl: Option<String>,

    /// Kernel settings of the other host: the receiver if the sender wrote the log, or the sender if the
    /// receiver wrote it (-R)
    #[arg(long, value_name = "FILE|local")]
    pub(crate) peer_sysctl: Option<String>,

    /// Kernel version of both hosts, for example 6.8
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<KernelVersion>,

    /// Rate that one flow from the same host reaches on a local network, for example 940mbit; if FILE is an
    /// iperf3 server, you can pass HOST, a nearby iperf3 server, to measure this rate
    #[arg(long, value_name = "RATE|HOST", value_parser = control)]
    pub(crate) control: Option<Control>,

    /// Label of the point to read from a trace with several points [default: the first]
    #[arg(long, value_name = "LABEL")]
    pub(crate) point: Option<String>,

    /// Seed of the run to read from a trace with several runs [default: the first]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,

    /// Number of the flow or connection to diagnose [default: the first flow of a trace, otherwise the
    /// connection with the most data]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) flow: Option<u32>,

    /// Show a live view of rate, windows, buffers and the current limit (with --watch, or for a trace); press
    /// q to quit, f or space to freeze
    #[arg(long, conflicts_with = "prove")]
    pub(crate) tui: bool,

    /// Also write an HTML report with charts to FILE; the report loads nothing from the network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print only the headline, the ladder, and the next test
    #[arg(long, conflicts_with_all = ["json", "watch", "tui"])]
    pub(crate) brief: bool,

    /// Print only the findings, without simulating the ladder, which can take seconds
    #[arg(long, conflicts_with_all = ["brief", "prove", "offered", "html", "watch", "tui"])]
    pub(crate) no_ladder: bool,

    #[command(flatten)]
    pub(crate) prove: ProveArgs,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Reference rate that one flow reaches on a local network: a measured rate, or a server to measure it
/// against.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    /// Reference rate that was measured earlier.
    Rate(Rate),
    /// iperf3 server to measure the reference rate against.
    Host(String),
}

/// Parses the value of `--control`: a rate or a host name. Text that begins with a digit and is not an
/// address must be a rate.
fn control(text: &str) -> Result<Control, ParseUnitError> {
    match text.parse() {
        Ok(rate) => Ok(Control::Rate(rate)),
        Err(error) => {
            let address = text.split([':', '.']).count() > 2;
            let rate = text.starts_with(|first: char| first.is_ascii_digit()) && !address;
            if rate { Err(error) } else { Ok(Control::Host(text.into())) }
        }
    }
}

impl DiagnoseArgs {
    /// Returns the reference rate if the user gave a rate instead of a host.
    pub(crate) fn control_rate(&self) -> Result<Option<Rate>, Failure> {
        match &self.control {
            None => Ok(None),
            Some(Control::Rate(rate)) => Ok(Some(*rate)),
            Some(Control::Host(host)) => Err(Failure::usage(
                format!("--control {host} names a host, but FILE is not an iperf3 server"),
                "pass the measured rate, for example --control 940mbit",
            )),
        }
    }

    /// Returns the path or host name of the input; the text is empty if the command samples sockets instead.
    pub(crate) fn file(&self) -> &str {
        self.file.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SocketArgs {
    /// Sample the connections of process PID instead of reading an input
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Sample the connections to HOST (all ports, or only PORT); repeatable
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) dst: Vec<String>,

    /// Print one line per interval for each active connection, instead of diagnosing the fastest connection;
    /// without --pid and --dst, watch all connections
    #[arg(long, conflicts_with = "prove")]
    pub(crate) watch: bool,

    /// Sampling duration [default: 10s; with --watch, until Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) length: Option<Duration>,

    /// With --watch, interval between lines for the same connection
    #[arg(long, short, value_name = "TIME", default_value = "1s", requires = "watch")]
    pub(crate) interval: Duration,

    /// With --watch, print one JSON object per connection and interval
    #[arg(long, requires = "watch")]
    pub(crate) jsonl: bool,
}

impl SocketArgs {
    /// Returns whether the command samples sockets instead of reading an input.
    pub(crate) fn asked(&self) -> bool {
        self.pid.is_some() || !self.dst.is_empty() || self.watch
    }
}
