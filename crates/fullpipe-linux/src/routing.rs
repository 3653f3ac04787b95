//! Reads devices, addresses, routes, policy rules and IPsec policies of a network namespace over netlink. Reading them,
//! except the IPsec policies, requires no privileges.
//!
//! The values are plain data, so that decisions about them can be tested without a kernel.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::{AddressFamily as SocketFamily, RecvFlags, SocketType, recv, socket};

use crate::error::{Doing, Error};
use crate::ipsec::{Policy, policies};
use crate::netlink::Netlink;
use crate::sys;

/// Number of the main routing table.
pub const MAIN_TABLE: u32 = 254;

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Index of the device. If a device is deleted and created again, its index changes.
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether the device is up.
    pub up: bool,
    /// Whether the device is a loopback device.
    pub loopback: bool,
    /// Whether the device is a VRF, which has a routing table for the devices assigned to it.
    pub vrf: bool,
    /// Index of the device to which this device is assigned: a VRF, a bridge or a bond.
    pub controller: Option<u32>,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Index of the device that has the address.
    pub device: u32,
    /// The address.
    pub address: IpAddr,
}

/// A route to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination address; the unspecified address with a prefix length of 0 for a default route.
    pub destination: IpAddr,
    /// Prefix length of the destination.
    pub prefix_len: u8,
    /// Gateway; `None` if the destination is connected to the device.
    pub gateway: Option<IpAddr>,
    /// Index of the outgoing device; `None` if the route has no device, or several next hops.
    pub device: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// Metric; of two routes to the same destination, the one with the smaller metric is used.
    pub metric: u32,
    /// Whether the route forwards packets; other routes discard them or deliver them locally.
    pub unicast: bool,
}

/// A policy rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether the rule is for IPv6.
    pub ipv6: bool,
    /// Priority; the rules are evaluated in the order of their priorities.
    pub priority: u32,
    /// Routing table that the rule selects.
    pub table: u32,
    /// Whether the rule looks up a table for all packets. Other rules have a condition or another action.
    pub unconditional: bool,
    /// Number of the program that added the rule (`rtnetlink(7)`); 2 for the kernel's own rules, and 0 for
    /// unknown programs.
    pub protocol: u8,
}

/// Devices, addresses, routes and rules of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// All devices.
    pub devices: Vec<Device>,
    /// All addresses.
    pub addresses: Vec<HostAddress>,
    /// Routes of all tables, except routes to single hosts that the kernel has learned.
    pub routes: Vec<Route>,
    /// The policy rules of both address families.
    pub rules: Vec<Rule>,
    /// The IPsec policies; `None` if the process may not read them.
    pub ipsec: Option<Vec<Policy>>,
}

impl Routing {
    /// Reads the routing of the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer.
    pub fn read() -> Result<Self, Error> {
        let netlink = Netlink::new()?;
        let list = |message| netlink.dump(message);
        let mut found = Self::default();
        for answer in list(RouteNetlinkMessage::GetLink(LinkMessage::default())).doing("list the devices")? {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                found.devices.push(device(&link));
            }
        }
        let asked = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for answer in list(asked).doing("list the addresses")? {
            if let RouteNetlinkMessage::NewAddress(address) = answer {
                found.addresses.extend(host_address(&address));
            }
        }
        let asked = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        for answer in list(asked).doing("list the routes")? {
            if let RouteNetlinkMessage::NewRoute(message) = answer {
                found.routes.extend(route(&message));
            }
        }
        for answer in list(RouteNetlinkMessage::GetRule(RuleMessage::default())).doing("list the rules")? {
            if let RouteNetlinkMessage::NewRule(message) = answer {
                found.rules.extend(rule(&message));
            }
        }
        found.ipsec = policies()?;
        Ok(found)
    }

    /// Returns the device with this index.
    pub fn device(&self, index: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.index == index)
    }

    /// Returns the VRF to which a device belongs; a VRF belongs to itself.
    pub fn vrf_of(&self, device: &Device) -> Option<&Device> {
        if device.vrf {
            return self.device(device.index);
        }
        let controller = self.device(device.controller?)?;
        // A bridge or a bond may be assigned to a VRF, but not to another bridge or bond.
        let above = controller.controller.and_then(|index| self.device(index));
        [Some(controller), above].into_iter().flatten().find(|device| device.vrf)
    }
}

