//! The output of `fullpipe run`: one JSON document per campaign, one summary line per point, and CSV tables.

mod columns;
mod tables;
mod totals;

use std::collections::BTreeMap;

use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::campaign::RunResult;
use crate::check::{Verdict, evaluate};
use crate::experiment::{Experiment, Point};
use crate::metric::{FlowFigures, Metric, RunFigures};
use crate::outcome::{FlowOutcome, Outcome, PathOutcome, WireOutcome};
use crate::stats::mean;
use crate::validity::{LatenessQuantiles, Validity};

pub use columns::{FlowRow, RUN_COLUMNS, RunRecord};
pub use tables::{ResultRows, TraceRows, TraceText};
pub use totals::Totals;

/// Name and version of the JSON document's format.
pub const SCHEMA: &str = "fullpipe.run/1";

/// Outcome of a run, with the wall-clock time that the run took.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedOutcome {
    /// Outcome of the timed run.
    pub outcome: Outcome,
    /// Wall-clock time that the run took, in seconds.
    pub wall_s: f64,
    /// Measurements that show whether a run in real time is valid; `None` in virtual time.
    pub validity: Option<Validity>,
}

/// All results of a campaign. Values are in base units, and the keys name the units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Name and version of this JSON document's format.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// One-line description of the experiment.
    #[serde(default)]
    pub description: String,
    /// Where the experiment ran: `sim` (simulator), `emu` (emulator) or `uml` (guest).
    pub world: String,
    /// Release and timer frequency of the guests' kernel; absent if the experiment did not run in guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether the campaign was ended early. A campaign that was ended early lacks some runs.
    #[serde(default)]
    pub interrupted: bool,
    /// Results of all runs, ordered by point and seed.
    pub runs: Vec<Run>,
    /// Comparison of each expectation with each point to which it applies.
    pub expect: Vec<Expect>,
}

/// Results of one run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Label of the experiment point.
    pub point: String,
    /// Random seed of the run.
    pub seed: u64,
    /// Results of each flow of the run, in the order of the experiment.
    pub flows: Vec<Flow>,
    /// Packet counts of the data direction of the path.
    pub path: PathOutcome,
    /// Work that the simulator did for the run.
    pub work: WorkCounts,
    /// Hash over all trace rows of the run, as a hexadecimal string; JSON readers that use doubles would
    /// round a number.
    pub digest: String,
    /// Wall-clock time that the run took, in seconds.
    pub wall_s: f64,
    /// Measurements that show whether a run in real time is valid; absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<RunValidity>,
}

/// Measurements of a run in real time that show whether the run is valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunValidity {
    /// Whether all measurements of the run are within their bounds.
    pub valid: bool,
    /// Reasons why the run is invalid, as sentences; empty for a valid run.
    pub problems: Vec<String>,
    /// Lateness of packets, in milliseconds: the time of writing minus the due time.
    pub lateness_ms: LatenessMs,
    /// Number of packets dropped between the kernel and the emulated path.
    pub tun_drops: u64,
    /// Number of segments that the senders retransmitted until all data was acknowledged, including after the
    /// end of the run.
    pub retransmits: Option<u64>,
    /// Number of data packets that the path dropped until all data was acknowledged.
    pub drops: u64,
    /// Number of segments that the receivers reported as duplicates (D-SACK).
    #[serde(default)]
    pub duplicates: u64,
    /// CPU time of the emulated path divided by wall-clock time; 1 is a whole core.
    pub cpu: f64,
    /// Wake-up latency of a thread of ordinary priority, in milliseconds; absent from results stored before
    /// fullpipe measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_ms: Option<LatenessMs>,
    /// Time until the receiver's kernel replied to a data packet, in milliseconds; absent from results stored
    /// before fullpipe measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ms: Option<LatenessMs>,
}

/// Quantiles of a latency, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatenessMs {
    /// Median latency, in milliseconds.
    pub p50: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99: f64,
    /// 99.9th percentile of the latency, in milliseconds.
    pub p999: f64,
    /// Maximum latency, in milliseconds.
    pub max: f64,
}

