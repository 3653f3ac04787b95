//! The simulated present state has the rate of the log, or the report says that it does not.
//!
//! The links are several times faster than the flows, but not faster than necessary: simulating the rungs near the rate of
//! the link takes most of the time.

use fullpipe_analysis::classify::Limit;
use fullpipe_analysis::ladder::{Fit, Source};
use fullpipe_analysis::{Diagnosis, Measurement, render_brief, render_text};
use fullpipe_units::{Duration, Rate};

use crate::case::Case;
use crate::simulated_log::Transferred;

fn diagnosed(path: &str, told: (&str, u64), host: &str, flow: &str, seed: u64) -> Diagnosis {
    let run = Transferred::of(path, host, flow, seed);
    let case =
        Case::of(&run.json("cubic")).link(told.0.parse().ok()).rtt(Some(Duration::from_millis(told.1)));
    case.diagnose().expect("a diagnosis")
}

const HOST: &str = "sndbuf = '4MiB'\nrcvbuf = '6MiB'";

/// For logs of CUBIC under loss on several paths, the range of the fitted loss contains the loss of the path,
/// and the simulated present state meets the log.
#[test]
fn the_present_state_has_the_rate_of_the_log() {
    let mut met = 0;
    let mut all = 0;
    for (link, rtt, loss, seeds) in [(40, 100, 0.04, 3..4), (20, 140, 0.1, 3..5), (25, 40, 0.8, 3..5)] {
        for seed in seeds {
            let path = format!("rate = '{link}mbit'\nrtt = '{rtt}ms'\nqueue = '1bdp'\nloss = '{loss}%'");
            let told = format!("{link}mbit");
            let diagnosis = diagnosed(&path, (&told, rtt), HOST, "cc = 'cubic'", seed);
            let fit = diagnosis.fit.expect("a simulation");
            println!(
                "{link} Mbit/s, {rtt} ms, {loss} %, seed {seed}: {fit} {} to {}",
                fit.loss_low, fit.loss_high
            );
            (met, all) = (met + u32::from(fit.met), all + 1);
            assert!(fit.loss_low <= loss / 100.0 && loss / 100.0 <= 1.5 * fit.loss_high, "{fit:?}");
            assert!(fit.loss_low <= fit.loss && fit.loss <= fit.loss_high, "{fit:?}");
        }
    }
    assert!(met + 1 >= all, "{met} of {all}");
}

/// A log of 30 s is one random sample: it may contain more or fewer losses than usual. The range of the
/// present state therefore covers every loss rate that meets the log, and contains the mean of other runs on
/// the same path.
#[test]
fn the_range_of_the_present_state_contains_the_mean_of_other_runs() {
    let (mut all, mut within, mut within_seeds) = (0, 0, 0);
    for (link, rtt, loss, cc) in
        [(20, 100, 0.1, "reno"), (20, 140, 0.1, "cubic"), (15, 50, 1.0, "cubic"), (25, 20, 2.0, "cubic")]
    {
        let path = format!("rate = '{link}mbit'\nrtt = '{rtt}ms'\nqueue = '1bdp'\nloss = '{loss}%'");
        let (told, flow) = (format!("{link}mbit"), format!("cc = '{cc}'"));
        let bytes = |seed| Transferred::of(&path, HOST, &flow, seed).json(cc).transfer().bytes().get();
        let mean = (101..125).map(bytes).sum::<u64>() as f64 / 24.0 * 8.0 / 30.0;
        for seed in 1..=4 {
            let fit = diagnosed(&path, (&told, rtt), HOST, &flow, seed).fit.expect("a simulation");
            let (low, high) = fit.range();
            let contains =
                |low: Rate, high: Rate| (low.as_bps() as f64..=high.as_bps() as f64).contains(&mean);
            println!(
                "{link} Mbit/s, {loss} %, seed {seed}: {low} to {high}, mean of others {:.2}; {fit}",
                mean / 1e6
            );
            all += 1;
            within += u32::from(contains(low, high));
            within_seeds += u32::from(contains(fit.low, fit.high));
        }
    }
    println!("{within} of {all}; percentiles of the seeds alone: {within_seeds}");
    assert!(10 * within >= 9 * all, "{within} of {all}");
}

/// A flow that fills a link loses packets in its queue only. The fitted path has no random loss, although the
/// log counts losses. The simulation therefore reaches the rate in the log.
#[test]
fn the_losses_of_a_full_link_are_its_own() {
    let path = "rate = '40mbit'\nrtt = '120ms'\nqueue = '1bdp'";
    let hosts = "sndbuf = '64MiB'\nrcvbuf = '64MiB'";
    let diagnosis = diagnosed(path, ("40mbit", 120), hosts, "cc = 'cubic'", 1);
    let counted = diagnosis.path.loss.expect("a count").events;
    let (first, fit) = (diagnosis.findings[0].limit, diagnosis.fit.expect("a simulation"));
    println!("{first:?}, {counted} events, {fit}");
    assert!(first == Limit::Link && counted > 0, "{first:?} {counted}");
    let ratio = fit.mean.as_bps() as f64 / fit.log.as_bps() as f64;
    assert!(fit.met && (0.97..1.03).contains(&ratio), "{fit}");
}

