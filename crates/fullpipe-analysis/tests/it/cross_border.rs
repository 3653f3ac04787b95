//! Golden case: a 1 Gbit/s link with an RTT of 210 ms, once with CUBIC and once with BBR.

use std::fs;
use std::path::Path;

use fullpipe_analysis::advice::AppliedRemedy;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::explain::{BufferSource, RttSource, Sender};
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::ladder::{RungRemedies, Source};
use fullpipe_analysis::remedy::{self, Host, Scope, State, catalogue};
use fullpipe_analysis::{
    Diagnosis, Findings, HostFacts, HostSettings, Limit, Measurement, PathFacts, Rung, render_brief,
    render_text,
};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cross-border").join(name);
    fs::read_to_string(path).unwrap()
}

struct Case {
    log: Measurement,
    sysctl: Option<HostSettings>,
    rtt: Option<Duration>,
    control: Option<Rate>,
}

impl Case {
    fn new(log: &str, sysctl: &str) -> Self {
        Self {
            log: iperf3::parse(&example(&format!("{log}.iperf3.txt"))).unwrap(),
            sysctl: Some(HostSettings::parse(&example(&format!("sysctl-{sysctl}.txt"))).unwrap()),
            rtt: Some(Duration::from_millis(210)),
            control: None,
        }
    }

    fn control(mut self, rate: &str) -> Self {
        self.control = rate.parse().ok();
        self
    }

    fn given(&self) -> crate::case::Case {
        let path = PathFacts { rtt: self.rtt, link: "1gbit".parse().ok(), ..PathFacts::default() };
        let hosts = HostFacts { local: self.sysctl.clone(), control: self.control, ..HostFacts::default() };
        crate::case::Case { measurement: self.log.clone(), path, hosts }
    }

    fn explain(&self) -> Findings {
        self.given().explain().unwrap()
    }
}

fn limits(found: &Findings) -> Vec<Limit> {
    found.findings.iter().map(|finding| finding.limit).collect()
}

#[track_caller]
fn assert_says(texts: &[String], part: &str) {
    assert!(texts.iter().any(|text| text.contains(part)), "'{part}' is not in {texts:#?}");
}

#[test]
fn both_logs_are_read_completely() {
    let read = Case::new("cubic", "before").log;
    let cubic = read.transfer();
    assert_eq!((cubic.intervals.len(), cubic.streams, read.origin.truncated), (30, 1, false));
    assert_eq!(cubic.mean_rate(), Rate::from_bps(69_300_000));
    let sum: u64 = cubic.intervals.iter().filter_map(|interval| interval.retransmits).sum();
    assert_eq!(Some(sum), cubic.sent.and_then(|sent| sent.retransmits));
    let bbr = Case::new("bbr", "bbr").log.transfer();
    assert_eq!(bbr.sent.map(|sent| sent.bytes), Some(Bytes::from_mib(365)));
    let written: u64 = bbr.intervals.iter().map(|interval| interval.bytes.get()).sum();
    assert!(written.abs_diff(Bytes::from_mib(365).get()) < 2 << 20);
}

#[test]
fn the_dumps_are_read_with_their_prompts() {
    let before = HostSettings::parse(&example("sysctl-before.txt")).unwrap();
    assert_eq!(before.tcp_rmem.map(|rmem| rmem[2]), Some(Bytes::from_mib(4)));
    assert_eq!(before.adv_win_scale, Some(2));
    assert_eq!(before.congestion_control.as_deref(), Some("cubic"));
    let tuned = HostSettings::parse(&example("sysctl-tuned.txt")).unwrap();
    assert_eq!(tuned.core_rmem_max, Some(Bytes::new(34_952_000)));
    let bbr = HostSettings::parse(&example("sysctl-bbr.txt")).unwrap();
    assert_eq!(bbr.available_congestion_control, ["reno", "cubic", "bbr"]);
    assert_eq!(bbr.default_qdisc.as_deref(), Some("fq"));
}

