//! Command-line arguments of `fullpipe dataset`, and those of `fullpipe run` that make a data set.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use fullpipe::units::Duration;

/// Options of `fullpipe run --dataset`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RunDatasetArgs {
    /// Write the results to DIR as Parquet files instead of printing them, or continue an interrupted data
    /// set in DIR; memory use does not grow with the number of runs
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["check", "format", "json", "out", "html", "pcapng", "row"]
    )]
    pub(crate) dataset: Option<PathBuf>,

    /// With --dataset, make only every Nth part, starting with part K (0 to N-1)
    #[arg(long, value_name = "K/N", requires = "dataset")]
    pub(crate) shard: Option<String>,

    /// With --dataset, read points from FILE (CSV or Parquet), whose columns replace fields of the experiment
    #[arg(long, value_name = "FILE", requires = "dataset")]
    pub(crate) points: Option<PathBuf>,

    /// With --dataset, also write trace rows at this interval, for example 100ms
    #[arg(long, value_name = "PERIOD", requires = "dataset")]
    pub(crate) trace: Option<Duration>,

    /// With --dataset, make this number of runs in parallel [default: one per core]
    #[arg(long, value_name = "N", requires = "dataset")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// With --dataset, limit each part to this number of predicted packets [default: 32 million, which take 4
    /// to 16 s to simulate; the last parts are smaller]
    #[arg(long, value_name = "N", requires = "dataset", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) part_packets: Option<u64>,

    /// Repeat the run that row N of the data set FILE comes from; fullpipe dataset show prints this command
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "repeat", "check"])]
    pub(crate) row: Option<u64>,
}

const DATASET_EXAMPLE: &str = "\
Examples:
  fullpipe dataset watch out
  fullpipe dataset show out --row 1234
  fullpipe dataset check out

To make a data set, use fullpipe run FILE --dataset DIR.

Exit codes:
  0  done
  1  DIR is not a data set, or check found a missing, damaged or foreign file
  2  wrong usage";

#[derive(Debug, ClapArgs)]
#[command(after_help = DATASET_EXAMPLE)]
pub(crate) struct DatasetArgs {
    #[command(subcommand)]
    pub(crate) action: DatasetAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetAction {
    /// Print the point and the seed of a row, and the command that repeats its run
    Show(DatasetShowArgs),
    /// List files that are missing, damaged, or not part of the data set
    Check(DatasetCheckArgs),
    /// Show the progress of the processes that make the data set, until it is complete
    Watch(DatasetWatchArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DatasetShowArgs {
    /// Folder of the data set
    pub(crate) dir: PathBuf,

    /// Number of the row, counted from 0 over all parts in order
    #[arg(long, value_name = "N")]
    pub(crate) row: u64,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DatasetWatchArgs {
    /// Folder of the data set, which the processes may fill from other machines
    pub(crate) dir: PathBuf,

    /// Print the present progress and exit
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DatasetCheckArgs {
    /// Folder of the data set
    pub(crate) dir: PathBuf,
}
