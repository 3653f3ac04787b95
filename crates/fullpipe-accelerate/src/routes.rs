//! Paths of the worker's packets to the clients: the device and the gateway for each network.
//!
//! | way | packets | if the routing of the host |
//! |---|---|---|
//! | direct | nftables forwards them to a device (`fwd`), past the host's routing | consists of connected networks and default routes in the main table |
//! | routed | the kernel routes them like those of a neighbour (`forwarding.rs`) | has more: policy rules, static routes, several next hops, VRFs, IPsec policies |
//!
//! The direct path needs no forwarding by the kernel and bypasses the chains of the firewall. If the host's routing
//! contains anything that the direct path does not support, nftables would send packets along other paths than the
//! kernel. The kernel must then route them.

use std::net::IpAddr;

use fullpipe_linux::return_path;
use fullpipe_linux::routing::{Device, MAIN_TABLE, Route, Routing, Rule};

use crate::forwarding::DUMMY;
use crate::steering::Hop;

/// Tables and priorities of the policy rules that every namespace has.
const KERNEL_RULES: [(u32, u32); 3] = [(0, 255), (32_766, MAIN_TABLE), (32_767, 253)];

/// How packets reach the clients, and how the clients' packets arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// Destinations, with the longest prefixes first.
    pub hops: Vec<Hop>,
    /// Devices through which clients reach this host, with their indices.
    pub incoming: Vec<(u32, String)>,
    /// Smallest MTU of the devices to the clients, in bytes.
    pub mtu: u32,
    /// Parts of the routing that cannot be copied, so that the kernel must route the worker's packets; empty for the
    /// direct path.
    pub obstacles: Vec<String>,
}

impl WayOut {
    /// Returns the devices through which packets reach the clients.
    pub fn outgoing(&self) -> Vec<String> {
        let mut devices: Vec<String> = if self.is_routed() {
            self.incoming.iter().map(|(_, name)| name.clone()).collect()
        } else {
            self.hops.iter().map(|hop| hop.device.clone()).collect()
        };
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Returns whether the kernel must route the worker's packets.
    pub fn is_routed(&self) -> bool {
        !self.obstacles.is_empty()
    }
}

/// Reason why there is no path to the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWay {
    /// The address or the routes are missing at the moment, for example because a device is down.
    Absent(String),
    /// The worker's packets cannot leave this host as the kernel's do.
    Unsupported(Vec<String>),
}

impl NoWay {
    /// Returns the reasons.
    pub fn reasons(self) -> Vec<String> {
        match self {
            Self::Absent(reason) => vec![reason],
            Self::Unsupported(reasons) => reasons,
        }
    }
}

