//! Tests that changes to a host can be reverted, whichever process is killed: after SIGKILL at any step,
//! either the host is restored, or the journal allows the next command to restore it. The hosts are folders
//! and, where the process is permitted to create them, network namespaces.

mod lock;

use crate::rights;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration as Wait;

use fullpipe_lab::host::Change;
use fullpipe_linux::Error;
use fullpipe_linux::namespace::Namespace;
use fullpipe_linux::tune::{
    Guard, Phase, TakenBack, Target, apply, confirm, rollback, settle, status, watch,
};
use fullpipe_units::Duration;
use rustix::process::{Signal, getpid, kill_process};

const WMEM: (&str, &str) = ("net.ipv4.tcp_wmem", "4096 16384 52502528");
const RMEM: (&str, &str) = ("net.ipv4.tcp_rmem", "4096 131072 52502528");
const PEER: &str = "10.20.3.7";
const PEER_V6: &str = "2001:db8:20::7";

/// Environment variables that tell a copy of this program which role it has in a test.
const PART: &str = "FULLPIPE_TEST_PART";
const ROOT: &str = "FULLPIPE_TEST_ROOT";
const LAST_STEP: &str = "FULLPIPE_TEST_LAST_STEP";
const IN_NAMESPACE: &str = "FULLPIPE_TEST_IN_NAMESPACE";

/// Creates a folder that imitates a host, or that contains the files of a network namespace.
fn host(test: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("linux-tune-{test}"));
    let _ = fs::remove_dir_all(&root);
    let sys = root.join("proc/sys/net/ipv4");
    fs::create_dir_all(&sys).unwrap();
    fs::write(sys.join("tcp_wmem"), "4096\t16384\t4194304\n").unwrap();
    fs::write(sys.join("tcp_rmem"), "4096\t131072\t6291456\n").unwrap();
    root
}

fn place(root: &Path, in_namespace: bool) -> Target {
    let own = in_namespace.then_some("/proc/thread-self/ns/net");
    Target::inherited(Some(root), own).unwrap()
}

fn changes(in_namespace: bool) -> Vec<Change> {
    let setting = |(key, value): (&str, &str)| Change::Setting { key: key.into(), value: value.into() };
    let mut changes = vec![setting(WMEM), setting(RMEM)];
    for peer in [PEER, PEER_V6].into_iter().take(routes(in_namespace)) {
        changes.push(route(peer));
    }
    changes
}

fn route(peer: &str) -> Change {
    let destination = peer.parse().unwrap();
    Change::Route { destination, congctl: Some("reno".into()), initcwnd: Some(32) }
}

/// Returns the number of routes that the test changes: one for IPv4, plus one for IPv6 if the kernel supports
/// it.
fn routes(in_namespace: bool) -> usize {
    if in_namespace { 1 + usize::from(Path::new("/proc/sys/net/ipv6").exists()) } else { 0 }
}

/// Returns a guard that runs this test program. The generation number is passed as the name of a second test,
/// which does not exist.
fn guard(root: &Path, in_namespace: bool) -> Guard {
    let this = env::current_exe().unwrap();
    let set = |name: &str, value: &str| OsString::from(format!("{name}={value}"));
    let arguments = vec![
        set(PART, "guard"),
        set(ROOT, root.to_str().unwrap()),
        set(IN_NAMESPACE, if in_namespace { "1" } else { "0" }),
        this.into(),
        "--exact".into(),
        "tune::part".into(),
        "--".into(),
    ];
    Guard { program: "env".into(), arguments }
}

/// Returns a guard that dies as soon as it has reported that it is ready.
fn dead_guard() -> Guard {
    Guard { program: "sh".into(), arguments: ["-c", "printf r >&0"].map(OsString::from).into() }
}

