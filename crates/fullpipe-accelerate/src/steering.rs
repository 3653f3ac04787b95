//! Builds the text of the nftables table that forwards the packets of one port to the TUN device and back.
//!
//! ```text
//!   device of a client ─ ingress ─► chain in_N ─► steer ─┬─ theirs: the kernel
//!                                                        └─ fwd ─► fp0 ─► worker
//!   worker ─► fp0 ─ ingress ─► chain out ─┬─ direct: fwd to the client's network or its gateway
//!                                         └─ routed: the kernel's routing
//! ```
//!
//! The steering changes in transactions, and each transaction is one line for `nft -i`, which executes its
//! input line by line:
//!
//! | phase | new connections | other packets of the port |
//! |---|---|---|
//! | [`Phase::Learning`] | ours; their SYNs fill the set `ours` | ours if the set contains them |
//! | [`Phase::Steady`] | ours; above a rate the kernel's, and their SYNs fill the set `left` | ours unless the set `theirs` or `left` contains them |
//! | [`Phase::Aside`] | the kernel's; their SYNs fill the set `left` | as above |
//!
//! The set `theirs` contains clients of the kernel's sockets. The elements of `left` expire after 4 s, so a flood of
//! SYNs cannot fill the kernel's memory. Before they expire, the keeper finds those clients that have opened
//! connections among the kernel's sockets, and adds them to `theirs`.
//!
//! ICMP messages about the path MTU (RFC 1191, RFC 8201) are forwarded to the worker as well if they quote a packet of
//! the port. A quoted packet cannot be compared with the set of the kernel's connections, so the worker returns
//! messages about these connections to the kernel.
//!
//! The phase `Learning` is needed because a connection that the kernel accepts while its sockets are being listed would
//! be missing from the list. Once all SYNs go to the worker, the list can only shrink.
//!
//! The table has an owner (`flags owner`, Linux 5.12): the kernel removes it when the process that created it closes
//! its socket.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// Separator of the commands of a transaction.
const SEPARATOR: &str = "; ";

/// Maximum number of connections in the sets `ours` and `theirs`. If `ours` is full, new connections stay with the
/// kernel.
const MOST_ELEMENTS: u32 = 1 << 20;
/// Maximum number of clients in the set `left`. It is reached if the SYN rate exceeds the limit by 65 000 SYNs per
/// second for 4 s. If the set is full, new connections go to the worker, which answers with SYN cookies.
const MOST_LEFT: u32 = 1 << 18;
/// Time in seconds for which a client stays in the set `left` after its last SYN. This time must cover the interval at
/// which the keeper lists the kernel's sockets (1 s), and the round trip of a handshake.
pub(crate) const LEFT_SECONDS: u32 = 4;
/// Number of bursts per second into which the SYN limit is divided.
const BURSTS_PER_SECOND: usize = 10;
/// Minimum number of SYNs that may arrive at once.
const LEAST_BURST: usize = 5;
/// Maximum number of recently used neighbours: clients in connected networks.
const MOST_NEIGHBOURS: u32 = 1 << 16;
/// Maximum number of new neighbours per second. For each new neighbour, the kernel sends up to three requests for its
/// link-layer address within 3 s. Without this limit, SYNs with forged addresses would fill the kernel's neighbour
/// table, in which steering also needs entries. By default, the table has 1024 entries (`gc_thresh3`).
const NEW_NEIGHBOURS: u32 = 200;
/// Maximum number of ICMP messages per second that are forwarded to the worker. Messages above this rate reach only the
/// kernel.
const MOST_ICMP: u32 = 1_000;
/// Time in seconds for which a neighbour is remembered after it was first used.
const NEIGHBOUR_SECONDS: u32 = 60;

/// Phase of the steering: how packets of the port are divided between the worker and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// New connections go to the worker, and all other packets stay with the kernel.
    Learning,
    /// All connections go to the worker, except those of the kernel.
    Steady,
    /// New connections stay with the kernel, and the worker keeps its connections.
    Aside,
}

