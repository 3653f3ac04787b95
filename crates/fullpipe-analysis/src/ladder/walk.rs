//! Walks from the present state to the link: names the limit, takes the first remedy that lifts it, and names
//! the next limit.
//!
//! ```text
//!   limit ──► steps that lift it, in their fixed order ──► first with a gain ──► next rung
//!                └─ none gains alone ──► pairs of steps ──────────┘
//! ```

mod connections;

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::thresholds::{link, queue, rate, time, window};
use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};

use super::budget::Stop;
use super::model::Model;
use super::phrases::{last_rung, noun};
use super::prediction::Prediction;
use super::rung::{Rung, RungRemedies, RungRtt, Source};
use super::runs::Predict;
use crate::advice;
use crate::remedy::{
    BUFFER_SIZES, Change, MANAGED_QUEUE, MANY_CONNECTIONS, Order, State, Step, Transition, catalogue,
};

/// Maximum number of steps of a walk. The steps of the ladder change at most seven values, so a walk normally
/// ends earlier.
const MOST_STEPS: usize = 8;

/// Result of a walk.
pub(super) struct Walk {
    /// Rungs from the present state to the link.
    pub(super) rungs: Vec<Rung>,
    /// Notes on states that are not on the ladder, and on a limit that no remedy lifts.
    pub(super) notes: Vec<String>,
    /// State after the last remedy of the ladder.
    pub(super) reached: State,
}

/// Builds the rungs from the present state to the link. Without a measured first rung, the ladder starts at
/// the simulated present state. If the budget of the runs is spent, the walk ends with the rungs so far and
/// the link, and adds a note. There are no rungs if the budget does not suffice for the first one.
pub(super) fn walk(
    model: &Model<'_>,
    measured: Option<Rung>,
    runs: &mut dyn Predict,
) -> Result<Walk, RunPanicked> {
    let now = model.present();
    let mut walker = Walker { model, runs, notes: Vec::new(), walked: vec![now], state: now };
    let mut rungs = Vec::new();
    if Stop::allow(walker.climb(measured, &mut rungs))?.is_none() {
        walker.notes.push(model.over_budget());
    }
    let Walker { notes, state, .. } = walker;
    if !rungs.is_empty() {
        rungs.push(last_rung(model, state));
    }
    Ok(Walk { rungs, notes, reached: state })
}

struct Walker<'a, 'm> {
    model: &'a Model<'m>,
    runs: &'a mut dyn Predict,
    notes: Vec<String>,
    /// States on the ladder.
    walked: Vec<State>,
    state: State,
}

impl Walker<'_, '_> {
    fn climb(&mut self, measured: Option<Rung>, rungs: &mut Vec<Rung>) -> Result<(), Stop> {
        rungs.push(match measured {
            Some(rung) => rung,
            None => {
                let present = self.runs.shown(self.state)?;
                self.rung(None, &present)?
            }
        });
        let first = rungs[0].limit;
        while let Some(last) = rungs.last().filter(|_| rungs.len() <= MOST_STEPS) {
            let Some(next) = self.next(last.limit, last.lasting())? else { break };
            let shown = self.runs.shown(next)?;
            // This remedy was chosen from fewer runs, whereas the rate of the previous rung is a
            // measurement or the mean of all runs. The new rung is therefore compared with the previous one
            // again.
            if shown.sustained.mul_div(rate::SETBACK.0, rate::SETBACK.1) < last.lasting() {
                break;
            }
            let before = self.state;
            rungs.push(self.rung(Some(before), &shown)?);
            self.walked.push(next);
            self.state = next;
            if next.connections != before.connections {
                self.note_the_share(before, next)?;
            }
        }
        if let Some(shorter) = self.shorten_the_queue(rungs.last())? {
            rungs.push(shorter);
        }
        self.note_the_end(rungs.last());
        self.note_what_else(first)
    }

