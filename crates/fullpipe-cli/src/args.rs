//! Command-line arguments of all commands.

mod accelerate;
#[cfg_attr(
    not(all(target_os = "linux", feature = "copy")),
    allow(dead_code, reason = "this build has no relay")
)]
mod copy;
#[cfg_attr(not(feature = "tables"), allow(dead_code, reason = "this build has no data sets"))]
mod dataset;
mod race;
mod tune;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fullpipe::flow_counts::ParseFlowRangeError;
use fullpipe::lab::experiment::Amount;
use fullpipe::prove::Prover;
use fullpipe::tcp::buffers::KernelVersion;
use fullpipe::tcp::cc::Algorithm;
use fullpipe::units::{Bytes, Duration, ParseUnitError, Probability, Rate};
use fullpipe::{Demand, FlowRange, InputError, Memory, UmlOptions};

#[cfg_attr(not(target_os = "linux"), allow(unused_imports, reason = "the command is for Linux"))]
pub(crate) use accelerate::{
    AccelerateAction, AccelerateArgs, AccelerateStatusArgs, ClientAddressName, FirewallAction,
};
pub(crate) use copy::{CopyArgs, RelayArgs};
#[cfg(all(target_os = "linux", feature = "copy"))]
pub(crate) use copy::{RelayAction, RelayServeArgs};
#[cfg(feature = "tables")]
pub(crate) use dataset::{DatasetAction, DatasetCheckArgs, DatasetShowArgs, DatasetWatchArgs};
pub(crate) use dataset::{DatasetArgs, RunDatasetArgs};
pub(crate) use race::RaceArgs;
#[cfg_attr(not(target_os = "linux"), allow(unused_imports, reason = "the command is for Linux"))]
pub(crate) use tune::{
    PlaceArgs, PlanArgs, RoleName, RollbackArgs, ShowArgs, StateArgs, TuneAction, TuneArgs,
};

use crate::example::Example;
use crate::failure::Failure;
use crate::iperf3::Iperf3Args;
use crate::version;

/// Text that `fullpipe` prints without arguments: the command for each input that a user may have.
pub(crate) const FIRST_STEPS: &str = "\
fullpipe finds what limits a TCP transfer, and what would limit it next.

  no measurement yet   fullpipe diagnose --example
  a log or capture     fullpipe diagnose FILE --link 1gbit
  an iperf3 server     fullpipe diagnose HOST --link 1gbit
  a running program    fullpipe diagnose --pid PID --link 1gbit
  only a path          fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm
  a host to tune       fullpipe tune --link 1gbit --rtt 210ms

All commands and options: fullpipe --help
";

const EXAMPLES: &str = "\
Examples:
  fullpipe diagnose --example
  iperf3 -c HOST -t 30 | fullpipe diagnose - --link 1gbit --rtt 210ms
  fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm --buffers 4MiB
  fullpipe run experiments/weak-network.toml --check

Exit codes:
  0  done
  1  unusable input, or a failed run
  2  wrong usage
  3  the server of a measurement is unreachable, refuses the test, or disconnects
  4  missing permission: namespaces, TUN devices, sockets of other processes, changes to the host
  5  done, but an expectation of --check is not met
  6  tune: a change failed, and all changes were reverted

emu exits with the exit code of its command.";

/// Find what limits a TCP transfer, and what would limit it next
#[derive(Debug, Parser)]
#[command(name = "fullpipe", version = version::LONG, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Colour the output; auto uses colour on a terminal unless NO_COLOR is set or TERM is dumb
    #[arg(long, global = true, display_order = 100, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Report what limits a transfer, and simulate what would limit it next
    Diagnose(DiagnoseArgs),
    /// Calculate the rate that a transfer can reach on a given path, and simulate the remedies
    Whatif(WhatifArgs),
    /// Run an experiment and print its results
    Run(RunArgs),
    /// Check a data set, or find the run that a row comes from
    Dataset(DatasetArgs),
    /// Compare senders by their download times
    Race(RaceArgs),
    /// Find the first packet that differs between the simulator and a kernel
    Pair(PairArgs),
    /// Run a command behind an emulated path
    Emu(EmuArgs),
    /// Export per-connection TCP limits of this host as Prometheus metrics
    Exporter(ExporterArgs),
    /// Run an iperf3 test or server, and report what limits the transfer
    Iperf3(Box<Iperf3Args>),
    /// Plan, try, confirm and roll back TCP tuning of a host
    Tune(TuneArgs),
    /// Relay connections to a server on this host through fullpipe's own TCP
    Accelerate(AccelerateArgs),
    /// Copy files between hosts over several connections, and resume interrupted copies
    Copy(CopyArgs),
    /// Receive files from fullpipe copy and send files to it, or print the key of this host
    Relay(RelayArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print a manual page as troff
    Man(ManArgs),
}

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