/// Derives the path to the clients of `address` from the routing of the host.
///
/// # Errors
/// Returns an error if the address or all routes are missing, or if the address belongs to a VRF.
pub fn way_out(routing: &Routing, address: IpAddr, tun: &str) -> Result<WayOut, NoWay> {
    let mut obstacles = Vec::new();
    let ipv6 = address.is_ipv6();
    // The rules of return paths match only the server's answers to the worker.
    let foreign = |rule: &&Rule| rule.ipv6 == ipv6 && rule.protocol != return_path::PROTOCOL;
    for rule in routing.rules.iter().filter(foreign) {
        if !rule.unconditional || !KERNEL_RULES.contains(&(rule.priority, rule.table)) {
            obstacles.push(format!("there is a policy rule with priority {}", rule.priority));
        }
    }
    let vrfs = routing.devices.iter().filter(|device| device.vrf && device.up);
    obstacles.extend(vrfs.map(|device| format!("{} is a VRF", device.name)));
    if routing.ipsec.as_ref().is_some_and(|policies| !policies.is_empty()) {
        obstacles.push("there are IPsec policies".into());
    }
    let own = routing.addresses.iter().find(|own| own.address == address);
    if let Some(vrf) = own.and_then(|own| routing.vrf_of(routing.device(own.device)?)) {
        // The worker's device is outside the VRF, so the kernel would route its packets with the main table.
        return Err(NoWay::Unsupported(vec![format!(
            "{address} belongs to the VRF {}, and accelerate supports only addresses outside VRFs",
            vrf.name
        )]));
    }
    let mut routes: Vec<(&Route, &Device)> = Vec::new();
    for route in routing.routes.iter().filter(|route| is_candidate(route, ipv6)) {
        let to = format!("{}/{}", route.destination, route.prefix_len);
        let device = route.device.and_then(|index| routing.device(index));
        match device {
            Some(device) if !leads_to_clients(routing, device, tun) => {}
            _ if !route.unicast => obstacles.push(format!("the route to {to} is not a unicast route")),
            None => obstacles.push(format!("the route to {to} has several next hops or a tunnel")),
            Some(_) if route.gateway.is_some() && route.prefix_len > 0 => {
                obstacles.push(format!("the route to {to} has a gateway"));
            }
            // A device that is down receives no packets, and the kernel does not use its routes.
            Some(device) if device.up => routes.push((route, device)),
            Some(_) => {}
        }
    }
    if !obstacles.is_empty() {
        // The kernel may use any routing table. The routes in the table `local` name all devices that have an address.
        let of_family = |route: &&Route| is_of_family(route, ipv6);
        let device = |route| device_of(routing, route, tun).map(|device| (route, device));
        routes = routing.routes.iter().filter(of_family).filter_map(device).collect();
    }
    // The kernel prefers the longest prefix, and then the smallest metric.
    routes.sort_by_key(|(route, _)| (u8::MAX - route.prefix_len, route.metric));
    let mut hops: Vec<Hop> = Vec::new();
    let mut incoming: Vec<(u32, String)> = Vec::new();
    let mut mtu = u32::MAX;
    for (route, device) in &routes {
        let network = (route.prefix_len > 0).then_some((route.destination, route.prefix_len));
        let can_be_hop =
            obstacles.is_empty() || route.unicast && route.gateway.is_none() && network.is_some();
        if can_be_hop && !hops.iter().any(|hop| hop.network == network) {
            hops.push(Hop { network, gateway: route.gateway, device: device.name.clone() });
        }
        if !incoming.iter().any(|(index, _)| *index == device.index) {
            incoming.push((device.index, device.name.clone()));
            mtu = mtu.min(device.mtu);
        }
    }
    incoming.sort();
    if own.is_none() {
        return Err(NoWay::Absent(format!("{address} is not an address of this host")));
    }
    if incoming.is_empty() {
        return Err(NoWay::Absent("there is no route to any client".into()));
    }
    Ok(WayOut { hops, incoming, mtu, obstacles })
}

/// Returns the device of a route if the device is up and leads to other hosts.
fn device_of<'a>(routing: &'a Routing, route: &Route, tun: &str) -> Option<&'a Device> {
    let device = routing.device(route.device?)?;
    (device.up && leads_to_clients(routing, device, tun)).then_some(device)
}

/// Returns whether a device may lead to clients: it is neither the loopback device, nor the worker's device, nor part
/// of a VRF.
fn leads_to_clients(routing: &Routing, device: &Device, tun: &str) -> bool {
    !device.loopback && device.name != tun && routing.vrf_of(device).is_none()
}

/// Returns whether a route applies to packets of this address family, given that only the main table is used.
fn is_candidate(route: &Route, ipv6: bool) -> bool {
    route.table == MAIN_TABLE && is_of_family(route, ipv6)
}

fn is_of_family(route: &Route, ipv6: bool) -> bool {
    // The link-local prefix is the same on all devices, so clients use it only in tests.
    let link_local = match route.destination {
        // The devices of other services have the dummy address.
        IpAddr::V4(address) => address.is_link_local() || address == DUMMY,
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    };
    route.destination.is_ipv6() == ipv6 && !link_local
}

#[cfg(test)]
mod tests {
    use fullpipe_linux::ipsec::{Direction, End, Policy};
    use fullpipe_linux::routing::HostAddress;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn device(index: u32, name: &str, mtu: u32) -> Device {
        Device { index, name: name.into(), mtu, up: true, loopback: name == "lo", ..Device::default() }
    }

