//! Types for deserializing an experiment file: one field per key.

use std::collections::BTreeMap;

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_tcp::cc::{Algorithm, SlowStart};
use fullpipe_units::{Duration, Rate};
use serde::de::{Deserialize, Deserializer};
use toml::Spanned;

use super::impairments::{Aggregation, Detour, JitterSpec, LinkRate, Share, Thinning};
use super::queue::Queue;
use super::swept::{Scalar, Sweep, refuse};
use super::value::{
    Amount, App, BufferSize, Count, Delay, Loss, Mtu, Positive, Ratio, Segments, Value, WinScale,
};
use crate::arm::Arm;
use crate::metric::{Metric, MetricError, Over};
use crate::scenario::Stack;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentFile {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) duration: Sweep<Duration>,
    #[serde(default = "one")]
    pub(super) repeat: u64,
    #[serde(default = "one")]
    pub(super) seed: u64,
    pub(super) path: PathFile,
    #[serde(default)]
    pub(super) host: HostFile,
    pub(super) flow: Vec<FlowFile>,
    #[serde(default)]
    pub(super) point: Vec<PointFile>,
    #[serde(default)]
    pub(super) sample: Vec<SampleFile>,
    #[serde(default)]
    pub(super) expect: Vec<Spanned<ExpectFile>>,
    #[serde(default)]
    pub(super) ratio: Vec<Spanned<RatioFile>>,
}

fn one() -> u64 {
    1
}

/// A field of an experiment file that takes exactly one value, neither a list nor a range.
#[derive(Debug)]
pub(super) struct Single<T>(pub(super) T);

impl<'de, T: Value> Deserialize<'de> for Single<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Scalar::deserialize(deserializer)?;
        T::read(&written.text).map(Self).map_err(|problem| refuse(&problem))
    }
}

/// Defines a table of swept fields, and how a `[[point]]` overrides them.
macro_rules! swept_table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $value:ty),* $(,)? }
     $(own { $($own:ident: $own_type:ty),* })?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $(pub(super) $field: Option<Sweep<$value>>,)*
            $($(#[serde(default)] pub(super) $own: $own_type,)*)?
        }

        impl $name {
            /// Returns a copy of this table in which the fields that `over` sets are replaced.
            pub(super) fn overlaid(&self, over: &Self) -> Self {
                Self {
                    $($field: over.$field.as_ref().map(Sweep::varied).or_else(|| self.$field.clone()),)*
                    $($($own: self.$own.overlaid(&over.$own),)*)?
                }
            }
        }
    };
}

swept_table! {
    PathFile { rate: LinkRate, rtt: Delay, loss: Loss, queue: Queue, duplicate: Share, detour: Detour, jitter: JitterSpec, mtu: Mtu }
    own { forward: DirectionFile, backward: DirectionFile, policer: LimiterFile, shaper: LimiterFile }
}

swept_table! {
    DirectionFile {
        rate: LinkRate,
        loss: Loss,
        queue: Queue,
        delay: Delay,
        duplicate: Share,
        detour: Detour,
        jitter: JitterSpec,
        ack_thinning: Thinning,
        aggregation: Aggregation,
    }
    own { policer: LimiterFile, shaper: LimiterFile }
}

swept_table! {
    /// A `[policer]` or `[shaper]` table; the element exists only if the table sets a rate.
    LimiterFile { rate: Rate, burst: Amount, queue: Amount, per_flow: bool }
}

swept_table! {
    HostFile {
        kernel: KernelVersion,
        adv_win_scale: WinScale,
        window_ratio: Ratio,
        sndbuf: BufferSize,
        rcvbuf: BufferSize,
        window: Positive,
        fair_queue: bool,
        rx_merge: Duration,
        ecn: bool,
        sack: bool,
        initcwnd: Segments,
        slow_start_after_idle: bool,
        notsent_lowat: Positive,
    }
}

swept_table! {
    FlowFile {
        cc: Algorithm,
        slow_start: SlowStart,
        count: Count,
        bytes: Positive,
        start: Duration,
        max_pacing: Rate,
        app: App,
        stack: Stack,
    }
}

impl PathFile {
    /// Returns the names of the trace files that the rates of this path refer to.
    pub(super) fn traces(&self) -> impl Iterator<Item = &str> {
        let rates = [&self.rate, &self.forward.rate, &self.backward.rate];
        rates.into_iter().flatten().flat_map(Sweep::values).filter_map(|rate| match rate {
            LinkRate::Trace(name) => Some(name.as_str()),
            LinkRate::Constant(_) => None,
        })
    }
}

/// A `[[point]]` table: a set of overrides that defines one or more points.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PointFile {
    pub(super) name: Option<String>,
    pub(super) limit: Option<String>,
    #[serde(default)]
    pub(super) path: PathFile,
    #[serde(default)]
    pub(super) host: HostFile,
    #[serde(default)]
    pub(super) flow: FlowFile,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SampleFile {
    pub(super) every: Single<Duration>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectFile {
    #[serde(default, rename = "where")]
    pub(super) conditions: BTreeMap<String, Scalar>,
    pub(super) metric: Keyword<Metric>,
    pub(super) min: Option<Scalar>,
    pub(super) max: Option<Scalar>,
    #[serde(default)]
    pub(super) over: Keyword<Over>,
    pub(super) kernel: Option<Scalar>,
    pub(super) published: Option<Scalar>,
}

/// A `[[ratio]]` table: a bound of a ratio between two arms of a race.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RatioFile {
    #[serde(default, rename = "where")]
    pub(super) conditions: BTreeMap<String, Scalar>,
    pub(super) arm: Single<Arm>,
    pub(super) against: Single<Arm>,
    pub(super) min: Scalar,
}

/// A metric or an aggregation, deserialized from its name.
#[derive(Debug, Default)]
pub(super) struct Keyword<T>(pub(super) T);

impl<'de, T: std::str::FromStr<Err = MetricError>> Deserialize<'de> for Keyword<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(|problem: MetricError| refuse(&problem.into()))
    }
}
