//! Command-line arguments of `fullpipe-fidelity`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use fullpipe::units::Rate;

const FIDELITY_EXAMPLE: &str = "\
Examples:
  fullpipe-fidelity experiments/fidelity.toml --out fidelity --page docs/evidence/fidelity.md
  fullpipe-fidelity --ladder --logs experiments/ladder-cells.toml --out ladder --cell 5 --again
  fullpipe-fidelity --ladder --golden --world uml experiments/ladder-golden.toml --out golden --page docs/evidence/ladder.md
  fullpipe-fidelity --situations experiments/kernel-situations.toml --out situations --page docs/evidence/situations.md
  fullpipe-fidelity --situations --live experiments/kernel-situations.toml --repeat 4 --out live --page docs/evidence/live.md
  fullpipe-fidelity --situations --inputs experiments/kernel-situations.toml --out inputs --page docs/evidence/situations.md
  fullpipe-fidelity experiments/fidelity-quick.toml --out quick --check
  fullpipe-fidelity --world uml experiments/fidelity.toml --out guests --page docs/evidence/guests.md
  fullpipe-fidelity --ladder --world uml experiments/ladder-cells.toml --out guests --page docs/evidence/ladder.md
  fullpipe-fidelity --ladder --logs --world uml experiments/ladder-cells.toml --out guests --page docs/evidence/ladder.md

Kernel runs take real time and require an otherwise idle machine. Each run is stored in --out when it ends,
and the same command resumes after Ctrl-C, a full disk or a crash. Runs with --world uml need no idle machine.
A path without loss is run with the first seed only (in the emulator, except for --situations, --logs and
--golden). A run that other load on the machine disturbed is
repeated at the end, up to five times in all, and so is a run that fails; the third failure ends the command.
With --logs and --golden, the page is written only if every run is valid.

Exit codes:
  0  done
  1  unusable input, or a failed run
  2  wrong usage
  3  with --check: no cell disagrees, but some could not be compared because other load disturbed their runs
  4  missing permission to create network namespaces or TUN devices
  5  with --check: the results differ by more than allowed, or too few limits are classified correctly";

/// World in which the kernel runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelWorld {
    #[default]
    Emu,
    Uml,
}

/// Run an experiment in the simulator and on the kernel TCP stack, and compare the results
#[derive(Debug, Parser)]
#[command(name = "fullpipe-fidelity", version, after_help = FIDELITY_EXAMPLE)]
pub(crate) struct FidelityArgs {
    /// Experiment file in TOML
    pub(crate) file: PathBuf,

    /// Simulate the ladder of each point, and run the remedy of every rung on the kernel TCP stack
    #[arg(long)]
    pub(crate) ladder: bool,

    /// Climb each ladder from an iperf3 log instead of the known path, and add eight drawn cells
    #[arg(long, requires = "ladder")]
    pub(crate) logs: bool,

    /// Climb the ladder of the cross-border log, and those of the points in FILE
    #[arg(long, requires = "ladder", conflicts_with = "logs")]
    pub(crate) golden: bool,

    /// With --logs, do not pass the hosts' sysctl settings to the diagnosis
    #[arg(long, requires = "logs")]
    pub(crate) without_sysctl: bool,

    /// With --logs, compare only cell N; the cells of FILE are numbered from 1, and the drawn cells follow
    #[arg(long, value_name = "N", requires = "logs", conflicts_with = "page",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) cell: Option<u64>,

    /// Ignore the stored kernel runs of the cell, and run them again on a quiet machine; not with --world uml,
    /// where repeated runs are identical
    #[arg(long, requires = "cell")]
    pub(crate) again: bool,

    /// Perform kernel runs concurrently while their link rates add up to at most 400 Mbit/s; repeat disturbed
    /// runs one at a time
    #[arg(long, conflicts_with = "live")]
    pub(crate) parallel: bool,

    /// Classify the limit of each run, and compare it with the expected limit of its point
    #[arg(long, conflicts_with = "ladder")]
    pub(crate) situations: bool,

    /// With --situations, measure each situation with fullpipe iperf3 -c against iperf3's own server
    #[arg(long, requires = "situations")]
    pub(crate) live: bool,

    /// With --situations, record each situation and drawn variants of it in virtual time as trace, iperf3
    /// JSON, iperf3 text, ss and capture, and diagnose all of them
    #[arg(long, requires = "situations", conflicts_with_all = ["live", "parallel", "repeat"])]
    pub(crate) inputs: bool,

    /// Number of drawn variants of each situation
    #[arg(long, value_name = "N", requires = "inputs", default_value_t = 11,
          value_parser = clap::value_parser!(u64).range(0..=40))]
    pub(crate) variants: u64,

    /// With --inputs, compare the diagnosis with that of another build of fullpipe
    #[arg(long, value_name = "PROGRAM", requires = "inputs")]
    pub(crate) before: Option<PathBuf>,

    /// Name of the other build in the table
    #[arg(long, value_name = "NAME", requires = "before")]
    pub(crate) before_name: Option<String>,

    /// Where the kernel runs: on an emulated path in real time (emu), or as a guest in virtual time (uml), whose
    /// runs are compared with the simulated runs seed by seed
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["live", "parallel"])]
    pub(crate) world: KernelWorld,

    /// With --world uml, require mean goodput within 1 % of the guest's in every cell (7 % for a rate-based
    /// control behind a send buffer below one BDP), and retransmissions within 10 % (25 % with several flows)
    #[arg(long, conflicts_with_all = ["ladder", "situations"])]
    pub(crate) strict: bool,

    /// With --world uml, run this User-Mode Linux kernel instead of linux.uml in PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,

    /// With --ladder --world uml, compare only the points whose link has at most this rate: guests and predictions of
    /// fast links take longer
    #[arg(long, value_name = "RATE", requires = "ladder", conflicts_with_all = ["logs", "golden"])]
    pub(crate) max_rate: Option<Rate>,

    /// Number of random seeds per point; overrides the value in FILE
    #[arg(long, visible_alias = "runs", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) repeat: Option<u64>,

    /// Keep the kernel runs in DIR, and reuse the runs that are already there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Also write the table to FILE as a Markdown page
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Exit with code 5 if a cell disagrees, the ladder misses its criterion, or too many limits are wrong, and
    /// with code 3 if a cell could not be compared
    #[arg(long)]
    pub(crate) check: bool,
}

impl FidelityArgs {
    /// Returns the option that selects the world, for a command line.
    pub(crate) const fn world_option(&self) -> &'static str {
        match self.world {
            KernelWorld::Emu => "",
            KernelWorld::Uml => "--world uml ",
        }
    }
}
