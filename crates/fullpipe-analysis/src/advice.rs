//! What to change, on which host, and how to undo it.
//!
//! Remedies are data, so that a report prints them and another program can run them. What the kernel
//! does, and common advice gets wrong:
//!
//! - Autotuned buffers are bounded by `tcp_wmem[2]` on the sender and `tcp_rmem[2]` on the *receiver*; both
//!   hosts need the change. `net.core.*mem_max` bounds `SO_SNDBUF`/`SO_RCVBUF` only and is left alone.
//! - One BDP of send buffer is not enough: 0.67 to 1.0 of it is in flight (660 of 956 Mbit/s were measured
//!   with 1 BDP, 955 with 2).
//! - Only the sender's congestion control counts, and a change reaches new connections only.

use std::fmt;

use fullpipe_tcp::buffers::{KernelVersion, WindowRule};
use fullpipe_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input::sysctl::HostSettings;

/// One thing to run, as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// The command line, or the call in the application's source for [`Scope::Socket`]. Words in capitals
    /// (`DEV`, `RECEIVER`) are to be filled in.
    pub run: String,
    /// The host to run it on.
    pub host: Host,
    /// How much it changes.
    pub scope: Scope,
    /// What takes it back.
    pub undo: String,
    /// What has to be in place before, or what to know.
    pub requires: Option<String>,
}

/// An end of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// Where the data comes from.
    Sender,
    /// Where the data goes to.
    Receiver,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

/// How much a command changes, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One socket of one program.
    Socket,
    /// Connections to one destination.
    Route,
    /// Every new connection of the host (of its network namespace).
    System,
}

impl Scope {
    /// What it means to whoever has to decide on it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Socket => "one socket of one program",
            Self::Route => "connections to one destination",
            Self::System => "every new connection of the host",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Socket => "socket",
            Self::Route => "route",
            Self::System => "system",
        })
    }
}

/// Multiples of the BDP that buffers need.
const BDPS: u64 = 2;
/// The kernel keeps socket buffers in an `int`.
const LARGEST_BUFFER: u64 = i32::MAX as u64;
pub(crate) const PAGE: u64 = 4096;

/// The send buffer limit that keeps `bdp` in flight: 2 x BDP.
pub fn sndbuf_for(bdp: Bytes) -> Bytes {
    capped(bdp.get().saturating_mul(BDPS))
}

/// The receive buffer limit that keeps `bdp` in flight: 2 x BDP, or what the window rule needs if more.
pub fn rcvbuf_for(bdp: Bytes, rule: WindowRule) -> Bytes {
    capped(bdp.get().saturating_mul(BDPS).max(rule.space(bdp).get()))
}

/// Whole pages, below what the kernel can hold.
fn capped(bytes: u64) -> Bytes {
    Bytes::new(bytes.min(LARGEST_BUFFER / PAGE * PAGE).div_ceil(PAGE) * PAGE)
}

/// Lets autotuning keep `bdp` in flight: `tcp_wmem[2]` on the sender, `tcp_rmem[2]` on the receiver, and the
/// switches that would hold them back. A host that has enough gets no command; nothing is ever lowered.
/// `None` for a host whose settings are not known, or known from another time only.
pub fn raise_buffers(
    bdp: Bytes,
    rule: WindowRule,
    sender: Option<&HostSettings>,
    receiver: Option<&HostSettings>,
) -> Vec<Command> {
    let wmem = sender.and_then(|host| host.tcp_wmem);
    let rmem = receiver.and_then(|host| host.tcp_rmem);
    let mut commands =
        Vec::from_iter(raise_limit(Host::Sender, "net.ipv4.tcp_wmem", wmem, sndbuf_for(bdp), None));
    let handshake = "for new connections: the window scale is fixed at the handshake";
    commands.extend(raise_limit(
        Host::Receiver,
        "net.ipv4.tcp_rmem",
        rmem,
        rcvbuf_for(bdp, rule),
        Some(handshake),
    ));
    for (host, settings) in [(Host::Sender, sender), (Host::Receiver, receiver)] {
        if settings.is_some_and(|settings| settings.window_scaling == Some(false)) {
            commands.push(switch_on(host, "net.ipv4.tcp_window_scaling"));
        }
    }
    if receiver.is_some_and(|settings| settings.moderate_rcvbuf == Some(false)) {
        commands.push(switch_on(Host::Receiver, "net.ipv4.tcp_moderate_rcvbuf"));
    }
    commands
}

/// Raises the third number of a triple to `target`, unless it is as large.
pub(crate) fn raise_limit(
    host: Host,
    key: &str,
    current: Option<[Bytes; 3]>,
    target: Bytes,
    requires: Option<&str>,
) -> Option<Command> {
    let target = target.get();
    let (run, undo) = match current {
        Some([_, _, most]) if most.get() >= target => return None,
        Some([least, first, most]) => {
            let set = |most: u64| format!("sysctl -w {key}=\"{} {} {most}\"", least.get(), first.get());
            (set(target), set(most.get()))
        }
        // The old value is kept, and the third number only ever raised.
        None => {
            let file = format!("{}.before", key.rsplit('.').next().unwrap_or(key));
            (
                format!(
                    "sysctl -n {key} > {file} && sysctl -w {key}=\"$(awk '{{print $1, $2, \
                     ($3 > {target} ? $3 : {target})}}' {file})\""
                ),
                format!("sysctl -w {key}=\"$(cat {file})\""),
            )
        }
    };
    Some(Command { run, host, scope: Scope::System, undo, requires: requires.map(str::to_owned) })
}

