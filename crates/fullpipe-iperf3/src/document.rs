//! What a test has shown, in the shape of iperf3's `-J`: the one model behind JSON, events and text.
//!
//! ```text
//!   Start ──► Interval, Interval, ... ──► End          one Document (-J), or an event each (--json-stream)
//!               streams, sums                          text: the same values as lines (text.rs)
//! ```
//!
//! Keys, their order and units are iperf3's. Whatever fullpipe adds stands under the key `fullpipe`, wherever it is. Known
//! oddities are kept: `sum_received.sender` is that of `sum_sent`, and over UDP `end.sum` has the sender's bytes.

use fullpipe_units::{Bytes, Duration, Instant, Rate};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::params::{Mode, Params, Protocol};

/// The whole of a test (`-J`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// `-T`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `--extra-data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_data: Option<String>,
    /// What was known before data flowed.
    pub start: Start,
    /// The reports in order of time.
    pub intervals: Vec<Interval>,
    /// The sums.
    pub end: End,
    /// What the server printed (`--get-server-output`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    /// The same, of a server that writes JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<Value>,
    /// Why there is no more, of a test that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One line of `--json-stream`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Event<'a, T> {
    /// `start`, `interval`, `end`, `error`, `server_output_text` or `server_output_json`.
    pub event: &'a str,
    /// What the document has under that name.
    pub data: &'a T,
}

/// What was known before data flowed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Start {
    /// The data connections, in the order of the streams.
    pub connected: Vec<DataConnection>,
    /// The program.
    pub version: String,
    /// The system, as `uname -a` prints it.
    pub system_info: String,
    /// When the test began; left out by one that reached no server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// Of a client: the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connecting_to: Option<Endpoint>,
    /// Of a server: the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_connection: Option<Endpoint>,
    /// The name of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Segment size that was asked for (`-M`).
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bytes_if")]
    pub tcp_mss: Option<Bytes>,
    /// Segment size of the control connection, where none was asked for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bytes_if")]
    pub tcp_mss_default: Option<Bytes>,
    /// What was asked for, and what came of it; left out by a test that reached no server.
    #[serde(flatten)]
    pub asked: Option<TestSettings>,
}

/// What was asked of a test, and the sockets that it got.
#[derive(Clone, Debug, Serialize)]
pub struct TestSettings {
    /// `-b`, of each stream; 0 is no limit.
    #[serde(serialize_with = "bps")]
    pub target_bitrate: Rate,
    /// `--fq-rate`; 0 is none.
    #[serde(serialize_with = "bps")]
    pub fq_rate: Rate,
    /// `-w`; 0 leaves the buffers to the kernel.
    #[serde(serialize_with = "bytes")]
    pub sock_bufsize: Bytes,
    /// `SO_SNDBUF` as the kernel answers; of a buffer that grows by itself, its beginning.
    #[serde(serialize_with = "bytes")]
    pub sndbuf_actual: Bytes,
    /// `SO_RCVBUF` likewise.
    #[serde(serialize_with = "bytes")]
    pub rcvbuf_actual: Bytes,
    /// The test.
    pub test_start: TestStart,
}

/// A data connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DataConnection {
    /// Its number in this document.
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

/// When a test began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timestamp {
    /// As in an HTTP header: `Sun, 22 Nov 2026 04:55:00 GMT`.
    pub time: String,
    /// Seconds since 1970.
    pub timesecs: u64,
    /// Milliseconds since 1970.
    pub timemillisecs: u64,
}

impl Timestamp {
    /// Of the moment that is so long after the beginning of 1970.
    pub fn new(since_1970: Duration) -> Self {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(since_1970.as_nanos());
        let millis = since_1970.as_millis();
        Self { time: httpdate::fmt_http_date(time), timesecs: millis / 1000, timemillisecs: millis }
    }
}

