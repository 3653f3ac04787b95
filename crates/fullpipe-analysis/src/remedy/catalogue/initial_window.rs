//! A larger initial window, for connections that carry little data on a long path.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::Change as HostChange;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_tcp::cc::INITIAL_SEGMENTS;
use fullpipe_units::{Bytes, Duration};

use super::congestion_control::{self, BBR};
use crate::remedy::{
    Change, Command, Commands, Cost, Decision, Gain, Host, HostCase, Part, Proposal, Remedy, Scope, Usage,
    Way, What,
};

pub(super) static REMEDY: Remedy = Remedy {
    name: "initial_window",
    change: Change::InitialWindow(LONG_INITCWND),
    lifts: &[Limit::SlowStart],
    usage: Usage::OnRequest,
    title: |_| "a larger initial window on the sender".into(),
    backlog: None,
    parts: &[Part {
        what: What::INITCWND,
        hosts: &[Host::Sender],
        scope: Scope::Route,
        commands: Commands::Run(|_, _| vec![on_unknown_route(LONG_INITCWND)]),
        cost: |_, _| Cost::Burst(LONG_INITCWND),
        plan: Some(plan),
    }],
};

impl What {
    /// Initial window of new connections.
    pub const INITCWND: Self = Self("initcwnd");
}

/// Initial window for a long path, in segments. A typical queue of about 100 packets absorbs a burst of this
/// size.
const LONG_INITCWND: u32 = 32;
/// RTT below which slow start costs little time.
pub(super) const LONG_PATH: Duration = Duration::from_millis(50);
/// Size of a transfer that is mostly slow start.
const SHORT_TRANSFER: Bytes = Bytes::from_kib(640);

fn on_unknown_route(segments: u32) -> Command {
    let requires = "the route that ip route get RECEIVER prints; fullpipe tune --to finds it";
    Command::unknown_route(&format!("initcwnd {segments}"), Some(requires.into()))
}

fn plan(host: &HostCase<'_>) -> Result<Decision, RunPanicked> {
    let left = |why: &str| Ok(Decision::leave(why));
    if !host.here(Host::Sender) {
        return left("this is a setting of the sender");
    }
    let now = host.route().and_then(|route| route.initcwnd).unwrap_or(INITIAL_SEGMENTS as u32);
    let bdp = u32::try_from(host.case.bdp.get() / DEFAULT_MSS.get()).unwrap_or(u32::MAX);
    let new = LONG_INITCWND.min(bdp / 4);
    if host.case.rtt < LONG_PATH || new <= now {
        return left("slow start is short on this path, or the initial window is already this large");
    }
    let took = |segments| {
        host.trials.short_transfer(host.present.with(Change::InitialWindow(segments)), SHORT_TRANSFER)
    };
    let gain = match (took(now), took(new)) {
        (Some(before), Some(after)) if after < before => Gain::time(
            format!(
                "a transfer of {SHORT_TRANSFER} takes {after} instead of {before} (simulated without loss)"
            ),
            before,
            after,
        ),
        _ => return left("short transfers would not be faster (simulated)"),
    };
    let (command, change) = match host.route() {
        Some(route) => {
            // A user who applies the plan by hand has already run the command for the congestion control.
            let changes = host.makes(congestion_control::CHANGE);
            let congctl = if changes { Some(BBR) } else { route.congctl.as_deref() };
            let (run, undo) = host.route_commands(congctl, Some(new));
            let destination = route.destination;
            let change = HostChange::Route { destination, congctl: None, initcwnd: Some(new) };
            (Command::route(run, undo, None), Some(change))
        }
        None => (on_unknown_route(new), None),
    };
    let applied = change.is_some() && host.asked_for(What::INITCWND);
    Ok(Decision::Propose(Box::new(Proposal {
        host: Host::Sender,
        here: true,
        present: Some(now.to_string()),
        new: new.to_string(),
        why: "short connections end before slow start has filled the link; bulk transfers do not need a \
              larger initial window"
            .into(),
        gain,
        cost: Cost::Burst(new),
        ways: vec![Way { command, change, applied }],
        until_then: None,
    })))
}