pub(crate) fn switch_on(host: Host, key: &str) -> Command {
    Command {
        run: format!("sysctl -w {key}=1"),
        host,
        scope: Scope::System,
        undo: format!("sysctl -w {key}=0"),
        requires: None,
    }
}

/// Changes the congestion control of the sender to `to` (a kernel's name, such as `bbr`): of one socket, one
/// route, the host. Empty when it is the sender's default already. `kernel` outranks the one in `sender`;
/// `sender` is `None` when its settings are not known, or known from another time only.
pub fn change_congestion_control(
    to: &str,
    kernel: Option<KernelVersion>,
    sender: Option<&HostSettings>,
) -> Vec<Command> {
    let current = sender.and_then(|host| host.congestion_control.as_deref());
    if current == Some(to) {
        return Vec::new();
    }
    let kernel = kernel.or(sender.and_then(|host| host.kernel));
    let needs = needs_of(to, kernel, sender);
    let requires = |extra: Option<String>| {
        let all: Vec<String> = needs.iter().cloned().chain(extra).collect();
        (!all.is_empty()).then(|| all.join("; "))
    };
    let allowed = sender.is_some_and(|host| host.allowed_congestion_control.iter().any(|a| a == to));
    let permission =
        (!allowed).then(|| format!("{to} in net.ipv4.tcp_allowed_congestion_control, or CAP_NET_ADMIN"));
    let key = "net.ipv4.tcp_congestion_control";
    let (save, undo) = match current {
        Some(current) => (String::new(), format!("sysctl -w {key}={current}")),
        None => (
            format!("sysctl -n {key} > congestion_control.before && "),
            format!("sysctl -w {key}=\"$(cat congestion_control.before)\""),
        ),
    };
    let mut commands = vec![
        Command {
            run: format!(
                "setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, \"{to}\", {})  /* iperf3: -C {to} */",
                to.len()
            ),
            host: Host::Sender,
            scope: Scope::Socket,
            undo: "leave the call out".into(),
            requires: requires(permission),
        },
        Command {
            run: format!("ip route change RECEIVER via GATEWAY dev DEV congctl {to}"),
            host: Host::Sender,
            scope: Scope::Route,
            undo: "ip route change RECEIVER via GATEWAY dev DEV".into(),
            requires: requires(Some("the route as ip route get RECEIVER prints it".into())),
        },
        Command {
            run: format!("{save}sysctl -w {key}={to}"),
            host: Host::Sender,
            scope: Scope::System,
            undo,
            requires: requires(None),
        },
    ];
    if needs_fair_queue(to, kernel) {
        commands.push(Command {
            run: "tc qdisc replace dev DEV root fq".into(),
            host: Host::Sender,
            scope: Scope::System,
            undo: "tc qdisc del dev DEV root".into(),
            requires: Some("replaces whatever queueing discipline DEV has: see tc qdisc show dev DEV".into()),
        });
    }
    commands
}

pub(crate) fn needs_fair_queue(to: &str, kernel: Option<KernelVersion>) -> bool {
    to == "bbr" && kernel.is_some_and(|k| (KernelVersion::BBR..KernelVersion::INTERNAL_PACING).contains(&k))
}

/// What the kernel needs before it can run `to`.
fn needs_of(to: &str, kernel: Option<KernelVersion>, sender: Option<&HostSettings>) -> Vec<String> {
    let mut needs = Vec::new();
    if to == "bbr" {
        match kernel {
            Some(kernel) if kernel < KernelVersion::BBR => {
                needs.push(format!("kernel {} or newer (this is {kernel})", KernelVersion::BBR));
            }
            Some(_) if needs_fair_queue(to, kernel) => needs.push(format!(
                "the fq queueing discipline on DEV, for kernels before {} do not pace by themselves",
                KernelVersion::INTERNAL_PACING
            )),
            Some(_) => {}
            None => needs.push(format!(
                "kernel {} or newer; before {} also tc qdisc replace dev DEV root fq",
                KernelVersion::BBR,
                KernelVersion::INTERNAL_PACING
            )),
        }
    }
    if sender.is_some_and(|host| host.lacks_congestion_control(to)) {
        needs.push(format!("modprobe tcp_{to}, for the host does not list {to}"));
    }
    needs
}

/// Unsent data that a socket may hold: measured on a path of 4 MiB of send buffer, it took the data that waits
/// in the kernel from 3.36 MB to 195 kB at the same goodput.
pub(crate) const UNSENT: u64 = 128 << 10;

