//! Types for deserializing an experiment file: one field per key.
//!
//! A test (`tests/it/reference.rs`) writes the tables of `docs/reference/experiment-file.md` from the comments
//! of these fields. If the comment of a field has a line that begins with `Type:` or `Range:`, this line replaces that
//! of the field's type, in the comment above `impl Value for`. A value in backticks after `Default:` is checked: an
//! experiment with this value has the same scenarios as one without it.

use std::collections::BTreeMap;

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_tcp::cc::SlowStart;
use fullpipe_units::{Duration, Rate};
use serde::de::{Deserialize, Deserializer};
use toml::Spanned;

use super::impairments::{Aggregation, Detour, JitterSpec, LinkRate, Share, Thinning};
use super::queue::Queue;
use super::swept::{Scalar, Sweep, refuse};
use super::value::{
    Amount, App, BufferSize, Count, Delay, Factor, Loss, Mtu, Positive, Ratio, RttShare, Segments, Tries,
    Value, WinScale,
};
use crate::algorithm::FlowAlgorithm;
use crate::arm::Arm;
use crate::metric::{Metric, MetricError, Over};
use crate::profile::ProfileName;
use crate::scenario::Stack;
use crate::victim::Victim;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentFile {
    /// Name of the experiment, as in the reports.
    /// Type: text
    /// Range: not empty
    /// Default: required
    pub(super) name: String,
    /// One-line description of the experiment.
    /// Type: text
    /// Default: empty
    #[serde(default)]
    pub(super) description: String,
    /// Duration of each run.
    /// Range: `1ms` to `86400s`
    /// Default: required
    pub(super) duration: Sweep<Duration>,
    /// Number of seeds with which each point runs.
    /// Type: whole number
    /// Range: 1 to 10 000
    /// Default: `1`
    #[serde(default = "one")]
    pub(super) repeat: u64,
    /// First seed. The other runs of a point use the consecutive numbers after it.
    /// Type: whole number
    /// Default: `1`
    #[serde(default = "one")]
    pub(super) seed: u64,
    /// The path that all flows share: [path](#path).
    /// Type: table
    /// Default: required
    pub(super) path: PathFile,
    /// Settings of both hosts: [host](#host).
    /// Type: table
    /// Default: empty
    #[serde(default)]
    pub(super) host: HostFile,
    /// The flows: [flow](#flow).
    /// Type: one table or more
    /// Default: required
    pub(super) flow: Vec<FlowFile>,
    /// Settings of senders, by name: [profiles](profiles.md).
    /// Type: tables
    /// Default: none
    #[serde(default)]
    pub(super) profile: BTreeMap<String, Spanned<toml::Table>>,
    /// Points that the combinations of lists cannot express: [point](#point).
    /// Type: tables
    /// Default: none
    #[serde(default)]
    pub(super) point: Vec<PointFile>,
    /// Interval of the trace: [sample](#sample).
    /// Type: one table
    /// Default: none
    #[serde(default)]
    pub(super) sample: Vec<SampleFile>,
    /// Expected results: [expect](#expect).
    /// Type: tables
    /// Default: none
    #[serde(default)]
    pub(super) expect: Vec<Spanned<ExpectFile>>,
    /// Bounds for `fullpipe race`: [ratio](#ratio).
    /// Type: tables
    /// Default: none
    #[serde(default)]
    pub(super) ratio: Vec<Spanned<RatioFile>>,
    /// Bounds for `fullpipe race --harm`: [harm](#harm).
    /// Type: tables
    /// Default: none
    #[serde(default)]
    pub(super) harm: Vec<Spanned<HarmFile>>,
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
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $value:ty),* $(,)? }
     $(own { $($(#[$own_doc:meta])* $own:ident: $own_type:ty),* $(,)? })?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $($(#[$field_doc])* pub(super) $field: Option<Sweep<$value>>,)*
            $($($(#[$own_doc])* #[serde(default)] pub(super) $own: $own_type,)*)?
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
    PathFile {
        /// Rate of the link in both directions, or a [trace file](#notes-on-keys-of-a-path).
        /// Default: required
        rate: LinkRate,
        /// Round-trip propagation delay: the sum of the delays of both directions.
        /// Range: `1us` to `100s`
        /// Default: required, unless both directions have `delay`
        rtt: Delay,
        /// Random loss of packets, or of whole super-packets (`of`).
        /// Default: `"0%"`
        loss: Loss,
        /// Size of the queue in front of the link, and its [AQM](#queues).
        /// Default: `"1bdp"`
        queue: Queue,
        /// Probability that a packet is duplicated.
        /// Default: `"0%"`
        duplicate: Share,
        /// Additional delay for a limited time, such as after a route change.
        /// Default: none
        detour: Detour,
        /// Random additional delay of each packet.
        /// Default: none
        jitter: JitterSpec,
        /// Maximum packet size, IP header included.
        /// Default: `1500`
        mtu: Mtu,
    }
    own {
        /// Keys of the data direction: [direction](#pathforward-and-pathbackward).
        /// Type: table
        /// Default: the keys of `[path]`
        forward: DirectionFile,
        /// Keys of the ACK direction: [direction](#pathforward-and-pathbackward).
        /// Type: table
        /// Default: the rate of `[path]`; an unlimited queue, no loss
        backward: DirectionFile,
        /// Token bucket that drops packets that exceed its rate: [limiter](#policer-and-shaper).
        /// Type: table
        /// Default: none
        policer: LimiterFile,
        /// Token bucket that delays packets that exceed its rate: [limiter](#policer-and-shaper).
        /// Type: table
        /// Default: none
        shaper: LimiterFile,
    }
}

swept_table! {
    DirectionFile {
        /// Rate of the link in this direction.
        /// Default: the rate of `[path]`
        rate: LinkRate,
        /// Loss in this direction.
        /// Default: forward that of `[path]`, backward none
        loss: Loss,
        /// Queue of this direction.
        /// Default: forward that of `[path]`, backward unlimited
        queue: Queue,
        /// One-way propagation delay. The delays of both directions add up to `rtt`.
        /// Default: half of `rtt`; if the other direction has `delay`, the rest of `rtt`
        delay: Delay,
        /// Duplication in this direction.
        /// Default: forward that of `[path]`, backward none
        duplicate: Share,
        /// Detour of this direction.
        /// Default: forward that of `[path]`, backward none
        detour: Detour,
        /// Jitter of this direction.
        /// Default: forward that of `[path]`, backward none
        jitter: JitterSpec,
        /// ACK decimation: one pure ACK in n is forwarded.
        /// Default: `1`
        ack_thinning: Thinning,
        /// Release of packets in batches, as a radio link or a receiving network card does.
        /// Default: none
        aggregation: Aggregation,
    }
    own {
        /// Policer of this direction: [limiter](#policer-and-shaper).
        /// Type: table
        /// Default: forward that of `[path]`, backward none
        policer: LimiterFile,
        /// Shaper of this direction: [limiter](#policer-and-shaper).
        /// Type: table
        /// Default: forward that of `[path]`, backward none
        shaper: LimiterFile,
    }
}

swept_table! {
    /// A `[policer]` or `[shaper]` table; the element exists only if the table sets a rate.
    LimiterFile {
        /// Rate at which the bucket is filled.
        /// Default: required
        rate: Rate,
        /// Size of the bucket. A smaller value than the default has no effect.
        /// Default: two packets of the MTU
        burst: Amount,
        /// Size of the shaper's queue. For a multiple of the BDP, the rate is the smaller of the shaper's
        /// rate and the link's rate. A policer has no queue.
        /// Default: one BDP, for a shaper
        queue: Amount,
        /// Whether each flow has its own bucket; otherwise, all flows share one bucket.
        /// Default: `false`
        per_flow: bool,
    }
}

swept_table! {
    HostFile {
        /// Linux release whose behaviour is modelled: windows, autotuning and defaults.
        /// Default: `"6.18"`
        kernel: KernelVersion,
        /// Value of `tcp_adv_win_scale`, which determines the share of the receive buffer that is advertised
        /// as window; only for kernels before 6.6.
        /// Default: 1
        adv_win_scale: WinScale,
        /// Share of the receive buffer that is advertised as window; only for kernels since 6.6.
        /// Default: 0.625 for segments of 1448 bytes
        window_ratio: Ratio,
        /// Send buffer: the limit of autotuning (`tcp_wmem[2]`), or a fixed size (`SO_SNDBUF`).
        /// Default: `"4MiB"`
        sndbuf: BufferSize,
        /// Receive buffer: the limit of autotuning (`tcp_rmem[2]`), or a fixed size (`SO_RCVBUF`).
        /// Default: `"32MiB"`; 6 MiB for kernels before 6.16
        rcvbuf: BufferSize,
        /// Upper bound on the advertised window (`TCP_WINDOW_CLAMP`).
        /// Default: none
        window: Positive,
        /// Whether the sender paces every flow (`fq`). BBR always paces.
        /// Default: `false`
        fair_queue: bool,
        /// Time within which arriving packets of a flow are merged into one segment (GRO).
        /// Default: `"0s"`
        rx_merge: Duration,
        /// Whether senders request ECN.
        /// Default: `false`
        ecn: bool,
        /// Whether hosts use SACK.
        /// Default: `true`
        sack: bool,
        /// Initial congestion window.
        /// Default: 10
        initcwnd: Segments,
        /// Whether an idle period reduces the congestion window.
        /// Default: `true`
        slow_start_after_idle: bool,
        /// Amount of unsent data above which a socket is not writable (`TCP_NOTSENT_LOWAT`).
        /// Default: none
        notsent_lowat: Positive,
        /// Whether a sending host remembers the path from one connection to the next. Only congestion controls with a
        /// launch use this memory. All flows of a host go to the same client. The setting applies only in the
        /// simulator.
        /// Default: `false`
        path_memory: bool,
    }
    own {
        /// Timers, loss detection and retries: [tunables](#hosttunables).
        /// Type: table
        /// Default: those of Linux
        tunables: TunablesFile,
    }
}

swept_table! {
    TunablesFile {
        /// Minimum value of the term `4 RTTVAR` in the retransmission timeout (`tcp_rto_min_us`).
        /// Range: `10ms` to `1s`
        /// Default: `"200ms"`
        rto_min: Duration,
        /// Value of `rto_min` for a peer that acknowledges promptly: after four ACKs of single segments with a delay of at
        /// most 50 ms, and until the first later ACK or the first unnecessary retransmission.
        /// Range: `50ms` to `1s`
        /// Default: `"100ms"` for `surge`; for other controls, `rto_min`
        rto_min_prompt: Duration,
        /// Maximum retransmission timeout, including back-off (`tcp_rto_max_ms`).
        /// Range: `1s` to `120s`
        /// Default: `"120s"`
        rto_max: Duration,
        /// Number of consecutive timeouts before the timeout starts to double.
        /// Range: 0 to 2
        /// Default: `0`
        rto_linear: Tries,
        /// Congestion window in segments after the first timeout. After a repeated timeout, it is one
        /// segment.
        /// Range: 1 to 10
        /// Default: `1`
        loss_window: Tries,
        /// Minimum congestion window in segments, except after a timeout and during PRR.
        /// Range: 0 to 60
        /// Default: `0`
        least_window: Tries,
        /// Timeout of the tail loss probe, as a multiple of SRTT.
        /// Default: `2`
        tlp_factor: Factor,
        /// Margin of the tail loss probe: its timeout is at least the sum of SRTT, four times the mean deviation of the
        /// RTT and this margin, but this minimum never exceeds 2 SRTT.
        /// Range: up to `200ms`
        /// Default: none
        tlp_floor: Duration,
        /// ACK delay of the peer that the timeout of the tail loss probe allows for if only one segment is in
        /// flight.
        /// Range: `5ms` to `200ms`
        /// Default: `"200ms"`
        tlp_ack_delay: Duration,
        /// Initial reordering window of RACK, as a share of the minimum RTT.
        /// Default: `0.25`
        reo_wnd: RttShare,
        /// Whether the reordering window is zero until the sender has detected reordering or received a
        /// D-SACK.
        /// Default: `false`
        reo_wnd_on_evidence: bool,
        /// Time after which an unanswered SYN-ACK is retransmitted early, once. If path memory knows the RTT of the client,
        /// the time is 1.5 times this RTT.
        /// Range: `100ms` to `1s`
        /// Default: none
        syn_ack_early: Duration,
        /// Whether surge sends a copy of each retransmission while the congestion window does not limit the sender and
        /// at least 0.5 % of the data is lost at random.
        /// Default: `true`
        second_copy: bool,
        /// Number of segments at the end of the data that surge sends twice if earlier connections have lost 1 % on the
        /// path.
        /// Range: 0 to 2
        /// Default: `0`
        tail_copies: Tries,
        /// Maximum number of retransmissions of a SYN, including the first four, which are sent one second
        /// apart.
        /// Range: 1 to 10
        /// Default: `10`
        syn_retries: Tries,
        /// Maximum number of retransmissions of a SYN-ACK (`tcp_synack_retries`).
        /// Range: 1 to 10
        /// Default: `5`
        syn_ack_retries: Tries,
        /// Number of consecutive timeouts after which a connection gives up (`tcp_retries2`).
        /// Range: 3 to 15
        /// Default: `15`
        retries: Tries,
        /// Number of consecutive timeouts after which a closed socket gives up (`tcp_orphan_retries`).
        /// Range: 1 to 15
        /// Default: `8`
        orphan_retries: Tries,
    }
}

swept_table! {
    FlowFile {
        /// Congestion control of the sender. `bbr` is `bbr1`.
        /// Default: required
        cc: FlowAlgorithm,
        /// Rule by which a flow leaves slow start. Only Reno and CUBIC have a choice.
        /// Default: `standard` for Reno, `hystart` for CUBIC
        slow_start: SlowStart,
        /// Number of identical flows.
        /// Default: `1`
        count: Count,
        /// Time from the start of one of these flows to the start of the next one.
        /// Default: `"0s"`
        every: Duration,
        /// Additional propagation delay of these flows, both directions together, on top of `rtt`: [hosts at
        /// other distances](#hosts-at-other-distances).
        /// Default: `"0s"`
        access_rtt: Delay,
        /// Amount of data to transfer.
        /// Default: until the end of the run
        bytes: Positive,
        /// Time at which the flow starts.
        /// Range: before the end of the run
        /// Default: `"0s"`
        start: Duration,
        /// Maximum pacing rate (`SO_MAX_PACING_RATE`).
        /// Default: none
        max_pacing: Rate,
        /// Behaviour of the [applications](#applications) at both ends.
        /// Default: `"greedy"`
        app: App,
        /// TCP implementations of sender and receiver. `kernel` requires `--world emu` or `uml`, and
        /// `kernel-to-fullpipe` requires `--world emu`.
        /// Default: fullpipe in `sim`, the kernel in `emu` and `uml`
        stack: Stack,
        /// Name of a [profile](profiles.md), whose settings replace those of the sending host.
        /// Default: none
        profile: ProfileName,
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
    /// Label of the point, and the value of `point` in `where`.
    /// Type: text
    /// Default: made of the values that differ
    pub(super) name: Option<String>,
    /// Limit that the point is designed to reach.
    /// Type: text
    /// Default: none
    pub(super) limit: Option<String>,
    /// Values that replace those of `[path]`.
    /// Type: table
    /// Default: empty
    #[serde(default)]
    pub(super) path: PathFile,
    /// Values that replace those of `[host]`.
    /// Type: table
    /// Default: empty
    #[serde(default)]
    pub(super) host: HostFile,
    /// Values that replace those of every `[[flow]]`.
    /// Type: table
    /// Default: empty
    #[serde(default)]
    pub(super) flow: FlowFile,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SampleFile {
    /// Interval between rows of the [trace](trace.md).
    /// Range: at least `10us`
    /// Default: `100ms`, without `[[sample]]`
    pub(super) every: Single<Duration>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectFile {
    /// Values that select points, for example `{ cc = "bbr1", loss = "1.5%" }`.
    /// Type: table
    /// Default: all points
    #[serde(default, rename = "where")]
    pub(super) conditions: BTreeMap<String, Scalar>,
    /// One of the [metrics](#metrics).
    /// Type: text
    /// Default: required
    pub(super) metric: Keyword<Metric>,
    /// Lower bound, in the unit of the metric, or text such as `"95mbit"`, `"145ms"` or `"90%"`.
    /// Type: number or text
    /// Default: none, if there is `max`
    pub(super) min: Option<Scalar>,
    /// Upper bound, written like `min`.
    /// Type: number or text
    /// Default: none, if there is `min`
    pub(super) max: Option<Scalar>,
    /// Aggregation of the results of all seeds.
    /// Type: `mean`, `median`, `min` or `max`
    /// Default: `mean`
    #[serde(default)]
    pub(super) over: Keyword<Over>,
    /// Value measured with a real kernel; reports show it next to the result.
    /// Type: number or text
    /// Default: none
    pub(super) kernel: Option<Scalar>,
    /// Published value; reports show it next to the result.
    /// Type: number or text
    /// Default: none
    pub(super) published: Option<Scalar>,
}

/// A `[[ratio]]` table: a bound on the ratio between two arms of a race.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RatioFile {
    /// Values that select points, as in `[[expect]]`.
    /// Type: table
    /// Default: all points
    #[serde(default, rename = "where")]
    pub(super) conditions: BTreeMap<String, Scalar>,
    /// Arm that the bound applies to.
    /// Default: required
    pub(super) arm: Single<Arm>,
    /// Arm with which `arm` is compared.
    /// Default: required
    pub(super) against: Single<Arm>,
    /// Minimum for the ratio: the time of `against` divided by the time of `arm`. The lower end of the ratio's
    /// confidence interval must reach it.
    /// Type: number
    /// Default: required
    pub(super) min: Scalar,
    /// Share of the ratio of the fastest possible download, which the floors of the cell determine. If this share is
    /// below `min`, the lower end must only reach the share.
    /// Type: number
    /// Range: 0 to 1
    /// Default: none
    pub(super) floor_share: Option<Scalar>,
}

/// A `[[harm]]` table: a bound on the difference between the harm that two arms cause.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HarmFile {
    /// Values that select points, as in `[[expect]]`.
    /// Type: table
    /// Default: all points
    #[serde(default, rename = "where")]
    pub(super) conditions: BTreeMap<String, Scalar>,
    /// Victim that the bound applies to.
    /// Default: all victims
    pub(super) victim: Option<Single<Victim>>,
    /// Arm that the bound applies to.
    /// Default: required
    pub(super) arm: Single<Arm>,
    /// Arm with which `arm` is compared.
    /// Default: required
    pub(super) against: Single<Arm>,
    /// Maximum for the difference: the harm by `arm` minus the harm by `against`. The upper end of the
    /// difference's confidence interval must not exceed it.
    /// Type: number
    /// Default: required
    pub(super) max: Scalar,
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
