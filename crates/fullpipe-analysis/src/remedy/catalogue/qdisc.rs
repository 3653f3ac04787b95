//! Queueing disciplines: fq on the sender, which paces every flow, and CAKE at the bottleneck.

use fullpipe_lab::host::Change as HostChange;
use fullpipe_measurement::classify::Limit;
use fullpipe_path::{Discipline, FqCodelConfig};

use crate::remedy::{
    Change, Command, Commands, Cost, Decision, Gain, Host, HostCase, Mechanism, Part, Proposal, Remedy,
    Scope, Usage, Way, What,
};

/// Paces every flow, so that a short queue does not drop the tail of a burst.
pub(super) static PACING: Remedy = Remedy {
    name: "pacing",
    change: Change::Pacing,
    lifts: &[Limit::Cwnd],
    usage: Usage::ByHand,
    title: |_| "pacing with fq on the sender".into(),
    backlog: None,
    parts: &[Part {
        what: What::QUEUEING_DISCIPLINE,
        hosts: &[Host::Sender],
        scope: Scope::System,
        commands: Commands::Run(|_, _| vec![fair_queue()]),
        cost: |_, _| COST,
        plan: None,
    }],
};

/// Shortens the queue, and therefore the RTT under load, at the same rate.
pub(super) static MANAGED_QUEUE: Remedy = Remedy {
    name: "managed_queue",
    change: MANAGED,
    lifts: &[],
    usage: Usage::ByHand,
    title: |_| "a managed queue at the bottleneck".into(),
    backlog: None,
    parts: &[Part {
        what: What::BOTTLENECK_QUEUE,
        hosts: &[Host::Sender],
        scope: Scope::System,
        commands: Commands::Run(|_, _| vec![cake()]),
        cost: |_, _| COST,
        plan: None,
    }],
};

impl What {
    /// Queueing discipline of the sender, necessary if the kernel does not pace in TCP.
    pub const QUEUEING_DISCIPLINE: Self = Self("queueing_discipline");
    /// Queue at the bottleneck.
    pub const BOTTLENECK_QUEUE: Self = Self("bottleneck_queue");
}

pub(crate) const MANAGED: Change = Change::Queue(Discipline::FqCodel(FqCodelConfig::RFC8290));
pub(super) const COST: Cost = Cost::Words("replaces the present queueing discipline of the device");
const DEFAULT_KEY: &str = "net.core.default_qdisc";

/// Returns the command that replaces the root queueing discipline of `device`.
fn replace(device: &str, discipline: &str, requires: &str) -> Command {
    Command {
        run: format!("tc qdisc replace dev {device} root {discipline}"),
        host: Host::Sender,
        scope: Scope::System,
        undo: format!("tc qdisc del dev {device} root"),
        requires: Some(requires.into()),
        sets: Some(Mechanism::Qdisc),
    }
}

/// Returns the command for fq on an unknown device.
pub(super) fn fair_queue() -> Command {
    replace(
        "DEV",
        "fq",
        "replaces the present queueing discipline of DEV, which tc qdisc show dev DEV prints",
    )
}

/// Returns the command for CAKE. The queue forms in CAKE only if CAKE is the slowest hop, so the rate of CAKE
/// must be below the link rate.
fn cake() -> Command {
    let requires = "RATE is 95 % of the rate of the bottleneck link, and DEV is the device that leads to \
                    that link, on the sender or on the router before the link; replaces the present \
                    queueing discipline of DEV";
    replace("DEV", "cake bandwidth RATE", requires)
}

/// Proposes fq on the device on the route to the peer, and as the default for new devices.
pub(super) fn propose_fair_queue(host: &HostCase<'_>, why: String, gain: &str) -> Decision {
    let here = host.here(Host::Sender);
    let before = host.local.settings.default_qdisc.clone().filter(|_| here);
    let device = host.route().map_or("DEV", |route| &route.device);
    let by_hand = replace(
        device,
        "fq",
        "run this by hand: --apply sets only the default qdisc, which applies to devices that \
                               come up later",
    );
    let change = HostChange::Setting { key: DEFAULT_KEY.into(), value: "fq".into() };
    // Do not plan the change without a present value, because the key exists only in the initial network
    // namespace.
    let change = here.then_some(change).filter(|_| before.is_some());
    let default = Command::set(
        Host::Sender,
        DEFAULT_KEY,
        "fq",
        before.as_deref().unwrap_or("pfifo_fast"),
        Some("run this on the host, outside containers".into()),
    );
    Decision::Propose(Box::new(Proposal {
        host: Host::Sender,
        here,
        present: before,
        new: "fq".into(),
        why,
        gain: Gain::words(gain),
        cost: COST,
        ways: vec![Way::by_hand(by_hand), Way { applied: change.is_some(), change, command: default }],
        until_then: None,
    }))
}
