//! The outcome of a run: totals over its whole duration.

use std::fmt;

use fullpipe_path::Counters;
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::algorithm::FlowAlgorithm;

/// Outcome of one run: totals of its flows and of the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Outcome of each flow, in the order of the scenario.
    pub flows: Vec<FlowOutcome>,
    /// Packet counts of the data direction of the path.
    pub path: PathOutcome,
    /// Work that the simulator did for the run.
    pub work: Work,
    /// Hash over all trace rows of the run: identical for identical runs, on every machine and in every
    /// build.
    pub digest: u64,
}

/// Outcome of one flow of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Congestion control of the flow.
    pub cc: FlowAlgorithm,
    /// Payload that the receiving application read, in bytes.
    pub bytes: Bytes,
    /// Goodput: `bytes` divided by the flow's lifetime. The lifetime begins with the flow and ends with its
    /// last byte or with the run.
    pub goodput: Rate,
    /// Goodput over the second half of the flow's lifetime.
    pub goodput_second_half: Rate,
    /// Number of data segments that the flow sent, including retransmissions; `None` in the emulator.
    pub segments_sent: Option<u64>,
    /// Number of segments that the flow retransmitted.
    pub retransmits: u64,
    /// RTT as the sender measured it; `None` if no data was acknowledged.
    pub rtt: Option<RttOutcome>,
    /// Total time for which each limit stopped the sender.
    pub send_limit: Vec<(SendLimit, Duration)>,
    /// Time for which each limit stopped the sender, over the second half of the flow's lifetime.
    pub send_limit_second_half: Vec<(SendLimit, Duration)>,
    /// Maximum congestion window of the flow.
    pub max_cwnd: Bytes,
    /// Arrival rate of payload at the receiving host over the flow's lifetime.
    pub wire: WireOutcome,
    /// Arrival rate of payload at the receiving host over the second half of the flow's lifetime.
    pub wire_second_half: WireOutcome,
    /// Time at which the last byte of a flow of limited size was acknowledged; `None` if the flow did not
    /// complete.
    pub finished: Option<Instant>,
    /// Time that the response to the flow's request took; `None` if the flow has no request, or if the
    /// receiving application did not read the whole response.
    pub response: Option<ResponseOutcome>,
    /// 99th percentile of the time from when a paced sending application produces data until the receiving
    /// application has read it, accurate to within 3 %; `None` for other applications.
    pub delay_p99: Option<Duration>,
}

/// Time until the receiving application of a flow with a request has read the last byte of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseOutcome {
    /// Time from the first SYN to the last byte.
    pub from_syn: Duration,
    /// Time from the first byte of the request to the last byte of the response.
    pub from_request: Duration,
}

/// Minimum, mean and 95th percentile of the RTT of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttOutcome {
    /// Minimum RTT.
    pub min: Duration,
    /// Mean RTT.
    pub mean: Duration,
    /// Median.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
}

/// Rate at which payload arrived at the receiving host, including duplicate segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireOutcome {
    /// Peak arrival rate over one sampling period (the interval between trace rows).
    pub peak: Rate,
    /// Mean arrival rate.
    pub mean: Rate,
}

impl WireOutcome {
    /// Returns the peak arrival rate divided by the mean arrival rate; returns `None` if nothing arrived.
    pub fn burst(self) -> Option<f64> {
        let (peak, mean) = (self.peak.as_bps(), self.mean.as_bps());
        (mean > 0).then(|| peak as f64 / mean as f64)
    }
}

/// Packet counts of the data direction of the path. In a JSON document, `aqm_drops` and the counts after it
/// are absent if they are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathOutcome {
    /// Number of data packets that the path delivered.
    pub delivered: u64,
    /// Number of packets that were dropped because the queue was full.
    pub queue_drops: u64,
    /// Number of packets lost at random.
    pub random_drops: u64,
    /// Number of packets that a policer dropped.
    pub policed: u64,
    /// Number of packets that the AQM dropped although the queue was not full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub aqm_drops: u64,
    /// Number of packets that the AQM marked (ECN CE) instead of dropping them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Number of duplicate packets that the path created.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicated: u64,
    /// Number of packets that left the path after a later packet of the same flow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reordered: u64,
    /// Number of pure ACKs that ACK decimation removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub acks_thinned: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl PathOutcome {
    /// Creates the packet counts from the counters of both directions of the path.
    pub fn of(forward: &Counters, backward: &Counters) -> Self {
        Self {
            delivered: forward.delivered_data,
            queue_drops: forward.queue_drops,
            random_drops: forward.random_drops,
            policed: forward.policed,
            aqm_drops: forward.aqm_drops,
            marked: forward.marked,
            duplicated: forward.duplicated,
            reordered: forward.reordered,
            acks_thinned: forward.acks_thinned + backward.acks_thinned,
        }
    }

    /// Returns the number of packets that the sender offered to the path, whether delivered or dropped.
    pub(crate) fn sent(self) -> u64 {
        let fates = self.delivered + self.queue_drops + self.random_drops + self.policed + self.aqm_drops;
        fates.saturating_sub(self.duplicated)
    }
}

/// Work that the simulator did for a run. The work is expressed in counts rather than times, so it is
/// identical on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of event-loop iterations: packets delivered, timers fired and trace rows.
    pub events: u64,
    /// Number of ACKs that acknowledged new data, over all flows.
    pub acks: u64,
    /// Number of visits to the senders' records of outstanding segments, over all flows.
    pub records_visited: u64,
}

pub use fullpipe_tcp::SendLimit;

impl FlowOutcome {
    /// Returns the share of the flow's lifetime during which `limit` stopped the sender, from 0 to 1.
    pub fn share(&self, limit: SendLimit) -> f64 {
        share(&self.send_limit, limit)
    }

    /// Returns the share of the second half of the flow's lifetime during which `limit` stopped the sender,
    /// from 0 to 1.
    pub fn share_second_half(&self, limit: SendLimit) -> f64 {
        share(&self.send_limit_second_half, limit)
    }
}

fn share(times: &[(SendLimit, Duration)], limit: SendLimit) -> f64 {
    let total: f64 = times.iter().map(|(_, time)| time.as_secs_f64()).sum();
    let of: f64 = times.iter().filter(|(l, _)| *l == limit).map(|(_, time)| time.as_secs_f64()).sum();
    if total > 0.0 { of / total } else { 0.0 }
}

impl fmt::Display for RttOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {} / {}", self.min, self.mean, self.p95)
    }
}