/// Returns the text of everything that must be restored, byte for byte.
fn snapshot(root: &Path, in_namespace: bool) -> String {
    let file = |path: PathBuf| match fs::read_to_string(&path) {
        Ok(text) => format!("{}:{text}\n", path.display()),
        Err(_) => format!("{}: none\n", path.display()),
    };
    let sys = if in_namespace { PathBuf::from("/proc/sys/net/ipv4") } else { root.join("proc/sys/net/ipv4") };
    let mut text = file(sys.join("tcp_wmem")) + &file(sys.join("tcp_rmem"));
    text += &file(root.join("etc/sysctl.d/90-fullpipe.conf"));
    if in_namespace {
        text += &said("ip -4 route show table all");
        text += &said("ip -6 route show table all");
    }
    text
}

/// Returns the output of a shell command.
fn said(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `work` on a folder, and if permitted also in a network namespace.
fn on_both(test: &str, work: impl Fn(&Path, bool) + Sync) {
    let root = host(test);
    work(&root, false);
    let Some(_alone) = rights::alone() else { return };
    let root = host(&format!("{test}-namespace"));
    in_network(|| {
        // One route covers the peer; a host route leads to the address next to the peer.
        said("ip route add 10.20.0.0/16 dev t0");
        said("ip route add 10.20.3.8/32 dev t0 initcwnd 12 mtu 1400");
        if routes(true) > 1 {
            said("ip -6 route add 2001:db8:20::/48 via 2001:db8:1::9");
            said("ip -6 route add 2001:db8:20::8/128 dev t0 metric 77 initcwnd 12");
        }
        work(&root, true);
    });
}

/// Runs `work` in a network namespace that has a device.
fn in_network(work: impl Fn() + Sync) {
    let namespace = Namespace::new().unwrap();
    let inside = namespace.run(|| {
        if Command::new("ip").arg("-V").output().is_err() {
            eprintln!("skipped: there is no ip here");
            return Ok(());
        }
        if routes(true) > 1 {
            // Link-local addresses are disabled, because their routes would appear seconds later, in the
            // middle of a test.
            fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1").unwrap();
        }
        said("ip link set lo up");
        said("ip tuntap add dev t0 mode tun");
        said("ip link set t0 up");
        said("ip addr add 192.0.2.1/24 dev t0");
        if routes(true) > 1 {
            said("ip addr add 2001:db8:1::1/64 dev t0 nodad");
            // The kernel adds this route shortly after the address.
            assert!(becomes(|| said("ip -6 route show table local").contains("local 2001:db8:1::1")));
        }
        work();
        Ok::<(), Error>(())
    });
    inside.unwrap();
}

/// Starts a copy of this program with the role `part`, waits for its end, and returns whether it was killed.
fn dies(part: &str, root: &Path, in_namespace: bool, last_step: usize) -> bool {
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", "tune::part"])
        .env(PART, part)
        .env(ROOT, root)
        .env(LAST_STEP, last_step.to_string());
    child.env(IN_NAMESPACE, if in_namespace { "1" } else { "0" });
    let output = child.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() != Some(101), "{text}{}", String::from_utf8_lossy(&output.stderr));
    !output.status.success()
}

#[expect(clippy::disallowed_methods, reason = "the guard has the kernel's time")]
fn becomes(happened: impl Fn() -> bool) -> bool {
    (0..6_000).any(|_| {
        happened() || {
            std::thread::sleep(Wait::from_millis(10));
            false
        }
    })
}

