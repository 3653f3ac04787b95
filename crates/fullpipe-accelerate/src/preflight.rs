//! Examines the host before the service changes anything: which changes it would make, and which obstacles
//! exist.
//!
//! Most facts can be read without privileges. Only root can read the firewall rules; without root privileges,
//! a note says that they were not examined.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;

use fullpipe_linux::ipsec::{End, Policy};
use fullpipe_linux::routing::{Routing, merges_in_hardware};
use fullpipe_linux::sock_diag::SockDiag;
use fullpipe_linux::{Error, Kind};
use fullpipe_tcp::buffers::KernelVersion;
use rustix::system::uname;

use crate::config::{ClientAddress, Settings, Upstream};
use crate::routes::{WayOut, way_out};
use crate::steering::{self, Phase, Steering};
use crate::{firewall, forwarding, nft, ports, status, users};

/// First kernel version with tables that belong to a process (`flags owner`).
const OWNED_TABLES: KernelVersion = KernelVersion::new(5, 12);
/// Number of device names to try: `fp0`, `fp1`, ...
const MOST_DEVICES: u32 = 64;

/// Hint for an objection to a firewall rule.
const IGNORE: &str = "to start anyway, add --firewall ignore";

/// Options of the user that permit a start despite certain objections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Start even if steered packets would bypass firewall rules.
    pub ignore_firewall: bool,
    /// Start even if the kernel has no listener on the port. The kernel then refuses clients while the worker
    /// is not running.
    pub no_fallback: bool,
}

/// Parameters of the steering, derived from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Table, devices and hops of the steering.
    pub steering: Steering,
    /// Path from this host to the clients.
    pub way: WayOut,
}

/// Reason why the service does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Description of the obstacle, without a final period.
    pub what: String,
    /// Hint that suggests a remedy; empty if there is none.
    pub hint: String,
}

impl Objection {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint[..] {
            "" => f.write_str(&self.what),
            hint => write!(f, "{}; {hint}", self.what),
        }
    }
}

/// Result of examining the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Changes to the host, in the order in which they would be made.
    pub changes: Vec<String>,
    /// Reasons why the service does not start.
    pub objections: Vec<Objection>,
    /// Effects on the server, and other facts that may interest the user.
    pub notes: Vec<String>,
    /// Facts that only root can examine.
    pub unexamined: Vec<String>,
    /// Parameters of the steering; `None` if there is no path to the clients.
    pub plan: Option<Plan>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = |title: &str, lines: &[String]| -> fmt::Result {
            if lines.is_empty() {
                return Ok(());
            }
            writeln!(f, "{title}")?;
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
        };
        list("Changes while the service runs:", &self.changes)?;
        list("Objections:", &self.objections.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        list("Notes:", &self.notes)?;
        list("Not examined, because this requires root:", &self.unexamined)?;
        match (self.objections.is_empty(), self.unexamined.is_empty()) {
            (true, true) => writeln!(f, "Nothing prevents a start."),
            (true, false) => writeln!(f, "Nothing that was examined prevents a start."),
            (false, _) => Ok(()),
        }
    }
}

impl Report {
    /// Returns the plan, or an error that contains the first objection.
    ///
    /// # Errors
    /// Returns an error if there is an objection.
    pub fn into_plan(self) -> Result<Plan, Error> {
        let general = "list all objections with fullpipe accelerate --check";
        let refuse = |what, hint: String| {
            let hint = if hint.is_empty() { general.to_owned() } else { hint };
            Error { kind: Kind::Settings, message: what, hint }
        };
        let more = self.objections.len().saturating_sub(1);
        if let Some(Objection { what, mut hint }) = self.objections.into_iter().next() {
            if more > 0 && !hint.is_empty() {
                hint = format!("{hint}; {general}");
            }
            return Err(refuse(what, hint));
        }
        self.plan.ok_or_else(|| refuse("there is no route to the clients".into(), String::new()))
    }

    /// Returns the nftables commands of a start and a stop, one per line. Comments separate the transactions.
    pub fn commands(&self) -> String {
        let Some(Plan { steering, .. }) = &self.plan else { return String::new() };
        let none: &[SocketAddr] = &[];
        format!(
            "# Start: only new connections are forwarded to the worker.\n{}\n\n\
             # All packets are forwarded, except those of the kernel's connections (set theirs).\n{}\n\n\
             # End\n{}\n",
            steering.install_commands(Phase::Learning, none).join("\n"),
            steering.switch_commands(Phase::Steady, Some(none)).join("\n"),
            steering.remove()
        )
    }
}

