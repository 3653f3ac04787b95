//! Limits that a JSON log without command-line options determines: it contains the RTT, the receive window
//! and the target rate.

use crate::case::Case;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::explain::{BufferSource, RttSource, Sender};
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::tune::FromReport;
use fullpipe_analysis::{Findings, HostFacts, Limit, Measurement};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};

/// One second of a synthetic test.
#[derive(Clone, Copy)]
struct Second {
    mbps: f64,
    retransmits: u64,
    cwnd_kib: u64,
    wnd_kib: i64,
    rtt_ms: f64,
}

const IDLE: Second = Second { mbps: 0.0, retransmits: 0, cwnd_kib: 9000, wnd_kib: 16_384, rtt_ms: 210.0 };

fn json_of(seconds: impl IntoIterator<Item = Second>, cc: &str, target: u64) -> String {
    let mut intervals = Vec::new();
    let mut total = 0;
    for (i, s) in seconds.into_iter().enumerate() {
        let bytes = (s.mbps * 125_000.0) as u64;
        total += bytes;
        intervals.push(format!(
            r#"{{"streams":[{{"socket":5,"start":{i},"end":{},"seconds":1,"bytes":{bytes},"bits_per_second":{},
               "retransmits":{},"snd_cwnd":{},"snd_wnd":{},"rtt":{},"omitted":false,"sender":true}}]}}"#,
            i + 1,
            s.mbps * 1e6,
            s.retransmits,
            s.cwnd_kib * 1024,
            if s.wnd_kib < 0 { -1 } else { s.wnd_kib * 1024 },
            (s.rtt_ms * 1e3) as u64,
        ));
    }
    let end = intervals.len();
    let sum =
        format!(r#"{{"start":0,"end":{end},"bytes":{total},"bits_per_second":{}}}"#, total * 8 / end as u64);
    format!(
        r#"{{"start":{{"version":"iperf 3.17","tcp_mss_default":1448,"sock_bufsize":0,"sndbuf_actual":16384,"rcvbuf_actual":131072,
           "test_start":{{"protocol":"TCP","reverse":0,"target_bitrate":{target}}}}},"intervals":[{}],
           "end":{{"sum_sent":{sum},"sum_received":{sum},"sender_tcp_congestion":"{cc}"}}}}"#,
        intervals.join(",")
    )
}

fn log_of(seconds: impl IntoIterator<Item = Second>, cc: &str) -> Measurement {
    iperf3::parse(&json_of(seconds, cc, 0)).unwrap()
}

fn limits(found: &Findings) -> Vec<Limit> {
    found.findings.iter().map(|finding| finding.limit).collect()
}

fn excluded(found: &Findings) -> Vec<(Limit, Confidence)> {
    found.excluded.iter().map(|excluded| (excluded.limit, excluded.confidence)).collect()
}

#[track_caller]
fn assert_says(texts: &[String], part: &str) {
    assert!(texts.iter().any(|text| text.contains(part)), "'{part}' is not in {texts:#?}");
}

/// The published BBR run, as a JSON log would show this run if the receive window had been the limit.
#[test]
fn a_full_receive_window_is_certain() {
    let log = log_of((0..30).map(|_| Second { mbps: 115.0, wnd_kib: 3072, ..IDLE }), "bbr");
    let found = Case::of(&log).explain().unwrap();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Rwnd, Confidence::Certain));
    assert_eq!(first.what, "a receive window of 3 MiB limits the rate");
    assert_eq!(first.ceiling, Some(Rate::from_bps(119_837_257)));
    assert_says(&first.evidence, "0.96 times the receiver's window");
    assert_eq!(limits(&found), [Limit::Rwnd]);
    assert_eq!(excluded(&found), [(Limit::Cwnd, Confidence::Certain)]);
    assert_eq!((found.measured.rtt_source, found.measured.rtt), (RttSource::Log, Duration::from_millis(210)));
    assert_eq!(found.sender, Sender::Named(Algorithm::Bbr1));
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::Window);
    assert_eq!(found.buffers.window(), Bytes::from_mib(3));
}