/// Executes the role that the environment variables name; as an ordinary test, this function does nothing.
#[test]
fn part() {
    let Ok(part) = env::var(PART) else { return };
    let root = PathBuf::from(env::var(ROOT).unwrap());
    let in_namespace = env::var(IN_NAMESPACE).unwrap() == "1";
    let place = place(&root, in_namespace);
    if part == "guard" {
        let number = env::args().next_back().unwrap().parse().unwrap();
        watch(&place, number).unwrap();
        return;
    }
    let last: usize = env::var(LAST_STEP).unwrap().parse().unwrap();
    let mut steps = 0;
    let mut die = |_| {
        steps += 1;
        if steps == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    };
    let minute = Some(Duration::from_secs(60));
    match part.as_str() {
        "apply" => {
            apply(&place, &changes(in_namespace), minute, &guard(&root, in_namespace), &mut die).unwrap();
        }
        "apply unguarded" => {
            apply(&place, &changes(in_namespace), minute, &dead_guard(), &mut die).unwrap();
        }
        "rollback" => {
            rollback(&place, false, &mut die).unwrap();
        }
        "confirm" => {
            confirm(&place, &mut die).unwrap();
        }
        other => panic!("{other}"),
    }
}

fn applied(root: &Path, in_namespace: bool, revert_after: Option<Duration>) {
    let place = place(root, in_namespace);
    let guard = guard(root, in_namespace);
    let done = apply(&place, &changes(in_namespace), revert_after, &guard, &mut |_| ()).unwrap().unwrap();
    assert_eq!(done.settings.len(), 2);
    assert_eq!(done.routes.len(), routes(in_namespace));
    let state = status(&place).unwrap().states.pop().unwrap();
    assert!(state.changes.iter().all(|change| !change.drifted), "{state:?}");
}

fn rolled_back(root: &Path, in_namespace: bool) {
    let TakenBack { done, left, .. } =
        rollback(&place(root, in_namespace), false, &mut |_| ()).unwrap().expect("something");
    assert!(!done.is_empty() && left.is_empty(), "{done:?} {left:?}");
}

#[test]
fn what_is_taken_back_is_as_it_was_byte_for_byte() {
    on_both("back", |root, in_namespace| {
        let before = snapshot(root, in_namespace);
        applied(root, in_namespace, Some(Duration::from_secs(60)));
        assert_ne!(snapshot(root, in_namespace), before);
        rolled_back(root, in_namespace);
        assert_eq!(snapshot(root, in_namespace), before);
        assert_eq!(rollback(&place(root, in_namespace), false, &mut |_| ()).unwrap(), None);
    });
}

/// Each generation of changes builds on the confirmed generation before it, and reverting it restores that
/// generation.
#[test]
fn generations_are_taken_back_one_by_one() {
    on_both("generations", |root, in_namespace| {
        let place = place(root, in_namespace);
        let before = snapshot(root, in_namespace);
        applied(root, in_namespace, Some(Duration::from_secs(60)));
        assert_eq!(confirm(&place, &mut |_| ()).unwrap(), 2 + routes(in_namespace));
        let kept = snapshot(root, in_namespace);
        assert!(kept.contains("\nnet.ipv4.tcp_wmem = 4096 16384 52502528\n"), "{kept}");
        let more = [Change::Setting { key: WMEM.0.into(), value: "4096 16384 99999744".into() }];
        let guard = guard(root, in_namespace);
        apply(&place, &more, None, &guard, &mut |_| ()).unwrap().unwrap();
        let file = fs::read_to_string(place.owned()).unwrap();
        assert!(file.contains("tcp_wmem = 4096 16384 99999744") && file.contains("tcp_rmem = "), "{file}");
        assert_eq!(apply(&place, &more, None, &guard, &mut |_| ()).unwrap(), None, "it is so already");
        rolled_back(root, in_namespace);
        assert_eq!(snapshot(root, in_namespace), kept);
        rolled_back(root, in_namespace);
        assert_eq!(snapshot(root, in_namespace), before);
    });
}

#[test]
fn nobody_confirms_and_it_is_taken_back_at_the_deadline() {
    on_both("deadline", |root, in_namespace| {
        let before = snapshot(root, in_namespace);
        applied(root, in_namespace, Some(Duration::from_secs(2)));
        assert!(becomes(|| snapshot(root, in_namespace) == before), "{}", snapshot(root, in_namespace));
        assert!(becomes(|| status(&place(root, in_namespace)).unwrap().states.is_empty()));
    });
}

