//! Result of an explanation: findings, excluded limits, and the figures behind them.

use fullpipe_measurement::classify::{Confidence, Finding, Limit, LimitPeriod};
use fullpipe_measurement::loss_estimate::LossEstimate;
use fullpipe_measurement::thresholds::queue;
use fullpipe_tcp::buffers::WindowRule;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::undecided::Undecided;

/// Limit that was ruled out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exclusion {
    /// The excluded limit.
    pub limit: Limit,
    /// Confidence in the exclusion.
    pub confidence: Confidence,
    /// Reason for the exclusion.
    pub evidence: String,
}

/// Result of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Findings in order of likelihood, never empty.
    pub findings: Vec<Finding>,
    /// Candidates for the limit, if the input does not show which of them applies.
    pub undecided: Option<Undecided>,
    /// Limits that were ruled out.
    pub excluded: Vec<Exclusion>,
    /// Figures that the findings are based on.
    pub measured: MeasuredFigures,
    /// Loss estimate; `None` if the log does not count losses.
    pub loss: Option<LossEstimate>,
    /// The sender's congestion control, whether named, inferred or assumed.
    pub sender: Sender,
    /// Assumed socket buffers.
    pub buffers: Buffers,
    /// Maximum rate of a single flow of this host, from the control measurement or from a trace in which a
    /// rate cap limits the flow; `None` if there is no such cap.
    pub cap: Option<Rate>,
    /// Limits over time; empty for a log, which does not resolve them.
    pub limits: Vec<LimitPeriod>,
    /// Assumptions of the explanation.
    pub assumptions: Vec<String>,
    /// Notes about the input for the report.
    pub notes: Vec<String>,
}

/// Figures that the findings are based on. Amounts are sums over all streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredFigures {
    /// Mean goodput over the whole test.
    pub mean: Rate,
    /// Mean rate after the ramp.
    pub steady: Rate,
    /// Length of the test.
    pub length: Duration,
    /// Time until the rate levelled off.
    pub ramp: Duration,
    /// RTT of the path; zero if unknown (UDP).
    pub rtt: Duration,
    /// Source of the RTT.
    pub rtt_source: RttSource,
    /// Mean of the log's own RTT samples after the ramp, including queueing delay; `None` if the log has
    /// none.
    pub mean_rtt: Option<Duration>,
    /// Median amount of data in flight after the ramp, estimated as rate x RTT.
    pub inflight: Bytes,
    /// Median congestion window after the ramp; `None` in a receiver's log.
    pub cwnd: Option<Bytes>,
    /// Median ratio of data in flight to congestion window after the ramp.
    pub inflight_per_cwnd: Option<f64>,
    /// Median receive window after the ramp; `None` if the log has none.
    pub snd_wnd: Option<Bytes>,
    /// Median ratio of data in flight to receive window after the ramp.
    pub inflight_per_wnd: Option<f64>,
    /// Payload length of a full-sized segment.
    pub mss: Bytes,
    /// Number of parallel streams.
    pub streams: u64,
    /// Retransmitted segments.
    pub retransmits: Option<u64>,
}

/// Standing queue at the bottleneck while the flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StandingQueue {
    /// RTT without the queue in milliseconds: the smallest known one.
    pub idle_rtt_ms: f64,
    /// Mean RTT under load in milliseconds.
    pub loaded_rtt_ms: f64,
    /// Time that a packet waits in the queue, in milliseconds: the difference of the two RTTs.
    pub delay_ms: f64,
    /// Payload that this flow keeps in the queue: its rate times the delay.
    pub bytes: u64,
}

impl StandingQueue {
    /// Delay that process scheduling on the hosts can cause.
    const LEAST: Duration = Duration::from_millis(1);

    /// Returns the queue that the RTTs of a measurement show; `idle` is its smallest RTT sample.
    pub(crate) fn of(measured: &MeasuredFigures, idle: Option<Duration>) -> Option<Self> {
        let loaded = measured.mean_rtt?;
        let given = Some(measured.rtt).filter(|rtt| !rtt.is_zero());
        let idle = idle.into_iter().chain(given).min()?;
        let delay = loaded.saturating_sub(idle);
        let stands = loaded.as_secs_f64() >= queue::STANDS * idle.as_secs_f64() && delay >= Self::LEAST;
        stands.then(|| Self {
            idle_rtt_ms: idle.as_millis_f64(),
            loaded_rtt_ms: loaded.as_millis_f64(),
            delay_ms: delay.as_millis_f64(),
            bytes: (measured.steady * delay).get(),
        })
    }
}

