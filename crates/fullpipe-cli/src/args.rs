//! Command-line arguments of all commands.

mod accelerate;
#[cfg_attr(
    not(all(target_os = "linux", feature = "copy")),
    allow(dead_code, reason = "this build has no relay")
)]
mod copy;
#[cfg_attr(not(feature = "tables"), allow(dead_code, reason = "this build has no data sets"))]
mod dataset;
mod diagnose;
mod emu;
mod exporter;
mod pair;
mod race;
mod run;
mod tune;
mod whatif;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fullpipe::prove::Prover;
use fullpipe::units::{Bytes, Rate};
use fullpipe::{Demand, InputError, Memory, UmlOptions};

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
#[cfg(target_os = "linux")]
pub(crate) use diagnose::Control;
pub(crate) use diagnose::DiagnoseArgs;
pub(crate) use emu::EmuArgs;
pub(crate) use exporter::ExporterArgs;
pub(crate) use pair::PairArgs;
pub(crate) use race::RaceArgs;
pub(crate) use run::RunArgs;
#[cfg_attr(not(target_os = "linux"), allow(unused_imports, reason = "the command is for Linux"))]
pub(crate) use tune::{
    PlaceArgs, PlanArgs, RoleName, RollbackArgs, ShowArgs, StateArgs, TuneAction, TuneArgs,
};
pub(crate) use whatif::{Flows, WhatifArgs};

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
