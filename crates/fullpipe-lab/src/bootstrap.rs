//! Bootstrap confidence intervals for three estimates: the ratio of the means of paired samples, the median of the
//! ratios of the pairs, and the mean of one sample.
//!
//! Download times are skewed: most losses cost little, and a few cost a timeout. An interval from the normal
//! approximation would be symmetric, and the true value would therefore lie beyond one of its ends too often.
//! The bootstrap needs no model of the distribution. It draws many resamples of the pairs with replacement
//! and computes the ratio of each. Both values of a pair stay together, because the runs of a pair have
//! identical random losses.
//!
//! The interval is the bias-corrected and accelerated bootstrap interval (BCa): B. Efron, "Better bootstrap confidence
//! intervals", Journal of the American Statistical Association 82 (1987), sections 2 and 3. For a median, the
//! acceleration is zero, because the jackknife that estimates it is not consistent for medians (B. Efron and R.
//! Tibshirani, "An Introduction to the Bootstrap" (1993), section 10.6). The resamples come from keyed draws, so
//! the same samples always have the same interval.

use fullpipe_units::Draws;

use crate::stats::{TAIL, bisect, median};

/// Number of resamples. About 75 of them lie beyond each end of a 95 % interval, so another choice of
/// resamples moves an end by a few percent of the interval's width.
const RESAMPLES: usize = 2_999;
/// Number of the random stream for the resamples.
const STREAM: u64 = 0x626f_6f74;

/// Ratio of the means of paired samples, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanRatio {
    /// Mean of the numerators divided by the mean of the denominators.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl MeanRatio {
    /// Computes the ratio of the mean of the first values of `pairs` to the mean of the second values. `seed`
    /// selects the resamples.
    ///
    /// Returns `None` if there are fewer than two pairs, because a single pair has no interval, or if any
    /// value is not positive and finite.
    pub fn of(pairs: &[(f64, f64)], seed: u64) -> Option<Self> {
        Some(Self::with_sums(pairs, sums(pairs)?, seed))
    }

    /// Computes the ratio and its interval from pairs with these sums. The sum of the second values must not be zero.
    fn with_sums(pairs: &[(f64, f64)], sums: (f64, f64), seed: u64) -> Self {
        let ratio = sums.0 / sums.1;
        let ratio_of = |drawn: &[usize]| {
            let add = |(a, b): (f64, f64), index: &usize| (a + pairs[*index].0, b + pairs[*index].1);
            let (a, b) = drawn.iter().fold((0.0, 0.0), add);
            a / b
        };
        let resampled = resampled(pairs.len(), seed, ratio_of);
        let (low, high) = interval(resampled, ratio, acceleration(pairs, sums));
        Self { ratio, low, high }
    }
}

/// Median of the ratios of paired samples, with its 95 % confidence interval. Each pair has the same weight,
/// regardless of the size of its values. In a ratio of means, by contrast, the pairs with the largest values
/// dominate, such as those from the fastest of several paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianRatio {
    /// Median over the pairs of the first value divided by the second value; infinite if at least half of the second
    /// values are zero.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl MedianRatio {
    /// Computes the median of the ratios of `pairs`. `seed` selects the resamples.
    ///
    /// Returns `None` if there are fewer than two pairs, because a single pair has no interval, if any value is
    /// negative or not finite, or if both values of a pair are zero, because such a pair has no ratio.
    pub fn of(pairs: &[(f64, f64)], seed: u64) -> Option<Self> {
        let has_ratio = |&(a, b): &(f64, f64)| {
            a >= 0.0 && b >= 0.0 && a.is_finite() && b.is_finite() && (a > 0.0 || b > 0.0)
        };
        if pairs.len() < 2 || !pairs.iter().all(has_ratio) {
            return None;
        }
        let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
        let estimate = median(ratios.clone())?;
        // A resample has as many values as the sample, so it has a median.
        let of_drawn = |drawn: &[usize]| median(drawn.iter().map(|index| ratios[*index]).collect());
        let resampled = resampled(ratios.len(), seed, |drawn| of_drawn(drawn).unwrap_or(estimate));
        let (low, high) = interval(resampled, estimate, 0.0);
        Some(Self { median: estimate, low, high })
    }
}

