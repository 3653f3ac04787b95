//! Tests of races in which a sender competes with itself: with simulated downloads, and with random values.

use fullpipe_lab::bootstrap::{MeanRatio, MedianRatio};
use fullpipe_lab::campaign;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_units::Draws;

/// Number of simulated downloads from which the races draw their times.
const DOWNLOADS: u64 = 20_000;
/// Number of pairs of a race: a quarter of the pairs of a real race with downloads of this size. Resampling takes most of the
/// time of the test, and skewed times make the coverage harder to reach with fewer pairs, not easier.
const PAIRS: u64 = 250;

/// Returns the share of races between a sender and itself in which the confidence interval contains 1. The
/// two sides of a pair are different downloads, because identical downloads would have no spread.
fn covered(races: u64) -> f64 {
    let text = "name = 'null'\nduration = '60s'\n[path]\nrate = '100mbit'\nrtt = '50ms'\nloss = '1%'\nqueue = '1bdp'\n\
                [host]\nrcvbuf = '6MiB'\n[[flow]]\ncc = 'bbr1'\nbytes = '60kB'\napp = { request = '200B' }\n\
                [[sample]]\nevery = '60s'";
    let experiment = Experiment::from_toml(text).expect("valid");
    let seeds: Vec<u64> = (0..DOWNLOADS).collect();
    let time = |scenario: &Scenario| {
        let response = sim::run(scenario).flows[0].response.expect("a complete response");
        // A lost SYN-ACK costs a second, which would mask the part of the time that depends on the sender.
        response.from_request.as_secs_f64()
    };
    let runs = campaign::run(experiment.points(), &seeds, time, |_| {}).expect("no panic");
    let times: Vec<f64> = runs.into_iter().map(|run| run.value).collect();
    let covered = covering(races, |race| {
        let draws = Draws::new(race, 0);
        let time = |ordinal| times[(draws.at(ordinal) % DOWNLOADS) as usize];
        let pairs: Vec<_> = (0..PAIRS).map(|pair| (time(2 * pair), time(2 * pair + 1))).collect();
        let found = MeanRatio::of(&pairs, race).expect("an interval");
        (found.low, found.high)
    });
    covered as f64 / races as f64
}

/// Returns the number of races whose interval, by the number of the race, contains 1.
fn covering(races: u64, interval: impl Fn(u64) -> (f64, f64)) -> usize {
    let covers = |race: &u64| {
        let (low, high) = interval(*race);
        (low..=high).contains(&1.0)
    };
    (0..races).filter(covers).count()
}

/// If both sides are the same sender, a 95 % interval contains 1 in 95 % of the races. 1000 races determine the
/// share with a standard error of 0.7 percentage points.
#[test]
fn intervals_of_null_races_cover_one() {
    let covered = covered(1_000);
    assert!((0.93..=0.97).contains(&covered), "{covered} of the intervals contain 1");
}

/// Returns 60 pairs of positive, skewed values. Each value is the sum of a constant, a part that both values of the
/// pair share, and an individual part; the parts have an exponential distribution.
fn skewed(seed: u64) -> Vec<(f64, f64)> {
    let exponential = |stream: u64, ordinal: u64| {
        let uniform = ((Draws::new(seed, stream).at(ordinal) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -0.1 * uniform.ln()
    };
    let pair = |i: u64| {
        let shared = 0.2 + exponential(0, i);
        (shared + exponential(1, i), shared + exponential(2, i))
    };
    (0..60).map(pair).collect()
}

/// If both values have the same distribution, a 95 % interval of their ratio of means contains 1 in 95 % of the
/// races.
#[test]
fn intervals_of_means_cover_one() {
    let covered = covering(1_000, |race| {
        let found = MeanRatio::of(&skewed(1_000 + race), race).expect("an interval");
        (found.low, found.high)
    });
    assert!((930..=970).contains(&covered), "{covered} of 1000 intervals contain 1");
}

/// The ratios of pairs without a difference have the median 1, and a 95 % interval contains it in 95 % of the
/// races. For 61 pairs, the exact interval of order statistics covers it in 95.0 to 97.2 %.
#[test]
fn intervals_of_medians_cover_one() {
    let covered = covering(1_000, |race| {
        let found = MedianRatio::of(&skewed(3_000 + race), race).expect("an interval");
        (found.low, found.high)
    });
    assert!((930..=970).contains(&covered), "{covered} of 1000 intervals contain 1");
}
