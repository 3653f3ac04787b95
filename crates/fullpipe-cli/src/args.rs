//! The arguments of every command.

mod tune;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fullpipe::lab::experiment::Amount;
use fullpipe::tcp::buffers::KernelVersion;
use fullpipe::tcp::cc::Algorithm;
use fullpipe::units::{Bytes, Duration, ParseUnitError, Probability, Rate};
use fullpipe::{Demand, InputError, Memory};

#[cfg_attr(not(target_os = "linux"), allow(unused_imports, reason = "the command is for Linux"))]
pub(crate) use tune::{
    PlaceArgs, PlanArgs, RoleName, RollbackArgs, ShowArgs, StateArgs, TuneAction, TuneArgs,
};

use crate::failure::Failure;
use crate::iperf3::Iperf3Args;

const EXAMPLES: &str = "\
Examples:
  iperf3 -c HOST -t 30 | fullpipe diagnose - --link 1gbit --rtt 210ms
  fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm --buffers 4MiB
  fullpipe run experiments/weak-network.toml --check

Exit codes:
  0  done
  1  the input cannot be used, or the run went wrong
  2  wrong usage
  3  the other end of a measurement cannot be reached, refuses or breaks off
  4  this process may not make network namespaces or TUN devices, look at another's sockets, or change this host
  5  done, and with --check an expectation is not met
  6  tune: a change did not succeed, and is taken back

emu exits as its command does.";

/// Finds out which limit holds a TCP transfer back, and what lies behind it.
#[derive(Debug, Parser)]
#[command(name = "fullpipe", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Colour the text; auto is on a terminal, unless NO_COLOR is set or TERM is dumb
    #[arg(long, global = true, display_order = 100, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Name what holds a transfer back, and simulate what lies behind it
    Diagnose(DiagnoseArgs),
    /// Calculate what a path lets a transfer reach, and simulate the remedies
    Whatif(WhatifArgs),
    /// Run an experiment and print its results
    Run(RunArgs),
    /// Run a command behind an emulated path
    Emu(EmuArgs),
    /// Serve what holds the connections of this host to Prometheus
    Exporter(ExporterArgs),
    /// Measure to or as an iperf3 server, and name what holds the transfer back
    Iperf3(Box<Iperf3Args>),
    /// Plan what to change on a host, try it, and take it back
    Tune(TuneArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print a manual page, as troff
    Man(ManArgs),
}

const DIAGNOSE_EXAMPLE: &str = "\
Examples:
  fullpipe diagnose cubic.iperf3.txt --link 1gbit --rtt 210ms --sysctl sysctl.txt
  fullpipe diagnose server.example.com --link 1gbit
  fullpipe diagnose --pid 4242 --link 1gbit
  fullpipe diagnose --dst 192.0.2.7:443 --watch
  while sleep 0.1; do ss -tmi dst 192.0.2.7; done > ss.txt
  fullpipe diagnose ss.txt

HOST[:PORT] is an iperf3 server, to which one stream of TCP is measured for 10 to 30 s. What is there as a file, or
has a / or the ending of a log in its name, is a file and no host.

With --pid, --dst or --watch the sockets of running applications are looked at, which are not touched;
Ctrl-C ends the sampling, and what was sampled is diagnosed.

Exit codes:
  0  done
  1  the input cannot be used, or there is nothing to look at
  2  wrong usage
  3  the iperf3 server cannot be reached, refuses or breaks off
  4  the process may not look at that process's files";

#[derive(Debug, ClapArgs)]
#[command(after_help = DIAGNOSE_EXAMPLE)]
pub(crate) struct DiagnoseArgs {
    /// The output of iperf3 on the sending host, of ss -ti or ss -tmi, a capture (pcap, pcapng), a trace of fullpipe run,
    /// - for standard input, or HOST[:PORT] of an iperf3 server to measure to
    #[arg(required_unless_present_any = ["pid", "dst", "watch"], conflicts_with_all = ["pid", "dst", "watch"])]
    file: Option<String>,

    #[command(flatten)]
    pub(crate) sockets: SocketArgs,

    /// Rate of the line, as 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,

    /// Round-trip time of the idle path, as 210ms; bounded from the log when left out
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Option<Duration>,

    /// Kernel settings of the host on which the log was made: a file with the output of sysctl -a, or local
    /// for this host's; they stand for both hosts without --peer-sysctl
    #[arg(long, value_name = "FILE|local")]
    pub(crate) sysctl: Option<String>,

    /// Kernel settings of the other host: the receiver's of a sender's log, the sender's of a receiver's (-R)
    #[arg(long, value_name = "FILE|local")]
    pub(crate) peer_sysctl: Option<String>,

    /// Kernel of the hosts, as 6.8
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<KernelVersion>,

    /// What one flow of the same host reaches on a local network, as 940mbit; or, with a HOST to measure to, a near
    /// iperf3 server to measure that with
    #[arg(long, value_name = "RATE|HOST", value_parser = control)]
    pub(crate) control: Option<Control>,

    /// Of a trace with several points, the one with this label; the first when left out
    #[arg(long, value_name = "LABEL")]
    pub(crate) point: Option<String>,

