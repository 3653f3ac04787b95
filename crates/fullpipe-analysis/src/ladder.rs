//! The limit ladder: from the present state to the link, one remedy at a time.
//!
//! The path is either fitted to a log (RTT, loss events, the hosts' buffers) or given. Each combination of
//! the catalogue's ladder remedies ([`catalogue`](crate::remedy::catalogue)) is one state of the hosts. The
//! engine's own TCP simulates the states as the walk needs them: with one seed to choose between remedies,
//! and with several seeds for the rungs.
//!
//! ```text
//!                        buffers as they are    windows of 1 BDP   2   4   8   16
//!   congestion control
//!   as it is             the present (a check)  raising buffers alone
//!   BBR                  changing it alone      both, until a doubling gains nothing
//! ```
//!
//! The ladder removes the present limit, determines the next one, and continues in this way up to the
//! link. Notes give the rate that each remedy reaches by itself. A remedy that fails alone often leads
//! to a wrong conclusion ("buffers changed nothing, so it is not the buffers").

mod budget;
mod counted;
mod fit;
mod given;
mod known;
mod model;
mod phrases;
mod prediction;
mod rung;
mod runs;
mod walk;

use fullpipe_lab::campaign::{JobWatch, RunPanicked};
use fullpipe_lab::stats::nearest_rank;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::input::InputError;
use fullpipe_measurement::measurement::{Protocol, RttRange};
use fullpipe_measurement::segment::{self, DEFAULT_MSS};
use fullpipe_measurement::thresholds::queue;
use fullpipe_measurement::throughput_models::loss_based_rate;
use fullpipe_tcp::buffers::{DEFAULT_WMEM, OLDER_DEFAULT_RMEM, default_rmem};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate};

use crate::explain::{Facts, Findings, MeasuredFigures, RttSource, path_loss};
use crate::remedy::{Change, Host, State};
use budget::{Budget, Stop};
pub use counted::FlowCount;
pub(crate) use counted::{counted, effort_of_counts};
pub use fit::Fit;
pub(crate) use given::{MOST_LOSS, effort, lengths};
pub use known::{Repeats, climb_known, present_known};
use model::AMPLE;
pub(crate) use model::{Effort, Hosts, Model, PathModel};
pub(crate) use phrases::assumptions;
use phrases::{few_losses, last_rung};
pub use rung::{Rung, RungProof, RungRemedies, RungRtt, Source};
use runs::{Predict, Runs};
use walk::{Variant, Walk, variants, walk};

/// Bounds of the simulated duration for a log. A shorter run would consist of the ramp only; a longer run
/// costs time and adds no information.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);
/// Number of round trips to simulate if a run of 10 s on a fast path would take too many packets. The ramp
/// ends after about a dozen round trips.
const ROUND_TRIPS: u64 = 60;
/// Minimum duration of a run on a path with an RTT of microseconds, because the timers of the hosts are
/// longer than its round trips.
const SHORTEST_OF_ALL: Duration = Duration::from_millis(200);
/// Maximum work, in data packets, of runs that keep their full length, for a log in which loss keeps the
/// flows far below the link rate. The estimate of the work assumes a full link, so most of these packets are
/// never sent; simulating the rest takes some seconds on two cores. All seeds of a 1 Gbit/s path across an
/// ocean stay within this bound.
const PACKETS_UNDER_LOSS: u64 = 100_000_000;
/// Maximum work, in data packets, of runs that are not shortened if the flows of the log fill the link. Runs
/// that exceed this bound, or `PACKETS_UNDER_LOSS` under loss, are shortened to this work, which takes a
/// second or two.
const PACKETS: u64 = 12_000_000;
/// Estimated work above which the runs for a log are not started, because the budget would end them before
/// they show a remedy.
const MOST_PACKETS: u64 = 2 * budget::INTERACTIVE;

