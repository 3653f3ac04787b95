//! Cells of the ladder validation that are drawn at random from a seed instead of being chosen by hand.
//!
//! Each combination of one or four flows and small or large socket buffers occurs twice. Rate, RTT, loss and
//! the size of small buffers are drawn independently of each other.

use fullpipe::lab::experiment::{Experiment, ExperimentError};
use fullpipe::units::{Bytes, Duration, Rate, draw};

/// Seed of the drawn cells; it was chosen before any of them was run.
pub const SEED: u64 = 8;
/// Number of drawn cells.
pub const COUNT: u64 = 8;

const RATES_MBIT: [u64; 9] = [20, 30, 50, 80, 130, 200, 320, 500, 800];
const RTTS_MS: [u64; 9] = [10, 20, 30, 50, 80, 120, 160, 200, 250];
const LOSSES: [&str; 8] = ["0%", "0%", "10ppm", "50ppm", "200ppm", "0.1%", "0.5%", "2%"];
/// Divisors of the BDP per flow that give the size of a small buffer.
const DIVISORS: [u64; 3] = [2, 4, 8];
/// Small buffers are rounded to multiples of this size.
const STEP: Bytes = Bytes::from_kib(64);
const LARGE: &str = "64MiB";

/// Numbers of the random streams, one for each drawn value.
const RATE: u64 = 0;
const RTT: u64 = 1;
const LOSS: u64 = 2;
const BUFFER: u64 = 3;

/// Returns the cells that are drawn from `seed`, as an experiment with runs of `duration`.
///
/// # Errors
/// Returns an error if `duration` is not valid in an experiment.
pub fn experiment(seed: u64, duration: Duration) -> Result<Experiment, ExperimentError> {
    let cells: String = (0..COUNT).map(|nth| cell(seed, nth)).collect();
    Experiment::from_toml(&format!(
        "name = \"ladder-drawn\"\nduration = \"{}ms\"\n[path]\nrate = \"20mbit\"\nrtt = \"10ms\"\nloss = \"0%\"\nqueue = \"1bdp\"\n\
         [host]\nsndbuf = \"{LARGE}\"\nrcvbuf = \"{LARGE}\"\n[[flow]]\ncc = \"cubic\"\n{cells}",
        duration.as_millis()
    ))
}

/// Returns the `[[point]]` of cell number `nth`.
fn cell(seed: u64, nth: u64) -> String {
    let pick = |stream, of: usize| (draw(seed, stream, nth) % of as u64) as usize;
    let (rate, rtt) = (RATES_MBIT[pick(RATE, RATES_MBIT.len())], RTTS_MS[pick(RTT, RTTS_MS.len())]);
    let (loss, divisor) = (LOSSES[pick(LOSS, LOSSES.len())], DIVISORS[pick(BUFFER, DIVISORS.len())]);
    let flows = if nth.is_multiple_of(2) { 1 } else { 4 };
    let bdp = Rate::from_bps(rate * 1_000_000) * Duration::from_millis(rtt);
    let share = bdp.get() / (divisor * flows);
    let (kind, buffer) = if (nth / 2).is_multiple_of(2) {
        ("small", format!("{}KiB", share.div_ceil(STEP.get()) * STEP.get() / 1024))
    } else {
        ("large", LARGE.to_owned())
    };
    format!(
        "[[point]]\nname = \"drawn-{}: {rate} Mbit/s, {rtt} ms, loss {loss}, {flows} x cubic, {kind} buffers\"\n\
         path = {{ rate = \"{rate}mbit\", rtt = \"{rtt}ms\", loss = \"{loss}\" }}\n\
         host = {{ sndbuf = \"{buffer}\", rcvbuf = \"{buffer}\" }}\nflow = {{ cc = \"cubic\", count = {flows} }}\n",
        nth + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::lab::experiment::Point;
    use fullpipe::units::Probability;

    fn cells(seed: u64) -> Vec<Point> {
        experiment(seed, Duration::from_secs(30)).expect("valid").points().to_vec()
    }

    /// Published results refer to these cells, so they must not change with the list, the seed or the draws.
    #[test]
    fn the_seed_draws_these_cells() {
        let figures = |point: &Point| {
            let parameter = |key: &str| point.parameters[key].clone();
            ["rate", "rtt", "loss", "count", "sndbuf"].map(parameter).join(" ")
        };
        assert_eq!(
            cells(SEED).iter().map(figures).collect::<Vec<_>>(),
            [
                "30mbit 120ms 0% 1 128KiB",
                "50mbit 50ms 0.5% 4 64KiB",
                "80mbit 120ms 0% 1 64MiB",
                "200mbit 250ms 0.1% 4 64MiB",
                "130mbit 20ms 2% 1 128KiB",
                "200mbit 30ms 200ppm 4 64KiB",
                "800mbit 50ms 50ppm 1 64MiB",
                "30mbit 50ms 0% 4 64MiB",
            ]
        );
        assert_eq!(cells(SEED)[0].label, "drawn-1: 30 Mbit/s, 120 ms, loss 0%, 1 x cubic, small buffers");
    }

    #[test]
    fn every_seed_draws_within_the_ranges() {
        let mut distinct = Vec::new();
        for seed in 0..50 {
            let cells = cells(seed);
            assert_eq!(cells.len() as u64, COUNT);
            for point in &cells {
                let path = &point.scenario.path;
                let (rate, rtt) = (path.forward.rate.as_bps() / 1_000_000, path.rtt().as_millis());
                assert!((20..=800).contains(&rate) && (10..=250).contains(&rtt), "{}", point.label);
                assert!(path.forward.loss <= Probability::from_ppm(20_000), "{}", point.label);
            }
            let kind = |point: &Point| {
                (point.scenario.flows.len(), point.scenario.host.sndbuf.limit() < Bytes::from_mib(64))
            };
            let mut kinds: Vec<_> = cells.iter().map(kind).collect();
            kinds.sort_unstable();
            assert_eq!(kinds.chunk_by(|a, b| a == b).map(<[_]>::len).collect::<Vec<_>>(), [2; 4]);
            distinct.push(cells.iter().map(|point| point.label.clone()).collect::<Vec<_>>());
        }
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 50, "another seed draws other cells");
    }
}
