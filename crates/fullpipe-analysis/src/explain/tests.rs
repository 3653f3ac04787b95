use super::*;
use fullpipe_tcp::buffers::WindowRule;

use crate::{HostSettings, Iperf3Log};

/// A log of one-second intervals: Mbit/s, retransmissions, Cwnd in KiB.
fn log_of(rows: impl IntoIterator<Item = (f64, u64, u64)>) -> Iperf3Log {
    let mut text =
        String::from("Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr Cwnd\n");
    let mut total = 0.0;
    let mut end = 0;
    for (mbps, retr, cwnd) in rows {
        let mib = mbps * 1e6 / 8.0 / 1048576.0;
        let start = end;
        end += 1;
        total += mib;
        text +=
            &format!("[  5] {start}.00-{end}.00 sec {mib} MBytes {mbps} Mbits/sec {retr} {cwnd} KBytes\n");
    }
    let mean = total * 8.0 * 1.048_576 / f64::from(end);
    text += &format!("[  5] 0.00-{end}.00 sec {total} MBytes {mean} Mbits/sec 0 sender\n");
    Iperf3Log::parse(&text).unwrap()
}

fn facts<'a>(log: &'a Iperf3Log, rtt: &str) -> Facts<'a> {
    Facts { rtt: rtt.parse().ok(), ..Facts::of(log) }
}

fn limits(findings: &Findings) -> Vec<Limit> {
    findings.findings.iter().map(|finding| finding.limit).collect()
}

#[test]
fn a_full_line_is_the_line() {
    let log = log_of((0..20).map(|i| (if i < 2 { 30.0 } else { 94.0 }, 0, 2400)));
    let found = explain(&Facts { link: "100mbit".parse().ok(), ..facts(&log, "100ms") }).unwrap();
    assert_eq!(limits(&found), [Limit::Link, Limit::SlowStart]);
    assert_eq!(found.findings[0].confidence, Confidence::Certain);
}

#[test]
fn a_flat_rate_at_what_the_window_allows_is_the_window() {
    // 1 MiB x 3/4 at 100 ms is 62.9 Mbit/s.
    let host =
        HostSettings::parse("net.ipv4.tcp_rmem = 1 2 1048576\nnet.ipv4.tcp_adv_win_scale = 2").unwrap();
    let log = log_of((0..20).map(|i| (if i < 1 { 10.0 } else { 61.0 }, 0, 2000)));
    let found = explain(&Facts {
        sysctl: Some(&host),
        link: "1gbit".parse().ok(),
        control: "900mbit".parse().ok(),
        ..facts(&log, "100ms")
    })
    .unwrap();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Rwnd, Confidence::High));
    assert_eq!(first.ceiling, Some(Rate::from_bps(62_914_560)));
    let excluded: Vec<Limit> = found.excluded.iter().map(|excluded| excluded.limit).collect();
    assert_eq!(excluded, [Limit::Cwnd, Limit::Policer]);
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::Dump);
}

#[test]
fn a_dump_that_contradicts_the_log_is_not_believed() {
    let host = HostSettings::parse("net.ipv4.tcp_rmem = 1 2 65536\nnet.ipv4.tcp_adv_win_scale = 2").unwrap();
    let log = log_of((0..20).map(|_| (61.0, 0, 2000)));
    let found = explain(&Facts { sysctl: Some(&host), ..facts(&log, "100ms") }).unwrap();
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::KernelDefault);
    assert!(found.buffers.window() >= found.measured.inflight);
}

#[test]
fn a_rate_that_varies_below_the_window_is_an_application_perhaps() {
    let log = log_of((0..20).map(|i| (if i / 4 % 2 == 0 { 8.0 } else { 20.0 }, 0, 4000)));
    let found = explain(&facts(&log, "100ms")).unwrap();
    assert_eq!(limits(&found)[..2], [Limit::App, Limit::ReceiverApp]);
    assert!(found.findings.iter().all(|finding| finding.confidence == Confidence::Low));
}

#[test]
fn a_test_that_ends_in_slow_start_says_so() {
    let log = log_of((0..6).map(|i| (f64::from(1 << i), 0, 13 << i)));
    assert_eq!(limits(&explain(&facts(&log, "100ms")).unwrap()), [Limit::SlowStart]);
}

