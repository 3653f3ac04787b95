//! The limit ladder: from the present state to the link, one remedy at a time.
//!
//! The path is either fitted to a log (RTT, loss events, the hosts' buffers) or given. Each combination of
//! the catalogue's ladder remedies ([`catalogue`](crate::remedy::catalogue)) is one state of the hosts. The
//! engine's own TCP simulates each state over several seeds. At present there are four states:
//!
//! ```text
//!                        buffers as they are        buffers for 2 x BDP
//!   congestion control
//!   as it is             the present (a check)      raising buffers alone
//!   BBR                  changing it alone          both
//! ```
//!
//! The ladder removes the present limit, determines the next one, and so on up to the link. Notes give the
//! rates of the states that are not on the ladder. A remedy that fails alone often leads to a wrong
//! conclusion ("buffers changed nothing, so it is not the buffers").

mod fit;
mod given;
mod known;
mod model;
mod rung;
mod walk;

use std::num::NonZeroUsize;

use fullpipe_lab::campaign::{self, Progress, RunPanicked};
use fullpipe_lab::sim;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::classify::Limit;
use crate::explain::{Facts, Findings, path_loss};
use crate::input::InputError;
use crate::measurement::Protocol;
use crate::remedy::State;
use crate::throughput_models::loss_based_rate;
pub use fit::Fit;
pub(crate) use given::{MOST_LOSS, effort, lengths};
pub use known::{Repeats, climb_known};
pub(crate) use model::{Effort, Hosts, Model, PathModel};
pub use rung::{Rung, Source};
use walk::{last_rung, predictions, present, walk};

/// Bounds of the simulated duration for a log. A shorter run would be all ramp; a longer one costs time and
/// adds no information.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);
/// Number of round trips that is sufficient if 10 s of a fast path would be too many packets: the ramp ends
/// after about a dozen.
const ROUND_TRIPS: u64 = 60;
/// Minimum duration of a run on a path with an RTT of microseconds, because the timers of the hosts are
/// longer than its round trips.
const SHORTEST_OF_ALL: Duration = Duration::from_millis(200);
/// Packet budget for the runs of a log in which loss keeps a flow far below the link rate. The estimate
/// assumes a full link, so most of these packets are never sent; simulating the rest takes some seconds on
/// two cores. All seeds of a 1 Gbit/s path across an ocean stay within the budget.
const PACKETS_UNDER_LOSS: u64 = 200_000_000;
/// Packet budget for the runs of a log that fill the link, and the size to which runs above either budget are
/// shortened. Simulating it takes a second or two.
const PACKETS: u64 = 12_000_000;

/// Reason why there is no diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiagnoseError {
    /// The input cannot be used.
    Input(InputError),
    /// A simulated run panicked, which is a defect of this library.
    Defect(RunPanicked),
}

/// Rungs of the ladder, with the assumptions and notes of the simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ladder {
    /// Rungs from the present state to the link.
    pub rungs: Vec<Rung>,
    /// Assumptions of the simulation.
    pub assumptions: Vec<String>,
    /// Notes: how well the model agrees with the log, and the rates with the other remedies.
    pub notes: Vec<String>,
    /// How well the simulation of the present state agrees with the measurement; `None` if there is none or it
    /// was not simulated.
    pub fit: Option<Fit>,
}

