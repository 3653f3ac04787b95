//! Checks whether the host's firewall lets every client reach the port.
//!
//! Steered packets bypass all chains of the firewall, because they leave the kernel at the ingress hook. The
//! bypass makes no difference if the firewall accepts packets to the port from all clients. The rules come
//! from `nft -j list ruleset`, which also contains the rules of iptables-nft. The check follows the SYN of a
//! new connection through the base chains of the hooks `prerouting` and `input`:
//!
//! ```text
//!   rule ─► does it match the SYN?  no ──────────────────────────────────────────► next rule
//!                │ always                    │ depends on the client, or not understood
//!                ▼                           ▼
//!         accept: chain done           accept: next rule, because another rule decides about the others
//!         drop: objection              drop: objection
//!         DNAT, TPROXY: refused        DNAT, TPROXY: refused if the rule names the port or all ports
//! ```
//!
//! Chains at the hook `ingress` of a client's device see packets before or after the steering does. Only those with a
//! larger priority number than the steering's (0) run after it, so the check covers these chains as well.
//!
//! The check covers only new connections: rules that match only established connections do not match a SYN.
//!
//! If the kernel routes the worker's packets, they traverse the hooks `prerouting`, `forward` and
//! `postrouting` as untracked packets from the worker's device. [`judge_forwarding`] follows such a packet in
//! the same way; a rule that drops it would break the clients' connections.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

/// Maximum depth of jumps between chains, as in the kernel (`NFT_JUMP_STACK_SIZE`).
const MOST_JUMPS: usize = 16;
/// Hooks that a packet to a local socket traverses.
const HOOKS_IN: [&str; 2] = ["prerouting", "input"];
/// Hook of the steering, and its priority there.
const INGRESS: (&str, i64) = ("ingress", 0);
/// Hooks that a forwarded packet traverses.
const HOOKS_OUT: [&str; 3] = ["prerouting", "forward", "postrouting"];

/// Reason why steering would change the effect of the firewall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The rule redirects the port, so its packets do not reach the server at the configured address.
    Redirects(String),
    /// The rule or policy drops packets of some or all clients, but steered packets would bypass it.
    Drops(String),
    /// The rule or policy drops forwarded packets, including the worker's.
    Blocks(String),
    /// The rule contains an expression that the check does not understand.
    NotUnderstood(String),
}

impl Objection {
    /// Returns whether steering cannot work because of this objection, even with `--firewall ignore`.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Redirects(_))
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redirects(rule) => write!(f, "the firewall redirects the port: {rule}"),
            Self::Drops(rule) => write!(
                f,
                "new connections would bypass this firewall rule, which drops \
                                            their packets: {rule}"
            ),
            Self::Blocks(rule) => {
                write!(f, "the firewall drops the worker's packets, which the kernel has to route: {rule}")
            }
            Self::NotUnderstood(rule) => write!(f, "fullpipe does not understand this firewall rule: {rule}"),
        }
    }
}

/// Checks the rules in `ruleset`, the output of `nft -j list ruleset`, for new TCP connections to `listen`
/// that arrive through `devices`.
///
/// # Errors
/// Returns an error if `ruleset` is not the output of this command.
pub fn judge(ruleset: &str, listen: SocketAddr, devices: &[String]) -> Result<Vec<Objection>, String> {
    follow(ruleset, listen, Direction::In(devices))
}

/// Checks the rules in `ruleset` for packets from `listen` that the kernel receives from the device `tun` and
/// forwards.
///
/// # Errors
/// Returns an error if `ruleset` is not the output of `nft -j list ruleset`.
pub fn judge_forwarding(ruleset: &str, listen: SocketAddr, tun: &str) -> Result<Vec<Objection>, String> {
    follow(ruleset, listen, Direction::Out(tun))
}

