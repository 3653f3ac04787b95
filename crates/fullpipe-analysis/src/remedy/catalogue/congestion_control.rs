//! A rate-based congestion control on the sender: BBR as in mainline Linux.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::Change as HostChange;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_tcp::cc::Algorithm;

use super::qdisc;
use crate::remedy::{
    Case, Change, Command, Commands, Cost, Decision, Host, HostCase, Mechanism, Order, Part, Proposal,
    Remedy, Scope, State, Step, Usage, Way, What,
};

pub(super) static REMEDY: Remedy = Remedy {
    name: "bbr",
    change: CHANGE,
    lifts: &[Limit::Cwnd, Limit::SlowStart],
    // BBR tolerates loss that would reduce the window of a loss-based sender.
    usage: Usage::Ladder {
        by_rule: |case| !case.loss.is_zero(),
        steps: &[Step {
            order: Order::CongestionControl,
            lifts: &[Limit::Cwnd, Limit::SlowStart],
            sizes: &[CHANGE],
        }],
    },
    title: |_| "BBR on the sender".into(),
    backlog: None,
    parts: &[
        Part {
            what: What::CONGESTION_CONTROL,
            hosts: &[Host::Sender],
            scope: Scope::Socket,
            commands: Commands::Run(|case, _| commands(case.kernel, case.sender)),
            cost: |_, _| COST,
            plan: Some(plan),
        },
        Part {
            what: What::QUEUEING_DISCIPLINE,
            hosts: &[Host::Sender],
            scope: Scope::System,
            commands: Commands::Run(fair_queue),
            cost: |_, _| qdisc::COST,
            plan: Some(|host| Ok(plan_fair_queue(host))),
        },
    ],
};

impl What {
    /// Congestion control of the sender.
    pub const CONGESTION_CONTROL: Self = Self("congestion_control");
}

pub(super) const CHANGE: Change = Change::CongestionControl(Algorithm::Bbr1);
/// Name of BBR in the kernel.
pub(super) const BBR: &str = "bbr";
const COST: Cost = Cost::Words(
    "more retransmissions where the bottleneck queue is short, and a lower rate for CUBIC flows on the same \
     link; open connections keep their congestion control",
);
const KEY: &str = "net.ipv4.tcp_congestion_control";

fn is_default(sender: Option<&HostSettings>) -> bool {
    sender.and_then(|host| host.congestion_control.as_deref()) == Some(BBR)
}

/// Returns the commands for one socket, one route and the host; none if BBR is already the sender's default.
/// `kernel` takes precedence over the release in `sender`.
fn commands(kernel: Option<KernelVersion>, sender: Option<&HostSettings>) -> Vec<Command> {
    if is_default(sender) {
        return Vec::new();
    }
    let current = sender.and_then(|host| host.congestion_control.as_deref());
    let kernel = kernel.or(sender.and_then(|host| host.kernel));
    let needs = needs(kernel, sender);
    let requires = |extra: Option<String>| {
        let all: Vec<String> = needs.iter().cloned().chain(extra).collect();
        (!all.is_empty()).then(|| all.join("; "))
    };
    let allowed = sender.is_some_and(|host| host.allowed_congestion_control.iter().any(|a| a == BBR));
    let permission =
        (!allowed).then(|| format!("{BBR} in net.ipv4.tcp_allowed_congestion_control, or CAP_NET_ADMIN"));
    let call = format!(
        "setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, \"{BBR}\", {})  /* iperf3: -C {BBR} */",
        BBR.len()
    );
    let as_printed = Some("the route that ip route get RECEIVER prints".into());
    vec![
        Command::call(call, requires(permission)),
        Command::unknown_route(&format!("congctl {BBR}"), requires(as_printed)),
        match current {
            Some(current) => Command::set(Host::Sender, KEY, BBR, current, requires(None)),
            None => {
                Command::save_and_set(Host::Sender, KEY, BBR, "congestion_control.before", requires(None))
            }
        },
    ]
}

/// Returns whether BBR needs a pacing queueing discipline: kernels before 4.13 do not pace in TCP.
fn needs_fair_queue(kernel: Option<KernelVersion>) -> bool {
    kernel.is_some_and(|k| (KernelVersion::BBR..KernelVersion::INTERNAL_PACING).contains(&k))
}

/// Returns the prerequisites of BBR on this kernel.
fn needs(kernel: Option<KernelVersion>, sender: Option<&HostSettings>) -> Vec<String> {
    let mut needs = Vec::new();
    match kernel {
        Some(kernel) if kernel < KernelVersion::BBR => {
            needs.push(format!("kernel {} or newer (this is {kernel})", KernelVersion::BBR));
        }
        Some(_) if needs_fair_queue(kernel) => needs.push(format!(
            "the fq queueing discipline on DEV, because kernels before {} do not pace by themselves",
            KernelVersion::INTERNAL_PACING
        )),
        Some(_) => {}
        None => needs.push(format!(
            "kernel {} or newer; before {} also tc qdisc replace dev DEV root fq",
            KernelVersion::BBR,
            KernelVersion::INTERNAL_PACING
        )),
    }
    if sender.is_some_and(|host| host.lacks_congestion_control(BBR)) {
        needs.push(format!("modprobe tcp_{BBR}, because the host does not list {BBR}"));
    }
    needs
}

fn fair_queue(case: &Case<'_>, _: State) -> Vec<Command> {
    let kernel = case.kernel.or(case.sender.and_then(|host| host.kernel));
    let needed = !is_default(case.sender) && needs_fair_queue(kernel);
    needed.then(qdisc::fair_queue).into_iter().collect()
}

