//! Rates, limits and round-trip times of one simulated state.

use fullpipe_lab::outcome::{FlowOutcome, Outcome};
use fullpipe_lab::scenario::Scenario;
use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};

use super::model::Model;
use crate::remedy::State;

/// Simulated figures of one state.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    pub(super) state: State,
    /// Mean rate over the first half of the run.
    pub(super) rate: Rate,
    /// Mean rate over the second half of the run.
    pub(super) steady: Rate,
    /// Steady-state rate by which states are compared. If all runs of a state are alike, the second half of a
    /// run is a few periods of a sawtooth, and it is random whether a period with several losses is among
    /// them. In this case, the rate of the faster half is used.
    pub(super) sustained: Rate,
    /// Lowest and highest steady-state rate: at the two bounds of the loss interval or, if the loss is not an
    /// estimate, over the measurements that the seeds form.
    pub(super) low: Rate,
    pub(super) high: Rate,
    /// Median and 95th percentile of the RTT under load; `None` if nothing was acknowledged.
    pub(super) p50: Option<Duration>,
    pub(super) p95: Option<Duration>,
    /// Share of the second half of the run for which each limit stopped the sender.
    pub(super) shares: [f64; SendLimit::ALL.len()],
}

impl Prediction {
    /// Returns the figures of a state. `outcomes` are the outcomes of its first run or of all its runs, in
    /// the order of [`Model::jobs`].
    pub(super) fn of(model: &Model<'_>, state: State, outcomes: &[Outcome]) -> Self {
        let (seeds, at_ends) = model.seeds();
        let (at_loss, ends) = outcomes.split_at(seeds.min(outcomes.len()));
        let spread = if at_ends > 0 && !ends.is_empty() {
            ends.chunks(at_ends)
        } else {
            at_loss.chunks(model.together())
        };
        let spread: Vec<Rate> = spread.map(steady).collect();
        let flows = at_loss.first().map_or(1, |outcome| outcome.flows.len().max(1)) as f64;
        let steady = steady(at_loss);
        // The rate of the first half is derived from the means of the whole run and of the second half.
        let whole = mean(at_loss, |flow| flow.goodput.as_bps() as f64);
        let rate = Rate::from_bps((2.0 * whole - steady.as_bps() as f64).max(0.0) as u64);
        Self {
            state,
            rate,
            steady,
            sustained: if model.repeats_itself() { steady.max(rate) } else { steady },
            low: spread.iter().copied().fold(steady, Rate::min),
            high: spread.iter().copied().fold(steady, Rate::max),
            p50: rtt(at_loss, |flow| flow.rtt.map(|rtt| rtt.p50)),
            p95: rtt(at_loss, |flow| flow.rtt.map(|rtt| rtt.p95)),
            shares: SendLimit::ALL.map(|limit| mean(at_loss, |flow| flow.share_second_half(limit)) / flows),
        }
    }

    /// Returns one of the runs at the estimated loss.
    pub(super) fn example(&self, model: &Model<'_>) -> Scenario {
        model.scenario(self.state, model.path.loss, model.first_seed())
    }
}

fn steady(outcomes: &[Outcome]) -> Rate {
    Rate::from_bps(mean(outcomes, |flow| flow.goodput_second_half.as_bps() as f64) as u64)
}

/// Sums a figure over the flows of each run, and returns the mean of the sums over all runs.
fn mean(outcomes: &[Outcome], of: impl Fn(&FlowOutcome) -> f64) -> f64 {
    let sum: f64 = outcomes.iter().flat_map(|outcome| &outcome.flows).map(of).sum();
    sum / outcomes.len().max(1) as f64
}

/// Returns the mean round-trip time over all flows of all runs; `None` if no flow has one.
fn rtt(outcomes: &[Outcome], of: impl Fn(&FlowOutcome) -> Option<Duration>) -> Option<Duration> {
    let times: Vec<u64> =
        outcomes.iter().flat_map(|outcome| &outcome.flows).filter_map(of).map(Duration::as_nanos).collect();
    let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
    let count = times.len() as u128;
    (count > 0).then(|| Duration::from_nanos((sum / count) as u64))
}
