//! The report of a test in the structure of iperf3's `-J` output, from which JSON, events and text are
//! written.
//!
//! ```text
//!   Start ──► Interval, Interval, ... ──► End          one Document (-J), or one event each (--json-stream)
//!               streams, sums                          text: the same values as lines (text.rs)
//! ```
//!
//! The keys, their order and their units are those of iperf3. Fullpipe's additional values are under the key
//! `fullpipe`. Known quirks of iperf3 are kept: `sum_received.sender` repeats the value of `sum_sent`, and
//! over UDP, `end.sum` contains the sender's bytes.

use fullpipe_units::{Bytes, Duration, Instant, Rate};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::params::{Mode, Params, Protocol};

/// The complete JSON document of a test (`-J`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// Title of the test, as set with `-T`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Extra data, as set with `--extra-data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_data: Option<String>,
    /// Description of the test, which is known before the data transfer starts.
    pub start: Start,
    /// Interval reports in chronological order.
    pub intervals: Vec<Interval>,
    /// Totals over the whole test.
    pub end: End,
    /// Output of the server as text (`--get-server-output`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    /// Output of the server as a JSON document (`--get-server-output`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<Value>,
    /// Error message, if an error ended the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One line of the `--json-stream` output.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Event<'a, T> {
    /// Name of the event that the line reports: `start`, `interval`, `end`, `error`, `server_output_text` or
    /// `server_output_json`.
    pub event: &'a str,
    /// Data of the event: in the complete document, the value of the key that has the name of the event.
    pub data: &'a T,
}

/// Description of a test, which is known before the data transfer starts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Start {
    /// Data connections of the test, in the order of its streams.
    pub connected: Vec<DataConnection>,
    /// Name and version of the program that wrote the document.
    pub version: String,
    /// Operating system of this host, as `uname -a` prints it.
    pub system_info: String,
    /// Start time of the test; omitted if the client did not reach a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// Address of the server; present only in a client's document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connecting_to: Option<Endpoint>,
    /// Address of the client; present only in a server's document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_connection: Option<Endpoint>,
    /// Cookie of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Maximum segment size that the user requested (`-M`).
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bytes_if")]
    pub tcp_mss: Option<Bytes>,
    /// Maximum segment size of the control connection, if the client requested none.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bytes_if")]
    pub tcp_mss_default: Option<Bytes>,
    /// Settings of the test; omitted if the client did not reach a server.
    #[serde(flatten)]
    pub asked: Option<TestSettings>,
}

/// Requested settings of a test, and the actual socket buffer sizes.
#[derive(Clone, Debug, Serialize)]
pub struct TestSettings {
    /// Requested rate of each stream (`-b`); 0 means no limit.
    #[serde(serialize_with = "bps")]
    pub target_bitrate: Rate,
    /// Requested pacing rate (`--fq-rate`); 0 means no limit.
    #[serde(serialize_with = "bps")]
    pub fq_rate: Rate,
    /// Requested socket buffer size (`-w`); 0 leaves the size to the kernel.
    #[serde(serialize_with = "bytes")]
    pub sock_bufsize: Bytes,
    /// Value of `SO_SNDBUF` that the kernel reports; with autotuning, the initial size.
    #[serde(serialize_with = "bytes")]
    pub sndbuf_actual: Bytes,
    /// Value of `SO_RCVBUF` that the kernel reports; with autotuning, the initial size.
    #[serde(serialize_with = "bytes")]
    pub rcvbuf_actual: Bytes,
    /// Parameters that the client requested for the test.
    pub test_start: TestStart,
}

/// A data connection between client and server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DataConnection {
    /// Number that identifies the data connection in this document.
    pub socket: i32,
    /// IP address of this host.
    pub local_host: String,
    /// Port on this host.
    pub local_port: u16,
    /// IP address of the peer.
    pub remote_host: String,
    /// Port on the peer.
    pub remote_port: u16,
}

