//! Duration and number of the simulated runs on a path that was given, not fitted to a TCP transfer.

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Duration, Probability};

use super::budget;
use super::model::{Effort, Model};
use crate::remedy::Change;
pub(crate) use fullpipe_measurement::thresholds::loss::MOST as MOST_LOSS;
use fullpipe_measurement::throughput_models::loss_based_window;

/// Total work in data packets above which a simulation is too slow for an interactive answer.
const TOO_MANY_PACKETS: u64 = 100_000_000;
/// Number of seeds per state.
pub(super) const SEEDS: u64 = 3;

/// Returns the sentence that describes the runs behind the mean rates of `models`, which differ at most in their numbers of
/// flows, in ascending order; `range` is its clause about the range of the rates.
pub(crate) fn lengths(models: &[Model<'_>], range: &str) -> String {
    let (Some(first), Some(last)) = (models.first(), models.last()) else { return String::new() };
    let present = first.present();
    let by_rate = present.with(Change::CongestionControl(Algorithm::Bbr1));
    let [duration, by_rate] = [present, by_rate].map(|state| first.duration(state));
    let of_bbr = if by_rate == duration { String::new() } else { format!(", {by_rate} with BBR") };
    let seeds = |model: &Model<'_>| match model.seeds().0 {
        1 => "one run".to_owned(),
        seeds => format!("{seeds} seeds"),
    };
    let (of_first, of_last) = (seeds(first), seeds(last));
    let range = match first.seeds().0 {
        1 if first.repeats_itself() => "without loss, other seeds give almost the same rates",
        1 => "other seeds give other rates",
        _ => range,
    };
    let runs = if of_first == of_last {
        of_first
    } else {
        format!("{of_first} for the smallest number of flows and {of_last} for the largest")
    };
    format!(
        "rates are means of {runs} over {duration}{of_bbr}; steady-state rates are means over the following \
         interval of the same length; {range}"
    )
}

/// Duration of a run's first half at which a loss-based sender has recovered from the peak window of its start, and in
/// whose second half BBR probes the RTT twice.
const RECOVERED: Duration = Duration::from_secs(25);
/// Number of losses of a flow in each half of a run. A window that is far from its mean is near it after about five
/// losses.
/// Source: decision 0107.
const LOSSES: f64 = 5.0;
/// Upper bound of the duration for [`LOSSES`].
/// Source: decision 0107.
const LONGEST: Duration = Duration::from_secs(50);
/// Number of losses in each half if they need few packets: the mean over twenty random intervals varies less.
/// Source: decision 0107.
const MANY_LOSSES: f64 = 20.0;
/// Number of packets that a flow may send in each half for more than [`LOSSES`].
/// Source: decision 0107.
const FEW_PACKETS: f64 = 250_000.0;
/// Unit to which the duration for losses is rounded up.
const UNIT: Duration = Duration::from_secs(5);

/// Returns the effort for an interactive answer: some seconds on two cores for 1 Gbit/s across an ocean. BBR needs its
/// start and some ProbeRTTs, which occur every ten seconds. If the link is too fast for the full duration, a run still
/// lasts at least thirty round trips; a shorter run would consist of the start only.
pub(crate) fn effort(rtt: Duration, loss: Probability) -> Effort {
    // With loss, most packets of this budget are never sent; without loss, all of them are sent.
    let packets = if loss.is_zero() { 30_000_000 } else { 60_000_000 };
    let recovered = (rtt * 60).max(RECOVERED);
    Effort {
        seeds: SEEDS,
        together: 1,
        seeds_at_ends: 0,
        duration: recovered.max(between_losses(rtt, loss)),
        duration_by_rate: recovered,
        present_by_rate: true,
        shortest: (rtt * 30).max(Duration::from_millis(100)),
        packets,
        packets_if_more: packets,
        most: TOO_MANY_PACKETS,
        budget: budget::INTERACTIVE,
    }
}

/// Returns the duration in which a CUBIC flow at its mean window loses [`LOSSES`] packets, or more if the loss is so high
/// that they need few packets; zero without loss.
pub(super) fn between_losses(rtt: Duration, loss: Probability) -> Duration {
    if loss.is_zero() {
        return Duration::ZERO;
    }
    let loss = loss.as_f64();
    let interval = rtt.as_secs_f64() / (loss * loss_based_window(rtt, loss));
    let several = (LOSSES * interval).min(LONGEST.as_secs_f64());
    let many = MANY_LOSSES.min(FEW_PACKETS * loss) * interval;
    UNIT * (several.max(many) / UNIT.as_secs_f64()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with loss lasts long enough for five losses in each half: at 210 ms and 20 ppm, a CUBIC flow loses a packet
    /// every 9.6 s, so that the second half of 25 s would still show the start. Twenty losses at 100 ppm and 100 ms take
    /// 107 s, but only 200 000 packets.
    #[test]
    fn runs_last_for_several_losses() {
        let seconds = |rtt, ppm: f64| {
            let effort = effort(Duration::from_millis(rtt), Probability::from_f64(ppm / 1e6));
            (effort.duration.as_secs_f64(), effort.duration_by_rate.as_secs_f64())
        };
        assert_eq!(seconds(210, 0.0), (25.0, 25.0));
        assert_eq!(seconds(210, 20.0), (50.0, 25.0));
        assert_eq!(seconds(100, 20.0), (40.0, 25.0));
        assert_eq!(seconds(100, 100.0), (110.0, 25.0));
        assert_eq!(seconds(20, 10_000.0), (25.0, 25.0));
        assert_eq!(seconds(210, 0.001), (50.0, 25.0), "at most");
        assert_eq!(seconds(1_000, 0.0), (60.0, 60.0));
    }
}
