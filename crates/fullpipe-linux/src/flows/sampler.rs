//! Samples the sockets of all flows while they run.

use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::Row;
use fullpipe_units::{Duration, Instant};

use super::Flow;
use crate::clock::Clock;
use crate::error::{Doing, Error};

/// Interval at which a run checks whether it should continue.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Interval at which a run that ends early checks whether all flows are complete.
const COMPLETION_POLL: Duration = Duration::from_millis(5);

/// Condition that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The run ends after the duration of its scenario.
    AfterDuration,
    /// The run ends as soon as all flows are complete, and at the latest after the duration of its scenario.
    WhenComplete,
}

/// Samples the sockets of all flows at the sampling times of the trace.
pub(crate) struct Sampler<'a> {
    scenario: &'a Scenario,
    flows: &'a [Flow],
    ending: Ending,
    /// Trace rows, sorted by time, then by flow, without the state of the path.
    pub(crate) rows: Vec<Row>,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(scenario: &'a Scenario, flows: &'a [Flow], ending: Ending) -> Self {
        Self { scenario, flows, ending, rows: Vec::new() }
    }

    /// Samples the sockets until `end`, or until the run is complete; returns an error if `goes_on` returns
    /// false before that.
    pub(crate) fn until(
        &mut self,
        end: Instant,
        clock: Clock,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let poll = match self.ending {
            Ending::AfterDuration => ASK_EVERY,
            Ending::WhenComplete => COMPLETION_POLL,
        };
        let mut next = Instant::ZERO + self.scenario.sample_every;
        loop {
            let at = next.min(end);
            while clock.now() < at && !self.is_complete() {
                clock.sleep_until(at.min(clock.now() + poll));
                if !goes_on() {
                    return Err(Error::settings("the run was ended early", ""));
                }
            }
            for number in 0..self.flows.len() {
                self.look(number, clock)?;
            }
            if at == end || self.is_complete() {
                return Ok(());
            }
            next = at + self.scenario.sample_every;
        }
    }

    /// Returns whether the run ends now because all flows are complete.
    fn is_complete(&self) -> bool {
        let complete = |flow: &Flow| flow.finished.get().is_some();
        self.ending == Ending::WhenComplete && self.flows.iter().all(complete)
    }

    fn look(&mut self, number: usize, clock: Clock) -> Result<(), Error> {
        let flow = &self.flows[number];
        let spec = &self.scenario.flows[number];
        let told = flow.sender.sender(clock.now(), spec, &self.scenario.host);
        let (sender, truth) = told.doing("read TCP_INFO")?;
        let receiver = flow.receiver.receiver().doing("read TCP_INFO")?;
        self.rows.push(Row {
            at: clock.now(),
            flow: number as u32,
            sender,
            receiver,
            path: None,
            truth: truth.map(Box::new),
        });
        Ok(())
    }
}
