//! RTT histogram that yields quantiles in bounded memory.
//!
//! Only the range between the smallest and the largest sample has bins, because the samples of a connection
//! rarely spread over more than a few doublings, and an idle connection has only one or two samples.

use fullpipe_units::Duration;

/// Binary logarithm of the number of bins per doubling. The width of a bin is at most 1/32 of its lower edge,
/// about 3 %.
const STEPS_LOG2: u32 = 5;
const STEPS: u64 = 1 << STEPS_LOG2;
/// Number of bins that are allocated together: a quarter of a doubling.
const GRAIN: usize = 8;

/// Counts of RTT samples in logarithmic bins, with the exact mean and minimum.
#[derive(Clone, Debug)]
pub struct RttHistogram {
    /// Number of the first bin in `bins`, a multiple of [`GRAIN`].
    first: usize,
    bins: Vec<u32>,
    count: u64,
    sum: u128,
    min: Duration,
}

impl Default for RttHistogram {
    fn default() -> Self {
        Self { first: 0, bins: Vec::new(), count: 0, sum: 0, min: Duration::MAX }
    }
}

impl RttHistogram {
    /// Counts one RTT sample.
    #[inline]
    pub fn add(&mut self, rtt: Duration) {
        *self.bin_mut(bin(rtt.as_nanos())) += 1;
        self.count += 1;
        self.sum += u128::from(rtt.as_nanos());
        self.min = self.min.min(rtt);
    }

    /// Adds all samples of the histogram `other`.
    pub fn merge(&mut self, other: &Self) {
        for (bin, more) in (other.first..).zip(&other.bins).filter(|(_, more)| **more > 0) {
            *self.bin_mut(bin) += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
    }

    /// Returns the smallest RTT sample, or `None` if the histogram is empty.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the exact mean of all RTT samples, or `None` if the histogram is empty.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos((self.sum / u128::from(self.count)) as u64))
    }

    /// Returns the upper edge of the bin that contains the given percentile of the RTT. The value is within 3
    /// % of the true percentile.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        self.permille(10 * percent)
    }

    /// Returns a quantile of the RTT like [`RttHistogram::percentile`], but takes the quantile in
    /// thousandths.
    pub fn permille(&self, permille: u64) -> Option<Duration> {
        let wanted = (self.count * permille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (i, &count) in self.bins.iter().enumerate() {
            seen += u64::from(count);
            if seen >= wanted && self.count > 0 {
                return Some(Duration::from_nanos(lower_edge(self.first + i + 1).saturating_sub(1)));
            }
        }
        None
    }

    #[inline]
    fn bin_mut(&mut self, bin: usize) -> &mut u32 {
        if bin < self.first || bin >= self.first + self.bins.len() {
            self.extend_to(bin);
        }
        &mut self.bins[bin - self.first]
    }

    /// Extends the histogram so that it contains `bin`.
    #[cold]
    fn extend_to(&mut self, bin: usize) {
        let begin = bin - bin % GRAIN;
        let end = begin + GRAIN;
        if self.bins.is_empty() {
            self.first = begin;
        }
        let (first, last) = (self.first.min(begin), (self.first + self.bins.len()).max(end));
        let mut bins = Vec::with_capacity(last - first);
        bins.resize(self.first - first, 0);
        bins.append(&mut self.bins);
        bins.resize(last - first, 0);
        (self.first, self.bins) = (first, bins);
    }
}

fn bin(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let exponent = value.ilog2() - STEPS_LOG2;
    (((u64::from(exponent) + 1) << STEPS_LOG2) + ((value >> exponent) - STEPS)) as usize
}

fn lower_edge(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < STEPS {
        return bin;
    }
    let (exponent, step) = ((bin >> STEPS_LOG2) - 1, bin & (STEPS - 1));
    (STEPS + step).checked_shl(exponent as u32).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bin() {
        let mut histogram = RttHistogram::default();
        for ms in 1..=1000 {
            histogram.add(Duration::from_millis(ms));
        }
        let p95 = histogram.percentile(95).unwrap().as_millis_f64();
        assert!((950.0..=980.0).contains(&p95), "{p95}");
        assert_eq!(histogram.min(), Some(Duration::from_millis(1)));
        assert_eq!(histogram.mean(), Some(Duration::from_micros(500_500)));
        // From 1 to 1000 ms, there are ten doublings.
        let ten = 10 * STEPS as usize;
        assert!((ten..=ten + 2 * GRAIN).contains(&histogram.bins.len()), "{}", histogram.bins.len());
        histogram.add(Duration::MAX);
        assert!(RttHistogram::default().percentile(95).is_none());
    }
}