    /// Of a point with several runs, the one with this seed; the first when left out
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,

    /// Of a run with several flows, or of several connections, the one with this number; the first flow when left
    /// out, and the largest connection
    #[arg(long, value_name = "NUMBER")]
    pub(crate) flow: Option<u32>,

    /// With --watch, or to play a trace back: rate, windows and buffers as bars, and what holds the flow at each moment; q
    /// quits, f or space freezes
    #[arg(long)]
    pub(crate) tui: bool,

    /// Also write a report to FILE: one HTML page with charts that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A control measurement.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    /// What it has shown.
    Rate(Rate),
    /// The server to make it with.
    Host(String),
}

/// A rate, or else a host. What begins with a digit and is no address was meant as a rate.
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
    /// The rate of the control measurement, if it was given as one.
    pub(crate) fn control_rate(&self) -> Result<Option<Rate>, Failure> {
        match &self.control {
            None => Ok(None),
            Some(Control::Rate(rate)) => Ok(Some(*rate)),
            Some(Control::Host(host)) => Err(Failure::usage(
                format!("a control measurement to {host} goes with a measurement, and there is a log here"),
                "give --control the rate that was measured, as 940mbit",
            )),
        }
    }

    /// The input; empty where sockets are looked at instead.
    pub(crate) fn file(&self) -> &str {
        self.file.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SocketArgs {
    /// Instead of an input, look at the connections of the process with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pid: Option<u32>,

    /// Look at the connections to this address or name, with a port or to any; may be given several times
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) dst: Vec<String>,

    /// Go on and print a line an interval for each connection that moves, instead of diagnosing the largest; without --pid
    /// and --dst those of all connections
    #[arg(long)]
    pub(crate) watch: bool,

    /// How long to look; 10s when left out, and with --watch until Ctrl-C
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) length: Option<Duration>,

    /// Length of an interval of --watch
    #[arg(long, short, value_name = "TIME", default_value = "1s", requires = "watch")]
    pub(crate) interval: Duration,

    /// With --watch, an object a line and connection
    #[arg(long, requires = "watch")]
    pub(crate) jsonl: bool,
}

