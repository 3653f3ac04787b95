//! Tests with the rules of common firewalls, written in the format of `nft -j list ruleset` (nftables 1.0).

use serde_json::json;

use super::*;

fn listen(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 5], port))
}

fn chain(table: &str, name: &str) -> Value {
    json!({"chain": {"family": "inet", "table": table, "name": name, "handle": 1}})
}

fn base(table: &str, name: &str, kind: &str, hook: &str, policy: &str) -> Value {
    json!({"chain": {"family": "inet", "table": table, "name": name, "handle": 1, "type": kind, "hook": hook,
        "prio": 0, "policy": policy}})
}

fn rule(table: &str, chain: &str, expressions: Value) -> Value {
    json!({"rule": {"family": "inet", "table": table, "chain": chain, "handle": 7, "expr": expressions}})
}

fn dport(right: Value) -> Value {
    json!({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": right}})
}

fn state(states: Value) -> Value {
    json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": states}})
}

fn iifname(name: &str) -> Value {
    json!({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": name}})
}

fn saddr(address: &str) -> Value {
    json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": address}})
}

fn judged(port: u16, objects: Vec<Value>) -> Vec<Objection> {
    let ruleset = json!({"nftables": objects}).to_string();
    judge(&ruleset, listen(port), &["eth0".into()]).expect("a ruleset")
}

/// A host without rules.
#[test]
fn no_rules_are_no_objection() {
    assert_eq!(judged(443, vec![json!({"metainfo": {"version": "1.0.6"}})]), []);
    assert!(judge("no JSON", listen(443), &[]).is_err());
    assert!(judge("{}", listen(443), &[]).is_err());
}

/// `/etc/nftables.conf` of a Debian server: established connections, loopback, ICMP, a few ports, and drop.
fn debian() -> Vec<Value> {
    vec![
        base("filter", "input", "filter", "input", "drop"),
        rule("filter", "input", json!([state(json!(["established", "related"])), {"accept": null}])),
        rule("filter", "input", json!([state(json!("invalid")), {"drop": null}])),
        rule("filter", "input", json!([iifname("lo"), {"accept": null}])),
        rule(
            "filter",
            "input",
            json!([{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "ipv6-icmp"}},
                {"accept": null}]),
        ),
        rule(
            "filter",
            "input",
            json!([dport(json!({"set": [22, 80, 443]})), {"counter": null}, {"accept": null}]),
        ),
    ]
}

#[test]
fn debian_accepts_the_port_from_everybody() {
    assert_eq!(judged(443, debian()), []);
}

#[test]
fn a_closed_port_is_an_objection() {
    let expected = Objection::Drops("chain filter input policy drop".into());
    assert_eq!(judged(8_443, debian()), [expected]);
}

/// A blocklist before the accepting rule drops some clients, but steering would let them pass.
#[test]
fn a_blocked_client_is_an_objection() {
    let mut rules = debian();
    rules.insert(1, rule("filter", "input", json!([saddr("198.51.100.7"), {"drop": null}])));
    let found = judged(443, rules);
    assert!(matches!(&found[..], [Objection::Drops(rule)] if rule.contains("198.51.100.7")), "{found:?}");
    assert!(!found[0].is_final());
}

/// A chain that runs at the device after the steering does not see steered packets. Chains that run before it, and chains
/// of other devices, are not affected.
#[test]
fn an_ingress_chain_after_the_steering_is_an_objection() {
    let found = |family: &str, dev: Value, prio: i64, policy: &str| {
        let mut chain = json!({"chain": {"family": family, "table": "t", "name": "c", "handle": 1, "type": "filter",
            "hook": "ingress", "dev": dev.clone(), "prio": prio, "policy": policy}});
        if dev.is_null() {
            chain["chain"].as_object_mut().expect("a chain").remove("dev");
        }
        let mut drop = rule("t", "c", json!([saddr("198.51.100.7"), {"drop": null}]));
        drop["rule"]["family"] = json!(family);
        judged(443, vec![chain, drop])
    };
    // nft 1.0.6 does not print the devices of a chain.
    let unknown = ("netdev", Value::Null);
    let named = [("netdev", json!("eth0")), ("inet", json!("eth0")), ("netdev", json!(["x", "eth0"]))];
    for (family, dev) in named.into_iter().chain([unknown]) {
        let objections = found(family, dev.clone(), 10, "accept");
        assert!(
            matches!(&objections[..], [Objection::Drops(rule)] if rule.contains("198.51.100.7")),
            "{objections:?}"
        );
        assert_eq!(found(family, dev.clone(), 10, "drop").len(), 2);
        assert_eq!(found(family, dev, -10, "drop"), []);
    }
    assert_eq!(found("netdev", json!("eth9"), 10, "drop"), []);
}

/// A rule that accepts the port only from some clients does not decide about the others.
#[test]
fn a_port_for_some_clients_is_an_objection() {
    let rules = vec![
        base("filter", "input", "filter", "input", "drop"),
        rule("filter", "input", json!([saddr("198.51.100.7"), dport(json!(443)), {"accept": null}])),
    ];
    assert_eq!(judged(443, rules), [Objection::Drops("chain filter input policy drop".into())]);
}

/// ufw: chains jump to each other, and the user's rules accept the port.
#[test]
fn ufw_accepts_the_port_from_everybody() {
    let jump =
        |from: &str, to: &str| rule("filter", from, json!([{"counter": null}, {"jump": {"target": to}}]));
    let rules = vec![
        base("filter", "INPUT", "filter", "input", "drop"),
        chain("filter", "ufw-before-input"),
        chain("filter", "ufw-user-input"),
        chain("filter", "ufw-reject-input"),
        jump("INPUT", "ufw-before-input"),
        rule("filter", "ufw-before-input", json!([iifname("lo"), {"accept": null}])),
        rule(
            "filter",
            "ufw-before-input",
            json!([state(json!(["related", "established"])), {"accept": null}]),
        ),
        rule("filter", "ufw-before-input", json!([state(json!("invalid")), {"drop": null}])),
        jump("ufw-before-input", "ufw-user-input"),
        rule("filter", "ufw-user-input", json!([dport(json!(22)), {"accept": null}])),
        rule("filter", "ufw-user-input", json!([dport(json!(443)), {"accept": null}])),
    ];
    assert_eq!(judged(443, rules.clone()), []);
    assert_eq!(judged(80, rules), [Objection::Drops("chain filter INPUT policy drop".into())]);
}

/// firewalld: a verdict map of states, zones by device, and a final reject.
#[test]
fn firewalld_accepts_a_service_of_its_zone() {
    let states = json!({"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [
        ["established", {"accept": null}], ["related", {"accept": null}], ["invalid", {"drop": null}]]}}});
    let rules = vec![
        base("firewalld", "filter_INPUT", "filter", "input", "accept"),
        chain("firewalld", "filter_IN_public"),
        rule("firewalld", "filter_INPUT", json!([states])),
        rule("firewalld", "filter_INPUT", json!([iifname("lo"), {"accept": null}])),
        rule("firewalld", "filter_INPUT", json!([iifname("eth0"), {"goto": {"target": "filter_IN_public"}}])),
        rule("firewalld", "filter_INPUT", json!([{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}])),
        rule("firewalld", "filter_IN_public", json!([dport(json!(443)), {"accept": null}])),
        rule("firewalld", "filter_IN_public", json!([{"reject": null}])),
    ];
    assert_eq!(judged(443, rules.clone()), []);
    let found = judged(80, rules);
    assert!(matches!(&found[..], [Objection::Drops(rule)] if rule.contains("filter_IN_public")), "{found:?}");
}

