//! What was measured: one value, whichever tool saw it.
//!
//! ```text
//!   iperf3's log  trace  dumps of ss  capture  sockets of this host
//!        └──────────┴─────────┼─────────┴──────────────┘
//!                             ▼
//!              Measurement { origin, hosts, flows, totals }
//!                             │
//!                             ▼
//!        transfer(): the flows of the explained direction, added
//! ```
//!
//! Several flows are the normal case: parallel streams of one test, or the connections of a service. Every flow has
//! intervals; a reader of samples or packets derives them. What the tool saw beyond intervals is the flow's
//! [`Detail`]. The explainer reads a [`Transfer`] first, and the details where it has rules for them.

mod interval;
pub mod packets;

use fullpipe_lab::trace::{Received, Row};
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use interval::{Datagrams, Interval, RttRange, Total};
use packets::{Connection, Packets};

/// What a tool measured: flows between two hosts, in one direction or both.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Which tool wrote it down, and how completely.
    pub origin: Origin,
    /// What the tool says of the hosts.
    pub hosts: Hosts,
    /// The flows, at least one; those of the explained direction come first.
    pub flows: Vec<Flow>,
    /// Sums over the flows of each direction, in the order of [`Self::flows`].
    pub totals: Vec<Totals>,
}

/// Which tool wrote a measurement down, and how completely.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// The form in which it was written.
    pub format: Format,
    /// The tool's version, if it says so.
    pub version: Option<String>,
    /// The input breaks off before its end.
    pub truncated: bool,
    /// The error that the tool reported, of a run that failed late enough to be of use.
    pub error: Option<String>,
    /// Warm-up intervals that were left out.
    pub omitted: usize,
    /// Every connection of a capture that carried data, the largest first; empty for other formats.
    pub connections: Vec<Connection>,
    /// What the reader of a report should know of the input.
    pub notes: Vec<String>,
}

/// What the tool says of the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Kernel of the host that wrote the measurement down.
    pub kernel: Option<KernelVersion>,
    /// Socket buffers that the program set (`-w`); `None` where the kernel sizes them.
    pub set_buffers: Option<SocketBuffers>,
}

/// One connection in one direction.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The tool's number of it: stream, flow of a trace, connection of a capture.
    pub id: u32,
    /// Which way its data went.
    pub direction: Direction,
    /// Which end of it was observed.
    pub role: Role,
    /// What carried the data.
    pub protocol: Protocol,
    /// The sender's congestion control, as the tool names it.
    pub congestion_control: Option<String>,
    /// Payload of a full segment.
    pub mss: Option<Bytes>,
    /// What the application was told to send at most (`-b`); `None` without such an order.
    pub offered: Option<Rate>,
    /// Reports in order of time. Flows of one direction report at the same moments.
    pub intervals: Vec<Interval>,
    /// Its own sums.
    pub summary: Summary,
    /// What the tool saw beyond the intervals.
    pub detail: Option<Detail>,
}

/// What a tool saw of a flow beyond its intervals.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Detail {
    /// Samples of the sending socket.
    Rows(Vec<Row>),
    /// One sample of the sending socket, repeated as if its state had lasted.
    Snapshot(Vec<Row>),
    /// The packets of the connection.
    Packets(Packets),
    /// Samples of the receiving socket, of a flow whose sender nobody watched.
    ReceiverSamples(Vec<Received>),
    /// Datagrams of the whole test, of a flow over UDP.
    Datagrams(Datagrams),
}

/// Sums over the whole test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What the sender counted.
    pub sent: Option<Total>,
    /// What the receiver counted: what arrived.
    pub received: Option<Total>,
    /// Smoothed round-trip times of the sender.
    pub rtt: Option<RttRange>,
}

/// The sums over all flows of one direction, as the tool gives them. They are finer than the sum over the flows, which
/// a log prints rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The direction.
    pub direction: Direction,
    /// The sums.
    pub summary: Summary,
    /// Datagrams; `None` over TCP.
    pub datagrams: Option<Datagrams>,
}

/// The form of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Lines for people.
    #[default]
    #[serde(rename = "iperf3_text")]
    Text,
    /// One document (`-J`).
    #[serde(rename = "iperf3_json")]
    Json,
    /// One event a line (`--json-stream`).
    #[serde(rename = "iperf3_json_stream")]
    JsonStream,
    /// Rows of a trace, summed up in intervals.
    Trace,
    /// Packets of a capture, summed up in intervals.
    Capture,
    /// Samples of a socket of this host, summed up in intervals.
    Sockets,
    /// The output of `ss -ti`, summed up in intervals.
    Ss,
}

impl Format {
    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "iperf3_text",
            Self::Json => "iperf3_json",
            Self::JsonStream => "iperf3_json_stream",
            Self::Trace => "trace",
            Self::Capture => "capture",
            Self::Sockets => "sockets",
            Self::Ss => "ss",
        }
    }
}

/// What carried the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP (`-u`).
    Udp,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the end that opened the test to its server.
    #[default]
    Forward,
    /// From the server (`-R`).
    Reverse,
}

impl Direction {
    /// The other direction.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }
}

/// Which end of a flow was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The sender: over TCP it knows retransmissions and the congestion window.
    #[default]
    Sender,
    /// The receiver.
    Receiver,
}

/// Socket buffers that a program set, in bytes of memory as the kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// `SO_SNDBUF`.
    pub sndbuf: Bytes,
    /// `SO_RCVBUF`.
    pub rcvbuf: Bytes,
}

