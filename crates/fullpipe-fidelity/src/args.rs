//! The command line arguments.

use std::path::PathBuf;

use clap::Parser;

const FIDELITY_EXAMPLE: &str = "\
Examples:
  fullpipe-fidelity experiments/fidelity.toml --out fidelity --page docs/FIDELITY.md
  fullpipe-fidelity --ladder experiments/ladder-cells.toml --out ladder --page docs/LADDER.md
  fullpipe-fidelity --situations experiments/kernel-situations.toml --out situations --page docs/SITUATIONS.md
  fullpipe-fidelity --situations --live experiments/kernel-situations.toml --repeat 4 --out live --page docs/LIVE.md
  fullpipe-fidelity experiments/fidelity-quick.toml --out quick --check

Kernel runs take real time and want a machine that has nothing else to do. Each is kept in --out as soon as it is made; the
same command goes on where it stopped, whether Ctrl-C, a full disk or a crash had ended it. A path without loss is run with
the first seed only (but for --situations), and a run that the machine disturbed is made again at the end.

Exit codes:
  0  done
  1  the input cannot be used, or a run went wrong
  2  wrong usage
  4  this process may not make network namespaces or TUN devices
  5  with --check: the two are not as near as is asked, or the right limit is not named often enough";

/// Run an experiment in the simulator and on the kernel, and compare
#[derive(Debug, Parser)]
#[command(name = "fullpipe-fidelity", version, after_help = FIDELITY_EXAMPLE)]
pub(crate) struct FidelityArgs {
    /// Experiment file in TOML
    pub(crate) file: PathBuf,

    /// Run whatif's ladder for each point, and the remedy of every rung on the kernel
    #[arg(long)]
    pub(crate) ladder: bool,

    /// Classify the limit of each run, and compare it with the limit of its point
    #[arg(long, conflicts_with = "ladder")]
    pub(crate) situations: bool,

    /// With --situations, measure each run with fullpipe iperf3 -c against iperf3's own server
    #[arg(long, requires = "situations")]
    pub(crate) live: bool,

    /// Seeds per point, instead of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) repeat: Option<u64>,

    /// Keep the kernel's runs in DIR, and reuse those already there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Also write the table to FILE, a page in Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Exit with 5 unless every cell agrees, the ladder holds, or 95 % of the limits are right
    #[arg(long)]
    pub(crate) check: bool,
}
