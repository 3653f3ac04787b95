//! Command-line arguments of `fullpipe pair`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fullpipe::units::Duration;

use super::RunWorld;

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
