//! Complete golden case: both published runs on the cross-border link, diagnosed with their ladders. These
//! tests are deliberately slow, because they simulate the same runs as for a user.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::case::Case;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::ladder::Source;
use fullpipe_analysis::remedy::{Command, Host};
use fullpipe_analysis::{
    DiagnoseError, Diagnosis, HostFacts, HostSettings, Limit, Measurement, Rung, render_text,
};
use fullpipe_units::Rate;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cross-border").join(name);
    fs::read_to_string(path).unwrap()
}

struct Given {
    log: Measurement,
    sysctl: HostSettings,
}

impl Given {
    fn new(log: &str) -> Self {
        Self {
            log: iperf3::parse(&example(log)).unwrap(),
            sysctl: HostSettings::parse(&example("sysctl-before.txt")).unwrap(),
        }
    }

    fn case(&self) -> Case {
        let hosts = HostFacts { local: Some(self.sysctl.clone()), ..HostFacts::default() };
        Case::of(&self.log).rtt("210ms".parse().ok()).link("1gbit".parse().ok()).hosts(hosts)
    }

    fn with_control(&self, control: Option<Rate>) -> Case {
        let case = self.case();
        let hosts = HostFacts { control, ..case.hosts.clone() };
        case.hosts(hosts)
    }
}

fn diagnose(case: &Case) -> Diagnosis {
    case.diagnose().unwrap()
}

fn mbps(rate: Rate) -> f64 {
    rate.as_mbps_f64()
}

fn simulated(diagnosis: &Diagnosis) -> Vec<&Rung> {
    diagnosis.ladder.iter().filter(|rung| rung.source == Source::Simulated).collect()
}

fn commands(rungs: &[&Rung]) -> Vec<Command> {
    rungs.iter().flat_map(|rung| rung.remedies.commands().cloned()).collect()
}

/// The published CUBIC run is limited by loss; BBR alone is limited by a window; only both remedies together
/// reach the link rate.
#[test]
fn cubic_climbs_past_loss_and_window_to_the_line() {
    let given = Given::new("cubic.iperf3.txt");
    let diagnosis = diagnose(&given.case());

    let first = &diagnosis.ladder[0];
    assert_eq!((first.limit, first.source), (Limit::Cwnd, Source::Measured));
    assert!((60.0..=80.0).contains(&mbps(first.rate)), "{}", first.rate);

    let rungs = simulated(&diagnosis);
    let [better_cc, both] = rungs.as_slice() else { panic!("{rungs:#?}") };
    assert!(matches!(better_cc.limit, Limit::Rwnd | Limit::Sndbuf));
    assert!((95.0..=125.0).contains(&mbps(better_cc.lasting())), "{}", better_cc.lasting());
    // The log's rate needs a loss of 49 ppm, near the upper bound of three events in 180,000 segments.
    let fit = diagnosis.fit.expect("a simulation");
    assert!(fit.met && (17e-6..50e-6).contains(&fit.loss), "{fit:?}");
    assert!(mbps(both.lasting()) >= 880.0, "{}", both.lasting());
    for rung in &rungs {
        let (low, high) = (rung.low.unwrap(), rung.high.unwrap());
        assert!(low <= rung.lasting() && rung.lasting() <= high, "{low} {} {high}", rung.lasting());
    }
    let last = diagnosis.ladder.last().unwrap();
    assert_eq!((last.limit, last.source), (Limit::Link, Source::Given));
    assert!(diagnosis.ladder.is_sorted_by_key(Rung::lasting));

    // The mistakes in the published advice are avoided: both hosts are changed, buffers are those of a usable
    // window of 4 x BDP, and core.*mem_max is left alone.
    let all = commands(&rungs);
    assert!(
        all.iter().any(|c| c.host == Host::Sender && c.run.contains("tcp_wmem=\"4096 16384 205942784\""))
    );
    assert!(
        all.iter().any(|c| c.host == Host::Receiver && c.run.contains("tcp_rmem=\"4096 87380 140017664\""))
    );
    assert!(all.iter().all(|c| !c.run.contains("mem_max")));

    let text = render_text(&diagnosis, 80);
    assert!(text.starts_with("7 % of the link: loss holds cwnd down.\n"), "{text}");
    assert!(text.contains("\nLift that, and a 3 MiB receive window stops you near "), "{text}");
    // Larger buffers alone, which the published advice recommends, change nothing, and a note says so.
    assert!(diagnosis.notes.iter().any(|note| note.starts_with("buffers for 4 x BDP on both hosts (")));
    // Ten sockets, the solution of the log's author, appear as a note, which reports how much they take from
    // another flow.
    assert!(diagnosis.notes.iter().any(|note| note.starts_with("10 connections in place of all this would")));
    assert!(diagnosis.notes.iter().any(|note| note.starts_with("10 connections leave ")));
}

