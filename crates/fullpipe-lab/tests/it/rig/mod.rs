//! Shared code of the simulator tests: one path, one kind of flow, and sums over trace rows.

use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::scenario::{DirectionSpec, FlowSpec, HostSpec, PathSpec, Scenario};
use fullpipe_lab::sim;
use fullpipe_lab::trace::{Row, SenderTruth};
use fullpipe_tcp::buffers::{Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate};

/// Payload of a full segment in bytes, with an MTU of 1500 and TCP timestamps.
pub(crate) const MSS: u64 = 1448;
pub(crate) const PACKET: u64 = 1500;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

/// Returns a scenario with one bulk flow over a link of `rate` (`"max"` for no limit), a queue of `queue`
/// packets, and hosts that impose no limit.
pub(crate) fn link(cc: Algorithm, rate: &str, rtt: Duration, queue: u64, seconds: u64) -> Scenario {
    let rate = if rate == "max" { Rate::MAX } else { rate.parse().expect("a rate") };
    let direction = |rate, queue| DirectionSpec::plain(rate, rtt / 2, Probability::ZERO, queue);
    Scenario {
        path: PathSpec {
            forward: direction(rate, Bytes::new(queue * PACKET)),
            backward: direction(Rate::MAX, Bytes::from_mib(1)),
            mtu: PACKET,
        },
        host: HostSpec::plain(
            KernelVersion::new(6, 18),
            WindowRule::ScalingRatio(160),
            Buffer::Fixed(Bytes::from_mib(1024)),
            Buffer::Fixed(Bytes::from_mib(1024)),
        ),
        flows: vec![FlowSpec::plain(cc)],
        duration: Duration::from_secs(seconds),
        seed: 1,
        sample_every: ms(100),
    }
}

pub(crate) fn lossy(mut scenario: Scenario, ppm: u64, seed: u64) -> Scenario {
    scenario.path.forward.loss = Probability::from_ppm(ppm);
    scenario.seed = seed;
    scenario
}

pub(crate) fn flows(scenario: Scenario, n: u64) -> Scenario {
    flows_apart(scenario, n, 137)
}

/// Spacings of the flows' starts in milliseconds, for models of the mean over many runs. Flows that overflow
/// the same queue behave chaotically: without random loss, the spacing determines which flow meets the first
/// drop, and thereby the whole run.
pub(crate) const SPACINGS: [u64; 3] = [101, 137, 163];

/// Returns the scenario with `n` flows that start `spacing` milliseconds apart.
pub(crate) fn flows_apart(mut scenario: Scenario, n: u64, spacing: u64) -> Scenario {
    let first = scenario.flows[0].clone();
    scenario.flows = (0..n).map(|i| FlowSpec { start: ms(spacing * i), ..first.clone() }).collect();
    scenario
}

pub(crate) struct Run {
    pub(crate) rows: Vec<Row>,
    pub(crate) outcome: Outcome,
}

pub(crate) fn run(scenario: &Scenario) -> Run {
    let mut rows = Vec::new();
    let outcome = sim::run_traced(scenario, &mut rows);
    Run { rows, outcome }
}

impl Run {
    /// Returns the trace rows of `flow` from second `from` on.
    pub(crate) fn rows_of(&self, flow: u32, from: f64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.flow == flow && row.at >= at(from))
    }

    /// Returns the rate in bit/s at which payload of `flow` arrived in order after second `from`.
    pub(crate) fn goodput(&self, flow: u32, from: f64) -> f64 {
        let first = self.rows_of(flow, from).next().expect("rows");
        let last = self.rows_of(flow, from).last().expect("rows");
        let bits = 8.0 * (received(last) - received(first)) as f64;
        bits / last.at.saturating_since(first.at).as_secs_f64()
    }

    /// Returns the share of the link that was used after second `from`, counting headers.
    pub(crate) fn utilisation(&self, rate: &str, from: f64) -> f64 {
        let flows = self.outcome.flows.len() as u32;
        let goodput: f64 = (0..flows).map(|flow| self.goodput(flow, from)).sum();
        goodput * PACKET as f64 / MSS as f64 / rate.parse::<Rate>().expect("a rate").as_bps() as f64
    }

    pub(crate) fn mean(&self, from: f64, value: impl Fn(&Row) -> f64) -> f64 {
        let (sum, count) =
            self.rows_of(0, from).fold((0.0, 0.0), |(sum, n), row| (sum + value(row), n + 1.0));
        sum / count
    }
}

pub(crate) fn queue_of(row: &Row) -> u64 {
    row.path.expect("the path is ours").queue.get()
}

pub(crate) fn truth(row: &Row) -> &SenderTruth {
    row.truth.as_ref().expect("the TCP is ours")
}

pub(crate) fn received(row: &Row) -> u64 {
    row.receiver.expect("both ends are watched").received.get()
}

pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|x| x * x).sum::<f64>())
}

/// Asserts that the relative difference between `value` and the model's value `law` is at most `tolerance`.
#[track_caller]
pub(crate) fn assert_near(value: f64, law: f64, tolerance: f64, what: &str) {
    let off = value / law - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {value:.4} is {:+.2} % off the law's {law:.4}", 100.0 * off);
}
