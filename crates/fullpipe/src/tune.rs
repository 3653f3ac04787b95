//! A host and its route, tuned: a plan, the trial of it, and the way back.
//!
//! ```text
//!   local_host ──► plan ──► apply ──► confirm
//!                      └──► verify      └──► rollback, or by itself when the trial's time is over
//! ```
//!
//! The plan itself is pure ([`fullpipe_analysis::tune`]); what touches the host is [`fullpipe_linux::tune`].

use std::collections::BTreeMap;
use std::net::IpAddr;

pub use fullpipe_analysis::tune::*;
use fullpipe_analysis::{Diagnosis, HostSettings, PathFacts};
use fullpipe_iperf3::document::{Interval, Start};
use fullpipe_iperf3::{Mode, Params};
use fullpipe_lab::host::Change;
use fullpipe_lab::trace::Row;
use fullpipe_linux::Stop;
use fullpipe_linux::iperf3::client::{self, Client, Watch};
use fullpipe_linux::iperf3::{Family, ServerAddress as Server};
use fullpipe_linux::tune::{self as host, Status};
pub use fullpipe_linux::tune::{
    AppliedChanges, Drift, Guard, Phase, RouteChange, SettingChange, State, TakenBack, Target, settle, watch,
};
use fullpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Error;
use crate::run::Observer;

/// Version of the document of [`StatusReport`].
const STATUS_SCHEMA: &str = "fullpipe.tune.status/1";

/// The host of `place`, and its route to `peer`.
///
/// # Errors
/// Its settings cannot be read, or it has no routes.
pub fn local_host(place: &Target, peer: Option<IpAddr>) -> Result<LocalHost, Error> {
    if peer.is_some() && place.is_imitated() {
        return Err(Error::usage("--root has no routes", "remove --to or add --netns"));
    }
    let facts = host::facts(place, &KEYS, peer)?;
    LocalHost::new(facts).map_err(|error| Error::from(error).about("this host"))
}

/// What is known of the path and of what is wanted; a figure that is left out is taken from the report.
#[derive(Clone, Debug, Default)]
pub struct PlanRequest {
    /// The path. The host's memory is divided among its flows.
    pub path: PathFacts,
    /// This host's part.
    pub role: Option<Role>,
    /// The peer, where the plan is for connections to one.
    pub to: Option<IpAddr>,
    /// Optional items to apply.
    pub with: Vec<What>,
    /// Settings of the other host.
    pub peer: HostSettings,
    /// Facts from a report.
    pub report: Option<FromReport>,
}

impl PlanRequest {
    /// A request with the facts of `diagnosis`.
    pub fn of(diagnosis: &Diagnosis) -> Self {
        Self { report: Some(FromReport::of(diagnosis)), ..Self::default() }
    }
}

/// The inputs of the plan that `request` asks for.
///
/// # Errors
/// The rate of the link or the RTT is not known.
pub fn plan_inputs(request: PlanRequest) -> Result<PlanInputs, Error> {
    let has_report = request.report.is_some();
    let missing = |what: &str, example: &str| {
        let message = if has_report {
            format!("the report does not know {what}")
        } else {
            format!("a plan needs {what}")
        };
        Error::usage(message, format!("give {example}, or a report of fullpipe diagnose --json with --from"))
    };
    let report = request.report.unwrap_or_default();
    let path = request.path.or(report.path);
    path.link.ok_or_else(|| missing("the rate of the line", "--link 1gbit"))?;
    path.rtt.ok_or_else(|| missing("the round-trip time", "--rtt 210ms"))?;
    let role = request.role.or(report.role).unwrap_or_default();
    let settings = request.peer;
    let sending = role == Role::Receiver;
    let buffer = if sending { settings.tcp_wmem } else { settings.tcp_rmem }.map(|triple| triple[2]);
    let other = usize::from(!sending);
    let peer = Peer {
        buffer: buffer.or(report.buffers[other]),
        congestion_control: settings.congestion_control.or(report.congestion_control.clone()),
        kernel: settings.kernel.or(report.kernels[other]),
    };
    Ok(PlanInputs { path, role, to: request.to, with: request.with, peer, report })
}