/// The published BBR run stops at a tenth of the link rate, and its congestion window is not the reason.
#[test]
fn bbr_is_held_by_a_window_and_lifting_it_reaches_the_line() {
    let given = Given::new("bbr.iperf3.txt");
    let control = "940mbit".parse().ok();
    let diagnosis = diagnose(&given.with_control(control));
    assert_eq!(
        (diagnosis.excluded[0].limit, diagnosis.excluded[0].confidence),
        (Limit::Cwnd, Confidence::Certain)
    );
    assert_eq!(diagnosis.findings[0].limit, Limit::Rwnd);
    let before_the_line = &diagnosis.ladder[diagnosis.ladder.len() - 2];
    assert_eq!(before_the_line.source, Source::Simulated);
    assert!(mbps(before_the_line.lasting()) >= 700.0, "{}", before_the_line.lasting());
    assert!(diagnosis.notes.iter().any(|note| note.contains("predates the log")));
}

/// The ladder of a host with a rate cap in its own network ends at that cap.
#[test]
fn a_cap_ends_the_ladder() {
    let given = Given::new("bbr.iperf3.txt");
    let cap: Rate = "110mbit".parse().unwrap();
    let diagnosis = diagnose(&given.with_control(Some(cap)));
    assert_eq!(diagnosis.findings[0].limit, Limit::Cap);
    assert!(
        diagnosis.ladder.iter().all(|rung| rung.rate <= cap && rung.lasting() <= cap),
        "{:#?}",
        diagnosis.ladder
    );
    assert!(!render_text(&diagnosis, 80).contains("Lift that"));
}

/// If the link rate is unknown, the ladder says so instead of guessing; the same facts give the same result.
#[test]
fn an_unknown_line_ends_the_ladder_and_runs_repeat_exactly() {
    let given = Given::new("cubic.iperf3.txt");
    let case = given.case().link(None).rtt(None);
    let runs = AtomicUsize::new(0);
    let count = |_| {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    let diagnosis = case.diagnose_reporting(count).unwrap();
    assert_eq!(diagnosis, diagnose(&case));
    assert!(runs.into_inner() >= 10);
    let last = diagnosis.ladder.last().unwrap();
    assert_eq!(last.what, "link unknown, at least 105 Mbit/s");
    assert!(simulated(&diagnosis).iter().all(|rung| mbps(rung.lasting()) < 125.0));
}

/// An RTT in the wrong unit is an error with a hint, not a ladder.
#[test]
fn absurd_round_trips_are_refused() {
    let given = Given::new("cubic.iperf3.txt");
    for rtt in ["0ms", "20us", "2.1s", "11s"] {
        let case = given.case().rtt(rtt.parse().ok());
        let Err(DiagnoseError::Input(error)) = case.diagnose() else { panic!("{rtt} was taken") };
        assert!(error.hint.contains("--rtt"), "{rtt}: {}", error.hint);
        assert!(!error.message.contains('\n'));
    }
}
