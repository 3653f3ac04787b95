//! Measurement: one type for the results of every tool.
//!
//! ```text
//!   iperf3's log  trace  dumps of ss  capture  sockets of this host
//!        └──────────┴─────────┼─────────┴──────────────┘
//!                             ▼
//!              Measurement { origin, hosts, flows, totals, chosen }
//!                             │
//!                             ▼
//!        transfer(): the chosen flow, or the flows of the diagnosed direction, summed
//! ```
//!
//! Several flows are the normal case: parallel streams of one test, or the connections of a service. Every
//! flow has intervals; readers derive them from samples or packets. Other data of a flow is in [`Detail`].
//! The explainer reads a [`Transfer`] first, and then the details for which it has rules.

mod interval;
pub mod packets;
pub mod sharing;

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
    /// Tool that recorded the measurement, and how complete the record is.
    pub origin: Origin,
    /// Properties of the hosts, as reported by the tool.
    pub hosts: Hosts,
    /// Flows, at least one; those of the diagnosed direction come first.
    pub flows: Vec<Flow>,
    /// Sums over the flows of each direction, in the order of [`Self::flows`]; with a chosen flow, the sums
    /// of that flow.
    pub totals: Vec<Totals>,
    /// Index of the connection that is diagnosed alone; `None` if the flows of a direction are diagnosed
    /// together, like the parallel streams of one test.
    pub chosen: Option<usize>,
}

/// Tool that recorded a measurement, and how complete the record is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// Format of the input.
    pub format: Format,
    /// Version of the tool, if the input contains it.
    pub version: Option<String>,
    /// Whether the input is truncated.
    pub truncated: bool,
    /// Error that the tool reported, if the run failed so late that its data is still useful.
    pub error: Option<String>,
    /// Number of warm-up intervals that were omitted.
    pub omitted: usize,
    /// Connections in a capture that carried data, largest first; empty for other formats.
    pub connections: Vec<Connection>,
    /// Notes about the input for the report.
    pub notes: Vec<String>,
}

/// Properties of the hosts, as reported by the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Kernel release of the host that recorded the measurement.
    pub kernel: Option<KernelVersion>,
    /// Socket buffers that the application set (`-w`); `None` if the kernel sizes them.
    pub set_buffers: Option<SocketBuffers>,
    /// Processor time that the tool used on the two hosts; `None` if it does not report it.
    pub cpu: Option<CpuLoad>,
}

/// Processor time that a tool used during a test, in percent of one processor. A tool with several threads
/// may use more than 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLoad {
    /// Share on the host that recorded the measurement.
    pub local: u32,
    /// Share on the other host; zero if unknown.
    pub remote: u32,
    /// Number of threads that carry data.
    pub threads: u32,
}

/// One connection in one direction.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Number of the flow in the input: stream of a test, flow of a trace, or connection, counted from 1.
    pub id: u32,
    /// Direction of the data.
    pub direction: Direction,
    /// Endpoint of the flow that was observed.
    pub role: Role,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Name of the sender's congestion control, as reported by the tool.
    pub congestion_control: Option<String>,
    /// Payload length of a full-sized segment, in bytes.
    pub mss: Option<Bytes>,
    /// Target rate of the application (`-b`); `None` if unlimited.
    pub offered: Option<Rate>,
    /// Reports in chronological order. All flows of one direction report at the same times.
    pub intervals: Vec<Interval>,
    /// Sums over the whole flow.
    pub summary: Summary,
    /// Data of the flow that its intervals do not contain.
    pub detail: Option<Detail>,
}

/// Data of a flow that its intervals do not contain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Detail {
    /// Samples of the sending socket.
    Rows(Vec<Row>),
    /// One sample of the sending socket, repeated as if its state had persisted.
    Snapshot(Vec<Row>),
    /// Packets of the connection.
    Packets(Packets),
    /// Samples of the receiving socket, for a flow with an unsampled sender.
    ReceiverSamples(Vec<ReceiverSample>),
    /// Datagram counts of the whole test, for a UDP flow.
    Datagrams(Datagrams),
}

/// Sums over the whole test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Counts of the sender.
    pub sent: Option<Total>,
    /// Counts of the receiver.
    pub received: Option<Total>,
    /// Smoothed RTTs at the sender.
    pub rtt: Option<RttRange>,
}

/// Sums over all flows of one direction, as reported by the tool. They are more precise than the sum of the
/// flows, whose values are rounded in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Direction of the flows.
    pub direction: Direction,
    /// Sums over these flows.
    pub summary: Summary,
    /// Datagram counts; `None` for TCP.
    pub datagrams: Option<Datagrams>,
}

/// Format of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// iperf3 text output.
    #[default]
    #[serde(rename = "iperf3_text")]
    Text,
    /// iperf3 JSON document (`-J`).
    #[serde(rename = "iperf3_json")]
    Json,
    /// iperf3 JSON events, one per line (`--json-stream`).
    #[serde(rename = "iperf3_json_stream")]
    JsonStream,
    /// Rows of a trace, summarised as intervals.
    Trace,
    /// Packets of a capture, summarised as intervals.
    Capture,
    /// Samples of a socket on this host, summarised as intervals.
    Sockets,
    /// Output of `ss -ti`, summarised as intervals.
    Ss,
}