#[derive(Debug, ClapArgs)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Same as --format json
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
    /// Offered load of the application, for example 150mbit; the report then shows on which rungs of the
    /// ladder the application's queue grows, and how fast
    #[arg(long, value_name = "RATE")]
    pub(crate) offered: Option<Rate>,

    /// Memory available to the application's queue, for example 2GiB [default: the sender's free memory, if
    /// run on the sender with --sysctl local]
    #[arg(long, value_name = "SIZE", requires = "offered")]
    pub(crate) memory: Option<Bytes>,
}

impl DemandArgs {
    /// Returns the offered load of the application, with its memory. `available` returns the free memory of
    /// the sending host if it is known.
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

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveArgs {
    /// Also run each simulated rung on a Linux kernel in virtual time, and print both rates; the kernel is
    /// FILE, or linux.uml in PATH (package user-mode-linux)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    prove: Option<Option<PathBuf>>,
}

impl ProveArgs {
    /// Finds the kernel that runs the rungs; returns `None` without `--prove`.
    pub(crate) fn prover(&self) -> Result<Option<Prover>, Failure> {
        let find = |kernel: &Option<PathBuf>| {
            Prover::find(&UmlOptions { kernel: kernel.clone(), ..UmlOptions::default() })
        };
        Ok(self.prove.as_ref().map(find).transpose()?)
    }
}

const WHATIF_EXAMPLE: &str = "\
Examples:
  fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm --buffers 4MiB
  fullpipe whatif --link 100mbit --rtt 40ms --buffers 128KiB --prove
  fullpipe whatif --link 500mbit --rtt 210ms --flows 1..16

Exit codes:
  0  done
  1  implausible values for the path, or no kernel for --prove
  2  wrong usage
  4  missing permission to trace processes (--prove)";

/// Number of parallel flows, or a range of such numbers to simulate one by one.
#[derive(Clone, Debug)]
pub(crate) enum Flows {
    Number(u64),
    Range(FlowRange),
}

impl FromStr for Flows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("..") {
            return text.parse().map(Self::Range).map_err(|error: ParseFlowRangeError| error.to_string());
        }
        let wrong = |_| format!("'{text}' is neither a number nor a range such as 1..16");
        text.parse().map(Self::Number).map_err(wrong)
    }
}

#[derive(Debug, ClapArgs)]
#[command(after_help = WHATIF_EXAMPLE)]
pub(crate) struct WhatifArgs {
    /// Rate of the link, for example 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Rate,

    /// Round-trip time of the idle path, for example 210ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Duration,

    /// Packet loss probability, for example 20ppm or 1.5%
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// Set the number of parallel flows, 1 to 1000; with a range within 1 to 64, for example 1..16, print a
    /// table of the rates for each number instead of the ladder [default: 1]
    #[arg(long, value_name = "NUMBER|MIN..MAX")]
    pub(crate) flows: Option<Flows>,

    /// Set the payload of a full segment, for example 1448B or 8948B [default: 1448B]
    #[arg(long, value_name = "SIZE")]
    pub(crate) mss: Option<Bytes>,

    /// Set the capacity of the queue at the bottleneck, for example 1MiB [default: 1 BDP]
    #[arg(long, value_name = "SIZE")]
    pub(crate) queue: Option<Bytes>,

    /// Cap each flow at a rate below the link rate, for example 100mbit [default: no cap]
    #[arg(long, value_name = "RATE")]
    pub(crate) cap: Option<Rate>,

    /// Set both maximum buffer sizes, tcp_wmem[2] of the sender and tcp_rmem[2] of the receiver, for example
    /// 4MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["sndbuf", "rcvbuf"])]
    pub(crate) buffers: Option<Bytes>,

    /// Set the sender's maximum buffer size, tcp_wmem[2], for example 4MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) sndbuf: Option<Bytes>,

    /// Set the receiver's maximum buffer size, tcp_rmem[2], for example 6MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) rcvbuf: Option<Bytes>,

    /// Kernel version of both hosts, for example 6.8
    /// [default: 6.8, or the version of the kernel with --prove]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<KernelVersion>,

    /// Congestion control of the sender: reno, bic, cubic, vegas, bbr, bbr3 or surge
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) cc: Algorithm,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    #[command(flatten)]
    pub(crate) prove: ProveArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const RUN_EXAMPLE: &str = "\
Examples:
  fullpipe run experiments/weak-network.toml --repeat 3 --out results
  fullpipe run sweep.toml --dataset out --shard 0/4

Before the first run, fullpipe prints the number of runs and the estimated time to standard error.
After the first Ctrl-C, it waits for the current runs; after the second, it abandons them. In both
cases, it keeps the finished runs. A third Ctrl-C exits at once. In FILE, duration and every field
of path, host and flow may be a list or a range.

