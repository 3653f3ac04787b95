//! What is remembered of a flow while it runs, in every world, and the outcome that follows from it.

use fullpipe_tcp::SendLimit;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::outcome::{FlowOutcome, RttOutcome};
use crate::trace::Row;

/// A flow so far, row by row.
#[derive(Clone, Debug)]
pub struct History {
    starts_at: Instant,
    max_cwnd: Bytes,
    moments: Vec<Moment>,
}

/// A flow at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub at: Instant,
    /// Payload received in order so far.
    pub received: Bytes,
    /// Time spent stopped by each limit so far; zero where the sender does not tell.
    pub limit_times: [Duration; SendLimit::ALL.len()],
}

/// What is known of a flow at its end and no row shows.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its congestion control.
    pub cc: Algorithm,
    /// The end of its life.
    pub last: Moment,
    /// When it ended by itself, for a flow of limited size.
    pub finished: Option<Instant>,
    /// Segments sent again.
    pub retransmits: u64,
    /// Its round-trip times.
    pub rtt: Option<RttOutcome>,
}

impl From<&Row> for Moment {
    fn from(row: &Row) -> Self {
        Self {
            at: row.at,
            received: row.received().unwrap_or_default(),
            limit_times: row.truth.as_ref().map(|truth| truth.limit_times).unwrap_or_default(),
        }
    }
}

impl History {
    /// Of a flow that starts at `starts_at`.
    pub fn new(starts_at: Instant) -> Self {
        let first = Moment { at: starts_at, received: Bytes::ZERO, limit_times: Default::default() };
        Self { starts_at, max_cwnd: Bytes::ZERO, moments: vec![first] }
    }

    /// Takes the next row of a flow that has not ended.
    pub fn remember(&mut self, row: &Row) {
        self.max_cwnd = self.max_cwnd.max(row.sender.cwnd);
        if row.at > self.starts_at {
            self.moments.push(row.into());
        }
    }

    /// What the flow achieved.
    pub fn outcome(&self, ended: Ended) -> FlowOutcome {
        let Ended { cc, last, finished, retransmits, rtt } = ended;
        let lifetime = last.at.saturating_since(self.starts_at);
        let half = self.at(self.starts_at + lifetime / 2, last);
        let rate = |from: Bytes, span: Duration| {
            if span.is_zero() { Rate::ZERO } else { Rate::of(last.received.saturating_sub(from), span) }
        };
        let spent = |since: &Moment| {
            SendLimit::ALL
                .into_iter()
                .map(|l| (l, last.limit_times[l as usize] - since.limit_times[l as usize]))
                .collect()
        };
        FlowOutcome {
            cc,
            bytes: last.received,
            goodput: rate(Bytes::ZERO, lifetime),
            goodput_second_half: rate(half.received, last.at.saturating_since(half.at)),
            retransmits,
            rtt,
            send_limit: spent(&self.moments[0]),
            send_limit_second_half: spent(&half),
            max_cwnd: self.max_cwnd,
            finished,
        }
    }

    /// The state at `at`, between the rows around it.
    fn at(&self, at: Instant, last: Moment) -> Moment {
        let after = self.moments.partition_point(|moment| moment.at <= at);
        let before = self.moments[after - 1];
        let next = self.moments.get(after).copied().unwrap_or(last);
        let span = next.at.saturating_since(before.at);
        let part = at.saturating_since(before.at);
        let between = |from: u64, to: u64| {
            if span.is_zero() {
                return from;
            }
            let share = u128::from(to - from) * u128::from(part.as_nanos()) / u128::from(span.as_nanos());
            from + share as u64
        };
        let mut limit_times = before.limit_times;
        for (i, time) in limit_times.iter_mut().enumerate() {
            *time = Duration::from_nanos(between(time.as_nanos(), next.limit_times[i].as_nanos()));
        }
        let received = Bytes::new(between(before.received.get(), next.received.get()));
        Moment { at, received, limit_times }
    }
}