fn follow(ruleset: &str, listen: SocketAddr, direction: Direction<'_>) -> Result<Vec<Objection>, String> {
    let document: Value = serde_json::from_str(ruleset).map_err(|error| error.to_string())?;
    let objects = document.get("nftables").and_then(Value::as_array).ok_or("the list of rules is missing")?;
    let mut judge = Judge { objects, listen, direction, objections: Vec::new() };
    let hooks: &[&str] = if judge.is_out() { &HOOKS_OUT } else { &HOOKS_IN };
    for chain in objects.iter().filter_map(|object| object.get("chain")) {
        let at_hook = hooks.contains(&text(chain, "hook")) && judge.is_for_family(text(chain, "family"));
        if at_hook || judge.runs_after_steering(chain) {
            judge.base_chain(chain);
        }
    }
    let mut found = judge.objections;
    let mut seen: Vec<Objection> = Vec::new();
    found.retain(|objection| {
        let new = !seen.contains(objection);
        if new {
            seen.push(objection.clone());
        }
        new
    });
    Ok(found)
}

/// Whether a condition is true for the SYNs of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    /// The condition is false for every SYN.
    Never,
    /// The condition depends on the client or the time.
    Sometimes,
    /// The condition is not understood.
    Unknown,
    /// The condition is true for every SYN.
    Always,
}

/// Fate of a SYN at the end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The SYN of every client is accepted.
    Accepted,
    /// The SYN continues in the calling chain or, at the end of a base chain, the policy applies.
    Continues,
    /// Every SYN is dropped.
    Dropped,
}

/// Packets that are followed through the chains.
#[derive(Clone, Copy)]
enum Direction<'a> {
    /// SYNs that arrive through one of these devices.
    In(&'a [String]),
    /// Packets of the worker that the kernel receives from this device.
    Out(&'a str),
}

struct Judge<'a> {
    objects: &'a [Value],
    listen: SocketAddr,
    direction: Direction<'a>,
    objections: Vec<Objection>,
}

impl<'a> Judge<'a> {
    fn is_out(&self) -> bool {
        matches!(self.direction, Direction::Out(_))
    }

    /// Returns the objection to a rule or policy that drops packets of this direction.
    fn drops(&self, line: String) -> Objection {
        if self.is_out() { Objection::Blocks(line) } else { Objection::Drops(line) }
    }

    fn is_for_family(&self, family: &str) -> bool {
        match family {
            "inet" => true,
            "ip" => self.listen.is_ipv4(),
            "ip6" => self.listen.is_ipv6(),
            _ => false,
        }
    }

    /// Returns whether a chain sees the packets of a client's device only if they are not steered.
    fn runs_after_steering(&self, chain: &Value) -> bool {
        let Direction::In(devices) = self.direction else { return false };
        let of_client = |device: &Value| devices.iter().any(|own| device.as_str() == Some(own.as_str()));
        // A chain of several devices has a list of them. nft 1.0.6 does not print the devices, so the chain may be that of a
        // client's device.
        let device = chain.get("dev").is_none_or(|dev| match dev {
            Value::Array(list) => list.iter().any(of_client),
            one => of_client(one),
        });
        let priority = chain.get("prio").and_then(Value::as_i64).unwrap_or_default();
        text(chain, "hook") == INGRESS.0 && priority > INGRESS.1 && device
    }

    fn base_chain(&mut self, chain: &'a Value) {
        let end = self.chain(text(chain, "family"), text(chain, "table"), text(chain, "name"), true, 0);
        if end == End::Continues && text(chain, "policy") == "drop" {
            let name = format!("chain {} {} policy drop", text(chain, "table"), text(chain, "name"));
            self.objections.push(self.drops(name));
        }
    }

    /// Follows a SYN through a chain. `certain` states whether every SYN reaches this chain.
    fn chain(&mut self, family: &str, table: &str, name: &str, certain: bool, depth: usize) -> End {
        if depth > MOST_JUMPS {
            self.objections.push(Objection::NotUnderstood(format!("more than {MOST_JUMPS} jumps")));
            return End::Dropped;
        }
        let objects = self.objects;
        let here = |rule: &&Value| {
            text(rule, "family") == family && text(rule, "table") == table && text(rule, "chain") == name
        };
        for rule in objects.iter().filter_map(|object| object.get("rule")).filter(here) {
            match self.rule(rule, certain, depth) {
                Step::Next => {}
                Step::Return => return End::Continues,
                Step::End(end) => return end,
            }
        }
        End::Continues
    }