/// Examines the host of the calling thread's network namespace. The function changes nothing.
///
/// # Errors
/// Returns an error if facts that need no privileges cannot be read.
pub fn examine(settings: &Settings, permissions: Permissions) -> Result<Report, Error> {
    let mut report = Report::default();
    let routing = Routing::read()?;
    let tun = free_name(&routing);
    match way_out(&routing, settings.listen.ip(), &tun) {
        Ok(way) => {
            let steering = steering(settings, &tun, &way);
            changes(&mut report, settings, &steering);
            if way.is_routed() {
                report.objections.extend(forwarding::obstacle(settings.listen.is_ipv6()));
                let why = way.obstacles.iter();
                report
                    .notes
                    .extend(why.map(|why| format!("{why}, so the kernel routes the worker's packets")));
            }
            let devices = way.incoming.iter().map(|(_, device)| device.as_str());
            report.objections.extend(merging(devices, merges_in_hardware)?);
            report.plan = Some(Plan { steering, way });
        }
        Err(no_way) => {
            report.objections.extend(no_way.reasons().into_iter().map(|what| Objection::new(what, "")));
        }
    }
    match &routing.ipsec {
        Some(policies) => ipsec(&mut report, policies, settings.listen, permissions),
        None => report.unexamined.push("IPsec policies".into()),
    }
    kernel(&mut report);
    device(&mut report);
    worker(&mut report, settings.user.as_deref());
    listener(&mut report, settings.listen, permissions)?;
    running(&mut report, settings.listen);
    rules(&mut report, settings, permissions)?;
    server(&mut report, settings);
    Ok(report)
}

/// Returns an objection for each device that merges received packets, according to `merges`. Merged packets cannot be
/// forwarded, because they no longer contain the headers of the single segments.
fn merging<'d>(
    devices: impl Iterator<Item = &'d str>,
    merges: impl Fn(&str) -> Result<Option<bool>, Error>,
) -> Result<Vec<Objection>, Error> {
    let mut found = Vec::new();
    for device in devices {
        // A driver that does not know the setting does not merge packets.
        if merges(device)? == Some(true) {
            found.push(Objection::new(
                format!("{device} merges received packets (large-receive-offload)"),
                format!("run ethtool -K {device} lro off"),
            ));
        }
    }
    Ok(found)
}

/// Derives the steering from the settings and the path to the clients.
pub(crate) fn steering(settings: &Settings, tun: &str, way: &WayOut) -> Steering {
    Steering {
        table: format!("fullpipe_{tun}"),
        tun: tun.into(),
        listen: settings.listen,
        matching: settings.matching.clone(),
        syn_rate: settings.syn_rate,
        incoming: way.incoming.iter().map(|(_, name)| name.clone()).collect(),
        hops: way.hops.clone(),
        routed: way.is_routed(),
    }
}

/// Returns a device name that is not used yet.
fn free_name(routing: &Routing) -> String {
    let mut names = (0..MOST_DEVICES).map(|number| format!("fp{number}"));
    let free = |name: &String| !routing.devices.iter().any(|device| device.name == *name);
    // If all names are taken, creating the device fails with an error that contains the name.
    names.find(free).unwrap_or_else(|| "fp0".into())
}

fn changes(report: &mut Report, settings: &Settings, steering: &Steering) {
    let Steering { table, tun, listen, .. } = steering;
    report.changes = vec![
        format!("TUN device {tun}, without an address"),
        format!("nftables table netdev {table}, which the kernel removes when this process ends"),
        format!("new connections to {listen} on {} go to the worker", steering.incoming.join(", ")),
        format!("the worker opens one connection to {} for each new connection", settings.upstream),
    ];
    if steering.routed {
        report
            .changes
            .push(format!("the kernel forwards packets that arrive on {tun}, but not on other devices"));
    }
    if settings.client_address == ClientAddress::Transparent {
        report.changes.push(format!(
            "a policy rule and a local route deliver packets from {} to the worker, whose sockets have the \
             addresses of the clients",
            settings.upstream
        ));
    }
}

/// Adds an objection for each IPsec policy that steered packets would bypass, or that drops forwarded
/// packets.
fn ipsec(report: &mut Report, policies: &[Policy], listen: SocketAddr, permissions: Permissions) {
    let networks = |applies: fn(&Policy, SocketAddr) -> bool, end: fn(&Policy) -> End| -> Vec<String> {
        let policies = policies.iter().filter(|policy| applies(policy, listen));
        policies.map(|policy| format!("{}/{}", end(policy).network, end(policy).prefix_len)).collect()
    };
    let sources = networks(Policy::refuses_plain_packets_to, |policy| policy.source);
    let destinations = networks(Policy::forwards_no_packets_from, |policy| policy.destination);
    let bypassed = sources.into_iter().map(|network| {
        format!("plain packets from {network} would bypass an IPsec policy, which drops them")
    });
    let blocked = destinations.into_iter().map(|network| {
        format!("an IPsec policy drops the worker's packets to {network}, which the kernel has to route")
    });
    for objection in bypassed.chain(blocked) {
        if permissions.ignore_firewall {
            report.notes.push(format!("{objection} (ignored)"));
        } else {
            report.objections.push(Objection::new(objection, IGNORE));
        }
    }
}