/// Builds the ladder of a diagnosed run. `progress` is called from any thread as runs finish.
///
/// # Errors
/// Returns an error if a simulated run panicked, which is a defect of this library.
pub(crate) fn climb(
    facts: &Facts<'_>,
    findings: &Findings,
    progress: impl Fn(Progress) + Sync,
) -> Result<Ladder, RunPanicked> {
    if facts.transfer.protocol == Protocol::Udp {
        return climb_after_udp(facts, findings, progress);
    }
    // The log is compared with a run of the same length, whatever the congestion control.
    let followed = findings.measured.length.max(SHORTEST).min(LONGEST);
    let path = path_of_log(facts, findings);
    let by_loss = loss_based_rate(path.rtt, path.loss.as_f64(), findings.measured.mss);
    let far_below = |line: Rate| by_loss < line.mul_div(1, 2);
    let packets =
        if !path.loss.is_zero() && path.link.is_none_or(far_below) { PACKETS_UNDER_LOSS } else { PACKETS };
    let model = Model::new(
        path,
        hosts_of_log(facts, findings),
        Effort {
            seeds: 5,
            together: 1,
            seeds_at_ends: 2,
            duration: followed,
            duration_by_rate: followed,
            shortest: (findings.measured.rtt * ROUND_TRIPS).max(SHORTEST_OF_ALL).min(SHORTEST),
            packets,
            packets_if_more: PACKETS,
            most: PACKETS_UNDER_LOSS.max(2 * packets),
        },
    );
    if let Some(why) = model.too_fast() {
        let rungs = vec![measured_rung(findings), last_rung(&model)];
        return Ok(Ladder { rungs, notes: vec![why], ..Ladder::default() });
    }
    let (fit, path) = match fit::fitted(&model, findings)? {
        Some((fit, path)) => (Some(fit), path),
        None => (None, model.path),
    };
    let model = model.on(path);
    let mut ladder = climb_model(&model, Some(findings), progress)?;
    ladder.notes.extend(fit.iter().map(ToString::to_string));
    ladder.assumptions.extend(model.hosts_are_not_modelled());
    ladder.fit = fit;
    let length = findings.measured.length;
    let duration = model.duration(model.present().cc);
    if duration != length {
        let seeds = match model.seeds().0 {
            1 => String::new(),
            seeds => format!(", with {seeds} seeds"),
        };
        ladder.assumptions.push(format!("simulated over {duration} instead of the log's {length}{seeds}"));
    }
    if model.path.link.is_none() && model.path.cap.is_none() {
        let unknown = "the link is assumed faster than every window on the ladder; give --link to go on";
        ladder.assumptions.push(unknown.into());
    }
    Ok(ladder)
}

/// Builds the ladder for TCP on a path that was measured over UDP. It is the ladder of `whatif`, with the
/// loss of the test. The ladder is empty unless the RTT, the link rate and the path's own loss are known.
fn climb_after_udp(
    facts: &Facts<'_>,
    findings: &Findings,
    progress: impl Fn(Progress) + Sync,
) -> Result<Ladder, RunPanicked> {
    let nothing = |notes| Ok(Ladder { notes, ..Ladder::default() });
    let (Some(link), Some(rtt), Ok(loss)) = (facts.path.link, facts.path.rtt, path_loss(facts)) else {
        return nothing(Vec::new());
    };
    let path = PathModel {
        link: Some(link),
        rtt,
        loss: loss.rate,
        loss_interval: Some((loss.low, loss.high.min(MOST_LOSS))),
        ..path_of_log(facts, findings)
    };
    let effort = Effort { seeds_at_ends: 1, ..effort(rtt, loss.rate) };
    let model = Model::new(path, hosts_of_log(facts, findings), effort);
    if let Some(why) = model.too_fast() {
        return nothing(vec![why]);
    }
    let mut ladder = climb_model(&model, None, progress)?;
    ladder.assumptions.push(lengths(&model, "their range is that of the loss's interval"));
    Ok(ladder)
}

/// Steady-state rate for one state of the hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SimulatedState {
    pub(crate) state: State,
    pub(crate) steady: Rate,
}

/// A ladder and the states that were simulated for it.
pub(crate) struct Climb {
    pub(crate) ladder: Ladder,
    pub(crate) simulated: Vec<SimulatedState>,
    /// State after the last remedy of the ladder, or the present state if there is no remedy.
    pub(crate) reached: State,
}

/// Builds the ladder of any path. The first rung is the measurement if there is one, otherwise the simulated
/// present state.
pub(crate) fn climb_model(
    model: &Model<'_>,
    measured: Option<&Findings>,
    progress: impl Fn(Progress) + Sync,
) -> Result<Ladder, RunPanicked> {
    climb_states(model, measured, progress).map(|climbed| climbed.ladder)
}

