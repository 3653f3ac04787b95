use super::made::{explained, log_of, path};
use super::*;
use fullpipe_tcp::buffers::WindowRule;

use fullpipe_measurement::PathFacts;
use fullpipe_measurement::input::ss::made::{dump, dumps_of, malformed};
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_measurement::input::{iperf3, ss};
use fullpipe_measurement::measurement::{Measurement, Role};

fn limits(findings: &Findings) -> Vec<Limit> {
    findings.findings.iter().map(|finding| finding.limit).collect()
}

/// Returns the findings if nothing is known about the hosts.
fn found(measurement: &Measurement, path: PathFacts) -> Findings {
    explained(measurement, path, &HostFacts::default()).expect("an explanation")
}

#[test]
fn a_full_line_is_the_line() {
    let log = log_of((0..20).map(|i| (if i < 2 { 30.0 } else { 94.0 }, 0, 2400)));
    let found = found(&log, PathFacts { link: "100mbit".parse().ok(), ..path("100ms") });
    assert_eq!(limits(&found), [Limit::Link, Limit::SlowStart]);
    assert_eq!(found.findings[0].confidence, Confidence::Certain);
}

#[test]
fn a_flat_rate_at_what_the_window_allows_is_the_window() {
    // 1 MiB x 3/4 at 100 ms is 62.9 Mbit/s.
    let host =
        HostSettings::parse("net.ipv4.tcp_rmem = 1 2 1048576\nnet.ipv4.tcp_adv_win_scale = 2").unwrap();
    let log = log_of((0..20).map(|i| (if i < 1 { 10.0 } else { 61.0 }, 0, 2000)));
    let hosts = HostFacts { local: Some(host), control: "900mbit".parse().ok(), ..HostFacts::default() };
    let path = PathFacts { link: "1gbit".parse().ok(), ..path("100ms") };
    let found = explained(&log, path, &hosts).unwrap();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Rwnd, Confidence::High));
    assert_eq!(first.ceiling, Some(Rate::from_bps(62_914_560)));
    let excluded: Vec<Limit> = found.excluded.iter().map(|excluded| excluded.limit).collect();
    assert_eq!(excluded, [Limit::Cwnd, Limit::Cap]);
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::Dump);
}

#[test]
fn a_dump_that_contradicts_the_log_is_not_believed() {
    let host = HostSettings::parse("net.ipv4.tcp_rmem = 1 2 65536\nnet.ipv4.tcp_adv_win_scale = 2").unwrap();
    let log = log_of((0..20).map(|_| (61.0, 0, 2000)));
    let found =
        explained(&log, path("100ms"), &HostFacts { local: Some(host), ..HostFacts::default() }).unwrap();
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::KernelDefault);
    assert!(found.buffers.window() >= found.measured.inflight);
}

#[test]
fn a_rate_that_varies_below_the_window_is_an_application_perhaps() {
    let log = log_of((0..20).map(|i| (if i / 4 % 2 == 0 { 8.0 } else { 20.0 }, 0, 4000)));
    let found = found(&log, path("100ms"));
    assert_eq!(limits(&found)[..2], [Limit::App, Limit::ReceiverApp]);
    assert!(found.findings.iter().all(|finding| finding.confidence == Confidence::Low));
}

#[test]
fn a_test_that_ends_in_slow_start_says_so() {
    let log = log_of((0..6).map(|i| (f64::from(1 << i), 0, 13 << i)));
    assert_eq!(limits(&found(&log, path("100ms"))), [Limit::SlowStart]);
}

#[test]
fn a_receivers_log_gives_hints_only() {
    let rows: String =
        (0..10).map(|i| format!("[  5] {i}.00-{}.00 sec 12.5 MBytes 105 Mbits/sec\n", i + 1)).collect();
    let log = iperf3::parse(&rows).unwrap();
    let found = found(&log, path("210ms"));
    assert!(limits(&found).contains(&Limit::Cwnd) && limits(&found).contains(&Limit::Rwnd));
    assert!(found.findings.iter().all(|finding| finding.confidence == Confidence::Low));
    assert_eq!(found.loss, None);
    let error = explained(&log, PathFacts::default(), &HostFacts::default()).unwrap_err();
    assert!(error.message.contains("RTT is missing") && error.hint.contains("--rtt"));
}

#[test]
fn limits_of_one_flow_are_multiplied_by_the_streams() {
    let mut log = log_of((0..20).map(|_| (115.0, 0, 8_000)));
    log.flows.push(log.flows[0].clone());
    let found = found(&log, path("210ms"));
    assert_eq!(found.findings[0].limit, Limit::Rwnd);
    assert_eq!(found.findings[0].ceiling, Some(Rate::from_bps(239_674_514)));
}

