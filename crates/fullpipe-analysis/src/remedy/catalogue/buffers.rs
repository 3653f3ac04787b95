//! Larger buffers: the limits of autotuning on both hosts, and the switches that keep buffers and windows
//! small.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::Change as HostChange;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_units::{Bytes, Rate};

use crate::remedy::sizes::{BDPS, TRIED_BDPS, rcvbuf_for, sndbuf_for};
use crate::remedy::{
    BufferHosts, Case, Change, Command, Commands, Cost, Decision, End, Gain, Host, HostCase, Order, Part,
    Proposal, Remedy, Scope, State, Step, Transition, Usage, Way, What,
};

/// Raises the buffers until the usable window no longer limits the transfer. Often both hosts need larger
/// buffers: if only one buffer is raised, the other becomes the limit at nearly the same rate.
pub(super) static REMEDY: Remedy = Remedy {
    name: "buffers",
    change: CHANGE,
    lifts: &[Limit::Rwnd, Limit::Sndbuf],
    // Without a simulation, the BDP alone decides whether the buffers are large enough.
    usage: Usage::Ladder {
        by_rule: |_| true,
        steps: &[
            Step { order: Order::ThisHost(Host::Sender), lifts: &[Limit::Sndbuf], sizes: &OF_SENDER },
            Step { order: Order::ThisHost(Host::Receiver), lifts: &[Limit::Rwnd], sizes: &OF_RECEIVER },
            Step { order: Order::BothHosts, lifts: &[Limit::Rwnd, Limit::Sndbuf], sizes: &OF_BOTH },
        ],
    },
    title,
    backlog: None,
    parts: &[
        Part {
            what: What::TCP_WMEM,
            hosts: &[Host::Sender],
            scope: Scope::System,
            commands: Commands::Run(|case, state| Vec::from_iter(raise(&WMEM, case, state))),
            cost: |case, state| Cost::Memory((WMEM.wanted)(case, state)),
            plan: Some(|host| Ok(plan_limit(&WMEM, host))),
        },
        Part {
            what: What::TCP_RMEM,
            hosts: &[Host::Receiver],
            scope: Scope::System,
            commands: Commands::Run(|case, state| Vec::from_iter(raise(&RMEM, case, state))),
            cost: |case, state| Cost::Memory((RMEM.wanted)(case, state)),
            plan: Some(|host| Ok(plan_limit(&RMEM, host))),
        },
        Part {
            what: What::TCP_WINDOW_SCALING,
            hosts: &[Host::Sender, Host::Receiver],
            scope: Scope::System,
            commands: Commands::Run(|case, _| switch_on(&WINDOW_SCALING, case)),
            cost: |_, _| WINDOW_SCALING.cost,
            plan: Some(|host| plan_switch(&WINDOW_SCALING, host)),
        },
        Part {
            what: What::TCP_MODERATE_RCVBUF,
            hosts: &[Host::Receiver],
            scope: Scope::System,
            commands: Commands::Run(|case, _| switch_on(&MODERATE_RCVBUF, case)),
            cost: |_, _| MODERATE_RCVBUF.cost,
            plan: Some(|host| plan_switch(&MODERATE_RCVBUF, host)),
        },
    ],
};

impl What {
    /// `tcp_wmem[2]` of the sender.
    pub const TCP_WMEM: Self = Self("tcp_wmem");
    /// `tcp_rmem[2]` of the receiver.
    pub const TCP_RMEM: Self = Self("tcp_rmem");
    /// `tcp_window_scaling`: without it no window exceeds 64 KiB.
    pub const TCP_WINDOW_SCALING: Self = Self("tcp_window_scaling");
    /// `tcp_moderate_rcvbuf`: without it receive buffers are not autotuned.
    pub const TCP_MODERATE_RCVBUF: Self = Self("tcp_moderate_rcvbuf");
}

/// Change that is made if no simulation chooses the size.
pub(crate) const CHANGE: Change = Change::Buffers { bdps: BDPS, hosts: BufferHosts::Both };

static OF_SENDER: [Change; TRIED_BDPS.len()] = sizes(BufferHosts::Sender);
static OF_RECEIVER: [Change; TRIED_BDPS.len()] = sizes(BufferHosts::Receiver);
pub(crate) static OF_BOTH: [Change; TRIED_BDPS.len()] = sizes(BufferHosts::Both);

const fn sizes(hosts: BufferHosts) -> [Change; TRIED_BDPS.len()] {
    let mut sizes = [CHANGE; TRIED_BDPS.len()];
    let mut nth = 0;
    while nth < sizes.len() {
        sizes[nth] = Change::Buffers { bdps: TRIED_BDPS[nth], hosts };
        nth += 1;
    }
    sizes
}