/// A destination of the worker's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Network of the destination; `None` for all other destinations.
    pub network: Option<(IpAddr, u8)>,
    /// Gateway to the destination; `None` if the network is connected to the device.
    pub gateway: Option<IpAddr>,
    /// Outgoing device for this destination.
    pub device: String,
}

/// Parameters of the steering: which packets are steered, from which devices, and to which destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Name of the table.
    pub table: String,
    /// TUN device of the worker.
    pub tun: String,
    /// Address and port whose connections are steered.
    pub listen: SocketAddr,
    /// nftables expression that the packets of a client must match.
    pub matching: Option<String>,
    /// Maximum number of SYNs per second that are forwarded to the worker.
    pub syn_rate: usize,
    /// Devices through which clients reach this host.
    pub incoming: Vec<String>,
    /// Destinations of the worker's packets, with the longest prefixes first. If the kernel routes the packets, the
    /// list contains only the connected networks, in which the number of new neighbours is limited.
    pub hops: Vec<Hop>,
    /// Whether the kernel routes the worker's packets.
    pub routed: bool,
}

impl Steering {
    /// Returns the transaction that creates the table in the given phase. `theirs` contains the clients whose
    /// connections stay with the kernel.
    pub fn install(&self, phase: Phase, theirs: &[SocketAddr]) -> String {
        self.install_commands(phase, theirs).join(SEPARATOR)
    }

    pub(crate) fn install_commands(&self, phase: Phase, theirs: &[SocketAddr]) -> Vec<String> {
        let Self { table, tun, .. } = self;
        let kind = if self.listen.is_ipv4() { "ipv4_addr" } else { "ipv6_addr" };
        let mut commands = vec![format!("add table netdev {table} {{ flags owner; }}")];
        for set in ["ours", "theirs"] {
            commands.push(format!(
                "add set netdev {table} {set} {{ type {kind} . inet_service; flags dynamic; \
                 size {MOST_ELEMENTS}; }}"
            ));
        }
        commands.push(format!(
            "add set netdev {table} left {{ type {kind} . inet_service; flags dynamic, timeout; \
             timeout {LEFT_SECONDS}s; size {MOST_LEFT}; }}"
        ));
        commands.push(format!(
            "add set netdev {table} neighbours {{ type {kind}; flags dynamic, timeout; \
             timeout {NEIGHBOUR_SECONDS}s; size {MOST_NEIGHBOURS}; }}"
        ));
        commands.push(format!("add chain netdev {table} steer"));
        commands.push(self.base_chain("out", tun));
        for (number, device) in self.incoming.iter().enumerate() {
            let chain = format!("in_{number}");
            commands.push(self.base_chain(&chain, device));
            commands.push(format!("add rule netdev {table} {chain} jump steer"));
        }
        commands.extend(self.rules_out());
        commands.extend(self.elements("add", theirs));
        commands.extend(self.rules_in(phase));
        if self.routed {
            // Connection tracking has not seen the clients' packets, and would mark the worker's packets as invalid, so
            // they are not tracked. Address translation does not apply to untracked packets.
            let (ip, _) = self.family();
            commands.push(format!("add table {ip} {table} {{ flags owner; }}"));
            commands.push(format!(
                "add chain {ip} {table} untracked {{ type filter hook prerouting priority -300; policy accept; }}"
            ));
            commands.push(format!("add rule {ip} {table} untracked iifname \"{tun}\" notrack"));
        }
        commands
    }

    /// Returns the transaction that replaces the table of `former`, for example after a change of devices.
    pub fn replace(&self, former: &Self, phase: Phase, theirs: &[SocketAddr]) -> String {
        [former.remove(), self.install(phase, theirs)].join(SEPARATOR)
    }