    fn rule(&mut self, rule: &'a Value, certain: bool, depth: usize) -> Step {
        let expressions = rule.get("expr").and_then(Value::as_array).map(Vec::as_slice);
        let (mut holds, mut extension) = (Holds::Always, false);
        for expression in expressions.unwrap_or_default() {
            let Some((kind, value)) = expression.as_object().and_then(|object| object.iter().next()) else {
                holds = both(holds, Holds::Unknown);
                continue;
            };
            match kind.as_str() {
                "match" => holds = both(holds, self.condition(value)),
                "limit" | "quota" => holds = both(holds, Holds::Sometimes),
                // An iptables match or target that has no nftables equivalent.
                "xt" => (holds, extension) = (both(holds, Holds::Unknown), true),
                // These statements do not decide the fate of the packet. A verdict after them still applies.
                "counter" | "log" | "mangle" | "comment" | "notrack" | "ct helper" | "set" | "flow" => {}
                "vmap" => return self.verdict_map(rule, value, certain && holds == Holds::Always, depth),
                verdict => return self.verdict(rule, verdict, value, holds, certain, depth),
            }
            if holds == Holds::Never {
                return Step::Next;
            }
        }
        // In a rule without a verdict, the extension is the target, which may redirect or drop packets.
        if extension {
            self.objections.push(Objection::NotUnderstood(describe(rule)));
        }
        Step::Next
    }

    /// Applies a verdict to the SYNs that match the rule.
    fn verdict(
        &mut self,
        rule: &'a Value,
        verdict: &str,
        value: &'a Value,
        holds: Holds,
        certain: bool,
        depth: usize,
    ) -> Step {
        let all = certain && holds == Holds::Always;
        let unknown = holds == Holds::Unknown;
        match verdict {
            // If the rule matches only some clients, later rules apply to the others.
            "accept" if holds == Holds::Always => Step::End(End::Accepted),
            "accept" | "continue" => Step::Next,
            "return" if holds == Holds::Always => Step::Return,
            // The chain ends here for the clients that the rule matches. Its remaining rules are examined as if
            // they applied to all clients, which can only add objections.
            "return" => Step::Next,
            "drop" | "reject" => {
                let line = describe(rule);
                let objection = if unknown { Objection::NotUnderstood(line) } else { self.drops(line) };
                self.objections.push(objection);
                if all { Step::End(End::Dropped) } else { Step::Next }
            }
            // Address translation does not apply to untracked packets.
            "dnat" | "redirect" if self.is_out() => Step::Next,
            "dnat" | "redirect" | "tproxy" => {
                let line = describe(rule);
                let objection =
                    if unknown { Objection::NotUnderstood(line) } else { Objection::Redirects(line) };
                self.objections.push(objection);
                Step::End(End::Accepted)
            }
            "jump" | "goto" => {
                let (family, table) = (text(rule, "family"), text(rule, "table"));
                let end = self.chain(family, table, text(value, "target"), all, depth + 1);
                match (end, holds == Holds::Always, verdict == "goto") {
                    (End::Continues, true, true) => Step::Return,
                    (End::Continues, _, _) | (_, false, _) => Step::Next,
                    (end, true, _) => Step::End(end),
                }
            }
            // At these hooks, source NAT does not apply to the SYN of a client.
            "masquerade" | "snat" => Step::Next,
            _ => {
                self.objections.push(Objection::NotUnderstood(describe(rule)));
                Step::Next
            }
        }
    }

    /// Follows a verdict map (`ct state vmap { established : accept, new : jump ... }`).
    fn verdict_map(&mut self, rule: &'a Value, map: &'a Value, certain: bool, depth: usize) -> Step {
        let (key, data) = (map.get("key"), map.get("data").and_then(|data| data.get("set")));
        let (Some(key), Some(entries)) = (key, data.and_then(Value::as_array)) else {
            self.objections.push(Objection::NotUnderstood(describe(rule)));
            return Step::Next;
        };
        for entry in entries {
            let Some([value, verdict]) = entry.as_array().map(Vec::as_slice) else { continue };
            let holds = self.compare(key, "==", value);
            let Some((name, target)) = verdict.as_object().and_then(|object| object.iter().next()) else {
                continue;
            };
            if holds == Holds::Never {
                continue;
            }
            match self.verdict(rule, name, target, holds, certain, depth) {
                Step::Next => {}
                step => return step,
            }
        }
        Step::Next
    }

