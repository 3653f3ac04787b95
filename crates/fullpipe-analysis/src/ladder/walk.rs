//! Selects the rungs from the outcomes of the simulated states.

use fullpipe_lab::outcome::{FlowOutcome, Outcome};
use fullpipe_lab::scenario::Scenario;
use fullpipe_tcp::SendLimit;
use fullpipe_units::Rate;

use super::model::Model;
use super::rung::{Rung, Source};
use crate::advice;
use crate::classify::Limit;
use crate::remedy::{State, catalogue};
use crate::thresholds::{link, rate, time, window};

/// Simulated rates of one state.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    pub(super) state: State,
    /// Mean rate over the first half of the run.
    pub(super) rate: Rate,
    /// Mean rate over the second half of the run.
    pub(super) steady: Rate,
    /// Lowest and highest steady-state rate: at the two bounds of the loss interval or, if the loss is not an
    /// estimate, over the measurements that the seeds form.
    low: Rate,
    high: Rate,
    /// Share of the second half of the run for which each limit stopped the sender.
    shares: [f64; SendLimit::ALL.len()],
}

impl Prediction {
    /// Returns one of the runs at the estimated loss.
    pub(super) fn example(&self, model: &Model<'_>) -> Scenario {
        model.scenario(self.state, model.path.loss, model.first_seed())
    }
}

/// Returns the prediction for each state. `outcomes` must be in the order of [`Model::jobs`].
pub(super) fn predictions(model: &Model<'_>, states: &[State], outcomes: &[Outcome]) -> Vec<Prediction> {
    let (seeds, at_ends) = model.seeds();
    let runs = outcomes.chunks(model.runs_per_state());
    let predict = |(&state, outcomes): (&State, &[Outcome])| {
        let (at_loss, ends) = outcomes.split_at(seeds);
        let spread = if at_ends > 0 { ends.chunks(at_ends) } else { at_loss.chunks(model.together()) };
        let spread: Vec<Rate> = spread.map(steady).collect();
        let flows = at_loss.first().map_or(1, |outcome| outcome.flows.len().max(1)) as f64;
        let steady = steady(at_loss);
        // The rate of the first half is derived from the means of the whole run and of the second half.
        let whole = mean(at_loss, |flow| flow.goodput.as_bps() as f64);
        Prediction {
            state,
            rate: Rate::from_bps((2.0 * whole - steady.as_bps() as f64).max(0.0) as u64),
            steady,
            low: spread.iter().copied().fold(steady, Rate::min),
            high: spread.iter().copied().fold(steady, Rate::max),
            shares: SendLimit::ALL.map(|limit| mean(at_loss, |flow| flow.share_second_half(limit)) / flows),
        }
    };
    states.iter().zip(runs).map(predict).collect()
}

fn steady(outcomes: &[Outcome]) -> Rate {
    Rate::from_bps(mean(outcomes, |flow| flow.goodput_second_half.as_bps() as f64) as u64)
}

/// Returns the mean over all runs of a figure that is summed over the flows of each run.
fn mean(outcomes: &[Outcome], of: impl Fn(&FlowOutcome) -> f64) -> f64 {
    let sum: f64 = outcomes.iter().flat_map(|outcome| &outcome.flows).map(of).sum();
    sum / outcomes.len().max(1) as f64
}

/// Returns the rungs from the present state to the link, notes on the states that are not on the ladder, and
/// the state at the top. Without a measured first rung, the ladder starts at the simulated present state.
pub(super) fn walk(
    model: &Model<'_>,
    measured: Option<Rung>,
    predicted: &[Prediction],
) -> (Vec<Rung>, Vec<String>, State) {
    let now = model.present();
    let simulated = || {
        let present = predicted.iter().find(|p| p.state == now)?;
        Some(rung(model, None, binding(model, present), present))
    };
    let mut rungs = Vec::from_iter(measured.or_else(simulated));
    let (mut state, mut walked) = (now, vec![now]);
    while let Some(last) = rungs.last() {
        // A remedy that lowers the rate by itself is not a step, but all remedies together may be one.
        let all = model.all_changed();
        let better =
            |next: &&Prediction| next.steady.mul_div(rate::SETBACK.0, rate::SETBACK.1) >= last.lasting();
        let steps = next_states(state, last.limit).flat_map(|next| [next, all]);
        let mut possible = steps.filter_map(|next| predicted.iter().find(|p| p.state == next));
        let Some(next) = possible.find(better) else { break };
        rungs.push(rung(model, Some(state), binding(model, next), next));
        walked.push(next.state);
        state = next.state;
    }
    let others = predicted.iter().filter(|p| !walked.contains(&p.state));
    let notes = others.map(|other| {
        format!(
            "{} would leave it at {} in steady state (simulated): {}",
            advice::title(now, other.state),
            other.steady,
            noun(model, binding(model, other), other.state)
        )
    });
    let notes = notes.collect();
    rungs.push(last_rung(model));
    (rungs, notes, state)
}

/// Returns the prediction for the present state, if it was simulated.
pub(super) fn present<'p>(model: &Model<'_>, predicted: &'p [Prediction]) -> Option<&'p Prediction> {
    predicted.iter().find(|p| p.state == model.present())
}

/// Returns the states that add one more remedy for the present limit.
fn next_states(state: State, limit: Limit) -> impl Iterator<Item = State> {
    let lifting = catalogue::lifting(limit).filter(|remedy| remedy.is_of_ladder());
    lifting.map(move |remedy| state.with(remedy.change)).filter(move |next| *next != state)
}

