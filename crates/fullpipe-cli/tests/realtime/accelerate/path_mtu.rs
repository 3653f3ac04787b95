//! A client behind a router whose link has a smaller MTU than the devices of both ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use fullpipe::linux::namespace::Namespace;

use super::peers::{self, Server};
use super::scene::{Running, Scene, can_run, ip, start, wait_for};

const PORT: u16 = 9_000;
/// Number of bytes that are downloaded: many segments.
const BYTES: usize = 300_000;

/// Connects a further namespace to the client's, which becomes a router. Only the router's end of the link has
/// the MTU `mtu`, so the far client announces an MSS that does not fit into a smaller one.
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
        // A router needs link-local addresses to find its neighbours.
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

/// An ICMP message about the path MTU reaches the connection that it is about: ours, or one that the kernel
/// had before the start.
#[test]
fn path_mtu_messages_reach_their_connections() {
    if !can_run() {
        return;
    }
    for v6 in [false, true] {
        let scene = Scene::new(if v6 { "accelerate-mtu-6" } else { "accelerate-mtu-4" }, v6);
        let (far, _sleeper) = behind_router(&scene, 1_300);
        let version = if v6 { "-6" } else { "-4" };
        ip(&scene.server, &format!("{version} route add default via {}", scene.client_address()));
        let listen = SocketAddr::new(scene.address(), PORT);
        let _servers =
            [Server::new(&scene.server, &listen.to_string()), Server::new(&scene.server, "127.0.0.1:9001")];
        let longest = Duration::from_secs(10);
        // The router must find its neighbours first.
        let mut early = wait_for("a connection", || peers::connect(&far, listen, longest).ok());
        let service = scene.accelerate(PORT, "127.0.0.1:9001", "hidden");
        let mut ours = peers::connect(&far, listen, longest).expect("a connection");
        download(&mut ours);
        wait_for("the message is counted", || {
            (scene.status(&service.keeper)?["report"]["too_big"].as_u64()? > 0).then_some(())
        });
        // The kernel's TCP has no other way to learn the MTU.
        download(&mut early);
    }
}