#[test]
fn what_cannot_be_is_refused_with_a_hint() {
    let log = log_of((0..20).map(|_| (61.0, 0, 700)));
    let refused = |log: &Measurement, path: PathFacts, control: Option<Rate>| {
        let error = explained(log, path, &HostFacts { control, ..HostFacts::default() }).unwrap_err();
        assert!(!error.hint.is_empty());
        error.message
    };
    let rtt = |rtt| refused(&log, PathFacts { rtt: Some(rtt), ..PathFacts::default() }, None);
    assert!(rtt(Duration::ZERO).contains("zero"));
    assert!(rtt(Duration::from_secs(11)).contains("is out of range: at most 10s"));
    assert!(rtt(Duration::from_millis(400)).contains("times Cwnd, which is not possible"));
    let slow = PathFacts { link: "50mbit".parse().ok(), ..path("100ms") };
    assert!(refused(&log, slow, None).contains("exceeds the link rate"));
    assert!(refused(&log, path("100ms"), Some(Rate::ZERO)).contains("--control"));
    let silent = log_of((0..20).map(|_| (0.0, 0, 14)));
    assert!(refused(&silent, path("100ms"), None).contains("no data transfer"));
}

/// The host that recorded the log determines which dump belongs to which host; a single dump applies to both.
#[test]
fn settings_belong_to_the_host_that_the_log_says() {
    let host = |wmem: u64, rmem: u64, scale: i8| {
        let text = format!(
            "net.ipv4.tcp_wmem = 1 2 {wmem}\nnet.ipv4.tcp_rmem = 1 2 {rmem}\nnet.ipv4.tcp_adv_win_scale = {scale}"
        );
        HostSettings::parse(&text).unwrap()
    };
    let (own, peer) = (host(8 << 20, 16 << 20, 1), host(32 << 20, 64 << 20, 2));
    let sent = log_of((0..10).map(|_| (8.0, 100, 0)));
    let mut received = sent.clone();
    received.flows[0].role = Role::Receiver;
    let buffers = |log, peer: Option<&HostSettings>| {
        let hosts = HostFacts { local: Some(own.clone()), peer: peer.cloned(), ..HostFacts::default() };
        let found = explained(log, path("100ms"), &hosts).unwrap();
        let said = found.assumptions.iter().any(|text| {
            text.contains(
                "both hosts have the settings of the \
            sysctl dump",
            )
        });
        assert_eq!(said, peer.is_none(), "{:#?}", found.assumptions);
        let Buffers { sndbuf, rcvbuf, rule, .. } = found.buffers;
        (sndbuf.get() >> 20, rcvbuf.get() >> 20, rule)
    };
    let (scale_1, scale_2) = (WindowRule::AdvWinScale(1), WindowRule::AdvWinScale(2));
    assert_eq!(buffers(&sent, None), (8, 16, scale_1));
    assert_eq!(buffers(&sent, Some(&peer)), (8, 64, scale_2));
    assert_eq!(buffers(&received, Some(&peer)), (32, 16, scale_1));
    let hosts = HostFacts { peer: Some(peer), ..HostFacts::default() };
    let only_peer = explained(&sent, path("100ms"), &hosts).unwrap();
    assert_eq!(only_peer.buffers.sndbuf_source, BufferSource::KernelDefault);
    assert_eq!(
        (only_peer.buffers.rcvbuf.get() >> 20, only_peer.buffers.rcvbuf_source),
        (64, BufferSource::Dump)
    );
}

/// The classifier explains a series of dumps; a finding from a single dump has a lower confidence
/// and states this.
#[test]
fn one_dump_is_a_snapshot() {
    let limit = |text: &str| {
        let trace = ss::parse(text, None).expect("dumps");
        let findings = found(&trace, PathFacts::default()).findings;
        findings.into_iter().next().expect("a finding")
    };
    let whole = limit(&dumps_of(100));
    assert_eq!(whole.limit, Limit::Cwnd);
    let one = limit(&dump(5));
    assert_eq!(one.limit, Limit::Cwnd);
    assert!(one.confidence < whole.confidence);
    assert!(one.could_not_tell[0].ends_with("because there is only one sample"), "{one:#?}");
    let full = dump(5).replace("snd_wnd:950272", "snd_wnd:144800");
    assert_eq!(limit(&full).limit, Limit::Rwnd);
    let empty = dump(5).replace("notsent:300000 ", "");
    assert_eq!(limit(&empty).limit, Limit::App);
}

/// Malformed dumps that are still readable are explained or rejected, without a panic.
#[test]
fn what_is_read_of_malformed_dumps_is_explained() {
    for trace in malformed().iter().filter_map(|text| ss::parse(text, None).ok()) {
        drop(explained(&trace, PathFacts::default(), &HostFacts::default()));
    }
}

/// When one of ten windows falls, their sum hardly does. Judging the streams one by one avoids mistaking ten
/// CUBIC streams for BBR.
#[test]
fn ten_loss_based_streams_are_not_taken_for_bbr() {
    let stream = |nth: u64| {
        let rows = (0..30u64).map(move |i| {
            let since = (i + 30 - 3 * nth) % 30;
            (8.0, u64::from(since == 5) * 4, if since < 5 { 200 } else { 130 + 3 * (since - 5).min(23) })
        });
        log_of(rows).flows.remove(0)
    };
    let mut log = log_of((0..30).map(|_| (8.0, 0, 200)));
    log.flows = (0..10).map(stream).collect();
    let found = found(&log, path("100ms"));
    assert!(!found.sender.algorithm().is_rate_based(), "{:?}", found.sender);
}
