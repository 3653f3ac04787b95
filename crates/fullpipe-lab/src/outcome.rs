//! What a run yields: the sums of its trace.

use std::fmt;

use fullpipe_path::Counters;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One entry a flow, in the order of the scenario.
    pub flows: Vec<FlowOutcome>,
    /// Counts of the data direction.
    pub path: PathOutcome,
    /// What it took to simulate.
    pub work: Work,
    /// Hash over the whole trace: equal for equal runs, on every machine and in every build.
    pub digest: u64,
}

/// What one flow achieved.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Its congestion control.
    pub cc: Algorithm,
    /// Payload the receiving application read.
    pub bytes: Bytes,
    /// `bytes` over the flow's lifetime, from its start to its last byte or the end of the run.
    pub goodput: Rate,
    /// The same over the second half of that lifetime.
    pub goodput_second_half: Rate,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// RTT as the sender's segments saw it; `None` when nothing was acknowledged.
    pub rtt: Option<RttOutcome>,
    /// Time spent in each state of the sender.
    pub send_limit: Vec<(SendLimit, Duration)>,
    /// The same over the second half of the flow's lifetime.
    pub send_limit_second_half: Vec<(SendLimit, Duration)>,
    /// Largest congestion window in bytes.
    pub max_cwnd: Bytes,
    /// How its data arrived at the receiving host, over its lifetime.
    pub wire: WireOutcome,
    /// The same over the second half.
    pub wire_second_half: WireOutcome,
    /// When the last byte was acknowledged, for a flow of limited size that finished.
    pub finished: Option<Instant>,
}

/// Round-trip times of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttOutcome {
    /// The smallest.
    pub min: Duration,
    /// The mean.
    pub mean: Duration,
    /// 95 % were at most this.
    pub p95: Duration,
}

/// How evenly payload arrived, repeated segments counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireOutcome {
    /// The highest rate over one sampling period (the distance between trace rows).
    pub peak: Rate,
    /// The mean rate.
    pub mean: Rate,
}

impl WireOutcome {
    /// Peak over mean; `None` where nothing arrived.
    pub fn burst(self) -> Option<f64> {
        let (peak, mean) = (self.peak.as_bps(), self.mean.as_bps());
        (mean > 0).then(|| peak as f64 / mean as f64)
    }
}

/// Packets of the data direction. In a document, counts from `aqm_drops` on are absent where they are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathOutcome {
    /// Data packets that crossed.
    pub delivered: u64,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub random_drops: u64,
    /// Packets that a policer dropped.
    pub policed: u64,
    /// Packets that the management of the queue dropped, although there was room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub aqm_drops: u64,
    /// Packets that were marked instead.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Copies that the path made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicated: u64,
    /// Packets that left behind later ones of their flow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reordered: u64,
    /// ACKs left out on their way back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub acks_thinned: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl PathOutcome {
    /// From what both directions have counted.
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

    /// Packets that were offered to the path, delivered or dropped.
    pub(crate) fn sent(self) -> u64 {
        let fates = self.delivered + self.queue_drops + self.random_drops + self.policed + self.aqm_drops;
        fates.saturating_sub(self.duplicated)
    }
}

/// What a run took the simulator: counts and no times, so the same on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets handed over, timers that came up and trace rows: the turns of the loop.
    pub events: u64,
    /// ACKs that delivered something, over all flows.
    pub acks: u64,
    /// Looks at records of sent segments, over all flows.
    pub records_visited: u64,
}

pub use fullpipe_tcp::SendLimit;

impl FlowOutcome {
    /// The share of its lifetime that the flow spent stopped by `limit`, 0 to 1.
    pub fn share(&self, limit: SendLimit) -> f64 {
        share(&self.send_limit, limit)
    }

    /// The same over the second half.
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