#[test]
fn cubic_is_held_by_loss() {
    let found = Case::new("cubic", "before").explain();
    let first = &found.findings[0];
    assert_eq!((first.limit, first.confidence), (Limit::Cwnd, Confidence::Certain));
    assert!(first.share > 0.85);
    assert_says(&first.evidence, "0.97 times Cwnd");
    assert_says(&first.evidence, "from 2.65 MiB to 1.42 MiB");
    assert_says(&first.evidence, "92 of them at 12-13 s");
    assert_says(&first.evidence, "3 loss events in 180315 segments: 16.6 ppm (95 %: 3.43 ppm to 48.6 ppm)");
    assert_eq!(found.sender, Sender::Inferred(Algorithm::Cubic));
    assert_eq!(found.buffers.window(), Bytes::from_mib(3));
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::Dump);
    assert!(found.excluded.is_empty());
}

#[test]
fn without_an_rtt_the_log_bounds_it() {
    let mut case = Case::new("cubic", "before");
    case.rtt = None;
    let found = case.explain();
    assert_eq!(found.measured.rtt_source, RttSource::Bound);
    assert!((210..=225).contains(&found.measured.rtt.as_millis()));
    assert_eq!((found.findings[0].limit, found.findings[0].confidence), (Limit::Cwnd, Confidence::High));
    let mut case = Case::new("bbr", "before");
    case.rtt = None;
    let found = case.explain();
    assert!((210..=240).contains(&found.measured.rtt.as_millis()));
    assert_eq!(found.excluded[0].limit, Limit::Cwnd);
}

#[test]
fn a_short_rtt_does_not_hide_that_rate_follows_cwnd() {
    let mut case = Case::new("cubic", "before");
    case.rtt = Some(Duration::from_millis(21));
    let found = case.explain();
    assert_eq!(found.findings[0].limit, Limit::Cwnd);
    assert_says(&found.notes, "check --rtt");
}

#[test]
fn bbr_is_not_held_by_cwnd() {
    let found = Case::new("bbr", "before").explain();
    assert_eq!(found.excluded[0].limit, Limit::Cwnd);
    assert_eq!(found.excluded[0].confidence, Confidence::Certain);
    assert!(found.measured.inflight_per_cwnd.is_some_and(|ratio| (0.3..0.36).contains(&ratio)));
    assert_eq!(limits(&found)[..3], [Limit::Rwnd, Limit::Sndbuf, Limit::Cap]);
    let rwnd = &found.findings[0];
    assert_says(&rwnd.evidence, "certainly not cwnd");
    assert_eq!(rwnd.what, "a receive window near 3 MiB limits the rate");
    assert_eq!(rwnd.ceiling.map(|rate| rate.as_bps() / 100_000), Some(1198));
    // Six retransmissions are too few for a policer, but a rate cap without drops remains possible.
    let cap = &found.findings[2];
    assert_eq!(
        (cap.what.as_str(), cap.confidence),
        ("a shaper or a bottleneck in the host near 108 Mbit/s limits the rate", Confidence::Low)
    );
    assert_says(&cap.evidence, "only 6 of 264317 segments were retransmitted");
    assert_says(&cap.evidence, "a policer is unlikely");
    assert_says(&cap.could_not_tell, "look alike, because neither drops packets");
    assert_eq!(found.sender, Sender::Inferred(Algorithm::Bbr1));
    assert_eq!(found.cap, None);
    // BBR kept its Startup window for 20 s, which contradicts a limit by the receive window; the finding must
    // mention this.
    assert_says(&found.findings[1].evidence, "the end of Startup");
    assert_says(&rwnd.could_not_tell, "this suggests that the send buffer is the limit");
}

#[test]
fn a_dump_without_bbr_predates_a_log_of_bbr() {
    let found = Case::new("bbr", "before").explain();
    assert_says(&found.notes, "is older than the log (it does not list bbr)");
    assert_eq!(found.buffers.rcvbuf_source, BufferSource::OlderDump);
    assert!(Case::new("bbr", "bbr").explain().notes.is_empty());
    assert!(Case::new("cubic", "before").explain().notes.is_empty());
}

#[test]
fn the_control_measurement_decides_about_a_cap() {
    let same = Case::new("bbr", "before").control("110mbit").explain();
    assert_eq!((same.findings[0].limit, same.findings[0].confidence), (Limit::Cap, Confidence::High));
    assert_eq!(same.cap, "110mbit".parse().ok());
    let faster = Case::new("bbr", "before").control("940mbit").explain();
    assert_eq!(faster.findings[0].limit, Limit::Rwnd);
    assert!(!limits(&faster).contains(&Limit::Cap));
    assert_eq!(faster.excluded[1].limit, Limit::Cap);
    assert_eq!(faster.cap, None);
    // If loss limits a flow to a lower rate, the rate cap is a higher rung.
    assert_eq!(Case::new("cubic", "before").control("110mbit").explain().cap, "110mbit".parse().ok());
}

