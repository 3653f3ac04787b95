//! The report of a test in the structure of iperf3's `-J`: the common model of JSON, events and text.
//!
//! ```text
//!   Start ──► Interval, Interval, ... ──► End          one Document (-J), or one event each (--json-stream)
//!               streams, sums                          text: the same values as lines (text.rs)
//! ```
//!
//! Keys, their order and their units are those of iperf3. The reports of streams and sums are written as a
//! [`Report`](crate::report::Report), which also reads them; a [`Log`](crate::log::Log) is what a reader gets of
//! a whole document. Fullpipe's additions are under the key `fullpipe`.
//! Known quirks of iperf3 are kept: `sum_received.sender` repeats the value of `sum_sent`, and over UDP,
//! `end.sum` contains the sender's bytes.

use fullpipe_units::{Bytes, Duration, Instant, Rate};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::params::{Mode, Params, Protocol};

/// The complete document of a test (`-J`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// Title of the test (`-T`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Extra data (`--extra-data`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_data: Option<String>,
    /// Values known before the data transfer starts.
    pub start: Start,
    /// Reports in chronological order.
    pub intervals: Vec<Interval>,
    /// Totals of the test.
    pub end: End,
    /// Text output of the server (`--get-server-output`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    /// JSON output of the server (`--get-server-output`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<Value>,
    /// Error that ended the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One line of `--json-stream`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Event<'a, T> {
    /// Name of the event: `start`, `interval`, `end`, `error`, `server_output_text` or `server_output_json`.
    pub event: &'a str,
    /// The part of the document with that name.
    pub data: &'a T,
}

/// Values known before the data transfer starts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Start {
    /// Data connections, in the order of the streams.
    pub connected: Vec<DataConnection>,
    /// Name and version of the program.
    pub version: String,
    /// Operating system of this host, as `uname -a` prints it.
    pub system_info: String,
    /// Start time of the test; omitted if the client did not reach a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// Address of the server; only in a client's document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connecting_to: Option<Endpoint>,
    /// Address of the client; only in a server's document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_connection: Option<Endpoint>,
    /// Cookie of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Requested maximum segment size (`-M`).
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bytes_if")]
    pub tcp_mss: Option<Bytes>,
    /// Maximum segment size of the control connection, if none was requested.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bytes_if")]
    pub tcp_mss_default: Option<Bytes>,
    /// Settings of the test; omitted if the client did not reach a server.
    #[serde(flatten)]
    pub asked: Option<TestSettings>,
}

/// Requested settings of a test, and the actual socket buffer sizes.
#[derive(Clone, Debug, Serialize)]
pub struct TestSettings {
    /// Target bitrate of each stream (`-b`); 0 means no limit.
    #[serde(serialize_with = "bps")]
    pub target_bitrate: Rate,
    /// Pacing rate (`--fq-rate`); 0 means no limit.
    #[serde(serialize_with = "bps")]
    pub fq_rate: Rate,
    /// Requested socket buffer size (`-w`); 0 leaves the size to the kernel.
    #[serde(serialize_with = "bytes")]
    pub sock_bufsize: Bytes,
    /// `SO_SNDBUF` as the kernel reports it; with autotuning, its initial value.
    #[serde(serialize_with = "bytes")]
    pub sndbuf_actual: Bytes,
    /// `SO_RCVBUF` as the kernel reports it; with autotuning, its initial value.
    #[serde(serialize_with = "bytes")]
    pub rcvbuf_actual: Bytes,
    /// Parameters of the test.
    pub test_start: TestStart,
}

/// A data connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DataConnection {
    /// Number of the connection in this document.
    pub socket: i32,
    /// Address of this end.
    pub local_host: String,
    /// Port of this end.
    pub local_port: u16,
    /// Address of the other end.
    pub remote_host: String,
    /// Port of the other end.
    pub remote_port: u16,
}

/// Start time of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timestamp {
    /// Time in the format of HTTP headers: `Sun, 22 Nov 2026 04:55:00 GMT`.
    pub time: String,
    /// Seconds since 1970.
    pub timesecs: u64,
    /// Milliseconds since 1970.
    pub timemillisecs: u64,
}

impl Timestamp {
    /// Creates a timestamp from the time since 1970-01-01.
    pub fn new(since_1970: Duration) -> Self {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(since_1970.as_nanos());
        let millis = since_1970.as_millis();
        Self { time: httpdate::fmt_http_date(time), timesecs: millis / 1000, timemillisecs: millis }
    }
}

/// The other end of a control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Host name as given by the user, or address.
    pub host: String,
    /// Port number.
    pub port: u16,
}

