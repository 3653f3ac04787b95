//! Races between a sender and itself, with simulated downloads.

use fullpipe_lab::bootstrap::MeanRatio;
use fullpipe_lab::campaign;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;

const RACES: usize = 1_000;
const PAIRS: usize = 60;

/// If both sides are the same sender, a 95 % interval contains 1 in 95 % of the races. The two sides of a pair
/// have different seeds, because identical runs would have no spread. 1000 races determine the share with a
/// standard error of 0.7 percentage points.
#[test]
fn intervals_of_simulated_null_races_cover_one() {
    let text = "name = 'null'\nduration = '60s'\n[path]\nrate = '20mbit'\nrtt = '20ms'\nloss = '2%'\n\
                [[flow]]\ncc = 'bbr1'\nbytes = '60kB'\napp = { request = '200B' }\n[[sample]]\nevery = '60s'";
    let experiment = Experiment::from_toml(text).expect("valid");
    let seeds: Vec<u64> = (0..(2 * RACES * PAIRS) as u64).collect();
    let time = |scenario: &Scenario| {
        let response = sim::run(scenario).flows[0].response.expect("a complete response");
        // A lost SYN-ACK costs a second, which would hide the times that the sender determines.
        response.from_request.as_secs_f64()
    };
    let runs = campaign::run(experiment.points(), &seeds, time, |_| {}).expect("no panic");
    let times: Vec<f64> = runs.into_iter().map(|run| run.value).collect();
    let covers = |(race, times): &(usize, &[f64])| {
        let pairs: Vec<_> = times.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let found = MeanRatio::of(&pairs, *race as u64).expect("an interval");
        (found.low..=found.high).contains(&1.0)
    };
    let covered = times.chunks_exact(2 * PAIRS).enumerate().filter(covers).count();
    assert!((930..=970).contains(&covered), "{covered} of {RACES} intervals contain 1");
}
