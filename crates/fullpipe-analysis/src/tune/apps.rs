//! Effects of a setting on applications other than bulk transfers, from small simulated runs on the planned
//! path.

use std::num::NonZeroUsize;

use fullpipe_lab::campaign::{Job, RunPanicked, run_jobs};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::stats::upper_median;
use fullpipe_lab::trace::{Row, Sink};
use fullpipe_lab::workload::Writing;
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate};

use crate::ladder::Model;
use crate::remedy::{State, Unsent};

/// Returns the time to transfer `bytes` on an idle path without loss, or `None` if the transfer does not
/// finish.
pub(super) fn short_transfer(model: &Model<'_>, state: State, bytes: Bytes) -> Option<Duration> {
    let mut scenario = model.scenario(state, Probability::ZERO, model.first_seed());
    scenario.flows.truncate(1);
    for flow in &mut scenario.flows {
        flow.bytes = Some(bytes);
    }
    let finished = sim::run(&scenario).flows.first()?.finished?;
    Some(finished.saturating_since(Instant::ZERO))
}

/// Number of bursts on one connection. Only the last one is timed: by then the window has grown to the size
/// that such a burst needs.
const BURSTS: u64 = 3;
/// Time from one burst to the next: this many round trips, but at least `BETWEEN_LEAST`. A burst takes about
/// fifteen round trips from an initial window; the rest is an idle period of many retransmission timeouts.
const BETWEEN_RTTS: u64 = 60;
const BETWEEN_LEAST: Duration = Duration::from_secs(10);
/// Number of seeds on a path with loss. The median is used, because a burst may or may not lose a
/// packet.
const SEEDS_OF_BURSTS: u64 = 5;

/// Returns the time for a burst on an open connection after an idle period, until its last byte is
/// acknowledged. `None` if the burst does not finish before the next one would start.
pub(super) fn burst_after_pause(model: &Model<'_>, state: State, burst: Bytes) -> Option<Duration> {
    let rtt = model.path.rtt;
    let between = (rtt * BETWEEN_RTTS).max(BETWEEN_LEAST);
    let rate = Rate::of(burst, between);
    let last = rate.time_for(burst.mul_div(BURSTS - 1, 1));
    let took = |seed: u64| {
        let mut scenario = model.scenario(state, model.path.loss, seed);
        scenario.flows.truncate(1);
        for flow in &mut scenario.flows {
            flow.workload.writing = Writing::Paced { rate, chunk: burst };
            flow.bytes = Some(burst.mul_div(BURSTS, 1));
        }
        scenario.duration = rtt + last + between;
        // The first burst is written as soon as the handshake completes.
        let began = Instant::ZERO + rtt + last;
        let finished = sim::run(&scenario).flows.first()?.finished?;
        Some(finished.saturating_since(began))
    };
    let seeds = if model.path.loss.is_zero() { 1 } else { SEEDS_OF_BURSTS };
    let times: Vec<Duration> =
        (0..seeds).map(|nth| took(model.first_seed().wrapping_add(nth))).collect::<Option<_>>()?;
    upper_median(times, Ord::cmp)
}

/// Length of the run in round trips, and the number of round trips that belong to the start.
const WAITING_RTTS: u64 = 30;
const START_RTTS: u64 = 20;
/// Number of packets above which a run is too slow for an interactive answer.
const MOST_PACKETS: u64 = 1_500_000;
/// Number of samples per round trip: the data that BBR keeps in flight changes within a round trip.
const LOOKS: u64 = 4;

/// Returns whether the simulation of [`unsent`] is too slow at this rate for an interactive answer.
pub(super) fn takes_long(model: &Model<'_>, rate: Rate) -> bool {
    (rate * (model.path.rtt * WAITING_RTTS)).get() / DEFAULT_MSS.get() > MOST_PACKETS
}

/// Returns the data waiting in the sockets in each state; `None` if nothing arrives.
///
/// # Errors
/// Returns an error for a defect of the simulator.
pub(super) fn unsent(model: &Model<'_>, states: &[State]) -> Result<Vec<Option<Unsent>>, RunPanicked> {
    let rtt = model.path.rtt;
    let job = |state: &State| {
        let mut scenario = model.scenario(*state, model.path.loss, model.first_seed());
        scenario.duration = rtt * WAITING_RTTS;
        scenario.sample_every = (rtt / LOOKS).max(Duration::from_millis(1));
        Job { label: "unsent data".into(), scenario }
    };
    let jobs: Vec<Job> = states.iter().map(job).collect();
    let look = |scenario: &Scenario| {
        let mut looks = Looks::new(scenario, Instant::ZERO + rtt * START_RTTS);
        sim::run_traced(scenario, &mut looks);
        looks.mean()
    };
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    run_jobs(threads, &jobs, look, |_| ())
}

/// Sums over the trace rows of all flows, after the start.
struct Looks {
    from: Instant,
    /// Number of sampled instants, counted as rows of the first flow.
    moments: u64,
    unsent: u64,
    held: u64,
    /// Bytes delivered by each flow at its first and its last row.
    delivered: Vec<Option<(u64, u64)>>,
    span: (Instant, Instant),
}

impl Looks {
    fn new(scenario: &Scenario, from: Instant) -> Self {
        let delivered = vec![None; scenario.flows.len()];
        Self { from, moments: 0, unsent: 0, held: 0, delivered, span: (from, from) }
    }

    /// Returns the means over the rows. A byte that joins a queue of q bytes drained at r bytes per second
    /// waits q / r seconds.
    fn mean(&self) -> Option<Unsent> {
        let took = self.span.1.saturating_since(self.span.0);
        let delivered: u64 =
            self.delivered.iter().flatten().map(|(first, last)| last.saturating_sub(*first)).sum();
        if self.moments == 0 || delivered == 0 || took.is_zero() {
            return None;
        }
        let rate = Rate::of(Bytes::new(delivered), took);
        let mean = |sum: u64| Bytes::new(sum / self.moments);
        let (unsent, held) = (mean(self.unsent), mean(self.held));
        let flows = self.delivered.len().max(1) as u64;
        Some(Unsent {
            wait: if rate.as_bps() == 0 { Duration::ZERO } else { rate.time_for(unsent) },
            held: Bytes::new(held.get() / flows),
            rate,
        })
    }
}

impl Sink for Looks {
    fn row(&mut self, row: &Row) {
        if row.at < self.from {
            return;
        }
        if row.flow == 0 {
            if self.moments == 0 {
                self.span.0 = row.at;
            }
            self.moments += 1;
            self.span.1 = row.at;
        }
        self.unsent += row.sender.notsent.get();
        self.held += row.sender.notsent.get() + row.sender.flight_size.get();
        let now = row.sender.delivered.get();
        if let Some(of_flow) = self.delivered.get_mut(row.flow as usize) {
            of_flow.get_or_insert((now, now)).1 = now;
        }
    }
}
