//! Tests of refused starts: the service prints one line with the reason and one line with a hint,
//! and changes nothing.

use std::fs;
use std::process::Command;

use super::host::{Host, UPSTREAM};
use super::scene::{Scene, inside, ip};
use crate::PROGRAM;

fn listening_at(listen: &str, upstream: &str, mode: &str) -> Vec<String> {
    let words = ["accelerate", "--listen", listen, "--upstream", upstream, "--client-address", mode];
    words.map(str::to_owned).to_vec()
}

/// Asserts that the service, started by `wrapper`, exits with `code`, prints the reason `why` and a hint that contains
/// `hint`, and changes nothing.
fn is_refused(scene: &Scene, wrapper: &[&str], arguments: &[String], code: i32, why: &str, hint: &str) {
    let before = scene.settings();
    let words: Vec<&str> =
        wrapper.iter().copied().chain([PROGRAM]).chain(arguments.iter().map(String::as_str)).collect();
    let said = inside(&scene.server, words[0], &words[1..]);
    let text = String::from_utf8(said.stderr).expect("UTF-8");
    // Notes on the effects for the server may precede the error.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("note: ")).collect();
    let [error, advice] = lines[..] else { panic!("{why}: {text}") };
    assert!(error.contains(why), "{error}, and not {why}");
    assert!(advice.trim_start().starts_with("hint: ") && advice.contains(hint), "{advice}, and not {hint}");
    assert_eq!((said.status.code(), said.stdout.len()), (Some(code), 0), "{text}");
    assert_eq!(scene.settings(), before, "{why}");
}

/// Every objection to a start is printed as one line with a hint, and the host does not change.
#[test]
fn a_start_that_is_refused_changes_nothing() {
    let Some(host) = Host::new("accelerate-refused", false) else { return };
    let (scene, listen) = (&host.scene, host.listen.to_string());
    let usual = listening_at(&listen, UPSTREAM, "hidden");
    let refused = |wrapper: &[&str], arguments: &[String], code: i32, why: &str, hint: &str| {
        is_refused(scene, wrapper, arguments, code, why, hint);
    };
    let elsewhere = listening_at("203.0.113.6:9000", UPSTREAM, "hidden");
    refused(&[], &elsewhere, 1, "203.0.113.6 is not an address of this host", "--check");
    let itself = listening_at(&listen, &listen, "transparent");
    refused(&[], &itself, 2, "is the same as the address to listen on", "loopback address");
    let no_tun = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /dev/net && exec \"$@\"", "sh"];
    refused(&no_tun, &usual, 1, "cannot open /dev/net/tun", "tun");
    let nothing = scene.folder.join("nothing");
    fs::create_dir(&nothing).expect("room");
    let no_nft = format!("PATH={}", nothing.display());
    refused(&["env", &no_nft], &usual, 1, "nft", "nftables");
    // With this setting, the kernel reports version 2.6 to the process.
    if Command::new("setarch").args(["--uname-2.6", "true"]).status().is_ok_and(|status| status.success()) {
        refused(
            &["setarch", "--uname-2.6"],
            &usual,
            1,
            "does not support nftables tables that belong to a \
            process",
            "5.12",
        );
    }
    // Some kernels have no IPsec.
    let policy = "xfrm policy add dir in src 203.0.113.99 dst 203.0.113.5 tmpl proto esp mode transport";
    if inside(&scene.server, "ip", &policy.split(' ').collect::<Vec<_>>()).status.success() {
        let why = "plain packets from 203.0.113.99/32 would bypass an IPsec policy";
        refused(&[], &usual, 1, why, "--firewall ignore");
        ip(&scene.server, "xfrm policy flush");
    }
    let rules = "add table ip f; add chain ip f i { type filter hook input priority 0; }; \
                 add rule ip f i tcp dport 9000 numgen random mod 2 0 drop";
    assert!(inside(&scene.server, "nft", &[rules]).status.success());
    refused(&[], &usual, 1, "firewall", "--firewall ignore");
    assert!(inside(&scene.server, "nft", &["delete table ip f"]).status.success());
    let mut matching = usual.clone();
    matching.extend(["--match".to_owned(), "ct state new".to_owned()]);
    refused(&[], &matching, 1, "nft refuses the expression of --match", "'ip saddr 198.51.100.0/24'");
    let _service = host.accelerate();
    refused(&[], &usual, 1, "already accelerates", "status");
}

/// Before Linux 6.17, the kernel cannot permit IPv6 forwarding for a single device. On a host with policy routing, the
/// service does not start there.
#[test]
fn an_older_kernel_cannot_route_ipv6() {
    let Some(host) = Host::new("accelerate-refused-6", true) else { return };
    let (scene, listen) = (&host.scene, host.listen.to_string());
    ip(&scene.server, "-6 rule add from 2001:db8::99 lookup main pref 100");
    // The settings of such a kernel.
    let older = "mount -t tmpfs none /proc/sys/net/ipv6/conf && mkdir /proc/sys/net/ipv6/conf/all && \
                 echo 0 >/proc/sys/net/ipv6/conf/all/forwarding && exec \"$@\"";
    let wrapper = ["unshare", "-m", "sh", "-c", older, "sh"];
    let why = "cannot permit IPv6 forwarding for a single device";
    is_refused(scene, &wrapper, &listening_at(&listen, UPSTREAM, "hidden"), 1, why, "Linux 6.17 or later");
}

/// On a host with a VRF, an address outside it is accelerated, and the kernel routes the packets of the service. An
/// address that belongs to the VRF is refused.
#[test]
fn an_address_in_a_vrf_is_refused() {
    let Some(host) = Host::new("accelerate-vrf", false) else { return };
    let scene = &host.scene;
    if !inside(&scene.server, "ip", &["link", "add", "blue", "type", "vrf", "table", "10"]).status.success() {
        eprintln!("skipped: this kernel has no VRFs (CONFIG_NET_VRF)");
        return;
    }
    for command in [
        "link set blue up",
        "link add eth2 type veth peer name eth3",
        "link set eth2 addrgenmode none",
        "link set eth3 addrgenmode none",
        "link set eth2 master blue",
        "address add 198.51.100.5/24 dev eth2",
        "link set eth2 up",
        "link set eth3 up",
    ] {
        ip(&scene.server, command);
    }
    let before = scene.settings();
    let inside_vrf = listening_at("198.51.100.5:9000", UPSTREAM, "hidden");
    is_refused(scene, &[], &inside_vrf, 1, "198.51.100.5 belongs to the VRF blue", "--check");
    let mut service = host.accelerate();
    let why = "blue is a VRF, so the kernel routes the worker's packets";
    assert!(service.notes().iter().any(|line| line.contains(why)), "{:?}", service.notes());
    assert!(host.is_ours());
    service.keeper.signal("-TERM");
    assert!(service.keeper.0.wait().expect("it ends").success());
    assert_eq!(scene.settings(), before);
}
