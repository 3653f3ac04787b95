//! Simulated runs of the states, made as the walk needs them.

use std::num::NonZeroUsize;

use fullpipe_lab::campaign::{self, Job, JobWatch, Progress};
use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::scenario::FlowSpec;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Rate;

use super::budget::{Budget, Stop};
use super::model::Model;
use super::prediction::Prediction;
use crate::remedy::State;

/// Source of the figures of a state. Each method returns an error if a run panicked, or if the runs that it
/// needs exceed the budget.
pub(super) trait Predict {
    /// Returns the figures of each state from at least one run, to choose between them.
    fn tried(&mut self, states: &[State]) -> Result<Vec<Prediction>, Stop>;

    /// Returns the figures of a state from all of its runs, to show them.
    fn shown(&mut self, state: State) -> Result<Prediction, Stop>;

    /// Returns the steady-state rate of one CUBIC flow that shares the path and the settings of the hosts
    /// with the flows of a state.
    fn left_to_another(&mut self, state: State) -> Result<Rate, Stop>;
}

/// Simulates `jobs` on all cores.
pub(super) fn simulated(jobs: &[Job], watch: &dyn JobWatch) -> Result<Vec<Outcome>, Stop> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    campaign::simulate_jobs(threads, jobs, watch)?.ok_or(Stop::Abandoned)
}

/// Observer of the runs of one step, which adds the runs of earlier steps to the reported numbers.
struct After<'w> {
    runs: usize,
    watch: &'w dyn JobWatch,
}

impl JobWatch for After<'_> {
    fn finished(&self, Progress { done, total }: Progress) {
        self.watch.finished(Progress { done: self.runs + done, total: self.runs + total });
    }

    fn abandons(&self) -> bool {
        self.watch.abandons()
    }
}

/// Runs of the states made so far. No run of a state is made twice.
pub(super) struct Runs<'m, P> {
    model: &'m Model<'m>,
    budget: Budget,
    watch: P,
    /// Number of runs that are finished.
    done: usize,
    states: Vec<(State, Vec<Outcome>)>,
}

impl<'m, P: JobWatch> Runs<'m, P> {
    pub(super) fn new(model: &'m Model<'m>, budget: Budget, watch: P) -> Self {
        Self { model, budget, watch, done: 0, states: Vec::new() }
    }

    pub(super) fn model(&self) -> &'m Model<'m> {
        self.model
    }

    /// Returns the figures of every state that was simulated so far.
    pub(super) fn states(&self) -> impl Iterator<Item = Prediction> {
        self.states.iter().map(|(state, outcomes)| Prediction::of(self.model, *state, outcomes))
    }

    /// Makes the runs of `jobs` on all cores. The number of later runs is not known yet, so the total is the
    /// number of runs that were started.
    fn make(&mut self, jobs: &[Job]) -> Result<Vec<Outcome>, Stop> {
        self.budget.spend(jobs)?;
        let outcomes = simulated(jobs, &After { runs: self.done, watch: &self.watch })?;
        self.done += jobs.len();
        Ok(outcomes)
    }

    fn outcomes(&self, state: State) -> &[Outcome] {
        self.states.iter().find(|(of, _)| *of == state).map_or(&[], |(_, outcomes)| outcomes)
    }

    fn add(&mut self, state: State, more: impl Iterator<Item = Outcome>) {
        match self.states.iter_mut().find(|(of, _)| *of == state) {
            Some((_, outcomes)) => outcomes.extend(more),
            None => self.states.push((state, more.collect())),
        }
    }
}

impl<P: JobWatch> Predict for Runs<'_, P> {
    fn tried(&mut self, states: &[State]) -> Result<Vec<Prediction>, Stop> {
        let new: Vec<State> =
            states.iter().copied().filter(|state| self.outcomes(*state).is_empty()).collect();
        let jobs: Vec<Job> =
            new.iter().flat_map(|state| self.model.jobs(*state).into_iter().take(1)).collect();
        let outcomes = self.make(&jobs)?;
        for (state, outcome) in new.into_iter().zip(outcomes) {
            self.add(state, std::iter::once(outcome));
        }
        let of = |state: &State| Prediction::of(self.model, *state, self.outcomes(*state));
        Ok(states.iter().map(of).collect())
    }

    fn shown(&mut self, state: State) -> Result<Prediction, Stop> {
        let jobs = self.model.jobs(state);
        let rest = jobs.get(self.outcomes(state).len()..).unwrap_or_default();
        let outcomes = self.make(rest)?;
        self.add(state, outcomes.into_iter());
        Ok(Prediction::of(self.model, state, self.outcomes(state)))
    }

    fn left_to_another(&mut self, state: State) -> Result<Rate, Stop> {
        let model = self.model;
        let mut scenario = model.scenario(state, model.path.loss, model.first_seed());
        // The shares of the flows settle sooner than the figures of a rung, so half the duration is enough.
        scenario.duration = scenario.duration / 2;
        scenario.flows.push(FlowSpec::plain(Algorithm::Cubic));
        let outcomes = self.make(&[Job { label: "one more CUBIC flow".into(), scenario }])?;
        let other = outcomes.first().and_then(|outcome| outcome.flows.last());
        Ok(other.map_or(Rate::ZERO, |flow| flow.goodput_second_half))
    }
}