#[test]
fn a_receivers_log_gives_hints_only() {
    let rows: String =
        (0..10).map(|i| format!("[  5] {i}.00-{}.00 sec 12.5 MBytes 105 Mbits/sec\n", i + 1)).collect();
    let log = Iperf3Log::parse(&rows).unwrap();
    let found = explain(&facts(&log, "210ms")).unwrap();
    assert!(limits(&found).contains(&Limit::Cwnd) && limits(&found).contains(&Limit::Rwnd));
    assert!(found.findings.iter().all(|finding| finding.confidence == Confidence::Low));
    assert_eq!(found.loss, None);
    let error = explain(&Facts { rtt: None, ..facts(&log, "1s") }).unwrap_err();
    assert!(error.message.contains("round-trip time is missing") && error.hint.contains("--rtt"));
}

#[test]
fn limits_of_one_flow_are_multiplied_by_the_streams() {
    let mut log = log_of((0..20).map(|_| (230.0, 0, 16_000)));
    log.streams = 2;
    let found = explain(&facts(&log, "210ms")).unwrap();
    assert_eq!(found.findings[0].limit, Limit::Rwnd);
    assert_eq!(found.findings[0].ceiling, Some(Rate::from_bps(239_674_514)));
}

#[test]
fn what_cannot_be_is_refused_with_a_hint() {
    let log = log_of((0..20).map(|_| (61.0, 0, 700)));
    let refused = |facts: Facts<'_>| {
        let error = explain(&facts).unwrap_err();
        assert!(!error.hint.is_empty());
        error.message
    };
    let rtt = |rtt| Facts { rtt: Some(rtt), ..facts(&log, "100ms") };
    assert!(refused(rtt(Duration::ZERO)).contains("zero"));
    assert!(refused(rtt(Duration::from_secs(11))).contains("no path's"));
    assert!(refused(rtt(Duration::from_millis(400))).contains("times Cwnd in flight"));
    assert!(
        refused(Facts { link: "50mbit".parse().ok(), ..facts(&log, "100ms") }).contains("more than the line")
    );
    assert!(refused(Facts { control: Some(Rate::ZERO), ..facts(&log, "100ms") }).contains("--control"));
    let silent = log_of((0..20).map(|_| (0.0, 0, 14)));
    assert!(refused(facts(&silent, "100ms")).contains("nothing was transferred"));
}

#[test]
fn extreme_values_do_not_panic() {
    let rows = [(0.0, 0, 0), (1e30, u64::MAX >> 1, 1), (1e-9, 1, u64::MAX >> 11), (61.0, 0, 700)];
    for first in rows {
        for second in rows {
            for third in rows {
                let log = log_of((0..9).map(|i| [first, second, third][if i == 0 { 0 } else { 1 + i % 2 }]));
                for rtt in [None, Some(Duration::from_nanos(1)), Some(Duration::from_secs(10))] {
                    for link in [None, Some(Rate::from_bps(1)), Some(Rate::MAX)] {
                        let facts = Facts { rtt, link, control: link, ..facts(&log, "1s") };
                        if let Ok(found) = explain(&facts) {
                            let text =
                                crate::render_text(&crate::Diagnosis::new(&facts, found, Vec::new()), 80);
                            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                        }
                    }
                }
            }
        }
    }
}

/// Which dump is whose depends on who made the log; one alone stands for both.
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
    let received = Iperf3Log { role: crate::input::iperf3::Role::Receiver, ..sent.clone() };
    let buffers = |log, peer_sysctl| {
        let found = explain(&Facts { sysctl: Some(&own), peer_sysctl, ..facts(log, "100ms") }).unwrap();
        let said = found.assumptions.iter().any(|text| text.contains("sysctl dump stands for both"));
        assert_eq!(said, peer_sysctl.is_none(), "{:#?}", found.assumptions);
        let Buffers { sndbuf, rcvbuf, rule, .. } = found.buffers;
        (sndbuf.get() >> 20, rcvbuf.get() >> 20, rule)
    };
    let (scale_1, scale_2) = (WindowRule::AdvWinScale(1), WindowRule::AdvWinScale(2));
    assert_eq!(buffers(&sent, None), (8, 16, scale_1));
    assert_eq!(buffers(&sent, Some(&peer)), (8, 64, scale_2));
    assert_eq!(buffers(&received, Some(&peer)), (32, 16, scale_1));
    let only_peer = explain(&Facts { peer_sysctl: Some(&peer), ..facts(&sent, "100ms") }).unwrap();
    assert_eq!(only_peer.buffers.sndbuf_source, BufferSource::KernelDefault);
    assert_eq!(
        (only_peer.buffers.rcvbuf.get() >> 20, only_peer.buffers.rcvbuf_source),
        (64, BufferSource::Dump)
    );
}