/// Parameters of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TestStart {
    /// Protocol: `TCP` or `UDP`.
    pub protocol: &'static str,
    /// Number of parallel streams per direction (`-P`).
    pub num_streams: u32,
    /// Block size (`-l`).
    #[serde(serialize_with = "bytes")]
    pub blksize: Bytes,
    /// Omitted period at the start of the test (`-O`).
    #[serde(serialize_with = "whole_seconds")]
    pub omit: Duration,
    /// Duration (`-t`); 0 if the test ends after an amount of data.
    #[serde(serialize_with = "whole_seconds")]
    pub duration: Duration,
    /// Number of bytes to transfer (`-n`).
    #[serde(serialize_with = "bytes")]
    pub bytes: Bytes,
    /// Number of blocks to transfer (`-k`).
    pub blocks: u64,
    /// 1 if the server sends (`-R`), otherwise 0.
    pub reverse: u8,
    /// Type of service (`-S`).
    pub tos: u8,
    /// Target bitrate of each stream (`-b`).
    #[serde(serialize_with = "bps")]
    pub target_bitrate: Rate,
    /// 1 if both sides send (`--bidir`), otherwise 0.
    pub bidir: u8,
    /// Pacing rate (`--fq-rate`).
    #[serde(serialize_with = "bps")]
    pub fqrate: Rate,
    /// Interval between reports (`-i`).
    #[serde(serialize_with = "seconds_of")]
    pub interval: Duration,
}

impl TestStart {
    /// Returns the parameters of a test with `params` and with reports every `interval`.
    pub fn of(params: &Params, interval: Duration) -> Self {
        let amount = !params.num.is_zero() || params.blocks > 0;
        Self {
            protocol: match params.protocol {
                Protocol::Tcp => "TCP",
                Protocol::Udp => "UDP",
            },
            num_streams: params.parallel,
            blksize: params.block(),
            omit: params.omit,
            duration: if amount { Duration::ZERO } else { params.time },
            bytes: params.num,
            blocks: params.blocks,
            reverse: u8::from(params.mode == Mode::Reverse),
            tos: params.tos.unwrap_or(0),
            target_bitrate: params.rate.unwrap_or(Rate::ZERO),
            bidir: u8::from(params.mode == Mode::Bidirectional),
            fqrate: params.fq_rate.unwrap_or(Rate::ZERO),
            interval,
        }
    }
}

/// An amount of data over a period of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Start of the period, counted from the start of the test.
    pub start: Instant,
    /// End of the period.
    pub end: Instant,
    /// Payload transferred in the period.
    pub bytes: Bytes,
}

impl Amount {
    /// Returns the length of the period.
    pub fn length(&self) -> Duration {
        self.end.saturating_since(self.start)
    }

    /// Returns the mean rate over the period; zero if no time has passed.
    pub fn rate(&self) -> Rate {
        let length = self.length();
        Rate::mean(self.bytes, length)
    }
}

/// One periodic report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interval {
    /// Report of each stream.
    pub streams: Vec<StreamInterval>,
    /// Sum over all streams; with `--bidir`, over the streams on which this end sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<SumInterval>,
    /// Sum over the streams of the opposite direction (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<SumInterval>,
}

/// Report of one stream.
#[derive(Clone, Debug)]
pub struct StreamInterval {
    /// Number of the connection in [`DataConnection`].
    pub socket: i32,
    /// Data written or read.
    pub amount: Amount,
    /// State of the sending socket, over TCP.
    pub tcp: Option<TcpInterval>,
    /// Datagram counts, over UDP.
    pub udp: Option<Datagrams>,
    /// Whether the interval is omitted (`-O`).
    pub omitted: bool,
    /// Whether this end sends on the stream.
    pub sender: bool,
    /// Fullpipe's additions.
    pub fullpipe: Option<SocketReading>,
}

/// Values that the kernel reports for a sending TCP socket at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInterval {
    /// Segments retransmitted in the interval.
    pub retransmits: u64,
    /// Congestion window.
    pub snd_cwnd: Bytes,
    /// The receiver's advertised window.
    pub snd_wnd: Bytes,
    /// Smoothed RTT.
    pub rtt: Duration,
    /// RTT variation.
    pub rttvar: Duration,
    /// Path MTU.
    pub pmtu: Bytes,
    /// Reordering distance of the path in segments.
    pub reorder: u32,
}

/// Datagram counts of a UDP stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Datagrams {
    /// Values that only the receiving end knows; omitted in the sender's intervals.
    pub heard: Option<Heard>,
    /// Number of datagrams sent; at the receiver, the highest sequence number received.
    pub packets: u64,
    /// Lost datagrams as a percentage, computed from the other values.
    lost_percent: Option<f64>,
    /// Datagrams that arrived out of order.
    pub out_of_order: Option<u64>,
}

/// Measurements of the receiving end of a UDP stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Jitter: variation of the transit time (RFC 1889).
    pub jitter: Duration,
    /// Datagrams lost.
    pub lost: u64,
}

