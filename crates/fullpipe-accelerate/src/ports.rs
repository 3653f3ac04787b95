//! Local ports for connections to the server. Connections from the same source address to the same server need
//! different local ports. If all connections have the same source address, the number of ports therefore limits the
//! number of connections.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::config::{ClientAddress, Settings, Upstream};

/// Settings of the network namespace, for both address families.
const FOLDER: &str = "/proc/sys/net/ipv4";
const RANGE: &str = "ip_local_port_range";
const RESERVED: &str = "ip_local_reserved_ports";

/// Returns the number of connections that this host can have with the server at the same time; `None` if ports do not
/// limit it, or if the number is not known.
pub(crate) fn most_connections(settings: &Settings) -> Option<usize> {
    has_one_source(settings).then(|| read(Path::new(FOLDER))).flatten()
}

/// Returns whether all connections to the server have the same source address. For a server in `127.0.0.0/8`, the
/// source addresses change from connection to connection; in transparent mode, they are the clients' addresses.
fn has_one_source(settings: &Settings) -> bool {
    let Upstream::Tcp(server) = &settings.upstream else { return false };
    let rotates = matches!(server.ip(), IpAddr::V4(ip) if ip.is_loopback());
    !rotates && settings.client_address != ClientAddress::Transparent
}

/// Counts the ports that the kernel can choose for connections: those in the range that are not reserved.
fn read(folder: &Path) -> Option<usize> {
    let range = fs::read_to_string(folder.join(RANGE)).ok()?;
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else { return None };
    let reserved = fs::read_to_string(folder.join(RESERVED)).unwrap_or_default();
    let reserved: Vec<(u16, u16)> = reserved.trim().split(',').filter_map(ports).collect();
    let is_free = |port: &u16| !reserved.iter().any(|(first, last)| (first..=last).contains(&port));
    Some((first..=last).filter(is_free).count())
}

/// Reads a port (`8080`) or a range of ports (`9000-9010`).
fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_do_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), None);
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room");
        write(RANGE, "32768\t60999\n");
        assert_eq!(read(folder.path()), Some(28_232));
        write(RESERVED, "\n");
        assert_eq!(read(folder.path()), Some(28_232));
        write(RESERVED, "8080,32768-32777,60999\n");
        assert_eq!(read(folder.path()), Some(28_232 - 11));
        write(RANGE, "no range\n");
        assert_eq!(read(folder.path()), None);
    }

    #[test]
    fn the_kernel_of_this_host_reports_its_ports() {
        assert!(read(Path::new(FOLDER)).is_some_and(|count| count > 0));
    }
}