/// Returns the two ends of the 95 % interval of an estimate, computed from the estimates of its resamples.
fn interval(mut resampled: Vec<f64>, estimate: f64, acceleration: f64) -> (f64, f64) {
    resampled.sort_unstable_by(f64::total_cmp);
    let bias = quantile_of_normal(share_below(&resampled, estimate));
    let end = |tail: f64| {
        let shifted = bias + quantile_of_normal(tail);
        let corrected = bias + shifted / (1.0 - acceleration * shifted);
        let rank = (share_of_normal(corrected) * (RESAMPLES + 1) as f64) as usize;
        resampled[rank.clamp(1, RESAMPLES) - 1]
    };
    (end(TAIL), end(1.0 - TAIL))
}

/// Mean of a sample, with its 95 % confidence interval. Unlike the values in a ratio, the values may have any sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanInterval {
    /// Mean of the values.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl MeanInterval {
    /// Computes the mean of `values` and its interval. `seed` selects the resamples.
    ///
    /// Returns `None` if there are fewer than two values, because a single value has no interval, or if any
    /// value is not finite.
    pub fn of(values: &[f64], seed: u64) -> Option<Self> {
        if values.len() < 2 || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        // A mean is the ratio of the sum of the values to their number.
        let pairs: Vec<(f64, f64)> = values.iter().map(|value| (*value, 1.0)).collect();
        let sums = (values.iter().sum(), values.len() as f64);
        let MeanRatio { ratio, low, high } = MeanRatio::with_sums(&pairs, sums, seed);
        Some(Self { mean: ratio, low, high })
    }
}

/// Returns the ratio of the mean of the first values of `pairs` to the mean of the second values, without an
/// interval; `None` in the same cases as [`MeanRatio::of`].
pub fn ratio_of_means(pairs: &[(f64, f64)]) -> Option<f64> {
    sums(pairs).map(|(a, b)| a / b)
}

/// Returns the sums of the first and of the second values; `None` if there are fewer than two pairs, or if any value is
/// not positive and finite.
fn sums(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let positive = |&(a, b): &(f64, f64)| a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite();
    (pairs.len() >= 2 && pairs.iter().all(positive))
        .then(|| pairs.iter().fold((0.0_f64, 0.0_f64), |(x, y), (a, b)| (x + a, y + b)))
}

/// Returns the estimate of each resample. A resample consists of as many indices as there are samples, drawn with
/// replacement.
fn resampled(samples: usize, seed: u64, estimate: impl Fn(&[usize]) -> f64) -> Vec<f64> {
    let draws = Draws::new(seed, STREAM);
    let count = samples as u64;
    let mut drawn = vec![0; samples];
    let resample = |number: u64| {
        for (index, ordinal) in drawn.iter_mut().zip(number * count..) {
            // Scale the upper half of the draw to the range 0..count.
            *index = (((draws.at(ordinal) >> 32) * count) >> 32) as usize;
        }
        estimate(&drawn)
    };
    (0..RESAMPLES as u64).map(resample).collect()
}

/// Returns the share of the `sorted` values below `value`; values that are equal to it count half.
fn share_below(sorted: &[f64], value: f64) -> f64 {
    let below = sorted.partition_point(|found| *found < value);
    let up_to = sorted.partition_point(|found| *found <= value);
    let share = (below + up_to) as f64 / (2 * sorted.len()) as f64;
    // A share of 0 or 1 has no finite quantile, so the share stays half a resample away from both.
    let least = 0.5 / sorted.len() as f64;
    share.clamp(least, 1.0 - least)
}

