//! Plans for hosts: planned changes, skipped settings, and the limit set by a host's memory.

use fullpipe_analysis::PathFacts;
use fullpipe_analysis::remedy::{Host, Scope};
use fullpipe_analysis::tune::{FromReport, Item, LocalHost, Peer, Plan, PlanInputs, Role, What, plan, show};
use fullpipe_lab::host::{Change, HostDescription, Route};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

/// Returns a host with kernel 6.1 and a small send buffer.
fn host(changes: &[(&str, &str)]) -> LocalHost {
    let settings = [
        ("kernel/osrelease", "6.1.0-18-amd64\n"),
        ("net/ipv4/tcp_rmem", "4096\t131072\t262144\n"),
        ("net/ipv4/tcp_wmem", "4096\t16384\t212992\n"),
        ("net/ipv4/tcp_mem", "190000\t253000\t380000\n"),
        ("net/ipv4/tcp_congestion_control", "cubic\n"),
        ("net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n"),
        ("net/ipv4/tcp_allowed_congestion_control", "reno cubic\n"),
        ("net/ipv4/tcp_slow_start_after_idle", "1\n"),
        ("net/ipv4/tcp_notsent_lowat", "4294967295\n"),
    ];
    let value = |key: &str, value: &str| {
        let changed = changes.iter().find(|(changed, _)| *changed == key);
        (key.to_owned(), changed.map_or(value, |(_, value)| value).to_owned())
    };
    let facts = HostDescription::new(settings.iter().map(|(key, of)| value(key, of)));
    LocalHost::new(HostDescription { memory: Some(Bytes::from_mib(4096)), ..facts }).unwrap()
}

/// Returns inputs for 20 Mbit/s at 100 ms: the BDP is 250 kB, and a buffer of 256 KiB keeps less than that in
/// flight.
fn inputs(loss: &str) -> PlanInputs {
    PlanInputs {
        path: PathFacts {
            link: "20mbit".parse().ok(),
            rtt: Some(Duration::from_millis(100)),
            loss: loss.parse().ok(),
            ..PathFacts::default()
        },
        peer: Peer { buffer: Some(Bytes::from_mib(8)), ..Peer::default() },
        ..PlanInputs::default()
    }
}

fn planned(host: &LocalHost, inputs: &PlanInputs) -> Plan {
    plan(host, inputs, |_| ()).unwrap()
}

fn item(plan: &Plan, what: What) -> Option<&Item> {
    plan.items.iter().find(|item| item.what == what)
}

fn left(plan: &Plan, what: What) -> &str {
    let left = plan.left.iter().find(|left| left.what == what);
    &left.unwrap_or_else(|| panic!("{what} is planned")).why
}

fn setting(item: &Item) -> &str {
    match item.applied().and_then(|way| way.change.as_ref()) {
        Some(Change::Setting { value, .. }) => value,
        other => panic!("{other:?}"),
    }
}

/// The first limit of this host is loss, and its buffers are the second limit: a change for each of them
/// is planned, with its gain.
#[test]
fn what_holds_a_lossy_path_is_planned_and_the_narrowest_scope_comes_first() {
    let plan = planned(&host(&[]), &inputs("0.1%"));
    let cc = item(&plan, What::CONGESTION_CONTROL).expect("loss holds CUBIC down");
    let scopes: Vec<Scope> = cc.ways.iter().map(|way| way.command.scope).collect();
    assert_eq!(scopes, [Scope::Socket, Scope::Route, Scope::System]);
    assert_eq!((cc.host, cc.here, setting(cc)), (Host::Sender, true, "bbr"));
    let wmem = item(&plan, What::TCP_WMEM).unwrap_or_else(|| panic!("{:#?} {:#?}", plan.left, plan.ladder));
    assert!(wmem.why.ends_with(" x BDP"), "{}", wmem.why);
    let (with, without) = (cc.gain.with.unwrap(), cc.gain.without.unwrap());
    assert!(with > without.mul_div(3, 2), "{with} against {without}");
    assert_eq!(plan.planned, Some(with));
    // The kernel ignores this setting with BBR (tcp_slow_start_after_idle_check), and rmem belongs to the
    // other host.
    assert!(left(&plan, What::SLOW_START_AFTER_IDLE).starts_with("BBR"));
    assert!(left(&plan, What::TCP_RMEM).contains("is enough"));
    let optional: Vec<What> = plan.items.iter().filter(|item| item.optional).map(|item| item.what).collect();
    assert_eq!(optional, [What::INITCWND, What::NOTSENT_LOWAT]);
    assert_eq!(plan.applied().count(), 2, "what is for some applications is not applied unasked");
}

