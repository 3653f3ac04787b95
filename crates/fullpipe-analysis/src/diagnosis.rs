//! The diagnosis as a document: what `diagnose` prints as JSON, and what `tune` reads back.
//!
//! Keys are added under the same number of the schema, never changed or removed, so that a document by an older version still
//! parses: a key that it lacks has the type's default.

use std::collections::BTreeMap;
use std::fmt;

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::classify::{Classified, Finding};
use crate::demand::Demand;
use crate::explain::{self, BufferSource, Excluded, Facts, Findings, RttSource, Sender, SettingsSource};
use crate::input::sysctl::HostSettings;
use crate::ladder::Rung;
use crate::latency::Latency;
use crate::measurement::packets::Connection;
use crate::measurement::{Format, Protocol};
use crate::offered::Offered;
use crate::sockets::SocketReport;
use crate::stats::LossEstimate;
use crate::tcp_vs_udp::TcpVsUdp;

/// Version of the JSON document; keys are added under the same number, never changed or removed.
pub const SCHEMA: &str = "fullpipe.diagnose/1";

/// Everything that `diagnose` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Diagnosis {
    /// Name and version of the document.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What was read.
    pub input: InputSummary,
    /// The path and the transfer on it, in numbers.
    pub path: PathSummary,
    /// What a UDP test says; null for TCP.
    pub udp: Option<UdpSummary>,
    /// What a capture counts; null without one.
    pub capture: Option<CaptureSummary>,
    /// The sockets that were seen, the largest sender first; null where none were looked at.
    pub sockets: Option<Vec<SocketReport>>,
    /// Both hosts, as far as they are known.
    pub hosts: HostsSummary,
    /// What holds the transfer back, ranked; the first is the answer.
    pub findings: Vec<Finding>,
    /// What it is not.
    pub excluded: Vec<Excluded>,
    /// The limits over time, of a trace; empty for a log, which does not resolve them.
    pub limits: Vec<Classified>,
    /// From the measured run to the line.
    pub ladder: Vec<Rung>,
    /// What an application that offers a given rate meets on each rung; null unless asked for.
    pub offered: Option<Offered>,
    /// What was taken for granted.
    pub assumptions: Vec<String>,
    /// What the reader should know about the input.
    pub notes: Vec<String>,
}

/// What fullpipe adds to the end of an iperf3 document: the key `fullpipe` of its `end`. `Document` is the document of the test
/// over UDP, where there was one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Additions<Document = IgnoredAny> {
    /// Round trips before and during the test.
    #[serde(default)]
    pub latency: Latency,
    /// How long each limit held, in seconds.
    #[serde(default)]
    pub limit_seconds: BTreeMap<String, f64>,
    /// The diagnosis of the test, or of its direction from the client; null where there is none.
    pub diagnosis: Option<Box<Diagnosis>>,
    /// Why there is none; absent where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_diagnosis: Option<String>,
    /// That of the direction from the server, in a test of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnosis_reverse: Option<Box<Diagnosis>>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_diagnosis_reverse: Option<String>,
    /// The test beside the one over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_and_udp: Option<TcpVsUdp>,
    /// The document of the test over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Document>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InputSummary {
    /// How it was written down.
    pub kind: Format,
    /// What carried the data; over UDP all windows and buffers below are zero.
    pub protocol: Protocol,
    /// Version of the tool, if it says so.
    pub version: Option<String>,
    /// Parallel streams.
    pub streams: u64,
    /// Reports in the log.
    pub intervals: u64,
    /// Length of the test in seconds.
    pub duration_s: f64,
    /// The log breaks off before its summary.
    pub truncated: bool,
    /// What the other direction of a test both ways carried: key `opposite_bps`.
    #[serde(rename = "opposite_bps", with = "crate::json::OptionalBps")]
    pub opposite: Option<Rate>,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureSummary {
    /// The number of the connection that is explained.
    pub chosen: usize,
    /// Every connection with data, the largest first.
    pub connections: Vec<Connection>,
}