/// Names the usable window, the hosts whose buffers differ, and the memory that one connection may take on
/// these hosts.
fn title(step: &Transition) -> String {
    let Transition { before, after, buffers: (send, receive) } = step;
    let (sends, receives) = (after.sndbuf != before.sndbuf, after.rcvbuf != before.rcvbuf);
    let bdps = after.sndbuf.filter(|_| sends).max(after.rcvbuf.filter(|_| receives)).unwrap_or(BDPS);
    let hosts = match (sends, receives) {
        (true, false) => format!("the sender ({send} per connection)"),
        (false, true) => format!("the receiver ({receive} per connection)"),
        _ => format!("both hosts ({send} to send and {receive} to receive per connection)"),
    };
    format!("buffers for {bdps} x BDP on {hosts}")
}

/// A buffer limit: the third number of `tcp_wmem` or `tcp_rmem`.
struct Triple {
    host: Host,
    key: &'static str,
    /// File that saves the present triple if it is unknown to fullpipe.
    file: &'static str,
    current: fn(&HostSettings) -> Option<[Bytes; 3]>,
    requires: Option<&'static str>,
    /// Returns the buffer limit that a state needs for its usable window.
    wanted: fn(&Case<'_>, State) -> Bytes,
    /// Returns the usable window of this endpoint's buffer in a state, in BDPs.
    bdps: fn(State) -> Option<u64>,
    /// Selects this endpoint of a case. The next two functions select the buffer of this endpoint, and the
    /// rate that the buffer allows.
    end: for<'a> fn(&'a HostCase<'a>) -> &'a End,
    of_buffers: fn((Bytes, Bytes)) -> Bytes,
    of_ceilings: fn((Rate, Rate)) -> Rate,
    why: fn(&Case<'_>) -> String,
    until_then: fn(Rate) -> String,
}

static WMEM: Triple = Triple {
    host: Host::Sender,
    key: "net.ipv4.tcp_wmem",
    file: "tcp_wmem.before",
    current: |settings| settings.tcp_wmem,
    requires: None,
    wanted: |case, state| sndbuf_for(case.bdp, state.sndbuf.unwrap_or(BDPS)),
    bdps: |state| state.sndbuf,
    end: |host| &host.sender,
    of_buffers: |(send, _)| send,
    of_ceilings: |(_, sndbuf)| sndbuf,
    why: |case| {
        format!(
            "the send buffer keeps data in flight, {} on a full link, until the receiver acknowledges it, \
             and up to a third of the buffer may be unused",
            case.bdp
        )
    },
    until_then: |rate| format!("until the sender is changed too, its send buffer allows no more than {rate}"),
};

static RMEM: Triple = Triple {
    host: Host::Receiver,
    key: "net.ipv4.tcp_rmem",
    file: "tcp_rmem.before",
    current: |settings| settings.tcp_rmem,
    requires: Some("new connections, because the handshake fixes the window scale"),
    wanted: |case, state| rcvbuf_for(case.bdp, state.rcvbuf.unwrap_or(BDPS), case.rule),
    bdps: |state| state.rcvbuf,
    end: |host| &host.receiver,
    of_buffers: |(_, receive)| receive,
    of_ceilings: |(window, _)| window,
    why: |case| {
        format!(
            "the receive buffer limits the window ({}), and a full link needs {} in flight",
            case.rule, case.bdp
        )
    },
    until_then: |rate| format!("until the receiver is changed too, its window allows no more than {rate}"),
};

/// Returns the command that raises the limit for a state; `None` if the state does not change this limit, or
/// if the limit is large enough already. Limits are never lowered.
fn raise(triple: &Triple, case: &Case<'_>, state: State) -> Option<Command> {
    (triple.bdps)(state)?;
    let current = case.buffers_of(triple.host).and_then(triple.current);
    raise_to(triple, current, (triple.wanted)(case, state))
}

fn raise_to(triple: &Triple, current: Option<[Bytes; 3]>, target: Bytes) -> Option<Command> {
    let Triple { host, key, file, .. } = triple;
    let (target, requires) = (target.get(), triple.requires.map(str::to_owned));
    Some(match current {
        Some([_, _, most]) if most.get() >= target => return None,
        Some([least, first, most]) => {
            let triple = |most: u64| format!("\"{} {} {most}\"", least.get(), first.get());
            Command::set(*host, key, &triple(target), &triple(most.get()), requires)
        }
        // The old value is saved, and the third number is only ever raised.
        None => {
            let raised = format!("\"$(awk '{{print $1, $2, ($3 > {target} ? $3 : {target})}}' {file})\"");
            Command::save_and_set(*host, key, &raised, file, requires)
        }
    })
}

fn plan_limit(triple: &Triple, host: &HostCase<'_>) -> Decision {
    let HostCase { case, present, reached, trials, .. } = host;
    let (here, end) = (host.here(triple.host), (triple.end)(host));
    // If the ladder raised this buffer, the ladder also chose its size.
    let raised = (triple.bdps)(*reached);
    let larger = if raised.is_some() { *reached } else { present.with(CHANGE) };
    let wanted = (triple.wanted)(case, larger);
    if end.buffer >= wanted {
        return Decision::Leave(format!(
            "{} is enough for the BDP of {} (needed: {wanted})",
            end.buffer, case.bdp
        ));
    }
    let target = (triple.of_buffers)(trials.buffers(larger));
    if target <= end.buffer {
        return Decision::Leave(format!(
            "{wanted} would be needed, but this host's memory allows only {} for {}",
            end.room,
            each_flow(host.flows)
        ));
    }
    let Some(bdps) = raised else {
        return Decision::leave(match (trials.rate(*present), trials.rate(larger)) {
            (Some(now), Some(larger)) => {
                format!("larger buffers would reach {larger} instead of {now} (simulated)")
            }
            _ => "larger buffers would change nothing here".into(),
        });
    };
    let current = (triple.current)(&host.local.settings).filter(|_| here);
    let Some(command) = raise_to(triple, current, target) else {
        return Decision::Leave(format!("{} is enough", end.buffer));
    };
    let words = |[least, first, _]: [Bytes; 3], most: Bytes| {
        format!("{} {} {}", least.get(), first.get(), most.get())
    };
    let value = current.map(|triple| words(triple, target));
    let change = value.clone().map(|value| HostChange::Setting { key: triple.key.into(), value });
    let mut why = format!("{}: {bdps} x BDP", (triple.why)(case));
    if target < wanted {
        why += &format!(
            "; the rule requires {wanted}, but this host's memory allows no larger buffer for {}",
            each_flow(host.flows)
        );
    }
    // Until the buffer is raised, it is a limit only if it allows less than the planned rate.
    let ceiling = (triple.of_ceilings)(trials.ceilings(reached.without(CHANGE, *present)));
    let holds = trials.rate(*reached).is_none_or(|planned| ceiling < planned);
    Decision::Propose(Box::new(Proposal {
        host: triple.host,
        here,
        present: current.map(|triple| words(triple, triple[2])),
        new: value.unwrap_or_else(|| format!("{} as the third number", target.get())),
        why,
        gain: host.gain(CHANGE),
        cost: Cost::Memory(target),
        ways: vec![Way { command, applied: change.is_some(), change }],
        until_then: holds.then(|| (triple.until_then)(ceiling)),
    }))
}

/// A switch that keeps windows or buffers small while it is off.
struct Switch {
    key: &'static str,
    hosts: &'static [Host],
    is_on: fn(&HostSettings) -> Option<bool>,
    why: &'static str,
    cost: Cost,
}

static WINDOW_SCALING: Switch = Switch {
    key: "net.ipv4.tcp_window_scaling",
    hosts: &[Host::Sender, Host::Receiver],
    is_on: |settings| settings.window_scaling,
    why: "without window scaling, no window exceeds 64 KiB",
    cost: Cost::Words("none known; new connections only"),
};

static MODERATE_RCVBUF: Switch = Switch {
    key: "net.ipv4.tcp_moderate_rcvbuf",
    hosts: &[Host::Receiver],
    is_on: |settings| settings.moderate_rcvbuf,
    why: "without this setting, a receive buffer keeps its initial size",
    cost: Cost::Words("memory, for each busy connection"),
};

/// Names the flows that share the memory of a host.
fn each_flow(flows: u64) -> String {
    if flows == 1 { "one flow".into() } else { format!("each of {flows} flows") }
}

/// Returns the commands that turn on a switch, if it is known to be off.
fn switch_on(switch: &Switch, case: &Case<'_>) -> Vec<Command> {
    let is_off = |host: &&Host| {
        case.buffers_of(**host).is_some_and(|settings| (switch.is_on)(settings) == Some(false))
    };
    switch.hosts.iter().filter(is_off).map(|host| Command::switch_on(*host, switch.key)).collect()
}

fn plan_switch(switch: &Switch, host: &HostCase<'_>) -> Result<Decision, RunPanicked> {
    let here = switch.hosts.iter().find(|end| host.here(**end));
    let Some(end) = here.filter(|_| (switch.is_on)(&host.local.settings) == Some(false)) else {
        return Ok(Decision::Skip);
    };
    Ok(Decision::Propose(Box::new(Proposal {
        host: *end,
        here: true,
        present: Some("0".into()),
        new: "1".into(),
        why: switch.why.into(),
        gain: Gain::words("not simulated; the rates of this plan assume that this setting is on"),
        cost: switch.cost,
        ways: vec![Way {
            command: Command::switch_on(*end, switch.key),
            change: Some(HostChange::Setting { key: switch.key.into(), value: "1".into() }),
            applied: true,
        }],
        until_then: None,
    })))
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::buffers::WindowRule;
    use fullpipe_tcp::cc::Algorithm;

    use super::*;
    use crate::remedy::made::case;

    /// 1 Gbit/s at 210 ms.
    const BDP: Bytes = Bytes::new(26_250_000);
    /// 1.5 x 65/64 x 1.29 and 4/3 of 2 BDP and eight segments, in whole pages.
    const WANTED: [u64; 2] = [102_981_632, 70_017_024];

    fn host(text: &str) -> HostSettings {
        HostSettings::parse(text).unwrap()
    }

    /// Returns the commands that raise the buffers of two hosts with these settings.
    fn raised(rule: WindowRule, settings: Option<&HostSettings>) -> Vec<Command> {
        let case = Case { bdp: BDP, rule, sender_buffers: settings, receiver_buffers: settings, ..case() };
        REMEDY.commands(&case, State::present(Algorithm::Cubic).with(CHANGE))
    }

    #[test]
    fn both_hosts_get_a_usable_window_and_core_limits_are_left_alone() {
        let current = host("net.ipv4.tcp_wmem = 4096 16384 4194304\nnet.ipv4.tcp_rmem = 4096 87380 4194304");
        let commands = raised(WindowRule::AdvWinScale(2), Some(&current));
        let [wmem, rmem] = commands.as_slice() else { panic!("{commands:?}") };
        assert_eq!(wmem.host, Host::Sender);
        assert_eq!(wmem.run, "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 102981632\"");
        assert_eq!(wmem.undo, "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\"");
        assert_eq!(rmem.host, Host::Receiver);
        assert_eq!(rmem.run, "sysctl -w net.ipv4.tcp_rmem=\"4096 87380 70017024\"");
        assert!(commands.iter().all(|c| !c.run.contains("core")));
    }

    #[test]
    fn nothing_is_ever_lowered() {
        let ample =
            host("net.ipv4.tcp_wmem = 4096 16384 134217728\nnet.ipv4.tcp_rmem = 4096 87380 134217728");
        assert_eq!(raised(WindowRule::AdvWinScale(1), Some(&ample)), []);
        let unknown = raised(WindowRule::AdvWinScale(2), None);
        for (command, wanted) in unknown.iter().zip(WANTED) {
            assert!(command.run.contains(&format!("$3 > {wanted} ? $3 : {wanted}")), "{}", command.run);
        }
        assert_eq!(unknown[1].undo, "sysctl -w net.ipv4.tcp_rmem=\"$(cat tcp_rmem.before)\"");
    }

    /// A small send buffer on the sender is no reason to change the receiver.
    #[test]
    fn what_is_raised_on_one_host_is_commanded_on_that_host() {
        let present = State::present(Algorithm::Cubic);
        let hosts = |hosts| {
            let state = present.with(Change::Buffers { bdps: 1, hosts });
            let title = title(&Transition { before: present, after: state, buffers: (BDP, BDP) });
            (REMEDY.commands(&case(), state).into_iter().map(|c| c.host).collect::<Vec<_>>(), title)
        };
        let (sender, title) = hosts(BufferHosts::Sender);
        assert_eq!(
            (sender, title.as_str()),
            (vec![Host::Sender], "buffers for 1 x BDP on the sender (25 MiB per connection)")
        );
        assert_eq!(hosts(BufferHosts::Receiver).0, [Host::Receiver]);
        assert_eq!(hosts(BufferHosts::Both).0, [Host::Sender, Host::Receiver]);
    }

    #[test]
    fn switches_that_hold_the_window_back_are_turned_on() {
        let off = host("net.ipv4.tcp_window_scaling = 0\nnet.ipv4.tcp_moderate_rcvbuf = 0");
        let runs: Vec<String> =
            raised(WindowRule::AdvWinScale(1), Some(&off)).into_iter().map(|c| c.run).collect();
        assert_eq!(runs.iter().filter(|run| run.contains("window_scaling=1")).count(), 2);
        assert_eq!(runs.iter().filter(|run| run.contains("moderate_rcvbuf=1")).count(), 1);
    }
}
