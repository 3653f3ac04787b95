//! Explanation of a UDP test, and prediction of TCP on the same path.

use std::fs;
use std::path::Path;

use crate::case::Case;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::ladder::Source;
use fullpipe_analysis::segment::DEFAULT_MSS;
use fullpipe_analysis::throughput_models::loss_based_rate;
use fullpipe_analysis::{Diagnosis, HostFacts, HostSettings, Limit, Measurement, render_text};
use fullpipe_units::{Duration, Rate};

/// Returns a ten-second log in which `lost` of the 1448-byte datagrams do not arrive, and `late` of them
/// arrive out of order.
fn log_of(mbps: u64, lost: u64, late: u64) -> Measurement {
    let total = mbps * 10_000_000 / 8 / 1448;
    let mbytes = (mbps * 10_000_000 / 8) as f64 / f64::from(1 << 20);
    let arrived = 1.0 - lost as f64 / total as f64;
    let text = format!(
        "Connecting to host h, port 5201\n\
         [ ID] Interval           Transfer     Bitrate         Total Datagrams\n\
         [  5]   0.00-10.00  sec  {mbytes:.3} MBytes  {mbps}.0 Mbits/sec  {total}\n\
         [ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams\n\
         [  5]   0.00-10.00  sec  {mbytes:.3} MBytes  {mbps}.0 Mbits/sec  0.000 ms  0/{total} (0%)  sender\n\
         [  5]   0.00-10.00  sec  {:.3} MBytes  {:.4} Mbits/sec  0.020 ms  {lost}/{total} (1%)  receiver\n\
         {}",
        mbytes * arrived,
        mbps as f64 * arrived,
        if late > 0 {
            format!("[SUM]  0.0-10.0 sec  {late} datagrams received out-of-order\n")
        } else {
            String::new()
        }
    );
    iperf3::parse(&text).unwrap()
}

