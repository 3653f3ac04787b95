//! The simulated present state has the rate of the log, or the report says that it does not.

use fullpipe_analysis::{Diagnosis, render_text};
use fullpipe_units::Duration;

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
    for (link, rtt, loss, seeds) in [(100, 100, 0.04, 3..4), (50, 140, 0.1, 3..5), (25, 40, 0.8, 3..5)] {
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

/// If the path has a shaper that the input does not mention, no loss rate makes the fitted path meet the log.
#[test]
fn a_log_that_the_model_cannot_meet_is_said() {
    let path = "rate = '100mbit'\nrtt = '20ms'\nqueue = '1bdp'\nloss = '0.01%'\nshaper = { rate = '20mbit', burst = '8KiB' }";
    let diagnosis = diagnosed(path, ("100mbit", 20), HOST, "cc = 'cubic'", 1);
    println!("{:?} {:?}", diagnosis.findings[0].limit, diagnosis.fit);
    let fit = diagnosis.fit.expect("a simulation");
    assert!(!fit.met, "{fit}");
    let text = render_text(&diagnosis, 80);
    assert!(text.contains("Model: the fitted path"), "{text}");
}