#[test]
fn a_window_that_comes_and_goes_may_be_the_application() {
    let seconds = (0..30).map(|i| {
        let wnd_kib = if i % 4 < 2 { 400 } else { 250 };
        Second { mbps: wnd_kib as f64 * 1024.0 * 8.0 / 0.1 / 1e6, wnd_kib, rtt_ms: 100.0, ..IDLE }
    });
    let log = log_of(seconds, "cubic");
    let found = Case::of(&log).explain().unwrap();
    assert_eq!(limits(&found), [Limit::Rwnd, Limit::ReceiverApp]);
    assert_says(&found.findings[0].could_not_tell, "reads too slowly");
    let undecided = found.undecided.expect("the sender cannot tell");
    assert_eq!((found.findings[0].confidence, undecided.candidates.len()), (Confidence::Low, 2));
    assert!(undecided.test.contains("ss -tmn on the receiver"), "{undecided:?}");
}

/// A slow reader that reads smoothly leaves a window that is nearly constant but shrinks by a few segments
/// from time to time. If the reader keeps up, the window never shrinks.
#[test]
fn a_window_that_shrinks_a_little_may_be_the_application() {
    let explained = |wnd_kib: fn(u64) -> i64| {
        let second = |i| {
            let mbps = wnd_kib(i) as f64 * 1024.0 * 8.0 / 0.1 / 1e6;
            Second { mbps, wnd_kib: wnd_kib(i), rtt_ms: 100.0, ..IDLE }
        };
        Case::of(&log_of((0..30).map(second), "cubic")).explain().unwrap()
    };
    let reader = explained(|i| if i % 3 == 2 { 299 } else { 300 });
    assert_eq!((reader.findings[0].confidence, limits(&reader)[1]), (Confidence::Low, Limit::ReceiverApp));
    for buffer in [explained(|_| 300), explained(|i| 300 + i as i64)] {
        assert_eq!((limits(&buffer), buffer.undecided), (vec![Limit::Rwnd], None));
        assert_eq!(buffer.findings[0].confidence, Confidence::Certain);
    }
}

/// Measured: a send buffer of 4 MiB at 210 ms results in 141 Mbit/s, with a Cwnd of 8.7 MB and a snd_wnd of
/// 16 MB.
#[test]
fn room_in_both_windows_leaves_the_send_buffer() {
    let log = log_of((0..30).map(|_| Second { mbps: 141.0, ..IDLE }), "bbr");
    let found = Case::of(&log).explain().unwrap();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Sndbuf, Confidence::High));
    assert_eq!(excluded(&found), [(Limit::Cwnd, Confidence::Certain), (Limit::Rwnd, Confidence::Certain)]);
    assert!(!limits(&found).contains(&Limit::Rwnd));
    // 16384 bytes is the initial size for autotuning, not the size of the buffer during the test.
    assert_eq!(
        (found.buffers.sndbuf, found.buffers.sndbuf_source),
        (Bytes::from_mib(4), BufferSource::KernelDefault)
    );
    assert!(first.could_not_tell.iter().all(|open| !open.contains("snd_wnd")));
}

#[test]
fn a_rate_that_varies_below_both_windows_is_an_application_perhaps() {
    let seconds = (0..30).map(|i| Second { mbps: if i / 5 % 2 == 0 { 8.0 } else { 20.0 }, ..IDLE });
    let found = Case::of(&log_of(seconds, "cubic")).explain().unwrap();
    assert_eq!(limits(&found)[..2], [Limit::App, Limit::ReceiverApp]);
    assert!(excluded(&found).contains(&(Limit::Rwnd, Confidence::Certain)));
}

