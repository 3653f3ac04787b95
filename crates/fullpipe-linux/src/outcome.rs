//! Computes the outcome of a run on kernel sockets from its trace rows and from the path's records.

use fullpipe_lab::history::{FinalState, History, Moment};
use fullpipe_lab::outcome::{Outcome, PathOutcome, ResponseOutcome, RttOutcome, Work};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::{Digest, Row, Sink};
use fullpipe_path::Counters;
use fullpipe_tcp::estimate::RttHistogram;
use fullpipe_units::{Duration, Instant};

use crate::flows::Flow;
use crate::link::PathSample;

/// End of a flow, with values that no trace row contains.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowEnd {
    /// Time at which the last byte was acknowledged; `None` if the flow did not complete.
    pub(crate) finished: Option<Instant>,
    /// Times of the response; `None` if the flow has no request or did not complete.
    pub(crate) response: Option<ResponseOutcome>,
    /// 99th percentile of the delay of a paced writer's data; `None` for other writers.
    pub(crate) delay_p99: Option<Duration>,
}

impl FlowEnd {
    pub(crate) fn of(flow: &Flow) -> Self {
        Self {
            finished: flow.finished.get().copied(),
            response: flow.response.get().copied(),
            delay_p99: flow.delay_p99(),
        }
    }
}

/// Packet counters of both directions of the path, at the end of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) forward: Counters,
    pub(crate) backward: Counters,
}

/// Returns the outcome of a run, and passes its trace rows with the state of the path to `sink`. `rows` are
/// sorted by time, then by flow; `samples` contains the state of the path for each time.
pub(crate) fn outcome(
    scenario: &Scenario,
    mut rows: Vec<Row>,
    ends: &[FlowEnd],
    samples: &[PathSample],
    totals: Totals,
    sink: &mut dyn Sink,
) -> Outcome {
    let mut digest = Digest::default();
    let moments = rows.chunk_by_mut(|a, b| a.flow < b.flow);
    for (rows, sample) in moments.zip(samples) {
        for (row, state) in rows.iter_mut().zip(&sample.states) {
            row.path = Some(*state);
            digest.row(row);
            sink.row(row);
        }
    }
    let mut histories: Vec<History> =
        scenario.flows.iter().map(|spec| History::new(Instant::ZERO + spec.start)).collect();
    let mut rtts = vec![RttHistogram::default(); ends.len()];
    for row in &rows {
        let number = row.flow as usize;
        if ends[number].finished.is_none_or(|finished| row.at < finished) {
            histories[number].remember(row.sender.cwnd, row.into());
            if let Some(srtt) = row.sender.srtt {
                rtts[number].add(srtt);
            }
        }
    }
    let last_rows = &rows[rows.len().saturating_sub(ends.len())..];
    let flows = last_rows.iter().enumerate().map(|(number, last)| {
        let FlowEnd { finished, response, delay_p99 } = ends[number];
        let rtts = &rtts[number];
        let rtt = match (last.sender.min_rtt, rtts.mean(), rtts.percentile(50), rtts.percentile(95)) {
            (Some(min), Some(mean), Some(p50), Some(p95)) => Some(RttOutcome { min, mean, p50, p95 }),
            _ => None,
        };
        let mut moment: Moment = last.into();
        moment.at = finished.unwrap_or(moment.at);
        histories[number].outcome(FinalState {
            cc: scenario.flows[number].cc,
            last: moment,
            finished,
            segments_sent: None,
            retransmits: last.sender.retransmits,
            rtt,
            response,
            delay_p99,
        })
    });
    Outcome {
        flows: flows.collect(),
        path: PathOutcome::of(&totals.forward, &totals.backward),
        // Work is counted only in the simulator; here, the kernel does the work.
        work: Work::default(),
        digest: digest.value(),
    }
}
