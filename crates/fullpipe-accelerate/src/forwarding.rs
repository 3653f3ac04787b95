//! Lets the kernel forward the worker's packets, on hosts whose routing cannot be copied.
//!
//! ```text
//!   worker ─► fp0 ─ ingress: only packets of the port ─► untracked ─► routing of the host ─► client
//! ```
//!
//! Forwarding is permitted only on the worker's device; `ip_forward` and the settings of other devices keep
//! their values. The settings belong to the device, and disappear with it.
//!
//! | setting of the device | reason |
//! |---|---|
//! | IPv4 `forwarding` | without it, the kernel drops packets that are not for this host |
//! | IPv4 `accept_local` | the packets have an address of this host as their source |
//! | IPv4 `rp_filter` = 2 | the strict check (1), perhaps set for all devices, would drop them |
//! | the address 192.0.0.8 | the loose check (2) drops all packets of a device without an IPv4 address |
//! | IPv6 `force_forwarding` (Linux 6.17) | older kernels can permit forwarding only for the whole host |

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use fullpipe_linux::Error;
use fullpipe_linux::routing::add_host_address;
use rustix::system::uname;

use crate::preflight::Objection;
use crate::system;

const IPV4: &str = "/proc/sys/net/ipv4/conf";
const IPV6: &str = "/proc/sys/net/ipv6/conf";
/// IPv4 dummy address, which is not assigned to any host (RFC 7600 section 4.8).
pub(crate) const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
const FORCE: &str = "force_forwarding";

/// Returns an objection if the kernel cannot forward the packets of the worker's device; `None` if it can.
pub(crate) fn obstacle(ipv6: bool) -> Option<Objection> {
    if !ipv6 {
        return None;
    }
    obstacle_in(Path::new(IPV6), &uname().release().to_string_lossy())
}

/// Returns the objection of [`obstacle`] for IPv6. `folder` contains the settings of all devices.
fn obstacle_in(folder: &Path, release: &str) -> Option<Objection> {
    let all = folder.join("all");
    // A router already forwards the packets of all devices.
    let forwards = fs::read_to_string(all.join("forwarding")).is_ok_and(|value| value.trim() != "0");
    (!forwards && !all.join(FORCE).exists()).then(|| {
        Objection::new(
            format!(
                "the kernel must route the worker's packets, but Linux {release} cannot permit IPv6 forwarding for \
                 a single device"
            ),
            "Linux 6.17 or later is required for IPv6, unless the routing consists of connected networks and default \
             routes",
        )
    })
}

/// Permits the kernel to forward the packets of the device `tun`.
pub(crate) fn permit(tun: &str, ipv6: bool) -> Result<(), Error> {
    for (file, value) in settings(tun, ipv6) {
        let written = match fs::write(&file, value) {
            // On a router with an older kernel, the setting is missing, and not needed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && file.ends_with(FORCE) => Ok(()),
            written => written,
        };
        written.map_err(|error| system(format_args!("write {}", file.display()), error))?;
    }
    if !ipv6 {
        add_host_address(tun, DUMMY)?;
    }
    Ok(())
}

fn settings(tun: &str, ipv6: bool) -> Vec<(PathBuf, &'static str)> {
    let file = |folder: &str, name: &str| Path::new(folder).join(tun).join(name);
    if ipv6 {
        // IPv6 may be disabled on new devices.
        return vec![(file(IPV6, "disable_ipv6"), "0"), (file(IPV6, FORCE), "1")];
    }
    vec![(file(IPV4, "accept_local"), "1"), (file(IPV4, "rp_filter"), "2"), (file(IPV4, "forwarding"), "1")]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv6 forwarding of a single device needs a kernel with `force_forwarding`, unless the host forwards anyway.
    #[test]
    fn a_kernel_before_6_17_is_an_obstacle_unless_it_forwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let obstacle = || obstacle_in(folder.path(), "6.12.0");
        fs::create_dir(folder.path().join("all")).expect("room");
        let write =
            |name: &str, value: &str| fs::write(folder.path().join("all").join(name), value).expect("room");
        write("forwarding", "0\n");
        let objection = obstacle().expect("an obstacle");
        assert!(objection.what.contains("Linux 6.12.0 cannot permit IPv6 forwarding for a single device"));
        assert!(objection.hint.contains("Linux 6.17"), "{objection}");
        write("forwarding", "1\n");
        assert_eq!(obstacle(), None);
        write("forwarding", "0\n");
        write(FORCE, "0\n");
        assert_eq!(obstacle(), None);
    }
}