/// Measured: a deep queue at 100 Mbit/s and 100 ms.
fn bloated() -> Measurement {
    log_of(
        (0..30).map(|i| Second {
            mbps: 94.0,
            cwnd_kib: 2750,
            rtt_ms: if i == 0 { 100.0 } else { 226.0 + f64::from(i % 5) * 5.0 },
            ..IDLE
        }),
        "cubic",
    )
}

#[test]
fn a_queue_that_stands_is_a_full_line() {
    let log = bloated();
    let found = Case::of(&log).explain().unwrap();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Link, Confidence::High));
    assert_says(&first.evidence, "a standing queue of 13");
    assert_eq!(first.ceiling, Some(found.measured.steady));
    // With a known link rate the finding is certain, and it still reports the queue.
    let found = Case::of(&log).link("100mbit".parse().ok()).explain().unwrap();
    assert_eq!((found.findings[0].limit, found.findings[0].confidence), (Limit::Link, Confidence::Certain));
    assert_says(&found.findings[0].evidence, "the smoothed RTT is 23");
    // If the rate is far below the rate of the given link, the queue is at another link.
    let found = Case::of(&log).link("1gbit".parse().ok()).explain().unwrap();
    assert_eq!((found.findings[0].limit, found.findings[0].confidence), (Limit::Cap, Confidence::High));
}

#[test]
fn a_given_rtt_shows_a_queue_that_stood_from_the_start() {
    let seconds = || (0..30).map(|_| Second { mbps: 94.0, cwnd_kib: 2650, rtt_ms: 230.0, ..IDLE });
    let log = log_of(seconds(), "cubic");
    assert_eq!(Case::of(&log).explain().unwrap().findings[0].limit, Limit::Cwnd);
    let found = Case::of(&log).rtt("100ms".parse().ok()).explain().unwrap();
    assert_eq!((found.findings[0].limit, found.measured.rtt_source), (Limit::Link, RttSource::Given));
}

#[test]
fn others_queue_is_no_more_than_a_hint() {
    let seconds = (0..30).map(|i| Second { mbps: 10.0, rtt_ms: if i == 0 { 100.0 } else { 230.0 }, ..IDLE });
    let found = Case::of(&log_of(seconds, "cubic")).explain().unwrap();
    assert_eq!((found.findings[0].limit, found.findings[0].confidence), (Limit::Link, Confidence::Low));
    assert!(found.findings.len() > 1 && found.findings.iter().all(|f| f.confidence == Confidence::Low));
    assert_says(&found.findings[0].could_not_tell, "which flow fills the queue");
}

#[test]
fn loss_that_holds_cwnd_down_is_certain_and_named() {
    let seconds = (0..30).map(|i| {
        let phase = i % 10;
        let cwnd_kib = 1400 + 130 * phase;
        let mbps = cwnd_kib as f64 * 1024.0 * 8.0 / 0.21 / 1e6;
        Second { mbps, cwnd_kib, retransmits: if phase == 9 { 40 } else { 0 }, ..IDLE }
    });
    let found = Case::of(&log_of(seconds, "cubic")).explain().unwrap();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Cwnd, Confidence::Certain));
    assert_eq!(found.sender, Sender::Named(Algorithm::Cubic));
    assert_says(&first.evidence, "probably not caused by the overflow of a long queue");
    assert!(first.could_not_tell.iter().all(|open| !open.contains("shows no RTT")));
}

#[test]
fn a_flow_that_does_as_told_is_its_order() {
    let text = json_of((0..10).map(|_| Second { mbps: 50.0, ..IDLE }), "cubic", 50_000_000);
    let found = Case::of(&iperf3::parse(&text).unwrap()).explain().unwrap();
    assert_eq!((found.findings[0].limit, found.findings[0].confidence), (Limit::App, Confidence::Certain));
    let text = json_of((0..10).map(|_| Second { mbps: 50.0, ..IDLE }), "cubic", 500_000_000);
    let found = Case::of(&iperf3::parse(&text).unwrap()).explain().unwrap();
    assert_ne!(found.findings[0].confidence, Confidence::Certain);
}