/// Returns the limit of a simulated state.
///
/// The sender's own record shows what stopped each transmission. BBR is an exception, because it paces at the
/// rate that it measured under a window: if its rate is near the ceiling of a window or buffer, that is the
/// limit, not pacing.
fn binding(model: &Model<'_>, predicted: &Prediction) -> Limit {
    let Prediction { state, steady, shares, .. } = predicted;
    let fraction = |of: Rate| steady.as_bps() as f64 / of.as_bps().max(1) as f64;
    if fraction(model.ceiling()) >= link::FULL_SIMULATED {
        return if model.path.cap.is_some() { Limit::Cap } else { Limit::Link };
    }
    let share = |limit: SendLimit| shares[limit as usize];
    let (window, sndbuf) = model.ceilings(*state);
    let (held_by, ceiling, held) = if window <= sndbuf {
        (Limit::Rwnd, window, share(SendLimit::Rwnd))
    } else {
        (Limit::Sndbuf, sndbuf, share(SendLimit::Sndbuf))
    };
    let by_cwnd = share(SendLimit::Cwnd) + share(SendLimit::Recovery) + share(SendLimit::SlowStart);
    let paces = state.cc.is_rate_based();
    let stopped = held > time::HELD_SIMULATED.max(by_cwnd);
    if stopped || (paces && fraction(ceiling) >= window::FULL_SIMULATED) {
        held_by
    } else if paces {
        Limit::Pacing
    } else {
        Limit::Cwnd
    }
}

/// Returns a simulated rung, with the commands that lead to it from the state `before`.
fn rung(model: &Model<'_>, before: Option<State>, limit: Limit, predicted: &Prediction) -> Rung {
    Rung {
        limit,
        what: noun(model, limit, predicted.state),
        rate: predicted.rate,
        steady: Some(predicted.steady),
        low: Some(predicted.low),
        high: Some(predicted.high),
        source: Source::Simulated,
        only_if: None,
        remedy: before.map(|before| advice::title(before, predicted.state)),
        commands: before
            .map(|before| advice::commands(&model.case(), before, predicted.state))
            .unwrap_or_default(),
        scenario: Some(predicted.example(model)),
    }
}

pub(super) fn last_rung(model: &Model<'_>) -> Rung {
    let (limit, what, rate) = match (model.path.cap, model.path.link) {
        (Some(cap), _) => (
            Limit::Cap,
            format!("the cap near {cap} that one flow meets: find it, or use several flows"),
            cap,
        ),
        (None, Some(_)) => (Limit::Link, "the link, less headers".into(), model.ceiling()),
        (None, None) => {
            let seen = model.path.at_least;
            (Limit::Link, format!("link unknown, at least {seen}"), seen)
        }
    };
    Rung {
        limit,
        what,
        rate,
        steady: None,
        low: None,
        high: None,
        source: Source::Given,
        only_if: None,
        remedy: None,
        commands: Vec::new(),
        scenario: None,
    }
}

/// Returns the limit of a state as a noun phrase.
fn noun(model: &Model<'_>, limit: Limit, state: State) -> String {
    match limit {
        Limit::Rwnd => format!("a {} receive window", model.window(state)),
        Limit::Sndbuf => format!("a {} send buffer", model.buffers(state).0),
        Limit::Cwnd if model.path.loss.is_zero() => "the congestion window, which grows too slowly".into(),
        Limit::Cwnd => "loss, which holds cwnd down".into(),
        Limit::Pacing => "BBR's own pacing, which leaves room for its probes".into(),
        Limit::Cap | Limit::Policer => "the cap on one flow".into(),
        _ => "the link".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::model;
    use super::*;

    /// Builds the ladder of four states with these rates in Mbit/s, all limited by the congestion window.
    fn ladder(rates: [u64; 4]) -> (Vec<u64>, Vec<Option<String>>, usize, Vec<String>) {
        let model = model();
        let mut shares = [0.0; SendLimit::ALL.len()];
        shares[SendLimit::Cwnd as usize] = 1.0;
        let predicted = |(state, mbit): (State, u64)| {
            let rate = Rate::from_bps(mbit * 1_000_000);
            Prediction { state, rate, steady: rate, low: rate, high: rate, shares }
        };
        let predicted: Vec<_> = model.states().into_iter().zip(rates).map(predicted).collect();
        let (rungs, notes, _) = walk(&model, None, &predicted);
        let commands = rungs.iter().map(|rung| rung.commands.len()).sum();
        let (rates, remedies) =
            rungs.into_iter().map(|r| (r.lasting().as_bps() / 1_000_000, r.remedy)).unzip();
        (rates, remedies, commands, notes)
    }

    #[test]
    fn remedies_are_taken_one_at_a_time() {
        let (rates, remedies, commands, notes) = ladder([70, 80, 95, 800]);
        assert_eq!(rates, [70, 95, 800, 965]);
        assert_eq!(remedies[1].as_deref(), Some("BBR on the sender"));
        assert_eq!(remedies[2].as_deref(), Some("buffers for 2 x BDP on both hosts"));
        assert_eq!(commands, 3 + 2);
        assert!(
            notes[0].starts_with("buffers for 2 x BDP on both hosts would leave it at 80 Mbit/s"),
            "{notes:?}"
        );
    }

    #[test]
    fn a_remedy_that_alone_makes_it_worse_is_taken_with_the_other() {
        let (rates, remedies, commands, notes) = ladder([95, 120, 80, 800]);
        assert_eq!(rates, [95, 800, 965]);
        assert_eq!(remedies[1].as_deref(), Some("BBR on the sender and buffers for 2 x BDP on both hosts"));
        assert_eq!(commands, 3 + 2);
        assert!(
            notes.iter().any(|note| note.starts_with("BBR on the sender would leave it at 80")),
            "{notes:?}"
        );
        let (rates, _, commands, _) = ladder([95, 90, 80, 70]);
        assert_eq!((rates, commands), (vec![95, 965], 0), "nothing that helps is known");
    }
}
