//! Return path for the replies of a server on a loopback address. Transparent sockets of this host connect to
//! the server from addresses of other hosts.
//!
//! ```text
//!   socket bound to 198.51.100.7:40000 ── lo ──► server at 127.0.0.1:8080
//!   socket bound to 198.51.100.7:40000 ◄── lo ── answer to 198.51.100.7
//!                                          ▲
//!             rule: from 127.0.0.1 iif lo ipproto tcp sport 8080 ─► table: local default dev lo
//! ```
//!
//! Without the rule, the kernel would send the server's replies along the route to the client. The rule
//! affects no other traffic. It matches only packets from a loopback address, and the kernel sends no such
//! packets to other hosts. Packets to addresses of this host never reach the rule, because the table
//! `local`, whose rule has priority 0, handles them first.
//!
//! Rules and routes outlive the process that created them. They have a protocol number by which a later
//! process finds and removes them.

use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};

use crate::error::{Doing, Error};
use crate::netlink::Netlink;
use crate::routing::{Routing, Rule};

/// Protocol number of the rules and routes of this module (`rtnetlink(7)`). The kernel does not interpret
/// numbers above 4, and no routing program in `/etc/iproute2/rt_protos` uses this one.
pub const PROTOCOL: u8 = 0xf6;
/// Number of the first routing table.
const FIRST_TABLE: u32 = 0x6670_0000;
/// Maximum number of routing tables.
const MOST_TABLES: u32 = 1 << 16;
/// Priority of the rules: after the rule for the table `local`, and before all others.
const PRIORITY: u32 = 1;

/// A rule and a route that keep the replies of one server on this host. Both are removed when this value is
/// dropped.
#[derive(Debug)]
pub struct ReturnPath {
    server: SocketAddr,
    table: u32,
}

impl ReturnPath {
    /// Creates return path number `number` in the calling thread's network namespace, for a server at a
    /// loopback address.
    ///
    /// # Errors
    /// Returns an error if the process lacks `CAP_NET_ADMIN`, or if the kernel refuses the rule or the route.
    pub fn new(server: SocketAddr, number: u32) -> Result<Self, Error> {
        let path = Self { server, table: table(number) };
        path.complete()?;
        Ok(path)
    }

    /// Returns whether the rule and the route still exist. Programs that manage the network may remove rules
    /// and routes that they do not know.
    pub fn is_complete(&self, routing: &Routing) -> bool {
        let ipv6 = self.server.is_ipv6();
        let rule = |rule: &Rule| rule.ipv6 == ipv6 && rule.protocol == PROTOCOL && rule.table == self.table;
        let of_table =
            |destination: std::net::IpAddr, table| destination.is_ipv6() == ipv6 && table == self.table;
        routing.rules.iter().any(rule)
            && routing.routes.iter().any(|route| of_table(route.destination, route.table))
    }

    /// Adds the rule and the route if they are missing.
    ///
    /// # Errors
    /// Returns the same errors as [`ReturnPath::new`].
    pub fn complete(&self) -> Result<(), Error> {
        let netlink = Netlink::new()?;
        let ipv6 = self.server.is_ipv6();
        let route = route(&netlink, ipv6, self.table)?;
        let rule = selecting(ipv6, self.table, self.server);
        // The route is added first, because a rule needs a route in its table.
        for message in [RouteNetlinkMessage::NewRoute(route), RouteNetlinkMessage::NewRule(rule)] {
            match netlink.change(message, NLM_F_CREATE | NLM_F_EXCL) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).doing("add the return path of the server");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the return paths of this network namespace that processes have left behind, except those with
    /// a number in `kept`. Returns the number of removed rules.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer, or refuses the removal.
    pub fn remove_all_but(kept: &[u32]) -> Result<usize, Error> {
        let kept: Vec<u32> = kept.iter().map(|number| table(*number)).collect();
        remove(&|table| !kept.contains(&table))
    }
}

impl Drop for ReturnPath {
    fn drop(&mut self) {
        // Rules and routes that cannot be removed now are removed at the next start.
        let _ = remove(&|table| table == self.table);
    }
}

/// Removes the rules and routes of this module whose table satisfies `chosen`. Returns the number of removed
/// rules.
fn remove(chosen: &dyn Fn(u32) -> bool) -> Result<usize, Error> {
    let routing = Routing::read()?;
    let netlink = Netlink::new()?;
    let ours = |table: u32| (FIRST_TABLE..FIRST_TABLE + MOST_TABLES).contains(&table) && chosen(table);
    let mut removed = 0;
    for found in routing.rules.iter().filter(|rule| rule.protocol == PROTOCOL && ours(rule.table)) {
        let message = RouteNetlinkMessage::DelRule(rule(found.ipv6, found.table));
        netlink.change(message, 0).doing("remove a policy rule")?;
        removed += 1;
    }
    for found in routing.routes.iter().filter(|route| ours(route.table)) {
        netlink.delete_route(route(&netlink, found.destination.is_ipv6(), found.table)?)?;
    }
    Ok(removed)
}

fn table(number: u32) -> u32 {
    FIRST_TABLE + number.min(MOST_TABLES - 1)
}

fn family(ipv6: bool) -> AddressFamily {
    if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// Returns the attributes that identify a rule of this module.
fn rule(ipv6: bool, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(ipv6);
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    message
}

/// Returns the rule that matches the replies of `server`.
fn selecting(ipv6: bool, table: u32, server: SocketAddr) -> RuleMessage {
    let mut message = rule(ipv6, table);
    message.header.src_len = if ipv6 { 128 } else { 32 };
    message.attributes.extend([
        RuleAttribute::Source(server.ip()),
        RuleAttribute::Iifname("lo".into()),
        RuleAttribute::IpProtocol(IpProtocol::Tcp),
        RuleAttribute::SourcePortRange(RulePortRange { start: server.port(), end: server.port() }),
    ]);
    message
}

/// Returns a route that delivers all packets on this host.
fn route(netlink: &Netlink, ipv6: bool, table: u32) -> Result<RouteMessage, Error> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(ipv6);
    // The table number is in an attribute, because the header field has only eight bits.
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.header.protocol = RouteProtocol::Other(PROTOCOL);
    message.header.scope = RouteScope::Host;
    message.header.kind = RouteType::Local;
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(netlink.index("lo")?)];
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;

    /// For both address families, the rule and the route exist until the value is dropped, and are added
    /// again if another program removes them.
    #[test]
    fn a_return_path_is_removed_with_its_value() {
        let Ok(namespace) = Namespace::new() else { return };
        let steps = || {
            let netlink = Netlink::new()?;
            netlink.up(netlink.index("lo")?, None)?;
            let before = Routing::read()?;
            for server in ["127.0.0.1:8080", "[::1]:8080"] {
                let path = ReturnPath::new(server.parse().expect("an address"), 3)?;
                assert!(path.is_complete(&Routing::read()?), "{server}");
                assert_eq!(ReturnPath::remove_all_but(&[3])?, 0, "{server}");
                assert_eq!(ReturnPath::remove_all_but(&[4])?, 1, "{server}");
                assert!(!path.is_complete(&Routing::read()?), "{server}");
                path.complete()?;
                path.complete()?;
                assert!(path.is_complete(&Routing::read()?), "{server}");
                drop(path);
                assert_eq!(Routing::read()?, before, "{server}");
            }
            Ok(())
        };
        namespace.run(steps).expect("a namespace");
    }
}