/// The other end of a control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Its name as it was given, or its address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// What the test is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TestStart {
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// `-P`.
    pub num_streams: u32,
    /// `-l`.
    #[serde(serialize_with = "bytes")]
    pub blksize: Bytes,
    /// `-O`.
    #[serde(serialize_with = "whole_seconds")]
    pub omit: Duration,
    /// `-t`; 0 with an amount.
    #[serde(serialize_with = "whole_seconds")]
    pub duration: Duration,
    /// `-n`.
    #[serde(serialize_with = "bytes")]
    pub bytes: Bytes,
    /// `-k`.
    pub blocks: u64,
    /// `-R`.
    pub reverse: u8,
    /// `-S`.
    pub tos: u8,
    /// `-b`, of each stream.
    #[serde(serialize_with = "bps")]
    pub target_bitrate: Rate,
    /// `--bidir`.
    pub bidir: u8,
    /// `--fq-rate`.
    #[serde(serialize_with = "bps")]
    pub fqrate: Rate,
    /// `-i`.
    #[serde(serialize_with = "seconds_of")]
    pub interval: Duration,
}

impl TestStart {
    /// The test of `params` with reports each `interval`.
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

/// An amount of data over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Where the span begins, counted from the start of the test.
    pub start: Instant,
    /// Where it ends.
    pub end: Instant,
    /// Payload.
    pub bytes: Bytes,
}

impl Amount {
    /// Length of the span.
    pub fn length(&self) -> Duration {
        self.end.saturating_since(self.start)
    }

    /// Payload over time; zero where no time has passed.
    pub fn rate(&self) -> Rate {
        let length = self.length();
        Rate::mean(self.bytes, length)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Keys {
            start: f64,
            end: f64,
            seconds: f64,
            bytes: u64,
            bits_per_second: f64,
        }
        let seconds = self.length().as_secs_f64();
        let bytes = self.bytes.get();
        let bits_per_second = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        let (start, end) = (self.start.as_secs_f64(), self.end.as_secs_f64());
        Keys { start, end, seconds, bytes, bits_per_second }.serialize(serializer)
    }
}

/// One report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interval {
    /// Each stream.
    pub streams: Vec<StreamInterval>,
    /// All of them; in a test of both directions those in which this end, the client, sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<SumInterval>,
    /// The other direction of `--bidir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<SumInterval>,
}

/// One report of one stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInterval {
    /// The number in [`DataConnection`].
    pub socket: i32,
    /// What was written or read.
    #[serde(flatten)]
    pub amount: Amount,
    /// Over TCP, what the kernel of the sending end tells.
    #[serde(flatten)]
    pub tcp: Option<TcpInterval>,
    /// Over UDP.
    #[serde(flatten)]
    pub udp: Option<Datagrams>,
    /// A warm-up (`-O`).
    pub omitted: bool,
    /// This end sends on it.
    pub sender: bool,
    /// What iperf3 does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpipe: Option<SocketReading>,
}

/// What the kernel tells of a sending TCP socket at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpInterval {
    /// Retransmitted segments in the interval.
    pub retransmits: u64,
    /// Congestion window.
    #[serde(serialize_with = "bytes")]
    pub snd_cwnd: Bytes,
    /// The receiver's window.
    #[serde(serialize_with = "bytes")]
    pub snd_wnd: Bytes,
    /// Smoothed RTT.
    #[serde(serialize_with = "micros")]
    pub rtt: Duration,
    /// Its variation.
    #[serde(serialize_with = "micros")]
    pub rttvar: Duration,
    /// MTU of the path.
    #[serde(serialize_with = "bytes")]
    pub pmtu: Bytes,
    /// Segments by which the path was seen to reorder.
    pub reorder: u32,
}

/// Datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Datagrams {
    /// What only the receiving end knows; left out in the sender's intervals.
    #[serde(flatten)]
    pub heard: Option<Heard>,
    /// Datagrams: sent, or of the receiver those up to the newest.
    pub packets: u64,
    /// Those that did not arrive, as a percentage: follows from the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_percent: Option<f64>,
    /// Those that arrived after a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
}

/// What the receiving end has of a stream of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Heard {
    /// Variation of the spacing on arrival (RFC 1889).
    #[serde(rename = "jitter_ms", serialize_with = "millis")]
    pub jitter: Duration,
    /// Those that did not arrive.
    #[serde(rename = "lost_packets")]
    pub lost: u64,
}

