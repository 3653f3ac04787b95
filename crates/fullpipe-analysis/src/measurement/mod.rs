//! Measurement: one type for the results of every tool.
//!
//! ```text
//!   iperf3's log  trace  dumps of ss  capture  sockets of this host
//!        └──────────┴─────────┼─────────┴──────────────┘
//!                             ▼
//!              Measurement { origin, hosts, flows, totals }
//!                             │
//!                             ▼
//!        transfer(): the flows of the explained direction, summed
//! ```
//!
//! Several flows are the normal case: parallel streams of one test, or the connections of a service. Every
//! flow has intervals; readers of samples or packets derive them. Data beyond the intervals is the flow's
//! [`Detail`]. The explainer reads a [`Transfer`] first, and the details where it has rules for them.

mod interval;
pub mod packets;

use fullpipe_lab::trace::{ReceiverSample, Row};
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use interval::{Datagrams, Interval, RttRange, Total};
use packets::{Connection, Packets};

/// Measurement of flows between two hosts, in one direction or both.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Tool that recorded it, and how complete the record is.
    pub origin: Origin,
    /// Properties of the hosts, as the tool reports them.
    pub hosts: Hosts,
    /// Flows, at least one; those of the explained direction come first.
    pub flows: Vec<Flow>,
    /// Sums over the flows of each direction, in the order of [`Self::flows`].
    pub totals: Vec<Totals>,
}

/// Tool that recorded a measurement, and how complete the record is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// Format of the input.
    pub format: Format,
    /// Version of the tool, if the input contains it.
    pub version: Option<String>,
    /// Whether the input breaks off before its end.
    pub truncated: bool,
    /// Error that the tool reported, if the run failed late enough to be of use.
    pub error: Option<String>,
    /// Number of warm-up intervals that were left out.
    pub omitted: usize,
    /// Connections of a capture that carried data, the largest first; empty for other formats.
    pub connections: Vec<Connection>,
    /// Notes on the input for the reader of a report.
    pub notes: Vec<String>,
}

/// Properties of the hosts, as the tool reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Kernel release of the host that recorded the measurement.
    pub kernel: Option<KernelVersion>,
    /// Socket buffers that the program set (`-w`); `None` where the kernel sizes them.
    pub set_buffers: Option<SocketBuffers>,
}

/// One connection in one direction.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Number of the flow in the input: stream, flow of a trace, or connection of a capture.
    pub id: u32,
    /// Direction of its data.
    pub direction: Direction,
    /// End of the flow that was observed.
    pub role: Role,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Name of the sender's congestion control, as the tool reports it.
    pub congestion_control: Option<String>,
    /// Payload of a full segment.
    pub mss: Option<Bytes>,
    /// Rate that the application was limited to (`-b`); `None` without a limit.
    pub offered: Option<Rate>,
    /// Reports in order of time. Flows of one direction report at the same times.
    pub intervals: Vec<Interval>,
    /// Sums of this flow.
    pub summary: Summary,
    /// Data beyond the intervals.
    pub detail: Option<Detail>,
}

/// Data of a flow beyond its intervals.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Detail {
    /// Samples of the sending socket.
    Rows(Vec<Row>),
    /// One sample of the sending socket, repeated as if its state had lasted.
    Snapshot(Vec<Row>),
    /// Packets of the connection.
    Packets(Packets),
    /// Samples of the receiving socket, for a flow whose sender was not sampled.
    ReceiverSamples(Vec<ReceiverSample>),
    /// Datagram counts of the whole test, for a flow over UDP.
    Datagrams(Datagrams),
}

/// Sums over the whole test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Counts of the sender.
    pub sent: Option<Total>,
    /// Counts of the receiver.
    pub received: Option<Total>,
    /// Smoothed RTTs of the sender.
    pub rtt: Option<RttRange>,
}

/// Sums over all flows of one direction, as the tool reports them. They are more precise than a sum over the
/// flows, which a log prints rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Direction of the flows.
    pub direction: Direction,
    /// Sums over these flows.
    pub summary: Summary,
    /// Datagram counts; `None` over TCP.
    pub datagrams: Option<Datagrams>,
}

/// Format of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Text output of iperf3.
    #[default]
    #[serde(rename = "iperf3_text")]
    Text,
    /// JSON document of iperf3 (`-J`).
    #[serde(rename = "iperf3_json")]
    Json,
    /// JSON events of iperf3, one per line (`--json-stream`).
    #[serde(rename = "iperf3_json_stream")]
    JsonStream,
    /// Rows of a trace, summed up in intervals.
    Trace,
    /// Packets of a capture, summed up in intervals.
    Capture,
    /// Samples of a socket of this host, summed up in intervals.
    Sockets,
    /// Output of `ss -ti`, summed up in intervals.
    Ss,
}