/// Reason why there is no diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiagnoseError {
    /// The input cannot be used.
    Input(InputError),
    /// A simulated run panicked, which is a defect of this library.
    Defect(RunPanicked),
    /// The observer abandoned the simulated runs.
    Abandoned,
}

/// Calls `simulate`, and replaces its result with an error if `watch` has abandoned the runs, because the
/// result is then incomplete.
///
/// # Errors
/// Returns an error for abandoned runs, and if a simulated run panicked.
pub(crate) fn complete<T>(
    watch: &dyn JobWatch,
    simulate: impl FnOnce(&dyn JobWatch) -> Result<T, RunPanicked>,
) -> Result<T, DiagnoseError> {
    let made = simulate(watch).map_err(DiagnoseError::Defect)?;
    if watch.abandons() { Err(DiagnoseError::Abandoned) } else { Ok(made) }
}

/// Rungs of the ladder, with the assumptions and notes of the simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ladder {
    /// Rungs from the present state to the link.
    pub rungs: Vec<Rung>,
    /// Assumptions of the simulation.
    pub assumptions: Vec<String>,
    /// Notes on how well the model agrees with the log, and on the rates with other remedies.
    pub notes: Vec<String>,
    /// Comparison of the simulated present state with the measurement; `None` if there is no measurement, or
    /// if the present state was not simulated.
    pub fit: Option<Fit>,
}

/// Builds the ladder of a diagnosed run. `watch` is called from any thread as runs finish.
///
/// # Errors
/// Returns an error if a simulated run panicked, which is a defect of this library.
pub(crate) fn climb(
    facts: &Facts<'_>,
    findings: &Findings,
    watch: impl JobWatch,
) -> Result<Ladder, RunPanicked> {
    if facts.transfer.protocol == Protocol::Udp {
        return climb_after_udp(facts, findings, watch);
    }
    let path = path_of_log(facts, findings);
    let hosts = hosts_of_log(facts, findings);
    let effort = effort_of_log(&path, hosts.flows, findings.measured.length);
    let model = Model::new(path, hosts, effort);
    if let Some(why) = model.too_fast() {
        let rungs = vec![measured_rung(findings), last_rung(&model, model.present())];
        return Ok(Ladder { rungs, notes: vec![why], ..Ladder::default() });
    }
    let mut budget = Budget::new(model.budget());
    let (mut fit, path) =
        match Stop::allow(fit::fitted(&model, facts, findings, &mut budget, &watch))?.flatten() {
            Some((fit, path)) => (Some(fit), path),
            None => (None, model.path),
        };
    let model = model.on(path);
    let Climb { mut ladder, check, .. } = climb_within(&model, Some(findings), budget, watch)?;
    let length = findings.measured.length;
    if let Some((fit, loss)) = fit.as_mut().zip(findings.loss) {
        fit.longer_test = fit::longer_test(fit, &ladder.rungs, &loss, length);
        ladder.notes.extend(fit.longer_test.map(|test| few_losses(&loss, test)));
    }
    let comparison = fit.as_ref().map(ToString::to_string).or(check);
    ladder.notes.splice(0..0, comparison);
    ladder.assumptions = assumptions(&model, None);
    ladder.assumptions.extend(model.hosts_are_not_modelled());
    ladder.fit = fit;
    if let Some(first) = ladder.rungs.first_mut() {
        first.rtt = measured_rtt(facts, findings);
    }
    let duration = model.duration(model.present());
    if !fit::is_as_long(length, duration) {
        let seeds = match model.seeds().0 {
            1 => String::new(),
            seeds => format!(", with {seeds} seeds"),
        };
        ladder.assumptions.push(format!("simulated over {duration} instead of the log's {length}{seeds}"));
    }
    let by_rate = model.duration(model.present().with(Change::CongestionControl(Algorithm::Bbr1)));
    let shows_bbr = ladder.rungs.iter().any(|rung| rung.source == Source::Simulated);
    if by_rate != duration && shows_bbr {
        ladder.assumptions.push(format!(
            "runs with BBR are simulated over {by_rate}, and over the same time again for the steady state, \
             because the rate of BBR settles sooner"
        ));
    }
    if let Some(cap) = model.path.cap.filter(|_| model.path.cap_is_per_flow) {
        ladder.assumptions.push(format!(
            "the cap of {cap} is that of the present connections; each additional connection is assumed to have the \
             same cap as a present one"
        ));
    }
    if model.path.link.is_none() && model.path.cap.is_none() {
        let unknown = "the link is assumed to be faster than any window on the ladder allows; give --link to continue the ladder";
        ladder.assumptions.push(unknown.into());
    }
    Ok(ladder)
}

