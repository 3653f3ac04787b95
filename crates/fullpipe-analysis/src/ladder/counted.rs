//! Simulated figures of a path for different numbers of flows.

use fullpipe_lab::campaign::{JobWatch, RunPanicked};
use fullpipe_measurement::classify::Limit;
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use super::budget::Stop;
use super::given::{SEEDS, between_losses, effort};
use super::model::{Effort, Model};
use super::phrases::noun;
use super::prediction::Prediction;
use super::runs::simulated;
use super::walk::binding;
use crate::remedy::sndbuf_for;

/// Work of the runs for one number of flows, in data packets, as [`Model::most_work`] counts them. Without
/// loss, this work is one run of 2.4 million packets, which takes half a second on a core. With loss, the flows send
/// fewer packets than the estimate assumes.
const PACKETS: u64 = 12_000_000;
const PACKETS_WITH_LOSS: u64 = 40_000_000;
/// Number of flows over which the runs for one number of flows average, if [`SEEDS`] allows it: several flows lose as many
/// packets in one run as one flow in several.
const SAMPLES: u64 = 4;

/// Returns the effort for `flows` flows, which is one of about sixteen numbers. A run lasts at least sixty round trips.
/// Only its second half counts, because the flows need the first half to share the link.
pub(crate) fn effort_of_counts(rtt: Duration, loss: Probability, flows: u64) -> Effort {
    let packets = if loss.is_zero() { PACKETS } else { PACKETS_WITH_LOSS };
    Effort {
        seeds: SAMPLES.div_ceil(flows.max(1)).min(SEEDS),
        duration: (rtt * 60).max(Duration::from_secs(15)).max(between_losses(rtt, loss)),
        packets,
        packets_if_more: packets,
        most: 8 * PACKETS,
        ..effort(rtt, loss)
    }
}

/// Simulated figures for one number of flows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowCount {
    /// Number of flows.
    pub flows: u64,
    /// Payload rate of all flows together in steady state: key `steady_bps`.
    #[serde(rename = "steady_bps", with = "fullpipe_measurement::json::Bps")]
    pub steady: Rate,
    /// Lowest steady-state rate of a seed: key `low_bps`.
    #[serde(rename = "low_bps", with = "fullpipe_measurement::json::Bps")]
    pub low: Rate,
    /// Highest steady-state rate of a seed: key `high_bps`.
    #[serde(rename = "high_bps", with = "fullpipe_measurement::json::Bps")]
    pub high: Rate,
    /// Median RTT under load, in milliseconds; null if nothing was acknowledged.
    pub rtt_ms: Option<f64>,
    /// Memory that the kernel needs on each host for one of the flows, in bytes: the size of a send buffer
    /// that holds the flow's data in flight at its rate and the RTT under load, but at most `tcp_wmem[2]`.
    pub memory_bytes: u64,
    /// Limit of the flows.
    pub limit: Limit,
    /// Limit in plain words.
    pub what: String,
}

impl FlowCount {
    /// Returns the median RTT under load, if something was acknowledged.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt_ms.map(|millis| Duration::from_secs_f64(millis / 1e3))
    }

    /// Returns the memory that the kernel needs for one of the flows.
    pub fn memory(&self) -> Bytes {
        Bytes::new(self.memory_bytes)
    }
}

/// Simulates the present state of each model, on all cores. Abandoned runs have no figures.
pub(crate) fn counted(models: &[Model<'_>], watch: &dyn JobWatch) -> Result<Vec<FlowCount>, RunPanicked> {
    let jobs: Vec<_> = models.iter().map(|model| model.jobs(model.present())).collect();
    let Some(outcomes) = Stop::allow(simulated(&jobs.concat(), watch))? else { return Ok(Vec::new()) };
    let mut outcomes = outcomes.into_iter();
    let of = |(model, jobs): (&Model<'_>, &Vec<_>)| {
        let outcomes: Vec<_> = outcomes.by_ref().take(jobs.len()).collect();
        count(model, &Prediction::of(model, model.present(), &outcomes))
    };
    Ok(models.iter().zip(&jobs).map(of).collect())
}

fn count(model: &Model<'_>, predicted: &Prediction) -> FlowCount {
    let (state, flows) = (predicted.state, model.flows(predicted.state));
    let limit = binding(model, predicted);
    let in_flight = predicted.sustained.mul_div(1, flows) * predicted.p50.unwrap_or(model.path.rtt);
    let memory: Bytes = sndbuf_for(in_flight, 1).min(model.buffers(state).0);
    FlowCount {
        flows,
        steady: predicted.sustained,
        low: predicted.low,
        high: predicted.high,
        rtt_ms: predicted.p50.map(Duration::as_millis_f64),
        memory_bytes: memory.get(),
        limit,
        what: noun(model, limit, state),
    }
}