impl std::fmt::Display for StandingQueue {
    /// Example: `there is a standing queue of 227ms (2.67 MiB): the RTT is 327ms under load, and its minimum is 100ms`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = |ms: f64| Duration::from_secs_f64((ms * 10.0).round() / 1e4);
        write!(
            f,
            "there is a standing queue of {} ({}): the RTT is {} under load, and its minimum is {}",
            time(self.delay_ms),
            Bytes::new(self.bytes),
            time(self.loaded_rtt_ms),
            time(self.idle_rtt_ms)
        )
    }
}

/// Source of the RTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RttSource {
    /// Given by the user.
    #[default]
    Given,
    /// Smallest sample in the log.
    Log,
    /// Upper bound derived from the log: a window at most doubles per round trip, and is never smaller than
    /// rate x RTT.
    Bound,
    /// Unknown and not needed, as for a UDP log.
    Unknown,
}

/// The sender's congestion control, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Named in the log.
    Named(Algorithm),
    /// Inferred from the congestion window.
    Inferred(Algorithm),
    /// The kernel's default, assumed because the congestion control is not observable.
    Assumed(Algorithm),
}

impl Sender {
    /// Returns the algorithm, whether named, inferred or assumed.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Named(a) | Self::Inferred(a) | Self::Assumed(a) => a,
        }
    }
}

/// Assumed socket buffers of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Maximum receive buffer in bytes of memory: `tcp_rmem[2]`.
    pub rcvbuf: Bytes,
    /// Source of the receive buffer size.
    pub rcvbuf_source: BufferSource,
    /// Maximum send buffer in bytes of memory: `tcp_wmem[2]`.
    pub sndbuf: Bytes,
    /// Source of the send buffer size.
    pub sndbuf_source: BufferSource,
    /// Whether the application fixes the receive buffer (`-w`, `SO_RCVBUF`), so that no sysctl changes it.
    pub rcvbuf_fixed: bool,
    /// Whether the application fixes the send buffer (`-w`, `SO_SNDBUF`).
    pub sndbuf_fixed: bool,
    /// Rule that converts receive memory to a window.
    pub rule: WindowRule,
}

impl Buffers {
    /// Returns the maximum receive window of one connection.
    pub const fn window(&self) -> Bytes {
        self.rule.window(self.rcvbuf)
    }

    /// Returns the assumed buffers of the receiver and the sender, one sentence each.
    pub(super) fn assumed(&self) -> [String; 2] {
        let Self { rcvbuf, rcvbuf_source, sndbuf, sndbuf_source, rule, .. } = self;
        let name = |source: BufferSource, limit: &'static str| match source {
            BufferSource::Socket | BufferSource::Window | BufferSource::Trace => "a buffer of",
            _ => limit,
        };
        [
            format!(
                "receiver: {} {rcvbuf} ({}) gives a window of {} ({rule})",
                name(*rcvbuf_source, "tcp_rmem[2]"),
                rcvbuf_source.words(),
                self.window()
            ),
            format!("sender: {} {sndbuf} ({})", name(*sndbuf_source, "tcp_wmem[2]"), sndbuf_source.words()),
        ]
    }
}

/// Source of a buffer size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferSource {
    /// The sysctl dump.
    Dump,
    /// A sysctl dump that is older than the log; the size is an assumption.
    OlderDump,
    /// The size set for this connection with `-w`, according to the log.
    Socket,
    /// The receive window in the log's reports.
    Window,
    /// The rows of a trace.
    Trace,
    /// The kernel's default, an assumption.
    #[default]
    KernelDefault,
    /// The smallest size that allows the measured rate, because the other sources contradict the log.
    Log,
}

impl BufferSource {
    /// Returns whether the size is a fact, not an assumption.
    pub const fn is_fact(self) -> bool {
        matches!(self, Self::Dump | Self::Socket | Self::Window | Self::Trace)
    }

    /// Returns the wording used in an assumption.
    const fn words(self) -> &'static str {
        match self {
            Self::Dump => "from the sysctl dump",
            Self::OlderDump => "from a sysctl dump older than the log",
            Self::Socket => "set with -w",
            Self::Window => "from the window in the log",
            Self::Trace => "from the rows of the trace",
            Self::KernelDefault => "the kernel's default",
            Self::Log => "the smallest size that allows the measured rate",
        }
    }
}