impl Datagrams {
    /// Creates the counts of the sending end.
    pub fn sent(packets: u64) -> Self {
        Self { packets, ..Self::default() }
    }

    /// Creates the counts of the receiving end.
    pub fn received(packets: u64, heard: Heard) -> Self {
        let percent = if packets > 0 { 100.0 * heard.lost as f64 / packets as f64 } else { 0.0 };
        Self { heard: Some(heard), packets, lost_percent: Some(percent), out_of_order: None }
    }

    /// Adds the number of datagrams that arrived out of order.
    pub fn of_which_late(self, out_of_order: u64) -> Self {
        Self { out_of_order: Some(out_of_order), ..self }
    }

    /// Returns the sum over several streams; the jitter is the mean over the streams.
    pub fn summed<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let packets = all.clone().map(|one| one.packets).sum();
        let heard: Vec<Heard> = all.filter_map(|one| one.heard).collect();
        let Some(several) = u64::try_from(heard.len()).ok().filter(|&several| several > 0) else {
            return Self::sent(packets);
        };
        let jitter = heard.iter().fold(Duration::ZERO, |sum, one| sum + one.jitter).mul_div(1, several);
        Self::received(packets, Heard { jitter, lost: heard.iter().map(|one| one.lost).sum() })
    }

    /// Returns the lost datagrams as a percentage; `None` if only the sender's count is known.
    pub fn lost_percent(&self) -> Option<f64> {
        self.lost_percent
    }
}

/// Report of all streams in one direction.
#[derive(Clone, Debug)]
pub struct SumInterval {
    /// Data written or read.
    pub amount: Amount,
    /// Segments retransmitted, for a TCP sender.
    pub retransmits: Option<u64>,
    /// Datagram counts, over UDP.
    pub udp: Option<Datagrams>,
    /// Whether the interval is omitted (`-O`).
    pub omitted: bool,
    /// Whether this end sends in this direction.
    pub sender: bool,
}

impl Interval {
    /// Creates a report of `streams` with their sums; the period of a sum is that of its first stream.
    pub fn of(streams: Vec<StreamInterval>) -> Self {
        let both = streams.iter().any(|s| s.sender) && streams.iter().any(|s| !s.sender);
        let sum = |sender: bool| {
            let of = || streams.iter().filter(move |stream| stream.sender == sender);
            let first = of().next()?;
            let bytes = of().fold(Bytes::ZERO, |sum, stream| sum + stream.amount.bytes);
            let retransmits = of().filter_map(|stream| stream.tcp).map(|tcp| tcp.retransmits);
            Some(SumInterval {
                amount: Amount { bytes, ..first.amount },
                retransmits: first.tcp.map(|_| retransmits.sum()),
                udp: first.udp.map(|_| Datagrams::summed(of().filter_map(|stream| stream.udp.as_ref()))),
                omitted: first.omitted,
                sender,
            })
        };
        let (sending, receiving) = (sum(true), sum(false));
        if both {
            return Self { sum: sending, sum_bidir_reverse: receiving, streams };
        }
        Self { sum: sending.or(receiving), sum_bidir_reverse: None, streams }
    }
}

/// Fullpipe's additions to an interval of a sending TCP stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SocketReading {
    /// Smallest RTT so far.
    #[serde(rename = "min_rtt_us", serialize_with = "micros_if")]
    pub min_rtt: Option<Duration>,
    /// Smoothed RTT.
    #[serde(rename = "srtt_us", serialize_with = "micros_if")]
    pub srtt: Option<Duration>,
    /// The receiver's advertised window.
    #[serde(rename = "rwnd_bytes", serialize_with = "bytes")]
    pub rwnd: Bytes,
    /// Bytes in flight.
    #[serde(rename = "inflight_bytes", serialize_with = "bytes")]
    pub inflight: Bytes,
    /// Most recent delivery-rate sample of the kernel.
    #[serde(rename = "delivery_bps", serialize_with = "bps_if")]
    pub delivery_rate: Option<Rate>,
    /// Bytes written and not yet sent.
    #[serde(rename = "notsent_bytes", serialize_with = "bytes")]
    pub notsent: Bytes,
    /// Memory that the send buffer may use.
    #[serde(rename = "sndbuf_bytes", serialize_with = "bytes")]
    pub sndbuf: Bytes,
    /// Memory that the send buffer uses.
    #[serde(rename = "sndbuf_used_bytes", serialize_with = "bytes")]
    pub sndbuf_used: Bytes,
    /// Main limit of the sender in the interval.
    pub limit: Option<String>,
    /// Confidence in the main limit.
    pub confidence: Option<String>,
}

