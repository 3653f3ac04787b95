//! The diagnosis as a document: the JSON that `diagnose` writes and `tune` reads.
//!
//! Within a schema version, keys are only added, never changed or removed, so documents of older builds still
//! parse: a missing key takes the default value of its type.

use std::collections::BTreeMap;
use std::fmt;

use fullpipe_measurement::classify::{Finding, LimitPeriod};
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_measurement::loss_estimate::{LossBasis, LossEstimate};
use fullpipe_measurement::measurement::packets::Connection;
use fullpipe_measurement::measurement::{Format, Protocol};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::demand::Demand;
use crate::explain::{
    self, BufferSource, Exclusion, Facts, Findings, RttSource, Sender, SettingsSource, StandingQueue,
    Undecided,
};
use crate::ladder::{Fit, Rung};
use crate::latency::Latency;
use crate::offered_load::OfferedLoad;
use crate::sockets::SocketReport;
use crate::tcp_vs_udp::TcpVsUdp;

/// Version of the JSON document. Within a version, keys are only added, never changed or removed.
pub const SCHEMA: &str = "fullpipe.diagnose/2";

/// Diagnosis of one measurement, in the form of its JSON document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Diagnosis {
    /// Name and version of the document.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Summary of the input.
    pub input: InputSummary,
    /// Figures of the path and the transfer.
    pub path: PathSummary,
    /// Results of a UDP test; null for TCP.
    pub udp: Option<UdpSummary>,
    /// Connections of a capture; null for other inputs.
    pub capture: Option<CaptureSummary>,
    /// Sampled sockets, largest sender first; null if no sockets were sampled.
    pub sockets: Option<Vec<SocketReport>>,
    /// Known facts about the two hosts.
    pub hosts: HostsSummary,
    /// Limits of the transfer, most likely first; the first one is the answer.
    pub findings: Vec<Finding>,
    /// Candidates for the limit, if the input does not show which of them applies; null if the first finding
    /// has high confidence or is certain.
    pub undecided: Option<Undecided>,
    /// Standing queue while the flow runs; null if the RTTs show none.
    pub queue: Option<StandingQueue>,
    /// Limits that were ruled out.
    pub excluded: Vec<Exclusion>,
    /// Limits over time, from a trace or a capture; empty for a log, which does not resolve them.
    pub limits: Vec<LimitPeriod>,
    /// Rungs of the ladder, from the measured run to the link.
    pub ladder: Vec<Rung>,
    /// How well the simulation of the present state agrees with the measurement; null if it was not
    /// simulated.
    pub fit: Option<Fit>,
    /// Growth of the application's queue on each rung, for a given offered rate; null unless requested.
    pub offered: Option<OfferedLoad>,
    /// Assumptions behind the diagnosis.
    pub assumptions: Vec<String>,
    /// Notes about the input for the reader.
    pub notes: Vec<String>,
}

/// Keys that fullpipe adds to an iperf3 document: the object `fullpipe` in `end`. `Document` is the type of
/// the UDP test's document, if there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Additions<Document = IgnoredAny> {
    /// Round-trip times before and during the test.
    #[serde(default)]
    pub latency: Latency,
    /// Time for which each limit applied, in seconds.
    #[serde(default)]
    pub limit_seconds: BTreeMap<String, f64>,
    /// Diagnosis of the test, or of the client-to-server direction; null if there is none.
    pub diagnosis: Option<Box<Diagnosis>>,
    /// Reason for the missing diagnosis; absent if there is a diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_diagnosis: Option<String>,
    /// Diagnosis of the server-to-client direction in a bidirectional test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnosis_reverse: Option<Box<Diagnosis>>,
    /// Reason for the missing diagnosis of the server-to-client direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_diagnosis_reverse: Option<String>,
    /// Comparison of the TCP test and the UDP test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_and_udp: Option<TcpVsUdp>,
    /// Document of the UDP test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Document>,
}

/// Summary of the input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InputSummary {
    /// Format of the input.
    pub kind: Format,
    /// Transport protocol. For UDP, `window_bytes` and `sndbuf_bytes` of the path are zero.
    pub protocol: Protocol,
    /// Version of the tool, if the input contains it.
    pub version: Option<String>,
    /// Number of parallel streams.
    pub streams: u64,
    /// Number of reports in the log.
    pub intervals: u64,
    /// Length of the test in seconds.
    pub duration_s: f64,
    /// Whether the log ends before its summary.
    pub truncated: bool,
    /// Mean rate of the opposite direction in a bidirectional test: key `opposite_bps`.
    #[serde(rename = "opposite_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub opposite: Option<Rate>,
}