#[test]
fn kernels_that_do_not_tell_the_window_leave_it_open() {
    for unknown in [-1, 0] {
        let log = log_of((0..30).map(|_| Second { mbps: 115.0, wnd_kib: unknown, ..IDLE }), "cubic");
        let found = Case::of(&log).explain().unwrap();
        assert_eq!(found.measured.snd_wnd, None);
        assert!(excluded(&found).iter().all(|(limit, _)| *limit != Limit::Rwnd), "{:?}", excluded(&found));
        assert_says(&found.findings[0].could_not_tell, "this log has no snd_wnd");
    }
}

#[test]
fn what_contradicts_the_log_is_refused() {
    let log = log_of((0..30).map(|_| Second { mbps: 115.0, ..IDLE }), "cubic");
    let error = Case::of(&log).rtt("2.1s".parse().ok()).explain().unwrap_err();
    assert!(error.message.contains("contradicts the log") && error.hint.contains("remove --rtt"));
}

#[test]
fn a_congestion_control_that_is_not_simulated_is_said() {
    let log = log_of((0..30).map(|_| Second { mbps: 115.0, ..IDLE }), "htcp");
    let found = Case::of(&log).explain().unwrap();
    assert_says(&found.notes, "names the congestion control htcp, which the simulator does not have");
}

#[test]
fn samples_that_cannot_be_are_no_error_and_no_certainty() {
    let log = log_of((0..30).map(|_| Second { mbps: 900.0, cwnd_kib: 100, ..IDLE }), "cubic");
    let found = Case::of(&log).explain().unwrap();
    assert!(found.findings.iter().all(|finding| finding.confidence != Confidence::Certain));
    assert_says(&found.notes, "are not representative");
}

/// A rate cap without drops is not a policer, and a rate cap without a queue is not a shaper. Only a ceiling
/// of the host causes neither drops nor a queue.
#[test]
fn drops_and_queue_tell_caps_apart() {
    let cap = |retransmits: u64, highest_ms: f64| {
        let second = move |i: u64| Second {
            mbps: 115.0,
            retransmits,
            wnd_kib: -1,
            rtt_ms: if i == 1 { highest_ms } else { 210.0 },
            ..IDLE
        };
        let log = log_of((0..30).map(second), "bbr");
        let found = Case::of(&log).explain().unwrap();
        let at = found.findings.iter().position(|finding| finding.limit == Limit::Cap).unwrap();
        (at, found.findings[at].what.clone(), found.findings[at].could_not_tell[0].clone())
    };
    let (policed, what, _) = cap(600, 215.0);
    assert!(what.starts_with("a rate cap on one flow"), "{what}");
    let (shaped, what, open) = cap(0, 300.0);
    assert!(
        what.starts_with("a shaper or a bottleneck") && open.contains("what enforces the cap"),
        "{what}: {open}"
    );
    let (host, what, open) = cap(0, 215.0);
    assert!(
        what.starts_with("a bottleneck in the host") && open.contains("what enforces the cap"),
        "{what}: {open}"
    );
    assert!(policed < shaped && shaped <= host, "{policed} {shaped} {host}");
}