fn example(name: &str) -> Measurement {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iperf3").join(name);
    iperf3::parse(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns a case with a slow link, so that its ladder is fast to simulate.
fn case(log: &Measurement) -> Case {
    Case::of(log).link("20mbit".parse().ok()).rtt("100ms".parse().ok())
}

fn diagnose(case: &Case) -> Diagnosis {
    case.diagnose().unwrap()
}

#[track_caller]
fn assert_says(texts: &[String], part: &str) {
    assert!(texts.iter().any(|text| text.contains(part)), "'{part}' is not in {texts:#?}");
}

/// A UDP test is a pitfall for the acceptance of a leased line: UDP fills the link, but TCP starves on it.
#[test]
fn a_udp_test_that_fills_the_line_foretells_what_tcp_makes_of_it() {
    let log = log_of(18, 78, 3);
    let diagnosis = diagnose(&case(&log));
    let udp = diagnosis.udp.as_ref().unwrap();
    assert_eq!((udp.datagrams, udp.lost, udp.out_of_order), (15_538, Some(78), Some(3)));
    assert_eq!((udp.datagram_bytes, udp.jitter_ms), (1448, Some(0.02)));

    let first = &diagnosis.findings[0];
    assert_eq!(
        (first.what.as_str(), first.confidence),
        (
            "99.50 % of the datagrams of this UDP test arrived, which shows nothing about TCP",
            Confidence::Certain
        )
    );
    for part in [
        "78 of 15538 datagrams were lost",
        "jitter at the receiver is 20us",
        "3 datagrams arrived out of order",
        "large for TCP",
    ] {
        assert_says(&first.evidence, part);
    }
    assert_says(&first.could_not_tell, "congestion control, which UDP does not have");

    // At 0.5 % and 100 ms, the rate is within a factor of 1.5 of the closed-form model, which the ladder does
    // not use.
    let tcp = udp.tcp.as_ref().unwrap();
    let model = loss_based_rate(Duration::from_millis(100), tcp.loss.rate, DEFAULT_MSS);
    let ratio = tcp.steady.as_bps() as f64 / model.as_bps() as f64;
    assert!((0.67..1.5).contains(&ratio), "{} where the model says {model}", tcp.steady);
    assert_says(&first.evidence, &format!("predicts {model}"));
    let [present, bbr, .., line] = diagnosis.ladder.as_slice() else { panic!("{:#?}", diagnosis.ladder) };
    assert_eq!((present.source, present.limit, line.source), (Source::Simulated, Limit::Cwnd, Source::Given));
    assert_eq!(present.lasting(), tcp.steady);
    assert!(present.low < present.high, "the loss is an estimate");
    assert_eq!(bbr.remedies.title().as_deref(), Some("BBR on the sender"));
    assert!(bbr.lasting() > present.lasting().mul_div(3, 1), "{}", bbr.lasting());

    let text = render_text(&diagnosis, 80);
    let present = "90 % of the link: ";
    assert!(text.starts_with(present), "{text}");
    let next = format!("\nTCP would reach {} with CUBIC at this loss rate.\n", tcp.steady);
    assert!(text.contains(&next), "{text}");
    assert!(
        text.contains("78 of 15538 datagrams lost (0.5 %), jitter") && text.contains("3 out of order."),
        "{text}"
    );
    let json = serde_json::to_value(&diagnosis).unwrap();
    assert_eq!(
        (&json["input"]["protocol"], &json["path"]["congestion_control"]),
        (&"udp".into(), &"none".into())
    );
    assert_eq!(json["path"]["jitter_ms"], 0.02);
    assert_eq!(json["udp"]["tcp"]["congestion_control"], "cubic");
    assert_eq!(json["udp"]["tcp"]["steady_bps"], json["ladder"][0]["steady_bps"]);
}

/// A loss-free test with a few thousand datagrams does not rule out a loss rate at which TCP gets only a
/// fraction of the link rate.
#[test]
fn a_test_without_a_loss_is_no_proof() {
    let log = log_of(18, 0, 0);
    let diagnosis = diagnose(&case(&log));
    let first = &diagnosis.findings[0];
    assert_eq!(first.what, "all datagrams of this UDP test arrived, which shows nothing about TCP");
    assert_says(&first.evidence, "no datagrams arrived out of order");
    assert_says(&first.could_not_tell, "whether the loss rate is below");
    let present = &diagnosis.ladder[0];
    assert!(present.low.unwrap().mul_div(2, 1) < present.high.unwrap(), "{present:#?}");
}

/// TCP would use the sender's own settings.
#[test]
fn the_ladder_stands_on_the_hosts_as_they_are() {
    let text = "net.ipv4.tcp_congestion_control = bbr\nnet.ipv4.tcp_wmem = 1 2 65536\nnet.ipv4.tcp_rmem = 1 2 131072";
    let host = HostSettings::parse(text).unwrap();
    let log = log_of(18, 2, 0);
    let diagnosis = diagnose(&case(&log).hosts(HostFacts { local: Some(host), ..HostFacts::default() }));
    assert_eq!(diagnosis.udp.as_ref().unwrap().tcp.as_ref().unwrap().congestion_control, "bbr1");
    assert!(matches!(diagnosis.ladder[0].limit, Limit::Rwnd | Limit::Sndbuf), "{:#?}", diagnosis.ladder[0]);
    assert_eq!(
        (diagnosis.hosts.sender.buffer_bytes, diagnosis.hosts.receiver.buffer_bytes),
        (65_536, 131_072)
    );
    assert_says(&diagnosis.assumptions, "both hosts have the settings of the sysctl dump");
}

/// If the path is unknown there is no ladder, and no RTT is made up.
#[test]
fn without_rtt_or_line_there_is_no_ladder() {
    let log = log_of(18, 2, 0);
    for given in [Case::of(&log), case(&log).rtt(None), case(&log).link(None)] {
        let diagnosis = given.diagnose_reporting(|_| panic!("nothing to simulate")).unwrap();
        assert!(diagnosis.ladder.is_empty());
        assert_says(&diagnosis.notes, "with --rtt and --link");
        let shown = render_text(&diagnosis, 80);
        let headline = shown.split("UDP:").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(headline.contains("shows nothing about TCP"), "{shown}");
        assert!(!shown.contains("RTT 0"), "{shown}");
    }
}

/// Loss caused by exceeding the link rate or overrunning the receiver is not loss of the path.
#[test]
fn an_overrun_is_not_taken_for_the_paths_loss() {
    let full = log_of(25, 4_000, 0);
    let diagnosis = diagnose(&case(&full));
    assert!(diagnosis.ladder.is_empty() && diagnosis.udp.as_ref().unwrap().tcp.is_none());
    assert_says(&diagnosis.notes, "repeat with -b below the rate of the link");
    let drowned = example("udp-loss.txt");
    let diagnosis = diagnose(&case(&drowned).link("10gbit".parse().ok()));
    assert!(diagnosis.ladder.is_empty());
    assert_says(&diagnosis.notes, "more than half of the datagrams were lost");
}

/// A 32 KiB datagram consists of 23 packets, and the loss of any of them loses the datagram.
#[test]
fn loss_is_counted_in_packets() {
    let log = example("made-udp-3.1.txt");
    let large = example("udp.txt");
    let small = diagnose(&case(&log).link(Some(Rate::from_bps(30_000_000))));
    let tcp = small.udp.as_ref().unwrap().tcp.as_ref().unwrap();
    assert_eq!(tcp.loss.segments % 918, 0);
    let diagnosis = diagnose(&case(&large).link(Some(Rate::from_bps(30_000_000))));
    let udp = diagnosis.udp.as_ref().unwrap();
    assert_eq!(udp.tcp.as_ref().unwrap().loss.segments, 229 * 23, "{udp:#?}");
}