/// Connections of a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureSummary {
    /// Number of the diagnosed connection, as for `--flow`: its position in `connections`, counted from 1.
    pub chosen: usize,
    /// Connections that carried data, largest first.
    pub connections: Vec<Connection>,
}

/// Figures of the path and the transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathSummary {
    /// Rate of the link, if known: key `link_bps`.
    #[serde(rename = "link_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub link: Option<Rate>,
    /// Mean goodput of the measured run: key `mean_bps`.
    #[serde(rename = "mean_bps", with = "fullpipe_measurement::json::Bps")]
    pub mean: Rate,
    /// Mean rate after the ramp: key `steady_bps`.
    #[serde(rename = "steady_bps", with = "fullpipe_measurement::json::Bps")]
    pub steady: Rate,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Source of the RTT.
    pub rtt_source: RttSource,
    /// Mean of the log's own RTT samples after the ramp, in milliseconds.
    pub mean_rtt_ms: Option<f64>,
    /// Bandwidth-delay product: link rate times RTT; null unless both are known.
    pub bdp_bytes: Option<u64>,
    /// Payload length of a full-sized segment.
    pub mss_bytes: u64,
    /// Median amount of data in flight after the ramp, estimated as rate times RTT.
    pub inflight_bytes: u64,
    /// Median congestion window after the ramp.
    pub cwnd_bytes: Option<u64>,
    /// Median ratio of `inflight_bytes` to the congestion window.
    pub inflight_per_cwnd: Option<f64>,
    /// Median receive window after the ramp, as reported in the log.
    pub snd_wnd_bytes: Option<u64>,
    /// Median ratio of `inflight_bytes` to the receive window.
    pub inflight_per_snd_wnd: Option<f64>,
    /// The sender's congestion control, whether named, inferred or assumed; `none` for UDP.
    pub congestion_control: String,
    /// How the congestion control is known.
    pub congestion_control_source: CongestionControlSource,
    /// Receive window that the receiver is assumed to advertise.
    pub window_bytes: u64,
    /// Assumed send buffer of the sender.
    pub sndbuf_bytes: u64,
    /// Rate cap for a single flow of this host, from the control measurement or from a trace: key `cap_bps`.
    #[serde(rename = "cap_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub cap: Option<Rate>,
    /// Loss estimate, if the log counts losses; for UDP, based on the lost datagrams.
    pub loss: Option<LossSummary>,
    /// Jitter of UDP datagrams on arrival, in milliseconds.
    pub jitter_ms: Option<f64>,
}

/// How the sender's congestion control is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CongestionControlSource {
    /// Named in the input.
    Named,
    /// Inferred from the behaviour of the congestion window.
    Inferred,
    /// The kernel's default, assumed because nothing in the input shows the congestion control.
    #[default]
    Assumed,
    /// None: UDP has no congestion control.
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

/// Results of a UDP test, with the predicted rate of TCP on the same path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdpSummary {
    /// Payload rate that was sent: key `sent_bps`.
    #[serde(rename = "sent_bps", with = "fullpipe_measurement::json::Bps")]
    pub sent: Rate,
    /// Payload rate that arrived; null if only the sender reported: key `arrived_bps`.
    #[serde(rename = "arrived_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub arrived: Option<Rate>,
    /// Payload length of a datagram.
    pub datagram_bytes: u64,
    /// Number of datagrams sent.
    pub datagrams: u64,
    /// Number of lost datagrams; null if only the sender reported.
    pub lost: Option<u64>,
    /// Number of datagrams received out of order.
    pub out_of_order: Option<u64>,
    /// Jitter: smoothed variation of the datagram spacing on arrival, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// Predicted result of TCP at this loss rate, from the first rung of the ladder; null without a ladder.
    pub tcp: Option<TcpAfterUdp>,
}