    /// Returns the state after the first remedy, or else the first pair of remedies, that lifts `limit` with
    /// a gain; `None` if there is none. The last rung has the rate `reached`.
    fn next(&mut self, limit: Limit, reached: Rate) -> Result<Option<State>, Stop> {
        let offered: Vec<_> =
            catalogue::steps().into_iter().filter(|(_, step)| self.model.offers(step)).collect();
        let possible = |change: &Change| self.model.can_make(self.state, *change);
        let lifts = |step: &Step| step.lifts.contains(&limit) && step.sizes.iter().any(possible);
        let lifting: Vec<_> = offered.iter().copied().filter(|(_, step)| lifts(step)).collect();
        let worth_it =
            |next: &Prediction| next.sustained.mul_div(rate::SETBACK.0, rate::SETBACK.1) >= reached;
        // If the application sets the limit, the next rung is the rate of the hosts without that limit, even
        // if this rate is not higher.
        if let Some((_, step)) = lifting.iter().find(|(_, step)| step.sizes == [Change::UnlimitedRate]) {
            let next = self.state.with(step.sizes[0]);
            let next = self.tried(next)?;
            return Ok(Some(next.state).filter(|_| worth_it(&next)));
        }
        if lifting.is_empty() {
            return Ok(None);
        }
        let base = self.tried(self.state)?;
        for (_, step) in &lifting {
            let next = self.strongest(limit, &base, step)?;
            if let Some(next) = next.filter(|next| gains(&base, next) && worth_it(next)) {
                return Ok(Some(next.state));
            }
        }
        for (remedy, step) in &lifting {
            for (other, second) in &offered {
                if remedy.name == other.name || second.order == Order::Application {
                    continue;
                }
                // Apply the remedy that has no sizes first, then choose the size of the buffers or the number
                // of connections.
                let (first, sized) = if step.sizes.len() > 1 { (second, step) } else { (step, second) };
                let first = first.sizes[first.sizes.len() / 2];
                if !self.model.can_make(self.state, first) {
                    continue;
                }
                let middle = self.tried(self.model.after(self.state, first))?;
                let next = self.strongest(limit, &middle, sized)?;
                let next = next.filter(|next| gains(&base, next) && gains(&middle, next) && worth_it(next));
                if let Some(next) = next {
                    return Ok(Some(next.state));
                }
            }
        }
        Ok(None)
    }

