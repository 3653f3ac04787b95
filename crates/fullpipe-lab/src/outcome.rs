//! Outcome of a run: the totals of its trace.

use std::fmt;

use fullpipe_path::Counters;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Outcome of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Outcome per flow, in the order of the scenario.
    pub flows: Vec<FlowOutcome>,
    /// Packet counts of the data direction.
    pub path: PathOutcome,
    /// Work of the simulator.
    pub work: Work,
    /// Hash over the whole trace: identical for identical runs, on every machine and in every build.
    pub digest: u64,
}

/// Outcome of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Congestion control.
    pub cc: Algorithm,
    /// Payload that the receiving application read.
    pub bytes: Bytes,
    /// `bytes` divided by the flow's lifetime, from its start to its last byte or the end of the run.
    pub goodput: Rate,
    /// Goodput over the second half of that lifetime.
    pub goodput_second_half: Rate,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// RTT as measured by the sender; `None` if no data was acknowledged.
    pub rtt: Option<RttOutcome>,
    /// Time spent in each state of the sender.
    pub send_limit: Vec<(SendLimit, Duration)>,
    /// Time spent in each state of the sender over the second half of the lifetime.
    pub send_limit_second_half: Vec<(SendLimit, Duration)>,
    /// Maximum congestion window.
    pub max_cwnd: Bytes,
    /// Arrival rate at the receiving host over the flow's lifetime.
    pub wire: WireOutcome,
    /// Arrival rate at the receiving host over the second half of the lifetime.
    pub wire_second_half: WireOutcome,
    /// Time at which the last byte was acknowledged; `None` unless the flow has a limited size and completed.
    pub finished: Option<Instant>,
}

/// Round-trip times of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttOutcome {
    /// Minimum.
    pub min: Duration,
    /// Mean.
    pub mean: Duration,
    /// Median.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
}

/// Rate at which payload arrived, including duplicate segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireOutcome {
    /// Highest rate over one sampling period (the interval between trace rows).
    pub peak: Rate,
    /// Mean rate.
    pub mean: Rate,
}

impl WireOutcome {
    /// Returns peak divided by mean; `None` if nothing arrived.
    pub fn burst(self) -> Option<f64> {
        let (peak, mean) = (self.peak.as_bps(), self.mean.as_bps());
        (mean > 0).then(|| peak as f64 / mean as f64)
    }
}

/// Packet counts of the data direction. In a document, counts from `aqm_drops` on are absent if they are
/// zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathOutcome {
    /// Data packets delivered.
    pub delivered: u64,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub random_drops: u64,
    /// Packets that a policer dropped.
    pub policed: u64,
    /// Packets that the AQM dropped although the queue had room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub aqm_drops: u64,
    /// Packets that the AQM marked (ECN CE) instead of dropping them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Copies of packets that the path made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicated: u64,
    /// Packets that left the path after later packets of their flow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reordered: u64,
    /// Pure ACKs that ACK decimation removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub acks_thinned: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl PathOutcome {
    /// Creates the counts from the counters of both directions.
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

    /// Returns the number of packets offered to the path, delivered or dropped.
    pub(crate) fn sent(self) -> u64 {
        let fates = self.delivered + self.queue_drops + self.random_drops + self.policed + self.aqm_drops;
        fates.saturating_sub(self.duplicated)
    }
}

/// Work of the simulator in a run. It consists of counts instead of times and is therefore identical on every
/// machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of event loop iterations: packets delivered, timers fired and trace rows.
    pub events: u64,
    /// ACKs that acknowledged new data, over all flows.
    pub acks: u64,
    /// Visits to records of sent segments, over all flows.
    pub records_visited: u64,
}

pub use fullpipe_tcp::SendLimit;

impl FlowOutcome {
    /// Returns the share of the flow's lifetime for which `limit` stopped the sender, 0 to 1.
    pub fn share(&self, limit: SendLimit) -> f64 {
        share(&self.send_limit, limit)
    }

    /// Returns the share of the second half of the flow's lifetime for which `limit` stopped the sender, 0 to
    /// 1.
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
