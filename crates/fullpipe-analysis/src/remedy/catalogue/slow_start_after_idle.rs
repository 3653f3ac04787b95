//! No slow start after an idle period, for applications that send in bursts.

use std::fmt::{self, Display, Formatter};

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::Change as HostChange;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::thresholds::rate;
use fullpipe_units::{Bytes, Duration};

use super::initial_window::LONG_PATH;
use crate::remedy::{
    Change, Command, Commands, Cost, Decision, Gain, Host, HostCase, Part, Proposal, Remedy, Scope, Usage,
    Way, What,
};

pub(super) static REMEDY: Remedy = Remedy {
    name: "slow_start_after_idle",
    change: Change::NoSlowStartAfterIdle,
    lifts: &[Limit::SlowStart],
    usage: Usage::OnRequest,
    title: |_| "no slow start after a pause on the sender".into(),
    backlog: None,
    parts: &[Part {
        what: What::SLOW_START_AFTER_IDLE,
        hosts: &[Host::Sender],
        scope: Scope::System,
        commands: Commands::Run(|_, _| vec![switch_off()]),
        cost: |_, _| COST,
        plan: Some(plan),
    }],
};

impl What {
    /// `tcp_slow_start_after_idle` of the sender.
    pub const SLOW_START_AFTER_IDLE: Self = Self("slow_start_after_idle");
}

const COST: Cost = Cost::Words(
    "after a pause, the sender sends a whole window at once, even if the path can no longer carry it",
);
const KEY: &str = "net.ipv4.tcp_slow_start_after_idle";
/// Maximum size of the simulated burst. If the BDP is smaller, the burst is one BDP, which needs the whole
/// window.
const LARGEST_BURST: Bytes = Bytes::from_mib(8);
/// Divisor of the burst size, for a second simulation if the whole burst gains nothing. Without slow start, a
/// burst leaves at the host's rate. With its headers, a burst of one BDP is larger than a queue of one BDP,
/// and overflows it.
const SMALLER_BURST: u64 = 2;

fn switch_off() -> Command {
    Command::set(Host::Sender, KEY, "0", "1", None)
}

/// Simulated time of a burst after a pause, with slow start and without.
struct Burst {
    size: Bytes,
    before: Duration,
    after: Duration,
}

impl Burst {
    fn gains(&self) -> bool {
        self.after < self.before.mul_div(rate::TIME_WORTH.0, rate::TIME_WORTH.1)
    }

    /// Returns the gain; `beside` is a clause about the time that a larger burst takes.
    fn gain(&self, beside: String) -> Gain {
        Gain::time(format!("a burst of {self} (simulated){beside}"), self.before, self.after)
    }
}

impl Display for Burst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { size, before, after } = self;
        if self.gains() || after.mul_div(rate::TIME_WORTH.0, rate::TIME_WORTH.1) > *before {
            write!(f, "{size} after a pause takes {after} instead of {before}")
        } else {
            write!(f, "{size} after a pause takes {before} either way")
        }
    }
}

fn plan(host: &HostCase<'_>) -> Result<Decision, RunPanicked> {
    let left = |why: String| Ok(Decision::Leave(why));
    if !host.here(Host::Sender) {
        return left("this is a setting of the sender".into());
    }
    if host.local.settings.slow_start_after_idle != Some(true) {
        return left("the setting is already off, or this kernel does not have it".into());
    }
    let reached = host.reached;
    if reached.cc.is_rate_based() {
        return left(
            "BBR keeps its model of the path while it is idle, so this setting has no effect".into(),
        );
    }
    if host.case.rtt < LONG_PATH {
        return left("slow start is short on this path".into());
    }
    let largest = host.case.bdp.min(LARGEST_BURST);
    let simulated = |size: Bytes| {
        let took = |state| host.trials.burst_after_pause(state, size);
        let (before, after) = took(reached).zip(took(reached.with(REMEDY.change)))?;
        Some(Burst { size, before, after })
    };
    let gain = match simulated(largest) {
        Some(burst) if burst.gains() => burst.gain(String::new()),
        Some(burst) => match simulated(largest.mul_div(1, SMALLER_BURST)) {
            Some(smaller) if smaller.gains() => smaller.gain(format!("; one of {burst}")),
            _ => return left(format!("a burst of {burst} (simulated)")),
        },
        None => return left("bursts of this size do not complete on this path (simulated)".into()),
    };
    Ok(Decision::Propose(Box::new(Proposal {
        host: Host::Sender,
        here: true,
        present: Some("1".into()),
        new: "0".into(),
        why: "the window shrinks during a pause, so the next burst begins with slow start; a transfer \
              without pauses is not affected"
            .into(),
        gain,
        cost: COST,
        ways: vec![Way {
            command: switch_off(),
            change: Some(HostChange::Setting { key: KEY.into(), value: "0".into() }),
            applied: host.asked_for(What::SLOW_START_AFTER_IDLE),
        }],
        until_then: None,
    })))
}