/// Makes the plan.
///
/// # Errors
/// A path that cannot exist, or a defect of the simulator.
pub fn plan(host: &LocalHost, inputs: &PlanInputs, observer: &impl Observer) -> Result<Plan, Error> {
    Ok(fullpipe_analysis::tune::plan(host, inputs, |progress| observer.progress(progress))?)
}

/// A plan, and what became of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Outcome<'a> {
    /// The plan.
    #[serde(flatten)]
    pub plan: &'a Plan,
    /// Null unless the plan was applied.
    pub applied: Option<AppliedChanges>,
    /// Null unless it was verified.
    pub verified: Option<VerifyResult>,
}

/// Applies `changes` ([`Plan::changes`]) on trial for `revert_after`, or until they are rolled back. `None`: the host has them
/// already.
///
/// # Errors
/// This process may not, another holds the lock, or a change did not succeed; then nothing is changed.
pub fn apply(
    place: &Target,
    changes: &[Change],
    revert_after: Option<Duration>,
    guard: &Guard,
) -> Result<Option<AppliedChanges>, Error> {
    Ok(host::apply(place, changes, revert_after, guard, &mut |_| ())?)
}

/// What was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Confirmed {
    /// The number of changes that are kept.
    #[serde(rename = "confirmed")]
    pub changes: usize,
}

/// Keeps what is on trial, also for the next boot.
///
/// # Errors
/// Nothing is on trial, this process may not, or another holds the lock.
pub fn confirm(place: &Target) -> Result<Confirmed, Error> {
    Ok(Confirmed { changes: host::confirm(place, &mut |_| ())? })
}

/// Restores what the newest changes found; with `force` also what somebody else has changed since. `None`: there are none.
///
/// # Errors
/// This process may not, or another holds the lock.
pub fn rollback(place: &Target, force: bool) -> Result<Option<TakenBack>, Error> {
    Ok(host::rollback(place, force, &mut |_| ())?)
}

/// What is applied to a host, and who else sets the same.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatusReport {
    /// Name and version of the document.
    #[schemars(extend("const" = STATUS_SCHEMA))]
    schema: &'static str,
    /// Every set of changes, the newest last.
    pub states: Vec<State>,
    /// Files that are loaded after ours and set the same keys.
    pub overrides: Vec<Override>,
    /// Programs that may set the same keys.
    pub managers: Vec<String>,
}

/// What is applied to the host of `place`.
///
/// # Errors
/// The journal cannot be read.
pub fn status(place: &Target) -> Result<StatusReport, Error> {
    let status = host::status(place)?;
    let overrides = overridden(place, &status);
    let Status { states, managers, .. } = status;
    Ok(StatusReport { schema: STATUS_SCHEMA, states, overrides, managers })
}

/// Files that would set something else at the next boot.
fn overridden(place: &Target, status: &Status) -> Vec<Override> {
    let mut set: BTreeMap<String, String> = BTreeMap::new();
    // What was set last is what our file has.
    for change in status.states.iter().flat_map(|state| &state.changes) {
        set.insert(change.what.clone(), change.set.clone());
    }
    let set: Vec<(String, String)> = set.into_iter().collect();
    overrides(&place.owned().display().to_string(), &status.files, &set)
}

/// How a plan is verified: by measurements in turns, so that a path that changes by the hour does not mislead.
#[derive(Clone, Copy, Debug)]
pub struct Verification {
    /// Address of an iperf3 server.
    pub to: IpAddr,
    /// Its port.
    pub port: u16,
    /// Measurements without the changes and with them, in turns.
    pub rounds: u32,
    /// Length of each.
    pub time: Duration,
    /// The server sends.
    pub reverse: bool,
    /// How long the changes stay on trial in the end; without it they are kept if there is a gain.
    pub revert_after: Option<Duration>,
}