#[test]
fn the_report_fits_80_columns_and_says_it_in_the_first_line() {
    let case = Case::new("cubic", "before");
    let found = case.explain();
    let host = case.sysctl.as_ref();
    let hosts = remedy::Case {
        bdp: Bytes::new(26_250_000),
        rtt: found.measured.rtt,
        loss: Probability::from_ppm(20),
        rule: found.buffers.rule,
        kernel: None,
        sender: host,
        sender_buffers: host,
        receiver_buffers: host,
        rate_option: None,
    };
    let remedies = |name: &str, title: &str| {
        let remedy = catalogue::ALL.into_iter().find(|remedy| remedy.name == name).unwrap();
        let commands = remedy.commands(&hosts, State::present(Algorithm::Cubic).with(remedy.change));
        let (name, title) = (name.into(), title.into());
        RungRemedies(vec![AppliedRemedy { name, title, commands, ..AppliedRemedy::default() }])
    };
    let rate = |text: &str| text.parse::<Rate>().unwrap();
    let rung = |limit, what: &str, at, source| Rung::new(limit, what, rate(at), source);
    let ladder = vec![
        rung(Limit::Cwnd, "loss", "69.3mbit", Source::Measured),
        Rung {
            steady: Some(rate("105mbit")),
            low: Some(rate("100mbit")),
            high: Some(rate("107mbit")),
            remedies: remedies("bbr", "congestion control bbr on the sender"),
            ..rung(Limit::Rwnd, "a 3 MiB receive window", "99mbit", Source::Simulated)
        },
        Rung {
            remedies: remedies("buffers", "larger buffers on both hosts"),
            ..rung(Limit::Cwnd, "loss, which BBR hardly minds", "830mbit", Source::Simulated)
        },
        rung(Limit::Link, "the link", "1gbit", Source::Given),
    ];
    let diagnosis = Diagnosis { ladder, ..case.given().explained().unwrap() };
    let text = render_text(&diagnosis, 80);
    assert_eq!(text.lines().next(), Some("7 % of the link: loss holds cwnd down."));
    assert!(
        text.contains("\nLift that, and a 3 MiB receive window stops you near 105 Mbit/s.\n\nLadder"),
        "{text}"
    );
    let brief = render_brief(&diagnosis, 80);
    assert!(brief.lines().count() < 20 && brief.lines().all(|line| line.chars().count() <= 80), "{brief}");
    let headline = "7 % of the link: loss holds cwnd down. Lift that, and a 3 MiB receive window\nstops you near 105 Mbit/s.\n";
    assert!(
        brief.starts_with(headline) && brief.contains("\nNext test: repeat with iperf3 -C bbr"),
        "{brief}"
    );
    assert!(
        !brief.contains("undo")
            && diagnosis.ladder.iter().all(|rung| brief.contains(&rung.lasting().to_string()))
    );
    for line in text.lines() {
        let to_copy = line.trim_start().starts_with(['[', 'u']) && line.starts_with("    ");
        assert!(line.chars().count() <= 80 || to_copy, "{line}");
        assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
    }
    let commands: Vec<_> = diagnosis.ladder.iter().flat_map(|rung| rung.remedies.commands()).collect();
    assert_eq!(commands[0].scope, Scope::Socket);
    assert!(commands.iter().any(|command| command.host == Host::Receiver));

    let json = serde_json::to_value(&diagnosis).unwrap();
    for key in ["schema", "input", "path", "findings", "ladder"] {
        assert!(!json[key].is_null(), "{key}");
    }
    assert_eq!(json["findings"][0]["limit"], "cwnd");
    assert_eq!(json["findings"][0]["confidence"], "certain");
    assert_eq!(json["ladder"][1]["steady_bps"], 105_000_000);
    assert_eq!(json["ladder"][1]["bps"], 99_000_000);
    assert_eq!(json["ladder"][1]["source"], "simulated");
    assert_eq!(json["ladder"][1]["commands"][0]["scope"], "socket");
    assert_eq!(json["ladder"][0]["low_bps"], serde_json::Value::Null);
    assert_eq!(json["path"]["bdp_bytes"], 26_250_000);
}
