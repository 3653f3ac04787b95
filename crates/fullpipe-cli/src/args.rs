//! The arguments of every command.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fullpipe::{Demand, InputError, Memory};
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

const EXAMPLES: &str = "\
Examples:
  iperf3 -c HOST -t 30 | fullpipe diagnose - --link 1gbit --rtt 210ms
  fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm --buffers 4MiB
  fullpipe run experiments/weak-network.toml --check

Exit codes:
  0  done
  1  the input cannot be used, or the run went wrong
  2  wrong usage
  5  done, and with --check an expectation is not met";

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
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print a manual page, as troff
    Man(ManArgs),
}

const DIAGNOSE_EXAMPLE: &str = "\
Example:
  fullpipe diagnose cubic.iperf3.txt --link 1gbit --rtt 210ms --sysctl sysctl.txt

Exit codes:
  0  done
  1  the input cannot be used
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = DIAGNOSE_EXAMPLE)]
pub(crate) struct DiagnoseArgs {
    /// The output of iperf3 on the sending host, or - for standard input
    pub(crate) file: String,

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

    /// What one flow of the same host reaches on a local network, as 940mbit
    #[arg(long, value_name = "RATE")]
    pub(crate) control: Option<Rate>,

    /// Also write a report to FILE: one HTML page with charts that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
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

    /// Congestion control of the sender: reno, cubic or bbr
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

Exit codes:
  0  done
  1  the input cannot be used, or the run went wrong
  2  wrong usage
  5  done, and with --check an expectation is not met";

#[derive(Debug, ClapArgs)]
#[command(after_help = RUN_EXAMPLE)]
pub(crate) struct RunArgs {
    /// The experiment, a TOML file
    pub(crate) file: PathBuf,

    /// Where to run it: the simulator; emu and live are not built yet
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: World,

    /// Fail with exit code 5 unless every expectation of the file is met
    #[arg(long)]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Also write the results to DIR/result.json and the trace of every run to DIR/trace.csv
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Also write a report to FILE: one HTML page with charts that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// First seed, instead of the file's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Seeds per point, instead of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) repeat: Option<u64>,
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
pub(crate) enum World {
    #[default]
    Sim,
    Emu,
    Live,
}

impl World {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Emu => "emu",
            Self::Live => "live",
        }
    }
}