/// Results of one flow of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// Congestion control of the flow.
    pub cc: String,
    /// Payload that the receiving application read, in bytes.
    pub bytes: u64,
    /// Goodput: payload divided by the flow's lifetime, in bit/s.
    pub goodput_bps: u64,
    /// Goodput over the second half of the flow's lifetime, in bit/s.
    pub goodput_second_half_bps: u64,
    /// Number of segments that the flow retransmitted.
    pub retransmits: u64,
    /// Round-trip times of the flow; null if no data was acknowledged.
    pub rtt_ms: Option<RttMs>,
    /// Time that the response to the flow's request took; absent if the flow has no request, or if the
    /// response is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ms: Option<ResponseMs>,
    /// Share of the flow's lifetime during which each limit stopped the sender; the shares add up to 1.
    pub send_limit: BTreeMap<String, f64>,
    /// Arrival rate of payload over the flow's lifetime.
    #[serde(default)]
    pub wire: Wire,
    /// Arrival rate of payload over the second half of the flow's lifetime.
    #[serde(default)]
    pub wire_second_half: Wire,
}

/// Rate at which payload arrived at the receiving host, including duplicate segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wire {
    /// Peak arrival rate over one sampling period, in bit/s.
    pub peak_bps: u64,
    /// Mean arrival rate, in bit/s.
    pub mean_bps: u64,
}

/// Round-trip times of a flow, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttMs {
    /// Minimum RTT, in milliseconds.
    pub min: f64,
    /// Mean RTT, in milliseconds.
    pub mean: f64,
    /// 95th percentile of the RTT, in milliseconds.
    pub p95: f64,
}

/// Time until the receiving application read the last byte of a response, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseMs {
    /// Time from the first SYN to the last byte, in milliseconds.
    pub from_syn: f64,
    /// Time from the first byte of the request to the last byte of the response, in milliseconds.
    pub from_request: f64,
}

/// Work that the simulator did for a run, as counts that are identical on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkCounts {
    /// Number of event-loop iterations: packets delivered, timers fired and trace rows.
    pub events: u64,
    /// Number of ACKs that acknowledged new data.
    pub acks: u64,
    /// Number of visits to the senders' records of outstanding segments.
    pub records_visited: u64,
}

/// Comparison of an expectation with one experiment point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expect {
    /// Conditions that select the points of the expectation, as written in the file.
    #[serde(rename = "where")]
    pub conditions: BTreeMap<String, String>,
    /// Label of the point that was compared with the expectation.
    pub point: String,
    /// Name of the metric that the expectation bounds.
    pub metric: String,
    /// Aggregated value of the metric; null if any run has no value.
    pub value: Option<f64>,
    /// Lower bound on the metric; null if there is none.
    pub min: Option<f64>,
    /// Upper bound on the metric; null if there is none.
    pub max: Option<f64>,
    /// Value measured with a real kernel, as written in the file; null if there is none.
    pub kernel: Option<String>,
    /// Published value, as written in the file; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Whether the aggregated value is within the bounds.
    pub pass: bool,
}

impl Expect {
    fn new(experiment: &Experiment, verdict: &Verdict<'_>) -> Self {
        Self {
            conditions: verdict.expectation.conditions.clone(),
            point: experiment.points()[verdict.point].label.clone(),
            metric: verdict.expectation.metric.to_string(),
            value: verdict.value,
            min: verdict.expectation.min,
            max: verdict.expectation.max,
            kernel: verdict.expectation.kernel.clone(),
            published: verdict.expectation.published.clone(),
            pass: verdict.pass,
        }
    }

    /// Returns the aggregated value with its unit, for display.
    pub fn value_words(&self) -> String {
        let words = |value: f64| match self.metric.parse::<Metric>() {
            Ok(metric) => metric.display(value),
            Err(_) => value.to_string(),
        };
        self.value.map_or("none".into(), words)
    }

    /// Returns the expected range, such as `0.80..1.50`, in the unit of the value.
    pub fn bounds_words(&self) -> String {
        let number = |value: f64| match self.metric.parse::<Metric>() {
            Ok(metric) => metric.number(value),
            Err(_) => value.to_string(),
        };
        match (self.min, self.max) {
            (Some(min), Some(max)) => format!("{}..{}", number(min), number(max)),
            (Some(min), None) => format!(">= {}", number(min)),
            (None, Some(max)) => format!("<= {}", number(max)),
            (None, None) => String::new(),
        }
    }
}