/// iperf3 reports the processor time of both hosts. A processor that is busy all the time limits the
/// transfer, unless iperf3 has several threads that can use several processors.
#[test]
fn a_busy_processor_is_the_limit() {
    let found = |host: f64, remote: f64, version: &str, streams: u32| {
        let text = json_of((0..10).map(|_| Second { mbps: 900.0, ..IDLE }), "cubic", 0)
            .replace("\"version\":\"iperf 3.17\"", &format!("\"version\":\"iperf {version}\""))
            .replace("\"reverse\":0", &format!("\"reverse\":0,\"num_streams\":{streams}"))
            .replace(
                "\"sender_tcp_congestion\"",
                &format!(
                    "\"cpu_utilization_percent\":{{\"host_total\":{host},\"remote_total\":{remote}}},\"sender_tcp_congestion\""
                ),
            );
        let found = Case::of(&iperf3::parse(&text).unwrap()).explain().unwrap();
        (found.findings[0].limit, found.findings[0].what.clone())
    };
    let (limit, what) = found(99.2, 40.0, "3.12", 1);
    assert_eq!(limit, Limit::Cpu);
    assert!(what.contains("sender"), "{what}");
    let (limit, what) = found(40.0, 99.0, "3.17", 1);
    assert_eq!(limit, Limit::Cpu);
    assert!(what.contains("receiver"), "{what}");
    assert_ne!(found(60.0, 40.0, "3.12", 1).0, Limit::Cpu);
    assert_ne!(found(99.0, 40.0, "3.17", 2).0, Limit::Cpu, "two threads, half a processor each");
    assert_eq!(found(99.0, 40.0, "3.12", 2).0, Limit::Cpu, "one thread for both streams");
}

