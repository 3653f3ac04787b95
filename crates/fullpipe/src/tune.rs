//! Tunes the TCP settings of a host and the route to a peer: plan, trial, confirmation and rollback.
//!
//! ```text
//!   local_host ──► plan ──► apply ──► confirm
//!                      └──► verify      └──► rollback, or automatically at the end of the trial
//! ```
//!
//! [`fullpipe_analysis::tune`] computes the plan without I/O; [`fullpipe_linux::tune`] changes the host.

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

/// Name and version of the format of [`StatusReport`].
const STATUS_SCHEMA: &str = "fullpipe.tune.status/1";

/// Reads the kernel settings of the host `place`, and the route from that host to `peer`.
///
/// # Errors
/// Returns an error if the settings cannot be read, or if the target has no routes.
pub fn local_host(place: &Target, peer: Option<IpAddr>) -> Result<LocalHost, Error> {
    if peer.is_some() && place.is_imitated() {
        return Err(Error::usage(
            "--to requires routes, which the folder of --root does not have",
            "remove --to or add --netns",
        ));
    }
    let facts = host::facts(place, &KEYS, peer)?;
    LocalHost::new(facts).map_err(|error| Error::from(error).about("this host"))
}

/// Facts about the path and the hosts, from which a plan is computed. The report supplies the values that are
/// missing here.
#[derive(Clone, Debug, Default)]
pub struct PlanRequest {
    /// Facts about the path. All flows over the path share the memory of the host.
    pub path: PathFacts,
    /// Role of this host in the transfer: sender or receiver.
    pub role: Option<Role>,
    /// Address of the peer. With a peer, the plan applies only to connections to that peer.
    pub to: Option<IpAddr>,
    /// Optional settings that the plan includes.
    pub with: Vec<What>,
    /// Kernel settings of the peer's host.
    pub peer: HostSettings,
    /// Facts from a diagnosis report; `None` if there is no report.
    pub report: Option<FromReport>,
}

impl PlanRequest {
    /// Creates a request for a plan from the facts in `diagnosis`.
    pub fn of(diagnosis: &Diagnosis) -> Self {
        Self { report: Some(FromReport::of(diagnosis)), ..Self::default() }
    }
}

/// Determines the inputs of a plan from the request.
///
/// # Errors
/// Returns an error if the link rate or the RTT is unknown.
pub fn plan_inputs(request: PlanRequest) -> Result<PlanInputs, Error> {
    let has_report = request.report.is_some();
    let missing = |what: &str, example: &str| {
        let message = if has_report {
            format!("the report does not contain {what}")
        } else {
            format!("a plan requires {what}")
        };
        Error::usage(message, format!("pass {example}, or --from with a report of fullpipe diagnose --json"))
    };
    let report = request.report.unwrap_or_default();
    let path = request.path.or(report.path);
    path.link.ok_or_else(|| missing("the rate of the link", "--link 1gbit"))?;
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

/// Computes the tuning plan for a host.
///
/// # Errors
/// Returns an error if the path is not plausible, or if the simulator has a defect.
pub fn plan(host: &LocalHost, inputs: &PlanInputs, observer: &impl Observer) -> Result<Plan, Error> {
    Ok(fullpipe_analysis::tune::plan(host, inputs, crate::JobRelay(observer))?)
}

/// A tuning plan, and the results of applying and verifying it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Outcome<'a> {
    /// Plan with the proposed changes.
    #[serde(flatten)]
    pub plan: &'a Plan,
    /// Changes that were applied; null unless the plan was applied.
    pub applied: Option<AppliedChanges>,
    /// Result of comparing the throughput with and without the changes; null unless the plan was verified.
    pub verified: Option<VerifyResult>,
}

/// Applies `changes` ([`Plan::changes`]) on trial for `revert_after`, or until they are rolled back. Returns
/// `None` if all changes are already in effect.
///
/// # Errors
/// Returns an error if the process lacks the privileges, if another process holds the lock, or if a change
/// failed. In each of these cases, nothing is changed.
pub fn apply(
    place: &Target,
    changes: &[Change],
    revert_after: Option<Duration>,
    guard: &Guard,
) -> Result<Option<AppliedChanges>, Error> {
    Ok(host::apply(place, changes, revert_after, guard, &mut |_| ())?)
}

/// Result of confirming the changes on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Confirmation {
    /// Number of changes that were confirmed.
    #[serde(rename = "confirmed")]
    pub changes: usize,
}

/// Confirms the changes on trial, so that they stay in effect and survive a reboot.
///
/// # Errors
/// Returns an error if no changes are on trial, if the process lacks the privileges, or if another process
/// holds the lock.
pub fn confirm(place: &Target) -> Result<Confirmation, Error> {
    Ok(Confirmation { changes: host::confirm(place, &mut |_| ())? })
}

/// Reverts the newest changes. With `force`, also restores values that another program has changed since.
/// Returns `None` if there are no changes to revert.
///
/// # Errors
/// Returns an error if the process lacks the privileges, or if another process holds the lock.
pub fn rollback(place: &Target, force: bool) -> Result<Option<TakenBack>, Error> {
    Ok(host::rollback(place, force, &mut |_| ())?)
}