/// Without loss, CUBIC fills the link once the buffers are large enough: BBR would change nothing and is not
/// planned.
#[test]
fn what_changes_nothing_is_not_planned() {
    let lossless = planned(&host(&[]), &inputs("0%"));
    assert!(item(&lossless, What::CONGESTION_CONTROL).is_none());
    assert!(!left(&lossless, What::CONGESTION_CONTROL).is_empty());
    assert!(item(&lossless, What::TCP_WMEM).is_some());
    assert!(item(&lossless, What::SLOW_START_AFTER_IDLE).is_some(), "CUBIC asks it");
    let large = [("net/ipv4/tcp_wmem", "4096 16384 8388608")];
    let already = planned(&host(&large), &inputs("0%"));
    assert!(already.items.iter().all(|item| item.optional), "{:?}", already.items);
    let asked = PlanInputs { with: vec![What::NOTSENT_LOWAT], ..inputs("0%") };
    let applied: Vec<What> = planned(&host(&large), &asked).applied().map(|item| item.what).collect();
    assert_eq!(applied, [What::NOTSENT_LOWAT]);
}

/// A buffer that fills the link is not doubled only because one period of the sawtooth lost more than the
/// others. With 504 KiB, the second half of the simulated run reaches 18.2 Mbit/s, its first half 18.6 Mbit/s
/// including the ramp, and Linux 6.1 reached 18.9 Mbit/s. Twice the buffer reaches 19.2 Mbit/s.
#[test]
fn one_bad_period_does_not_double_the_buffer() {
    let small = [("net/ipv4/tcp_wmem", "4096\t16384\t262144\n")];
    let plan = planned(&host(&small), &inputs("0%"));
    let wmem = item(&plan, What::TCP_WMEM).unwrap_or_else(|| panic!("{}", left(&plan, What::TCP_WMEM)));
    assert_eq!(setting(wmem), "4096 16384 516096", "{:#?}", plan.ladder);
}

/// Settings that help only some applications are simulated with such applications: a burst after an idle
/// period, and a byte in a full socket.
#[test]
fn optional_items_say_what_time_they_save() {
    let large = [("net/ipv4/tcp_wmem", "4096 16384 8388608")];
    let plan = planned(&host(&large), &inputs("0%"));
    let gain = |what| &item(&plan, what).unwrap_or_else(|| panic!("{}", left(&plan, what))).gain;
    // The sender sends a burst of a whole BDP at the host's rate. With its headers, the burst is larger than
    // the queue of one BDP, and overflows it. Half a BDP takes 50 ms to pass the link and one round trip to
    // be acknowledged; with an initial window of ten segments it takes four round trips.
    let burst = gain(What::SLOW_START_AFTER_IDLE);
    let (with, without) = (burst.with_ms.unwrap(), burst.without_ms.unwrap());
    assert!((145.0..180.0).contains(&with) && without > 400.0, "{with} and {without}");
    assert!(burst.text.contains("; one of 244 KiB after a pause takes "), "{}", burst.text);
    // 128 KiB and one skb at 20 Mbit/s.
    let waiting = gain(What::NOTSENT_LOWAT);
    let (with, without) = (waiting.with_ms.unwrap(), waiting.without_ms.unwrap());
    assert!(with < 80.0 && without > 2.0 * with, "{with} and {without}");
    assert!(waiting.with_bytes.unwrap() < waiting.without_bytes.unwrap());
    assert!(waiting.with.unwrap() > waiting.without.unwrap().mul_div(19, 20), "CUBIC loses nothing by it");
    // With loss, the plan uses BBR, which ignores the setting.
    assert!(left(&planned(&host(&large), &inputs("0.1%")), What::SLOW_START_AFTER_IDLE).starts_with("BBR"));
}

/// Loss limits each of twelve flows, but together they fill the link. The plan does not claim that no packet
/// is lost.
#[test]
fn many_flows_fill_a_lossy_link() {
    let path = PathFacts {
        link: "100mbit".parse().ok(),
        rtt: Some(Duration::from_millis(50)),
        flows: Some(12),
        ..inputs("0.1%").path
    };
    let plan = planned(&host(&[]), &PlanInputs { path, ..inputs("0.1%") });
    let why = left(&plan, What::CONGESTION_CONTROL);
    assert!(why.starts_with("cubic reaches 9") && why.ends_with(" at a loss of 0.1 % (simulated)"), "{why}");
    let assumed = "losses are independent of each other and of the rates of these flows";
    assert!(plan.assumptions.iter().any(|assumption| assumption == assumed), "{:?}", plan.assumptions);
}