    /// Returns the figures for the largest size of `step` that still gained enough over the previous size;
    /// `None` if no size gains anything. A size beyond one BDP that mainly lengthens the queue is not chosen,
    /// but noted.
    fn strongest(
        &mut self,
        limit: Limit,
        base: &Prediction,
        step: &Step,
    ) -> Result<Option<Prediction>, Stop> {
        let possible = |change: &&Change| self.model.can_make(base.state, **change);
        let states: Vec<State> =
            step.sizes.iter().filter(possible).map(|change| self.model.after(base.state, *change)).collect();
        if matches!(step.sizes, [Change::Connections(_), ..]) {
            return self.enough_connections(limit, base, &states);
        }
        let ceiling = self.model.ceiling_of(base.state);
        let worth = ceiling.mul_div(rate::DOUBLING.0, rate::DOUBLING.1);
        let worth_it = |from: &Prediction, next: &Prediction| {
            next.sustained >= Rate::from_bps(from.sustained.as_bps().saturating_add(worth.as_bps()))
                || (is_full(next.sustained, ceiling) && !is_full(from.sustained, ceiling))
        };
        // A step that was taken before has already reached its largest useful size.
        let is_new =
            step.sizes.iter().all(|change| base.state.without(*change, self.model.present()) == base.state);
        let (mut best, mut first): (Option<Prediction>, Option<Prediction>) = (None, None);
        // Try two sizes at a time, because the second one shows whether the first one is enough.
        'sizes: for two in states.chunks(2) {
            for next in self.runs.tried(two)? {
                let from = best.as_ref().unwrap_or(base);
                let by_window = matches!(step.sizes, [Change::Buffers { .. }, ..])
                    || matches!(limit, Limit::Rwnd | Limit::Sndbuf);
                let queues = by_window && self.only_queues(from, &next);
                if first.is_none() && is_new && gains(base, &next) && !queues {
                    first = Some(next.clone());
                }
                if !worth_it(from, &next) {
                    // The required gain applies to a doubling, so the search continues after a size that is
                    // less than twice the previous one.
                    if self.usable(next.state) < self.usable(from.state).mul_div(2, 1) && step.sizes.len() > 1
                    {
                        continue;
                    }
                    break 'sizes;
                }
                if queues {
                    if base.state == self.state {
                        self.note_the_queue(from, &next);
                    }
                    break 'sizes;
                }
                best = Some(next);
            }
        }
        // If no size gains the required share of the bottleneck's rate, take the first one that gains
        // anything: the bottleneck's rate may be far above the present rate.
        Ok(best.or(first))
    }

    /// Returns whether a size increases the RTT under load by too much. A size up to one BDP is never
    /// refused, because a smaller window cannot fill the link. Only two thirds of a send buffer count,
    /// because only this share is certain to be in flight.
    fn only_queues(&self, from: &Prediction, next: &Prediction) -> bool {
        let (window, sndbuf) = self.model.ceilings(from.state);
        let one_bdp = window.min(sndbuf.mul_div(2, 3)) >= self.model.ceiling_of(from.state);
        let (times, of) = queue::LENGTHENED;
        let longer = |(from, next): (Duration, Duration)| next > from.mul_div(times, of);
        // Whatever the buffers, the start of a run fills the queue once, which raises the 95th percentile. A
        // standing queue also raises the median.
        let stands = |(from, next): (Duration, Duration)| next > from.mul_div(rate::WORTH.0, rate::WORTH.1);
        one_bdp && from.p95.zip(next.p95).is_some_and(longer) && from.p50.zip(next.p50).is_some_and(stands)
    }

    /// Returns the rate that the windows of a state allow.
    fn usable(&self, state: State) -> Rate {
        let (window, sndbuf) = self.model.ceilings(state);
        window.min(sndbuf)
    }

    fn tried(&mut self, state: State) -> Result<Prediction, Stop> {
        // `Runs::tried` returns one prediction per state.
        Ok(self.runs.tried(&[state])?.remove(0))
    }

    /// Returns a simulated rung, with the commands that lead to it from the state `before`.
    fn rung(&mut self, before: Option<State>, predicted: &Prediction) -> Result<Rung, Stop> {
        let (model, state) = (self.model, predicted.state);
        let limit = self.limit(predicted)?;
        let remedies = before.map(|before| {
            let step = Transition { before, after: state, buffers: model.buffers(state) };
            advice::applied(&model.case(), &step)
        });
        Ok(Rung {
            steady: Some(predicted.steady),
            low: Some(predicted.low),
            high: Some(predicted.high),
            rtt: Some(RungRtt::new(model.path.rtt, predicted.p50, predicted.p95)),
            remedies: RungRemedies(remedies.unwrap_or_default()),
            scenario: Some(predicted.example(model)),
            ..Rung::new(limit, noun(model, limit, state), predicted.rate, Source::Simulated)
        })
    }

    /// Returns the limit of a simulated state. BBR's pacing is the limit only if doubling the buffers gains
    /// nothing: under loss, data behind a hole in the sequence fills even a window that would be large enough
    /// without loss.
    fn limit(&mut self, predicted: &Prediction) -> Result<Limit, Stop> {
        let limit = binding(self.model, predicted);
        // Without loss, only a receive window or a buffer can keep the congestion window from growing.
        let unclear = limit == Limit::Pacing || (limit == Limit::Cwnd && self.model.path.loss.is_zero());
        if !unclear {
            return Ok(limit);
        }
        let state = predicted.state;
        let twice = self.usable(state).mul_div(2, 1);
        let larger =
            BUFFER_SIZES.iter().map(|change| state.with(*change)).find(|next| self.usable(*next) >= twice);
        let Some(larger) = larger.filter(|_| self.model.path.link.is_some()) else { return Ok(limit) };
        let tried = self.runs.tried(&[state, larger])?;
        Ok(if gains(&tried[0], &tried[1]) { window_or_buffer(self.model, state).0 } else { limit })
    }

    fn title(&self, before: State, after: State) -> String {
        advice::title(before, after, self.model.buffers(after))
    }

    fn note_the_queue(&mut self, from: &Prediction, next: &Prediction) {
        let (Some(before), Some(after)) = (from.p95, next.p95) else { return };
        let note = format!(
            "not chosen: {} would reach {} instead of {}, but would raise the RTT (95th percentile) from \
             {before} to {after}",
            self.title(self.model.present(), next.state),
            next.steady,
            from.steady
        );
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns the rung with a managed queue at the bottleneck, if the size of the bottleneck queue is known,
    /// there is a standing queue, and a managed queue is shorter at the same rate.
    fn shorten_the_queue(&mut self, last: Option<&Rung>) -> Result<Option<Rung>, Stop> {
        let known = self.model.path.queue.is_some();
        let is_full = last.is_some_and(|last| last.limit == Limit::Link) && self.model.path.link.is_some();
        if !known || !is_full || !self.model.can_make(self.state, MANAGED_QUEUE) {
            return Ok(None);
        }
        let before = self.state;
        let tried = self.runs.tried(&[before, before.with(MANAGED_QUEUE)])?;
        let idle = self.model.path.rtt.as_nanos() as f64;
        let stands = |p50: Duration| p50.as_nanos() as f64 >= queue::STANDS * idle;
        let (times, of) = queue::LENGTHENED;
        let shorter = |(now, then): (Duration, Duration)| now > then.mul_div(times, of);
        let same = tried[1].sustained.mul_div(rate::SETBACK.0, rate::SETBACK.1) >= tried[0].sustained;
        if !tried[0].p50.is_some_and(stands) || !tried[0].p95.zip(tried[1].p95).is_some_and(shorter) || !same
        {
            return Ok(None);
        }
        let after = tried[1].state;
        let shown = self.runs.shown(after)?;
        let rung = self.rung(Some(before), &shown)?;
        self.walked.push(after);
        self.state = after;
        Ok(Some(rung))
    }

    /// Notes the limit that no remedy lifts, if the ladder ends below the link.
    fn note_the_end(&mut self, last: Option<&Rung>) {
        let Some(last) = last.filter(|last| last.source == Source::Simulated) else { return };
        let (rate, ceiling) = (last.lasting(), self.model.ceiling_of(self.state));
        let known = self.model.path.link.is_some();
        let is_full = matches!(last.limit, Limit::Link | Limit::Cap | Limit::Policer);
        if known && !is_full {
            let share = 100.0 * rate.as_bps() as f64 / ceiling.as_bps().max(1) as f64;
            self.notes.push(format!(
                "the ladder ends at {share:.0} % of the link, because no simulated remedy, alone or with \
                 another one, raises the rate by 5 % or more; the remaining limit is {}",
                last.what
            ));
        }
    }

    /// Simulates each remedy by itself, whether or not it is on the ladder, and notes the rate that it would
    /// reach.
    fn note_what_else(&mut self, first: Limit) -> Result<(), Stop> {
        let (now, reached) = (self.model.present(), self.state);
        if !remedies_matter(first) {
            return Ok(());
        }
        for Variant { taken, alone, .. } in variants(self.model, first, reached) {
            if !self.walked.contains(&alone) {
                let alone = if taken { self.runs.shown(alone)? } else { self.tried(alone)? };
                let limit = self.limit(&alone)?;
                self.notes.push(format!(
                    "{} alone would reach {} in steady state (simulated); the limit would be {}",
                    self.title(now, alone.state),
                    alone.steady,
                    noun(self.model, limit, alone.state)
                ));
            }
        }
        // The rate of several connections is noted at the end, because many users try several connections
        // first.
        let many = now.with(MANY_CONNECTIONS);
        if reached.connections.is_none() && self.model.can_make(now, MANY_CONNECTIONS) {
            let tried = self.tried(many)?;
            let limit = self.limit(&tried)?;
            self.notes.push(format!(
                "{} instead of these remedies would reach {} in steady state (simulated); the limit would be {}",
                self.title(now, many),
                tried.steady,
                noun(self.model, limit, many)
            ));
            self.note_the_share(now, many)?;
        }
        Ok(())
    }
}

