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

use crate::system;

const IPV4: &str = "/proc/sys/net/ipv4/conf";
const IPV6: &str = "/proc/sys/net/ipv6/conf";
/// Dummy address, which belongs to no host (RFC 7600 section 4.8).
pub(crate) const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
const FORCE: &str = "force_forwarding";

/// Returns the reason why the kernel cannot forward the packets of a single device; `None` if it can.
pub(crate) fn obstacle(ipv6: bool) -> Option<String> {
    let missing = ipv6 && !Path::new(IPV6).join("all").join(FORCE).exists();
    missing.then(|| {
        "this kernel cannot enable IPv6 forwarding for a single device; kernel 6.17 or newer can".into()
    })
}

/// Permits the kernel to forward the packets of the device `tun`.
pub(crate) fn permit(tun: &str, ipv6: bool) -> Result<(), Error> {
    for (file, value) in settings(tun, ipv6) {
        let failed = |error: io::Error| system(format_args!("write {}", file.display()), error);
        fs::write(&file, value).map_err(failed)?;
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