/// A quarter of the memory and `tcp_mem[1]` limit all flows together, and take precedence over the 2 x BDP
/// rule.
#[test]
fn memory_bounds_the_buffers() {
    let mut small = host(&[]);
    small.facts.memory = Some(Bytes::from_kib(1640));
    let plan = planned(&small, &inputs("0%"));
    let wmem = item(&plan, What::TCP_WMEM).expect("there is a little room");
    assert_eq!(setting(wmem), "4096 16384 417792", "a quarter of it, in whole pages");
    assert!(wmem.why.contains("memory allows no larger buffer"), "{}", wmem.why);
    let one_flow = inputs("0%");
    let two_flows = PlanInputs { path: PathFacts { flows: Some(2), ..one_flow.path }, ..one_flow };
    let none = planned(&small, &two_flows);
    assert!(left(&none, What::TCP_WMEM).contains("memory allows"), "nothing is ever lowered");
    let pressed = host(&[("net/ipv4/tcp_mem", "60 80 120")]);
    let plan = planned(&pressed, &inputs("0%"));
    assert_eq!(setting(item(&plan, What::TCP_WMEM).unwrap()), "4096 16384 327680", "80 pages");
}

/// A change to the route to the peer affects no other connections.
#[test]
fn with_a_peer_congestion_control_is_its_routes() {
    let route = Route {
        destination: "203.0.113.7".parse().unwrap(),
        exact: false,
        way: "via 192.0.2.1 dev eth0".into(),
        hops: String::new(),
        present: "default via 192.0.2.1 dev eth0 proto static".into(),
        device: "eth0".into(),
        congctl: None,
        initcwnd: None,
    };
    let mut routed = host(&[]);
    routed.facts.route = Some(route.clone());
    let with = PlanInputs { with: vec![What::INITCWND], ..inputs("0.1%") };
    let plan = planned(&routed, &with);
    let cc = item(&plan, What::CONGESTION_CONTROL).unwrap().applied().unwrap();
    assert_eq!(cc.command.run, "ip route replace 203.0.113.7 via 192.0.2.1 dev eth0 congctl bbr");
    assert_eq!(cc.command.undo, "ip route del 203.0.113.7 via 192.0.2.1 dev eth0");
    let initcwnd = item(&plan, What::INITCWND).unwrap().applied().unwrap();
    assert!(initcwnd.command.run.ends_with("dev eth0 congctl bbr initcwnd 32"), "{}", initcwnd.command.run);
    // The setting of the route takes precedence over the default of the host.
    let mut bbr = host(&[("net/ipv4/tcp_congestion_control", "bbr")]);
    bbr.facts.route = Some(Route { congctl: Some("cubic".into()), exact: true, ..route });
    let plan = planned(&bbr, &inputs("0.1%"));
    let cc = item(&plan, What::CONGESTION_CONTROL).expect("the route has CUBIC");
    assert_eq!((cc.present.as_deref(), cc.applied().unwrap().command.scope), (Some("cubic"), Scope::Route));
    assert!(cc.ways.iter().all(|way| way.command.scope != Scope::System), "the host has BBR already");
}

#[test]
fn a_kernel_without_bbr_is_told_so_and_one_of_4_10_gets_fq() {
    let none = host(&[("net/ipv4/tcp_available_congestion_control", "reno cubic")]);
    assert!(
        left(&planned(&none, &inputs("0.1%")), What::CONGESTION_CONTROL)
            .contains("but this kernel does not have it, neither")
    );
    let mut module = none;
    module.facts.loadable = vec!["bbr".into()];
    assert!(item(&planned(&module, &inputs("0.1%")), What::CONGESTION_CONTROL).is_some());
    let mut old = host(&[("kernel/osrelease", "4.10.0-19")]);
    old.settings.default_qdisc = Some("pfifo_fast".into());
    let plan = planned(&old, &inputs("0.1%"));
    assert_eq!(setting(item(&plan, What::QUEUEING_DISCIPLINE).expect("4.10 does not pace")), "fq");
    assert!(item(&planned(&host(&[]), &inputs("0.1%")), What::QUEUEING_DISCIPLINE).is_none());
}

/// Each host applies only its own changes: the sender's plan lists the receiver's changes for the other host,
/// and never applies them.
#[test]
fn each_host_gets_its_own_part() {
    let small = Peer { buffer: Some(Bytes::from_kib(256)), ..Peer::default() };
    let sender = planned(&host(&[]), &PlanInputs { peer: small.clone(), ..inputs("0%") });
    let rmem = item(&sender, What::TCP_RMEM).expect("the other host's window is too small");
    assert!(!rmem.here && rmem.applied().is_none() && rmem.host == Host::Receiver);
    assert!(
        sender.notes.iter().any(|note| note.starts_with("until the receiver is changed too")),
        "{:#?}",
        (&sender.notes, &sender.items)
    );
    let receiver = planned(&host(&[]), &PlanInputs { role: Role::Receiver, peer: small, ..inputs("0%") });
    assert!(setting(item(&receiver, What::TCP_RMEM).unwrap()).starts_with("4096 131072 "));
    assert!(!item(&receiver, What::TCP_WMEM).unwrap().here);
}