/// Keeps what the kernel holds unsent small, so that a full path is felt in the application: of one socket, of
/// the host. It delays the writer, and nothing else.
pub fn limit_unsent() -> Vec<Command> {
    let key = "net.ipv4.tcp_notsent_lowat";
    let requires =
        Some("a kernel of 3.12 or newer; the application waits for writability (poll, epoll)".into());
    vec![
        Command {
            run: format!("setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){{{UNSENT}}}, sizeof(int))"),
            host: Host::Sender,
            scope: Scope::Socket,
            undo: "leave the call out".into(),
            requires: requires.clone(),
        },
        Command {
            run: format!("sysctl -n {key} > notsent_lowat.before && sysctl -w {key}={UNSENT}"),
            host: Host::Sender,
            scope: Scope::System,
            undo: format!("sysctl -w {key}=\"$(cat notsent_lowat.before)\""),
            requires,
        },
    ]
}

/// What the raised limits cost: one line. `tcp_mem` counts pages and bounds all sockets of the host together.
pub fn memory_note(bdp: Bytes, rule: WindowRule, host: Option<&HostSettings>) -> String {
    let most = sndbuf_for(bdp).max(rcvbuf_for(bdp, rule));
    let pages = most.get().div_ceil(PAGE);
    match host.and_then(|host| host.tcp_mem_pages) {
        Some([_, pressure, _]) => format!(
            "each flow may take up to {most} ({pages} pages); tcp_mem[1] of {pressure} pages allows {} of them before buffers \
             stop growing",
            pressure / pages.max(1)
        ),
        None => format!(
            "each flow may take up to {most} ({pages} pages); tcp_mem, in pages and for the whole host, must allow that for all \
             flows"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BDP: Bytes = Bytes::new(26_250_000);

    fn host(text: &str) -> HostSettings {
        HostSettings::parse(text).unwrap()
    }

    #[test]
    fn both_hosts_get_twice_the_bdp_and_core_limits_are_left_alone() {
        let current = host("net.ipv4.tcp_wmem = 4096 16384 4194304\nnet.ipv4.tcp_rmem = 4096 87380 4194304");
        let commands = raise_buffers(BDP, WindowRule::AdvWinScale(2), Some(&current), Some(&current));
        let [wmem, rmem] = commands.as_slice() else { panic!("{commands:?}") };
        assert_eq!(wmem.host, Host::Sender);
        assert_eq!(wmem.run, "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 52502528\"");
        assert_eq!(wmem.undo, "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\"");
        assert_eq!(rmem.host, Host::Receiver);
        assert_eq!(rmem.run, "sysctl -w net.ipv4.tcp_rmem=\"4096 87380 52502528\"");
        assert!(commands.iter().all(|c| !c.run.contains("core")));
    }

    #[test]
    fn a_window_rule_that_wastes_more_than_half_gets_more() {
        assert_eq!(rcvbuf_for(Bytes::from_mib(1), WindowRule::AdvWinScale(-2)), Bytes::from_mib(4));
        assert_eq!(rcvbuf_for(Bytes::from_mib(1), WindowRule::ScalingRatio(160)), Bytes::from_mib(2));
        assert!(rcvbuf_for(Bytes::MAX, WindowRule::AdvWinScale(2)).get() <= LARGEST_BUFFER);
    }

    #[test]
    fn nothing_is_ever_lowered() {
        let ample =
            host("net.ipv4.tcp_wmem = 4096 16384 134217728\nnet.ipv4.tcp_rmem = 4096 87380 134217728");
        assert_eq!(raise_buffers(BDP, WindowRule::AdvWinScale(1), Some(&ample), Some(&ample)), []);
        let unknown = raise_buffers(BDP, WindowRule::AdvWinScale(1), None, None);
        assert!(unknown.iter().all(|c| c.run.contains("$3 > 52502528 ? $3 : 52502528")));
        assert_eq!(unknown[1].undo, "sysctl -w net.ipv4.tcp_rmem=\"$(cat tcp_rmem.before)\"");
    }

    #[test]
    fn switches_that_hold_the_window_back_are_turned_on() {
        let off = host("net.ipv4.tcp_window_scaling = 0\nnet.ipv4.tcp_moderate_rcvbuf = 0");
        let runs: Vec<String> = raise_buffers(BDP, WindowRule::AdvWinScale(1), Some(&off), Some(&off))
            .into_iter()
            .map(|c| c.run)
            .collect();
        assert_eq!(runs.iter().filter(|run| run.contains("window_scaling=1")).count(), 2);
        assert_eq!(runs.iter().filter(|run| run.contains("moderate_rcvbuf=1")).count(), 1);
    }

    #[test]
    fn the_narrowest_scope_comes_first() {
        let commands = change_congestion_control("bbr", Some(KernelVersion::new(6, 8)), None);
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
            let commands = change_congestion_control("bbr", kernel, Some(&before));
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
        assert_eq!(change_congestion_control("bbr", None, Some(&bbr)), []);
    }

    #[test]
    fn memory_is_counted_in_pages_of_the_whole_host() {
        let note = memory_note(BDP, WindowRule::AdvWinScale(2), Some(&host("net.ipv4.tcp_mem = 1 128180 3")));
        assert!(note.contains("12818 pages") && note.contains("allows 10 of them"), "{note}");
    }
}
