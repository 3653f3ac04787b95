//! Statistics of values that were measured or simulated several times.
//!
//! | function | definition |
//! |---|---|
//! | [`mean`] | arithmetic mean |
//! | [`median`] | middle value; the mean of the middle two if the number of values is even |
//! | [`upper_median`] | middle value; the upper of the middle two if the number of values is even |
//! | [`quantile`] | interpolated between the two nearest values |
//! | [`nearest`] | the value that is nearest to the quantile |
//! | [`nearest_rank`] | smallest value that at least the given share of the values does not exceed |
//! | [`poisson_interval`] | exact (Garwood) 95 % confidence interval of a count |
//!
//! [`median`] and [`quantile`] may return a value that never occurred; [`upper_median`], [`nearest`] and
//! [`nearest_rank`] return one of the values. [`upper_median`] and [`nearest_rank`] therefore also apply to
//! types that have an order but no mean.

use std::cmp::Ordering;

/// Returns the arithmetic mean, or `None` for no values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

/// Returns the median, or `None` for no values. The median of an even number of values is the mean of the
/// middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let (middle, is_even) = (values.len() / 2, values.len().is_multiple_of(2));
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(*upper, |lower| 0.5 * (lower + *upper)))
}

/// Returns the median in the order of `compare`, or `None` for no values. The median of an even number of
/// values is the upper of the middle two.
pub fn upper_median<T: Copy>(mut values: Vec<T>, compare: impl FnMut(&T, &T) -> Ordering) -> Option<T> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, compare).1)
}

/// Returns the quantile at `share`, from 0 to 1, of `sorted` values, or `None` for no values. A quantile
/// between two values is interpolated linearly: type 7 of Hyndman and Fan (1996), the default of NumPy and R.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (*sorted.get(at.floor() as usize)?, *sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

/// Returns the value among `sorted` that is nearest to the quantile at `share`, from 0 to 1, or `None` for no
/// values. If the quantile is halfway between two values, the function returns the upper one.
pub fn nearest(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    sorted.get(at.round() as usize).copied()
}

/// Returns the smallest of the `sorted` values that at least `percent` percent of the values do not exceed,
/// or `None` for no values.
pub fn nearest_rank<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied()
}

/// Probability beyond each bound of a 95 % interval.
pub(crate) const TAIL: f64 = 0.025;
/// Half width of a 95 % interval in the normal approximation of the Poisson distribution, in standard
/// deviations.
const DEVIATIONS: f64 = 1.96;
/// Maximum count for the exact interval. For larger counts, the bounds of the normal approximation differ
/// from the exact bounds by less than 2 in 100,000.
const MANY: u64 = 100_000;

/// Returns the exact (Garwood) 95 % confidence interval of a Poisson mean for a count of `events`. If the
/// mean equals the lower bound, a count of at least `events` has a probability of 2.5 %. If the mean equals
/// the upper bound, a count of at most `events` has a probability of 2.5 %.
///
/// The bounds are halves of chi-squared quantiles. No library is used: `statrs` 0.19 requires a newer Rust
/// than this workspace, and adds several crates for this one function.
pub fn poisson_interval(events: u64) -> (f64, f64) {
    let n = events as f64;
    if events > MANY {
        let half_width = DEVIATIONS * n.sqrt();
        return (n - half_width, n + half_width);
    }
    let ln_factorial: f64 = (1..=events).map(|i| (i as f64).ln()).sum();
    let ln_point = |mean: f64| if events == 0 { -mean } else { n * mean.ln() - mean - ln_factorial };
    // Each tail is summed from the counted value outwards, in the direction in which the terms decrease. This
    // avoids cancellation and any underflow that matters.
    let at_least = |mean: f64| ln_point(mean).exp() * falling_sum((events + 1..).map(|i| mean / i as f64));
    let at_most = |mean: f64| ln_point(mean).exp() * falling_sum((1..=events).rev().map(|i| i as f64 / mean));
    let low = if events == 0 { 0.0 } else { bisect(0.0, n, |mean| at_least(mean) < TAIL) };
    let high = bisect(n, n + 10.0 * n.sqrt() + 10.0, |mean| at_most(mean) > TAIL);
    (low, high)
}