    /// Returns the transaction that changes the phase. `theirs` replaces the set of the kernel's connections; `None`
    /// keeps the set.
    pub fn switch(&self, phase: Phase, theirs: Option<&[SocketAddr]>) -> String {
        self.switch_commands(phase, theirs).join(SEPARATOR)
    }

    pub(crate) fn switch_commands(&self, phase: Phase, theirs: Option<&[SocketAddr]>) -> Vec<String> {
        let table = &self.table;
        let mut commands = vec![format!("flush chain netdev {table} steer")];
        if let Some(theirs) = theirs {
            commands.push(format!("flush set netdev {table} theirs"));
            commands.extend(self.elements("add", theirs));
        }
        commands.extend(self.rules_in(phase));
        if phase == Phase::Steady {
            commands.push(format!("flush set netdev {table} ours"));
        }
        commands
    }

    /// Returns the transaction that removes the clients `gone` from the set of the kernel's connections and adds the
    /// clients `new`; `None` if there is nothing to change.
    pub fn update(&self, gone: &[SocketAddr], new: &[SocketAddr]) -> Option<String> {
        let commands: Vec<String> =
            [self.elements("delete", gone), self.elements("add", new)].into_iter().flatten().collect();
        (!commands.is_empty()).then(|| commands.join(SEPARATOR))
    }

    /// Returns the number of SYNs that may arrive at once before further SYNs are left to the kernel.
    pub(crate) fn syn_burst(&self) -> usize {
        (self.syn_rate / BURSTS_PER_SECOND).max(LEAST_BURST)
    }

    /// Returns the transaction that ends all steering.
    pub fn remove(&self) -> String {
        let remove = format!("delete table netdev {}", self.table);
        if !self.routed {
            return remove;
        }
        let (ip, _) = self.family();
        [remove, format!("delete table {ip} {}", self.table)].join(SEPARATOR)
    }

    fn base_chain(&self, name: &str, device: &str) -> String {
        format!(
            "add chain netdev {} {name} {{ type filter hook ingress device \"{device}\" priority 0; \
             policy accept; }}",
            self.table
        )
    }

    fn elements(&self, action: &str, clients: &[SocketAddr]) -> Option<String> {
        let mut list = String::new();
        for client in clients.iter().filter(|client| client.is_ipv4() == self.listen.is_ipv4()) {
            let separator = if list.is_empty() { "" } else { ", " };
            let _ = write!(list, "{separator}{} . {}", client.ip(), client.port());
        }
        (!list.is_empty()).then(|| format!("{action} element netdev {} theirs {{ {list} }}", self.table))
    }

    /// Returns the rules for the packets of clients.
    fn rules_in(&self, phase: Phase) -> Vec<String> {
        let (ip, family) = self.family();
        let (address, port) = (self.listen.ip(), self.listen.port());
        let to_us = format!("{ip} daddr {address} tcp dport {port}");
        let client = format!("{ip} saddr . tcp sport");
        let chosen = self.matching.as_deref().map_or_else(String::new, |matching| format!(" {matching}"));
        let syn = "tcp flags & (fin | syn | rst | ack) == syn";
        let forward = format!("fwd {ip} to {ip} daddr device \"{}\"", self.tun);
        // The ports are only in the first fragment of a packet. The worker does not reassemble fragments, and the
        // kernel would answer the reassembled packet with a reset.
        let first_fragment = match family {
            Family::V4 => "ip frag-off & 0x3fff == 0x2000",
            Family::V6 => "frag more-fragments 1",
        };
        let mut rules = vec![format!("{to_us} {client} @theirs accept")];
        // A retransmitted SYN restarts the timeout of the client's entry in the set.
        let leave = format!("update @left {{ {client} }} accept");
        if phase != Phase::Learning {
            rules.push(format!("{to_us} {syn} {client} @left {leave}"));
            rules.push(format!("{to_us} {client} @left accept"));
            rules.push(format!("{to_us}{chosen} {first_fragment} counter drop comment \"first fragments\""));
        }
        match phase {
            Phase::Learning => {
                rules.push(format!("{to_us}{chosen} {syn} add @ours {{ {client} }} {forward}"));
                rules.push(format!("{to_us} {client} @ours {forward}"));
            }
            Phase::Steady => {
                let (rate, burst) = (self.syn_rate, self.syn_burst());
                let beyond = format!("limit rate over {rate}/second burst {burst} packets");
                rules.push(format!("{to_us}{chosen} {syn} {beyond} {leave}"));
                rules.push(format!("{to_us}{chosen} {forward}"));
            }
            Phase::Aside => {
                rules.push(format!("{to_us}{chosen} {syn} {leave}"));
                rules.push(format!("{to_us}{chosen} {forward}"));
            }
        }
        if phase != Phase::Learning {
            rules.push(format!("{} {forward}", self.too_big()));
        }
        rules.iter().map(|rule| format!("add rule netdev {} steer {rule}", self.table)).collect()
    }