/// Totals of a test.
#[derive(Clone, Debug, Default, Serialize)]
pub struct End {
    /// Totals of each stream, in the order of [`Start::connected`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<EndStream>,
    /// Sum over the client's sending direction, over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
    /// Sum of the data sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent: Option<Sum>,
    /// Sum of the data received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received: Option<Sum>,
    /// Sum over the opposite direction, over UDP (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Sum>,
    /// Sum of the data that the server sent (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent_bidir_reverse: Option<Sum>,
    /// Sum of the data received from the server (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received_bidir_reverse: Option<Sum>,
    /// CPU utilisation of both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_utilization_percent: Option<CpuUtilization>,
    /// Congestion control of the sending end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_tcp_congestion: Option<String>,
    /// Congestion control of the receiving end, which hardly affects the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_tcp_congestion: Option<String>,
    /// Additions of fullpipe: latency, limits, diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpipe: Option<Value>,
}

impl End {
    /// Returns the receive rate in the main direction, or the send rate if the receive rate is unknown.
    pub fn arrived(&self) -> Rate {
        let sum = self.sum_received.as_ref().or(self.sum_sent.as_ref());
        sum.map_or(Rate::ZERO, |sum| sum.amount.rate())
    }
}

/// Totals of one stream.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum EndStream {
    /// TCP stream.
    Tcp {
        /// Totals of the sending end; omitted, like `receiver`, if the test ended before that end reported.
        #[serde(skip_serializing_if = "Option::is_none")]
        sender: Option<EndSender>,
        /// Totals of the receiving end.
        #[serde(skip_serializing_if = "Option::is_none")]
        receiver: Option<EndReceiver>,
    },
    /// UDP stream.
    Udp {
        /// Totals of both ends.
        udp: EndUdp,
    },
}

/// Totals of the sending end of a TCP stream.
#[derive(Clone, Debug)]
pub struct EndSender {
    /// Number of the connection in [`DataConnection`].
    pub socket: i32,
    /// Data written.
    pub amount: Amount,
    /// Segments retransmitted; omitted if this end cannot report them.
    pub retransmits: Option<u64>,
    /// Extreme values of this end's socket at the ends of intervals.
    pub extremes: Option<Extremes>,
    /// Whether this end sends on the stream.
    pub sender: bool,
}

/// Extreme values of a socket at the ends of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extremes {
    /// Largest congestion window.
    pub cwnd: Bytes,
    /// Largest advertised window of the receiver.
    pub wnd: Bytes,
    /// Largest smoothed RTT.
    pub max_rtt: Duration,
    /// Smallest smoothed RTT.
    pub min_rtt: Duration,
    /// Mean of the smoothed RTTs.
    pub mean_rtt: Duration,
    /// Reordering distance of the path in segments.
    pub reorder: u32,
}

/// Totals of the receiving end of a TCP stream.
#[derive(Clone, Debug)]
pub struct EndReceiver {
    /// Number of the connection in [`DataConnection`].
    pub socket: i32,
    /// Data read.
    pub amount: Amount,
    /// Whether this end sends on the stream.
    pub sender: bool,
}

/// Totals of both ends of a UDP stream: the sender's bytes and the receiver's losses.
#[derive(Clone, Debug)]
pub struct EndUdp {
    /// Number of the connection in [`DataConnection`].
    pub socket: i32,
    /// Data sent.
    pub amount: Amount,
    /// Datagrams sent, with the receiver's losses and jitter if known.
    pub datagrams: Datagrams,
    /// Data received; printed in the text report, absent from the JSON.
    pub received: Option<Amount>,
    /// Whether this end sends on the stream.
    pub sender: bool,
}

/// A sum over the streams of one direction.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Payload transferred.
    pub amount: Amount,
    /// Segments retransmitted; only for the sending end over TCP.
    pub retransmits: Option<u64>,
    /// Datagram counts, over UDP.
    pub udp: Option<Datagrams>,
    /// Whether this end sends in this direction.
    pub sender: bool,
}

/// CPU utilisation in percent of the test's duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuUtilization {
    /// User and system time of this end.
    pub host_total: f64,
    /// User time of this end.
    pub host_user: f64,
    /// System time of this end.
    pub host_system: f64,
    /// User and system time of the other end.
    pub remote_total: f64,
    /// User time of the other end.
    pub remote_user: f64,
    /// System time of the other end.
    pub remote_system: f64,
}

fn bytes<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.get())
}

fn bytes_if<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    bytes.map(Bytes::get).serialize(serializer)
}

fn bps<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(rate.as_bps())
}

fn bps_if<S: Serializer>(rate: &Option<Rate>, serializer: S) -> Result<S::Ok, S::Error> {
    rate.map(Rate::as_bps).serialize(serializer)
}

fn micros_if<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(Duration::as_micros).serialize(serializer)
}

fn whole_seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_millis() / 1000)
}

fn seconds_of<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