/// The guard reverts the changes at whatever step the applying process is killed.
#[test]
fn killed_at_any_step_the_guard_restores_it() {
    on_both("killed", |root, in_namespace| {
        let before = snapshot(root, in_namespace);
        let steps = (1..).take_while(|step| {
            let died = dies("apply", root, in_namespace, *step);
            if died {
                assert!(becomes(|| snapshot(root, in_namespace) == before), "step {step}");
                // If there is no guard yet, the journal stays for the next command to find.
                settle(&place(root, in_namespace)).unwrap();
                let gone = || status(&place(root, in_namespace)).unwrap().states.is_empty();
                assert!(becomes(gone), "step {step}");
            }
            died
        });
        // The steps are: journal, guard, file, two settings, reading back and recording, and the routes.
        assert_eq!(steps.count(), 7 + routes(in_namespace));
        rolled_back(root, in_namespace);
        assert_eq!(snapshot(root, in_namespace), before);
    });
}

/// If the guard is killed as well, the next command finds the journal and reverts the changes.
#[test]
fn killed_with_its_guard_the_next_command_restores_it() {
    on_both("unguarded", |root, in_namespace| {
        let before = snapshot(root, in_namespace);
        let mut step = 1;
        while dies("apply unguarded", root, in_namespace, step) {
            let place = place(root, in_namespace);
            let state = status(&place).unwrap().states.pop().expect("the journal comes first");
            if state.phase == Phase::Applying && step % 2 == 0 {
                assert!(!settle(&place).unwrap().is_empty(), "step {step}");
            } else {
                rollback(&place, false, &mut |_| ()).unwrap().expect("something");
            }
            assert_eq!(snapshot(root, in_namespace), before, "step {step}");
            step += 1;
        }
        assert!(step > 7, "{step}");
        rolled_back(root, in_namespace);
    });
}

#[test]
fn killed_while_taking_back_the_next_command_goes_on() {
    on_both("rolling", |root, in_namespace| {
        let before = snapshot(root, in_namespace);
        for step in 1.. {
            applied(root, in_namespace, None);
            let died = dies("rollback", root, in_namespace, step);
            let place = place(root, in_namespace);
            if died {
                settle(&place).unwrap();
            }
            assert_eq!(snapshot(root, in_namespace), before, "step {step}");
            assert!(status(&place).unwrap().states.is_empty(), "step {step}");
            if !died {
                assert!(step > 5, "{step}");
                break;
            }
        }
    });
}

/// If `confirm` is killed, the changes are either still on trial or confirmed.
#[test]
fn killed_while_confirming_it_is_one_or_the_other() {
    on_both("confirming", |root, in_namespace| {
        let before = snapshot(root, in_namespace);
        for step in 1..=3 {
            applied(root, in_namespace, Some(Duration::from_secs(60)));
            let died = dies("confirm", root, in_namespace, step);
            assert_eq!(died, step < 3);
            let state = status(&place(root, in_namespace)).unwrap().states.pop().unwrap();
            assert_eq!(state.phase, if step == 1 { Phase::Trial } else { Phase::Confirmed });
            rolled_back(root, in_namespace);
            assert_eq!(snapshot(root, in_namespace), before);
        }
    });
}

/// A rollback leaves values that another program has changed in the meantime.
#[test]
fn what_others_have_changed_is_left_and_said() {
    let root = host("others");
    applied(&root, false, None);
    let place = place(&root, false);
    let theirs = "4096\t16384\t7340032\n";
    fs::write(root.join("proc/sys/net/ipv4/tcp_wmem"), theirs).unwrap();
    let drifted: Vec<bool> =
        status(&place).unwrap().states[0].changes.iter().map(|change| change.drifted).collect();
    assert_eq!(drifted, [true, false]);
    let TakenBack { done, left, .. } = rollback(&place, false, &mut |_| ()).unwrap().unwrap();
    assert_eq!(left.len(), 1, "{done:?} {left:?}");
    assert!(left[0].contains("another program has changed it"), "{left:?}");
    assert_eq!(fs::read_to_string(root.join("proc/sys/net/ipv4/tcp_wmem")).unwrap(), theirs);
}