    /// Returns the conditions for ICMP messages about the path MTU that quote a packet of the port. The quoted
    /// packet begins after eight octets (RFC 792, RFC 4443); its offsets are in bits.
    fn too_big(&self) -> String {
        let (address, port) = (self.listen.ip(), self.listen.port());
        let quoted = match address {
            // The checks compare the first octet of a header without options, the protocol number of TCP, the source
            // address, and the source port.
            IpAddr::V4(v4) => format!(
                "icmp type destination-unreachable icmp code frag-needed @th,64,8 0x45 @th,136,8 6 \
                 @th,160,32 {:#x} @th,224,16 {port}",
                v4.to_bits()
            ),
            IpAddr::V6(v6) => format!(
                "icmpv6 type packet-too-big @th,112,8 6 @th,128,128 {:#x} @th,384,16 {port}",
                v6.to_bits()
            ),
        };
        let (ip, _) = self.family();
        let limit = format!("limit rate {MOST_ICMP}/second burst {MOST_ICMP} packets");
        format!("{ip} daddr {address} {quoted} {limit}")
    }

    /// Returns the rules for packets that the worker sends. Other packets of the device are dropped, so that a
    /// defective worker cannot impersonate other services.
    fn rules_out(&self) -> Vec<String> {
        let (ip, _) = self.family();
        let ours = format!("{ip} saddr {} tcp sport {}", self.listen.ip(), self.listen.port());
        let mut rules = Vec::new();
        for Hop { network, gateway, device } in &self.hops {
            let network = network.map(|(address, len)| format!(" {ip} daddr {address}/{len}"));
            let to_hop = format!("{ours}{}", network.unwrap_or_default());
            if let Some(gateway) = gateway {
                rules.push(format!("{to_hop} fwd {ip} to {gateway} device \"{device}\""));
                continue;
            }
            let forward = if self.routed {
                "accept".into()
            } else {
                format!("fwd {ip} to {ip} daddr device \"{device}\"")
            };
            rules.push(format!("{to_hop} {ip} daddr @neighbours {forward}"));
            rules.push(format!(
                "{to_hop} limit rate over {NEW_NEIGHBOURS}/second burst {NEW_NEIGHBOURS} packets counter drop \
                 comment \"new neighbours\""
            ));
            rules.push(format!("{to_hop} add @neighbours {{ {ip} daddr }} {forward}"));
            // If the set is full, packets are forwarded without an entry.
            rules.push(format!("{to_hop} {forward}"));
        }
        if self.routed {
            rules.push(format!("{ours} accept"));
        }
        rules.push("counter drop".into());
        rules.iter().map(|rule| format!("add rule netdev {} out {rule}", self.table)).collect()
    }

