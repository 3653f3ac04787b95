//! What a host says of itself.

use std::fs;
use std::net::IpAddr;

use rustix::system::uname;

use super::place::Place;
use super::route::Found;
use crate::error::Error;
use crate::netlink::Netlink;

/// A host as it is now; what it does not say is left out.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Settings as they were read: key as in `net/ipv4/tcp_rmem`, and value.
    pub settings: Vec<(String, String)>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Congestion controls that are modules.
    pub modules: Vec<String>,
    /// Devices and their queueing disciplines.
    pub devices: Vec<Device>,
    /// The way to the peer that was asked for.
    pub way: Option<Way>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its queueing disciplines, each kind once.
    pub qdisc: String,
}

/// The route to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Whether it is for the peer alone.
    pub exact: bool,
    /// The way to the peer alone, less congestion control and initial window, as `ip route` has it.
    pub way: String,
    /// Its ways, where it has several, which stand behind all else.
    pub hops: String,
    /// The whole route, as `ip route` has it.
    pub route: String,
    /// The device.
    pub device: String,
    /// Its congestion control.
    pub congctl: Option<String>,
    /// Its initial window in segments.
    pub initcwnd: Option<u32>,
}

/// Reads `keys` and all else that there is to say, with the route to `peer`.
///
/// # Errors
/// There is no route to `peer`.
pub fn facts(place: &Place, keys: &[&str], peer: Option<IpAddr>) -> Result<Facts, Error> {
    let setting = |key: &&str| Some(((*key).to_owned(), place.read(key).ok()?));
    let mut facts = Facts {
        settings: keys.iter().filter_map(setting).collect(),
        memory: memory(place),
        modules: modules(place),
        ..Facts::default()
    };
    if place.is_imitated() {
        return Ok(facts);
    }
    let netlink = Netlink::new()?;
    facts.devices = devices(&netlink).unwrap_or_default();
    if let Some(peer) = peer {
        let found = Found::to(&netlink, peer)?;
        let metrics = found.metrics();
        facts.way = Some(Way {
            exact: found.is_exact(),
            way: found.base(),
            hops: found.hops(),
            route: found.text(),
            device: found.device.clone(),
            congctl: metrics.congctl,
            initcwnd: metrics.initcwnd,
        });
    }
    Ok(facts)
}

fn devices(netlink: &Netlink) -> Result<Vec<Device>, Error> {
    let qdiscs = netlink.qdiscs()?;
    let of = |(index, name): (u32, String)| {
        let mut kinds: Vec<&str> = Vec::new();
        for (_, kind) in qdiscs.iter().filter(|(of, _)| *of == index) {
            if !kinds.contains(&kind.as_str()) {
                kinds.push(kind);
            }
        }
        Device { name, qdisc: kinds.join("+") }
    };
    Ok(netlink.devices()?.into_iter().map(of).filter(|device| !device.qdisc.is_empty()).collect())
}

fn memory(place: &Place) -> Option<u64> {
    let text = fs::read_to_string(place.of_kernel("proc/meminfo")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// Modules of the running kernel that are called `tcp_` and something, as all congestion controls are.
fn modules(place: &Place) -> Vec<String> {
    let release = uname();
    let Ok(release) = release.release().to_str() else { return Vec::new() };
    let list = place.of_kernel(&format!("lib/modules/{release}/modules.dep"));
    let text = fs::read_to_string(list).unwrap_or_default();
    let name = |line: &str| {
        let file = line.split(':').next()?.strip_prefix("kernel/net/ipv4/tcp_")?;
        let name = file.split(".ko").next()?;
        (name != "diag").then(|| name.to_owned())
    };
    let mut names: Vec<String> = text.lines().filter_map(name).collect();
    names.sort();
    names
}