impl Datagrams {
    /// Of the sending end.
    pub fn sent(packets: u64) -> Self {
        Self { packets, ..Self::default() }
    }

    /// Of the receiving end.
    pub fn received(packets: u64, heard: Heard) -> Self {
        let percent = if packets > 0 { 100.0 * heard.lost as f64 / packets as f64 } else { 0.0 };
        Self { heard: Some(heard), packets, lost_percent: Some(percent), out_of_order: None }
    }

    /// With those that arrived after a later one.
    pub fn of_which_late(self, out_of_order: u64) -> Self {
        Self { out_of_order: Some(out_of_order), ..self }
    }

    /// Of several streams together: jitter is the mean.
    pub fn summed<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let packets = all.clone().map(|one| one.packets).sum();
        let heard: Vec<Heard> = all.filter_map(|one| one.heard).collect();
        let Some(several) = u64::try_from(heard.len()).ok().filter(|&several| several > 0) else {
            return Self::sent(packets);
        };
        let jitter = heard.iter().fold(Duration::ZERO, |sum, one| sum + one.jitter).mul_div(1, several);
        Self::received(packets, Heard { jitter, lost: heard.iter().map(|one| one.lost).sum() })
    }

    /// Those that did not arrive, as a percentage; `None` where only the sender spoke.
    pub fn lost_percent(&self) -> Option<f64> {
        self.lost_percent
    }
}

/// One report of all streams of a direction.
#[derive(Clone, Debug, Serialize)]
pub struct SumInterval {
    /// What was written or read.
    #[serde(flatten)]
    pub amount: Amount,
    /// Over TCP, of a sender: retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Over UDP.
    #[serde(flatten)]
    pub udp: Option<Datagrams>,
    /// A warm-up.
    pub omitted: bool,
    /// This end sends.
    pub sender: bool,
}

impl Interval {
    /// A report of `streams` with its sums; over a span that is the first stream's.
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

/// What fullpipe adds to an interval of a sending TCP stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SocketReading {
    /// Smallest RTT so far.
    #[serde(rename = "min_rtt_us", serialize_with = "micros_if")]
    pub min_rtt: Option<Duration>,
    /// Smoothed RTT.
    #[serde(rename = "srtt_us", serialize_with = "micros_if")]
    pub srtt: Option<Duration>,
    /// The receiver's window.
    #[serde(rename = "rwnd_bytes", serialize_with = "bytes")]
    pub rwnd: Bytes,
    /// Bytes in the network.
    #[serde(rename = "inflight_bytes", serialize_with = "bytes")]
    pub inflight: Bytes,
    /// Newest delivery rate of the kernel.
    #[serde(rename = "delivery_bps", serialize_with = "bps_if")]
    pub delivery_rate: Option<Rate>,
    /// Written and not sent.
    #[serde(rename = "notsent_bytes", serialize_with = "bytes")]
    pub notsent: Bytes,
    /// Memory that the send buffer may take.
    #[serde(rename = "sndbuf_bytes", serialize_with = "bytes")]
    pub sndbuf: Bytes,
    /// Memory that it takes.
    #[serde(rename = "sndbuf_used_bytes", serialize_with = "bytes")]
    pub sndbuf_used: Bytes,
    /// The limit that held for most of the interval.
    pub limit: Option<String>,
    /// How sure that is.
    pub confidence: Option<String>,
}

/// The sums of a test.
#[derive(Clone, Debug, Default, Serialize)]
pub struct End {
    /// Each stream, in the order of [`Start::connected`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<EndStream>,
    /// Over UDP, all of the client's direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
    /// What was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent: Option<Sum>,
    /// What arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received: Option<Sum>,
    /// `--bidir` over UDP: the other direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Sum>,
    /// `--bidir`: what the server sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent_bidir_reverse: Option<Sum>,
    /// `--bidir`: what of it arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received_bidir_reverse: Option<Sum>,
    /// Processor time of both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_utilization_percent: Option<CpuUtilization>,
    /// Congestion control of the sending end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_tcp_congestion: Option<String>,
    /// Of the receiving end, where it hardly matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_tcp_congestion: Option<String>,
    /// What iperf3 does not say: latency, the limits, the diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpipe: Option<Value>,
}