/// Start time of a test, in three forms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timestamp {
    /// Start time in the format of HTTP headers: `Sun, 22 Nov 2026 04:55:00 GMT`.
    pub time: String,
    /// Start time in seconds since 1970.
    pub timesecs: u64,
    /// Start time in milliseconds since 1970.
    pub timemillisecs: u64,
}

impl Timestamp {
    /// Creates a timestamp from the time that has passed since 1970-01-01.
    pub fn new(since_1970: Duration) -> Self {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(since_1970.as_nanos());
        let millis = since_1970.as_millis();
        Self { time: httpdate::fmt_http_date(time), timesecs: millis / 1000, timemillisecs: millis }
    }
}

/// Address and port of the peer of a control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Host name as the user entered it, or IP address.
    pub host: String,
    /// TCP port of the peer.
    pub port: u16,
}

/// Parameters that the client requested for a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TestStart {
    /// Transport protocol: `TCP` or `UDP`.
    pub protocol: &'static str,
    /// Number of parallel streams per direction (`-P`).
    pub num_streams: u32,
    /// Block size in bytes (`-l`).
    #[serde(serialize_with = "bytes")]
    pub blksize: Bytes,
    /// Length of the omitted period at the start of the test (`-O`).
    #[serde(serialize_with = "whole_seconds")]
    pub omit: Duration,
    /// Duration of the test (`-t`); 0 if the test ends after an amount of data.
    #[serde(serialize_with = "whole_seconds")]
    pub duration: Duration,
    /// Number of bytes to transfer (`-n`); 0 for no limit.
    #[serde(serialize_with = "bytes")]
    pub bytes: Bytes,
    /// Number of blocks to transfer (`-k`); 0 for no limit.
    pub blocks: u64,
    /// 1 if the server sends (`-R`), otherwise 0.
    pub reverse: u8,
    /// Type-of-service byte (`-S`).
    pub tos: u8,
    /// Requested rate of each stream (`-b`).
    #[serde(serialize_with = "bps")]
    pub target_bitrate: Rate,
    /// 1 if both sides send (`--bidir`), otherwise 0.
    pub bidir: u8,
    /// Requested pacing rate (`--fq-rate`).
    #[serde(serialize_with = "bps")]
    pub fqrate: Rate,
    /// Interval between two reports (`-i`).
    #[serde(serialize_with = "seconds_of")]
    pub interval: Duration,
}

impl TestStart {
    /// Creates the description of a test with `params` and with reports every `interval`.
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

/// Amount of data that was transferred in a period of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Start of the period, counted from the start of the test.
    pub start: Instant,
    /// End of the period, counted from the start of the test.
    pub end: Instant,
    /// Number of payload bytes transferred in the period.
    pub bytes: Bytes,
}

impl Amount {
    /// Returns the length of the period.
    pub fn length(&self) -> Duration {
        self.end.saturating_since(self.start)
    }

    /// Returns the mean rate over the period; returns zero if the period is empty.
    pub fn rate(&self) -> Rate {
        let length = self.length();
        Rate::mean(self.bytes, length)
    }
}

/// One periodic report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interval {
    /// Interval report of each stream.
    pub streams: Vec<StreamInterval>,
    /// Sum over all streams or, with `--bidir`, over only the streams on which this host sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<SumInterval>,
    /// Sum over the streams on which this host receives (`--bidir` only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<SumInterval>,
}

/// Report of one stream.
#[derive(Clone, Debug)]
pub struct StreamInterval {
    /// Number of the data connection, as in [`DataConnection`].
    pub socket: i32,
    /// Data written or read.
    pub amount: Amount,
    /// State of the sending socket, over TCP.
    pub tcp: Option<TcpInterval>,
    /// Datagram counts, over UDP.
    pub udp: Option<Datagrams>,
    /// Whether the interval belongs to the omitted period (`-O`).
    pub omitted: bool,
    /// Whether this host sends on the stream.
    pub sender: bool,
    /// Fullpipe's additions.
    pub fullpipe: Option<SocketReading>,
}