/// Returns the effort for a log of this length and number of flows. The log is compared with a run of the
/// present state, so the duration of this run follows the length of the log for every congestion control.
/// Runs of other states need not be as long.
fn effort_of_log(path: &PathModel, flows: u64, length: Duration) -> Effort {
    let (followed, round_trips) = (length.max(SHORTEST).min(LONGEST), path.rtt * ROUND_TRIPS);
    // Without a link rate, the simulated link is so fast that only loss can keep the flows below its rate.
    let under_loss = || loss_based_rate(path.rtt, path.loss.as_f64(), path.mss).mul_div(flows.max(1), 1);
    let far_below = !path.loss.is_zero() && under_loss() < path.link.unwrap_or(AMPLE).mul_div(1, 2);
    let packets = if far_below { PACKETS_UNDER_LOSS } else { PACKETS };
    Effort {
        seeds: 5,
        together: 1,
        seeds_at_ends: 2,
        duration: followed,
        duration_by_rate: round_trips.max(SHORTEST).min(followed),
        present_by_rate: false,
        shortest: round_trips.max(SHORTEST_OF_ALL).min(SHORTEST),
        packets,
        packets_if_more: PACKETS,
        most: MOST_PACKETS,
        budget: budget::INTERACTIVE,
    }
}

/// Builds the ladder for TCP on a path that was measured over UDP. It is the ladder of `whatif`, with the
/// loss of the test. The ladder is empty unless the RTT, the link rate and the path's own loss are known.
fn climb_after_udp(
    facts: &Facts<'_>,
    findings: &Findings,
    watch: impl JobWatch,
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
    let mut ladder = climb_model(&model, None, watch)?;
    ladder.assumptions = assumptions(&model, None);
    ladder
        .assumptions
        .push(lengths(&[model], "ranges show the effect of the confidence interval of the loss rate"));
    Ok(ladder)
}

/// Steady-state rate for one state of the hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SimulatedState {
    pub(crate) state: State,
    pub(crate) steady: Rate,
}

/// A ladder, and the runs that were simulated for it.
pub(crate) struct Climb<'m, P> {
    pub(crate) ladder: Ladder,
    /// State after the last remedy of the ladder, or the present state if there is no remedy.
    pub(crate) reached: State,
    /// Comparison of the simulated present state with the log, as a note.
    check: Option<String>,
    runs: Runs<'m, P>,
}

impl<P: JobWatch> Climb<'_, P> {
    /// Simulates the states that show the gain of each remedy: the last state of the ladder without the
    /// remedy or, if the ladder does not contain the remedy, with it. States over the budget are left out.
    ///
    /// # Errors
    /// Returns an error if a simulated run panicked.
    pub(crate) fn simulate_gains(&mut self) -> Result<(), RunPanicked> {
        let Some(first) = self.ladder.rungs.first().map(|rung| rung.limit) else { return Ok(()) };
        let mut states: Vec<State> = Vec::new();
        for Variant { others, .. } in variants(self.runs.model(), first, self.reached) {
            if !states.contains(&others) {
                states.push(others);
            }
        }
        for two in states.chunks(2) {
            Stop::allow(self.runs.tried(two))?;
        }
        Ok(())
    }

    /// Returns the rate of every simulated state.
    pub(crate) fn simulated(&self) -> Vec<SimulatedState> {
        self.runs.states().map(|p| SimulatedState { state: p.state, steady: p.steady }).collect()
    }
}

