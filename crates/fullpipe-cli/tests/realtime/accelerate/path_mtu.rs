//! Tests with a client behind a router whose link has a smaller MTU than the devices of both ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use fullpipe::linux::namespace::Namespace;

use super::host::Host;
use super::peers;
use super::scene::{Running, Scene, inside, ip, now, start, wait_for};

/// Number of bytes to download, which need many segments.
const BYTES: usize = 300_000;

/// Connects another namespace to the client's namespace, which becomes a router. Only the router's end of the
/// link has the MTU `mtu`, so the client behind the router announces an MSS that is too large for the link.
pub(super) fn behind_router(scene: &Scene, mtu: u32) -> (Namespace, Running) {
    let far = Namespace::new().expect("allowed");
    let sleeper = Running(start(&far, Command::new("sleep").arg("600")));
    let (router, mine, len, version) = if scene.v6 {
        ("2001:db8:1::1", "2001:db8:1::9", "64 nodad", "-6")
    } else {
        ("198.51.100.1", "198.51.100.9", "24", "-4")
    };
    ip(&scene.client, "link add near type veth peer name far");
    ip(&scene.client, &format!("link set far netns {}", sleeper.0.id()));
    ip(&scene.client, "link set near addrgenmode none");
    ip(&far, "link set far addrgenmode none");
    ip(&scene.client, &format!("address add {router}/{len} dev near"));
    ip(&scene.client, &format!("link set near mtu {mtu} up"));
    ip(&far, &format!("address add {mine}/{len} dev far"));
    ip(&far, "link set far up");
    ip(&far, &format!("{version} route add default via {router}"));
    if scene.v6 {
        // A router needs link-local addresses for neighbour discovery.
        ip(&scene.client, "address add fe80::1/64 nodad dev near");
        ip(&scene.client, "address add fe80::7/64 nodad dev eth1");
    }
    let setting = if scene.v6 { "ipv6/conf/all/forwarding" } else { "ipv4/ip_forward" };
    let forward = || {
        std::fs::write(format!("/proc/sys/net/{setting}"), "1").expect("a setting");
        Ok(())
    };
    scene.client.run(forward).expect("a namespace");
    (far, sleeper)
}

fn download(stream: &mut TcpStream) {
    stream.write_all(b"d").expect("room");
    let mut left = vec![0; BYTES];
    stream.read_exact(&mut left).expect("the download continues");
}

/// An ICMP message about the path MTU reaches the connection to which it refers, whether the service or the
/// kernel handles the connection.
#[test]
fn path_mtu_messages_reach_their_connections() {
    for v6 in [false, true] {
        let name = if v6 { "accelerate-mtu-6" } else { "accelerate-mtu-4" };
        let Some(host) = Host::new(name, v6) else { return };
        let (scene, listen) = (&host.scene, host.listen);
        let (far, _sleeper) = behind_router(scene, 1_300);
        let version = if v6 { "-6" } else { "-4" };
        ip(&scene.server, &format!("{version} route add default via {}", scene.client_address()));
        let longest = Duration::from_secs(10);
        // The first connection may fail, because the router must discover its neighbours.
        let mut early = wait_for("a connection", || peers::connect(&far, listen, longest).ok());
        let service = host.accelerate();
        let mut ours = peers::connect(&far, listen, longest).expect("a connection");
        download(&mut ours);
        wait_for("the message is counted", || {
            (scene.status(&service.keeper)?["report"]["too_big"].as_u64()? > 0).then_some(())
        });
        // Without the ICMP message, the kernel's TCP could not learn the MTU.
        download(&mut early);
    }
}

/// If the MTU of the device changes while the service is running, the segments of new and existing
/// connections fit into the new MTU.
#[test]
fn a_changed_mtu_of_the_device_is_followed() {
    let Some(host) = Host::new("accelerate-device-mtu", false) else { return };
    let _service = host.accelerate();
    let (scene, listen) = (&host.scene, host.listen);
    let connect = || {
        let stream = peers::connect(&scene.client, listen, Duration::from_secs(10)).expect("a connection");
        peers::converse(stream).expect("room")
    };
    // Returns the kernel's estimate of the size of the segments that it receives.
    let segment = |stream: &TcpStream| {
        let port = stream.local_addr().expect("an address").port();
        let said = inside(&scene.client, "ss", &["-tinH", "sport", &format!("= :{port}")]).stdout;
        let text = String::from_utf8(said).expect("UTF-8");
        let (_, rest) = text.split_once("rcvmss:").expect("a value");
        rest.split_whitespace().next().and_then(|mss| mss.parse::<u64>().ok()).expect("a number")
    };
    let mut early = connect();
    peers::request(&mut early, BYTES as u64).expect("an answer");
    assert_eq!(segment(&early), 1_448);
    for (mtu, mss) in [(1_300, 1_248), (1_500, 1_448)] {
        ip(&scene.server, &format!("link set eth0 mtu {mtu}"));
        let changed = now();
        let mut late = wait_for("the worker knows", || {
            let mut late = connect();
            peers::request(&mut late, BYTES as u64).expect("an answer");
            (segment(&late) == mss).then_some(late)
        });
        assert!(changed.elapsed() < Duration::from_secs(1), "{:?}", changed.elapsed());
        for stream in [&mut early, &mut late] {
            peers::request(stream, BYTES as u64).expect("an answer");
        }
        // The service never increases the segment size of an existing connection.
        assert!(segment(&early) >= segment(&late).min(1_248), "{}", segment(&early));
    }
}