/// Values that the kernel reports for a sending TCP socket at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInterval {
    /// Number of segments retransmitted in the interval.
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
    /// Reordering distance of the path, in segments.
    pub reorder: u32,
}

/// Datagram counts of a UDP stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Datagrams {
    /// Values that only the receiving end can measure; omitted in the sender's intervals.
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
    /// Creates the datagram counts of a sender.
    pub fn sent(packets: u64) -> Self {
        Self { packets, ..Self::default() }
    }

    /// Creates the datagram counts of a receiver.
    pub fn received(packets: u64, heard: Heard) -> Self {
        let percent = if packets > 0 { 100.0 * heard.lost as f64 / packets as f64 } else { 0.0 };
        Self { heard: Some(heard), packets, lost_percent: Some(percent), out_of_order: None }
    }

    /// Sets the number of datagrams that arrived out of order.
    pub fn of_which_late(self, out_of_order: u64) -> Self {
        Self { out_of_order: Some(out_of_order), ..self }
    }

    /// Returns the sum over several streams; the jitter of the sum is the mean over the streams.
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
    /// Whether the interval belongs to the omitted period (`-O`).
    pub omitted: bool,
    /// Whether this host sends in this direction.
    pub sender: bool,
    /// Fullpipe's additions, if several TCP streams are summed.
    pub fullpipe: Option<SumReading>,
}

impl Interval {
    /// Creates the interval report of `streams` with its sums; the period of a sum is that of its first
    /// stream.
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
                fullpipe: None,
            })
        };
        let (sending, receiving) = (sum(true), sum(false));
        if both {
            return Self { sum: sending, sum_bidir_reverse: receiving, streams };
        }
        Self { sum: sending.or(receiving), sum_bidir_reverse: None, streams }
    }
}

/// Values that fullpipe adds to the interval report of a sending TCP stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SocketReading {
    /// Minimum RTT of the last five minutes.
    #[serde(rename = "min_rtt_us", serialize_with = "micros_if")]
    pub min_rtt: Option<Duration>,
    /// Smoothed RTT of the socket.
    #[serde(rename = "srtt_us", serialize_with = "micros_if")]
    pub srtt: Option<Duration>,
    /// Window that the receiver advertises, in bytes.
    #[serde(rename = "rwnd_bytes", serialize_with = "bytes")]
    pub rwnd: Bytes,
    /// Bytes in flight, as estimated by the sender.
    #[serde(rename = "inflight_bytes", serialize_with = "bytes")]
    pub inflight: Bytes,
    /// Most recent delivery-rate sample that the kernel reports.
    #[serde(rename = "delivery_bps", serialize_with = "bps_if")]
    pub delivery_rate: Option<Rate>,
    /// Bytes that the application has written but TCP has not sent yet.
    #[serde(rename = "notsent_bytes", serialize_with = "bytes")]
    pub notsent: Bytes,
    /// Memory that the send buffer may use, in bytes.
    #[serde(rename = "sndbuf_bytes", serialize_with = "bytes")]
    pub sndbuf: Bytes,
    /// Memory that the send buffer currently uses, in bytes.
    #[serde(rename = "sndbuf_used_bytes", serialize_with = "bytes")]
    pub sndbuf_used: Bytes,
    /// Limit that stopped the sender for the longest time in the interval.
    pub limit: Option<String>,
    /// Confidence that `limit` is the main limit.
    pub confidence: Option<String>,
}

/// Values that fullpipe adds to the sum over the sending TCP streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SumReading {
    /// Main limit, if it is the same for all streams of the sum; otherwise `None`.
    pub limit: Option<String>,
    /// Lowest confidence in `limit` among the streams.
    pub confidence: Option<String>,
}