/// Builds the ladder of any path. The first rung is the measurement if there is one, otherwise the simulated
/// present state.
pub(crate) fn climb_model(
    model: &Model<'_>,
    measured: Option<&Findings>,
    watch: impl JobWatch,
) -> Result<Ladder, RunPanicked> {
    climb_states(model, measured, watch).map(|climbed| climbed.ladder)
}

/// Builds a ladder like [`climb_model`], and also returns the runs and the state after the last remedy.
pub(crate) fn climb_states<'m, P: JobWatch>(
    model: &'m Model<'_>,
    measured: Option<&Findings>,
    watch: P,
) -> Result<Climb<'m, P>, RunPanicked> {
    climb_within(model, measured, Budget::new(model.budget()), watch)
}

/// Builds a ladder like [`climb_states`], with the budget that an earlier simulation has left.
fn climb_within<'m, P: JobWatch>(
    model: &'m Model<'_>,
    measured: Option<&Findings>,
    budget: Budget,
    watch: P,
) -> Result<Climb<'m, P>, RunPanicked> {
    let mut runs = Runs::new(model, budget, watch);
    // No host or path remedy lifts a limit that the application sets (its own rate, or the pacing rate of its
    // socket). The simulation of the present state cannot be compared with a log that has such a limit or an
    // unknown one.
    let by_application = |rung: &Rung| {
        matches!(rung.limit, Limit::App | Limit::ReceiverApp | Limit::Pacing | Limit::Cpu | Limit::Unknown)
    };
    let (mut first, mut check) = (measured.map(measured_rung), None);
    if let (Some(findings), Some(rung)) = (measured, first.as_mut().filter(|rung| !by_application(rung)))
        && let Some(as_it_is) = Stop::allow(runs.shown(model.present()))?
    {
        rung.scenario = Some(as_it_is.example(model));
        check = Some(format!(
            "the simulation of the fitted path without changes gives {} over {} (steady state: {}); the log has {}",
            as_it_is.rate,
            model.duration(model.present()),
            as_it_is.steady,
            findings.measured.mean
        ));
    }
    let Walk { mut rungs, notes, reached } = walk(model, first, &mut runs)?;
    if let Some(findings) = measured.filter(|findings| findings.undecided.is_some()) {
        // The later rungs depend on the most likely candidate, for which the remedies were chosen.
        let present = findings.findings.first().map(|finding| finding.limit);
        let simulated = rungs.iter_mut().filter(|rung| rung.source == Source::Simulated);
        simulated.for_each(|rung| rung.only_if = present);
    }
    let ladder = Ladder { rungs, notes, ..Ladder::default() };
    Ok(Climb { ladder, reached, check, runs })
}

/// Derives the path model from a log.
fn path_of_log(facts: &Facts<'_>, findings: &Findings) -> PathModel {
    let loss = findings.loss;
    let tcp = facts.transfer.protocol == Protocol::Tcp;
    let path = PathModel {
        link: facts.path.link,
        cap: findings.cap,
        // A control measurement shows a rate cap of the host, which applies to all of its flows.
        cap_is_per_flow: false,
        mss: Some(findings.measured.mss)
            .filter(|mss| tcp && segment::USUAL.contains(&mss.get()))
            .unwrap_or(DEFAULT_MSS),
        queue: facts.path.queue.or(standing_queue(facts, findings)),
        at_least: facts.measurement.proven_rate(),
        rtt: findings.measured.rtt,
        loss: loss.map_or(Probability::ZERO, |loss| loss.rate),
        loss_interval: Some(
            loss.map_or((Probability::ZERO, Probability::ZERO), |loss| (loss.low, loss.high)),
        ),
    };
    match cap_of_log(facts, findings) {
        // The cap drops the packets that exceed it, so the flow itself may have caused all of its losses.
        Some(cap) => PathModel {
            cap: Some(cap),
            cap_is_per_flow: true,
            loss: Probability::ZERO,
            loss_interval: path.loss_interval.map(|(_, high)| (Probability::ZERO, high)),
            ..path
        },
        None => path,
    }
}