Exit codes:
  0  done
  1  unusable input, or a failed run
  2  wrong usage
  4  emu: missing permission to create network namespaces or TUN devices
     uml: missing permission to trace processes or to fix addresses
  5  done, but with --check an expectation is not met, or an emu run is not valid
  130  interrupted";

#[derive(Debug, ClapArgs)]
#[command(after_help = RUN_EXAMPLE)]
pub(crate) struct RunArgs {
    /// Experiment to run (TOML), or with --row the folder of a data set
    pub(crate) file: PathBuf,

    /// Where to run the experiment: in the simulator (sim), with the kernel TCP stack on an emulated path (emu),
    /// or with the TCP stack of a User-Mode Linux kernel in virtual time (uml)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: RunWorld,

    /// With --world uml, run this kernel instead of linux.uml in PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,

    /// With --world uml, load congestion controls from DIR instead of the folder of the kernel's package
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,

    /// With --world uml, kill a guest that is still running after this time, for example 10min [default: 2min
    /// plus 1min per simulated second]
    #[arg(long, value_name = "TIME")]
    pub(crate) time_limit: Option<Duration>,

    /// With --world emu, pass packets one by one (plain), or as super-packets for higher rates (offload)
    #[arg(long, value_enum)]
    pub(crate) datapath: Option<DatapathName>,

    /// Exit with code 5 if any [[expect]] in FILE is not met
    #[arg(long)]
    pub(crate) check: bool,

    /// Output format; jsonl prints one JSON object per run, as soon as the run ends
    #[arg(long, value_enum, default_value_t)]
    format: RunFormat,

    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Also write result.json, results.csv (one row per flow and run), results.jsonl (one object per run) and
    /// trace.csv to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Also write an HTML report with charts to FILE; the report loads nothing from the network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Also write the packets of the first run (first point, first seed) to FILE in pcapng format, as
    /// captured at the sender
    #[arg(long, value_name = "FILE")]
    pub(crate) pcapng: Option<PathBuf>,

    /// First random seed; overrides the value in FILE
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Number of random seeds per point; overrides the value in FILE
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) repeat: Option<u64>,

    #[command(flatten)]
    pub(crate) dataset: RunDatasetArgs,
}

impl RunArgs {
    pub(crate) fn format(&self) -> RunFormat {
        if self.json { RunFormat::Json } else { self.format }
    }
}

const PAIR_EXAMPLE: &str = "\
Examples:
  fullpipe pair experiments/slow-start.toml
  fullpipe pair experiments/fidelity.toml --point 29 --seed 3 --packets 10

Both runs use virtual time, the same path and the same packet losses. The output shows the first
packet that differs in content or time, or that only one of the runs sends, and the state of both
senders around it.

Exit codes:
  0  done
  1  unusable input, no User-Mode Linux kernel, or a failed run
  2  wrong usage
  4  missing permission to trace processes or to fix addresses";

#[derive(Debug, ClapArgs)]
#[command(after_help = PAIR_EXAMPLE)]
pub(crate) struct PairArgs {
    /// Experiment that contains the point to run (TOML)
    pub(crate) file: PathBuf,

    /// World to compare; pass the option twice [default: sim and uml]
    #[arg(long, value_enum, value_name = "WORLD")]
    pub(crate) world: Vec<RunWorld>,

    /// Run this User-Mode Linux kernel instead of linux.uml in PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,

    /// Load congestion controls from DIR instead of the folder of the kernel's package
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,

    /// Run the point with this name or label [default: the first point]
    #[arg(long, value_name = "POINT")]
    pub(crate) point: Option<String>,

    /// Random seed [default: the first seed of FILE]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Treat packets as equal if their times differ by at most TIME
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub(crate) tolerance: Duration,

    /// Sample the state of both senders at this interval
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    pub(crate) every: Duration,

    /// Number of packets to print before and after the one that differs
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) packets: usize,
}

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

const COMPLETIONS_EXAMPLE: &str = "\
Example:
  fullpipe completions bash > ~/.local/share/bash-completion/completions/fullpipe

Exit codes:
  0  done
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = COMPLETIONS_EXAMPLE)]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    pub(crate) shell: Shell,
}

const MAN_EXAMPLE: &str = "\
Examples:
  fullpipe man diagnose | man -l -
  fullpipe man --out ~/.local/share/man/man1

Exit codes:
  0  done
  1  unknown page, or the page cannot be written
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = MAN_EXAMPLE)]
pub(crate) struct ManArgs {
    /// Print the manual page of this command [default: fullpipe]
    #[arg(conflicts_with = "out")]
    pub(crate) command: Option<String>,

    /// Write the manual pages of all commands to DIR, instead of printing one page
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

// The values of the following enums have no doc comments, because with comments clap would print a list of
// values instead of one line.

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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunWorld {
    #[default]
    Sim,
    Emu,
    Uml,
}
