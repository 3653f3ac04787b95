//! Chooses the number of connections, and notes the rate that they leave for another flow.

use fullpipe_measurement::classify::Limit;
use fullpipe_units::Rate;

use super::{Walker, gains, is_full};
use crate::ladder::budget::Stop;
use crate::ladder::prediction::Prediction;
use crate::remedy::State;

/// Gain that makes more connections worthwhile as long as the link is not full. More connections need little
/// additional memory, and a note states the rate that they leave for another flow. The rates of runs with
/// different seeds differ by about this much.
const MORE_CONNECTIONS: (u64, u64) = (101, 100);

impl Walker<'_, '_> {
    /// Returns the figures for the smallest number of connections that fills the link, or beyond which the
    /// rate hardly increases; `None` if several connections gain nothing. `states` are in ascending order.
    /// Where a window or a buffer is the limit, a number that mainly lengthens the queue is not chosen, but
    /// noted. Under loss, the queue at the link is no reason against more connections.
    pub(super) fn enough_connections(
        &mut self,
        limit: Limit,
        base: &Prediction,
        states: &[State],
    ) -> Result<Option<Prediction>, Stop> {
        let mut enough: Option<Prediction> = None;
        'numbers: for two in states.chunks(2) {
            for more in self.runs.tried(two)? {
                let (fewer, more) = self.with_more_seeds(enough.as_ref().unwrap_or(base), more)?;
                let worth = fewer.sustained.mul_div(MORE_CONNECTIONS.0, MORE_CONNECTIONS.1);
                // If a cap applies to each flow, the ceiling rises with the number of flows.
                let ceiling = self.model.ceiling_of(more.state);
                if is_full(fewer.sustained, ceiling) || more.sustained <= worth {
                    break 'numbers;
                }
                if matches!(limit, Limit::Rwnd | Limit::Sndbuf) && self.only_queues(&fewer, &more) {
                    if base.state == self.state {
                        self.note_the_queue(&fewer, &more);
                    }
                    break 'numbers;
                }
                enough = Some(more);
            }
        }
        let Some(enough) = enough else { return Ok(None) };
        let (base, enough) = self.with_more_seeds(base, enough)?;
        Ok(Some(enough).filter(|enough| gains(&base, enough)))
    }

    /// Returns the figures of two states from all of their runs if their rates differ so little that one seed
    /// does not show which is higher. If the budget does not suffice for that, returns the present figures.
    fn with_more_seeds(
        &mut self,
        from: &Prediction,
        next: Prediction,
    ) -> Result<(Prediction, Prediction), Stop> {
        if gains(from, &next) || gains(&next, from) {
            return Ok((from.clone(), next));
        }
        let mut all = |state| match self.runs.shown(state) {
            Err(Stop::OverBudget) => Ok(None),
            shown => shown.map(Some),
        };
        match (all(from.state)?, all(next.state)?) {
            (Some(from), Some(next)) => Ok((from, next)),
            _ => Ok((from.clone(), next)),
        }
    }

    /// Notes the rate that several connections leave for another flow.
    pub(super) fn note_the_share(&mut self, before: State, after: State) -> Result<(), Stop> {
        let (alone, beside) = (self.runs.left_to_another(before)?, self.runs.left_to_another(after)?);
        let leave = |state, rate: Rate| match self.model.flows(state) {
            1 => format!("one connection leaves {rate}"),
            flows => format!("{flows} connections leave {rate}"),
        };
        self.notes.push(format!(
            "{} connections leave {beside} for one CUBIC flow with the same RTT and buffers on this path; {} for \
             that flow (simulated)",
            self.model.flows(after),
            leave(before, alone)
        ));
        Ok(())
    }
}