/// If the settings file exists but was not written by fullpipe, the file and all settings remain unchanged.
#[test]
fn a_file_of_somebody_else_is_not_replaced() {
    let root = host("file");
    let owned = root.join("etc/sysctl.d/90-fullpipe.conf");
    fs::create_dir_all(owned.parent().unwrap()).unwrap();
    fs::write(&owned, "net.ipv4.tcp_wmem = 1 2 3\n").unwrap();
    let before = snapshot(&root, false);
    let refused = apply(&place(&root, false), &changes(false), None, &guard(&root, false), &mut |_| ());
    assert!(refused.unwrap_err().message.contains("was not written by fullpipe"));
    assert_eq!(snapshot(&root, false), before);
}

/// If the kernel rejects a value, the changes that were made before it are reverted.
#[test]
fn what_the_kernel_refuses_leaves_nothing_behind() {
    let Some(_alone) = rights::alone() else { return };
    let root = host("refused");
    let namespace = Namespace::new().unwrap();
    let inside = namespace.run(|| {
        let before = snapshot(&root, true);
        let none = Change::Setting { key: "net.ipv4.tcp_congestion_control".into(), value: "nosuch".into() };
        let place = place(&root, true);
        let refused =
            apply(&place, &[changes(false), vec![none]].concat(), None, &guard(&root, true), &mut |_| ());
        let error = refused.unwrap_err();
        assert_eq!(error.kind, fullpipe_linux::Kind::Reverted, "{error}");
        assert!(error.message.contains("all changes were reverted"), "{error}");
        assert_eq!(snapshot(&root, true), before);
        assert!(status(&place).unwrap().states.is_empty());
        Ok::<(), Error>(())
    });
    inside.unwrap();
}

/// If the guard does not report that it is ready, nothing is changed.
#[test]
fn without_a_guard_nothing_is_changed() {
    let root = host("no-guard");
    let before = snapshot(&root, false);
    let none = Guard { program: "true".into(), arguments: Vec::new() };
    let refused = apply(&place(&root, false), &changes(false), None, &none, &mut |_| ());
    assert!(refused.unwrap_err().message.contains("start the process"));
    assert_eq!(snapshot(&root, false), before);
}

/// Commands that create nexthop objects, which require a device with a carrier: two objects for IPv4, a group
/// of both, and one for IPv6.
const NEXT_HOPS: &str = "ip link set v1 up
ip link set v0 up
ip addr add 198.51.100.1/24 dev v0
ip addr add 2001:db8:3::1/64 dev v0 nodad
ip nexthop add id 1 via 198.51.100.7 dev v0
ip nexthop add id 2 via 198.51.100.8 dev v0
ip nexthop add id 3 group 1/2
ip nexthop add id 4 via 2001:db8:3::7 dev v0";

/// Routes with three next hops, whose order is not that of their addresses.
const THREE_HOPS: &str =
    "2001:db8:2::/48 nexthop via 2001:db8:1::8 nexthop via 2001:db8:1::7 nexthop via 2001:db8:1::9";
const THREE_HOPS_TO_HOST: &str =
    "2001:db8:2::c nexthop via 2001:db8:1::8 nexthop via 2001:db8:1::7 nexthop via 2001:db8:1::9";
const THREE_HOPS_IN_ORDER: &str = "nexthop via 2001:db8:1::8 dev t0 weight 1 linkdown nexthop via 2001:db8:1::7 \
                                   dev t0 weight 1 linkdown nexthop via 2001:db8:1::9 dev t0 weight 1";

