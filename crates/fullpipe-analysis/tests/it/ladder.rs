//! Diagnoses with their whole ladders, on a path that has the limits of the cross-border link and is twenty times slower. The
//! time to simulate a run is proportional to its packets; `fullpipe-cli` tests the ladder of the cross-border link itself,
//! which its pages show (`tests/it/cross_border.rs`).

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::case::Case;
use crate::simulated_log::Transferred;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::ladder::Source;
use fullpipe_analysis::{
    DiagnoseError, Diagnosis, HostFacts, HostSettings, Limit, Measurement, Rung, render_text,
};
use fullpipe_units::Rate;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cross-border").join(name);
    fs::read_to_string(path).unwrap()
}

/// A log, and the settings of the host that made it.
struct Given {
    log: Measurement,
    sysctl: HostSettings,
    link: &'static str,
    rtt: &'static str,
}

impl Given {
    /// Returns the log and the settings of the published run with CUBIC.
    fn published() -> Self {
        Self {
            log: iperf3::parse(&example("cubic.iperf3.txt")).unwrap(),
            sysctl: HostSettings::parse(&example("sysctl-before.txt")).unwrap(),
            link: "1gbit",
            rtt: "210ms",
        }
    }

    /// Returns the log and the settings of a run across the slower path.
    fn slower(cc: &str, loss: &str) -> Self {
        let path = format!("rate = '50mbit'\nrtt = '200ms'\nqueue = '1bdp'\nloss = '{loss}'");
        let run = Transferred::of(&path, "sndbuf = '1MiB'\nrcvbuf = '1MiB'", &format!("cc = '{cc}'"), 1);
        let sysctl = "net.ipv4.tcp_wmem = 4096 16384 1048576\n\
                      net.ipv4.tcp_rmem = 4096 131072 1048576\n\
                      net.ipv4.tcp_available_congestion_control = cubic reno\n";
        Self { log: run.text(), sysctl: HostSettings::parse(sysctl).unwrap(), link: "50mbit", rtt: "200ms" }
    }

    fn case(&self) -> Case {
        let hosts = HostFacts { local: Some(self.sysctl.clone()), ..HostFacts::default() };
        Case::of(&self.log).rtt(self.rtt.parse().ok()).link(self.link.parse().ok()).hosts(hosts)
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

/// A run with BBR reaches only half of the link rate, and the congestion window is not its limit.
#[test]
fn bbr_is_held_by_a_window_and_lifting_it_reaches_the_line() {
    let given = Given::slower("bbr1", "0.03%");
    let control = "47mbit".parse().ok();
    let diagnosis = diagnose(&given.with_control(control));
    assert_eq!(
        (diagnosis.excluded[0].limit, diagnosis.excluded[0].confidence),
        (Limit::Cwnd, Confidence::Certain)
    );
    assert_eq!(diagnosis.findings[0].limit, Limit::Rwnd);
    let before_the_line = &diagnosis.ladder[diagnosis.ladder.len() - 2];
    assert_eq!(before_the_line.source, Source::Simulated);
    assert!(mbps(before_the_line.lasting()) >= 40.0, "{}", before_the_line.lasting());
    assert!(diagnosis.notes.iter().any(|note| note.contains("is older than the log")));
}

/// If a host has a rate cap in its own network, the ladder ends at that cap.
#[test]
fn a_cap_ends_the_ladder() {
    let given = Given::slower("bbr1", "0%");
    let cap: Rate = "30mbit".parse().unwrap();
    let diagnosis = diagnose(&given.with_control(Some(cap)));
    assert_eq!(diagnosis.findings[0].limit, Limit::Cap);
    assert!(
        diagnosis.ladder.iter().all(|rung| rung.rate <= cap && rung.lasting() <= cap),
        "{:#?}",
        diagnosis.ladder
    );
    assert!(!render_text(&diagnosis, 80).contains("Lift that"));
}

/// If the link rate is unknown, the ladder says so instead of guessing the rate, and the same facts give the
/// same result.
#[test]
fn an_unknown_line_ends_the_ladder_and_runs_repeat_exactly() {
    let given = Given::slower("cubic", "0.03%");
    let case = given.case().link(None).rtt(None);
    let runs = AtomicUsize::new(0);
    let count = |_| {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    let diagnosis = case.diagnose_reporting(count).unwrap();
    assert_eq!(diagnosis, diagnose(&case));
    assert!(runs.into_inner() >= 10);
    let last = diagnosis.ladder.last().unwrap();
    let peak = given.log.flows[0].intervals.iter().map(|interval| interval.rate).max().unwrap();
    assert_eq!(last.what, format!("the link, of unknown rate, at least {peak}"));
    assert!(simulated(&diagnosis).iter().all(|rung| mbps(rung.lasting()) < 1.2 * mbps(peak)));
}

/// An RTT in the wrong unit is an error with a hint, not a ladder.
#[test]
fn absurd_round_trips_are_refused() {
    let given = Given::published();
    for rtt in ["0ms", "20us", "2.1s", "11s"] {
        let case = given.case().rtt(rtt.parse().ok());
        let Err(DiagnoseError::Input(error)) = case.diagnose() else { panic!("{rtt} was taken") };
        assert!(error.hint.contains("--rtt"), "{rtt}: {}", error.hint);
        assert!(!error.message.contains('\n'));
    }
}