/// Multicast groups for links, and for addresses, routes and rules of IPv4 and IPv6 (`RTNLGRP_*`).
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];

/// Notifications of changes of devices, addresses, routes and rules. The descriptor becomes readable when
/// something has changed.
#[derive(Debug)]
pub struct RoutingChanges(Socket);

impl RoutingChanges {
    /// Subscribes to the changes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the subscription.
    pub fn new() -> Result<Self, Error> {
        let subscribe = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            GROUPS.iter().try_for_each(|group| socket.add_membership(*group))?;
            socket.set_non_blocking(true)?;
            std::io::Result::Ok(Self(socket))
        };
        subscribe().doing("subscribe to changes of the routing")
    }

    /// Discards the notifications that have arrived, and returns whether there were any.
    pub fn take(&self) -> bool {
        let mut any = false;
        // The content does not matter, so a long message may be truncated. If the socket's buffer has
        // overflowed, the error counts as a notification.
        let mut room = [0; 64];
        loop {
            match recv(&self.0, &mut room, RecvFlags::empty()) {
                Ok(_) => any = true,
                Err(error) => return any || error == rustix::io::Errno::NOBUFS,
            }
        }
    }
}

impl AsFd for RoutingChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds an IPv4 address that only this host uses (`scope host`) to a device of the calling thread's network
/// namespace. Nothing changes if the device already has the address.
///
/// # Errors
/// Returns an error if there is no such device, or if the process lacks `CAP_NET_ADMIN`.
pub fn add_host_address(device: &str, address: Ipv4Addr) -> Result<(), Error> {
    let netlink = Netlink::new()?;
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = Ipv4Addr::BITS as u8;
    message.header.scope = AddressScope::Host;
    message.header.index = netlink.index(device)?;
    message.attributes =
        vec![AddressAttribute::Local(address.into()), AddressAttribute::Address(address.into())];
    match netlink.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).doing(format_args!("add the address {address}"))
        }
        _ => Ok(()),
    }
}

/// Returns whether a device merges received packets in hardware (`large-receive-offload`); `None` if its
/// driver does not report this.
///
/// # Errors
/// Returns an error if the process cannot open a socket.
pub fn merges_in_hardware(device: &str) -> Result<Option<bool>, Error> {
    let socket = socket(SocketFamily::INET, SocketType::DGRAM, None).doing("open a socket")?;
    // Drivers without this request fail with EOPNOTSUPP, and unknown devices with ENODEV.
    Ok(sys::device_flags(socket.as_fd(), device).ok().map(|flags| flags & sys::LARGE_RECEIVE_OFFLOAD != 0))
}

fn device(link: &LinkMessage) -> Device {
    let flags = link.header.flags;
    let mut device = Device {
        index: link.header.index,
        up: flags.contains(LinkFlags::Up),
        loopback: flags.contains(LinkFlags::Loopback),
        ..Device::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::Controller(index) => device.controller = (*index > 0).then_some(*index),
            LinkAttribute::LinkInfo(infos) => {
                device.vrf = infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Vrf)));
            }
            _ => {}
        }
    }
    device
}

fn host_address(message: &AddressMessage) -> Option<HostAddress> {
    // On a point-to-point device, the attribute `Address` is the address of the peer.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let any = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(HostAddress { device: message.header.index, address: local.or(any)? })
}

fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::from([0u8; 4]),
        AddressFamily::Inet6 => IpAddr::from([0u8; 16]),
        _ => return None,
    };
    let mut route = Route {
        destination: unspecified,
        prefix_len: header.destination_prefix_length,
        gateway: None,
        device: None,
        table: header.table.into(),
        metric: 0,
        unicast: header.kind == RouteType::Unicast,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.destination = ip(address)?,
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::Oif(index) => route.device = Some(*index),
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            _ => {}
        }
    }
    // A single gateway and device cannot represent an IPv4 route with an IPv6 gateway (RFC 5549), with
    // several next hops, or with a lightweight tunnel.
    let special = message.attributes.iter().any(|attribute| {
        matches!(
            attribute,
            RouteAttribute::Via(_) | RouteAttribute::MultiPath(_) | RouteAttribute::EncapType(_)
        )
    });
    if special {
        (route.gateway, route.device) = (None, None);
    }
    Some(route)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn rule(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let ipv6 = match header.family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        // Rules for multicast routing have their own address families.
        _ => return None,
    };
    let mut rule = Rule {
        ipv6,
        priority: 0,
        table: header.table.into(),
        unconditional: header.action == RuleAction::ToTable
            && header.tos == 0
            && header.flags.is_empty()
            && header.dst_len == 0
            && header.src_len == 0,
        protocol: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            // These attributes do not restrict the packets to which a rule applies. The value -1 means that
            // no prefix length is suppressed.
            RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
            RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            _ => rule.unconditional = false,
        }
    }
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device belongs to the VRF to which it or its bridge is assigned.
    #[test]
    fn a_device_belongs_to_the_vrf_of_its_bridge() {
        let device = |index, controller| Device { index, controller, ..Device::default() };
        let blue = Device { vrf: true, ..device(1, None) };
        let devices =
            vec![blue.clone(), device(2, Some(1)), device(3, Some(2)), device(4, None), device(5, Some(4))];
        let routing = Routing { devices, ..Routing::default() };
        let vrf = |index| routing.vrf_of(routing.device(index).expect("a device"));
        assert_eq!([1, 2, 3].map(vrf), [Some(&blue); 3]);
        assert_eq!([4, 5].map(vrf), [None; 2]);
    }

    /// Every network namespace has a loopback device and the kernel's policy rules for both address families.
    #[test]
    fn this_host_has_a_loopback_device_and_the_kernels_rules() {
        let routing = Routing::read().expect("netlink");
        let loopback = routing.devices.iter().find(|device| device.loopback).expect("a loopback device");
        assert_eq!((loopback.name.as_str(), loopback.vrf), ("lo", false));
        assert_eq!(routing.device(loopback.index), Some(loopback));
        let main = |rule: &&Rule| !rule.ipv6 && rule.table == MAIN_TABLE;
        let main = routing.rules.iter().find(main).expect("the rule for the main table");
        assert!(main.unconditional, "{main:?}");
    }

    /// The creation of a device counts as a change.
    #[test]
    fn changes_are_noticed() {
        let Ok(namespace) = crate::namespace::Namespace::new() else { return };
        let noticed = namespace.run(|| {
            let changes = RoutingChanges::new()?;
            assert!(!changes.take(), "nothing has happened");
            let netlink = Netlink::new()?;
            netlink.up(netlink.index("lo")?, None)?;
            Ok(changes.take())
        });
        assert!(noticed.expect("a namespace"), "the loopback device has come up");
    }

    /// Rules for multicast routing have other address families, and are left out.
    #[test]
    fn rules_of_other_families_are_left_out() {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Other(128);
        assert_eq!(rule(&message), None);
        message.header.family = AddressFamily::Inet;
        message.header.table = 253;
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Table(253), RuleAttribute::Priority(32_767)];
        let expected = Rule { ipv6: false, priority: 32_767, table: 253, unconditional: true, protocol: 0 };
        assert_eq!(rule(&message), Some(expected));
    }

    /// The loopback device has no hardware that could merge packets, and for an unknown device the result is
    /// unknown.
    #[test]
    fn a_loopback_device_does_not_merge() {
        assert_ne!(merges_in_hardware("lo").expect("a socket"), Some(true));
        assert_eq!(merges_in_hardware("no-such-device").expect("a socket"), None);
    }
}
