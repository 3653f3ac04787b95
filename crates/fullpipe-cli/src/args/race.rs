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
  fullpipe race --harm --full --out harm
  sudo fullpipe race --world emu
  sudo fullpipe race --harm --world emu --out harm

An arm is a sender: a congestion control (NAME), optionally with the initial window that surge has
in the race (NAME+iw), or with the settings of a profile (NAME+PROFILE). Surge's window is 44
segments, unless a profile sets launch.window. A cell is a path with a loss rate and a file size. In
each pair of a cell, all arms download the same file with identical packet losses. A ratio above 1
means that the arm is faster.

Without --full and --paths, a race has 24 cells: three paths, two loss rates (0 and 1 %) and four
sizes. With --paths, each point of the experiment is a cell. Its [[flow]] needs bytes and
app = { request = \"200B\" }; the arms replace its cc. repeat sets the number of pairs in a cell with
random loss, for example 60. Downloads of up to 100 kB get 50/3 times as many pairs (1000), because
a few of them wait for a timeout and take much longer; downloads of up to 640 kB get 20/3 times as
many (400), and larger downloads with a loss of 3 % or more get 5 times as many (300). Loss-based
senders take part in a third of the pairs that repeat states (20), and not in downloads of more than
640 kB with loss. A cell without random loss gets 10 pairs.

With --harm, each arm shares the path with another flow, the victim: a long transfer by cubic, reno
or bbr1, a stream of 5 Mbit/s, or 24 downloads (web). The harm is the share of its performance that
the victim loses; the result is the harm of each arm minus that of the --against arm. There are 30
cells: two rates, three queues and five victims; with --full, 525 cells. repeat sets the number of
runs per cell and arm.

With --world emu, senders race in real time, several at once on separate paths. The clients are
kernel sockets, and so are the senders that the kernel has. For the other arms, fullpipe's own TCP
sends, in the relay of fullpipe accelerate in front of the same server. Each cell gets the pairs
that repeat states, or 400 for downloads of up to 640 kB with a loss of 3 % or more. If the machine
does not keep up during a download, fullpipe repeats the download, at most twice.

With --harm --world emu, 24 of the cells of --harm --full run on emulated paths, five times each, in
about 35 minutes. The victims are kernel sockets. The table compares the excess harm of each cell
with its excess in the simulator, where the same cells run first.

Exit codes:
  0  done
  1  unusable input, or a failed run
  2  wrong usage
  4  missing permission: namespaces, TUN devices
  5  done, but with --check a ratio is below its bound, or an excess harm is above its bound
  130  interrupted by Ctrl-C; the results of the finished runs are printed, and kept with --out";

#[derive(Debug, ClapArgs)]
#[command(after_help = RACE_EXAMPLE)]
pub(crate) struct RaceArgs {
    /// Where to race: in the simulator (sim), or in real time on emulated paths (emu)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: World,

    /// Measure how much each arm harms other flows, instead of measuring download times
    #[arg(long, conflicts_with = "html")]
    pub(crate) harm: bool,

    /// Victim flows, separated by commas [default: cubic,reno,bbr1,stream,web]
    #[arg(long, value_name = "NAMES", requires = "harm")]
    pub(crate) victims: Option<String>,

    /// Senders to compare, separated by commas [default: cubic,bbr1,bbr1+iw,surge; with --harm, bbr1,surge]
    #[arg(long, value_name = "NAMES")]
    pub(crate) arms: Option<String>,

    /// Arm to compare the other arms with [default: bbr1, or the first arm if bbr1 is not in the race]
    #[arg(long, value_name = "NAME")]
    pub(crate) against: Option<String>,

    /// Race over the points of an experiment (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) paths: Option<PathBuf>,

    /// Read profiles for the arms (TOML, [profile.NAME])
    #[arg(long, value_name = "FILE")]
    pub(crate) profiles: Option<PathBuf>,

    /// Race over 68 cells: more sizes, rates, round-trip times, loss patterns and queues, and downloads over
    /// the tenth connection; with --harm, 525 cells, in the simulator only: more rates, round-trip times and
    /// queues, four flows, and short downloads
    #[arg(long, conflicts_with = "paths")]
    pub(crate) full: bool,

    /// Number of pairs per cell with random loss, regardless of the download size; with --harm, number of
    /// runs per cell and arm
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000))]
    pub(crate) pairs: Option<u64>,

    /// First random seed; overrides the value in FILE
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Exit with code 5 if a confidence interval violates its bound in FILE: the lower end of a ratio is
    /// below its [[ratio]] bound or, with --harm, the upper end of the excess harm is above its [[harm]]
    /// bound
    #[arg(long)]
    pub(crate) check: bool,

    /// Append each pair to DIR/race.jsonl as soon as it is complete, and also write race.json; if
    /// DIR/race.jsonl exists, make only the missing pairs. With --harm, the files are called harm.jsonl and
    /// harm.json
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Also write an HTML report with charts to FILE; the report loads nothing from the network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
