//! Verdict on a change, from alternating measurements of the rate before and after it.

use std::fmt;

use fullpipe_measurement::thresholds::rate;
use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::Serialize;

/// Verdict from alternating measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every run after the change is faster than every run before it, and the mean gain is large enough to
    /// matter.
    Gain,
    /// The mean gain is too small to matter.
    NoGain,
    /// The mean gain is large enough, but the runs before and after overlap: the path varies by more than the
    /// change gains.
    Unclear,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gain => "the rate increased",
            Self::NoGain => "no gain",
            Self::Unclear => "unclear, because the rates before and after the change overlap",
        })
    }
}

/// Compares the rates by rank, because a few runs do not show a distribution. If the change had no effect,
/// the probability that all n runs after it are faster than the n runs before it would be 1 in 20 for n = 3,
/// and 1 in 70 for n = 4.
pub fn judge(before: &[Rate], after: &[Rate]) -> Verdict {
    let mean =
        |rates: &[Rate]| rates.iter().map(|rate| rate.as_bps()).sum::<u64>() / rates.len().max(1) as u64;
    let (Some(best_before), Some(worst_after)) = (before.iter().max(), after.iter().min()) else {
        return Verdict::Unclear;
    };
    let worth = mean(after) > Rate::from_bps(mean(before)).mul_div(rate::WORTH.0, rate::WORTH.1).as_bps();
    match (worth, worst_after > best_before) {
        (true, true) => Verdict::Gain,
        (true, false) => Verdict::Unclear,
        (false, _) => Verdict::NoGain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates<const N: usize>(mbit: [u64; N]) -> [Rate; N] {
        mbit.map(|mbit| Rate::from_bps(mbit * 1_000_000))
    }

    /// A single good run among bad ones is due to the path, not to the change.
    #[test]
    fn a_gain_is_one_in_every_run() {
        assert_eq!(judge(&rates([70, 90, 80]), &rates([700, 650, 810])), Verdict::Gain);
        assert_eq!(judge(&rates([70, 90, 80]), &rates([85, 300, 100])), Verdict::Unclear);
        assert_eq!(judge(&rates([70, 90, 80]), &rates([82, 81, 79])), Verdict::NoGain);
        assert_eq!(judge(&rates([700, 690]), &rates([701, 702])), Verdict::NoGain, "too little to matter");
        assert_eq!(judge(&[], &[]), Verdict::Unclear);
    }
}
