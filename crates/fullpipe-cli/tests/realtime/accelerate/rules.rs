//! Tests of the nftables rules with packets that no ordinary client sends, and with a part of the clients.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::forged::{Forger, syn};
use super::peers::{self, Server};
use super::scene::{Scene, can_run, inside, ip, now, wait_for};

const PORT: u16 = 9_000;
const UPSTREAM: &str = "127.0.0.1:9001";
/// Offset of the flags and the fragment offset in an IPv4 header (RFC 791 section 3.1), and the flag for more
/// fragments.
const FRAGMENT: usize = 6;
const MORE_FRAGMENTS: u8 = 0x20;
/// Number of hosts whose addresses are forged.
const FORGED: u32 = 3_000;

fn servers(scene: &Scene) -> [Server; 2] {
    let listen = SocketAddr::new(scene.address(), PORT);
    [Server::new(&scene.server, &listen.to_string()), Server::new(&scene.server, UPSTREAM)]
}

/// Sends a SYN from each address in `sources` to the service, as the first fragments of longer packets if
/// `fragments` is true.
fn send_syns(scene: &Scene, sources: impl Iterator<Item = Ipv4Addr> + Send, fragments: bool) {
    let IpAddr::V4(address) = scene.address() else { panic!("IPv4") };
    let to = SocketAddrV4::new(address, PORT);
    let send = || {
        let forger = Forger::new().expect("allowed");
        for source in sources {
            let mut packet = syn(SocketAddrV4::new(source, 40_000), to, 1).as_bytes().to_vec();
            if fragments {
                packet[FRAGMENT] = MORE_FRAGMENTS;
            }
            forger.send(&packet, to).expect("room");
        }
        Ok(())
    };
    scene.client.run(send).expect("a namespace");
}

/// Returns the number of packets that the rules with this comment have dropped.
fn dropped(scene: &Scene, comment: &str) -> u64 {
    let rules = String::from_utf8(inside(&scene.server, "nft", &["list", "ruleset"]).stdout).expect("UTF-8");
    let of_line = |line: &str| {
        let (_, rest) = line.split_once("counter packets ").expect("a counter");
        rest.split(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    rules.lines().filter(|line| line.contains(&format!("comment \"{comment}\""))).map(of_line).sum()
}

/// The first fragment of a packet is counted and dropped, and a whole packet is not.
#[test]
fn a_first_fragment_is_counted_and_dropped() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-fragment", false);
    let _servers = servers(&scene);
    let service = scene.accelerate(PORT, UPSTREAM, "hidden");
    let syns = || scene.status(&service.keeper)?["report"]["syns"].as_u64();
    let IpAddr::V4(client) = scene.client_address() else { panic!("IPv4") };
    send_syns(&scene, [client].into_iter(), true);
    assert_eq!(dropped(&scene, "first fragments"), 1);
    send_syns(&scene, [client].into_iter(), false);
    wait_for("the worker gets the whole packet", || (syns()? == 1).then_some(()));
    assert_eq!(dropped(&scene, "first fragments"), 1);
}

/// Forged addresses of a connected network make at most 1000 new neighbours per second.
#[test]
fn forged_neighbours_are_few() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-neighbours", false);
    ip(&scene.server, "address add 198.18.0.1/15 dev eth0");
    let _servers = servers(&scene);
    let service = scene.accelerate(PORT, UPSTREAM, "hidden");
    let begun = now();
    let first = Ipv4Addr::new(198, 18, 1, 0).to_bits();
    send_syns(&scene, (0..FORGED).map(|host| Ipv4Addr::from_bits(first + host)), false);
    let answered = || scene.status(&service.keeper)?["report"]["packets_out"].as_u64();
    wait_for("the worker answers", || (answered()? >= u64::from(FORGED)).then_some(()));
    let neighbours = inside(&scene.server, "ip", &["neighbour", "show", "dev", "eth0"]).stdout;
    let seconds = begun.elapsed().as_secs_f64();
    let neighbours = String::from_utf8_lossy(&neighbours);
    let forged = neighbours.lines().filter(|line| line.starts_with("198.18.")).count();
    println!("{forged} neighbours in {seconds:.2} s");
    assert!(forged > 0 && (forged as f64) < 1_000.0 * seconds.max(1.0), "{forged} in {seconds} s");
    assert!(dropped(&scene, "new neighbours") > 0);
}

/// With an expression, only the clients that it selects are accelerated: a set of clients, or one client in `n`.
#[test]
fn an_expression_selects_clients() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-match", false);
    let _servers = servers(&scene);
    let listen = SocketAddr::new(scene.address(), PORT);
    let is_ours = |matched: &str| {
        let section = format!("client_address = \"hidden\"\nmatch = \"{matched}\"");
        let _service = scene.accelerate_with("", PORT, UPSTREAM, &section);
        peers::way(&scene.client, listen).starts_with("127.")
    };
    assert!(is_ours("ip saddr { 203.0.113.7 }"));
    assert!(!is_ours("ip saddr { 203.0.113.8 }"));
    let halves = [0, 1].map(|half| is_ours(&format!("jhash ip saddr mod 2 seed 0x5eed {half}")));
    assert_ne!(halves[0], halves[1], "each client belongs to one half");
}

/// Returns the nftables block of the guide that drops clients.
fn blocklist_of_the_guide() -> &'static str {
    let guide = include_str!("../../../../../docs/guides/accelerate.md");
    let (_, block) = guide.split_once("```nft\n").expect("a block");
    block.split_once("```").expect("an end").0
}

/// The set of the guide drops clients before their packets are steered, whether their connections are new or not.
#[test]
fn the_blocklist_of_the_guide_drops_clients() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-blocklist", false);
    let _servers = servers(&scene);
    let _service = scene.accelerate(PORT, UPSTREAM, "hidden");
    let listen = SocketAddr::new(scene.address(), PORT);
    let file = scene.folder.join("blocklist");
    fs::write(&file, blocklist_of_the_guide()).expect("room");
    let nft = |words: &[&str]| {
        let said = inside(&scene.server, "nft", words);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    nft(&["-f", file.to_str().expect("UTF-8")]);
    let mut stream = peers::echo(&scene.client, listen);
    let client = scene.client_address();
    nft(&[&format!("add element netdev blocklist clients {{ {client} }}")]);
    let short = Duration::from_millis(300);
    peers::connect(&scene.client, listen, short).expect_err("it is dropped");
    stream.set_read_timeout(Some(short)).expect("a socket");
    peers::exchange(&mut stream).expect_err("it is dropped");
    nft(&[&format!("delete element netdev blocklist clients {{ {client} }}")]);
    assert!(peers::way(&scene.client, listen).starts_with("127."));
}