impl Report {
    /// Creates the document of a campaign of `experiment` in `world`. If the campaign was ended early, runs
    /// may be missing. A point is compared with its expectations only if it has a run for every seed.
    pub fn new(experiment: &Experiment, world: &str, runs: &[RunResult<TimedOutcome>]) -> Self {
        let seeds = experiment.seeds().len();
        let interrupted = runs.len() < experiment.points().len() * seeds;
        let complete = runs.chunk_by(|a, b| a.point == b.point).filter(|runs| runs.len() == seeds).flatten();
        let outcomes: Vec<_> = complete.map(|run| (run.point, &run.value.outcome)).collect();
        let expectations = evaluate(experiment, &outcomes);
        Self {
            schema: SCHEMA.into(),
            experiment: experiment.name().into(),
            description: experiment.description().into(),
            world: world.into(),
            kernel: None,
            interrupted,
            runs: runs.iter().map(|run| Run::new(experiment, run)).collect(),
            expect: expectations.iter().map(|verdict| Expect::new(experiment, verdict)).collect(),
        }
    }

    /// Returns the number of comparisons in which the value is outside the expected bounds.
    pub fn failed(&self) -> usize {
        self.expect.iter().filter(|expect| !expect.pass).count()
    }

    /// Returns whether every expectation is met and no run is invalid.
    pub fn holds(&self) -> bool {
        self.failed() == 0 && self.invalid().next().is_none()
    }

    /// Returns the runs in real time that are invalid.
    pub fn invalid(&self) -> impl Iterator<Item = (&Run, &RunValidity)> {
        let measured = self.runs.iter().filter_map(|run| Some((run, run.validity.as_ref()?)));
        measured.filter(|(_, validity)| !validity.valid)
    }
}

impl From<LatenessQuantiles> for LatenessMs {
    fn from(lateness: LatenessQuantiles) -> Self {
        let millis = |time: Duration| time.as_millis_f64();
        Self {
            p50: millis(lateness.p50),
            p99: millis(lateness.p99),
            p999: millis(lateness.p999),
            max: millis(lateness.max),
        }
    }
}

impl From<&Validity> for RunValidity {
    fn from(validity: &Validity) -> Self {
        Self {
            valid: validity.is_valid(),
            problems: validity.problems().iter().map(ToString::to_string).collect(),
            lateness_ms: validity.lateness.into(),
            tun_drops: validity.tun_drops,
            retransmits: validity.retransmits,
            drops: validity.drops,
            duplicates: validity.duplicates,
            cpu: validity.cpu,
            woken_ms: Some(validity.stalls.woken.into()),
            answered_ms: Some(validity.stalls.answered.into()),
        }
    }
}

impl Run {
    /// Creates the document entry for `run`, a run of `experiment`.
    pub fn new(experiment: &Experiment, run: &RunResult<TimedOutcome>) -> Self {
        Self::of(experiment.points()[run.point].label.clone(), run.seed, &run.value)
    }

    /// Creates the document entry for a run of the point with the label `point`.
    pub fn of(point: String, seed: u64, TimedOutcome { outcome, wall_s, validity }: &TimedOutcome) -> Self {
        Self {
            point,
            seed,
            flows: outcome.flows.iter().map(Flow::from).collect(),
            path: outcome.path,
            work: WorkCounts {
                events: outcome.work.events,
                acks: outcome.work.acks,
                records_visited: outcome.work.records_visited,
            },
            digest: format!("{:016x}", outcome.digest),
            wall_s: *wall_s,
            validity: validity.as_ref().map(RunValidity::from),
        }
    }
}

impl From<&FlowOutcome> for Flow {
    fn from(flow: &FlowOutcome) -> Self {
        let millis = |time: Duration| time.as_millis_f64();
        let shares = SendLimit::ALL.map(|limit| (limit.name().to_owned(), flow.share(limit)));
        Self {
            cc: flow.cc.to_string(),
            bytes: flow.bytes.get(),
            goodput_bps: flow.goodput.as_bps(),
            goodput_second_half_bps: flow.goodput_second_half.as_bps(),
            retransmits: flow.retransmits,
            rtt_ms: flow.rtt.map(|rtt| RttMs {
                min: millis(rtt.min),
                mean: millis(rtt.mean),
                p95: millis(rtt.p95),
            }),
            response_ms: flow.response.map(|response| ResponseMs {
                from_syn: millis(response.from_syn),
                from_request: millis(response.from_request),
            }),
            send_limit: shares.into_iter().filter(|(_, share)| *share > 0.0).collect(),
            wire: flow.wire.into(),
            wire_second_half: flow.wire_second_half.into(),
        }
    }
}

