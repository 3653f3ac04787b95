//! The limit ladder: from the measured run to the line, one remedy at a time.
//!
//! The path is fitted from the log (RTT, loss events, the buffers of the hosts), and four states of the
//! hosts are simulated on it with the engine's own TCP, over several seeds:
//!
//! ```text
//!                        buffers as they are        buffers for 2 x BDP
//!   congestion control
//!   as it is             the log, again (a check)   raising buffers alone
//!   BBR                  changing it alone          both
//! ```
//!
//! The ladder walks through them: it lifts what limits now, looks at what limits then, and so on until
//! the line. Where the remedies that are not walked lead is said in a note, as their failure is what
//! usually sends people the wrong way ("buffers changed nothing, so it is not the buffers").

use std::num::NonZeroUsize;

use fullpipe_lab::campaign::{self, Job, Progress, RunPanicked};
use fullpipe_lab::outcome::{FlowOutcome, Outcome};
use fullpipe_lab::scenario::{DirectionSpec, FlowSpec, HostSpec, PathSpec, Scenario};
use fullpipe_lab::sim;
use fullpipe_tcp::SendLimit;
use fullpipe_tcp::buffers::{self, Buffer, KernelVersion};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::advice;
use crate::explain::{Facts, Findings, Limit};
use crate::input::iperf3::Protocol;
use crate::report::{Rung, Source};

/// Seeds at the estimated loss; the figures are their means.
const SEEDS: u64 = 5;
/// Seeds at each end of the loss interval.
const SEEDS_AT_ENDS: u64 = 3;
/// A log's length is followed within these bounds: shorter would be all ramp, longer costs time and
/// tells no more.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);
/// Packet size and the header bytes in it, with timestamps.
const MTU: u64 = 1500;
const HEADERS: u64 = 52;
/// Of the line: what is above counts as having reached it.
const AT_THE_LINE: f64 = 0.93;
/// Of a window's or buffer's ceiling: what is above counts as held by it.
const AT_THE_CEILING: f64 = 0.7;
/// Packets that one diagnosis may simulate before its runs are shortened: some seconds on two cores.
const PACKET_BUDGET: u64 = 80_000_000;
/// Of a run's time spent stopped by a window or buffer: above this it counts as held by it.
const HELD: f64 = 0.2;
/// The rate of the simulated path where the line is not known: far above any window on the ladder.
const AMPLE: Rate = Rate::from_bps(10_000_000_000);

/// The ladder, and what has to be said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// From the measured run to the line.
    pub rungs: Vec<Rung>,
    /// What the simulation took for granted.
    pub assumptions: Vec<String>,
    /// How well the model meets the log, and where the other remedies lead.
    pub notes: Vec<String>,
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    cc: Algorithm,
    large_buffers: bool,
}

/// What the simulation says of one state at one loss rate.
#[derive(Clone, Debug)]
struct Prediction {
    /// Mean over the log's duration.
    rate: Rate,
    /// Mean over the last half of a run twice as long.
    steady: Rate,
    /// Shares of the last half.
    shares: [f64; SendLimit::ALL.len()],
}

/// Climbs the ladder of a diagnosed run. `progress` is called as runs finish, from any thread.
///
/// # Errors
/// A simulated run that panicked: a defect of this library.
pub fn climb(
    facts: &Facts<'_>,
    findings: &Findings,
    progress: impl Fn(Progress) + Sync,
) -> Result<Ladder, RunPanicked> {
    let model = Model::new(facts, findings);
    if facts.log.protocol == Protocol::Udp {
        // A UDP rate fits no model of TCP: neither windows nor RTT are known.
        let rungs = vec![model.measured_rung(), model.last_rung()];
        return Ok(Ladder { rungs, assumptions: Vec::new(), notes: Vec::new() });
    }
    let states = model.states();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = model.jobs(&states);
    let outcomes = campaign::run_jobs(threads, &jobs, sim::run, progress)?;
    let predicted = model.predictions(&states, &outcomes);
    Ok(model.ladder(&predicted))
}

/// The fitted path and hosts.
struct Model<'a> {
    facts: &'a Facts<'a>,
    findings: &'a Findings,
    /// Rate of the simulated bottleneck in IP bits.
    bottleneck: Rate,
    loss: [Probability; 3],
    duration: Duration,
}

/// A state's predictions at the estimated loss and at the two ends of its interval.
struct Predicted {
    state: State,
    at_loss: Prediction,
    at_most_loss: Rate,
    at_least_loss: Rate,
}

