//! Result of an explanation: findings, excluded limits, and the numbers behind them.

use fullpipe_tcp::buffers::WindowRule;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classify::{Confidence, Finding, Limit, LimitPeriod};
use crate::stats::LossEstimate;

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
    /// Limits that were ruled out.
    pub excluded: Vec<Exclusion>,
    /// Numbers that the findings rest on.
    pub measured: MeasuredFigures,
    /// Loss events; `None` for a log without a retransmissions column.
    pub loss: Option<LossEstimate>,
    /// Congestion control of the sender, named, inferred or assumed.
    pub sender: Sender,
    /// Socket buffers to assume.
    pub buffers: Buffers,
    /// Highest rate of a single flow of this host, from the control measurement or from a trace in which a
    /// rate cap limits the flow; `None` if there is no such cap.
    pub cap: Option<Rate>,
    /// Limits over time; empty for a log, which does not resolve them.
    pub limits: Vec<LimitPeriod>,
    /// Assumptions of the explanation.
    pub assumptions: Vec<String>,
    /// Notes on the input for the reader of a report.
    pub notes: Vec<String>,
}

/// Numbers that the findings rest on. Amounts cover all streams together.
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
    /// RTT of the path; zero where it is not known (UDP).
    pub rtt: Duration,
    /// Origin of the RTT.
    pub rtt_source: RttSource,
    /// Mean of the log's own RTTs after the ramp, including queues; `None` if the log has none.
    pub mean_rtt: Option<Duration>,
    /// Median of rate x RTT after the ramp.
    pub inflight: Bytes,
    /// Median congestion window after the ramp; `None` in a receiver's log.
    pub cwnd: Option<Bytes>,
    /// Median ratio of data in flight to congestion window after the ramp.
    pub inflight_per_cwnd: Option<f64>,
    /// Median of the receiver's window after the ramp; `None` where the log has none.
    pub snd_wnd: Option<Bytes>,
    /// Median ratio of data in flight to the receiver's window after the ramp.
    pub inflight_per_wnd: Option<f64>,
    /// Payload of a segment.
    pub mss: Bytes,
    /// Number of parallel streams.
    pub streams: u64,
    /// Retransmitted segments.
    pub retransmits: Option<u64>,
}

/// Origin of the RTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RttSource {
    /// The user gave the RTT.
    #[default]
    Given,
    /// The RTT is the smallest sample of the log.
    Log,
    /// The RTT is an upper bound from the log: a window at most doubles in each round trip, and is never
    /// smaller than rate x RTT.
    Bound,
    /// The RTT is neither known nor needed: a UDP log.
    Unknown,
}

/// Congestion control of the sender, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The log names it.
    Named(Algorithm),
    /// It is inferred from the window.
    Inferred(Algorithm),
    /// It is not observable; the kernel's default is assumed.
    Assumed(Algorithm),
}

impl Sender {
    /// Returns the algorithm, however it is known.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Named(a) | Self::Inferred(a) | Self::Assumed(a) => a,
        }
    }
}

/// Socket buffers that are assumed for the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Largest receive buffer in bytes of memory: `tcp_rmem[2]`.
    pub rcvbuf: Bytes,
    /// Origin of the receive buffer's size.
    pub rcvbuf_source: BufferSource,
    /// Largest send buffer in bytes of memory: `tcp_wmem[2]`.
    pub sndbuf: Bytes,
    /// Origin of the send buffer's size.
    pub sndbuf_source: BufferSource,
    /// Rule that converts receive memory to a window.
    pub rule: WindowRule,
}

impl Buffers {
    /// Returns the largest window of one connection.
    pub const fn window(&self) -> Bytes {
        self.rule.window(self.rcvbuf)
    }

    /// Returns the buffers of receiver and sender as assumptions, one sentence each.
    pub(super) fn assumed(&self) -> [String; 2] {
        let Self { rcvbuf, rcvbuf_source, sndbuf, sndbuf_source, rule } = self;
        let name = |source: BufferSource, limit: &'static str| match source {
            BufferSource::Socket | BufferSource::Window | BufferSource::Trace => "a buffer of",
            _ => limit,
        };
        [
            format!(
                "receiver: {} {rcvbuf} ({}), {rule}: a window of {}",
                name(*rcvbuf_source, "tcp_rmem[2]"),
                rcvbuf_source.words(),
                self.window()
            ),
            format!("sender: {} {sndbuf} ({})", name(*sndbuf_source, "tcp_wmem[2]"), sndbuf_source.words()),
        ]
    }
}

/// Origin of a buffer size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferSource {
    /// The size is from the sysctl dump.
    Dump,
    /// The size is from a dump that is older than the log, so it is an assumption.
    OlderDump,
    /// The size was set for this connection with `-w`, according to the log.
    Socket,
    /// The size follows from the receiver's window in the log's reports.
    Window,
    /// The size is from the rows of a trace.
    Trace,
    /// The size is the kernel's default, an assumption.
    #[default]
    KernelDefault,
    /// The size is the smallest that allows the measured rate, because the other sources contradict the log.
    Log,
}

impl BufferSource {
    /// Returns whether the value is more than an assumption.
    pub const fn is_fact(self) -> bool {
        matches!(self, Self::Dump | Self::Socket | Self::Window | Self::Trace)
    }

    /// Returns the wording in an assumption.
    const fn words(self) -> &'static str {
        match self {
            Self::Dump => "from the sysctl dump",
            Self::OlderDump => "from a sysctl dump older than the log",
            Self::Socket => "set with -w",
            Self::Window => "by the window in the log",
            Self::Trace => "by the rows of the trace",
            Self::KernelDefault => "the kernel's default",
            Self::Log => "the least that lets the measured rate pass",
        }
    }
}