/// iperf3 ends a test of 30 s some microseconds late. Throughout such a log, the rate of a sender without
/// HyStart falls from the peak of its start, so the log must be compared with a whole run. A comparison of
/// the mean after the ramp with the second half of a run would hide two thirds of the losses.
#[test]
fn a_log_that_ends_late_is_fitted_like_one_that_ends_in_time() {
    let path = "rate = '100mbit'\nrtt = '100ms'\nqueue = '1bdp'\nloss = '0.1%'";
    let run = Transferred::of(path, "sndbuf = '4MiB'\nrcvbuf = '4MiB'", "cc = 'reno'", 1);
    let in_time = run.json("reno");
    let mut late = in_time.clone();
    let last = late.flows[0].intervals.last_mut().expect("an interval");
    last.end += Duration::from_micros(50);
    let fit = |log: &Measurement| {
        let case = Case::of(log).link("100mbit".parse().ok()).rtt(Some(Duration::from_millis(100)));
        case.diagnose().expect("a diagnosis").fit.expect("a simulation")
    };
    let (late, in_time) = (fit(&late), fit(&in_time));
    println!("{late}");
    assert_eq!((late.loss, late.mean), (in_time.loss, in_time.mean));
    assert!(late.loss_low <= 0.001 && 0.001 <= 1.5 * late.loss_high, "{late:?}");
}

/// Every form of a diagnosis says that the model does not meet the log (`html.rs` tests the page).
#[test]
fn a_log_that_the_model_cannot_meet_is_said() {
    const MARK: &str = "the model does not reproduce the measured rate";
    let path = "rate = '25mbit'\nrtt = '40ms'\nqueue = '1bdp'\nloss = '0.8%'";
    let log = Transferred::of(path, HOST, "cc = 'cubic'", 3).json("cubic");
    let case = Case::of(&log).link("25mbit".parse().ok()).rtt(Some(Duration::from_millis(40)));
    let mut diagnosis = case.diagnose().expect("a diagnosis");
    let fit = diagnosis.fit.expect("a simulation");
    // Lines break within sentences.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for met in [false, true] {
        diagnosis.fit = Some(Fit { met, ..fit });
        let text = words(&render_text(&diagnosis, 80));
        for said in [MARK, "Model: the simulation of the fitted path"] {
            assert_eq!(text.contains(said), !met, "{said} in {text}");
        }
        let brief = render_brief(&diagnosis, 80);
        let (headline, _) = brief.split_once("\n\n").expect("a ladder");
        assert_eq!(words(headline).contains(MARK), !met, "{headline}");
        let document = serde_json::to_value(&diagnosis).expect("a document");
        assert_eq!(document["fit"]["met"], met, "{}", document["fit"]);
    }
}

/// Behind a policer for each flow, BBR retransmits the packets that the policer drops. The fitted path has
/// the cap instead of these losses, so that the rungs beyond the cap do not contain them.
#[test]
fn a_cap_that_a_log_shows_is_part_of_the_model() {
    for (link, rtt, cap, seed) in [(40, 40, 5, 1), (60, 100, 10, 2)] {
        let path = format!(
            "rate = '{link}mbit'\nrtt = '{rtt}ms'\nqueue = '1bdp'\nloss = '0.002%'\n\
             policer = {{ rate = '{cap}mbit', burst = '256KiB', per_flow = true }}"
        );
        let run = Transferred::of(&path, "sndbuf = '64MiB'\nrcvbuf = '64MiB'", "cc = 'bbr1'", seed);
        let case = Case::of(&run.json("bbr")).link(format!("{link}mbit").parse().ok());
        let diagnosis = case.rtt(Some(Duration::from_millis(rtt))).diagnose().expect("a diagnosis");
        let first = diagnosis.findings[0].limit;
        assert!(matches!(first, Limit::Cap | Limit::Policer), "{first:?}");
        let fit = diagnosis.fit.expect("a simulation");
        assert!(fit.met && fit.loss == 0.0, "{fit}");
        let several = diagnosis.ladder.iter().find(|rung| rung.source == Source::Simulated).expect("a rung");
        let expected = several.remedies.title().expect("a remedy");
        let connections: u64 = expected.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        let most = (cap * connections).min(link) as f64 * 1e6;
        let reached = several.lasting().as_bps() as f64;
        println!("{link} Mbit/s, cap {cap}: {fit}; {expected} {}", several.lasting());
        assert!((0.85 * most..=most).contains(&reached), "{expected}: {}", several.lasting());
    }
}

/// If the window is full, the rate does not show the losses, so the fitted loss is the counted loss. With the
/// smallest loss that meets the rate, the ladder would predict that CUBIC with larger buffers fills the link.
#[test]
fn the_rate_behind_a_window_says_nothing_about_the_loss() {
    let path = "rate = '20mbit'\nrtt = '100ms'\nqueue = '1bdp'\nloss = '0.016%'";
    let mut counted = 0;
    for seed in 1..=3 {
        let host = "sndbuf = '256KiB'\nrcvbuf = '128KiB'";
        let diagnosis = diagnosed(path, ("20mbit", 100), host, "cc = 'cubic'", seed);
        let (first, fit) = (diagnosis.findings[0].limit, diagnosis.fit.expect("a simulation"));
        let told = diagnosis.path.loss.expect("a count");
        println!("seed {seed}: {first:?}, {} events, {fit}", told.events);
        if first != Limit::Rwnd || told.events == 0 {
            continue;
        }
        counted += 1;
        assert!(fit.met && (fit.loss - told.rate).abs() <= 1e-9, "{fit:?} {told:?}");
    }
    assert!(counted > 0, "no log with losses behind a window");
}