impl From<WireOutcome> for Wire {
    fn from(wire: WireOutcome) -> Self {
        Self { peak_bps: wire.peak.as_bps(), mean_bps: wire.mean.as_bps() }
    }
}

// The metrics of a stored document equal those of the original run.

impl From<&Run> for RunFigures {
    fn from(run: &Run) -> Self {
        Self { flows: run.flows.iter().map(FlowFigures::from).collect(), path: run.path }
    }
}

impl From<&Flow> for FlowFigures {
    fn from(flow: &Flow) -> Self {
        let share = |limit: SendLimit| flow.send_limit.get(limit.name()).copied().unwrap_or(0.0);
        Self {
            goodput: Rate::from_bps(flow.goodput_bps),
            goodput_second_half: Rate::from_bps(flow.goodput_second_half_bps),
            retransmits: flow.retransmits,
            rtt_mean_ms: flow.rtt_ms.map(|rtt| rtt.mean),
            rtt_p95_ms: flow.rtt_ms.map(|rtt| rtt.p95),
            from_syn_ms: flow.response_ms.map(|response| response.from_syn),
            from_request_ms: flow.response_ms.map(|response| response.from_request),
            shares: SendLimit::ALL.map(|limit| (limit, share(limit))),
            wire: flow.wire.into(),
            wire_second_half: flow.wire_second_half.into(),
        }
    }
}

impl From<Wire> for WireOutcome {
    fn from(wire: Wire) -> Self {
        Self { peak: Rate::from_bps(wire.peak_bps), mean: Rate::from_bps(wire.mean_bps) }
    }
}

/// Mean, minimum and maximum of a value over the repeated runs of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean of the values of all repeated runs.
    pub mean: f64,
    /// Minimum of the values of all repeated runs.
    pub min: f64,
    /// Maximum of the values of all repeated runs.
    pub max: f64,
}

impl Spread {
    /// Computes mean, minimum and maximum of `values`; returns `None` if there are no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let least = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        Some(Self { mean: mean(values.iter().copied())?, min: least(f64::min)?, max: least(f64::max)? })
    }

    /// Formats a goodput in Mbit/s; for more than one repeat, adds minimum and maximum: `307 (301..312)`.
    pub fn words(self, repeats: usize) -> String {
        let number = |bps| Metric::Goodput.number(bps);
        match repeats {
            0 | 1 => number(self.mean),
            _ => format!("{} ({}..{})", number(self.mean), number(self.min), number(self.max)),
        }
    }
}

/// Summary of one experiment point over its repeated runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Label of the experiment point.
    pub point: String,
    /// Number of runs that the summary covers.
    pub repeats: usize,
    /// Mean, minimum and maximum of the goodput, in bit/s.
    pub goodput: Option<Spread>,
    /// Mean, minimum and maximum of the goodput over the second half of the flow's lifetime, in bit/s.
    pub goodput_second_half: Option<Spread>,
    /// Mean number of retransmitted segments.
    pub retransmits: Option<f64>,
    /// Mean RTT in milliseconds, over the runs that have an RTT.
    pub rtt_mean_ms: Option<f64>,
    /// Mean share of time during which each limit stopped the sender, largest share first.
    pub limits: Vec<(SendLimit, f64)>,
}

impl Summary {
    /// Returns the limit with the largest share of time, together with that share.
    pub fn main_limit(&self) -> Option<(SendLimit, f64)> {
        self.limits.first().copied()
    }
}

/// Returns one summary per experiment point, in the order of the runs.
pub fn summaries(experiment: &Experiment, runs: &[RunResult<TimedOutcome>]) -> Vec<Summary> {
    let summary = |runs: &[RunResult<TimedOutcome>]| {
        let figures: Vec<_> = runs.iter().map(|run| RunFigures::from(&run.value.outcome)).collect();
        Summary::of(&experiment.points()[runs[0].point], &figures)
    };
    runs.chunk_by(|a, b| a.point == b.point).map(summary).collect()
}