/// The flows of one direction, added: what an explanation is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Which way the data went.
    pub direction: Direction,
    /// Which end was observed.
    pub role: Role,
    /// What carried the data.
    pub protocol: Protocol,
    /// The number of flows, at least 1.
    pub streams: usize,
    /// The sender's congestion control, as the tool names it.
    pub congestion_control: Option<String>,
    /// Payload of a full segment.
    pub mss: Option<Bytes>,
    /// What the application was told to send at most, all flows together.
    pub offered: Option<Rate>,
    /// The flows' reports, added.
    pub intervals: Vec<Interval>,
    /// What the sender counted.
    pub sent: Option<Total>,
    /// What the receiver counted: what arrived.
    pub received: Option<Total>,
    /// Smoothed round-trip times of the sender.
    pub rtt: Option<RttRange>,
    /// Datagrams; `None` over TCP.
    pub datagrams: Option<Datagrams>,
}

impl Measurement {
    /// The flows of the explained direction, added.
    pub fn transfer(&self) -> Transfer {
        Transfer::of(&self.flows, &self.totals.first().copied().unwrap_or_default())
    }

    /// The other direction of a test that ran both at once.
    pub fn opposite(&self) -> Option<Transfer> {
        self.totals.get(1).map(|totals| Transfer::of(&self.flows, totals))
    }

    /// The flows of the explained direction.
    pub fn explained(&self) -> impl Iterator<Item = &Flow> {
        let direction = self.totals.first().map(|totals| totals.direction);
        self.flows.iter().filter(move |flow| Some(flow.direction) == direction)
    }

    /// Whether the host that wrote the measurement down sent the data that it explains.
    pub fn made_by_sender(&self) -> bool {
        self.flows.first().is_none_or(|flow| flow.role == Role::Sender)
    }

    /// The samples of each sending socket; empty without.
    pub fn rows(&self) -> Vec<&[Row]> {
        let rows = self.explained().filter_map(|flow| match &flow.detail {
            Some(Detail::Rows(rows) | Detail::Snapshot(rows)) => Some(rows.as_slice()),
            _ => None,
        });
        rows.collect()
    }

    /// Whether all that is known is the state of one moment.
    pub fn is_snapshot(&self) -> bool {
        self.explained().any(|flow| matches!(flow.detail, Some(Detail::Snapshot(_))))
    }

    /// The packets of the explained connection of a capture.
    pub fn packets(&self) -> Option<&Packets> {
        self.explained().find_map(|flow| match &flow.detail {
            Some(Detail::Packets(packets)) => Some(packets),
            _ => None,
        })
    }

    /// The samples of each receiving socket, of flows whose sender nobody watched; empty without.
    pub fn receiver_samples(&self) -> Vec<&[Received]> {
        let samples = self.explained().filter_map(|flow| match &flow.detail {
            Some(Detail::ReceiverSamples(samples)) => Some(samples.as_slice()),
            _ => None,
        });
        samples.collect()
    }
}

impl Transfer {
    fn of(flows: &[Flow], totals: &Totals) -> Self {
        let flows = || flows.iter().filter(|flow| flow.direction == totals.direction);
        let first = flows().next();
        let Summary { sent, received, rtt } = totals.summary;
        Self {
            direction: totals.direction,
            role: first.map_or_else(Role::default, |flow| flow.role),
            protocol: first.map_or_else(Protocol::default, |flow| flow.protocol),
            streams: flows().count().max(1),
            congestion_control: first.and_then(|flow| flow.congestion_control.clone()),
            mss: flows().filter_map(|flow| flow.mss).max(),
            offered: flows().filter_map(|flow| flow.offered).reduce(sum_of_rates),
            intervals: added(flows().map(|flow| flow.intervals.as_slice())),
            sent,
            received,
            rtt,
            datagrams: totals.datagrams,
        }
    }

    /// Length of the test: the summary's, or what the intervals cover.
    pub fn length(&self) -> Duration {
        let summary = self.received.or(self.sent).map(|s| s.length).filter(|length| !length.is_zero());
        summary.unwrap_or_else(|| self.intervals.iter().fold(Duration::ZERO, |sum, i| sum + i.length()))
    }

    /// The mean goodput: what the receiver counted if it is known, because the sender's figure includes what never left
    /// its socket buffer.
    pub fn mean_rate(&self) -> Rate {
        match self.received.or(self.sent) {
            Some(total) => total.rate,
            None => Rate::of(self.bytes(), self.length()),
        }
    }

    /// Payload in total.
    pub fn bytes(&self) -> Bytes {
        match self.received.or(self.sent) {
            Some(total) => total.bytes,
            None => self.intervals.iter().fold(Bytes::ZERO, |sum, i| sum + i.bytes),
        }
    }

    /// The highest rate that surely passed the path: of TCP the best interval; of UDP the mean of what arrived, because
    /// what a UDP sender writes proves nothing.
    pub fn proven_rate(&self) -> Rate {
        let best = self.intervals.iter().map(|interval| interval.rate).max();
        match self.protocol {
            Protocol::Tcp => best.unwrap_or_else(|| self.mean_rate()),
            Protocol::Udp => self.mean_rate(),
        }
    }
}

fn sum_of_rates(a: Rate, b: Rate) -> Rate {
    Rate::from_bps(a.as_bps().saturating_add(b.as_bps()))
}

/// The reports of several flows as those of one. They report at the same moments, so the nth reports belong together.
pub(crate) fn added<'a>(flows: impl Iterator<Item = &'a [Interval]>) -> Vec<Interval> {
    let mut sum: Option<Vec<Interval>> = None;
    for intervals in flows {
        sum = Some(match sum {
            None => intervals.to_vec(),
            Some(sum) => sum.into_iter().zip(intervals).map(|(a, b)| a.added(*b)).collect(),
        });
    }
    sum.unwrap_or_default()
}
