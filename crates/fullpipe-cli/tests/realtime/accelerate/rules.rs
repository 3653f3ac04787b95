//! Tests with packets that no ordinary client sends, and of rules for a part of the clients.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use fullpipe::tcp::wire::Flags;

use super::forged::{Forger, Receiver, segment, syn};
use super::host::Host;
use super::peers;
use super::scene::{Scene, inside, ip, now, signal, wait_for};

/// Number of hosts whose addresses are forged.
const FORGED: u32 = 3_000;

/// Sends a SYN from each address in `sources` to the service. `change` changes each packet.
fn send_syns(host: &Host, sources: impl Iterator<Item = IpAddr> + Send, change: fn(Vec<u8>) -> Vec<u8>) {
    let send = || {
        let forger = Forger::new(host.scene.v6).expect("allowed");
        for source in sources {
            let syn = syn(SocketAddr::new(source, 40_000), host.listen, 1);
            forger.send(&change(syn.as_bytes().to_vec()), host.listen).expect("room");
        }
        Ok(())
    };
    host.scene.client.run(send).expect("a namespace");
}

/// Turns a packet into the first fragment of a longer packet.
fn first_fragment(mut packet: Vec<u8>) -> Vec<u8> {
    /// Size of an IPv6 header, and of an IPv6 fragment header (RFC 8200 sections 3 and 4.5).
    const IPV6: usize = 40;
    const FRAGMENT: usize = 8;
    if packet[0] >> 4 == 4 {
        // The flag for more fragments (RFC 791 section 3.1).
        packet[6] = 0x20;
        return packet;
    }
    let next = std::mem::replace(&mut packet[6], 44);
    packet[5] += FRAGMENT as u8;
    let header: [u8; FRAGMENT] = [next, 0, 0, 1, 0, 0, 0, 1];
    drop(packet.splice(IPV6..IPV6, header));
    packet
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
    for v6 in [false, true] {
        let name = if v6 { "accelerate-fragment-6" } else { "accelerate-fragment-4" };
        let Some(host) = Host::new(name, v6) else { return };
        let (service, scene) = (host.accelerate(), &host.scene);
        let syns = || scene.status(&service.keeper)?["report"]["syns"].as_u64();
        let client = || [scene.client_address()].into_iter();
        send_syns(&host, client(), first_fragment);
        assert_eq!(dropped(scene, "first fragments"), 1, "{name}");
        send_syns(&host, client(), |packet| packet);
        wait_for("the worker gets the whole packet", || (syns()? == 1).then_some(()));
        assert_eq!(dropped(scene, "first fragments"), 1, "{name}");
    }
}

/// The client of a packet that the worker has not read when it dies is reset, even if the worker has no connection to it.
/// Such a packet may be the answer to a SYN cookie.
#[test]
fn the_client_of_an_unread_packet_is_reset() {
    /// Sequence number that the client expects.
    const EXPECTED: u32 = 77_000;
    let Some(host) = Host::new("accelerate-unread", false) else { return };
    let (service, scene) = (host.accelerate(), &host.scene);
    let client = SocketAddr::new(scene.client_address(), 40_000);
    let receiver = scene.client.run(|| Ok(Receiver::new(Duration::from_secs(1)).expect("allowed")));
    let receiver = receiver.expect("a namespace");
    signal("-STOP", &[service.worker]);
    let send = || {
        let ack = segment(client, host.listen, Flags::ACK, 1_000, EXPECTED);
        Forger::new(false).expect("allowed").send(ack.as_bytes(), host.listen).expect("room");
        Ok(())
    };
    scene.client.run(send).expect("a namespace");
    signal("-KILL", &[service.worker]);
    let reset = receiver.next_to(client).expect("a reset within a second");
    assert!(reset.flags.has(Flags::RST) && reset.seq.0 == EXPECTED, "{reset:?}");
}

/// Forged addresses of a connected network make at most 1000 new neighbours per second.
#[test]
fn forged_neighbours_are_few() {
    let Some(host) = Host::new("accelerate-neighbours", false) else { return };
    ip(&host.scene.server, "address add 198.18.0.1/15 dev eth0");
    let (service, scene) = (host.accelerate(), &host.scene);
    let begun = now();
    let first = Ipv4Addr::new(198, 18, 1, 0).to_bits();
    let sources = (0..FORGED).map(|number| IpAddr::from(Ipv4Addr::from_bits(first + number)));
    send_syns(&host, sources, |packet| packet);
    let answered = || scene.status(&service.keeper)?["report"]["packets_out"].as_u64();
    wait_for("the worker answers", || (answered()? >= u64::from(FORGED)).then_some(()));
    let neighbours = inside(&scene.server, "ip", &["neighbour", "show", "dev", "eth0"]).stdout;
    let seconds = begun.elapsed().as_secs_f64();
    let neighbours = String::from_utf8_lossy(&neighbours);
    let forged = neighbours.lines().filter(|line| line.starts_with("198.18.")).count();
    println!("{forged} neighbours in {seconds:.2} s");
    assert!(forged > 0 && (forged as f64) < 1_000.0 * seconds.max(1.0), "{forged} in {seconds} s");
    assert!(dropped(scene, "new neighbours") > 0);
}

/// With an expression, only the clients that it selects are accelerated: a set of clients, or one client in `n`.
#[test]
fn an_expression_selects_clients() {
    let Some(host) = Host::new("accelerate-match", false) else { return };
    let is_ours = |matched: &str| {
        let _service = host.accelerate_with("", &format!("match = \"{matched}\""));
        host.is_ours()
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
    let Some(host) = Host::new("accelerate-blocklist", false) else { return };
    let _service = host.accelerate();
    let (scene, listen) = (&host.scene, host.listen);
    let file = scene.folder.join("blocklist");
    fs::write(&file, blocklist_of_the_guide()).expect("room");
    let nft = |words: &[&str]| {
        let said = inside(&scene.server, "nft", words);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    nft(&["-f", file.to_str().expect("UTF-8")]);
    let mut stream = host.echo();
    let client = scene.client_address();
    nft(&[&format!("add element netdev blocklist clients {{ {client} }}")]);
    let short = Duration::from_millis(300);
    peers::connect(&scene.client, listen, short).expect_err("it is dropped");
    stream.set_read_timeout(Some(short)).expect("a socket");
    peers::exchange(&mut stream).expect_err("it is dropped");
    nft(&[&format!("delete element netdev blocklist clients {{ {client} }}")]);
    assert!(host.is_ours());
}