/// Effect of one remedy, with and without the other remedies of the ladder.
pub(super) struct Variant {
    /// Whether the ladder contains the remedy.
    taken: bool,
    /// Present state with this remedy alone.
    alone: State,
    /// Last state of the ladder without the remedy or, if the ladder does not contain it, with it.
    pub(super) others: State,
}

/// Returns the effect of each remedy, once alone and once together with the other remedies, for a ladder from
/// the limit `first` to the state `reached`. Several connections, the application's own rate limit, and
/// remedies without an effect here are left out.
pub(super) fn variants(model: &Model<'_>, first: Limit, reached: State) -> Vec<Variant> {
    let now = model.present();
    let of = |change: Change| {
        let taken = reached.without(change, now) != reached;
        let (alone, others) = match taken {
            true => (now.without(change, reached), reached.without(change, now)),
            false => (now.with(change), reached.with(change)),
        };
        (taken || model.can_make(now, change)).then_some(Variant { taken, alone, others })
    };
    let remedies = catalogue::of_ladder().filter(|remedy| !remedy.steps().is_empty());
    let changes = remedies.map(|remedy| remedy.change).filter(|change| {
        remedies_matter(first) && !matches!(change, Change::Connections(_) | Change::UnlimitedRate)
    });
    changes.filter_map(of).collect()
}