fn kernel(report: &mut Report) {
    let release = uname().release().to_string_lossy().into_owned();
    match release.parse::<KernelVersion>() {
        Ok(version) if version < OWNED_TABLES => report.objections.push(Objection::new(
            format!("kernel {release} does not support nftables tables that belong to a process"),
            format!("Linux {}.{} or later is required", OWNED_TABLES.major, OWNED_TABLES.minor),
        )),
        Ok(_) => {}
        Err(error) => report.notes.push(error.to_string()),
    }
}

fn device(report: &mut Report) {
    const TUN: &str = "/dev/net/tun";
    match File::options().read(true).write(true).open(TUN) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            report.unexamined.push(TUN.into());
        }
        Err(error) => report.objections.push(Objection::new(
            format!("cannot open {TUN}: {error}"),
            "load the module tun, or pass the device to the container",
        )),
    }
}

/// Adds an objection if the worker has no user.
fn worker(report: &mut Report, user: Option<&str>) {
    if let Err(Error { message, hint, .. }) = users::user(user) {
        report.objections.push(Objection::new(message, hint));
    }
}

/// Adds an objection if the kernel has no listener on the port, unless `permissions` allows this: without a
/// listener, no client could connect while the worker is restarted.
fn listener(report: &mut Report, listen: SocketAddr, permissions: Permissions) -> Result<(), Error> {
    let sockets = SockDiag::open()?.at_port(listen.port())?;
    if sockets.iter().any(|socket| socket.accepts(listen)) {
        let open = sockets.iter().filter(|socket| !socket.listens).count();
        if open > 0 {
            report.notes.push(format!("{open} open connections to the port stay with the kernel"));
        }
    } else if permissions.no_fallback {
        report.notes.push(format!("no server listens on {listen}, so nothing answers without the worker"));
    } else {
        report.objections.push(Objection::new(
            format!("no server listens on {listen}, so nothing would answer without the worker"),
            "to start anyway, add --no-fallback",
        ));
    }
    Ok(())
}

fn running(report: &mut Report, listen: SocketAddr) {
    if let Some(other) = status::service_at(listen) {
        let keeper = other.keeper;
        report.objections.push(Objection::new(
            format!("process {keeper} already accelerates {listen}"),
            "end that process first; fullpipe accelerate status shows it",
        ));
    }
}

fn rules(report: &mut Report, settings: &Settings, permissions: Permissions) -> Result<(), Error> {
    let listen = settings.listen;
    let ruleset = match nft::query(&["-j", "list", "ruleset"]) {
        Ok(ruleset) => ruleset,
        Err(error) if error.kind == Kind::Rights => {
            report.unexamined.push("firewall rules".into());
            return Ok(());
        }
        Err(error) => {
            report.objections.push(Objection::new(error.message, error.hint));
            return Ok(());
        }
    };
    if let Some(matching) = &settings.matching
        && let Some(why) = nft::objection(&steering::rule_with(listen, matching))?
    {
        report.objections.push(Objection::new(
            format!("nft refuses the expression of --match: {why}"),
            "write an nftables expression, for example 'ip saddr 198.51.100.0/24'",
        ));
    }
    if let Some(tables) = legacy_tables(listen) {
        let objection = format!("fullpipe cannot read the rules of iptables-legacy (tables {tables})");
        if permissions.ignore_firewall {
            report.notes.push(format!("{objection} (ignored)"));
        } else {
            report.objections.push(Objection::new(objection, IGNORE));
        }
    }
    let devices = report.plan.as_ref().map(|plan| plan.steering.incoming.clone()).unwrap_or_default();
    let mut found = firewall::judge(&ruleset, listen, &devices).map_err(unreadable)?;
    if let Some(Plan { steering, .. }) = report.plan.as_ref().filter(|plan| plan.way.is_routed()) {
        found.extend(firewall::judge_forwarding(&ruleset, listen, &steering.tun).map_err(unreadable)?);
    }
    for objection in found {
        if permissions.ignore_firewall && !objection.is_final() {
            report.notes.push(format!("{objection} (ignored)"));
        } else if objection.is_final() {
            report.objections.push(Objection::new(objection.to_string(), ""));
        } else {
            report.objections.push(Objection::new(objection.to_string(), IGNORE));
        }
    }
    Ok(())
}