    fn family(&self) -> (&'static str, Family) {
        if self.listen.is_ipv4() { ("ip", Family::V4) } else { ("ip6", Family::V6) }
    }
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

/// Returns a transaction that nft accepts if and only if the user's expression can be part of a rule for packets to
/// `listen`.
pub(crate) fn rule_with(listen: SocketAddr, matching: &str) -> String {
    const TABLE: &str = "netdev fullpipe_check";
    let ip = if listen.is_ipv4() { "ip" } else { "ip6" };
    let to_us = format!("{ip} daddr {} tcp dport {}", listen.ip(), listen.port());
    [
        format!("add table {TABLE}"),
        format!("add chain {TABLE} steer"),
        format!("add rule {TABLE} steer {to_us} {matching} accept"),
    ]
    .join(SEPARATOR)
}

/// Checks that an nftables expression of the user cannot change the rest of its rule.
///
/// # Errors
/// Returns the reason why the expression cannot be used.
pub fn check_match(expression: &str) -> Result<(), String> {
    let forbidden = |c: char| c == ';' || c == '#' || c.is_control();
    if expression.trim().is_empty() {
        return Err("the expression is empty".into());
    }
    if let Some(found) = expression.chars().find(|c| forbidden(*c)) {
        return Err(format!("the expression contains {found:?}, which would end the nftables rule"));
    }
    let (mut open, mut quoted) = (0i32, false);
    for c in expression.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' if !quoted => open += 1,
            '}' if !quoted => open -= 1,
            _ => {}
        }
        if open < 0 {
            break;
        }
    }
    if open != 0 || quoted {
        return Err("the expression has an unbalanced brace or quotation mark".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steering(listen: &str) -> Steering {
        let v4 = listen.starts_with(|c: char| c.is_ascii_digit());
        let address = |v4_text: &str, v6_text: &str| -> IpAddr {
            let text = if v4 { v4_text } else { v6_text };
            text.parse().expect("an address")
        };
        let network = if v4 { 24 } else { 64 };
        Steering {
            table: "fullpipe_fp0".into(),
            tun: "fp0".into(),
            listen: listen.parse().expect("an address"),
            matching: None,
            syn_rate: 50_000,
            incoming: vec!["eth0".into()],
            hops: vec![
                Hop {
                    network: Some((address("203.0.113.0", "2001:db8::"), network)),
                    gateway: None,
                    device: "eth0".into(),
                },
                Hop {
                    network: None,
                    gateway: Some(address("203.0.113.254", "fe80::1")),
                    device: "eth0".into(),
                },
            ],
            routed: false,
        }
    }

    fn clients(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|client| client.parse().expect("an address")).collect()
    }

    #[test]
    fn the_first_transaction_takes_only_what_is_new() {
        let text = steering("203.0.113.5:443").install(Phase::Learning, &[]);
        let expected = [
            "add table netdev fullpipe_fp0 { flags owner; }",
            "add set netdev fullpipe_fp0 ours { type ipv4_addr . inet_service; flags dynamic; \
             size 1048576; }",
            "add set netdev fullpipe_fp0 theirs { type ipv4_addr . inet_service; flags dynamic; \
             size 1048576; }",
            "add set netdev fullpipe_fp0 left { type ipv4_addr . inet_service; flags dynamic, timeout; \
             timeout 4s; size 262144; }",
            "add set netdev fullpipe_fp0 neighbours { type ipv4_addr; flags dynamic, timeout; timeout 60s; \
             size 65536; }",
            "add chain netdev fullpipe_fp0 steer",
            "add chain netdev fullpipe_fp0 out { type filter hook ingress device \"fp0\" priority 0; \
             policy accept; }",
            "add chain netdev fullpipe_fp0 in_0 { type filter hook ingress device \"eth0\" priority 0; \
             policy accept; }",
            "add rule netdev fullpipe_fp0 in_0 jump steer",
            "add rule netdev fullpipe_fp0 out ip saddr 203.0.113.5 tcp sport 443 ip daddr 203.0.113.0/24 \
             ip daddr @neighbours fwd ip to ip daddr device \"eth0\"",
            "add rule netdev fullpipe_fp0 out ip saddr 203.0.113.5 tcp sport 443 ip daddr 203.0.113.0/24 \
             limit rate over 200/second burst 200 packets counter drop comment \"new neighbours\"",
            "add rule netdev fullpipe_fp0 out ip saddr 203.0.113.5 tcp sport 443 ip daddr 203.0.113.0/24 \
             add @neighbours { ip daddr } fwd ip to ip daddr device \"eth0\"",
            "add rule netdev fullpipe_fp0 out ip saddr 203.0.113.5 tcp sport 443 ip daddr 203.0.113.0/24 \
             fwd ip to ip daddr device \"eth0\"",
            "add rule netdev fullpipe_fp0 out ip saddr 203.0.113.5 tcp sport 443 \
             fwd ip to 203.0.113.254 device \"eth0\"",
            "add rule netdev fullpipe_fp0 out counter drop",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 ip saddr . tcp sport \
             @theirs accept",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 \
             tcp flags & (fin | syn | rst | ack) == syn add @ours { ip saddr . tcp sport } \
             fwd ip to ip daddr device \"fp0\"",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 ip saddr . tcp sport \
             @ours fwd ip to ip daddr device \"fp0\"",
        ];
        assert_eq!(text, expected.join("; "));
    }

    /// The second transaction leaves the kernel's connections to the kernel, and steers all other packets to the
    /// worker. The set cannot contain a client of the other address family.
    #[test]
    fn the_second_transaction_takes_the_rest() {
        let theirs = clients(&["198.51.100.7:40000", "[2001:db8::1]:5", "198.51.100.8:40001"]);
        let text = steering("203.0.113.5:443").switch(Phase::Steady, Some(&theirs[..]));
        let expected = [
            "flush chain netdev fullpipe_fp0 steer",
            "flush set netdev fullpipe_fp0 theirs",
            "add element netdev fullpipe_fp0 theirs { 198.51.100.7 . 40000, 198.51.100.8 . 40001 }",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 ip saddr . tcp sport \
             @theirs accept",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 \
             tcp flags & (fin | syn | rst | ack) == syn ip saddr . tcp sport @left \
             update @left { ip saddr . tcp sport } accept",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 ip saddr . tcp sport \
             @left accept",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 \
             ip frag-off & 0x3fff == 0x2000 counter drop comment \"first fragments\"",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 \
             tcp flags & (fin | syn | rst | ack) == syn limit rate over 50000/second burst 5000 packets \
             update @left { ip saddr . tcp sport } accept",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 tcp dport 443 \
             fwd ip to ip daddr device \"fp0\"",
            "add rule netdev fullpipe_fp0 steer ip daddr 203.0.113.5 icmp type destination-unreachable \
             icmp code frag-needed @th,64,8 0x45 @th,136,8 6 @th,160,32 0xcb007105 @th,224,16 443 \
             limit rate 1000/second burst 1000 packets fwd ip to ip daddr device \"fp0\"",
            "flush set netdev fullpipe_fp0 ours",
        ];
        assert_eq!(text, expected.join("; "));
    }

    /// While the worker is silent, SYNs go to the kernel, and add their clients to the set of the kernel's connections.
    #[test]
    fn aside_leaves_new_connections_to_the_kernel() {
        let text = steering("203.0.113.5:443").switch(Phase::Aside, None);
        assert!(!text.contains("flush set"), "{text}");
        let syn = text.find("== syn update @left { ip saddr . tcp sport } accept").expect("a rule for SYNs");
        let rest = text.find("tcp dport 443 fwd ip to ip daddr").expect("a rule for the rest");
        assert!(syn < rest, "{text}");
    }

    #[test]
    fn ipv6_has_its_own_words() {
        let steering = steering("[2001:db8::5]:443");
        let text = steering.install(Phase::Steady, &clients(&["[2001:db8::7]:1"]));
        for part in [
            "type ipv6_addr . inet_service",
            "ip6 daddr 2001:db8::5 tcp dport 443 frag more-fragments 1 counter drop",
            "ip6 daddr 2001:db8::5 tcp dport 443 ip6 saddr . tcp sport @theirs accept",
            "fwd ip6 to ip6 daddr device \"fp0\"",
            "packet-too-big @th,112,8 6 @th,128,128 0x20010db8000000000000000000000005 @th,384,16 443 limit",
            "ip6 daddr 2001:db8::/64 fwd ip6 to ip6 daddr device \"eth0\"",
            "add @neighbours { ip6 daddr } fwd ip6 to ip6 daddr device \"eth0\"",
            "tcp sport 443 fwd ip6 to fe80::1 device \"eth0\"",
            "add element netdev fullpipe_fp0 theirs { 2001:db8::7 . 1 }",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// If the kernel routes the packets, it gets the packets of the port untracked, and no other packets of the device.
    #[test]
    fn a_routed_way_leaves_packets_to_the_kernel() {
        let direct = steering("203.0.113.5:443");
        let mut routed = Steering { routed: true, ..direct.clone() };
        routed.hops.pop();
        let text = routed.replace(&direct, Phase::Steady, &[]);
        for part in [
            "delete table netdev fullpipe_fp0; add table netdev",
            "ip daddr 203.0.113.0/24 ip daddr @neighbours accept",
            "add rule netdev fullpipe_fp0 out ip saddr 203.0.113.5 tcp sport 443 accept; \
             add rule netdev fullpipe_fp0 out counter drop",
            "add table ip fullpipe_fp0 { flags owner; }",
            "add rule ip fullpipe_fp0 untracked iifname \"fp0\" notrack",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("device \"eth0\" tcp") && !text.contains("fwd ip to 203"), "{text}");
        let back = direct.replace(&routed, Phase::Steady, &[]);
        assert!(
            back.starts_with("delete table netdev fullpipe_fp0; delete table ip fullpipe_fp0; add"),
            "{back}"
        );
    }

    /// The user's expression restricts new connections, but never existing ones.
    #[test]
    fn a_match_chooses_clients() {
        let matching = Some("ip saddr { 198.51.100.0/24 }".to_owned());
        let text = Steering { matching, ..steering("203.0.113.5:443") }.install(Phase::Learning, &[]);
        assert!(text.contains("tcp dport 443 ip saddr { 198.51.100.0/24 } tcp flags"), "{text}");
        assert!(text.contains("tcp dport 443 ip saddr . tcp sport @ours fwd"), "{text}");
    }

    #[test]
    fn every_transaction_is_one_line() {
        let steering = steering("203.0.113.5:443");
        let theirs = clients(&["198.51.100.7:40000"]);
        assert_eq!(steering.remove(), "delete table netdev fullpipe_fp0");
        assert_eq!(steering.update(&[], &[]), None);
        let forget = steering.update(&theirs, &[]).expect("an element");
        assert_eq!(forget, "delete element netdev fullpipe_fp0 theirs { 198.51.100.7 . 40000 }");
        let both = steering.update(&theirs, &theirs).expect("two commands");
        assert_eq!(both, format!("{forget}; {}", forget.replace("delete", "add")));
        for text in [
            steering.install(Phase::Learning, &theirs),
            steering.replace(&steering, Phase::Steady, &theirs),
            steering.switch(Phase::Aside, None),
        ] {
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn an_expression_stays_within_its_rule() {
        for good in ["ip saddr 198.51.100.0/24", "ip saddr { 10.0.0.0/8, 192.0.2.1 }", "iifname \"eth0\""] {
            assert_eq!(check_match(good), Ok(()), "{good}");
        }
        for bad in
            ["", " ", "accept; flush ruleset", "ip saddr 1.2.3.4 # all", "a\nb", "}", "{ {", "iifname \"e"]
        {
            assert!(check_match(bad).is_err(), "{bad:?}");
        }
    }
}