    fn route(to: &str, prefix_len: u8, gateway: Option<&str>, device: u32, metric: u32) -> Route {
        let gateway = gateway.map(address);
        Route {
            destination: address(to),
            prefix_len,
            gateway,
            device: Some(device),
            table: MAIN_TABLE,
            metric,
            unicast: true,
        }
    }

    fn rule(priority: u32, table: u32) -> Rule {
        Rule { ipv6: false, priority, table, unconditional: true, protocol: 2 }
    }

    /// A host with two networks, and a default gateway in the first network.
    fn host() -> Routing {
        Routing {
            devices: vec![device(1, "lo", 65_536), device(2, "eth0", 1_500), device(3, "eth1", 9_000)],
            addresses: vec![HostAddress { device: 2, address: address("203.0.113.5") }],
            routes: vec![
                route("0.0.0.0", 0, Some("203.0.113.254"), 2, 100),
                route("203.0.113.0", 24, None, 2, 100),
                route("10.0.0.0", 8, None, 3, 0),
            ],
            rules: vec![rule(0, 255), rule(32_766, MAIN_TABLE), rule(32_767, 253)],
            ipsec: Some(Vec::new()),
        }
    }

    fn obstacles(routing: &Routing) -> Vec<String> {
        way_out(routing, address("203.0.113.5"), "fp0").expect("a way").obstacles
    }

    #[test]
    fn connected_networks_and_a_default_route_can_be_copied() {
        let way = way_out(&host(), address("203.0.113.5"), "fp0").expect("a simple host");
        let hop = |network: Option<(&str, u8)>, gateway: Option<&str>, device: &str| Hop {
            network: network.map(|(text, len)| (address(text), len)),
            gateway: gateway.map(address),
            device: device.into(),
        };
        let hops = [
            hop(Some(("203.0.113.0", 24)), None, "eth0"),
            hop(Some(("10.0.0.0", 8)), None, "eth1"),
            hop(None, Some("203.0.113.254"), "eth0"),
        ];
        assert_eq!(way.hops, hops);
        assert_eq!((way.incoming, way.mtu), (vec![(2, "eth0".into()), (3, "eth1".into())], 1_500));
    }

    /// Of two default routes, the kernel uses the one with the smaller metric. Clients may still arrive
    /// through both devices.
    #[test]
    fn the_smaller_metric_wins() {
        let mut routing = host();
        routing.routes.push(route("0.0.0.0", 0, Some("10.0.0.1"), 3, 50));
        let way = way_out(&routing, address("203.0.113.5"), "fp0").expect("a simple host");
        let default = way.hops.last().expect("a default route");
        assert_eq!((default.device.as_str(), default.gateway), ("eth1", Some(address("10.0.0.1"))));
        assert_eq!(way.hops.len(), 3);
    }

    #[test]
    fn what_cannot_be_copied_is_routed() {
        let mut routing = host();
        routing.rules.push(rule(100, 42));
        assert_eq!(obstacles(&routing), ["there is a policy rule with priority 100"]);

        let mut routing = host();
        routing.rules[1].unconditional = false;
        assert_eq!(obstacles(&routing), ["there is a policy rule with priority 32766"]);

        let mut routing = host();
        routing.routes.push(route("192.0.2.0", 24, Some("10.0.0.1"), 3, 0));
        assert_eq!(obstacles(&routing), ["the route to 192.0.2.0/24 has a gateway"]);

        let mut routing = host();
        routing.routes.push(Route { device: None, ..route("192.0.2.0", 24, None, 0, 0) });
        assert_eq!(obstacles(&routing), ["the route to 192.0.2.0/24 has several next hops or a tunnel"]);

        let mut routing = host();
        let blackhole = Route { unicast: false, device: None, ..route("192.0.2.0", 24, None, 0, 0) };
        routing.routes.push(blackhole);
        assert_eq!(obstacles(&routing), ["the route to 192.0.2.0/24 is not a unicast route"]);

        let mut routing = host();
        let [source, destination] =
            [End { network: address("203.0.113.5"), prefix_len: 32, port: (0, 0) }; 2];
        let direction = Direction::Out;
        routing.ipsec =
            Some(vec![Policy { direction, source, destination, tcp: false, requires_ipsec: true }]);
        assert_eq!(obstacles(&routing), ["there are IPsec policies"]);
    }