impl Format {
    /// Returns the name in reports and JSON.
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

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP (`-u`).
    Udp,
}

/// Direction of the data of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the client, which opened the test, to its server.
    #[default]
    Forward,
    /// From the server to the client (`-R`).
    Reverse,
}

impl Direction {
    /// Returns the other direction.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }
}

/// End of a flow that was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The sender, which over TCP knows retransmissions and the congestion window.
    #[default]
    Sender,
    /// The receiver.
    Receiver,
}

/// Socket buffers that a program set, in bytes of memory as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// `SO_SNDBUF`.
    pub sndbuf: Bytes,
    /// `SO_RCVBUF`.
    pub rcvbuf: Bytes,
}

/// Sum of the flows of one direction, the subject of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Direction of the data.
    pub direction: Direction,
    /// End of the flows that was observed.
    pub role: Role,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Number of flows, at least 1.
    pub streams: usize,
    /// Name of the sender's congestion control, as the tool reports it.
    pub congestion_control: Option<String>,
    /// Payload of a full segment.
    pub mss: Option<Bytes>,
    /// Rate that the application was limited to, summed over all flows.
    pub offered: Option<Rate>,
    /// Reports of the flows, summed.
    pub intervals: Vec<Interval>,
    /// Counts of the sender.
    pub sent: Option<Total>,
    /// Counts of the receiver.
    pub received: Option<Total>,
    /// Smoothed RTTs of the sender.
    pub rtt: Option<RttRange>,
    /// Datagram counts; `None` over TCP.
    pub datagrams: Option<Datagrams>,
}

impl Measurement {
    /// Returns the sum of the flows of the explained direction.
    pub fn transfer(&self) -> Transfer {
        Transfer::of(&self.flows, &self.totals.first().copied().unwrap_or_default())
    }

    /// Returns the other direction of a test that ran both at once.
    pub fn opposite(&self) -> Option<Transfer> {
        self.totals.get(1).map(|totals| Transfer::of(&self.flows, totals))
    }

    /// Returns the flows of the explained direction.
    pub fn explained(&self) -> impl Iterator<Item = &Flow> {
        let direction = self.totals.first().map(|totals| totals.direction);
        self.flows.iter().filter(move |flow| Some(flow.direction) == direction)
    }

    /// Returns whether the host that recorded the measurement sent the data that it explains.
    pub fn made_by_sender(&self) -> bool {
        self.flows.first().is_none_or(|flow| flow.role == Role::Sender)
    }

    /// Returns the samples of each sending socket; empty if there are none.
    pub fn rows(&self) -> Vec<&[Row]> {
        let rows = self.explained().filter_map(|flow| match &flow.detail {
            Some(Detail::Rows(rows) | Detail::Snapshot(rows)) => Some(rows.as_slice()),
            _ => None,
        });
        rows.collect()
    }

    /// Returns whether the input contains only one sample of the socket's state.
    pub fn is_snapshot(&self) -> bool {
        self.explained().any(|flow| matches!(flow.detail, Some(Detail::Snapshot(_))))
    }

    /// Returns the packets of the explained connection of a capture.
    pub fn packets(&self) -> Option<&Packets> {
        self.explained().find_map(|flow| match &flow.detail {
            Some(Detail::Packets(packets)) => Some(packets),
            _ => None,
        })
    }

    /// Returns the samples of each receiving socket of flows whose sender was not sampled; empty if there are
    /// none.
    pub fn receiver_samples(&self) -> Vec<&[ReceiverSample]> {
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

    /// Returns the length of the test: the summary's, or the sum of the intervals.
    pub fn length(&self) -> Duration {
        let summary = self.received.or(self.sent).map(|s| s.length).filter(|length| !length.is_zero());
        summary.unwrap_or_else(|| self.intervals.iter().fold(Duration::ZERO, |sum, i| sum + i.length()))
    }

    /// Returns the mean goodput: the receiver's figure if it is known, because the sender's figure includes
    /// data that never left its socket buffer.
    pub fn mean_rate(&self) -> Rate {
        match self.received.or(self.sent) {
            Some(total) => total.rate,
            None => Rate::of(self.bytes(), self.length()),
        }
    }

    /// Returns the payload of the whole test.
    pub fn bytes(&self) -> Bytes {
        match self.received.or(self.sent) {
            Some(total) => total.bytes,
            None => self.intervals.iter().fold(Bytes::ZERO, |sum, i| sum + i.bytes),
        }
    }

    /// Returns the highest rate that the path has proven to carry: over TCP that of the best interval, over
    /// UDP the mean of what arrived, because the rate that a UDP sender writes proves nothing.
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

/// Adds the reports of several flows. They report at the same times, so the nth reports belong together.
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
