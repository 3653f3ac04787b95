//! Command-line arguments of `fullpipe-fidelity`.

use std::path::PathBuf;

use clap::Parser;

const FIDELITY_EXAMPLE: &str = "\
Examples:
  fullpipe-fidelity experiments/fidelity.toml --out fidelity --page docs/evidence/fidelity.md
  fullpipe-fidelity --ladder experiments/ladder-cells.toml --out ladder --page docs/evidence/ladder.md
  fullpipe-fidelity --situations experiments/kernel-situations.toml --out situations --page docs/evidence/situations.md
  fullpipe-fidelity --situations --live experiments/kernel-situations.toml --repeat 4 --out live --page docs/evidence/live.md
  fullpipe-fidelity experiments/fidelity-quick.toml --out quick --check

Kernel runs take real time and require an otherwise idle machine. Each run is stored in --out when it ends,
and the same command resumes after Ctrl-C, a full disk or a crash. A path without loss is run with the first
seed only (except for --situations). A run that other load on the machine disturbed is repeated at the end.

Exit codes:
  0  done
  1  unusable input, or a failed run
  2  wrong usage
  4  missing permission to create network namespaces or TUN devices
  5  with --check: the results differ by more than allowed, or too few limits are classified correctly";

/// Run an experiment in the simulator and on the kernel TCP stack, and compare the results
#[derive(Debug, Parser)]
#[command(name = "fullpipe-fidelity", version, after_help = FIDELITY_EXAMPLE)]
pub(crate) struct FidelityArgs {
    /// Experiment file in TOML
    pub(crate) file: PathBuf,

    /// Simulate the ladder of each point, and run the remedy of every rung on the kernel TCP stack
    #[arg(long)]
    pub(crate) ladder: bool,

    /// Classify the limit of each run, and compare it with the expected limit of its point
    #[arg(long, conflicts_with = "ladder")]
    pub(crate) situations: bool,

    /// With --situations, measure each situation with fullpipe iperf3 -c against iperf3's own server
    #[arg(long, requires = "situations")]
    pub(crate) live: bool,

    /// Number of random seeds per point; overrides the value in FILE
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) repeat: Option<u64>,

    /// Keep the kernel runs in DIR, and reuse the runs that are already there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Also write the table to FILE as a Markdown page
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Exit with code 5 if a cell disagrees, the ladder misses its criterion, or too many limits are wrong
    #[arg(long)]
    pub(crate) check: bool,
}