    /// On a host with a VRF, the kernel routes the packets. The networks of the VRF are separate: its devices lead to no
    /// client of an address outside the VRF, and an address in the VRF is refused.
    #[test]
    fn a_vrf_is_separate() {
        let mut routing = host();
        routing.devices.push(Device { vrf: true, ..device(4, "blue", 1_500) });
        routing.devices.push(Device { controller: Some(4), ..device(5, "eth2", 1_400) });
        routing.routes.push(Route { table: 10, ..route("192.0.2.0", 24, None, 5, 0) });
        routing.rules.insert(1, Rule { unconditional: false, ..rule(1_000, 0) });
        let way = way_out(&routing, address("203.0.113.5"), "fp0").expect("a way");
        assert_eq!(way.obstacles, ["there is a policy rule with priority 1000", "blue is a VRF"]);
        let devices: Vec<&str> = way.incoming.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((devices, way.mtu), (vec!["eth0", "eth1"], 1_500));
        routing.devices[1].controller = Some(4);
        let reason =
            "203.0.113.5 belongs to the VRF blue, and accelerate supports only addresses outside VRFs";
        let no_way = way_out(&routing, address("203.0.113.5"), "fp0");
        assert_eq!(no_way, Err(NoWay::Unsupported(vec![reason.to_owned()])));
    }

    /// If the kernel routes the packets, clients may arrive through the devices of all tables, and the hops are the
    /// connected networks, whose neighbours are limited.
    #[test]
    fn a_routed_way_uses_all_tables() {
        let mut routing = host();
        routing.rules.push(rule(100, 42));
        routing.devices.push(device(4, "eth2", 1_400));
        routing.devices.push(device(5, "fp0", 1_400));
        routing.routes.push(Route { table: 42, ..route("0.0.0.0", 0, Some("192.0.2.1"), 4, 0) });
        routing.routes.push(Route { table: 42, ..route("192.0.2.0", 24, None, 4, 0) });
        let way = way_out(&routing, address("203.0.113.5"), "fp0").expect("a way");
        let devices: Vec<&str> = way.incoming.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((devices, way.mtu), (vec!["eth0", "eth1", "eth2"], 1_400));
        let networks: Vec<_> = way.hops.iter().map(|hop| hop.network).collect();
        let network = |text: &str, len| Some((address(text), len));
        assert_eq!(networks, [network("192.0.2.0", 24), network("203.0.113.0", 24), network("10.0.0.0", 8)]);
        assert!(way.is_routed());
    }

    /// A missing address or route counts as temporary.
    #[test]
    fn what_is_missing_may_return() {
        let absent = |routing: &Routing| way_out(routing, address("203.0.113.5"), "fp0").expect_err("no way");
        let mut routing = host();
        routing.addresses.clear();
        assert_eq!(absent(&routing), NoWay::Absent("203.0.113.5 is not an address of this host".into()));
        let mut routing = host();
        routing.devices.iter_mut().for_each(|device| device.up = false);
        assert_eq!(absent(&routing), NoWay::Absent("there is no route to any client".into()));
    }

    /// Routes do not matter if they are in other tables, belong to another family, lead to link-local addresses, or use
    /// devices that are down; nor do the rules of return paths.
    #[test]
    fn routes_that_no_client_uses_do_not_matter() {
        let expected = way_out(&host(), address("203.0.113.5"), "fp0");
        let mut routing = host();
        routing.routes.push(Route { table: 42, ..route("192.0.2.0", 24, Some("10.0.0.1"), 3, 0) });
        routing.routes.push(route("2001:db8::", 32, Some("2001:db8::1"), 3, 0));
        routing.routes.push(route("169.254.0.0", 16, None, 3, 0));
        routing.rules.insert(1, Rule { protocol: return_path::PROTOCOL, ..rule(1, 7) });
        routing.devices.push(Device { up: false, ..device(4, "eth2", 500) });
        routing.routes.push(route("192.0.2.0", 24, None, 4, 0));
        assert_eq!(way_out(&routing, address("203.0.113.5"), "fp0"), expected);
    }
}