/// The path and the transfer on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathSummary {
    /// Rate of the line, if known: key `link_bps`.
    #[serde(rename = "link_bps", with = "crate::json::OptionalBps")]
    pub link: Option<Rate>,
    /// Mean goodput of the measured run: key `mean_bps`.
    #[serde(rename = "mean_bps", with = "crate::json::Bps")]
    pub mean: Rate,
    /// Mean rate after the ramp: key `steady_bps`.
    #[serde(rename = "steady_bps", with = "crate::json::Bps")]
    pub steady: Rate,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Where it comes from.
    pub rtt_source: RttSource,
    /// Mean of the log's own round-trip times after the ramp, in milliseconds.
    pub mean_rtt_ms: Option<f64>,
    /// Line rate times RTT; `None` when the line is not known.
    pub bdp_bytes: Option<u64>,
    /// Payload of a segment.
    pub mss_bytes: u64,
    /// Median of rate x RTT after the ramp.
    pub inflight_bytes: u64,
    /// Median congestion window after the ramp.
    pub cwnd_bytes: Option<u64>,
    /// Median of their ratio.
    pub inflight_per_cwnd: Option<f64>,
    /// Median of the receiver's window after the ramp, as the log has it.
    pub snd_wnd_bytes: Option<u64>,
    /// Median of in flight over that window.
    pub inflight_per_snd_wnd: Option<f64>,
    /// The congestion control, known or inferred; `none` over UDP.
    pub congestion_control: String,
    /// How it is known.
    pub congestion_control_source: CongestionControlSource,
    /// The window that the receiver is taken to offer.
    pub window_bytes: u64,
    /// The send buffer that the sender is taken to have.
    pub sndbuf_bytes: u64,
    /// No flow of this host passes more, by the control measurement: key `cap_bps`.
    #[serde(rename = "cap_bps", with = "crate::json::OptionalBps")]
    pub cap: Option<Rate>,
    /// Loss events, if the log tells; over UDP lost datagrams.
    pub loss: Option<LossSummary>,
    /// Jitter of UDP datagrams on arrival, in milliseconds.
    pub jitter_ms: Option<f64>,
}

/// How the sender's congestion control is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CongestionControlSource {
    /// The input names it.
    Named,
    /// The window tells it.
    Inferred,
    /// Nothing tells it; the kernel's default is taken.
    #[default]
    Assumed,
    /// There is none: UDP.
    Udp,
}

impl fmt::Display for CongestionControlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Named => "named",
            Self::Inferred => "inferred",
            Self::Assumed => "assumed",
            Self::Udp => "udp",
        })
    }
}

/// A UDP test, and what TCP would make of the same path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdpSummary {
    /// What was sent: key `sent_bps`.
    #[serde(rename = "sent_bps", with = "crate::json::Bps")]
    pub sent: Rate,
    /// What arrived; null where only the sender spoke: key `arrived_bps`.
    #[serde(rename = "arrived_bps", with = "crate::json::OptionalBps")]
    pub arrived: Option<Rate>,
    /// Payload of a datagram.
    pub datagram_bytes: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Those that did not arrive; null where only the sender spoke.
    pub lost: Option<u64>,
    /// Those that arrived after a later one.
    pub out_of_order: Option<u64>,
    /// Smoothed variation of the spacing on arrival, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// What TCP would reach at this loss, the first rung of the ladder; null without a ladder.
    pub tcp: Option<TcpAfterUdp>,
}

/// What TCP would reach on a path that was measured over UDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpAfterUdp {
    /// The congestion control.
    pub congestion_control: String,
    /// Share of the packets that it would lose, with its interval.
    pub loss: LossSummary,
    /// The rate that lasts: key `steady_bps`.
    #[serde(rename = "steady_bps", with = "crate::json::Bps")]
    pub steady: Rate,
}

impl UdpSummary {
    fn of(facts: &Facts<'_>, algorithm: Algorithm, ladder: &[Rung]) -> Self {
        let (sent, size, datagrams) = explain::udp_summary(facts.transfer);
        let loss = explain::path_loss(facts).ok();
        Self {
            sent,
            arrived: datagrams.lost.map(|_| facts.transfer.mean_rate()),
            datagram_bytes: size.get(),
            datagrams: datagrams.total,
            lost: datagrams.lost,
            out_of_order: datagrams.out_of_order,
            jitter_ms: datagrams.jitter.map(Duration::as_millis_f64),
            tcp: ladder.first().zip(loss).map(|(rung, loss)| TcpAfterUdp {
                congestion_control: algorithm.name().into(),
                loss: loss.into(),
                steady: rung.lasting(),
            }),
        }
    }
}

/// Both hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostsSummary {
    /// Where the data comes from; its buffer is `tcp_wmem[2]` or what the socket set.
    pub sender: HostSummary,
    /// Where the data goes to; its buffer is `tcp_rmem[2]` or what the socket set.
    pub receiver: HostSummary,
}

/// One host, as it is taken to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostSummary {
    /// The log was made on it.
    pub made_the_log: bool,
    /// Whose dump is taken for its settings; null without one.
    pub settings: Option<SettingsSource>,
    /// Its kernel, if given or in that dump.
    pub kernel: Option<String>,
    /// Its buffer; of a UDP test the one that TCP would have.
    pub buffer_bytes: u64,
    /// Where that size comes from.
    pub buffer_source: BufferSource,
    /// How receive memory becomes window, in words; null for the sender.
    pub window_rule: Option<String>,
}

/// Loss events over segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LossSummary {
    /// Loss events seen.
    pub events: u64,
    /// Data segments sent.
    pub segments: u64,
    /// Events over segments.
    pub rate: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