/// Predicted result of TCP on a path that was measured over UDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpAfterUdp {
    /// Congestion control of the predicted transfer.
    pub congestion_control: String,
    /// Share of the packets that TCP would lose, with its confidence interval.
    pub loss: LossSummary,
    /// Steady-state rate: key `steady_bps`.
    #[serde(rename = "steady_bps", with = "fullpipe_measurement::json::Bps")]
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
    /// Sending host. Its buffer is `tcp_wmem[2]`, or the size set on the socket.
    pub sender: HostSummary,
    /// Receiving host. Its buffer is `tcp_rmem[2]`, or the size set on the socket.
    pub receiver: HostSummary,
}

/// Properties of one host, known or assumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostSummary {
    /// Whether this host recorded the log.
    pub made_the_log: bool,
    /// Source of the host's settings; null without a sysctl dump.
    pub settings: Option<SettingsSource>,
    /// Kernel release, as given by the user or found in the sysctl dump.
    pub kernel: Option<String>,
    /// Socket buffer of the host; for a UDP test, the buffer that TCP would have.
    pub buffer_bytes: u64,
    /// Source of the buffer size.
    pub buffer_source: BufferSource,
    /// Whether the application fixes the buffer, so that no kernel setting changes it.
    pub buffer_fixed: bool,
    /// Rule that converts receive memory to a window, in words; null for the sender.
    pub window_rule: Option<String>,
}

/// Estimated loss rate, with its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LossSummary {
    /// Quantity that is counted.
    pub basis: LossBasis,
    /// Number of loss events or of retransmitted segments.
    pub events: u64,
    /// Number of data segments sent.
    pub segments: u64,
    /// Events per data segment.
    pub rate: f64,
    /// Lower bound of the 95 % confidence interval.
    pub low: f64,
    /// Upper bound of the 95 % confidence interval.
    pub high: f64,
    /// Retransmissions per segment sent, an upper bound of the loss rate.
    pub at_most: f64,
}

impl From<LossSummary> for LossEstimate {
    fn from(loss: LossSummary) -> Self {
        let share = Probability::from_f64;
        Self {
            basis: loss.basis,
            events: loss.events,
            segments: loss.segments,
            rate: share(loss.rate),
            low: share(loss.low),
            high: share(loss.high),
            at_most: share(loss.at_most),
        }
    }
}

impl From<LossEstimate> for LossSummary {
    fn from(loss: LossEstimate) -> Self {
        Self {
            basis: loss.basis,
            events: loss.events,
            segments: loss.segments,
            rate: loss.rate.as_f64(),
            low: loss.low.as_f64(),
            high: loss.high.as_f64(),
            at_most: loss.at_most.as_f64(),
        }
    }
}

impl Diagnosis {
    /// Combines the findings and the ladder into one document.
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
                chosen: facts.measurement.explained().next().map_or(1, |flow| flow.id) as usize,
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
                    buffer_fixed: findings.buffers.sndbuf_fixed,
                    window_rule: None,
                },
                receiver: HostSummary {
                    made_the_log: !facts.made_by_sender(),
                    settings: facts.receiver().map(|(_, source)| source),
                    kernel: kernel_of(facts.receiver()),
                    buffer_bytes: findings.buffers.rcvbuf.get(),
                    buffer_source: findings.buffers.rcvbuf_source,
                    buffer_fixed: findings.buffers.rcvbuf_fixed,
                    window_rule: Some(findings.buffers.rule.to_string()),
                },
            },
            findings: findings.findings,
            undecided: findings.undecided,
            queue: StandingQueue::of(&measured, facts.transfer.rtt.map(|rtt| rtt.min)),
            excluded: findings.excluded,
            limits: findings.limits,
            ladder,
            fit: None,
            offered: None,
            assumptions: findings.assumptions,
            notes: findings.notes,
        }
    }

    /// Adds the sampled sockets, one of which is the diagnosed one.
    #[must_use]
    pub fn among(self, sockets: Vec<SocketReport>) -> Self {
        Self { sockets: Some(sockets), ..self }
    }

    /// Adds the growth of the queue on each rung, for an application that offers `demand`.
    pub fn against(mut self, demand: Demand) -> Self {
        let known = self.path.link.is_some() || self.path.cap.is_some();
        self.offered = Some(OfferedLoad::of(demand, &self.ladder, known));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report that was read from JSON describes a loss in the same words as the measurement.
    #[test]
    fn a_loss_keeps_its_words() {
        for loss in [LossEstimate::new(3, 180_000), LossEstimate::of_retransmissions(1, 20)] {
            assert_eq!(LossEstimate::from(LossSummary::from(loss)).to_string(), loss.to_string());
        }
    }
}