/// Returns the payload rate of the cap, if a cap is the most likely limit of a log and no control measurement
/// gives the rate of the cap. The remedy for a cap, several connections, assumes that the cap applies to each
/// connection.
fn cap_of_log(facts: &Facts<'_>, findings: &Findings) -> Option<Rate> {
    let first = findings.findings.first()?.limit;
    let capped = matches!(first, Limit::Cap | Limit::Policer) && findings.cap.is_none();
    let cap = findings.measured.steady;
    facts.path.link.filter(|link| capped && *link > cap && !cap.is_zero()).map(|_| cap)
}

/// Returns the size of the queue that a log shows: on a full link, the RTT increases by the time that the
/// queue takes to drain.
fn standing_queue(facts: &Facts<'_>, findings: &Findings) -> Option<Bytes> {
    let full = findings.findings.first().is_some_and(|first| first.limit == Limit::Link);
    let RttRange { min, max, .. } = facts.transfer.rtt.filter(|_| full)?;
    let stands = max.as_nanos() as f64 >= queue::STANDS * min.as_nanos() as f64;
    facts.path.link.filter(|_| stands).map(|link| link * max.saturating_sub(min))
}

/// Derives the model of both hosts from a log.
fn hosts_of_log<'a>(facts: &Facts<'a>, findings: &Findings) -> Hosts<'a> {
    let buffers = findings.buffers;
    let sender = facts.sender().map(|(host, _)| host);
    let receiver = facts.receiver().map(|(host, _)| host);
    let first = findings.findings.first().map(|first| first.limit);
    let by_rate = first == Some(Limit::Pacing);
    // Sizes that the buffers would have if the application did not fix them.
    let kernel =
        facts.hosts.kernel.or(receiver.and_then(|host| host.kernel)).or(facts.measurement.hosts.kernel);
    let limit = |triple: Option<[Bytes; 3]>, default| triple.map_or(default, |triple| triple[2]);
    let autotuned = (
        limit(sender.and_then(|host| host.tcp_wmem), DEFAULT_WMEM),
        limit(receiver.and_then(|host| host.tcp_rmem), kernel.map_or(OLDER_DEFAULT_RMEM, default_rmem)),
    );
    let fixed = (
        Some(buffers.sndbuf).filter(|_| buffers.sndbuf_fixed),
        Some(buffers.rcvbuf).filter(|_| buffers.rcvbuf_fixed),
    );
    Hosts {
        cc: findings.sender.algorithm(),
        flows: findings.measured.streams,
        kernel: facts.hosts.kernel,
        sndbuf: if fixed.0.is_some() { autotuned.0 } else { buffers.sndbuf },
        rcvbuf: if fixed.1.is_some() { autotuned.1 } else { buffers.rcvbuf },
        fixed,
        limited: by_rate || facts.transfer.offered.is_some(),
        rate_option: first.filter(|first| *first == Limit::App).and_then(|app| facts.rate_option(app)),
        this: Some(if facts.made_by_sender() { Host::Sender } else { Host::Receiver }),
        rule: buffers.rule,
        sender,
        sender_buffers: sender.filter(|_| fixed.0.is_some() || buffers.sndbuf_source.is_fact()),
        receiver_buffers: receiver.filter(|_| fixed.1.is_some() || buffers.rcvbuf_source.is_fact()),
        room: (Bytes::MAX, Bytes::MAX),
    }
}

fn measured_rung(findings: &Findings) -> Rung {
    let (measured, first) = (&findings.measured, findings.findings.first());
    let what = || first.map_or_else(|| "the measured run".into(), |finding| finding.what.clone());
    let limit = first.map_or(Limit::Link, |finding| finding.limit);
    let what = findings.undecided.as_ref().map_or_else(what, ToString::to_string);
    Rung {
        steady: Some(measured.steady),
        undecided: findings.undecided.is_some(),
        ..Rung::new(limit, what, measured.mean, Source::Measured)
    }
}

