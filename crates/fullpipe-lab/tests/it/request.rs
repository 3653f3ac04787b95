//! Tests of flows with a request: the receiver connects and sends a request, and the sender replies.

use crate::rig::*;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::metric::{Metric, RunFigures};
use fullpipe_lab::outcome::{FlowOutcome, ResponseOutcome};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_units::{Bytes, Duration};

const RTT: f64 = 0.05;

/// Returns a download of `bytes` on a path with 100 Mbit/s, an RTT of 50 ms and a queue of one BDP; `more`
/// adds lines to the flow, and `host` adds lines to the hosts.
fn download(cc: &str, bytes: &str, host: &str, more: &str) -> Scenario {
    let text = format!(
        "name = 'x'\nduration = '60s'\n[path]\nrate = '100mbit'\nrtt = '50ms'\nqueue = '1bdp'\n\
         [host]\nrcvbuf = '6MiB'\n{host}\n[[flow]]\ncc = '{cc}'\nbytes = '{bytes}'\n\
         app = {{ request = '200B' }}\n{more}\n"
    );
    let experiment = Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    experiment.points()[0].scenario.clone()
}

fn flow(scenario: &Scenario) -> FlowOutcome {
    sim::run(scenario).flows.remove(0)
}

#[track_caller]
fn response(scenario: &Scenario) -> ResponseOutcome {
    flow(scenario).response.expect("a complete response")
}

/// Downloads by BBR, with and without an initial window of 44 segments, in seconds from the SYN. A kernel
/// with BBR needs 0.226, 0.395 and 1.04 s on the same path.
#[test]
fn a_larger_initial_window_shortens_downloads() {
    for (bytes, seconds, gain) in [("64kB", 0.221, 1.47), ("640kB", 0.391, 1.29), ("8MB", 1.004, 1.10)] {
        let time = |host| response(&download("bbr1", bytes, host, "")).from_syn.as_secs_f64();
        let (small, large) = (time(""), time("initcwnd = 44"));
        assert_near(small, seconds, 0.02, bytes);
        assert_near(small / large, gain, 0.02, &format!("{bytes}: gain"));
    }
}

/// A response that fits into the initial window takes two round trips from the SYN, and one round trip from
/// the request.
#[test]
fn a_small_response_takes_two_round_trips() {
    for cc in ["reno", "cubic", "bbr1", "bbr3"] {
        let outcome = flow(&download(cc, "2896B", "", ""));
        let response = outcome.response.expect("a complete response");
        let (from_syn, from_request) = (response.from_syn.as_secs_f64(), response.from_request.as_secs_f64());
        // Two segments and their pacing take less than a twentieth of a round trip.
        assert!((2.0 * RTT..2.05 * RTT).contains(&from_syn), "{cc}: {from_syn}");
        assert!((RTT..1.05 * RTT).contains(&from_request), "{cc}: {from_request}");
        assert_near(from_syn - from_request, RTT, 0.01, "the handshake");
        assert_eq!((outcome.bytes, outcome.retransmits), (Bytes::new(2_896), 0), "{cc}");
        // The FIN is acknowledged half a round trip later.
        assert_near(outcome.finished.expect("finished").as_secs_f64(), 2.5 * RTT, 0.05, cc);
    }
}

/// Loss-based senders double their window in each round trip: 442 segments take six round trips after the
/// handshake, whether or not received segments are merged. A later start of the flow does not change the
/// time.
#[test]
fn a_response_is_sent_in_slow_start() {
    for cc in ["reno", "cubic"] {
        for host in ["", "rx_merge = '500us'"] {
            let plain = response(&download(cc, "640kB", host, "slow_start = 'standard'"));
            let from_syn = plain.from_syn.as_secs_f64();
            assert!((7.0 * RTT..8.0 * RTT).contains(&from_syn), "{cc} {host}: {from_syn}");
            let later = response(&download(cc, "640kB", host, "slow_start = 'standard'\nstart = '1s'"));
            assert_eq!(later, plain, "{cc} {host}");
        }
    }
}

/// The sender replies only after the whole request has arrived. A request of 200 kB does not fit into the
/// first send buffer, and takes at least four round trips in slow start.
#[test]
fn a_long_request_comes_first() {
    let mut scenario = download("cubic", "2896B", "", "");
    scenario.flows[0].workload.request = Some(Bytes::new(200_000));
    let from_request = response(&scenario).from_request.as_secs_f64();
    assert!((4.0 * RTT..8.0 * RTT).contains(&from_request), "{from_request}");
}

/// Lost requests and lost SYNs are retransmitted.
#[test]
fn lost_requests_are_retransmitted() {
    for seed in 1..=20 {
        let mut scenario = download("bbr1", "64kB", "", "");
        scenario.path.backward.loss = fullpipe_units::Probability::from_ppm(200_000);
        scenario.path.forward.loss = fullpipe_units::Probability::from_ppm(20_000);
        scenario.seed = seed;
        let outcome = flow(&scenario);
        assert_eq!(outcome.bytes, Bytes::new(64_000), "seed {seed}");
        assert!(outcome.response.is_some(), "seed {seed}");
    }
}

/// A response that is incomplete at the end of the run has no time, and the metric has no value. The same
/// applies to a flow without a request.
#[test]
fn an_incomplete_response_has_no_time() {
    let mut scenario = download("cubic", "8MB", "", "");
    let metrics = |scenario: &Scenario| {
        let figures = RunFigures::from(&sim::run(scenario));
        [Metric::TimeFromSyn, Metric::TimeFromRequest].map(|metric| metric.of(&figures, &scenario.path))
    };
    let [Some(from_syn), Some(from_request)] = metrics(&scenario) else { panic!("a complete response") };
    assert!(from_syn > from_request + 1e3 * RTT, "{from_syn} {from_request}");
    scenario.duration = Duration::from_millis(400);
    assert_eq!(metrics(&scenario), [None, None]);
    scenario.duration = Duration::from_secs(60);
    scenario.flows[0].workload.request = None;
    assert_eq!(metrics(&scenario), [None, None]);
}

/// Trace rows before and during the response do not change the run.
#[test]
fn a_trace_does_not_disturb_a_download() {
    let scenario = download("bbr3", "640kB", "", "");
    let traced = run(&scenario);
    assert_eq!(traced.outcome, sim::run(&scenario));
    assert_eq!(received(traced.rows.last().expect("rows")), 640_000);
}