impl SocketArgs {
    /// Whether sockets are looked at.
    pub(crate) fn asked(&self) -> bool {
        self.pid.is_some() || !self.dst.is_empty() || self.watch
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct OutputArgs {
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl OutputArgs {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemandArgs {
    /// What the application wants to send, as 150mbit: tells on which rung its queue grows, and how fast
    #[arg(long, value_name = "RATE")]
    pub(crate) offered: Option<Rate>,

    /// Memory that the application's queue may take, as 2GiB; with --sysctl local on the sender what it has left
    #[arg(long, value_name = "SIZE", requires = "offered")]
    pub(crate) memory: Option<Bytes>,
}

impl DemandArgs {
    /// What is asked for. `available` is what the sending host has left, where that is known.
    pub(crate) fn demand(
        &self,
        available: impl FnOnce() -> Option<Bytes>,
    ) -> Result<Option<Demand>, InputError> {
        let Some(rate) = self.offered else { return Ok(None) };
        let memory = match self.memory {
            Some(memory) => Memory::Given(memory),
            None => available().map_or(Memory::Unknown, Memory::Available),
        };
        Demand::new(rate, memory).map(Some)
    }
}

const WHATIF_EXAMPLE: &str = "\
Example:
  fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm --buffers 4MiB

Exit codes:
  0  done
  1  no path has such values
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = WHATIF_EXAMPLE)]
pub(crate) struct WhatifArgs {
    /// Rate of the line, as 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Rate,

    /// Round-trip time of the idle path, as 210ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Duration,

    /// Share of the packets that is lost, as 20ppm or 1.5%
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// tcp_wmem[2] of the sender and tcp_rmem[2] of the receiver, as 4MiB; the kernel's defaults when left out
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffers: Option<Bytes>,

    /// Kernel of both hosts, as 6.8
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<KernelVersion>,

    /// Congestion control of the sender: reno, bic, cubic, vegas, bbr or bbr3
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) cc: Algorithm,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const RUN_EXAMPLE: &str = "\
Example:
  fullpipe run experiments/weak-network.toml --repeat 3 --out results

Ctrl-C lets the runs under way finish, then prints and writes what there is; again, it ends at once.
In the file, duration and every field of path, host and flow may be a list or a range.

Exit codes:
  0  done
  1  the input cannot be used, or the run went wrong
  2  wrong usage
  4  emu: this process may not make network namespaces or TUN devices
  5  done, and with --check an expectation is not met or a run of emu is not valid
  130  interrupted";

#[derive(Debug, ClapArgs)]
#[command(after_help = RUN_EXAMPLE)]
pub(crate) struct RunArgs {
    /// The experiment, a TOML file
    pub(crate) file: PathBuf,

    /// Where to run it: the simulator, or kernel TCP on an emulated path; live is not built yet
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: World,

    /// How packets leave the kernel in emu: one by one, or as super-packets, which reaches higher rates
    #[arg(long, value_enum)]
    pub(crate) datapath: Option<DatapathName>,

    /// Fail with exit code 5 unless every expectation of the file is met
    #[arg(long)]
    pub(crate) check: bool,

    /// What to print; jsonl is one object a run, each as soon as the run has finished
    #[arg(long, value_enum, default_value_t)]
    format: RunFormat,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Also write result.json, results.csv (a row a flow and run), results.jsonl (an object a run) and trace.csv to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Also write a report to FILE: one HTML page with charts that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Also write the packets of the first run (first point, first seed) to FILE, as a capture at the sender; sim and emu
    #[arg(long, value_name = "FILE")]
    pub(crate) pcapng: Option<PathBuf>,

    /// First seed, instead of the file's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Seeds per point, instead of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) repeat: Option<u64>,
}

impl RunArgs {
    pub(crate) fn format(&self) -> RunFormat {
        if self.json { RunFormat::Json } else { self.format }
    }
}

const EMU_EXAMPLE: &str = "\
Examples:
  fullpipe emu --rate 340mbit --rtt 140ms --loss 1.5% \\
      --serve 'iperf3 -s -1' -- iperf3 -c 198.18.0.2
  fullpipe emu --rate 10mbit --rtt 50ms --serve 'python3 -m http.server 80' -- \\
      sh -c 'curl -o page http://$FULLPIPE_PEER/'

The command runs in a network namespace of its own with the address 198.18.0.1
(FULLPIPE_ADDR). All it sends crosses the path to a second namespace, 198.18.0.2
(FULLPIPE_PEER), where --serve runs; nothing else can be reached from there. Loss and
the queue are those of the direction to the peer. Under sudo both commands run as the
user who called it. What they leave running ends with them, and with fullpipe however it
ends: each has a PID namespace, in which it is process 2 and sees no others.

Exit codes:
  that of the command, 128 + N when signal N ended it, or
  1    the path or the server could not be started
  2    wrong usage
  4    this process may not make network namespaces or TUN devices
  127  there is no such command";

#[derive(Debug, ClapArgs)]
#[command(after_help = EMU_EXAMPLE)]
pub(crate) struct EmuArgs {
    /// Rate of the link in both directions, as 340mbit
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,

    /// Round-trip time of the idle path, as 140ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Duration,

    /// Share of the packets to the peer that is lost, as 20ppm or 1.5%
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// What may wait before the link to the peer, as 1bdp or 4MiB
    #[arg(long, value_name = "SIZE", default_value = "1bdp")]
    pub(crate) queue: Amount,

    /// What the losses derive from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How packets leave the kernel: one by one, or as super-packets, which reaches higher rates
    #[arg(long, value_enum, default_value_t)]
    pub(crate) datapath: DatapathName,

    /// A shell command that runs at the peer as long as the command does
    #[arg(long, value_name = "COMMAND")]
    pub(crate) serve: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const EXPORTER_EXAMPLE: &str = "\
Example:
  fullpipe exporter --dst 192.0.2.7:443 --dst backup.example.com

It runs until it is ended. /metrics has, for each --dst, the time that connections were held by
each limit (fullpipe_limit_seconds_total), bytes, connections, round-trip times and what waits unsent.
/probe?target=HOST[:PORT] runs a short test to an iperf3 server, one at a time.

Exit codes:
  1  it cannot listen there, or the kernel does not tell of its sockets
  2  wrong usage
  4  the process may not look at that process's files";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXPORTER_EXAMPLE)]
pub(crate) struct ExporterArgs {
    /// Where to listen; beyond this host whoever reaches it may read the metrics and have it probe
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9579")]
    pub(crate) listen: SocketAddr,

    /// Connections to this address or name, with a port or to any, as one group; may be given several times; all
    /// connections are one group when left out
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) dst: Vec<String>,

    /// Only connections of the process with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pid: Option<u32>,

    /// Rate of the line, as 1gbit: tells the line from a limit of a flow
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,
}

const COMPLETIONS_EXAMPLE: &str = "\
Example:
  fullpipe completions bash > ~/.local/share/bash-completion/completions/fullpipe

Exit codes:
  0  done
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = COMPLETIONS_EXAMPLE)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

const MAN_EXAMPLE: &str = "\
Examples:
  fullpipe man diagnose | man -l -
  fullpipe man --out ~/.local/share/man/man1

Exit codes:
  0  done
  1  there is no such page, or it cannot be written
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = MAN_EXAMPLE)]
pub(crate) struct ManArgs {
    /// The command it is about; fullpipe itself when left out
    #[arg(conflicts_with = "out")]
    pub(crate) command: Option<String>,

    /// Write the pages of all commands to DIR instead
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

// The values of these say what they are: explained one by one they would stretch every help.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    #[default]
    Text,
    Json,
    Jsonl,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatapathName {
    #[default]
    Plain,
    Offload,
}

impl From<DatapathName> for fullpipe::Datapath {
    fn from(name: DatapathName) -> Self {
        match name {
            DatapathName::Plain => Self::Plain,
            DatapathName::Offload => Self::Offload,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum World {
    #[default]
    Sim,
    Emu,
    Live,
}