/// What the measurements say.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VerifyResult {
    /// Whether the gain came.
    pub verdict: Verdict,
    /// What was measured without the changes, in bit/s.
    pub before_bps: Vec<u64>,
    /// What was measured with them.
    pub after_bps: Vec<u64>,
}

/// Measures before and after, in turns; what is applied in the end stays for `revert_after`.
///
/// ```text
///   round 1: before, apply, after, roll back     round 2: the same     ...     last round: before, apply, after
/// ```
///
/// # Errors
/// As [`apply`]; or the server does not answer, and then the changes are rolled back.
pub fn verify(
    place: &Target,
    changes: &[Change],
    guard: &Guard,
    how: &Verification,
    observer: &impl Observer,
) -> Result<(Option<AppliedChanges>, Option<VerifyResult>), Error> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for round in 1..=how.rounds {
        let last = round == how.rounds;
        before.push(measured(how, observer, &format!("before, {round} of {}", how.rounds))?);
        // A measurement may take longer than the time for which somebody wants to try; that begins afterwards.
        let long_enough = how.time * 2 + Duration::from_secs(60);
        let trial = how.revert_after.map(|time| time + how.time).unwrap_or(long_enough).max(long_enough);
        let applied = apply(place, changes, Some(trial), guard)?;
        let Some(applied) = applied else { return Ok((None, None)) };
        let rate = measured(how, observer, &format!("after, {round} of {}", how.rounds));
        let rate = rate.inspect_err(|_| {
            // The trial ends by itself where this fails too.
            let _ = rollback(place, false);
        })?;
        after.push(rate);
        if !last {
            rollback(place, false)?;
            continue;
        }
        let verdict = judge(&before, &after);
        let bps = |rates: &[Rate]| rates.iter().map(|rate| rate.as_bps()).collect();
        let verified = VerifyResult { verdict, before_bps: bps(&before), after_bps: bps(&after) };
        if how.revert_after.is_none() && verdict == Verdict::Gain {
            confirm(place)?;
            return Ok((Some(AppliedChanges { revert_after: None, ..applied }), Some(verified)));
        }
        // Of the trial the time of the measurement is gone.
        let left = host::status(place)?.states.pop().and_then(|state| state.left);
        return Ok((Some(AppliedChanges { revert_after: left, ..applied }), Some(verified)));
    }
    Ok((None, None))
}

fn measured(how: &Verification, observer: &impl Observer, what: &str) -> Result<Rate, Error> {
    observer.measuring(what);
    let rate = measure(how.to, how.port, how.time, how.reverse);
    observer.measured(rate.as_ref().ok().copied());
    rate
}

/// One transfer over a connection of its own; what arrived counts.
fn measure(to: IpAddr, port: u16, time: Duration, reverse: bool) -> Result<Rate, Error> {
    let mode = if reverse { Mode::Reverse } else { Mode::Forward };
    let place = Server {
        host: to.to_string(),
        port,
        family: Family::Any,
        bind: None,
        connect_timeout: Some(PATIENCE),
    };
    // A plan predicts the steady-state rate: the start is left out.
    let params = Params { time, mode, omit: time / START, ..Params::default() };
    let client = Client { place, params, interval: Duration::ZERO, length: None };
    let end = client::run(&client, &mut Quiet, &Stop::new()?)?.end;
    let told = end.sum_received.is_some() || end.sum_sent.is_some();
    told.then(|| end.arrived()).ok_or_else(|| {
        Error::new("the server did not report what arrived", "check that iperf3 -s runs on the peer")
    })
}

/// The first part of a measurement, one in this many, is left out.
const START: u64 = 4;
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A test of which only the end matters.
struct Quiet;

impl Watch for Quiet {
    fn start(&mut self, _: &Start) {}
    fn row(&mut self, _: i32, _: &Row, _: bool) {}
    fn interval(&mut self, _: Interval) {}
}