impl<'a> Model<'a> {
    fn new(facts: &'a Facts<'a>, findings: &'a Findings) -> Self {
        let loss = findings.loss.map_or([Probability::ZERO; 3], |loss| [loss.rate, loss.low, loss.high]);
        // A cap lets so much payload through; the path counts headers too.
        let cap = findings.cap.map(|cap| cap.mul_div(MTU, MTU - HEADERS));
        let line = facts.link.unwrap_or(AMPLE);
        let wanted = findings.measured.length.max(SHORTEST).min(LONGEST);
        let bottleneck = cap.map_or(line, |cap| cap.min(line));
        let mut model = Self { facts, findings, bottleneck, loss, duration: wanted };
        let packets = model.most_packets();
        if packets > PACKET_BUDGET {
            model.duration = wanted.mul_div(PACKET_BUDGET, packets).max(SHORTEST);
        }
        model
    }

    /// Packets that all runs together carry at most.
    fn most_packets(&self) -> u64 {
        let runs = SEEDS + 2 * SEEDS_AT_ENDS;
        let of_state = |state: State| {
            let (window, sndbuf) = self.ceilings(state);
            let rate = self.bottleneck.min(window).min(sndbuf);
            (rate * (self.duration * 2)).get() / MTU
        };
        self.states()
            .into_iter()
            .map(|state| of_state(state).saturating_mul(runs))
            .fold(0, u64::saturating_add)
    }

    /// What the line or the cap carries as payload.
    fn ceiling(&self) -> Rate {
        self.bottleneck.mul_div(MTU - HEADERS, MTU)
    }

    fn bdp(&self) -> Bytes {
        self.bottleneck * self.findings.measured.rtt
    }

    /// The states worth simulating: those that differ, and no raised buffers for a line of unknown rate.
    fn states(&self) -> Vec<State> {
        let now = self.findings.sender.algorithm();
        let raised = self.facts.link.is_some() || self.findings.cap.is_some();
        let mut states = Vec::new();
        for cc in [now, Algorithm::Bbr1] {
            for large_buffers in [false, true] {
                let state = State { cc, large_buffers };
                if (raised || !large_buffers) && !states.contains(&state) {
                    states.push(state);
                }
            }
        }
        states
    }

    fn scenario(&self, state: State, loss: Probability, seed: u64) -> Scenario {
        let rtt = self.findings.measured.rtt;
        let one_way = rtt / 2;
        let direction = |loss, queue| DirectionSpec { rate: self.bottleneck, delay: one_way, loss, queue };
        let own = &self.findings.buffers;
        let (mut sndbuf, mut rcvbuf) = (own.sndbuf, own.rcvbuf);
        if state.large_buffers {
            sndbuf = sndbuf.max(advice::sndbuf_for(self.bdp()));
            rcvbuf = rcvbuf.max(advice::rcvbuf_for(self.bdp(), own.rule));
        }
        let flow = FlowSpec { cc: state.cc, start: Duration::ZERO, bytes: None };
        Scenario {
            path: PathSpec {
                forward: direction(loss, self.bdp()),
                backward: direction(Probability::ZERO, Bytes::MAX),
                mtu: MTU,
            },
            host: HostSpec {
                kernel: self.facts.kernel.unwrap_or(KernelVersion::new(6, 18)),
                window_rule: own.rule,
                sndbuf: Buffer::Auto { max: sndbuf },
                rcvbuf: Buffer::Auto { max: rcvbuf },
                window_clamp: None,
                fair_queue: false,
                rx_merge: Duration::ZERO,
            },
            flows: vec![flow; usize::try_from(self.findings.measured.streams).unwrap_or(1).max(1)],
            duration: self.duration * 2,
            seed,
            sample_every: Duration::from_millis(500),
        }
    }

