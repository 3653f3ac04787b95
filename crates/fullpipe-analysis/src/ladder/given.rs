//! Duration and number of the simulated runs on a path that was given, not fitted to a TCP transfer.

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Duration, Probability};

use super::budget;
use super::model::{Effort, Model};
use crate::remedy::Change;
pub(crate) use fullpipe_measurement::thresholds::loss::MOST as MOST_LOSS;

/// Total work in data packets above which a simulation is too slow for an interactive answer.
const TOO_MANY_PACKETS: u64 = 100_000_000;
/// Number of seeds per state.
const SEEDS: u64 = 3;

/// Returns the sentence that describes the runs behind the mean rates; `range` is its clause about the range
/// of the rates.
pub(crate) fn lengths(model: &Model<'_>, range: &str) -> String {
    let (seeds, _) = model.seeds();
    let present = model.present();
    let by_rate = present.with(Change::CongestionControl(Algorithm::Bbr1));
    let [duration, by_rate] = [present, by_rate].map(|state| model.duration(state));
    let of_bbr = if by_rate == duration { String::new() } else { format!(", {by_rate} with BBR") };
    let (runs, range) = if seeds == 1 {
        ("one run".into(), "without loss, other seeds give almost the same rates")
    } else {
        (format!("{seeds} seeds"), range)
    };
    format!(
        "rates are means of {runs} over {duration}{of_bbr}; steady-state rates are means over the following \
         interval of the same length; {range}"
    )
}

/// Returns the effort for an interactive answer: about a second on two cores for 1 Gbit/s across an ocean. A
/// loss-based sender needs the full duration to recover from the peak window of its start. BBR needs its
/// start and one ProbeRTT, which occurs every ten seconds. If the link is too fast for the full duration, a
/// run still lasts at least thirty round trips; a shorter run would consist of the start only.
pub(crate) fn effort(rtt: Duration, loss: Probability) -> Effort {
    // With loss, most packets of this budget are never sent; without loss, all of them are sent.
    let packets = if loss.is_zero() { 20_000_000 } else { 30_000_000 };
    Effort {
        seeds: SEEDS,
        together: 1,
        seeds_at_ends: 0,
        duration: (rtt * 60).max(Duration::from_secs(25)),
        duration_by_rate: (rtt * 30).max(Duration::from_secs(10)),
        present_by_rate: true,
        shortest: (rtt * 30).max(Duration::from_millis(100)),
        packets,
        packets_if_more: packets,
        most: TOO_MANY_PACKETS,
        budget: budget::INTERACTIVE,
    }
}