impl From<LossEstimate> for LossSummary {
    fn from(loss: LossEstimate) -> Self {
        Self {
            events: loss.events,
            segments: loss.segments,
            rate: loss.rate.as_f64(),
            low: loss.low.as_f64(),
            high: loss.high.as_f64(),
        }
    }
}

impl Diagnosis {
    /// Puts findings and ladder into one document.
    pub(crate) fn new(facts: &Facts<'_>, findings: Findings, ladder: Vec<Rung>) -> Self {
        let measured = findings.measured;
        let (algorithm, how) = match findings.sender {
            Sender::Named(a) => (a, CongestionControlSource::Named),
            Sender::Inferred(a) => (a, CongestionControlSource::Inferred),
            Sender::Assumed(a) => (a, CongestionControlSource::Assumed),
        };
        let udp = facts.transfer.protocol == Protocol::Udp;
        let (congestion_control, congestion_control_source) =
            if udp { ("none", CongestionControlSource::Udp) } else { (algorithm.name(), how) };
        let kernel_of = |settings: Option<(&HostSettings, _)>| {
            let kernel = facts.hosts.kernel.or(settings.and_then(|(host, _)| host.kernel));
            kernel.map(|kernel| kernel.to_string())
        };
        let of_tcp = |bytes: Bytes| if udp { 0 } else { bytes.get() };
        Self {
            schema: SCHEMA.into(),
            input: InputSummary {
                kind: facts.measurement.origin.format,
                protocol: facts.transfer.protocol,
                version: facts.measurement.origin.version.clone(),
                streams: measured.streams,
                intervals: facts.transfer.intervals.len() as u64,
                duration_s: measured.length.as_secs_f64(),
                truncated: facts.measurement.origin.truncated,
                opposite: facts.measurement.opposite().map(|opposite| opposite.mean_rate()),
            },
            capture: facts.measurement.packets().map(|_| CaptureSummary {
                chosen: facts.measurement.flows[0].id as usize,
                connections: facts.measurement.origin.connections.clone(),
            }),
            sockets: None,
            path: PathSummary {
                link: facts.path.link,
                mean: measured.mean,
                steady: measured.steady,
                rtt_ms: measured.rtt.as_millis_f64(),
                rtt_source: measured.rtt_source,
                mean_rtt_ms: measured.mean_rtt.map(Duration::as_millis_f64),
                bdp_bytes: facts
                    .path
                    .link
                    .filter(|_| measured.rtt_source != RttSource::Unknown)
                    .map(|link| (link * measured.rtt).get()),
                mss_bytes: measured.mss.get(),
                inflight_bytes: measured.inflight.get(),
                cwnd_bytes: measured.cwnd.map(|cwnd| cwnd.get()),
                inflight_per_cwnd: measured.inflight_per_cwnd,
                snd_wnd_bytes: measured.snd_wnd.map(Bytes::get),
                inflight_per_snd_wnd: measured.inflight_per_wnd,
                congestion_control: congestion_control.into(),
                congestion_control_source,
                window_bytes: of_tcp(findings.buffers.window()),
                sndbuf_bytes: of_tcp(findings.buffers.sndbuf),
                cap: findings.cap,
                loss: findings.loss.map(LossSummary::from),
                jitter_ms: facts.transfer.datagrams.and_then(|d| d.jitter).map(Duration::as_millis_f64),
            },
            udp: udp.then(|| UdpSummary::of(facts, algorithm, &ladder)),
            hosts: HostsSummary {
                sender: HostSummary {
                    made_the_log: facts.made_by_sender(),
                    settings: facts.sender().map(|(_, source)| source),
                    kernel: kernel_of(facts.sender()),
                    buffer_bytes: findings.buffers.sndbuf.get(),
                    buffer_source: findings.buffers.sndbuf_source,
                    window_rule: None,
                },
                receiver: HostSummary {
                    made_the_log: !facts.made_by_sender(),
                    settings: facts.receiver().map(|(_, source)| source),
                    kernel: kernel_of(facts.receiver()),
                    buffer_bytes: findings.buffers.rcvbuf.get(),
                    buffer_source: findings.buffers.rcvbuf_source,
                    window_rule: Some(findings.buffers.rule.to_string()),
                },
            },
            findings: findings.findings,
            excluded: findings.excluded,
            limits: findings.limits,
            ladder,
            offered: None,
            assumptions: findings.assumptions,
            notes: findings.notes,
        }
    }

    /// The same, with the sockets among which the one that is explained was found.
    #[must_use]
    pub fn among(self, sockets: Vec<SocketReport>) -> Self {
        Self { sockets: Some(sockets), ..self }
    }

    /// The same, with what an application meets that offers `demand`.
    pub fn against(mut self, demand: Demand) -> Self {
        let known = self.path.link.is_some() || self.path.cap.is_some();
        self.offered = Some(Offered::of(demand, &self.ladder, known));
        self
    }
}