fn plan(host: &HostCase<'_>) -> Result<Decision, RunPanicked> {
    let now = host.present.cc;
    if now.is_rate_based() {
        return Ok(Decision::Leave(format!("{now} is already rate-based, so loss does not hold cwnd down")));
    }
    if !host.reached.has(CHANGE) {
        let (rate, loss) = (|state| host.trials.rate(state), host.case.loss);
        return Ok(Decision::leave(match (rate(host.reached), rate(host.reached.with(CHANGE))) {
            (Some(now_rate), Some(bbr)) => format!("BBR would reach {bbr} instead of {now_rate} (simulated)"),
            _ if loss.is_zero() => format!("without loss, nothing slows {now} down"),
            (Some(now_rate), None) => format!("{now} reaches {now_rate} at a loss of {loss} (simulated)"),
            (None, _) => format!("a loss of {loss} does not slow {now} down here"),
        }));
    }
    let here = host.here(Host::Sender);
    if here && !host.local.has_congestion_control(BBR) {
        let why = "BBR would help, but this kernel does not have it, neither built in nor as a module";
        return Ok(Decision::leave(why));
    }
    // The route's congestion control takes precedence over the host's default, which may already be BBR.
    let of_peer = host.local.congestion_control().map(str::to_owned);
    let settings = HostSettings { congestion_control: of_peer, ..host.local.settings.clone() };
    let has_default = here && is_default(Some(&host.local.settings));
    let commands = commands(Some(host.kernel), here.then_some(&settings));
    let mut ways: Vec<Way> = commands
        .into_iter()
        .filter(|command| command.scope != Scope::System || !has_default)
        .map(|command| way(host, command, here))
        .collect();
    // `--apply` uses the first way that can be applied, which has the narrowest scope.
    if let Some(way) = ways.iter_mut().find(|way| way.change.is_some()) {
        way.applied = true;
    }
    Ok(Decision::Propose(Box::new(Proposal {
        host: Host::Sender,
        here,
        present: here.then(|| host.local.congestion_control().map(str::to_owned)).flatten(),
        new: BBR.into(),
        why: "random loss holds the window of a loss-based sender down, however large the buffers are; BBR \
              follows the delivered rate instead, and needs a change only on the sender"
            .into(),
        gain: host.gain(CHANGE),
        cost: COST,
        ways,
        until_then: None,
    })))
}

fn way(host: &HostCase<'_>, command: Command, here: bool) -> Way {
    match (command.sets, host.route()) {
        (Some(Mechanism::Route), Some(route)) => {
            let (run, undo) = host.route_commands(Some(BBR), route.initcwnd);
            let requires = command.requires.filter(|_| host.local.settings.lacks_congestion_control(BBR));
            let destination = route.destination;
            let change = HostChange::Route { destination, congctl: Some(BBR.into()), initcwnd: None };
            Way { command: Command { run, undo, requires, ..command }, change: Some(change), applied: false }
        }
        (Some(Mechanism::Setting(key)), _) if here => {
            let change = HostChange::Setting { key: key.into(), value: BBR.into() };
            Way { command, change: Some(change), applied: false }
        }
        _ => Way::by_hand(command),
    }
}

/// Plans fq for kernels that do not pace in TCP.
fn plan_fair_queue(host: &HostCase<'_>) -> Decision {
    if !host.makes(CHANGE) || !needs_fair_queue(Some(host.kernel)) {
        return Decision::Skip;
    }
    let why = format!(
        "kernels before {} leave pacing to the device, and BBR depends on pacing",
        KernelVersion::INTERNAL_PACING
    );
    qdisc::propose_fair_queue(host, why, "the gain of BBR depends on fq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::made::case;

    fn host(text: &str) -> HostSettings {
        HostSettings::parse(text).unwrap()
    }

    fn commands(kernel: Option<KernelVersion>, sender: Option<&HostSettings>) -> Vec<Command> {
        let state = State::present(Algorithm::Cubic).with(CHANGE);
        REMEDY.commands(&Case { kernel, sender, ..case() }, state)
    }

    #[test]
    fn the_narrowest_scope_comes_first() {
        let commands = commands(Some(KernelVersion::new(6, 8)), None);
        let scopes: Vec<Scope> = commands.iter().map(|c| c.scope).collect();
        assert_eq!(scopes, [Scope::Socket, Scope::Route, Scope::System]);
        assert!(commands.iter().all(|c| c.host == Host::Sender));
        assert!(commands[0].run.contains("TCP_CONGESTION") && commands[1].run.ends_with("congctl bbr"));
        assert!(commands[2].undo.contains("congestion_control.before"));
    }

    #[test]
    fn a_kernel_that_lacks_bbr_is_told_what_it_needs() {
        let before = host(
            "net.ipv4.tcp_congestion_control = cubic\nnet.ipv4.tcp_available_congestion_control = cubic reno",
        );
        let requires = |kernel| {
            let commands = commands(kernel, Some(&before));
            assert_eq!(commands[2].undo, "sysctl -w net.ipv4.tcp_congestion_control=cubic");
            (commands[2].requires.clone().unwrap(), commands.len())
        };
        let (old, _) = requires(Some(KernelVersion::new(3, 10)));
        assert!(old.contains("kernel 4.9 or newer (this is 3.10)") && old.contains("modprobe tcp_bbr"));
        let (pacing, commands) = requires(Some(KernelVersion::new(4, 10)));
        assert!(pacing.contains("fq") && commands == 4);
        assert!(requires(None).0.contains("kernel 4.9 or newer"));
        let (new, commands) = requires(Some(KernelVersion::new(5, 15)));
        assert!(!new.contains("kernel") && commands == 3);
    }

    #[test]
    fn the_present_congestion_control_is_not_advised() {
        let bbr = host("net.ipv4.tcp_congestion_control = bbr");
        assert_eq!(commands(None, Some(&bbr)), []);
    }
}