impl Summary {
    /// Summarizes the runs of a point.
    fn of(point: &Point, runs: &[RunFigures]) -> Self {
        let figures = |metric: Metric| {
            runs.iter().filter_map(|run| metric.of(run, &point.scenario.path)).collect::<Vec<_>>()
        };
        let average = |metric: Metric| mean(figures(metric));
        let shares = SendLimit::ALL.into_iter().filter_map(|limit| {
            average(Metric::Share(limit)).filter(|share| *share > 0.0).map(|share| (limit, share))
        });
        let mut limits: Vec<_> = shares.collect();
        limits.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self {
            point: point.label.clone(),
            repeats: runs.len(),
            goodput: Spread::of(&figures(Metric::Goodput)),
            goodput_second_half: Spread::of(&figures(Metric::GoodputSecondHalf)),
            retransmits: average(Metric::Retransmits),
            rtt_mean_ms: average(Metric::RttMean),
            limits,
        }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::cc::Algorithm;
    use fullpipe_units::Bytes;
    use serde_json::json;

    use super::*;
    use crate::outcome::{ResponseOutcome, RttOutcome, Work};

    pub(super) fn runs() -> Vec<RunResult<TimedOutcome>> {
        let ms = Duration::from_millis;
        let flow = |mbit: u64| FlowOutcome {
            cc: Algorithm::Bbr1.into(),
            bytes: Bytes::new(1_000_000),
            goodput: Rate::from_bps(mbit * 1_000_000),
            goodput_second_half: Rate::from_bps(9_000_000),
            segments_sent: None,
            retransmits: mbit,
            rtt: (mbit > 4).then_some(RttOutcome { min: ms(10), mean: ms(12), p50: ms(11), p95: ms(15) }),
            send_limit: vec![(SendLimit::Pacing, ms(750)), (SendLimit::SlowStart, ms(250))],
            send_limit_second_half: Vec::new(),
            max_cwnd: Bytes::ZERO,
            wire: WireOutcome { peak: Rate::from_bps(9_000_000), mean: Rate::from_bps(3_000_000) },
            wire_second_half: WireOutcome::default(),
            finished: None,
            response: (mbit > 4).then_some(ResponseOutcome { from_syn: ms(221), from_request: ms(171) }),
            delay_p99: None,
        };
        let run = |seed, mbit| RunResult {
            point: 0,
            seed,
            value: TimedOutcome {
                outcome: Outcome {
                    flows: vec![flow(mbit)],
                    path: PathOutcome {
                        delivered: 700,
                        queue_drops: 1,
                        random_drops: 2,
                        ..PathOutcome::default()
                    },
                    work: Work { events: 1_500, acks: 350, records_visited: 2_000 },
                    digest: 0xabc,
                },
                wall_s: 0.5,
                validity: None,
            },
        };
        vec![run(1, 8), run(2, 4)]
    }

    pub(super) fn experiment() -> Experiment {
        let text = "name = 'x'\nduration = '1s'\nrepeat = 2\n[path]\nrate = '10mbit'\nrtt = '10ms'\n\
                    [[flow]]\ncc = 'bbr'\n\
                    [[expect]]\nwhere = { cc = 'bbr1' }\nmetric = 'goodput_bps'\nmin = '5mbit'\nkernel = '5-7'";
        Experiment::from_toml(text).expect("valid")
    }

    #[test]
    fn the_document_has_the_promised_shape() {
        let report = Report::new(&experiment(), "sim", &runs());
        let document = serde_json::to_value(&report).expect("serialisable");
        let run = |seed: u64, mbit: u64, rtt_ms: serde_json::Value| {
            let mut run = json!({
                "point": "cc=bbr", "seed": seed,
                "flows": [{
                    "cc": "bbr1", "bytes": 1_000_000, "goodput_bps": mbit * 1_000_000,
                    "goodput_second_half_bps": 9_000_000, "retransmits": mbit, "rtt_ms": rtt_ms,
                    "send_limit": { "pacing": 0.75, "slow_start": 0.25 },
                    "wire": { "peak_bps": 9_000_000, "mean_bps": 3_000_000 },
                    "wire_second_half": { "peak_bps": 0, "mean_bps": 0 },
                }],
                "path": { "delivered": 700, "queue_drops": 1, "random_drops": 2, "policed": 0 },
                "work": { "events": 1500, "acks": 350, "records_visited": 2000 },
                "digest": "0000000000000abc", "wall_s": 0.5,
            });
            if mbit > 4 {
                run["flows"][0]["response_ms"] = json!({ "from_syn": 221.0, "from_request": 171.0 });
            }
            run
        };
        let expected = json!({
            "schema": "fullpipe.run/1", "experiment": "x", "description": "", "world": "sim", "interrupted": false,
            "runs": [run(1, 8, json!({ "min": 10.0, "mean": 12.0, "p95": 15.0 })), run(2, 4, json!(null))],
            "expect": [{
                "where": { "cc": "bbr1" }, "point": "cc=bbr", "metric": "goodput_bps", "value": 6e6,
                "min": 5e6, "max": null, "kernel": "5-7", "pass": true,
            }],
        });
        assert_eq!(document, expected);
        assert_eq!(serde_json::from_value::<Report>(document).expect("readable"), report);
        assert_eq!(report.failed(), 0);
    }

    /// Stored runs are evaluated by their metrics, so storing and reading a run must not change any metric.
    #[test]
    fn a_kept_run_has_the_figures_of_its_outcome() {
        for run in runs() {
            let kept = serde_json::to_string(&Run::new(&experiment(), &run)).expect("serialisable");
            let read: Run = serde_json::from_str(&kept).expect("readable");
            assert_eq!(RunFigures::from(&read), RunFigures::from(&run.value.outcome));
        }
    }

    /// A point with only half of its runs is not compared with its expectations.
    #[test]
    fn a_campaign_that_was_ended_early_says_so() {
        let report = Report::new(&experiment(), "sim", &runs()[..1]);
        assert!(report.interrupted);
        assert_eq!((report.runs.len(), report.expect.len(), report.failed()), (1, 0, 0));
    }

    /// A run in real time that wrote packets late could meet its expectations only by accident.
    #[test]
    fn an_invalid_run_is_marked_and_nothing_holds() {
        use crate::validity::{LatenessQuantiles, Stalls, Validity};
        let ms = Duration::from_millis;
        let measured = |p99| Validity {
            rtt: ms(10),
            lateness: LatenessQuantiles { p50: ms(0), p99, p999: ms(9), max: ms(40) },
            tun_drops: 0,
            retransmits: Some(12),
            drops: 12,
            duplicates: 0,
            cpu: 0.25,
            stalls: Stalls {
                woken: LatenessQuantiles { p50: ms(0), p99: ms(1), p999: ms(1), max: ms(3) },
                answered: LatenessQuantiles { p50: ms(0), p99: ms(2), p999: ms(2), max: ms(41) },
            },
        };
        let report = |p99| {
            let mut runs = runs();
            runs[1].value.validity = Some(measured(p99));
            Report::new(&experiment(), "emu", &runs)
        };
        assert!(report(ms(1)).holds());
        let late = report(ms(2));
        assert_eq!((late.failed(), late.holds(), late.invalid().count()), (0, false, 1));
        let document = serde_json::to_value(&late).expect("serialisable");
        let expected = json!({
            "valid": false, "problems": ["1 % of the packets were written more than 2ms too late (limit 1ms)"],
            "lateness_ms": { "p50": 0.0, "p99": 2.0, "p999": 9.0, "max": 40.0 },
            "tun_drops": 0, "retransmits": 12, "drops": 12, "duplicates": 0, "cpu": 0.25,
            "woken_ms": { "p50": 0.0, "p99": 1.0, "p999": 1.0, "max": 3.0 },
            "answered_ms": { "p50": 0.0, "p99": 2.0, "p999": 2.0, "max": 41.0 },
        });
        assert_eq!(document["runs"][1]["validity"], expected);
        assert_eq!(document["runs"][0].get("validity"), None, "time was virtual");
        assert_eq!(serde_json::from_value::<Report>(document).expect("readable"), late);
    }

    #[test]
    fn a_point_is_summed_up_over_its_repeats() {
        let [summary] = &summaries(&experiment(), &runs())[..] else { panic!("one point") };
        assert_eq!(summary.point, "cc=bbr");
        assert_eq!(summary.repeats, 2);
        assert_eq!(summary.goodput, Some(Spread { mean: 6e6, min: 4e6, max: 8e6 }));
        assert_eq!(summary.retransmits, Some(6.0));
        assert_eq!(summary.rtt_mean_ms, Some(12.0), "from the one run that has an RTT");
        assert_eq!(summary.main_limit(), Some((SendLimit::Pacing, 0.75)));
    }
}