/// Docker: published ports are redirected before they reach the host.
fn docker(published: u16) -> Vec<Value> {
    let local = json!({"match": {"op": "==", "left": {"fib": {"result": "type", "flags": ["daddr"]}},
        "right": "local"}});
    vec![
        base("nat", "PREROUTING", "nat", "prerouting", "accept"),
        chain("nat", "DOCKER"),
        rule("nat", "PREROUTING", json!([local, {"jump": {"target": "DOCKER"}}])),
        rule("nat", "DOCKER", json!([iifname("docker0"), {"return": null}])),
        rule("nat", "DOCKER", json!([dport(json!(published)), {"dnat": {"addr": "172.17.0.2", "port": 80}}])),
    ]
}

#[test]
fn a_published_port_of_docker_is_refused() {
    assert_eq!(judged(443, docker(8_080)), []);
    let found = judged(443, docker(443));
    assert!(matches!(&found[..], [objection @ Objection::Redirects(_)] if objection.is_final()), "{found:?}");
}

#[test]
fn a_transparent_proxy_is_refused() {
    let rules = vec![
        base("mangle", "prerouting", "filter", "prerouting", "accept"),
        rule(
            "mangle",
            "prerouting",
            json!([dport(json!({"range": [400, 500]})), {"tproxy": {"port": 3_128}}]),
        ),
    ];
    let found = judged(443, rules);
    assert!(matches!(&found[..], [Objection::Redirects(_)]), "{found:?}");
}

/// A rule with an iptables extension is reported if it may drop packets, but not if it only accepts them.
#[test]
fn what_is_not_understood_is_shown() {
    let extension = |verdict: &str| {
        let rules = json!([{"xt": null}, {verdict: null}]);
        vec![
            base("filter", "INPUT", "filter", "input", "accept"),
            rule("filter", "INPUT", rules),
            rule("filter", "INPUT", json!([dport(json!(443)), {"accept": null}])),
        ]
    };
    let found = judged(443, extension("drop"));
    assert!(matches!(&found[..], [Objection::NotUnderstood(_)]), "{found:?}");
    assert_eq!(judged(443, extension("accept")), []);
    // With iptables-nft, Docker's redirecting target is an extension.
    let target = |port: u16| {
        let redirect = rule("nat", "PREROUTING", json!([dport(json!(port)), {"xt": null}]));
        vec![base("nat", "PREROUTING", "nat", "prerouting", "accept"), redirect]
    };
    let found = judged(443, target(443));
    assert!(matches!(&found[..], [Objection::NotUnderstood(_)]), "{found:?}");
    assert_eq!(judged(443, target(8_080)), []);
    let set = json!([{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
        "right": "@closed"}}, {"drop": null}]);
    let found = judged(443, vec![base("f", "i", "filter", "input", "accept"), rule("f", "i", set)]);
    assert!(matches!(&found[..], [Objection::NotUnderstood(_)]), "{found:?}");
}