/// Totals over the whole test.
#[derive(Clone, Debug, Default, Serialize)]
pub struct End {
    /// Totals of each stream, in the order of [`Start::connected`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<EndStream>,
    /// Sum over the client's sending direction, for UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
    /// Sum over the streams, as counted by the senders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent: Option<Sum>,
    /// Sum over the streams, as counted by the receivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received: Option<Sum>,
    /// Sum over the opposite direction, for UDP (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Sum>,
    /// Sum over the streams on which the server sends, as counted by the server (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent_bidir_reverse: Option<Sum>,
    /// Sum over the streams on which the server sends, as counted by the client (`--bidir`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received_bidir_reverse: Option<Sum>,
    /// CPU utilisation of both hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_utilization_percent: Option<CpuUtilization>,
    /// Congestion control of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_tcp_congestion: Option<String>,
    /// Congestion control of the receiver; it hardly affects the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_tcp_congestion: Option<String>,
    /// Values that fullpipe adds to iperf3's document: latency, limits and diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpipe: Option<Value>,
}

impl End {
    /// Returns the receive rate in the main direction; if it is unknown, returns the send rate.
    pub fn arrived(&self) -> Rate {
        let sum = self.sum_received.as_ref().or(self.sum_sent.as_ref());
        sum.map_or(Rate::ZERO, |sum| sum.amount.rate())
    }
}

/// Totals of one stream over the whole test.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum EndStream {
    /// Totals of a TCP stream.
    Tcp {
        /// Totals of the sender. The totals of a side are omitted if the test ended before that side reported
        /// its results.
        #[serde(skip_serializing_if = "Option::is_none")]
        sender: Option<EndSender>,
        /// Totals of the receiver.
        #[serde(skip_serializing_if = "Option::is_none")]
        receiver: Option<EndReceiver>,
    },
    /// Totals of a UDP stream.
    Udp {
        /// Totals of sender and receiver.
        udp: EndUdp,
    },
}

/// Totals of the sending end of a TCP stream.
#[derive(Clone, Debug)]
pub struct EndSender {
    /// Number of the data connection, as in [`DataConnection`].
    pub socket: i32,
    /// Data written.
    pub amount: Amount,
    /// Segments retransmitted; omitted if this end cannot report them.
    pub retransmits: Option<u64>,
    /// Statistics of the values that this end's socket reported at the end of each interval.
    pub extremes: Option<Extremes>,
    /// Whether this host sends on the stream.
    pub sender: bool,
}

/// Statistics of the values that a socket reported at the end of each interval.
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
    /// Reordering distance of the path, in segments.
    pub reorder: u32,
}

/// Totals of the receiving end of a TCP stream.
#[derive(Clone, Debug)]
pub struct EndReceiver {
    /// Number of the data connection, as in [`DataConnection`].
    pub socket: i32,
    /// Data read.
    pub amount: Amount,
    /// Whether this host sends on the stream.
    pub sender: bool,
}

/// Totals of both ends of a UDP stream: the sender's bytes and the receiver's losses.
#[derive(Clone, Debug)]
pub struct EndUdp {
    /// Number of the data connection, as in [`DataConnection`].
    pub socket: i32,
    /// Data sent.
    pub amount: Amount,
    /// Datagrams sent, with the receiver's losses and jitter if known.
    pub datagrams: Datagrams,
    /// Data received; printed in the text report, absent from the JSON.
    pub received: Option<Amount>,
    /// Whether this host sends on the stream.
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
    /// Whether this host sends in this direction.
    pub sender: bool,
}

/// CPU utilisation of both hosts, in percent of one CPU core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuUtilization {
    /// User and system CPU time of this host.
    pub host_total: f64,
    /// User CPU time of this host.
    pub host_user: f64,
    /// System CPU time of this host.
    pub host_system: f64,
    /// User and system CPU time of the peer.
    pub remote_total: f64,
    /// User CPU time of the peer.
    pub remote_user: f64,
    /// System CPU time of the peer.
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