/// A congestion control that the log names is never inferred from the window: a window that losses do not
/// reduce looks like BBR's.
#[test]
fn a_named_congestion_control_is_not_inferred() {
    let seconds = || {
        let second =
            |i: u64| Second { mbps: 94.0, retransmits: i % 2 * 40, cwnd_kib: 4900, wnd_kib: -1, ..IDLE };
        (0..30).map(second)
    };
    let named = |cc: &str| Case::of(&log_of(seconds(), cc)).explain().unwrap().sender;
    assert_eq!(named("cubic"), Sender::Named(Algorithm::Cubic));
    let unnamed = json_of(seconds(), "cubic", 0).replace(r#","sender_tcp_congestion":"cubic""#, "");
    let unnamed = Case::of(&iperf3::parse(&unnamed).unwrap()).explain().unwrap();
    assert_eq!(unnamed.sender, Sender::Inferred(Algorithm::Bbr1));
}

/// If the losses of a loss-based sender occur at one rate and without a queue, the log does not show whether
/// a policer caused them. Losses at different rates are random, and losses after a queue has grown are caused
/// by a link.
#[test]
fn losses_at_one_rate_may_be_a_policers() {
    // A sawtooth of five seconds; the first loss ends slow start.
    let sawtooth = |peaks: [f64; 8], rtt_ms: f64| {
        let seconds = (0..40).map(move |i: usize| {
            let mbps = peaks[i / 5] * [14.0, 16.0, 18.5, 19.8, 20.0][i % 5];
            let cwnd_kib = (mbps * 1e6 / 8.0 * rtt_ms / 1e3 / 1024.0) as u64;
            Second {
                mbps,
                retransmits: u64::from(i > 0 && i.is_multiple_of(5)) * 9,
                cwnd_kib,
                rtt_ms,
                ..IDLE
            }
        });
        let link = "100mbit".parse().ok();
        let rtt = Some(Duration::from_millis(100));
        Case::of(&log_of(seconds, "cubic")).link(link).rtt(rtt).explain().unwrap()
    };
    let alike = sawtooth([1.0; 8], 100.0);
    assert_eq!(limits(&alike), [Limit::Policer, Limit::Cwnd]);
    assert!(
        alike.findings.iter().all(|finding| finding.confidence == Confidence::Low),
        "{:#?}",
        alike.findings
    );
    let undecided = alike.undecided.as_ref().expect("not decided");
    assert_eq!(undecided.to_string(), "not decided: a policer near 20 Mbit/s or loss");
    assert!(undecided.test.contains("iperf3 -C bbr"), "{undecided:?}");
    assert_says(&alike.findings[0].evidence, "6 loss episodes occurred within 5 % of 20 Mbit/s");
    let loss = alike.loss.expect("losses");
    assert!(loss.low.is_zero() && !loss.rate.is_zero(), "the policer may have caused all of them: {loss}");
    let random = sawtooth([1.0, 0.7, 1.4, 0.9, 1.7, 0.8, 1.2, 0.6], 100.0);
    assert_eq!(limits(&random), [Limit::Cwnd]);
    assert!(!random.loss.expect("losses").low.is_zero());
    let queued = sawtooth([1.0; 8], 120.0);
    assert!(!limits(&queued).contains(&Limit::Policer), "{:#?}", queued.findings);
}

/// The RTT under load minus the idle RTT is the queueing delay. The report contains it for every limit.
#[test]
fn a_standing_queue_has_a_size() {
    for link in [None, "100mbit".parse().ok()] {
        let diagnosis = Case::of(&bloated()).link(link).explained().unwrap();
        let queue = diagnosis.queue.expect("a queue");
        assert!((125.0..145.0).contains(&queue.delay_ms), "{queue:?}");
        assert!((queue.loaded_rtt_ms - queue.idle_rtt_ms - queue.delay_ms).abs() < 0.1, "{queue:?}");
        let bytes = 94e6 / 8.0 * queue.delay_ms / 1e3;
        assert!((queue.bytes as f64 / bytes - 1.0).abs() < 0.02, "{queue:?}");
        assert!(
            fullpipe_analysis::render_text(&diagnosis, 80).contains("Latency: there is a standing queue of")
        );
    }
    let idle = log_of((0..10).map(|_| IDLE).map(|second| Second { mbps: 50.0, ..second }), "bbr");
    assert_eq!(Case::of(&idle).explained().unwrap().queue, None);
}

/// iperf3 with `-w 128K` fixes both buffers: no sysctl changes them. The remedy is to omit `-w`, and a plan
/// promises no gain from larger limits of autotuning.
#[test]
fn a_window_set_with_w_is_the_applications() {
    // 160/256 of 256 KiB is a window of 160 KiB: 32.8 Mbit/s at 40 ms.
    let second = Second { mbps: 32.0, wnd_kib: 160, cwnd_kib: 400, rtt_ms: 40.0, ..IDLE };
    let autotuned = json_of((0..10).map(|_| second), "cubic", 0);
    let set = autotuned.replace(
        r#""sock_bufsize":0,"sndbuf_actual":16384,"rcvbuf_actual":131072"#,
        r#""sock_bufsize":131072,"sndbuf_actual":262144,"rcvbuf_actual":262144"#,
    );
    let diagnose = |text: &str| {
        let log = iperf3::parse(text).unwrap();
        let hosts = HostFacts { kernel: "6.18".parse().ok(), ..HostFacts::default() };
        Case::of(&log).link("100mbit".parse().ok()).hosts(hosts).diagnose().unwrap()
    };
    let diagnosis = diagnose(&set);
    let ladder = &diagnosis.ladder;
    assert!(diagnosis.hosts.receiver.buffer_fixed, "{:#?}", diagnosis.hosts);
    assert_eq!(ladder[0].limit, Limit::Rwnd);
    let remedy = ladder[1].remedies.title().expect("a remedy");
    assert!(
        remedy.starts_with("autotuned buffers, without a fixed size from the application (-w"),
        "{remedy}"
    );
    assert!(ladder[1].remedies.commands().all(|command| command.run.contains("omit -w")), "{ladder:#?}");
    assert!(ladder[1].lasting() > ladder[0].lasting().mul_div(2, 1), "{ladder:#?}");
    let report = FromReport::of(&diagnosis);
    assert!(report.out_of_reach.is_some() && report.buffers[1].is_none(), "{report:?}");
    // Without -w, the kernel chose the same window, and a sysctl raises it.
    let diagnosis = diagnose(&autotuned);
    let remedy = diagnosis.ladder[1].remedies.title().expect("a remedy");
    assert!(remedy.starts_with("buffers for ") && !diagnosis.hosts.receiver.buffer_fixed, "{remedy}");
    assert!(diagnosis.ladder[1].remedies.commands().all(|command| command.run.contains("sysctl")));
}
