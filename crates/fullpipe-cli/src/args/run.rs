//! Command-line arguments of `fullpipe run`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fullpipe::units::Duration;

use super::{DatapathName, RunDatasetArgs, RunFormat, RunWorld};

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
