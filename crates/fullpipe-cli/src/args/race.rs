//! Command-line arguments of `fullpipe race`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{OutputArgs, World};

const RACE_EXAMPLE: &str = "\
Examples:
  fullpipe race
  fullpipe race --arms reno,cubic,cubic+iw --against cubic --pairs 20
  fullpipe race --full --out race --check
  fullpipe race --harm
  sudo fullpipe race --world emu

An arm is a congestion control, NAME+iw for one with an initial window of 44 segments, or
NAME+PROFILE for one with the settings of a profile. In each pair of a cell, all arms download the
same file with identical packet losses. A ratio above 1 means that the arm is faster.

Without --full and --paths, a race has 24 cells: three paths, no loss and 1 %, and four sizes. With
--paths, the points of the experiment are the cells. Its [[flow]] needs bytes and
app = { request = \"200B\" }; the arms replace its cc. repeat is the number of pairs of a cell with
random loss, 60 for example. Downloads of up to 100 kB have 50/3 as many (1000), because a few of
them wait for a timeout, and downloads of up to 640 kB have 20/3 as many (400). A cell without
random loss has 10.

With --harm, each arm sends beside another flow, the victim: a long transfer by cubic, reno or
bbr1, a stream of 5 Mbit/s, or 24 downloads (web). The harm is the share of its performance that
the victim loses; the result is the harm of each arm minus that of --against. There are 30 cells:
two rates, three queues and five victims; with --full, 510. repeat is the number of runs per cell
and arm.

With --world emu, the kernel's senders race in real time, several at once on separate paths. A
download with which the machine did not keep up is made again, at most twice.

Exit codes:
  0  done
  1  unusable input, or a failed run
  2  wrong usage
  4  missing permission: namespaces, TUN devices
  5  done, but with --check a ratio is below its bound, or an excess of harm above it";

#[derive(Debug, ClapArgs)]
#[command(after_help = RACE_EXAMPLE)]
pub(crate) struct RaceArgs {
    /// Where to race: in the simulator (sim), or with kernel TCP on emulated paths (emu)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: World,

    /// Measure what other flows lose beside each arm, instead of the times of downloads
    #[arg(long, conflicts_with_all = ["out", "html"])]
    pub(crate) harm: bool,

    /// Flows that are harmed, separated by commas [default: cubic,reno,bbr1,stream,web]
    #[arg(long, value_name = "NAMES", requires = "harm")]
    pub(crate) victims: Option<String>,

    /// Senders to compare, separated by commas [default: cubic,bbr1,bbr1+iw and, in the simulator, surge;
    /// with --harm, bbr1,surge]
    #[arg(long, value_name = "NAMES")]
    pub(crate) arms: Option<String>,

    /// Arm with which to compare the other arms [default: bbr1, or the first arm if bbr1 is not in the race]
    #[arg(long, value_name = "NAME")]
    pub(crate) against: Option<String>,

    /// Race over the points of an experiment (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) paths: Option<PathBuf>,

    /// Read profiles for the arms (TOML, [profile.NAME])
    #[arg(long, value_name = "FILE")]
    pub(crate) profiles: Option<PathBuf>,

    /// Race over 68 cells: more sizes, rates, round-trip times, loss patterns and queues, and tenth connections;
    /// with --harm, 510 cells: more rates, round-trip times and queues, four flows, and short downloads
    #[arg(long, conflicts_with = "paths")]
    pub(crate) full: bool,

    /// Number of pairs of each cell with random loss, whatever the size of the download; with --harm, of
    /// each cell
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000))]
    pub(crate) pairs: Option<u64>,

    /// First random seed; overrides the value in FILE
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Exit with code 5 unless the lower end of every bounded ratio reaches its bound ([[ratio]] in FILE), or
    /// with --harm, unless the upper end of every bounded excess is within its bound ([[harm]])
    #[arg(long)]
    pub(crate) check: bool,

    /// Store each pair in DIR/race.jsonl as soon as it is complete, and continue with the pairs that are
    /// missing there; also write race.json
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Also write an HTML report with charts to FILE; the report loads nothing from the network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
