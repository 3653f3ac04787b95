//! Length and seeds of the simulated runs on a path that was given, not fitted from a TCP transfer.

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Duration, Probability};

use super::model::{Effort, Model};
pub(crate) use crate::thresholds::loss::MOST as MOST_LOSS;

/// Above this a simulation is no longer an answer while one waits.
const TOO_MANY_PACKETS: u64 = 100_000_000;
/// Seeds of each state.
const SEEDS: u64 = 3;

/// What the rates are means of, and what makes their `range` where they have one.
pub(crate) fn lengths(model: &Model<'_>, range: &str) -> String {
    let (seeds, _) = model.seeds();
    let [duration, by_rate] = [model.present().cc, Algorithm::Bbr1].map(|cc| model.duration(cc));
    let of_bbr = if by_rate == duration { String::new() } else { format!(", {by_rate} with BBR,") };
    let (runs, range) = if seeds == 1 {
        ("one run".into(), "without loss another seed changes next to nothing")
    } else {
        (format!("{seeds} seeds"), range)
    };
    format!("rates are means of {runs} over {duration}{of_bbr} and, lasting, over as long after; {range}")
}

/// About a second on two cores for a gigabit across an ocean. A loss-based window needs the whole length to come
/// down from what its start reached; BBR needs its start and one look at the idle path, ten seconds apart. On a
/// line too fast for that, less than thirty round trips would be all start.
pub(crate) fn effort(rtt: Duration, loss: Probability) -> Effort {
    // Under loss most of these are never sent; without it they are.
    let packets = if loss.is_zero() { 10_000_000 } else { 30_000_000 };
    Effort {
        seeds: SEEDS,
        together: 1,
        seeds_at_ends: 0,
        duration: (rtt * 60).max(Duration::from_secs(25)),
        duration_by_rate: (rtt * 30).max(Duration::from_secs(10)),
        shortest: (rtt * 30).max(Duration::from_millis(100)),
        packets,
        packets_if_more: packets,
        most: TOO_MANY_PACKETS,
    }
}