/// Returns 1 + r1 + r1 r2 + ... for ratios below one.
fn falling_sum(ratios: impl Iterator<Item = f64>) -> f64 {
    let mut sum = 1.0;
    let mut term = 1.0;
    for ratio in ratios {
        term *= ratio;
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    sum
}

/// Returns the point between `low` and `high` at which `below` becomes false.
pub(crate) fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    // Each step adds one bit; 80 bits are more than a double can hold.
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if below(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_values_there_is_no_statistic() {
        assert_eq!((mean([]), median(Vec::new())), (None, None));
        assert_eq!((quantile(&[], 0.5), nearest(&[], 0.5)), (None, None));
        assert_eq!((upper_median(Vec::<u64>::new(), Ord::cmp), nearest_rank::<u64>(&[], 50)), (None, None));
    }

    #[test]
    fn means_and_medians() {
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(median(vec![5.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), Some(3.0), "between the middle two");
        assert_eq!((median(vec![7.0]), median(vec![8.0, 7.0])), (Some(7.0), Some(7.5)));
        assert_eq!(upper_median(vec![9, 1, 2, 4], Ord::cmp), Some(4), "one of the values");
        assert_eq!(upper_median(vec![5.0, 1.0, 2.0], f64::total_cmp), Some(2.0));
    }

    #[test]
    fn quantiles_are_between_the_values() {
        let values: Vec<f64> = (0..=10).map(f64::from).collect();
        assert_eq!((quantile(&values, 0.1), quantile(&values, 0.9)), (Some(1.0), Some(9.0)));
        assert_eq!((quantile(&values, 0.0), quantile(&values, 1.0)), (Some(0.0), Some(10.0)));
        // R: quantile(c(1, 2, 4, 8), c(0.25, 0.5, 0.75)) is 1.75, 3 and 5.
        let four = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.25, 0.5, 0.75].map(|share| quantile(&four, share)), [Some(1.75), Some(3.0), Some(5.0)]);
        assert_eq!(quantile(&[5.0], 0.9), Some(5.0));
    }

    #[test]
    fn the_nearest_value_is_one_of_the_values() {
        let four = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(
            [0.0, 0.1, 0.25, 0.5, 0.9].map(|share| nearest(&four, share)),
            [1.0, 1.0, 2.0, 4.0, 8.0].map(Some)
        );
    }

    #[test]
    fn a_nearest_rank_is_one_of_the_values() {
        let values: Vec<u64> = (1..=20).collect();
        assert_eq!(
            [50, 95, 96, 100].map(|percent| nearest_rank(&values, percent)),
            [10, 19, 20, 20].map(Some)
        );
        assert_eq!(nearest_rank(&[7, 8], 50), Some(7));
        assert_eq!(nearest_rank(&[7], 0), Some(7));
    }

    #[track_caller]
    fn assert_interval(events: u64, low: f64, high: f64) {
        let (l, h) = poisson_interval(events);
        assert!((l - low).abs() < 6e-4 * low.max(1.0), "low of {events}: {l}, not {low}");
        assert!((h - high).abs() < 6e-4 * high, "high of {events}: {h}, not {high}");
    }

    /// The expected intervals are those of Garwood's table (half of the chi-squared quantiles).
    #[test]
    fn the_interval_is_the_exact_one() {
        assert_interval(0, 0.0, 3.689);
        assert_interval(1, 0.0253, 5.572);
        assert_interval(2, 0.242, 7.225);
        assert_interval(3, 0.619, 8.767);
        assert_interval(10, 4.795, 18.390);
        assert_interval(100, 81.364, 121.627);
    }

    #[test]
    fn large_counts_neither_overflow_nor_jump() {
        assert_interval(MANY, 99_381.2, 100_621.7);
        let (exact, _) = poisson_interval(MANY);
        let (normal, _) = poisson_interval(MANY + 1);
        assert!((exact - normal).abs() < 5.0);
        let (low, high) = poisson_interval(u64::MAX);
        assert!(low.is_finite() && high.is_finite());
    }
}