/// For each kind of IPv4 and IPv6 route, the host route to the peer gets the same next hop, and is removed
/// completely afterwards.
#[test]
fn routes_of_every_kind_are_taken_over_and_given_back() {
    let Some(_alone) = rights::alone() else { return };
    // Each entry contains an existing route, the peer, and a part of the expected host route to the peer.
    let kinds = [
        ("default via 192.0.2.9", "203.0.113.7", "203.0.113.7 via 192.0.2.9 dev t0"),
        ("203.0.113.7 dev t0 mtu lock 1400 rto_min 300ms", "203.0.113.7", "mtu lock 1400"),
        (
            "203.0.113.0/24 nexthop via 192.0.2.7 weight 1 nexthop via 192.0.2.8 weight 3",
            "203.0.113.7",
            "nexthop via 192.0.2.8 dev t0 weight 3",
        ),
        ("default via 2001:db8:1::9", "2001:db8:2::7", "2001:db8:2::7 via 2001:db8:1::9 dev t0"),
        ("2001:db8:2::7 via 2001:db8:1::9 metric 50 mtu lock 1300", "2001:db8:2::7", "metric 50"),
        (
            "2001:db8:2::/48 nexthop via 2001:db8:1::7 weight 1 nexthop via 2001:db8:1::8 weight 2",
            "2001:db8:2::7",
            "nexthop via 2001:db8:1::8 dev t0 weight 2",
        ),
        // The kernel selects a next hop by a hash of the destination, and reports this next hop first.
        (THREE_HOPS, "2001:db8:2::8", THREE_HOPS_IN_ORDER),
        (THREE_HOPS, "2001:db8:2::9", THREE_HOPS_IN_ORDER),
        (THREE_HOPS, "2001:db8:2::a", THREE_HOPS_IN_ORDER),
        (THREE_HOPS, "2001:db8:2::b", THREE_HOPS_IN_ORDER),
        (THREE_HOPS_TO_HOST, "2001:db8:2::c", THREE_HOPS_IN_ORDER),
        // The following entries use nexthop objects: a single one, and a group of two.
        ("203.0.113.0/24 nhid 1", "203.0.113.7", "203.0.113.7 nhid 1 via 198.51.100.7 dev v0"),
        ("203.0.113.0/24 nhid 3", "203.0.113.7", "203.0.113.7 nhid 3"),
        ("2001:db8:2::/48 nhid 4", "2001:db8:2::7", "2001:db8:2::7 nhid 4 via 2001:db8:3::7 dev v0"),
    ];
    for (number, (present, peer, expected)) in kinds.into_iter().enumerate() {
        let v6 = peer.contains(':');
        if v6 && routes(true) < 2 {
            eprintln!("skipped: {present}: this kernel has no IPv6");
            continue;
        }
        let root = host(&format!("route-{number}"));
        in_network(|| {
            let ip = if v6 { "ip -6 route" } else { "ip route" };
            if present.contains("nhid") {
                let pair = ["link", "add", "v0", "type", "veth", "peer", "name", "v1"];
                if !Command::new("ip").args(pair).status().unwrap().success() {
                    eprintln!("skipped: {present}: this kernel has no pairs of devices");
                    return;
                }
                let known = NEXT_HOPS.lines().filter(|line| routes(true) > 1 || !line.contains("2001:"));
                known.for_each(|line| drop(said(line)));
                // The kernel adds these routes itself, shortly after the addresses.
                let complete = || {
                    let table = said("ip -6 route show table local");
                    table.contains("local 2001:db8:3::1 dev v0")
                        && table.contains("multicast ff00::/8 dev v1")
                };
                assert!(routes(true) < 2 || becomes(complete), "{}", said("ip -6 route show table local"));
                assert!(becomes(|| !said("ip route show dev v0").contains("linkdown")));
            }
            said(&format!("{ip} add {present}"));
            let place = place(&root, true);
            let before = snapshot(&root, true);
            let guard = guard(&root, true);
            let minute = Some(Duration::from_secs(60));
            let done = apply(&place, &[route(peer)], minute, &guard, &mut |_| ()).unwrap().unwrap();
            let routes = said(&format!("{ip} show")).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(routes.contains(expected) && routes.contains("congctl reno"), "{present}: {routes}");
            // The ip command accepts the reported text: entering it results in the same route.
            said(&format!("ip route replace {}", done.routes[0].route));
            let by_hand = said(&format!("{ip} show")).split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(by_hand, routes, "{present}");
            assert!(status(&place).unwrap().states[0].changes.iter().all(|change| !change.drifted));
            let TakenBack { left, .. } = rollback(&place, false, &mut |_| ()).unwrap().unwrap();
            assert_eq!((snapshot(&root, true), left), (before, Vec::new()), "{present}");
        });
    }
}

