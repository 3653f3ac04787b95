//! The answer: findings, what they exclude, and the numbers that they rest on.

use fullpipe_tcp::buffers::WindowRule;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classify::{Classified, Confidence, Finding, Limit};
use crate::stats::LossEstimate;

/// A limit that it is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// The limit.
    pub limit: Limit,
    /// How sure that is.
    pub confidence: Confidence,
    /// Why not.
    pub evidence: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Ranked; the first is the answer. Never empty.
    pub findings: Vec<Finding>,
    /// What it is not.
    pub excluded: Vec<Excluded>,
    /// The numbers behind it.
    pub measured: Measured,
    /// Loss events; `None` for a log without retransmissions column.
    pub loss: Option<LossEstimate>,
    /// What the sender's congestion control seems to be.
    pub sender: Sender,
    /// The socket buffers to assume.
    pub buffers: Buffers,
    /// No single flow of this host passes more, by the control measurement or by a trace in which something
    /// limits the flow alone; `None` when that does not limit.
    pub cap: Option<Rate>,
    /// The limits over time, of a trace; empty for a log, which does not resolve them.
    pub limits: Vec<Classified>,
    /// What was taken for granted.
    pub assumptions: Vec<String>,
    /// What the reader should know about the input.
    pub notes: Vec<String>,
}

/// The numbers that the findings rest on. Amounts are of all streams together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Mean goodput over the whole test.
    pub mean: Rate,
    /// Mean rate after the ramp.
    pub steady: Rate,
    /// Length of the test.
    pub length: Duration,
    /// How long the rate took to level off.
    pub ramp: Duration,
    /// The round-trip time of the path; zero where nothing tells it (UDP).
    pub rtt: Duration,
    /// Where it comes from.
    pub rtt_source: RttSource,
    /// Mean of the log's own round-trip times after the ramp, queues included; `None` without them.
    pub mean_rtt: Option<Duration>,
    /// Median of rate x RTT after the ramp.
    pub inflight: Bytes,
    /// Median congestion window after the ramp; `None` in a receiver's log.
    pub cwnd: Option<Bytes>,
    /// Median of in flight over congestion window after the ramp.
    pub inflight_per_cwnd: Option<f64>,
    /// Median of the receiver's window after the ramp; `None` where the log has none.
    pub snd_wnd: Option<Bytes>,
    /// Median of in flight over the receiver's window after the ramp.
    pub inflight_per_wnd: Option<f64>,
    /// Payload of a segment.
    pub mss: Bytes,
    /// Parallel streams.
    pub streams: u64,
    /// Retransmitted segments.
    pub retransmits: Option<u64>,
}

/// Where the round-trip time comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RttSource {
    /// The user gave it.
    #[default]
    Given,
    /// The log's least sample.
    Log,
    /// Not given: an upper bound from the log, as a window at most doubles each round trip and never holds
    /// less than rate x RTT.
    Bound,
    /// Nothing tells it, and nothing needs it: a UDP log.
    Unknown,
}

/// What the sender's congestion control seems to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The log names it.
    Named(Algorithm),
    /// The window tells it.
    Inferred(Algorithm),
    /// Nothing tells it; the kernel's default is taken.
    Assumed(Algorithm),
}

impl Sender {
    /// The algorithm, however known.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Named(a) | Self::Inferred(a) | Self::Assumed(a) => a,
        }
    }
}

/// The buffers that the hosts are taken to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Largest receive buffer in bytes of memory: `tcp_rmem[2]`.
    pub rcvbuf: Bytes,
    /// Where that value comes from.
    pub rcvbuf_source: BufferSource,
    /// Largest send buffer in bytes of memory: `tcp_wmem[2]`.
    pub sndbuf: Bytes,
    /// Where that value comes from.
    pub sndbuf_source: BufferSource,
    /// How receive memory becomes window.
    pub rule: WindowRule,
}

impl Buffers {
    /// The largest window of one connection.
    pub const fn window(&self) -> Bytes {
        self.rule.window(self.rcvbuf)
    }

    /// Both hosts' buffers as assumptions, a sentence each.
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

/// Where a buffer size comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferSource {
    /// The dump says so.
    Dump,
    /// A dump that is older than the log said so: an assumption.
    OlderDump,
    /// Set for this connection with `-w`, as the log says.
    Socket,
    /// The receiver's window in the log's reports.
    Window,
    /// What the rows of a trace show.
    Trace,
    /// The kernel's default: an assumption.
    #[default]
    KernelDefault,
    /// The least that lets the measured rate pass, for the other sources contradict the log.
    Log,
}

impl BufferSource {
    /// True where the value is more than an assumption.
    pub const fn is_fact(self) -> bool {
        matches!(self, Self::Dump | Self::Socket | Self::Window | Self::Trace)
    }

    /// How an assumption speaks of it.
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