/// Builds a ladder like [`climb_model`], and also returns the rate of every simulated state and the state at
/// the top of the ladder.
pub(crate) fn climb_states(
    model: &Model<'_>,
    measured: Option<&Findings>,
    progress: impl Fn(Progress) + Sync,
) -> Result<Climb, RunPanicked> {
    // No host or path remedy lifts a limit that the application sets (its own rate, or the pacing rate of its
    // socket), so no simulation is necessary.
    let first = measured.map(measured_rung);
    let by_application =
        |rung: &Rung| matches!(rung.limit, Limit::App | Limit::ReceiverApp | Limit::Pacing | Limit::Cpu);
    let states = if first.as_ref().is_some_and(by_application) { Vec::new() } else { model.states() };
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcomes = campaign::run_jobs(threads, &model.jobs(&states), sim::run, progress)?;
    let predicted = predictions(model, &states, &outcomes);
    let first =
        first.map(|rung| Rung { scenario: present(model, &predicted).map(|p| p.example(model)), ..rung });
    let (mut rungs, others, reached) = walk(model, first, &predicted);
    if let Some(findings) = measured.filter(|findings| findings.undecided.is_some()) {
        // The remedies were chosen for the likeliest candidate.
        let present = findings.findings.first().map(|finding| finding.limit);
        let simulated = rungs.iter_mut().filter(|rung| rung.source == Source::Simulated);
        simulated.for_each(|rung| rung.only_if = present);
    }
    let check = measured.and_then(|findings| {
        let as_it_is = present(model, &predicted)?;
        Some(format!(
            "the fitted path, simulated as it is, gives {} over {} (steady state: {}); the log says {}",
            as_it_is.rate,
            model.duration(model.present().cc),
            as_it_is.steady,
            findings.measured.mean
        ))
    });
    let assumptions = vec![
        format!(
            "one bottleneck with a drop-tail queue of 1 BDP ({}), and no other traffic on it",
            model.bdp()
        ),
        "losses are independent of each other and of this flow's own rate".into(),
    ];
    let simulated = predicted.iter().map(|p| SimulatedState { state: p.state, steady: p.steady }).collect();
    let notes = check.into_iter().chain(others).collect();
    let ladder = Ladder { rungs, assumptions, notes, fit: None };
    Ok(Climb { ladder, simulated, reached })
}

/// Derives the path model from a log.
fn path_of_log(facts: &Facts<'_>, findings: &Findings) -> PathModel {
    let loss = findings.loss;
    PathModel {
        link: facts.path.link,
        cap: findings.cap,
        at_least: facts.measurement.proven_rate(),
        rtt: findings.measured.rtt,
        loss: loss.map_or(Probability::ZERO, |loss| loss.rate),
        loss_interval: Some(
            loss.map_or((Probability::ZERO, Probability::ZERO), |loss| (loss.low, loss.high)),
        ),
    }
}

/// Derives the model of both hosts from a log.
fn hosts_of_log<'a>(facts: &Facts<'a>, findings: &Findings) -> Hosts<'a> {
    let buffers = findings.buffers;
    let sender = facts.sender().map(|(host, _)| host);
    let receiver = facts.receiver().map(|(host, _)| host);
    Hosts {
        cc: findings.sender.algorithm(),
        flows: findings.measured.streams,
        kernel: facts.hosts.kernel,
        sndbuf: buffers.sndbuf,
        rcvbuf: buffers.rcvbuf,
        rule: buffers.rule,
        sender,
        sender_buffers: sender.filter(|_| buffers.sndbuf_source.is_fact()),
        receiver_buffers: receiver.filter(|_| buffers.rcvbuf_source.is_fact()),
        room: (Bytes::MAX, Bytes::MAX),
    }
}

fn measured_rung(findings: &Findings) -> Rung {
    let (measured, first) = (&findings.measured, findings.findings.first());
    let what = || first.map_or_else(|| "the measured run".into(), |finding| finding.what.clone());
    Rung {
        limit: first.map_or(Limit::Link, |finding| finding.limit),
        what: findings.undecided.as_ref().map_or_else(what, ToString::to_string),
        rate: measured.mean,
        steady: Some(measured.steady),
        low: None,
        high: None,
        source: Source::Measured,
        only_if: None,
        remedy: None,
        commands: Vec::new(),
        scenario: None,
    }
}