    /// Every run to be made, state by state: the estimated loss, then its low and its high end.
    fn jobs(&self, states: &[State]) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &state in states {
            for (loss, seeds) in self.loss.into_iter().zip([SEEDS, SEEDS_AT_ENDS, SEEDS_AT_ENDS]) {
                jobs.extend((1..=seeds).map(|seed| Job {
                    label: format!(
                        "{} with {} buffers",
                        state.cc,
                        if state.large_buffers { "large" } else { "present" }
                    ),
                    scenario: self.scenario(state, loss, seed),
                }));
            }
        }
        jobs
    }

    fn predictions(&self, states: &[State], outcomes: &[Outcome]) -> Vec<Predicted> {
        let per_state = (SEEDS + 2 * SEEDS_AT_ENDS) as usize;
        states
            .iter()
            .zip(outcomes.chunks(per_state))
            .map(|(&state, outcomes)| {
                let (at_loss, ends) = outcomes.split_at(SEEDS as usize);
                let (least, most) = ends.split_at(SEEDS_AT_ENDS as usize);
                Predicted {
                    state,
                    at_loss: mean(at_loss),
                    at_most_loss: mean(most).steady,
                    at_least_loss: mean(least).steady,
                }
            })
            .collect()
    }

    fn ladder(&self, predicted: &[Predicted]) -> Ladder {
        let find = |state: State| predicted.iter().find(|p| p.state == state);
        let now = State { cc: self.findings.sender.algorithm(), large_buffers: false };
        let (mut rungs, mut notes) = (vec![self.measured_rung()], Vec::new());
        let mut walked = vec![now];
        let (mut state, mut limit) = (now, rungs[0].limit);
        while let Some(next) = self.remedy(state, limit) {
            let Some(prediction) = find(next) else { break };
            limit = self.binding(prediction);
            rungs.push(self.simulated_rung(state, limit, prediction));
            walked.push(next);
            state = next;
        }
        if let Some(as_it_is) = find(now) {
            notes.push(format!(
                "the fitted path, simulated as it is, gives {} over {} ({} lasting); the log says {}",
                as_it_is.at_loss.rate, self.duration, as_it_is.at_loss.steady, self.findings.measured.mean
            ));
        }
        for other in predicted.iter().filter(|p| !walked.contains(&p.state)) {
            notes.push(format!(
                "{} would leave it at {} lasting (simulated): {}",
                self.difference(now, other.state),
                other.at_loss.steady,
                self.noun(self.binding(other), other.state)
            ));
        }
        rungs.push(self.last_rung());
        Ladder { rungs, assumptions: self.assumptions(), notes }
    }

    /// The next thing to change, given what limits now.
    fn remedy(&self, state: State, limit: Limit) -> Option<State> {
        match limit {
            Limit::Cwnd | Limit::SlowStart if state.cc != Algorithm::Bbr1 => {
                Some(State { cc: Algorithm::Bbr1, ..state })
            }
            Limit::Rwnd | Limit::Sndbuf if !state.large_buffers => {
                Some(State { large_buffers: true, ..state })
            }
            _ => None,
        }
    }

    /// What limits a simulated state.
    ///
    /// The sender's own record says what stopped each transmission, but BBR paces at what a window let it
    /// measure: its "pacing" below a window's ceiling is that window.
    fn binding(&self, predicted: &Predicted) -> Limit {
        let Prediction { steady, shares, .. } = &predicted.at_loss;
        let fraction = |of: Rate| steady.as_bps() as f64 / of.as_bps().max(1) as f64;
        if fraction(self.ceiling()) >= AT_THE_LINE {
            return if self.findings.cap.is_some() { Limit::Policer } else { Limit::Link };
        }
        let share = |limit: SendLimit| shares[limit as usize];
        let (window, sndbuf) = self.ceilings(predicted.state);
        let (held_by, ceiling, held) = if window <= sndbuf {
            (Limit::Rwnd, window, share(SendLimit::Rwnd))
        } else {
            (Limit::Sndbuf, sndbuf, share(SendLimit::Sndbuf))
        };
        let by_cwnd = share(SendLimit::Cwnd) + share(SendLimit::Recovery) + share(SendLimit::SlowStart);
        let paces = predicted.state.cc == Algorithm::Bbr1;
        let stopped = held > HELD.max(by_cwnd);
        if stopped || (paces && fraction(ceiling) >= AT_THE_CEILING) {
            held_by
        } else if paces {
            Limit::Pacing
        } else {
            Limit::Cwnd
        }
    }

    /// What the window and the send buffer of a state allow, per round trip and over all streams.
    fn ceilings(&self, state: State) -> (Rate, Rate) {
        let host = self.scenario(state, Probability::ZERO, 0).host;
        let rtt = self.findings.measured.rtt;
        let streams = self.findings.measured.streams.max(1);
        let window = host.window_rule.window(host.rcvbuf.limit());
        let sendable = buffers::sendable(host.sndbuf.limit());
        (Rate::of(window, rtt).mul_div(streams, 1), Rate::of(sendable, rtt).mul_div(streams, 1))
    }

    fn measured_rung(&self) -> Rung {
        let measured = &self.findings.measured;
        let first = self.findings.findings.first();
        Rung {
            limit: first.map_or(Limit::Link, |finding| finding.limit),
            what: first.map_or_else(|| "the measured run".into(), |finding| finding.what.clone()),
            rate: measured.mean,
            steady: Some(measured.steady),
            low: None,
            high: None,
            source: Source::Measured,
            remedy: None,
            commands: Vec::new(),
        }
    }

    fn simulated_rung(&self, before: State, limit: Limit, predicted: &Predicted) -> Rung {
        let own = &self.findings.buffers;
        // Values from another time are no ground for an undo that quotes them.
        let dump = self.facts.sysctl;
        let receiver = dump.filter(|_| own.rcvbuf_source.is_fact());
        let sender = dump.filter(|_| own.sndbuf_source.is_fact());
        let commands = if predicted.state.cc == before.cc {
            advice::raise_buffers(self.bdp(), own.rule, sender, receiver)
        } else {
            advice::change_congestion_control("bbr", self.facts.kernel, dump)
        };
        let (at_most_loss, at_least_loss) = (predicted.at_most_loss, predicted.at_least_loss);
        Rung {
            limit,
            what: self.noun(limit, predicted.state),
            rate: predicted.at_loss.rate,
            steady: Some(predicted.at_loss.steady),
            low: Some(at_most_loss.min(at_least_loss).min(predicted.at_loss.steady)),
            high: Some(at_most_loss.max(at_least_loss).max(predicted.at_loss.steady)),
            source: Source::Simulated,
            remedy: Some(self.difference(before, predicted.state)),
            commands,
        }
    }

    fn last_rung(&self) -> Rung {
        let (limit, what, rate) = match (self.findings.cap, self.facts.link) {
            (Some(cap), _) => (
                Limit::Policer,
                format!(
                    "the cap near {cap} that one flow of this host meets anywhere: find it, or use several flows"
                ),
                cap,
            ),
            (None, Some(_)) => (Limit::Link, "the line, less headers".into(), self.ceiling()),
            (None, None) => {
                let seen = self.facts.log.proven_rate();
                (Limit::Link, format!("line unknown, at least {seen}"), seen)
            }
        };
        Rung {
            limit,
            what,
            rate,
            steady: None,
            low: None,
            high: None,
            source: Source::Given,
            remedy: None,
            commands: Vec::new(),
        }
    }

    /// What holds a state, as a noun.
    fn noun(&self, limit: Limit, state: State) -> String {
        let host = self.scenario(state, Probability::ZERO, 0).host;
        match limit {
            Limit::Rwnd => format!("a {} receive window", host.window_rule.window(host.rcvbuf.limit())),
            Limit::Sndbuf => format!("a {} send buffer", host.sndbuf.limit()),
            Limit::Cwnd => "loss, which holds cwnd down".into(),
            Limit::Pacing => "BBR's own pacing, which leaves room for its probes".into(),
            Limit::Policer => "the cap on one flow".into(),
            _ => "the line".into(),
        }
    }

    /// What was changed between two states, as a remedy.
    fn difference(&self, before: State, after: State) -> String {
        let cc = (before.cc != after.cc).then_some("BBR on the sender");
        let buffers =
            (before.large_buffers != after.large_buffers).then_some("buffers for 2 x BDP on both hosts");
        [cc, buffers].into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    fn assumptions(&self) -> Vec<String> {
        let mut assumptions = vec![
            format!(
                "one bottleneck with a drop-tail queue of 1 BDP ({}), and no other traffic on it",
                self.bdp()
            ),
            "losses are independent of each other and of this flow's own rate".into(),
        ];
        if self.duration != self.findings.measured.length {
            assumptions.push(format!(
                "simulated over {} instead of the log's {}",
                self.duration, self.findings.measured.length
            ));
        }
        if self.facts.link.is_none() && self.findings.cap.is_none() {
            assumptions
                .push("the line is faster than every window on the ladder; give --link to go on".into());
        }
        assumptions
    }
}

/// Means over runs: of all flows together.
fn mean(outcomes: &[Outcome]) -> Prediction {
    let over = |of: &dyn Fn(&FlowOutcome) -> f64| {
        let sum: f64 = outcomes.iter().flat_map(|outcome| &outcome.flows).map(of).sum();
        sum / outcomes.len().max(1) as f64
    };
    let steady = over(&|flow| flow.goodput_second_half.as_bps() as f64);
    // The run is twice as long as the log: what its first half carried is the rest of the whole.
    let whole = over(&|flow| flow.goodput.as_bps() as f64);
    let flows = outcomes.first().map_or(1, |outcome| outcome.flows.len().max(1)) as f64;
    Prediction {
        rate: Rate::from_bps((2.0 * whole - steady).max(0.0) as u64),
        steady: Rate::from_bps(steady as u64),
        shares: SendLimit::ALL.map(|limit| over(&|flow| flow.share_second_half(limit)) / flows),
    }
}