impl Format {
    /// Returns the name used in reports and JSON.
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

/// Direction of a flow's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the client, which started the test, to the server.
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

/// Endpoint of a flow that was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The sender; for TCP it knows retransmissions and the congestion window.
    #[default]
    Sender,
    /// The receiver.
    Receiver,
}

/// Socket buffers set by an application, in bytes of memory as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// `SO_SNDBUF`.
    pub sndbuf: Bytes,
    /// `SO_RCVBUF`.
    pub rcvbuf: Bytes,
}

/// Sum of the flows of one direction: the transfer that is diagnosed.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Direction of the data.
    pub direction: Direction,
    /// Endpoint of the flows that was observed.
    pub role: Role,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Number of flows, at least 1.
    pub streams: usize,
    /// Name of the sender's congestion control, as reported by the tool.
    pub congestion_control: Option<String>,
    /// Payload length of a full-sized segment, in bytes.
    pub mss: Option<Bytes>,
    /// Target rate of the application, summed over all flows.
    pub offered: Option<Rate>,
    /// Reports, summed over the flows.
    pub intervals: Vec<Interval>,
    /// Counts of the sender.
    pub sent: Option<Total>,
    /// Counts of the receiver.
    pub received: Option<Total>,
    /// Smoothed RTTs at the sender.
    pub rtt: Option<RttRange>,
    /// Datagram counts; `None` for TCP.
    pub datagrams: Option<Datagrams>,
}

impl Measurement {
    /// Returns the sum of the flows of the diagnosed direction.
    pub fn transfer(&self) -> Transfer {
        Transfer::of(self.explained(), &self.totals.first().copied().unwrap_or_default())
    }

    /// Returns the opposite direction of a bidirectional test.
    pub fn opposite(&self) -> Option<Transfer> {
        let totals = self.totals.get(1)?;
        Some(Transfer::of(self.flows.iter().filter(|flow| flow.direction == totals.direction), totals))
    }

    /// Returns the chosen flow, or the flows of the diagnosed direction.
    pub fn explained(&self) -> impl Iterator<Item = &Flow> + Clone {
        let direction = self.totals.first().map(|totals| totals.direction);
        let flows = self.flows.iter().enumerate().filter(move |(nth, flow)| match self.chosen {
            Some(chosen) => *nth == chosen,
            None => Some(flow.direction) == direction,
        });
        flows.map(|(_, flow)| flow)
    }

    /// Returns whether the host that recorded the measurement sent the diagnosed data.
    pub fn made_by_sender(&self) -> bool {
        self.explained().next().is_none_or(|flow| flow.role == Role::Sender)
    }

    /// Returns the samples of each sending socket; empty if there are none.
    pub fn rows(&self) -> Vec<&[Row]> {
        self.explained().filter_map(Flow::rows).collect()
    }

    /// Returns whether the input contains only one sample of the socket state.
    pub fn is_snapshot(&self) -> bool {
        self.explained().any(|flow| matches!(flow.detail, Some(Detail::Snapshot(_))))
    }

    /// Returns the packets of the diagnosed connection of a capture.
    pub fn packets(&self) -> Option<&Packets> {
        self.explained().find_map(|flow| match &flow.detail {
            Some(Detail::Packets(packets)) => Some(packets),
            _ => None,
        })
    }

    /// Returns the samples of each receiving socket for flows with an unsampled sender; empty if there are
    /// none.
    pub fn receiver_samples(&self) -> Vec<&[ReceiverSample]> {
        let samples = self.explained().filter_map(|flow| match &flow.detail {
            Some(Detail::ReceiverSamples(samples)) => Some(samples.as_slice()),
            _ => None,
        });
        samples.collect()
    }
}

impl Flow {
    /// Returns the samples of the sending socket.
    fn rows(&self) -> Option<&[Row]> {
        match &self.detail {
            Some(Detail::Rows(rows) | Detail::Snapshot(rows)) => Some(rows),
            _ => None,
        }
    }
}

impl Transfer {
    fn of<'a>(flows: impl Iterator<Item = &'a Flow> + Clone, totals: &Totals) -> Self {
        let flows = || flows.clone();
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

    /// Returns the length of the test, from the summary or else from the intervals.
    pub fn length(&self) -> Duration {
        let summary = self.received.or(self.sent).map(|s| s.length).filter(|length| !length.is_zero());
        summary.unwrap_or_else(|| self.intervals.iter().fold(Duration::ZERO, |sum, i| sum + i.length()))
    }

    /// Returns the mean goodput: the receiver's figure if known, because the sender's figure includes data
    /// that never left its socket buffer.
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

    /// Returns the highest rate that the path is proven to carry: for TCP the rate of the best interval; for
    /// UDP the mean received rate, because the rate at which a UDP sender writes does not show that the data
    /// arrives.
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

/// Adds the reports of several flows. They report at the same times, so reports with the same index belong
/// together.
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