/// Returns whether the rates of other remedies are meaningful for a transfer with this present limit.
const fn remedies_matter(first: Limit) -> bool {
    !matches!(first, Limit::Link | Limit::App | Limit::ReceiverApp | Limit::Cpu | Limit::Unknown)
}

/// Returns whether the rate of `next` is worth a change. Each rate is the mean over the runs of its state
/// that were made so far.
fn gains(base: &Prediction, next: &Prediction) -> bool {
    next.sustained > base.sustained.mul_div(rate::WORTH.0, rate::WORTH.1)
}

/// Returns whether a simulated rate fills a bottleneck whose payload rate is `ceiling`.
fn is_full(rate: Rate, ceiling: Rate) -> bool {
    rate.as_bps() as f64 >= link::FULL_SIMULATED * ceiling.as_bps() as f64
}

/// Returns the limit of a simulated state according to its own figures.
///
/// The sender's own record shows what stopped each transmission. BBR is an exception, because it paces at the
/// rate that it measured while a window or buffer limited it. If its rate is near the rate that the window or
/// buffer allows, the limit is that window or buffer, not pacing.
pub(super) fn binding(model: &Model<'_>, predicted: &Prediction) -> Limit {
    let Prediction { state, steady, sustained, shares, .. } = predicted;
    let fraction = |of: Rate| steady.as_bps() as f64 / of.as_bps().max(1) as f64;
    if is_full(*sustained, model.ceiling_of(*state)) {
        return if model.is_capped(*state) { Limit::Cap } else { Limit::Link };
    }
    let share = |limit: SendLimit| shares[limit as usize];
    let (held_by, ceiling) = window_or_buffer(model, *state);
    let held = share(if held_by == Limit::Rwnd { SendLimit::Rwnd } else { SendLimit::Sndbuf });
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

/// Returns the receive window or the send buffer, whichever allows the lower rate, together with
/// that rate.
fn window_or_buffer(model: &Model<'_>, state: State) -> (Limit, Rate) {
    let (window, sndbuf) = model.ceilings(state);
    if window <= sndbuf { (Limit::Rwnd, window) } else { (Limit::Sndbuf, sndbuf) }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::model;
    use super::*;

    /// States with given rates in Mbit/s. Every window and buffer has room, and no state is simulated.
    struct Given<F> {
        rate: F,
        /// Rate of several seeds, if it differs from the rate of one seed.
        mean: Option<fn(State) -> u64>,
        /// 95th percentile of the RTT in milliseconds.
        p95: fn(State) -> u64,
        limit: SendLimit,
        tried: Vec<State>,
        /// Number of predictions after which the budget is spent.
        budget: usize,
    }

    impl<F: Fn(State) -> u64> Predict for Given<F> {
        fn tried(&mut self, states: &[State]) -> Result<Vec<Prediction>, Stop> {
            if self.tried.len() + states.len() > self.budget {
                return Err(Stop::OverBudget);
            }
            let predict = |&state: &State| {
                let rate = Rate::from_bps((self.rate)(state) * 1_000_000);
                let mut shares = [0.0; SendLimit::ALL.len()];
                shares[self.limit as usize] = 1.0;
                let rtt = Some(Duration::from_millis((self.p95)(state)));
                let (steady, sustained, low, high) = (rate, rate, rate, rate);
                Prediction { state, rate, steady, sustained, low, high, p50: rtt, p95: rtt, shares }
            };
            self.tried.extend(states);
            Ok(states.iter().map(predict).collect())
        }

        fn shown(&mut self, state: State) -> Result<Prediction, Stop> {
            let mut shown = self.tried(&[state])?.remove(0);
            if let Some(mean) = self.mean {
                shown.sustained = Rate::from_bps(mean(state) * 1_000_000);
            }
            Ok(shown)
        }

        fn left_to_another(&mut self, state: State) -> Result<Rate, Stop> {
            Ok(Rate::from_bps(100_000_000 / state.connections.unwrap_or(1)))
        }
    }

    fn given<F: Fn(State) -> u64>(rate: F) -> Given<F> {
        Given {
            rate,
            mean: None,
            p95: |_| 210,
            limit: SendLimit::Cwnd,
            tried: Vec::new(),
            budget: usize::MAX,
        }
    }

    struct Shown {
        rates: Vec<u64>,
        remedies: Vec<String>,
        commands: usize,
        notes: Vec<String>,
        reached: State,
    }

    fn climbed<F: Fn(State) -> u64>(mut given: Given<F>) -> Shown {
        let Walk { rungs, notes, reached } = walk(&model(), None, &mut given).expect("no run is made");
        Shown {
            rates: rungs.iter().map(|rung| rung.lasting().as_bps() / 1_000_000).collect(),
            remedies: rungs.iter().filter_map(|rung| rung.remedies.title()).collect(),
            commands: rungs.iter().map(|rung| rung.remedies.commands().count()).sum(),
            notes,
            reached,
        }
    }

    /// Rates of the present state, of larger buffers, of BBR, and of both; several connections gain nothing.
    fn four(rates: [u64; 4]) -> Shown {
        climbed(given(move |state| {
            rates[usize::from(state.cc.is_rate_based()) * 2 + usize::from(state.rcvbuf.is_some())]
        }))
    }

    #[track_caller]
    fn starts(texts: &[String], beginnings: &[&str]) {
        assert_eq!(texts.len(), beginnings.len(), "{texts:?}");
        assert!(texts.iter().zip(beginnings).all(|(text, begins)| text.starts_with(begins)), "{texts:?}");
    }

    #[test]
    fn remedies_are_taken_one_at_a_time() {
        let shown = four([70, 80, 95, 960]);
        assert_eq!(shown.rates, [70, 95, 960, 965]);
        starts(
            &shown.remedies,
            &["BBR on the sender", "buffers for 1 x BDP on both hosts (49.1 MiB to send and"],
        );
        assert_eq!(shown.commands, 3 + 2);
        let alone = "buffers for 1 x BDP on both hosts (49.1 MiB to send and 40.1 MiB to receive per \
                     connection) alone would reach 80 Mbit/s";
        assert!(shown.notes.iter().any(|note| note.starts_with(alone)), "{:?}", shown.notes);
    }

    /// If every remedy alone gains nothing or lowers the rate, pairs of remedies are tried.
    #[test]
    fn pairs_are_tried_where_nothing_alone_gains() {
        for alone in [80, 95] {
            let shown = four([95, 95, alone, 960]);
            assert_eq!(shown.rates, [95, 960, 965]);
            starts(&shown.remedies, &["BBR on the sender and buffers for 1 x BDP on both hosts"]);
            assert_eq!(shown.commands, 3 + 2);
            let note = format!("BBR on the sender alone would reach {alone}");
            assert!(shown.notes.iter().any(|text| text.starts_with(&note)), "{:?}", shown.notes);
        }
        let shown = four([95, 90, 80, 70]);
        assert_eq!((shown.rates, shown.commands), (vec![95, 965], 0), "nothing that helps is known");
        let end = "the ladder ends at 10 % of the link, because no simulated remedy, alone or with another \
                   one, raises the rate by 5 % or more; the remaining limit is loss, which holds cwnd down";
        assert!(shown.notes.iter().any(|note| note == end), "{:?}", shown.notes);
    }

    /// Several connections are tried last. If nothing else lifts the limit, they are a rung, and a note
    /// states what they take from another flow.
    #[test]
    fn connections_are_a_rung_where_nothing_else_helps() {
        let shown = climbed(given(|state| 95 * state.connections.unwrap_or(1)));
        assert_eq!(shown.rates, [95, 950, 965]);
        starts(&shown.remedies, &["10 connections"]);
        let share = "10 connections leave 10 Mbit/s for one CUBIC flow with the same RTT and buffers on \
                     this path; one connection leaves 100 Mbit/s for that flow (simulated)";
        assert!(shown.notes.iter().any(|note| note == share), "{:?}", shown.notes);
        // The smallest number of connections that is sufficient is chosen.
        let shown = climbed(given(|state| (95 * state.connections.unwrap_or(1)).min(380)));
        assert_eq!(shown.reached.connections, Some(4));
        // If the link is not full, more connections must gain at least 1 %.
        let shown = climbed(given(|state| match state.connections.unwrap_or(1) {
            1 => 800,
            2 => 880,
            4 => 895,
            _ => 900,
        }));
        assert_eq!(shown.reached.connections, Some(4), "10 connections gain less than 1 %");
        // If the difference is small, a single seed is misleading.
        let misled = given(|state| [800, 880, 880, 880][state.connections.unwrap_or(1).ilog2() as usize]);
        let mean = |state: State| [800, 880, 895, 897][state.connections.unwrap_or(1).ilog2() as usize];
        let shown = climbed(Given { mean: Some(mean), ..misled });
        assert_eq!(shown.reached.connections, Some(4), "all seeds show that 4 connections gain 1.7 %");
        // Under loss, many connections stay far below the link rate.
        let shown = climbed(given(|state| 5 * state.connections.unwrap_or(1)));
        assert_eq!(shown.reached.connections, Some(10));
        // If another remedy helps, a note states the rate of several connections.
        let shown = climbed(given(|state| if state.cc.is_rate_based() { 960 } else { 95 }));
        assert_eq!(shown.reached.connections, None);
        assert!(
            shown
                .notes
                .iter()
                .any(|note| note.starts_with("10 connections instead of these remedies would reach 95")),
            "{:?}",
            shown.notes
        );
    }

    /// BBR pauses to measure the RTT, and on a long path these pauses cost more than 5 % of the link. A second
    /// connection uses them, and is the last rung before the link.
    #[test]
    fn a_second_connection_uses_the_pauses_of_bbr() {
        let rate = |paused: u64| {
            move |state: State| match (state.cc.is_rate_based(), state.rcvbuf.is_some()) {
                (true, true) if state.connections.is_some() => 940,
                (true, true) => paused,
                (true, false) => 95,
                _ => 70,
            }
        };
        let shown = climbed(given(rate(850)));
        assert_eq!(shown.rates, [70, 95, 850, 940, 965]);
        assert_eq!(
            (shown.remedies.last().map(String::as_str), shown.reached.connections),
            (Some("2 connections"), Some(2))
        );
        let shown = climbed(given(rate(910)));
        assert_eq!((shown.rates, shown.reached.connections), (vec![70, 95, 910, 965], None), "less than 5 %");
    }

    /// BBR behind windows that grow with the buffers, up to 8 BDP.
    fn window(state: State, most: u64) -> u64 {
        let bdps = state.rcvbuf.unwrap_or(0).min(most);
        if state.cc.is_rate_based() { 90 + 100 * bdps } else { 70 }
    }

    /// Under loss, a window of one BDP is not enough. The sizes double until doubling gains less than a
    /// twentieth of the link rate. The buffers limit a pacing sender as long as doubling them gains anything.
    #[test]
    fn buffers_double_until_that_gains_nothing() {
        let shown = climbed(given(|state| window(state, 8)));
        assert_eq!((shown.reached.sndbuf, shown.reached.rcvbuf), (Some(8), Some(8)));
        assert_eq!(shown.rates, [70, 90, 890, 965]);
        let last = "the remaining limit is BBR's pacing, which leaves room for its probes";
        assert!(shown.notes.iter().any(|note| note.ends_with(last)), "{:?}", shown.notes);
        assert_eq!(climbed(given(|state| window(state, 2))).reached.rcvbuf, Some(2));
    }

    /// A size beyond one BDP that lengthens the RTT under load by more than a fifth is not chosen, and a note
    /// shows its rate and RTT. Up to one BDP there is no other way to fill the link.
    #[test]
    fn a_size_that_only_lengthens_the_queue_is_not_chosen() {
        let p95 = |state: State| 210 + 50 * state.rcvbuf.unwrap_or(0);
        let shown = climbed(Given { p95, ..given(|state| window(state, 8)) });
        assert_eq!(
            shown.reached.rcvbuf,
            Some(2),
            "310 ms is 19 % more than 260 ms, and 410 ms 32 % more than 310 ms"
        );
        let note = "would reach 490 Mbit/s instead of 290 Mbit/s, but would raise the RTT (95th percentile) \
                    from 310ms to 410ms";
        assert!(shown.notes.iter().any(|text| text.ends_with(note)), "{:?}", shown.notes);
        let steep = |state: State| 210 + 500 * state.rcvbuf.unwrap_or(0);
        let shown = climbed(Given { p95: steep, ..given(|state| window(state, 8)) });
        assert_eq!(shown.reached.rcvbuf, Some(1), "the first BDP is never refused");
    }

    /// Whenever the budget is exhausted, the walk ends with the rungs so far and the link. A note says so,
    /// and no note describes a state that is not on the ladder.
    #[test]
    fn a_walk_over_budget_ends_with_the_rungs_so_far() {
        let rates = [70, 80, 95, 960];
        let rate = |state: State| {
            rates[usize::from(state.cc.is_rate_based()) * 2 + usize::from(state.rcvbuf.is_some())]
        };
        let whole = climbed(given(rate));
        let mut lengths = Vec::new();
        for budget in 0..100 {
            let shown = climbed(Given { budget, ..given(rate) });
            let spent = shown.notes.iter().any(|note| note.starts_with("some remedies were not simulated"));
            if !spent {
                assert_eq!(shown.rates, whole.rates);
                break;
            }
            if let Some((link, so_far)) = shown.rates.split_last() {
                assert_eq!(*link, 965);
                assert!(whole.rates.starts_with(so_far), "{budget}: {:?}", shown.rates);
            }
            let rates_of_remedies = shown.remedies.len();
            assert_eq!(rates_of_remedies, shown.rates.len().saturating_sub(2), "{budget}");
            let present = State::present(fullpipe_tcp::cc::Algorithm::Cubic);
            assert_eq!(shown.reached == present, rates_of_remedies == 0, "{budget}");
            lengths.push(shown.rates.len());
        }
        assert!(lengths.is_sorted() && lengths[0] == 0 && lengths.contains(&3), "{lengths:?}");
        assert!(whole.notes.iter().all(|note| !note.contains("use fullpipe run")), "{:?}", whole.notes);
    }

    /// The walk does not simulate the combination of the chosen remedies with one that is not chosen: only a
    /// plan needs such rates.
    #[test]
    fn a_remedy_that_is_not_taken_is_tried_by_itself_only() {
        let model = model();
        let mut given =
            Given { limit: SendLimit::Rwnd, ..given(|state| if state.rcvbuf.is_some() { 960 } else { 95 }) };
        let Walk { reached, .. } = walk(&model, None, &mut given).expect("no run is made");
        let bbr = Change::CongestionControl(fullpipe_tcp::cc::Algorithm::Bbr1);
        assert!(reached.rcvbuf.is_some() && !reached.has(bbr), "{reached:?}");
        assert!(given.tried.contains(&model.present().with(bbr)));
        assert!(!given.tried.contains(&reached.with(bbr)));
        let others: Vec<State> =
            variants(&model, Limit::Rwnd, reached).iter().map(|variant| variant.others).collect();
        assert!(others.contains(&reached.with(bbr)) && others.contains(&model.present()), "{others:?}");
        assert!(variants(&model, Limit::Link, reached).is_empty());
    }

    /// A walk simulates only the states that it needs: none if the link is full.
    #[test]
    fn a_full_link_is_left_alone() {
        let mut given = given(|_| 960);
        let Walk { rungs, notes, .. } = walk(&model(), None, &mut given).expect("no run is made");
        assert_eq!((rungs.len(), given.tried.len()), (2, 1), "{notes:?}");
    }
}
