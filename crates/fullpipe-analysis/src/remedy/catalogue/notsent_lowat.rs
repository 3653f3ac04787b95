//! A limit on unsent data in a socket, which lets the application notice that the path is full.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::Change as HostChange;
use fullpipe_units::Bytes;

use crate::remedy::{
    Change, Command, Commands, Cost, Decision, Gain, Host, HostCase, Mechanism, Part, Proposal, QueueAdvice,
    Remedy, Scope, Usage, Way, What,
};

/// Delays the writing application and changes nothing else.
pub(super) static REMEDY: Remedy = Remedy {
    name: "notsent_lowat",
    change: Change::NotsentLowat(Bytes::new(UNSENT)),
    lifts: &[],
    usage: Usage::OnRequest,
    title: |_| "a bound on unsent data on the sender".into(),
    backlog: Some(QueueAdvice {
        what: "bound the unsent data in the kernel with tcp_notsent_lowat, so that the application notices \
         a slow path at once, and can still drop data that it has not yet passed to the kernel; this does \
         not bound the application's own queue",
        commands,
    }),
    parts: &[Part {
        what: What::NOTSENT_LOWAT,
        hosts: &[Host::Sender],
        scope: Scope::Socket,
        commands: Commands::Run(|_, _| commands()),
        cost: |_, _| COST,
        plan: Some(plan),
    }],
};

impl What {
    /// `tcp_notsent_lowat` of the sender.
    pub const NOTSENT_LOWAT: Self = Self("notsent_lowat");
}

/// Maximum number of unsent bytes in a socket. On a path with a 4 MiB send buffer, this value reduced the
/// data waiting in the kernel from 3.36 MB to 195 kB at equal goodput (measured).
const UNSENT: u64 = 128 << 10;
const COST: Cost = Cost::Words("more CPU time in applications that poll instead of waiting for writability");
const KEY: &str = "net.ipv4.tcp_notsent_lowat";
/// A wait shorter than the RTT divided by this number is negligible.
const SOON: u64 = 20;
/// A rate that stays at or above this share of the previous rate counts as unchanged.
const SAME_RATE: (u64, u64) = (19, 20);

fn commands() -> Vec<Command> {
    let requires =
        Some("kernel 3.12 or newer, and an application that waits for writability (poll, epoll)".to_owned());
    let call = format!("setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){{{UNSENT}}}, sizeof(int))");
    let save = Command::save_and_set(
        Host::Sender,
        KEY,
        &UNSENT.to_string(),
        "notsent_lowat.before",
        requires.clone(),
    );
    vec![Command::call(call, requires), save]
}

fn plan(host: &HostCase<'_>) -> Result<Decision, RunPanicked> {
    let left = |why: String| Ok(Decision::Leave(why));
    if !host.here(Host::Sender) {
        return left("this is a setting of the sender".into());
    }
    let Some(present) = host.local.settings.notsent_lowat else {
        return left("this kernel does not have the setting".into());
    };
    if present.get() <= UNSENT {
        return left(format!("already {present}"));
    }
    let (reached, trials) = (host.reached, host.trials);
    let (sndbuf, _) = trials.buffers(reached);
    let mut cost = COST;
    let gain = if trials.rate(reached).is_none_or(|rate| trials.takes_long(rate)) {
        Gain::words("not simulated, because the link is too fast")
    } else {
        // A limit above the send buffer has no effect.
        let now = if present < sndbuf { reached.with(Change::NotsentLowat(present)) } else { reached };
        let unsent = trials.unsent(&[now, reached.with(REMEDY.change)])?;
        let [Some(without), Some(with)] = unsent[..] else {
            return left("no data waits in the socket on this path (simulated)".into());
        };
        if without.wait <= host.case.rtt / SOON || with.wait >= without.wait {
            return left(format!("an unsent byte waits for at most {} (simulated)", without.wait));
        }
        if with.rate < without.rate.mul_div(SAME_RATE.0, SAME_RATE.1) {
            cost = Cost::Rate(100 - 100 * with.rate.as_bps() / without.rate.as_bps().max(1));
        }
        let text = format!(
            "data waits {} in the socket instead of {}, and {} are unsent instead of {} (simulated, with an \
             application that always has data to send)",
            with.wait, without.wait, with.held, without.held
        );
        Gain {
            without: Some(without.rate),
            with: Some(with.rate),
            without_bytes: Some(without.held.get()),
            with_bytes: Some(with.held.get()),
            ..Gain::time(text, without.wait, with.wait)
        }
    };
    let way = |command: Command| match command.sets {
        Some(Mechanism::Setting(key)) => Way {
            command: Command::set(
                command.host,
                key,
                &UNSENT.to_string(),
                &present.get().to_string(),
                command.requires,
            ),
            change: Some(HostChange::Setting { key: key.into(), value: UNSENT.to_string() }),
            applied: host.asked_for(What::NOTSENT_LOWAT),
        },
        _ => Way::by_hand(command),
    };
    Ok(Decision::Propose(Box::new(Proposal {
        host: Host::Sender,
        here: true,
        present: Some(present.get().to_string()),
        new: UNSENT.to_string(),
        why: format!(
            "up to {sndbuf} of unsent data may wait in the kernel; with this setting, the application \
             notices that the path is full, and can drop or merge outdated data"
        ),
        gain,
        cost,
        ways: commands().into_iter().map(way).collect(),
        until_then: None,
    })))
}