    fn condition(&self, value: &Value) -> Holds {
        let (Some(left), Some(right)) = (value.get("left"), value.get("right")) else {
            return Holds::Unknown;
        };
        self.compare(left, text(value, "op"), right)
    }

    fn compare(&self, left: &Value, operator: &str, right: &Value) -> Holds {
        let holds = self.equals(left, right);
        match (operator, holds) {
            ("==" | "in" | "", holds) => holds,
            ("!=", Holds::Always) => Holds::Never,
            ("!=", Holds::Never) => Holds::Always,
            ("!=", holds) => holds,
            _ => match holds {
                // Comparisons such as `dport < 1024` are not evaluated, because rules rarely contain them.
                Holds::Sometimes => Holds::Sometimes,
                _ => Holds::Unknown,
            },
        }
    }

    /// Compares the value that `left` has for a SYN with `right`, which may be a set of values.
    fn equals(&self, left: &Value, right: &Value) -> Holds {
        if let Some(payload) = left.get("payload") {
            return self.payload(text(payload, "protocol"), text(payload, "field"), right);
        }
        if let Some(meta) = left.get("meta") {
            return self.meta(text(meta, "key"), right);
        }
        if let Some(ct) = left.get("ct") {
            return match text(ct, "key") {
                "state" => {
                    let own = if self.is_out() { "untracked" } else { "new" };
                    among(right, &|state| state.as_str() == Some(own))
                }
                // The first packet has neither a mark nor a translated address.
                "status" => Holds::Never,
                _ => Holds::Unknown,
            };
        }
        if let Some(fib) = left.get("fib") {
            let destination = text(fib, "result") == "type" && fib.to_string().contains("\"daddr\"");
            return if destination && !self.is_out() {
                among(right, &|kind| kind.as_str() == Some("local"))
            } else {
                Holds::Unknown
            };
        }
        Holds::Unknown
    }

    fn payload(&self, protocol: &str, field: &str, right: &Value) -> Holds {
        let (address, port) = if self.is_out() { ("saddr", "sport") } else { ("daddr", "dport") };
        match (protocol, field) {
            ("tcp" | "th", field) if field == port => among(right, &|port| is_port(port, self.listen.port())),
            ("tcp" | "th", "sport" | "dport") => Holds::Sometimes,
            ("tcp", "flags") => Holds::Unknown,
            ("ip" | "ip6", field) if field == address => {
                among(right, &|value| contains(value, self.listen.ip()))
            }
            ("ip" | "ip6", "saddr" | "daddr") => Holds::Sometimes,
            ("ip", "protocol") | ("ip6", "nexthdr") => among(right, &is_tcp),
            ("udp" | "udplite" | "sctp" | "dccp" | "icmp" | "icmpv6" | "igmp" | "esp" | "ah", _) => {
                Holds::Never
            }
            _ => Holds::Unknown,
        }
    }

    fn meta(&self, key: &str, right: &Value) -> Holds {
        match key {
            "l4proto" => among(right, &is_tcp),
            "nfproto" => {
                let family = if self.listen.is_ipv4() { "ipv4" } else { "ipv6" };
                among(right, &|value| value.as_str() == Some(family))
            }
            "protocol" => {
                let family = if self.listen.is_ipv4() { "ip" } else { "ip6" };
                among(right, &|value| value.as_str() == Some(family))
            }
            "iifname" | "iif" => {
                let devices = match self.direction {
                    Direction::In(devices) => devices,
                    Direction::Out(tun) => return among(right, &|value| is_device(value, tun)),
                };
                let named = |device: &str| among(right, &|value| is_device(value, device));
                let all: Vec<Holds> = devices.iter().map(|device| named(device)).collect();
                match (all.iter().min(), all.iter().max()) {
                    (Some(least), Some(most)) if least == most => *least,
                    (Some(_), Some(Holds::Unknown)) | (None, _) => Holds::Unknown,
                    _ => Holds::Sometimes,
                }
            }
            "oifname" | "oif" if self.is_out() => Holds::Sometimes,
            "oifname" | "oif" => Holds::Never,
            "pkttype" => among(right, &|value| matches!(value.as_str(), Some("host" | "unicast"))),
            _ => Holds::Unknown,
        }
    }
}