/// Returns the acceleration, which the jackknife estimates from the ratios that leave out one pair each.
/// `sums` are the sums of the first and of the second values.
fn acceleration(pairs: &[(f64, f64)], sums: (f64, f64)) -> f64 {
    let without = |(a, b): &(f64, f64)| (sums.0 - a) / (sums.1 - b);
    let mean = pairs.iter().map(without).sum::<f64>() / pairs.len() as f64;
    let (squares, cubes) = pairs
        .iter()
        .map(|pair| mean - without(pair))
        .fold((0.0_f64, 0.0_f64), |sums, off| (sums.0 + off.powi(2), sums.1 + off.powi(3)));
    if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

/// Returns the probability that a standard normal variable is below `z`, with an error below 1e-7
/// (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17).
fn share_of_normal(z: f64) -> f64 {
    const B: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = B.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let beyond = density * polynomial;
    if z > 0.0 { 1.0 - beyond } else { beyond }
}

/// Returns the value below which a standard normal variable lies with probability `share`, by bisection
/// between -8 and 8.
fn quantile_of_normal(share: f64) -> f64 {
    bisect(-8.0, 8.0, |z| share_of_normal(z) < share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns 60 pairs of positive, skewed values. Each value is the sum of a constant, a part that both
    /// values of the pair share, and an individual part; the parts have an exponential distribution. The
    /// individual part of the second value has the mean 0.1, and that of the first value has the mean `own`.
    fn skewed(own: f64, seed: u64) -> Vec<(f64, f64)> {
        let exponential = |stream: u64, ordinal: u64| {
            let uniform = ((Draws::new(seed, stream).at(ordinal) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            -uniform.ln()
        };
        let pair = |i: u64| {
            let shared = 0.2 + 0.1 * exponential(0, i);
            (shared + own * exponential(1, i), shared + 0.1 * exponential(2, i))
        };
        (0..60).map(pair).collect()
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_7), (1.959_964, 0.975), (-2.575_829, 0.005)] {
            assert!((share_of_normal(z) - share).abs() < 2e-7, "{z}");
            assert!((quantile_of_normal(share) - z).abs() < 2e-5, "{share}");
        }
    }

    #[test]
    fn equal_values_count_half() {
        assert_eq!(share_below(&[1.0, 2.0, 2.0, 3.0], 2.0), 0.5);
        assert_eq!(share_below(&[1.0, 2.0, 2.0, 3.0], 2.5), 0.75);
        assert_eq!(share_below(&[1.0, 2.0, 2.0, 3.0], 9.0), 0.875, "no quantile is infinite");
    }

    /// If the denominators are constant, the acceleration equals that of a mean: the sum of the cubed
    /// deviations, divided by six times the sum of the squared deviations to the power of 1.5.
    #[test]
    fn the_acceleration_of_a_mean_is_known() {
        let found = acceleration(&[(1.0, 1.0), (2.0, 1.0), (6.0, 1.0)], (9.0, 3.0));
        assert!((found - 18.0 / (6.0 * 14_f64.powf(1.5))).abs() < 1e-12, "{found}");
    }

    #[test]
    fn pairs_without_a_difference_have_an_interval_without_a_width() {
        let same = MeanRatio::of(&[(0.4, 0.2); 10], 1).expect("an interval");
        for value in [same.ratio, same.low, same.high] {
            assert!((value - 2.0).abs() < 1e-12, "{same:?}");
        }
    }

    #[test]
    fn too_few_pairs_and_impossible_times_have_no_interval() {
        for pairs in
            [&[] as &[(f64, f64)], &[(1.0, 1.0)], &[(1.0, 1.0), (0.0, 1.0)], &[(1.0, 1.0), (1.0, f64::NAN)]]
        {
            assert_eq!(MeanRatio::of(pairs, 1), None, "{pairs:?}");
        }
    }

    #[test]
    fn the_same_pairs_have_the_same_interval() {
        let pairs = skewed(0.3, 3);
        let found = MeanRatio::of(&pairs, 7).expect("an interval");
        assert_eq!(MeanRatio::of(&pairs, 7), Some(found));
        let other = MeanRatio::of(&pairs, 8).expect("an interval");
        assert!(other.ratio == found.ratio && other.low != found.low, "{found:?} {other:?}");
        assert!((other.low / found.low - 1.0).abs() < 0.01, "{found:?} {other:?}");
    }

    /// The interval of a mean equals that of a ratio with constant denominators, even if a value is negative.
    #[test]
    fn a_mean_may_be_negative() {
        let values: Vec<f64> = skewed(0.3, 3).iter().map(|(a, _)| *a).collect();
        let ratio =
            MeanRatio::of(&values.iter().map(|a| (*a, 1.0)).collect::<Vec<_>>(), 7).expect("positive");
        let mean = MeanInterval::of(&values, 7).expect("an interval");
        assert_eq!((mean.mean, mean.low, mean.high), (ratio.ratio, ratio.low, ratio.high));
        let shifted: Vec<f64> = values.iter().map(|value| value - 5.0).collect();
        let shifted = MeanInterval::of(&shifted, 7).expect("an interval");
        for (value, expected) in
            [(shifted.mean, mean.mean), (shifted.low, mean.low), (shifted.high, mean.high)]
        {
            assert!((value + 5.0 - expected).abs() < 1e-9, "{shifted:?} {mean:?}");
        }
        assert_eq!((MeanInterval::of(&[1.0], 1), MeanInterval::of(&[1.0, f64::NAN], 1)), (None, None));
    }

    /// A unit does not change a ratio, and exchanging the sides inverts it.
    #[test]
    fn units_and_sides_do_not_matter() {
        let pairs = skewed(0.3, 4);
        let found = MeanRatio::of(&pairs, 7).expect("an interval");
        let in_ms: Vec<_> = pairs.iter().map(|(a, b)| (1e3 * a, 1e3 * b)).collect();
        let scaled = MeanRatio::of(&in_ms, 7).expect("an interval");
        let exchanged: Vec<_> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let inverse = MeanRatio::of(&exchanged, 7).expect("an interval");
        for (value, expected) in [
            (scaled.ratio, found.ratio),
            (scaled.low, found.low),
            (scaled.high, found.high),
            (1.0 / inverse.ratio, found.ratio),
        ] {
            assert!((value / expected - 1.0).abs() < 1e-9, "{found:?} {scaled:?} {inverse:?}");
        }
        for (value, expected) in [(1.0 / inverse.high, found.low), (1.0 / inverse.low, found.high)] {
            assert!((value / expected - 1.0).abs() < 0.01, "{found:?} {inverse:?}");
        }
    }

    /// The median is that of the ratios, not the ratio of the medians; an even number of pairs has two middle ratios.
    #[test]
    fn a_median_is_that_of_the_ratios() {
        let of = |pairs: &[(f64, f64)]| MedianRatio::of(pairs, 1).expect("an interval");
        assert_eq!(of(&[(1.0, 2.0), (9.0, 3.0), (2.0, 2.0)]).median, 1.0);
        assert_eq!(of(&[(1.0, 2.0), (9.0, 3.0), (2.0, 2.0), (4.0, 2.0)]).median, 1.5);
        let same = of(&[(0.4, 0.2); 10]);
        assert_eq!((same.median, same.low, same.high), (2.0, 2.0, 2.0));
        // A pair whose first value is zero has the ratio 0, and a pair whose second value is zero has an
        // infinite ratio.
        let without = of(&[(0.0, 1.0), (1.0, 0.0), (3.0, 1.0)]);
        assert_eq!((without.median, without.low, without.high), (3.0, 0.0, f64::INFINITY));
        for pairs in
            [&[] as &[(f64, f64)], &[(1.0, 1.0)], &[(0.0, 0.0); 2], &[(1.0, -1.0); 2], &[(f64::NAN, 1.0); 2]]
        {
            assert_eq!(MedianRatio::of(pairs, 1), None, "{pairs:?}");
        }
    }

    /// A few pairs with huge values dominate a ratio of means, but not a median.
    #[test]
    fn outliers_do_not_move_a_median() {
        let mut pairs: Vec<_> = skewed(0.1, 5).iter().map(|(a, b)| (2.0 * a, *b)).collect();
        let before = MedianRatio::of(&pairs, 7).expect("an interval");
        assert!(
            (1.6..2.4).contains(&before.median) && before.low < before.median && before.median < before.high
        );
        pairs.extend([(1e9, 1.0); 3]);
        let after = MedianRatio::of(&pairs, 7).expect("an interval");
        assert!(
            (after.median / before.median - 1.0).abs() < 0.15 && after.high < 2.0 * before.high,
            "{after:?}"
        );
        assert!(MeanRatio::of(&pairs, 7).expect("an interval").ratio > 1e6);
    }

    /// The long tail of the numerators is above the mean, so the interval extends farther above the ratio
    /// than below it.
    #[test]
    fn the_interval_of_skewed_values_is_not_symmetric() {
        let found = MeanRatio::of(&skewed(0.3, 3), 7).expect("an interval");
        let (down, up) = (found.ratio - found.low, found.high - found.ratio);
        assert!(down > 0.0 && up > 1.1 * down, "{found:?}");
    }
}
