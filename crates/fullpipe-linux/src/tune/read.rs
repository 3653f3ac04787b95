//! Reads the TCP settings, devices and route of a host.

use std::fs;
use std::net::IpAddr;

use fullpipe_lab::host::{Device, HostDescription, Route};
use fullpipe_units::Bytes;
use rustix::system::uname;

use super::place::Target;
use super::route::PeerRoute;
use crate::error::Error;
use crate::netlink::Netlink;

/// Reads the settings `keys` of a host, its devices, and the route to `peer`.
///
/// # Errors
/// Returns an error if netlink is not available, or if there is no route to `peer`.
pub fn facts(place: &Target, keys: &[&str], peer: Option<IpAddr>) -> Result<HostDescription, Error> {
    let setting = |key: &&str| Some(((*key).to_owned(), place.read(key).ok()?));
    let mut facts = HostDescription {
        memory: memory(place),
        loadable: modules(place),
        ..HostDescription::new(keys.iter().filter_map(setting))
    };
    if place.is_imitated() {
        return Ok(facts);
    }
    let netlink = Netlink::new()?;
    facts.devices = devices(&netlink).unwrap_or_default();
    if let Some(peer) = peer {
        let found = PeerRoute::to(&netlink, peer)?;
        let metrics = found.metrics();
        facts.route = Some(Route {
            destination: peer,
            exact: found.is_exact(),
            way: found.base(),
            hops: found.hops(),
            present: found.text(),
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

fn memory(place: &Target) -> Option<Bytes> {
    let text = fs::read_to_string(place.of_kernel("proc/meminfo")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kibibytes.saturating_mul(1024)))
}

/// Returns the names of the running kernel's modules that start with `tcp_`; all congestion control modules
/// are among them.
fn modules(place: &Target) -> Vec<String> {
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