/// How the evaluation of a chain continues after a rule.
enum Step {
    Next,
    Return,
    End(End),
}

/// Combines two conditions that must both be true.
fn both(one: Holds, other: Holds) -> Holds {
    match (one, other) {
        (Holds::Never, _) | (_, Holds::Never) => Holds::Never,
        (Holds::Unknown, _) | (_, Holds::Unknown) => Holds::Unknown,
        (Holds::Sometimes, _) | (_, Holds::Sometimes) => Holds::Sometimes,
        _ => Holds::Always,
    }
}

/// Returns whether `is` accepts `right` or, if `right` is a set, one of its values.
fn among(right: &Value, is: &dyn Fn(&Value) -> bool) -> Holds {
    let values = match right {
        Value::Array(values) => values,
        Value::Object(object) if object.contains_key("set") => match &object["set"] {
            Value::Array(values) => values,
            one => return if is(one) { Holds::Always } else { Holds::Never },
        },
        // The elements of a named set are in another object and can change at any time.
        Value::String(name) if name.starts_with('@') => return Holds::Unknown,
        one => return if is(one) { Holds::Always } else { Holds::Never },
    };
    // An element with a timeout or a counter is wrapped in an object.
    let plain = |value: &Value| value.get("elem").and_then(|elem| elem.get("val")).map_or(is(value), is);
    if values.iter().any(plain) { Holds::Always } else { Holds::Never }
}

fn is_tcp(value: &Value) -> bool {
    value.as_str() == Some("tcp") || value.as_u64() == Some(6)
}

/// Returns whether `value` is the port, a range that contains it, or the name of its service.
fn is_port(value: &Value, port: u16) -> bool {
    if let Some([from, to]) = value.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        let (Some(from), Some(to)) = (from.as_u64(), to.as_u64()) else { return false };
        return (from..=to).contains(&u64::from(port));
    }
    match value.as_str() {
        // Without `-n`, nft prints numbers in JSON, but iptables-nft may print names.
        Some("http") => port == 80,
        Some("https") => port == 443,
        _ => value.as_u64() == Some(port.into()),
    }
}

/// Returns whether the network or address in `value` contains `address`.
fn contains(value: &Value, address: IpAddr) -> bool {
    if let Some(prefix) = value.get("prefix") {
        let network: Option<IpAddr> = text(prefix, "addr").parse().ok();
        let len = prefix.get("len").and_then(Value::as_u64).unwrap_or(u64::MAX);
        return match (network, address) {
            (Some(IpAddr::V4(network)), IpAddr::V4(address)) => {
                len <= 32
                    && (network.to_bits() ^ address.to_bits()).checked_shr(32 - len as u32).unwrap_or(0) == 0
            }
            (Some(IpAddr::V6(network)), IpAddr::V6(address)) => {
                len <= 128
                    && (network.to_bits() ^ address.to_bits()).checked_shr(128 - len as u32).unwrap_or(0) == 0
            }
            _ => false,
        };
    }
    value.as_str().and_then(|text| text.parse().ok()) == Some(address)
}

/// Returns whether a device name or pattern (`eth*`) matches a device.
fn is_device(value: &Value, device: &str) -> bool {
    value.as_str().is_some_and(|name| match name.strip_suffix('*') {
        Some(begin) => device.starts_with(begin),
        None => name == device,
    })
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Describes a rule in one line: its table and chain, and its expressions.
fn describe(rule: &Value) -> String {
    let expressions = rule.get("expr").map(ToString::to_string).unwrap_or_default();
    let handle = rule.get("handle").and_then(Value::as_u64).unwrap_or_default();
    format!(
        "{} {} {} handle {handle}: {expressions}",
        text(rule, "family"),
        text(rule, "table"),
        text(rule, "chain")
    )
}

#[cfg(test)]
mod tests;
