//! Flags of the iperf3 server (`fullpipe iperf3 -s`).

use clap::Args as ClapArgs;
use fullpipe::iperf3::params::TIME_MOST;
use fullpipe::iperf3::unit::parse_rate;
use fullpipe::units::{Duration, Rate};

/// Limits that the iperf3 server imposes on its clients.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Exit after one test
    #[arg(short = '1', long, conflicts_with = "client")]
    pub(crate) one_off: bool,

    /// Maximum number of concurrent tests; iperf3's own server runs one test at a time
    #[arg(long, value_name = "COUNT", default_value_t = 16, conflicts_with = "client",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) max_tests: u16,

    /// Maximum number of concurrent tests from one client address
    #[arg(long, value_name = "COUNT", default_value_t = 8, conflicts_with = "client",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) max_per_address: u16,

    /// Maximum duration of a test in seconds
    #[arg(long, visible_alias = "max-duration", value_name = "SECONDS", value_parser = seconds, conflicts_with = "client")]
    pub(crate) server_max_duration: Option<Duration>,

    /// Maximum total rate of a test in bit/s, averaged over SECONDS [default: 5 seconds]
    #[arg(long, visible_alias = "max-rate", value_name = "RATE[/SECONDS]", value_parser = limit, conflicts_with = "client")]
    pub(crate) server_bitrate_limit: Option<(Rate, Option<Duration>)>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let most = TIME_MOST.as_millis() / 1_000;
    let seconds = text.parse().ok().filter(|seconds| (1..=most).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| format!("'{text}' is not a time from 1 to {most} seconds"))
}

fn limit(text: &str) -> Result<(Rate, Option<Duration>), String> {
    let (rate, over) = match text.split_once('/') {
        Some((rate, over)) => (parse_rate(rate)?, Some(seconds(over)?)),
        None => (parse_rate(text)?, None),
    };
    if rate.is_zero() {
        Err("a limit of 0 blocks all traffic; remove the flag to set no limit".into())
    } else {
        Ok((rate, over))
    }
}