/// Rules of the other address family do not matter, nor do chains that no packet to a local socket passes.
#[test]
fn other_families_and_hooks_do_not_matter() {
    let mut other = base("filter", "input", "filter", "input", "drop");
    other["chain"]["family"] = "ip6".into();
    let forward = base("filter", "forward", "filter", "forward", "drop");
    let output = base("filter", "output", "filter", "output", "drop");
    assert_eq!(judged(443, vec![other, forward, output]), []);
}

/// Chains that jump to each other are followed only up to the kernel's maximum depth.
#[test]
fn a_loop_of_jumps_ends() {
    let rules =
        vec![base("f", "i", "filter", "input", "accept"), rule("f", "i", json!([{"jump": {"target": "i"}}]))];
    let found = judged(443, rules);
    assert!(matches!(&found[..], [Objection::NotUnderstood(_)]), "{found:?}");
}

#[test]
fn networks_and_devices_are_compared() {
    let network = json!({"prefix": {"addr": "203.0.113.0", "len": 24}});
    assert!(contains(&network, listen(443).ip()));
    assert!(!contains(&network, IpAddr::from([203, 0, 114, 5])));
    assert!(contains(&json!({"prefix": {"addr": "0.0.0.0", "len": 0}}), listen(443).ip()));
    let v6 = json!({"prefix": {"addr": "2001:db8::", "len": 32}});
    assert!(contains(&v6, "2001:db8::5".parse().expect("an address")));
    assert!(is_device(&json!("eth*"), "eth0") && !is_device(&json!("eth1"), "eth0"));
}

/// The kernel forwards the worker's packets as untracked packets from the worker's device.
#[test]
fn rules_that_block_forwarded_packets_are_objections() {
    let judged = |chain: &str, rules: &str| {
        let text = format!(
            r#"{{"nftables": [
                {{"chain": {{"family": "inet", "table": "f", "name": "c", "handle": 1, {chain}}}}}{rules}
            ]}}"#
        );
        judge_forwarding(&text, "203.0.113.5:443".parse().expect("an address"), "fp0").expect("a ruleset")
    };
    let rule = |expressions: &str| {
        format!(
            r#", {{"rule": {{"family": "inet", "table": "f", "chain": "c", "handle": 2, "expr": [{expressions}]}}}}"#
        )
    };
    let forward = r#""type": "filter", "hook": "forward", "prio": 0, "policy": "drop""#;
    assert_eq!(judged(forward, ""), [Objection::Blocks("chain f c policy drop".into())]);
    // Docker's rules, and the exception that the guide recommends.
    let by_device = |device: &str| {
        let left = r#"{"meta": {"key": "iifname"}}"#;
        rule(&format!(
            r#"{{"match": {{"op": "==", "left": {left}, "right": "{device}"}}}}, {{"accept": null}}"#
        ))
    };
    assert_eq!(judged(forward, &by_device("docker0")).len(), 1);
    assert_eq!(judged(forward, &by_device("fp*")), []);
    let open = forward.replace("drop", "accept");
    let state = |state: &str| {
        let left = r#"{"ct": {"key": "state"}}"#;
        rule(&format!(r#"{{"match": {{"op": "in", "left": {left}, "right": "{state}"}}}}, {{"drop": null}}"#))
    };
    assert_eq!(judged(&open, &state("invalid")), []);
    assert_eq!(judged(&open, &state("untracked")).len(), 1);
    let source = |port: u16| {
        let left = r#"{"payload": {"protocol": "tcp", "field": "sport"}}"#;
        rule(&format!(r#"{{"match": {{"op": "==", "left": {left}, "right": {port}}}}}, {{"drop": null}}"#))
    };
    assert_eq!(judged(&open, &source(80)), []);
    assert_eq!(judged(&open, &source(443)).len(), 1);
    // A reverse path filter, such as firewalld's filter for IPv6, is not understood. The chain INPUT does not
    // matter, because the packets are forwarded.
    let fib = r#"{"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, "right": false}}"#;
    let reverse = rule(&format!(r#"{fib}, {{"drop": null}}"#));
    let before = open.replace("forward", "prerouting");
    assert!(matches!(judged(&before, &reverse)[..], [Objection::NotUnderstood(_)]));
    assert_eq!(judged(&forward.replace("forward", "input"), ""), []);
}