impl End {
    /// What arrived at the other end of the main direction; what was sent where nobody told.
    pub fn arrived(&self) -> Rate {
        let sum = self.sum_received.as_ref().or(self.sum_sent.as_ref());
        sum.map_or(Rate::ZERO, |sum| sum.amount.rate())
    }
}

/// The sums of one stream.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum EndStream {
    /// Over TCP.
    Tcp {
        /// The sending end; left out by a test that ended before it could tell, as is the next.
        #[serde(skip_serializing_if = "Option::is_none")]
        sender: Option<EndSender>,
        /// The receiving end.
        #[serde(skip_serializing_if = "Option::is_none")]
        receiver: Option<EndReceiver>,
    },
    /// Over UDP.
    Udp {
        /// Both ends.
        udp: EndUdp,
    },
}

/// What the sending end of a TCP stream has counted.
#[derive(Clone, Debug, Serialize)]
pub struct EndSender {
    /// The number in [`DataConnection`].
    pub socket: i32,
    /// What was written.
    #[serde(flatten)]
    pub amount: Amount,
    /// Retransmitted segments; left out by an end that cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// What this end's socket told at the ends of intervals.
    #[serde(flatten)]
    pub extremes: Option<Extremes>,
    /// This end sends on it.
    pub sender: bool,
}

/// The extremes of what a socket told at the ends of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Extremes {
    /// Largest congestion window.
    #[serde(rename = "max_snd_cwnd", serialize_with = "bytes")]
    pub cwnd: Bytes,
    /// Largest window of the receiver.
    #[serde(rename = "max_snd_wnd", serialize_with = "bytes")]
    pub wnd: Bytes,
    /// Largest smoothed RTT.
    #[serde(serialize_with = "micros")]
    pub max_rtt: Duration,
    /// Smallest smoothed RTT.
    #[serde(serialize_with = "micros")]
    pub min_rtt: Duration,
    /// Mean of them.
    #[serde(serialize_with = "micros")]
    pub mean_rtt: Duration,
    /// Segments by which the path was seen to reorder.
    pub reorder: u32,
}

/// What the receiving end of a TCP stream has counted.
#[derive(Clone, Debug, Serialize)]
pub struct EndReceiver {
    /// The number in [`DataConnection`].
    pub socket: i32,
    /// What was read.
    #[serde(flatten)]
    pub amount: Amount,
    /// This end sends on it.
    pub sender: bool,
}

/// What both ends of a UDP stream have counted: bytes of the sender, losses of the receiver.
#[derive(Clone, Debug, Serialize)]
pub struct EndUdp {
    /// The number in [`DataConnection`].
    pub socket: i32,
    /// What was sent.
    #[serde(flatten)]
    pub amount: Amount,
    /// Datagrams sent, and what is known of their way.
    #[serde(flatten)]
    pub datagrams: Datagrams,
    /// What arrived: text has a line for it, JSON has no key.
    #[serde(skip)]
    pub received: Option<Amount>,
    /// This end sends on it.
    pub sender: bool,
}

/// A sum over the streams of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// Payload.
    #[serde(flatten)]
    pub amount: Amount,
    /// Over TCP, of the sending end: retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Over UDP.
    #[serde(flatten)]
    pub udp: Option<Datagrams>,
    /// This end sends.
    pub sender: bool,
}

/// Processor time as percentages of the test's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuUtilization {
    /// This end, both kinds.
    pub host_total: f64,
    /// This end in its own code.
    pub host_user: f64,
    /// This end in the kernel.
    pub host_system: f64,
    /// The other end, both kinds.
    pub remote_total: f64,
    /// The other end in its own code.
    pub remote_user: f64,
    /// The other end in the kernel.
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

fn micros<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_micros())
}

fn micros_if<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(Duration::as_micros).serialize(serializer)
}

fn millis<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_millis_f64())
}

fn whole_seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_millis() / 1000)
}

fn seconds_of<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
