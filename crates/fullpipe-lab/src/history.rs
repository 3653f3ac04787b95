//! The history of a running flow and the outcome computed from it, for simulated, emulated and live runs.

use fullpipe_tcp::SendLimit;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::algorithm::FlowAlgorithm;
use crate::outcome::{FlowOutcome, ResponseOutcome, RttOutcome, WireOutcome};
use crate::trace::Row;

/// Recorded states of a flow, one for each trace row.
#[derive(Clone, Debug)]
pub struct History {
    starts_at: Instant,
    max_cwnd: Bytes,
    moments: Vec<Moment>,
}

/// State of a flow at one sampling time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time at which the state was sampled.
    pub at: Instant,
    /// Payload in bytes that the receiving application has read so far.
    pub read: Bytes,
    /// Payload in bytes that has crossed the path so far, including duplicates if they can be counted.
    pub arrived: Bytes,
    /// Total time for which each limit has stopped the sender so far; zero if the sender does not report it.
    pub limit_times: [Duration; SendLimit::ALL.len()],
}

/// Final state of a flow, which is not part of the trace.
#[derive(Clone, Copy, Debug)]
pub struct FinalState {
    /// Congestion control of the flow.
    pub cc: FlowAlgorithm,
    /// State at the time when the flow completed or the run ended.
    pub last: Moment,
    /// Time at which a flow of limited size completed; `None` if it did not complete.
    pub finished: Option<Instant>,
    /// Number of data segments that the sender sent; `None` if it was not recorded.
    pub segments_sent: Option<u64>,
    /// Number of segments that the sender retransmitted.
    pub retransmits: u64,
    /// Round-trip times of the flow; `None` if no data was acknowledged.
    pub rtt: Option<RttOutcome>,
    /// Time that the response took; `None` if the flow has no request or did not complete.
    pub response: Option<ResponseOutcome>,
    /// 99th percentile of the delay of a paced writer's data; `None` if it was not recorded.
    pub delay_p99: Option<Duration>,
}

impl From<&Row> for Moment {
    fn from(row: &Row) -> Self {
        let receiver = row.receiver.as_ref();
        let received = receiver.map_or(Bytes::ZERO, |receiver| receiver.received);
        Self {
            at: row.at,
            read: receiver.map_or(Bytes::ZERO, |receiver| received.saturating_sub(receiver.unread)),
            arrived: received,
            limit_times: row.truth.as_ref().map(|truth| truth.limit_times).unwrap_or_default(),
        }
    }
}

impl History {
    /// Creates the history of a flow that starts at `starts_at`.
    pub fn new(starts_at: Instant) -> Self {
        let first = Moment {
            at: starts_at,
            read: Bytes::ZERO,
            arrived: Bytes::ZERO,
            limit_times: Default::default(),
        };
        Self { starts_at, max_cwnd: Bytes::ZERO, moments: vec![first] }
    }

    /// Adds the state and the congestion window of a flow that is still running.
    pub fn remember(&mut self, cwnd: Bytes, moment: Moment) {
        self.max_cwnd = self.max_cwnd.max(cwnd);
        if moment.at > self.starts_at {
            self.moments.push(moment);
        }
    }

    /// Computes the outcome of the flow from its history and its final state.
    pub fn outcome(&self, ended: FinalState) -> FlowOutcome {
        let FinalState { cc, last, finished, segments_sent, retransmits, rtt, response, delay_p99 } = ended;
        let lifetime = last.at.saturating_since(self.starts_at);
        let half = self.at(self.starts_at + lifetime / 2, last);
        let rate = |from: Bytes, span: Duration| Rate::mean(last.read.saturating_sub(from), span);
        let spent = |since: &Moment| {
            SendLimit::ALL
                .into_iter()
                .map(|l| (l, last.limit_times[l as usize] - since.limit_times[l as usize]))
                .collect()
        };
        FlowOutcome {
            cc,
            bytes: last.read,
            goodput: rate(Bytes::ZERO, lifetime),
            goodput_second_half: rate(half.read, last.at.saturating_since(half.at)),
            segments_sent,
            retransmits,
            rtt,
            send_limit: spent(&self.moments[0]),
            send_limit_second_half: spent(&half),
            max_cwnd: self.max_cwnd,
            wire: self.wire_since(&self.moments[0], &last),
            wire_second_half: self.wire_since(&half, &last),
            finished,
            response,
            delay_p99,
        }
    }

    /// Returns the state at time `at`, interpolated linearly between the neighbouring trace rows.
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
        let amount = |from: Bytes, to: Bytes| Bytes::new(between(from.get(), to.get()));
        Moment {
            at,
            read: amount(before.read, next.read),
            arrived: amount(before.arrived, next.arrived),
            limit_times,
        }
    }

    /// Returns the mean arrival rate between two states, and the highest rate over any sampling period
    /// between them.
    fn wire_since(&self, since: &Moment, last: &Moment) -> WireOutcome {
        let rate = |from: &Moment, to: &Moment| match to.at.saturating_since(from.at) {
            span if span.is_zero() => Rate::ZERO,
            span => Rate::of(to.arrived.saturating_sub(from.arrived), span),
        };
        let periods = self.moments.windows(2).filter(|pair| pair[0].at >= since.at);
        let peak = periods.map(|pair| rate(&pair[0], &pair[1])).max();
        WireOutcome { peak: peak.unwrap_or(Rate::ZERO), mean: rate(since, last) }
    }
}
