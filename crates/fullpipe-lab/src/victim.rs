//! Victims: flows whose loss of performance beside other senders is measured, with their transfers and
//! metrics.

use std::fmt;
use std::str::FromStr;

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate, draw};

use crate::outcome::FlowOutcome;
use crate::scenario::FlowSpec;
use crate::workload::{Workload, Writing};

/// Number of the random stream for the start times.
const STARTS: u64 = 0x7669_6374;

/// Divisor of the run's duration; the quotient, an eighth of the run, is the period in which long flows
/// start.
pub(crate) const STARTS_SHARE: u64 = 8;

/// Number of downloads of the web mix, and the sizes that they use in turn: HTML, a script, a picture, and a
/// larger picture.
const DOWNLOADS: usize = 24;
const SIZES: [Bytes; 4] = [Bytes::new(15_000), Bytes::new(60_000), Bytes::new(200_000), Bytes::new(640_000)];
/// Size of each request of the web mix.
const REQUEST: Bytes = Bytes::new(200);
/// Fraction of the run in which the downloads start; the rest lets the last downloads complete.
const DOWNLOADS_SHARE: (u64, u64) = (3, 4);

/// Data rate of the stream, typical of full-HD video.
const STREAM_RATE: Rate = Rate::from_bps(5_000_000);

/// A flow whose loss of performance is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A long transfer by CUBIC; its goodput is measured.
    Cubic,
    /// A long transfer by Reno; its goodput is measured.
    Reno,
    /// A long transfer by BBRv1; its goodput is measured.
    Bbr1,
    /// Data that is produced at 5 Mbit/s and sent by CUBIC; the 99th percentile of its delay is measured.
    Stream,
    /// 24 downloads of 15 to 640 kB by CUBIC; their mean time from the SYN is measured.
    Web,
}

impl Victim {
    /// All victims.
    pub const ALL: [Self; 5] = [Self::Cubic, Self::Reno, Self::Bbr1, Self::Stream, Self::Web];

    /// Hint that lists the names of all victims.
    pub const KNOWN: &'static str = "known: cubic, reno, bbr1, stream, web";

    /// Returns the name of the victim.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Bbr1 => "bbr1",
            Self::Stream => "stream",
            Self::Web => "web",
        }
    }

    /// Returns the congestion control of the victim's flows.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Cubic | Self::Stream | Self::Web => Algorithm::Cubic,
            Self::Reno => Algorithm::Reno,
            Self::Bbr1 => Algorithm::Bbr1,
        }
    }

    /// Returns whether a higher value of the victim's metric is better.
    pub(crate) const fn more_is_better(self) -> bool {
        matches!(self, Self::Cubic | Self::Reno | Self::Bbr1)
    }

    /// Returns the flows of the victim in a run of `duration`.
    pub(crate) fn flows(self, duration: Duration, seed: u64) -> Vec<FlowSpec> {
        let long = || {
            let start = scaled(duration / STARTS_SHARE, draw(seed, STARTS, 0));
            FlowSpec { start, ..FlowSpec::plain(self.algorithm()) }
        };
        match self {
            Self::Cubic | Self::Reno | Self::Bbr1 => vec![long()],
            Self::Stream => {
                let workload = Workload { writing: Writing::smooth(STREAM_RATE), ..Workload::default() };
                vec![FlowSpec { workload, ..long() }]
            }
            Self::Web => {
                let within = duration * DOWNLOADS_SHARE.0 / DOWNLOADS_SHARE.1;
                let starts = spread(DOWNLOADS, within, seed, STARTS);
                let workload = Workload { request: Some(REQUEST), ..Workload::default() };
                let download = |(start, size): (Duration, &Bytes)| FlowSpec {
                    start,
                    bytes: Some(*size),
                    workload,
                    ..FlowSpec::plain(self.algorithm())
                };
                starts.zip(SIZES.iter().cycle()).map(download).collect()
            }
        }
    }

    /// Returns the victim's metric: bit/s for a long transfer, otherwise seconds. `specs` are the specifications
    /// of `flows`.
    pub(crate) fn measured(
        self,
        specs: &[FlowSpec],
        flows: &[FlowOutcome],
        duration: Duration,
    ) -> Option<f64> {
        match self {
            Self::Cubic | Self::Reno | Self::Bbr1 => Some(flows.first()?.goodput.as_bps() as f64),
            Self::Stream => Some(flows.first()?.delay_p99?.as_secs_f64()),
            Self::Web => {
                // For an incomplete download, the metric uses the time that it has taken so far.
                let time = |(spec, flow): (&FlowSpec, &FlowOutcome)| {
                    let response = flow.response.map(|response| response.from_syn);
                    response.unwrap_or(duration.saturating_sub(spec.start)).as_secs_f64()
                };
                crate::stats::mean(specs.iter().zip(flows).map(time))
            }
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a string that does not name a victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVictim(String);

impl fmt::Display for UnknownVictim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown victim '{}'", self.0)
    }
}

impl std::error::Error for UnknownVictim {}

impl FromStr for Victim {
    type Err = UnknownVictim;

    fn from_str(text: &str) -> Result<Self, UnknownVictim> {
        Self::ALL.into_iter().find(|victim| victim.name() == text).ok_or_else(|| UnknownVictim(text.into()))
    }
}

/// Returns a fraction of `span` that is proportional to the random number.
pub(crate) fn scaled(span: Duration, random: u64) -> Duration {
    Duration::from_nanos(((u128::from(span.as_nanos()) * u128::from(random)) >> 64) as u64)
}

/// Returns `count` start times in `span`: one random time in each of `count` equal parts.
pub(crate) fn spread(count: usize, span: Duration, seed: u64, stream: u64) -> impl Iterator<Item = Duration> {
    let part = span / (count as u64).max(1);
    (0..count as u64).map(move |number| part * number + scaled(part, draw(seed, stream, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_victim_answers_to_its_name() {
        for victim in Victim::ALL {
            assert_eq!(victim.to_string().parse(), Ok(victim));
            assert!(Victim::KNOWN.contains(victim.name()));
        }
        assert_eq!("bbr".parse::<Victim>().expect_err("no victim").to_string(), "unknown victim 'bbr'");
    }
}