/// If the application is slow, no setting helps and none is planned.
#[test]
fn a_report_gives_the_path_and_says_what_is_out_of_reach() {
    let report = |limit: &str| {
        format!(
            r#"{{"schema": "fullpipe.diagnose/2", "input": {{"protocol": "tcp", "streams": 2}},
            "path": {{"link_bps": 20000000, "rtt_ms": 100.0, "rtt_source": "given", "mean_bps": 5000000,
                      "congestion_control": "cubic", "loss": {{"rate": 0.001}}}},
            "hosts": {{"sender": {{"made_the_log": true, "buffer_bytes": 262144, "kernel": "6.1"}},
                       "receiver": {{"made_the_log": false, "buffer_bytes": 6291456, "kernel": null}}}},
            "findings": [{{"limit": "{limit}", "what": "the sending application"}}]}}"#
        )
    };
    let from_report = FromReport::parse(&report("cwnd")).unwrap();
    assert_eq!(from_report.path.link, Some(Rate::from_bps(20_000_000)));
    assert_eq!(from_report.path.rtt, Some(Duration::from_millis(100)));
    assert_eq!(
        (from_report.path.loss, from_report.role),
        (Some(Probability::from_f64(0.001)), Some(Role::Sender))
    );
    assert_eq!((from_report.path.flows, from_report.out_of_reach), (Some(2), None));
    let from_report = FromReport::parse(&report("app")).unwrap();
    let plan = planned(&host(&[]), &PlanInputs { report: from_report, ..inputs("0.1%") });
    assert!(plan.items.is_empty(), "{:?}", plan.items);
    for text in ["", "[]", "{}", r#"{"schema": "fullpipe.whatif/1"}"#, "null", r#"{"schema": 1}"#] {
        assert!(FromReport::parse(text).is_err(), "{text}");
    }
}

/// A buffer of 4 MiB at 210 ms allows a sender 157 Mbit/s (64/65 of the buffer is payload). The loss does not
/// limit BBR.
#[test]
fn what_each_setting_limits_is_per_round_trip() {
    let host = host(&[("net/ipv4/tcp_wmem", "4096 16384 4194304")]);
    let shown = show(&host, &[Duration::from_millis(210)], "20ppm".parse().unwrap());
    let limits = &shown.limits[0];
    assert_eq!(limits.send.unwrap().to_string(), "157 Mbit/s");
    assert_eq!(limits.receive.unwrap().to_string(), "4.99 Mbit/s", "half of 256 KiB: tcp_adv_win_scale 1");
    assert!((59.0..61.0).contains(&limits.loss.unwrap().as_mbps_f64()));
}

/// The code lines for an application are valid C, and the kernel accepts the values that they set.
#[test]
fn what_is_given_for_sockets_compiles_and_runs() {
    let has_compiler =
        std::process::Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success());
    if !has_compiler || !cfg!(target_os = "linux") {
        eprintln!("skipped: there is no cc here, or no Linux");
        return;
    }
    let plan = planned(&host(&[]), &inputs("0.1%"));
    let ways = plan.items.iter().flat_map(|item| &item.ways);
    let lines: Vec<&str> =
        ways.filter(|way| way.command.scope == Scope::Socket).map(|way| way.command.run.as_str()).collect();
    assert_eq!(lines.len(), 2, "the congestion control and unsent data: {lines:?}");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tune-snippet");
    std::fs::create_dir_all(&folder).unwrap();
    for (number, line) in lines.into_iter().enumerate() {
        let (source, program) = (folder.join(format!("{number}.c")), folder.join(number.to_string()));
        let text = format!(
            "#include <errno.h>\n#include <netinet/in.h>\n#include <netinet/tcp.h>\n#include <sys/socket.h>\n\
             int main(void) {{ int fd = socket(AF_INET, SOCK_STREAM, 0); return {line} == 0 ? 0 : errno; }}\n"
        );
        // The line may end with a comment after the call. Remove it, because a comparison follows the call in
        // the test program.
        let text = match line.split_once("  /*") {
            Some((call, comment)) => text.replace(line, call) + "/*" + comment + "\n",
            None => text,
        };
        std::fs::write(&source, text).unwrap();
        let mut compiler = std::process::Command::new("cc");
        let made = compiler.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(&source).output().unwrap();
        assert!(made.status.success(), "{line}: {}", String::from_utf8_lossy(&made.stderr));
        let ran = std::process::Command::new(&program).status().unwrap();
        // ENOENT: the kernel has no BBR; EPERM: the process is not allowed to select it.
        assert!(matches!(ran.code(), Some(0..=2)), "{line}: {ran}");
    }
}