/// Returns the error for a rule list that does not have the expected form.
fn unreadable(why: String) -> Error {
    crate::refused(format!("cannot read the output of nft: {why}"), "")
}

/// Returns the reasons why the kernel cannot route the worker's packets.
pub(crate) fn obstacles_to_forwarding(
    settings: &Settings,
    permissions: Permissions,
    tun: &str,
) -> Result<Vec<String>, Error> {
    let listen = settings.listen;
    let kernel = forwarding::obstacle(listen.is_ipv6());
    if kernel.is_some() || permissions.ignore_firewall {
        return Ok(kernel.map(|objection| objection.what).into_iter().collect());
    }
    let ruleset = nft::query(&["-j", "list", "ruleset"])?;
    let found = firewall::judge_forwarding(&ruleset, listen, tun).map_err(unreadable)?;
    Ok(found.iter().map(ToString::to_string).collect())
}

/// Returns the names of the iptables-legacy tables, whose rules nft does not list; `None` if there are none.
fn legacy_tables(listen: SocketAddr) -> Option<String> {
    let file = if listen.is_ipv4() { "ip_tables_names" } else { "ip6_tables_names" };
    // Without iptables-legacy, there is no such file.
    let names = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).ok()?;
    let names: Vec<&str> = names.split_whitespace().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Adds notes on the effects on the server.