/// Returns the round-trip times of a log: quantiles of its smoothed RTTs after the ramp, if it has them.
fn measured_rtt(facts: &Facts<'_>, findings: &Findings) -> Option<RungRtt> {
    let MeasuredFigures { rtt, rtt_source, ramp, .. } = findings.measured;
    let after = Instant::ZERO + ramp;
    let intervals = facts.transfer.intervals.iter().filter(|interval| interval.start >= after);
    let mut samples: Vec<Duration> = intervals.filter_map(|interval| interval.rtt).collect();
    samples.sort();
    // A bound on the RTT is not the RTT of the idle path.
    (rtt_source != RttSource::Bound)
        .then(|| RungRtt::new(rtt, nearest_rank(&samples, 50), nearest_rank(&samples, 95)))
}

#[cfg(test)]
mod tests {
    use super::model::tests::model;
    use super::*;

    /// The runs for a log take seconds at any RTT. At an RTT of microseconds, a window per round trip is many
    /// Gbit/s, and an unknown link is assumed to carry that rate.
    #[test]
    fn the_effort_for_a_log_is_bounded_by_its_round_trips_and_packets() {
        let model = model();
        let packets = |rtt, link| {
            let loss_interval = Some((Probability::from_ppm(5), Probability::from_ppm(50)));
            let path = PathModel { rtt, link, loss_interval, ..model.path };
            let effort = effort_of_log(&path, 1, Duration::from_secs(3));
            Model::new(path, model.hosts, effort).most_work()
        };
        let near = packets(Duration::from_micros(119), None);
        assert!(near < 2 * PACKETS, "{near}");
        let (far, line) = (Duration::from_millis(210), Some(Rate::from_bps(1_000_000_000)));
        assert!(packets(far, line) > 2 * PACKETS, "loss leaves most of these unsent");
    }

    /// For any number of flows, rate and path, the runs of one rung stay within the budget; otherwise nothing
    /// is simulated, and the report states the reason.
    #[test]
    fn the_runs_of_a_rung_stay_within_the_budget() {
        let model = model();
        let (mut simulated, mut refused) = (0, Vec::new());
        for (flows, gbit) in
            [1, 10, 1000].into_iter().flat_map(|flows| [1, 10, 100].map(|gbit| (flows, gbit)))
        {
            for (micros, ppm) in [100, 1_000, 20_000, 200_000]
                .into_iter()
                .flat_map(|rtt| [0, 20, 10_000].map(|ppm| (rtt, ppm)))
            {
                let loss = Probability::from_ppm(ppm);
                let path = PathModel {
                    link: Some(Rate::from_bps(gbit * 1_000_000_000)),
                    rtt: Duration::from_micros(micros),
                    loss,
                    loss_interval: Some((Probability::from_ppm(ppm / 2), Probability::from_ppm(ppm * 2))),
                    ..model.path
                };
                let hosts = Hosts { flows, ..model.hosts };
                let model = Model::new(path, hosts, effort_of_log(&path, flows, Duration::from_secs(10)));
                if let Some(why) = model.too_fast() {
                    refused.push(why);
                    continue;
                }
                simulated += 1;
                let jobs = model.jobs(model.present());
                let spent = Budget::new(model.budget()).spend(&jobs);
                assert_eq!(spent, Ok(()), "{flows} flows, {gbit} Gbit/s, {micros} us, {ppm} ppm");
            }
        }
        assert!(simulated > refused.len() && !refused.is_empty(), "{simulated}: {refused:?}");
        let thousand = "not simulated, because runs of 1000 connections at 100 Gbit/s take about ";
        assert!(refused.iter().any(|why| why.starts_with(thousand)), "{refused:?}");
    }
}