/// Changes that fullpipe has applied to a host, and other sources that set the same keys.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatusReport {
    /// Name and version of the format of this document.
    #[schemars(extend("const" = STATUS_SCHEMA))]
    schema: &'static str,
    /// Sets of applied changes, from the oldest to the newest.
    pub states: Vec<State>,
    /// Files that set the same keys and are loaded after fullpipe's file.
    pub overrides: Vec<Override>,
    /// Programs on this host that may set the same keys.
    pub managers: Vec<String>,
}

/// Returns the status of fullpipe's changes to the host `place`.
///
/// # Errors
/// Returns an error if the journal cannot be read.
pub fn status(place: &Target) -> Result<StatusReport, Error> {
    let status = host::status(place)?;
    let overrides = overridden(place, &status);
    let Status { states, managers, .. } = status;
    Ok(StatusReport { schema: STATUS_SCHEMA, states, overrides, managers })
}

/// Returns the files that would override fullpipe's values at the next boot.
fn overridden(place: &Target, status: &Status) -> Vec<Override> {
    let mut set: BTreeMap<String, String> = BTreeMap::new();
    // fullpipe's file sets the newest value of each key.
    for change in status.states.iter().flat_map(|state| &state.changes) {
        set.insert(change.what.clone(), change.set.clone());
    }
    let set: Vec<(String, String)> = set.into_iter().collect();
    overrides(&place.owned().display().to_string(), &status.files, &set)
}

/// Parameters of a verification. A verification alternates measurements without and with the changes, so that
/// slow variations of the path do not bias the result.
#[derive(Clone, Copy, Debug)]
pub struct Verification {
    /// IP address of the iperf3 server.
    pub to: IpAddr,
    /// Port of the iperf3 server.
    pub port: u16,
    /// Number of rounds; each round consists of one measurement without the changes and one measurement with
    /// them.
    pub rounds: u32,
    /// Duration of each measurement of throughput.
    pub time: Duration,
    /// Whether the server is the sender.
    pub reverse: bool,
    /// Time for which the changes stay on trial after the verification; if `None`, changes with a gain are
    /// confirmed.
    pub revert_after: Option<Duration>,
}

/// Result of a verification: the measured rates, and whether they show a gain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VerifyResult {
    /// Whether the measurements show a gain in throughput.
    pub verdict: Verdict,
    /// Rates in bit/s that were measured without the changes.
    pub before_bps: Vec<u64>,
    /// Rates in bit/s that were measured with the changes.
    pub after_bps: Vec<u64>,
}

/// Alternates measurements without and with the changes. After the last measurement, the changes stay on
/// trial for `revert_after`.
///
/// ```text
///   round 1: before, apply, after, roll back     round 2: likewise     ...     last round: before, apply, after
/// ```
///
/// # Errors
/// Returns the same errors as [`apply`], or an error if the server does not answer. If the server does not
/// answer, the changes are rolled back.
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
        // A measurement may take longer than the trial time that the user chose, so the duration of the
        // measurement is added to the trial time.
        let long_enough = how.time * 2 + Duration::from_secs(60);
        let trial = how.revert_after.map(|time| time + how.time).unwrap_or(long_enough).max(long_enough);
        let applied = apply(place, changes, Some(trial), guard)?;
        let Some(applied) = applied else { return Ok((None, None)) };
        let rate = measured(how, observer, &format!("after, {round} of {}", how.rounds));
        let rate = rate.inspect_err(|_| {
            // If the rollback fails too, the trial still ends at its deadline.
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
        // The measurements have used up part of the trial time.
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

/// Measures the rate of one transfer over a new connection, as counted by the receiver.
fn measure(to: IpAddr, port: u16, time: Duration, reverse: bool) -> Result<Rate, Error> {
    let mode = if reverse { Mode::Reverse } else { Mode::Forward };
    let place = Server {
        host: to.to_string(),
        port,
        family: Family::Any,
        bind: None,
        connect_timeout: Some(PATIENCE),
    };
    // A plan predicts the steady-state rate, so the start of each transfer is omitted.
    let params = Params { time, mode, omit: time / START, ..Params::default() };
    let client = Client { place, params, interval: Duration::ZERO, length: None };
    let end = client::run(&client, &mut Quiet, &Stop::new()?)?.end;
    let told = end.sum_received.is_some() || end.sum_sent.is_some();
    told.then(|| end.arrived()).ok_or_else(|| {
        Error::new("the server did not report the received bytes", "check that iperf3 -s runs on the peer")
    })
}

/// Divisor for the omitted start of a measurement: a quarter of the duration is omitted.
const START: u64 = 4;
/// Timeout for connecting to the iperf3 server.
const PATIENCE: Duration = Duration::from_secs(10);

/// An observer that ignores the events of a test, because only its result is used.
struct Quiet;

impl Watch for Quiet {
    fn start(&mut self, _: &Start) {}
    fn row(&mut self, _: i32, _: &Row, _: bool) {}
    fn interval(&mut self, _: Interval) {}
}