fn server(report: &mut Report, settings: &Settings) {
    match (settings.client_address, &settings.upstream) {
        (ClientAddress::ProxyV2, Upstream::Tcp(address)) if address.ip().is_loopback() => {
            report.notes.push(
                "the server must accept version 2 of the PROXY protocol from all addresses in 127.0.0.0/8"
                    .into(),
            );
        }
        (ClientAddress::ProxyV2, _) => {
            report.notes.push("the server must accept version 2 of the PROXY protocol from this host".into());
        }
        (ClientAddress::Transparent, _) => {
            report.notes.push("the worker keeps the capability CAP_NET_RAW".into());
        }
        (ClientAddress::Hidden, _) => {
            report.notes.push("the server sees an address of this host instead of the client's".into());
        }
    }
    if matches!(settings.upstream, Upstream::Unix(_)) {
        report.notes.push(
            "a Unix socket cannot be reset: if the worker is killed during an upload, the server sees end-of-file \
             instead of an error"
                .into(),
        );
    }
    if let Some(ports) = ports::most_connections(settings).filter(|ports| settings.connections > *ports) {
        report.notes.push(format!(
            "this host has {ports} local ports for connections to {} (net.ipv4.ip_local_port_range), so at most \
             {ports} connections are accelerated at the same time instead of {}; a server on 127.0.0.1 does not have this limit",
            settings.upstream, settings.connections
        ));
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_linux::ipsec::Direction;
    use fullpipe_linux::routing::Device;
    use fullpipe_tcp::cc::Algorithm;
    use fullpipe_units::Bytes;

    use super::*;

    fn settings(listen: &str) -> Settings {
        Settings {
            listen: listen.parse().expect("an address"),
            upstream: Upstream::Tcp(SocketAddr::from(([127, 0, 0, 1], 8_443))),
            client_address: ClientAddress::ProxyV2,
            cc: Algorithm::Bbr1,
            matching: None,
            user: None,
            memory: Bytes::from_mib(64),
            connections: 1_000,
            syn_rate: 50_000,
            paths: crate::config::Paths::default(),
            speed: None,
            senders: Default::default(),
        }
    }

    #[test]
    fn a_name_that_is_taken_is_not_used() {
        let device = |name: &str| Device { name: name.into(), ..Device::default() };
        let mut routing = Routing { devices: vec![device("lo"), device("fp0")], ..Routing::default() };
        assert_eq!(free_name(&routing), "fp1");
        routing.devices.pop();
        assert_eq!(free_name(&routing), "fp0");
    }

    /// An address of another host and a port without a server lead to objections, on any host and without
    /// privileges.
    #[test]
    fn a_foreign_address_is_an_objection() {
        let report = examine(&settings("192.0.2.77:9"), Permissions::default()).expect("readable facts");
        let text = report.to_string();
        assert!(text.contains("192.0.2.77 is not an address of this host"), "{text}");
        assert!(text.contains("no server listens on 192.0.2.77:9"), "{text}");
        assert_eq!(report.commands(), "");
        assert!(report.into_plan().is_err());
    }

    /// Merged packets are an objection. A driver that does not know the setting merges none.
    #[test]
    fn a_device_that_merges_packets_is_an_objection() {
        let merges = |device: &str| {
            Ok(match device {
                "eth0" => Some(true),
                "eth1" => Some(false),
                _ => None,
            })
        };
        let found = merging(["eth0", "eth1", "eth2"].into_iter(), merges).expect("readable");
        let [Objection { what, hint }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(what, "eth0 merges received packets (large-receive-offload)");
        assert_eq!(hint, "run ethtool -K eth0 lro off");
    }

    #[test]
    fn a_missing_user_is_an_objection() {
        let user = Some("no-such-user".to_owned());
        let settings = Settings { user, ..settings("192.0.2.77:9") };
        let text = examine(&settings, Permissions::default()).expect("readable facts").to_string();
        assert!(text.contains("there is no user no-such-user; create this user"), "{text}");
    }

    #[test]
    fn a_report_without_objections_says_so() {
        let mut report = Report { changes: vec!["a device".into()], ..Report::default() };
        assert_eq!(
            report.to_string(),
            "Changes while the service runs:\n  a device\nNothing prevents a start.\n"
        );
        report.unexamined.push("firewall rules".into());
        assert_eq!(
            report.to_string(),
            "Changes while the service runs:\n  a device\nNot examined, because this requires root:\n  \
             firewall rules\nNothing that was examined prevents a start.\n"
        );
    }

    /// The commands of a dry run are readable, because each is on its own line.
    #[test]
    fn commands_are_printed_line_by_line() {
        let way = WayOut {
            hops: Vec::new(),
            incoming: vec![(2, "eth0".into())],
            mtu: 1_500,
            obstacles: Vec::new(),
        };
        let steering = steering(&settings("203.0.113.5:443"), "fp0", &way);
        let report = Report { plan: Some(Plan { steering, way }), ..Report::default() };
        let text = report.commands();
        let begins = ["# ", "add ", "flush ", "delete "];
        for line in text.lines().filter(|line| !line.is_empty()) {
            assert!(begins.iter().any(|begin| line.starts_with(begin)), "{line}");
            assert_eq!(line.matches("netdev").count(), usize::from(!line.starts_with('#')), "{line}");
        }
    }

    #[test]
    fn the_server_learns_what_changes() {
        let upstream = Upstream::Tcp("[::1]:80".parse().expect("an address"));
        let settings = Settings { upstream, connections: 100_000, ..settings("192.0.2.1:80") };
        let mut report = Report::default();
        server(&mut report, &settings);
        assert!(report.notes[0].contains("PROXY protocol"), "{report}");
        let ports = ports::most_connections(&settings).expect("a limit");
        let expected = format!("this host has {ports} local ports for connections to [::1]:80");
        assert!(report.notes[1].contains(&expected), "{report}");
        let mut report = Report::default();
        server(&mut report, &Settings { client_address: ClientAddress::Transparent, ..settings });
        assert_eq!(report.notes.len(), 1, "the sources are the clients' addresses: {report}");
    }

    /// Steered packets bypass IPsec policies for packets to the port.
    #[test]
    fn a_policy_that_would_be_bypassed_is_an_objection() {
        let end = |text: &str, prefix_len, port| End {
            network: text.parse().expect("an address"),
            prefix_len,
            port,
        };
        let policy = Policy {
            direction: Direction::In,
            source: end("198.51.100.0", 24, (0, 0)),
            destination: end("203.0.113.5", 32, (443, 0xffff)),
            tcp: true,
            requires_ipsec: true,
        };
        let forward = Policy {
            direction: Direction::Forward,
            source: end("203.0.113.5", 32, (0, 0)),
            destination: policy.source,
            ..policy
        };
        let listen = SocketAddr::from(([203, 0, 113, 5], 443));
        let judged = |listen, permissions| {
            let mut report = Report::default();
            ipsec(&mut report, &[policy, forward], listen, permissions);
            report
        };
        let report = judged(listen, Permissions::default());
        let [bypassed, blocked] = &report.objections[..] else { panic!("{report}") };
        assert_eq!(
            bypassed.what,
            "plain packets from 198.51.100.0/24 would bypass an IPsec policy, which drops them"
        );
        assert!(blocked.what.contains("worker's packets to 198.51.100.0/24"), "{report}");
        let ignoring = Permissions { ignore_firewall: true, ..Permissions::default() };
        assert_eq!(judged(listen, ignoring).notes.len(), 2);
        let other = judged(SocketAddr::from(([203, 0, 113, 6], 443)), Permissions::default());
        assert_eq!(other, Report::default());
    }
}
