//! Flows that belong to one program, which decides during the run how many of them send.
//!
//! ```text
//!   rows of all flows ──► Team: how many flows send ──► Grants ──► writers and readers of the flows
//!   time since the last rows x rates of the program's ends ──────────┘
//! ```
//!
//! A program that copies over several connections passes its data to whichever connection can send. At each
//! trace row, the sending flows get equal shares of the data that the program has to send and of the data
//! that the receiving program reads. Flows above the chosen number pause: they only send the data that their
//! sockets have already accepted. A flow opens its connection when it sends for the first time.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::World;
use super::{receiver_timer, run_traced, sender_timer};
use crate::capture::Tap;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::trace::{Row, Sink};
use crate::workload::{Grants, Reading, Writing};

/// Number of bytes that a program without a limit may write or read until the next row.
const UNLIMITED: u64 = u64::MAX / 4;

/// Program that chooses how many of its flows send.
pub trait Team {
    /// Returns the number of flows that send from `now` on. `rows` contains one row for each flow of the
    /// scenario, in order, including flows whose connections are not open yet.
    fn steer(&mut self, now: Instant, rows: &[Row]) -> usize;
}

/// Rates of the two ends of a program, over all of its flows; `None` means that an end is never the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TeamRates {
    /// Rate at which the sending end has data.
    pub writes: Option<Rate>,
    /// Rate at which the receiving end reads.
    pub reads: Option<Rate>,
}

/// Runs a scenario whose flows belong to one program. The workloads of the flows and their start times are
/// ignored: the flows share the `rates`, and `team` decides how many of them send.
pub fn run_team(scenario: &Scenario, rates: TeamRates, team: &mut dyn Team) -> Outcome {
    let mut scenario = scenario.clone();
    for flow in &mut scenario.flows {
        flow.start = Duration::ZERO;
        flow.workload.writing = Writing::Granted;
        flow.workload.reading = if rates.reads.is_some() { Reading::Granted } else { Reading::Greedy };
    }
    let mut program =
        Program { team, rates, flows: scenario.flows.len(), rows: Vec::new(), last: Instant::ZERO };
    run_traced(&scenario, &mut program)
}

/// A sink that passes the trace rows to the program and requests its decision.
struct Program<'t> {
    team: &'t mut dyn Team,
    rates: TeamRates,
    flows: usize,
    /// Trace rows of the current sampling time.
    rows: Vec<Row>,
    last: Instant,
}

impl Sink for Program<'_> {
    fn row(&mut self, row: &Row) {
        self.rows.push(row.clone());
    }

    fn grants(&mut self, now: Instant) -> Option<Grants> {
        let sending = match now {
            // The first decision is made without rows.
            Instant::ZERO => self.team.steer(now, &[]),
            _ => self.team.steer(now, &self.rows),
        };
        self.rows.clear();
        let passed = now.saturating_since(self.last);
        self.last = now;
        let amount = |rate: Option<Rate>| rate.map_or(UNLIMITED, |rate| (rate * passed).get());
        Some(Grants {
            sending: sending.min(self.flows),
            writes: Bytes::new(amount(self.rates.writes)),
            reads: self.rates.reads.map(|rate| rate * passed),
        })
    }
}

impl World<'_> {
    /// Keeps all flows closed until the program opens them, and makes the first grants.
    pub(super) fn begin_team(&mut self, grants: Grants, tap: &mut (impl Tap + ?Sized)) {
        for (number, flow) in self.flows.iter_mut().enumerate() {
            flow.wait_for_team();
            self.timers.set(sender_timer(number), Instant::FAR_FUTURE);
        }
        self.grant(grants, tap);
    }

    /// Lets the applications of the flows write and read the granted amounts.
    pub(super) fn grant(&mut self, grants: Grants, tap: &mut (impl Tap + ?Sized)) {
        let Grants { sending, writes, reads } = grants;
        // Bytes that a flow could not write are granted again, to flows that may be able to write them.
        let left: u64 = self.flows.iter_mut().map(|flow| flow.revoke()).fold(0, u64::saturating_add);
        let share = left.saturating_add(writes.get()).min(UNLIMITED) / sending.max(1) as u64;
        for number in 0..sending {
            self.flows[number].grant(self.now, share);
            self.timers.set(sender_timer(number), self.flows[number].sender_timer());
            self.sender_writes(number, tap);
        }
        let Some(reads) = reads else { return };
        // Flows with little unread data come first, so that the other flows share the grant that these flows
        // do not use.
        let mut behind: Vec<(u64, usize)> =
            self.flows.iter().enumerate().map(|(number, flow)| (flow.receiver.readable(), number)).collect();
        behind.sort_unstable();
        let (mut left, mut waiting) = (reads.get(), behind.len() as u64);
        for (unread, number) in behind {
            let read = unread.min(left / waiting.max(1));
            (left, waiting) = (left - read, waiting - 1);
            if read > 0 {
                self.flows[number].receiver_may_read(self.now, read);
                self.receiver_sends(number, tap);
            }
            self.timers.set(receiver_timer(number), self.flows[number].receiver_timer());
        }
    }
}