/// Loads the settings files as at boot: the files of all folders in the order of their names; of two files
/// with the same name, only the first one is loaded.
fn boot(root: &Path) {
    fs::write(root.join("proc/sys/net/ipv4/tcp_wmem"), "4096\t16384\t4194304\n").unwrap();
    fs::write(root.join("proc/sys/net/ipv4/tcp_rmem"), "4096\t131072\t6291456\n").unwrap();
    let mut files: Vec<(OsString, PathBuf)> = Vec::new();
    for folder in ["etc/sysctl.d", "run/sysctl.d", "usr/lib/sysctl.d"] {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            if !files.iter().any(|(name, _)| *name == entry.file_name()) {
                files.push((entry.file_name(), entry.path()));
            }
        }
    }
    files.sort();
    for (_, path) in files {
        for line in fs::read_to_string(path).unwrap().lines().filter(|line| !line.starts_with('#')) {
            let (key, value) = line.split_once('=').unwrap();
            let file = root.join("proc/sys").join(key.trim().replace('.', "/"));
            fs::write(file, format!("{}\n", value.trim())).unwrap();
        }
    }
}

/// A host that is rebooted during a trial starts with only the confirmed settings, and the next command
/// removes all traces of the trial.
#[test]
fn a_restart_ends_a_trial() {
    let root = host("restart");
    let boot_id = |id: &str| {
        let folder = root.join("proc/sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), id).unwrap();
    };
    boot_id("first");
    fs::create_dir_all(root.join("usr/lib/sysctl.d")).unwrap();
    fs::write(root.join("usr/lib/sysctl.d/50-site.conf"), "net.ipv4.tcp_rmem = 4096 131072 8388608\n")
        .unwrap();
    boot(&root);
    let place = place(&root, false);
    let settings = || {
        let read = |name: &str| fs::read_to_string(root.join("proc/sys/net/ipv4").join(name)).unwrap();
        (read("tcp_wmem"), read("tcp_rmem"))
    };
    let confirmed = [Change::Setting { key: WMEM.0.into(), value: "4096 16384 8388608".into() }];
    apply(&place, &confirmed, None, &dead_guard(), &mut |_| ()).unwrap().unwrap();
    boot(&root);
    let (before, file) = (settings(), fs::read_to_string(place.owned()).unwrap());
    assert_eq!(before, ("4096 16384 8388608\n".into(), "4096 131072 8388608\n".into()));

    // The processes that would revert the trial end with the reboot.
    apply(&place, &changes(false), Some(Duration::from_secs(3600)), &dead_guard(), &mut |_| ())
        .unwrap()
        .unwrap();
    assert_ne!(settings(), before);
    boot(&root);
    boot_id("second");
    assert_eq!(settings(), before, "{}", fs::read_to_string(place.owned()).unwrap());
    let state = status(&place).unwrap().states.pop().unwrap();
    assert_eq!((state.phase, state.left), (Phase::Trial, Some(Duration::ZERO)));
    settle(&place).unwrap();
    assert_eq!((settings(), fs::read_to_string(place.owned()).unwrap()), (before, file));
    assert_eq!(status(&place).unwrap().states.len(), 1, "what was confirmed");
}
